"""Positioned reads and writes across chunk files, on file systems that can and cannot hold gaps."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from doubles.media import tmpfs
from transload.export_side import medium
from transload.export_side.chunk_files import ChunkFiles
from transload.manifests.chunks import ChunkPlan
from transload.shared.errors import NotEnoughSpace, WriteFailed
from transload.shared.limits import BLOCK_SIZE_BYTES as BLOCK

SIZE = 3 * BLOCK + 1000


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ChunkFiles]:
    with ChunkFiles(tmp_path, ChunkPlan("images.tar", SIZE, BLOCK)) as opened:
        yield opened


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "disk", 6 << 20) as folder:
        yield folder


def test_what_is_written_in_any_order_is_read_back(files: ChunkFiles, tmp_path: Path) -> None:
    content = random.Random(1).randbytes(SIZE)
    cuts = sorted({0, SIZE, BLOCK - 1, 2 * BLOCK + 5, *random.Random(2).sample(range(SIZE), 20)})
    pieces = list(pairwise(cuts))
    random.Random(3).shuffle(pieces)
    files.allocate()
    for start, end in pieces:
        files.write(start, memoryview(content)[start:end])
    assert b"".join(files.read(0, SIZE)) == content
    assert b"".join(files.read(BLOCK - 3, 7)) == content[BLOCK - 3 : BLOCK + 4]
    assert b"".join(path.read_bytes() for path in sorted(tmp_path.glob("images.tar.*"))) == content


def test_chunks_have_their_size_on_disk_before_the_first_byte(files: ChunkFiles, tmp_path: Path) -> None:
    files.allocate()
    statuses = [path.stat() for path in sorted(tmp_path.glob("images.tar.*"))]
    assert [status.st_size for status in statuses] == [BLOCK, BLOCK, BLOCK, 1000]
    if not files.must_fill_in_order and medium.Medium.of(tmp_path).file_system in ("ext4", "tmpfs", "xfs"):
        assert sum(status.st_blocks * 512 for status in statuses) >= SIZE


def test_a_chunk_of_a_larger_plan_is_cut(files: ChunkFiles, tmp_path: Path) -> None:
    (tmp_path / "images.tar.0004").write_bytes(bytes(5000))
    files.allocate()
    assert (tmp_path / "images.tar.0004").stat().st_size == 1000


def test_only_a_few_of_many_chunks_are_open(tmp_path: Path) -> None:
    with ChunkFiles(tmp_path, ChunkPlan("images.tar", 300 * BLOCK, BLOCK)) as files:
        before = len(os.listdir("/proc/self/fd"))
        for index in range(300):
            files.write(index * BLOCK, b"x")
        assert len(os.listdir("/proc/self/fd")) - before <= 64
        assert b"".join(files.read(299 * BLOCK, 1)) == b"x"


def test_reading_ends_where_the_file_ends(files: ChunkFiles) -> None:
    files.write(0, b"abc")
    assert b"".join(files.read(0, 1000)) == b"abc"


def test_a_full_disk_is_found_before_the_first_byte(small_disk: Path) -> None:
    folder = small_disk / ".unfinished" / "x"
    folder.mkdir(parents=True)
    with ChunkFiles(folder, ChunkPlan("images.tar", 2 * BLOCK, BLOCK)) as files:
        with pytest.raises(NotEnoughSpace) as raised:
            files.check_space(5000)
        assert isinstance(raised.value.facts["needed"], int)
        assert isinstance(raised.value.facts["available"], int)
        assert raised.value.facts["needed"] > 2 * BLOCK + 5000 > raised.value.facts["available"]
        with pytest.raises(NotEnoughSpace):
            files.allocate()


def test_what_is_there_already_needs_no_space_again(small_disk: Path) -> None:
    folder = small_disk / ".unfinished" / "x"
    folder.mkdir(parents=True)
    with ChunkFiles(folder, ChunkPlan("images.tar", BLOCK, BLOCK)) as files:
        files.allocate()
        files.check_space(1000)


@pytest.mark.parametrize("kind", ["vfat", "exfat", "fuse.exfat", "fuseblk"])
def test_where_gaps_cost_files_grow_from_the_front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    device = tmp_path.stat().st_dev
    table = tmp_path / "mountinfo"
    table.write_text(f"36 35 {os.major(device)}:{os.minor(device)} / / rw - {kind} /dev/sdx1 rw\n")
    monkeypatch.setattr(medium, "MOUNT_TABLE", table)
    with ChunkFiles(tmp_path, ChunkPlan("images.tar", SIZE, BLOCK)) as files:
        assert files.must_fill_in_order
        files.allocate()
        assert [path.stat().st_size for path in sorted(tmp_path.glob("images.tar.*"))] == [0, 0, 0, 0]


def test_a_chunk_is_never_written_through_a_link(tmp_path: Path) -> None:
    plan = ChunkPlan("images.tar", 10, BLOCK)
    (tmp_path / "images.tar.0001").symlink_to("/etc/passwd")
    with ChunkFiles(tmp_path, plan) as files, pytest.raises(WriteFailed, match=r"images\.tar\.0001"):
        files.write(0, b"no links")
