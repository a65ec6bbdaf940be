"""`transload copy` as a process that is killed: the next run ends in the same bytes and repeats nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from doubles.bundle_factory import small_bundle
from transload.export_side.source_bundle import SourceBundle
from transload.shared.errors import EXIT_INTERRUPTED, NotABundle
from transload.shared.limits import BLOCK_SIZE_BYTES

SEED = int(os.environ.get("TRANSLOAD_TEST_SEED", "20240102"))

KILLED_AT = """
import os, signal, sys
from transload.shared.atomic_files import FaultPoints
from transload.shared.command_line import main
left = int(sys.argv.pop(1))
def reached(step):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
FaultPoints.reached = reached
# A write is a moment too: half of it is done when the kill comes.
write = os.pwrite
def half_a_write(descriptor, data, position):
    global left
    left -= 1
    if left < 0:
        write(descriptor, data[: len(data) // 2], position)
        os.kill(os.getpid(), signal.SIGKILL)
    return write(descriptor, data, position)
os.pwrite = half_a_write
main()
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("source") / "site-0001", chunk_size_bytes=2 * BLOCK_SIZE_BYTES)


def run(bundle: Path, medium: Path, *, killed_at: int | None = None) -> subprocess.CompletedProcess[str]:
    program = ["-m", "transload.shared.command_line"] if killed_at is None else ["-c", KILLED_AT, str(killed_at)]
    return subprocess.run(
        [sys.executable, *program, "copy", bundle, medium, "--json"], capture_output=True, text=True, check=False
    )


def moments(bundle: Path) -> int:
    """How many durable steps and writes an undisturbed copy has: fsync and read back of each file, the rest once."""
    files = SourceBundle.recognise(bundle).files
    writes = sum(-(-file.size_bytes // BLOCK_SIZE_BYTES) for file in files)
    return 2 * len(files) + writes + 2


@pytest.mark.slow
def test_killed_at_drawn_moments_and_rerun(bundle: Path, tmp_path: Path) -> None:
    draw = random.Random(SEED)
    print("seed", SEED)
    expected = {file.name: file.read_bytes() for file in bundle.iterdir()}
    # The first and the last moments always, the others drawn.
    last = moments(bundle) - 1
    for number, moment in enumerate([0, last, last - 1, *draw.sample(range(1, last - 1), 7)]):
        medium = tmp_path / str(number)
        medium.mkdir()
        assert run(bundle, medium, killed_at=moment).returncode == -signal.SIGKILL
        if moment < last:
            assert [entry.name for entry in medium.iterdir()] == [f"{bundle.name}.partial"]
        done = run(bundle, medium)
        assert done.returncode == 0, done.stderr
        assert {file.name: file.read_bytes() for file in (medium / bundle.name).iterdir()} == expected
        assert [entry.name for entry in medium.iterdir()] == [bundle.name]


@pytest.mark.slow
def test_killed_again_and_again_it_comes_to_an_end_and_writes_nothing_twice(bundle: Path, tmp_path: Path) -> None:
    draw = random.Random(SEED + 1)
    print("seed", SEED + 1)
    partial = tmp_path / f"{bundle.name}.partial"
    on_medium = 0
    while run(bundle, tmp_path, killed_at=draw.randrange(3, 12)).returncode:
        # A file is never cut back below what was right of it.
        right = sum(whole_blocks(bundle / file.name, file) for file in partial.iterdir())
        assert right >= on_medium
        on_medium = right
    assert (tmp_path / bundle.name).exists()


def whole_blocks(source: Path, copy: Path) -> int:
    one, other = source.read_bytes(), copy.read_bytes()
    right = 0
    while right < len(one) and one[right : right + BLOCK_SIZE_BYTES] == other[right : right + BLOCK_SIZE_BYTES]:
        right += BLOCK_SIZE_BYTES
    return min(right, len(one))


def test_a_half_copy_is_not_taken_for_a_bundle(bundle: Path, tmp_path: Path) -> None:
    # Killed before the signature is written: whoever renames the folder by hand still has no bundle.
    steps_before_signature = moments(bundle) - 2 - 3
    run(bundle, tmp_path, killed_at=steps_before_signature)
    partial = tmp_path / f"{bundle.name}.partial"
    assert (partial / "SHA256SUMS").exists()
    (partial / "SHA256SUMS.sig").unlink(missing_ok=True)
    with pytest.raises(NotABundle):
        SourceBundle.recognise(partial)


def test_interrupting_says_how_to_go_on(bundle: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, "copy", bundle, tmp_path], stderr=subprocess.PIPE, text=True
    )
    _, words = process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED
    assert "the same command goes on" in words
    assert "Traceback" not in words
    assert json.loads(run(bundle, tmp_path).stdout)["kept_bytes"] >= BLOCK_SIZE_BYTES


INTERRUPTED = """
import os, signal, time
from transload.shared.atomic_files import FaultPoints
from transload.shared.command_line import main
def reached(step):
    if step == "fsync images.tar.0001":
        os.kill(os.getpid(), signal.SIGINT)
FaultPoints.reached = reached
main()
"""


def test_ctrl_c_is_not_held_up_by_a_medium_that_does_not_answer(bundle: Path, tmp_path: Path) -> None:
    # fsync of a dying stick can take minutes; the run ends all the same.
    stuck = INTERRUPTED.replace("os.kill(os.getpid(), signal.SIGINT)", "print(step, flush=True); time.sleep(60)")
    process = subprocess.Popen(
        [sys.executable, "-c", stuck, "copy", bundle, tmp_path],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "fsync images.tar.0001\n"
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=50) == EXIT_INTERRUPTED
    process.stdout.close()
    print(f"ended after {time.monotonic() - began:.2f} s")
