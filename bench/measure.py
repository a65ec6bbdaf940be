"""Running one contender and measuring it: seconds, processor time, resident memory, disk."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class Measured:
    """What one run took.

    Attributes:
        name: Whose run.
        seconds: From start to end.
        sync_seconds: What `sync` took afterwards: data that the run left to the page cache.
        cpu_seconds: User and system time of the process and its children.
        peak_memory_bytes: Largest resident size of any one process of the run, daemons apart.
        peak_disk_bytes: Most that the watched folders held during the run, above what they held before.
        final_disk_bytes: What they held after it, likewise.
    """

    name: str
    seconds: float
    sync_seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    peak_disk_bytes: int
    final_disk_bytes: int


class RunFailed(Exception):
    """A contender ended with another exit code than 0."""


def measure(
    name: str,
    command: Sequence[str | Path],
    *,
    watch: Sequence[Path],
    log: Path,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Measured:
    """Run a command to its end.

    Args:
        name: Whose run.
        command: Argument list.
        watch: Folders whose use of disk is sampled.
        log: Where standard output and error go.
        environment: Added to this process's.
        cwd: Working directory.

    Raises:
        RunFailed: With the end of the log.
    """
    os.sync()
    with log.open("wb") as output, contextlib.closing(_DiskWatch(watch)) as disk:
        disk.start()
        begun = time.monotonic()
        process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})}, cwd=cwd,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        end = log.read_text(errors="replace")[-2000:]
        raise RunFailed(f"{name} ended with {process.returncode}: {' '.join(map(str, command))}\n{end}")
    begun = time.monotonic()
    os.sync()
    return Measured(
        name=name,
        seconds=seconds,
        sync_seconds=time.monotonic() - begun,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_memory_bytes=usage.ru_maxrss * 1024,
        peak_disk_bytes=disk.peak_bytes - disk.before_bytes,
        final_disk_bytes=disk.now() - disk.before_bytes,
    )


def disk_use(folder: Path) -> int:
    """Bytes on disk below a folder (holes are not counted); what vanishes meanwhile is passed over."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    total += disk_use(Path(entry.path))
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


class _DiskWatch:
    """Samples folders on a thread."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.before_bytes = self.peak_bytes = self.now()

    def now(self) -> int:
        """Bytes on disk at this moment."""
        return sum(disk_use(folder) for folder in self._folders)

    def start(self) -> None:
        """Begin to sample."""
        self._thread.start()

    def _sample(self) -> None:
        pause = SAMPLE_SECONDS
        while not self._stop.wait(pause):
            begun = time.monotonic()
            self.peak_bytes = max(self.peak_bytes, self.now())
            # A daemon's folder has many files: looking must not cost the contender more than a few percent.
            pause = max(SAMPLE_SECONDS, 30 * (time.monotonic() - begun))

    def close(self) -> None:
        """End it, with a last look."""
        self._stop.set()
        self._thread.join()
        self.peak_bytes = max(self.peak_bytes, self.now())
