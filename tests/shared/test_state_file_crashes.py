"""The state file's lock, and what is left of it when a run is killed or the disk is full."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.sample_state import Sample, add_and_save, names_in, write_sample
from transload.shared.atomic_files import FaultPoints
from transload.shared.errors import Locked, NotEnoughSpace, TransloadError
from transload.shared.state_file import (
    StateFile,
    read_state,
)

SEED = int(os.environ.get("TRANSLOAD_TEST_SEED", random.randrange(1 << 32)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.yml"


@pytest.fixture
def fault_points() -> Iterator[type[FaultPoints]]:
    yield FaultPoints
    FaultPoints.reached = None


# --- the lock ---

HOLD = """
import sys
from pathlib import Path
from doubles.sample_state import Sample
from transload.shared.state_file import StateFile
with StateFile.open(Path(sys.argv[1]), Sample, Sample.fresh) as file:
    print("held", flush=True)
    sys.stdin.read()
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def test_a_second_process_is_refused_at_once_and_a_killed_one_leaves_no_lock(path: Path) -> None:
    with start(HOLD, str(path)) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        try:
            with pytest.raises(Locked) as caught, StateFile.open(path, Sample, Sample.fresh):
                pytest.fail("two runs held one state")
            assert f"process {other.pid}" in caught.value.message
            assert caught.value.exit_code == 46
            assert read_state(path, Sample) is None  # reading needs no lock
        finally:
            other.send_signal(signal.SIGKILL)
    with StateFile.open(path, Sample, Sample.fresh) as file:
        file.save()


def test_a_file_system_without_locks_is_a_warning(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with StateFile.open(path, Sample, Sample.fresh) as file:
        file.save()
    assert "has no locks" in capsys.readouterr().err
    assert path.exists()


def test_the_lock_is_no_way_out_of_the_folder(path: Path, tmp_path: Path) -> None:
    path.with_name("state.yml.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(TransloadError), StateFile.open(path, Sample, Sample.fresh):
        pytest.fail("a symbolic link was followed")
    assert not (tmp_path / "victim").exists()


# --- crashes ---


class Crash(BaseException):
    pass


def test_a_crash_at_any_durable_step_leaves_the_old_or_the_new_state(
    path: Path, fault_points: type[FaultPoints]
) -> None:
    steps: list[str] = []
    fault_points.reached = steps.append
    write_sample(path, "old")
    add_and_save(path, "new")
    assert len(steps) >= 3
    for crash_at in range(len(steps)):
        write_sample(path, "old")
        left = [crash_at]

        def reached(name: str, left: list[int] = left) -> None:
            if left[0] == 0:
                raise Crash(name)
            left[0] -= 1

        fault_points.reached = reached
        with pytest.raises(Crash):
            add_and_save(path, "new")
        fault_points.reached = None
        state = read_state(path, Sample)
        assert state is not None
        assert state.names in (["old"], ["old", "new"])


SAVE_FOR_EVER = """
import sys
from pathlib import Path
from doubles.sample_state import Sample
from transload.shared.state_file import StateFile
with StateFile.open(Path(sys.argv[1]), Sample, Sample.fresh) as file:
    while True:
        number = int(file.state.names[0]) + 1 if file.state.names else 1
        file.state.names = [str(number)] * 400
        file.save(force=True)
        print(number, flush=True)
"""


def test_kill_9_during_saves_never_loses_a_finished_save(path: Path) -> None:
    print(f"seed {SEED} (TRANSLOAD_TEST_SEED)")
    chance = random.Random(SEED)
    last = 0
    for _ in range(6):
        with start(SAVE_FOR_EVER, str(path)) as run:
            assert run.stdout is not None
            last = max(last, int(run.stdout.readline()))
            time.sleep(chance.uniform(0, 0.05))
            run.send_signal(signal.SIGKILL)
            for line in run.stdout:
                last = int(line) if line.endswith("\n") else last
        state = read_state(path, Sample)
        assert state is not None
        assert len(state.names) == 400
        assert len(set(state.names)) == 1
        assert int(state.names[0]) in (last, last + 1)  # saved, but killed before it could say so
    with StateFile.open(path, Sample, Sample.fresh):
        pass
    assert names_in(path.parent) == {"state.yml", "state.yml.previous", "state.yml.lock"}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk_leaves_the_old_state(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=False)
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        path = small / "state.yml"
        before = write_sample(path, "a")
        with pytest.raises(NotEnoughSpace):
            add_and_save(path, *["x" * 50] * 2000)
        assert path.read_bytes() == before
        assert not list(small.glob(".*tmp"))
    finally:
        subprocess.run(["umount", str(small)], check=True)
