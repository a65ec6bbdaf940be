"""Real programs for tests: found or skipped by name, started on free ports, stopped by process id."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0


def engines_are_required() -> bool:
    """Whether a missing engine is a failure (`.ci/run`) and not a named skip."""
    return os.environ.get("CI") == "true" or os.environ.get("TRANSLOAD_REQUIRE_ENGINES") == "1"


def require(program: str) -> Path:
    """Where a program is; without it the test is skipped by name, or fails where engines are required.

    Args:
        program: Its name, or an absolute path.
    """
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS])
    found = shutil.which(program, path=folders)
    if found is None:
        missing(f"{program} is not installed")
    return Path(found)


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it where engines are required.

    Args:
        reason: Which engine is missing, for the person who reads the summary.
    """
    if engines_are_required():
        pytest.fail(f"a real engine is required here: {reason}")
    pytest.skip(reason)


def free_port() -> int:
    """A TCP port on loopback that nobody used a moment ago; prefer services that bind port 0 themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(
    command: Sequence[str | Path],
    *,
    log: Path,
    is_ready: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
    start_seconds: float = _START_SECONDS,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a service for as long as the block lasts.

    Args:
        command: Its argument list.
        log: File that receives what it prints.
        is_ready: Asked again and again until it says yes.
        environment: Its environment; this process's own when None.
        start_seconds: How long it may take to become ready.

    Yields:
        The process.

    Raises:
        RuntimeError: It ended or did not become ready; the message quotes the end of its log.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=None if environment is None else dict(environment),
        )  # fmt: skip
    try:
        deadline = time.monotonic() + start_seconds
        while not is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not become ready:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
