"""`transload copy` onto real media: exFAT, full, read-only, pulled out, and ones that give back other bytes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from doubles.bundle_factory import small_bundle
from doubles.engines import require
from doubles.media import Stick, exfat_stick, ext4_stick, plugged_in_again, read_only, tmpfs
from transload.export_side.medium import Medium
from transload.export_side.medium_copy import CopyResult, copy_bundle
from transload.shared.atomic_files import FaultPoints
from transload.shared.errors import CopyDiffers, NotEnoughSpace, ReadFailed, WriteFailed
from transload.shared.limits import BLOCK_SIZE_BYTES
from transload.shared.progress import SilentProgress
from transload.shared.workers import Stop

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("source") / "site-0001", chunk_size_bytes=2 * BLOCK_SIZE_BYTES)


@pytest.fixture(autouse=True)
def no_fault_left() -> Iterator[None]:
    yield
    FaultPoints.reached = None


def copied(bundle: Path, medium: Path) -> CopyResult:
    return copy_bundle(bundle, Medium.of(medium), progress=SilentProgress(), stop=Stop())


def same_files(one: Path, other: Path) -> bool:
    return {f.name: f.read_bytes() for f in one.iterdir()} == {f.name: f.read_bytes() for f in other.iterdir()}


def at(step: str, action: Callable[[], None]) -> None:
    """Do something once, when the copy reaches a step."""
    waiting = [action]

    def reached(name: str) -> None:
        if name == step and waiting:
            waiting.pop()()

    FaultPoints.reached = reached


def test_exfat_takes_a_bundle_and_gives_it_back(bundle: Path, tmp_path: Path) -> None:
    with exfat_stick(tmp_path / "stick") as stick:
        result = copied(bundle, stick.folder)
        assert result.file_system == "fuseblk"
        assert result.reads_past_caches
        assert same_files(bundle, result.folder)
        assert copied(bundle, stick.folder).was_complete


@pytest.mark.parametrize("kind", [ext4_stick, exfat_stick])
def test_bytes_that_changed_on_the_way_to_the_medium_are_found(
    bundle: Path, tmp_path: Path, kind: Callable[[Path], object]
) -> None:
    # A stick with bad cells takes every write without complaint. The page cache still has the right bytes, so this
    # test fails if the copy is read back through any cache.
    chunk = (bundle / "images.tar.0001").read_bytes()
    wrong = bytes([chunk[BLOCK_SIZE_BYTES + 100] ^ 1])
    content = chunk[BLOCK_SIZE_BYTES + 100 : BLOCK_SIZE_BYTES + 200]
    with kind(tmp_path / "stick") as stick:  # type: ignore[attr-defined]
        assert isinstance(stick, Stick)
        at("read back images.tar.0001", lambda: stick.spoil(content, wrong + content[1:]))
        with pytest.raises(CopyDiffers, match=r"images\.tar\.0001 differs") as caught:
            copied(bundle, stick.folder)
        assert caught.value.facts["block"] == 1
        assert caught.value.facts["offset"] == BLOCK_SIZE_BYTES
        assert not (stick.folder / f"{bundle.name}.partial" / "images.tar.0001").exists()
        assert not (stick.folder / bundle.name).exists()
        # the same command heals it
        assert same_files(bundle, copied(bundle, stick.folder).folder)


def test_a_finished_copy_that_has_decayed_is_found_on_the_medium(bundle: Path, tmp_path: Path) -> None:
    with ext4_stick(tmp_path / "stick") as stick:
        copied(bundle, stick.folder)
        assert copied(bundle, stick.folder).was_complete
        content = (bundle / "images.tar.0002").read_bytes()[1000:1100]
        stick.spoil(content, bytes(len(content)))
        with pytest.raises(CopyDiffers, match=r"images\.tar\.0002"):
            copied(bundle, stick.folder)


def test_a_stick_pulled_out_is_named_and_the_next_run_goes_on(bundle: Path, tmp_path: Path) -> None:
    with exfat_stick(tmp_path / "stick") as stick:
        at("fsync images.tar.0002", stick.pull_out)
        with pytest.raises((WriteFailed, ReadFailed), match=str(stick.folder)) as caught:
            copied(bundle, stick.folder)
        assert "mount it again" in caught.value.hint
        with pytest.raises(WriteFailed, match="does not answer"):
            copied(bundle, stick.folder)
        with plugged_in_again(stick) as again:
            assert not (again.folder / bundle.name).exists()
            result = copied(bundle, again.folder)
            assert result.kept_bytes >= 2 * BLOCK_SIZE_BYTES
            assert same_files(bundle, result.folder)


def test_a_full_medium_is_found_before_the_first_byte(bundle: Path, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", 8 * 1024 * 1024) as folder:
        with pytest.raises(NotEnoughSpace) as caught:
            copied(bundle, folder)
        assert list(folder.iterdir()) == []
        size = sum(file.stat().st_size for file in bundle.iterdir())
        assert isinstance(caught.value.facts["needed_bytes"], int)
        assert size <= caught.value.facts["needed_bytes"] < size + 4096 * len(list(bundle.iterdir()))
        assert caught.value.facts["available_bytes"] == 8 * 1024 * 1024
        assert f"{size // 1_000_000}." in caught.value.message


def test_a_medium_that_somebody_fills_meanwhile(bundle: Path, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", 20 * 1024 * 1024) as folder:

        def fill() -> None:
            (folder / "other").write_bytes(bytes(12 * 1024 * 1024))

        at("fsync images.blocks", fill)
        with pytest.raises(NotEnoughSpace, match="No space left"):
            copied(bundle, folder)
        (folder / "other").unlink()
        assert same_files(bundle, copied(bundle, folder).folder)


def test_what_lies_there_already_needs_no_space_again(bundle: Path, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", 13 * 1024 * 1024) as folder:
        partial = folder / f"{bundle.name}.partial"
        partial.mkdir()
        (partial / "images.tar.0001").write_bytes((bundle / "images.tar.0001").read_bytes())
        result = copied(bundle, folder)
        assert result.kept_bytes == 2 * BLOCK_SIZE_BYTES


def test_a_read_only_medium_is_named(bundle: Path, tmp_path: Path) -> None:
    size = sum(file.stat().st_size for file in bundle.iterdir())
    with read_only(tmp_path / "dvd", 2 * size) as folder:
        with pytest.raises(WriteFailed, match="read-only") as caught:
            copied(bundle, folder)
        assert "write-protect" in caught.value.hint


def test_sha256sum_and_the_copy_agree_on_exfat(bundle: Path, tmp_path: Path) -> None:
    with exfat_stick(tmp_path / "stick") as stick:
        folder = copied(bundle, stick.folder).folder
        done = subprocess.run([require("sha256sum"), "-c", "SHA256SUMS"], cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0
