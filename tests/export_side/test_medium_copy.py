"""`transload copy` on an ordinary file system: order, resuming, what is refused and how."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from doubles.bundle_factory import small_bundle
from transload.export_side.copy_command import copy as copy_command
from transload.export_side.medium import Medium, _mounted
from transload.export_side.medium_copy import CopyResult, copy_bundle
from transload.manifests import checksums_file
from transload.shared.atomic_files import FaultPoints
from transload.shared.errors import (
    AlreadyExists,
    BundleFileDamaged,
    BundleFileMissing,
    CopyDiffers,
    FileTooLarge,
    InvalidConfiguration,
    Locked,
    MalformedBundle,
    NotABundle,
    NotEnoughSpace,
    PathMissing,
    TransloadError,
)
from transload.shared.limits import BLOCK_SIZE_BYTES
from transload.shared.progress import SilentProgress, Stage
from transload.shared.workers import Stop


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("source") / "site-0001", chunk_size_bytes=2 * BLOCK_SIZE_BYTES)


@pytest.fixture
def bundle(pristine: Path, tmp_path: Path) -> Path:
    """A bundle that the test may damage."""
    folder = tmp_path / "out" / pristine.name
    folder.mkdir(parents=True)
    for file in pristine.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.fixture
def medium(tmp_path: Path) -> Path:
    folder = tmp_path / "medium"
    folder.mkdir()
    return folder


@pytest.fixture
def steps() -> Iterator[list[str]]:
    seen: list[str] = []
    FaultPoints.reached = seen.append
    yield seen
    FaultPoints.reached = None


def copied(bundle: Path, medium: Path) -> CopyResult:
    return copy_bundle(bundle, Medium.of(medium), progress=SilentProgress(), stop=Stop())


def same_files(one: Path, other: Path) -> bool:
    return {f.name: f.read_bytes() for f in one.iterdir()} == {f.name: f.read_bytes() for f in other.iterdir()}


def test_the_copy_is_the_bundle_and_its_checksums_hold(bundle: Path, medium: Path) -> None:
    result = copied(bundle, medium)
    assert result.folder == medium / bundle.name
    assert same_files(bundle, result.folder)
    assert result.written_bytes == result.size_bytes == sum(file.stat().st_size for file in bundle.iterdir())
    assert [path.name for path in medium.iterdir()] == [bundle.name]
    check = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=result.folder, capture_output=True, check=False)
    assert check.returncode == 0


def test_the_signed_root_comes_last_and_the_name_after_it(bundle: Path, medium: Path, steps: list[str]) -> None:
    copied(bundle, medium)
    synced = [step.removeprefix("fsync ") for step in steps if step.startswith("fsync ")]
    assert synced[-2:] == ["SHA256SUMS", "SHA256SUMS.sig"]
    assert synced.index("bundle.json") < synced.index("images.tar.0001") < synced.index("images.tar.0002")
    # every file is read back after it is synced, and only then the folder is renamed
    for name in synced:
        assert steps.index(f"fsync {name}") + 1 == steps.index(f"read back {name}")
    assert steps.index("read back SHA256SUMS.sig") < steps.index(f"rename {bundle.name}")


def test_a_finished_copy_is_compared_again_and_not_written(bundle: Path, medium: Path, steps: list[str]) -> None:
    copied(bundle, medium)
    before = {file.name: file.stat().st_mtime_ns for file in (medium / bundle.name).iterdir()}
    steps.clear()
    result = copied(bundle, medium)
    assert result.was_complete
    assert result.written_bytes == 0
    assert steps == []
    assert before == {file.name: file.stat().st_mtime_ns for file in (medium / bundle.name).iterdir()}


@pytest.mark.parametrize("name", ["bundle.json", "images.blocks", "images.tar.0001", "SHA256SUMS", "SHA256SUMS.sig"])
def test_a_finished_copy_that_has_changed_is_named(bundle: Path, medium: Path, name: str) -> None:
    copied(bundle, medium)
    flip(medium / bundle.name / name, -1)
    with pytest.raises(CopyDiffers, match=name) as caught:
        copied(bundle, medium)
    assert caught.value.facts["block"] == (medium / bundle.name / name).stat().st_size // BLOCK_SIZE_BYTES - (
        (medium / bundle.name / name).stat().st_size % BLOCK_SIZE_BYTES == 0
    )


def test_all_faults_of_a_finished_copy_are_named_and_the_hint_repairs_them(bundle: Path, medium: Path) -> None:
    copied(bundle, medium)
    finished = medium / bundle.name
    (finished / "images.blocks").unlink()
    flip(finished / "images.tar.0001", BLOCK_SIZE_BYTES)
    (finished / "README.txt").write_bytes((finished / "README.txt").read_bytes() + b"more")
    with pytest.raises(TransloadError) as caught:
        copied(bundle, medium)
    assert caught.value.reference == CopyDiffers.reference
    assert all(name in caught.value.message for name in ("images.blocks", "images.tar.0001", "README.txt", "block 1"))
    assert f"mv {finished} {finished}.partial && transload copy {bundle} {medium}" in caught.value.hint
    finished.rename(medium / f"{bundle.name}.partial")
    result = copied(bundle, medium)
    assert same_files(bundle, result.folder)
    # the first block of the chunk was right and is not written again
    assert BLOCK_SIZE_BYTES < result.kept_bytes < result.size_bytes


def test_another_bundle_of_that_name_is_left_alone(bundle: Path, medium: Path, tmp_path: Path) -> None:
    other = small_bundle(medium / bundle.name, sequence=7)
    before = {file.name: file.read_bytes() for file in other.iterdir()}
    with pytest.raises(AlreadyExists, match="not a copy of"):
        copied(bundle, medium)
    assert before == {file.name: file.read_bytes() for file in other.iterdir()}


def test_an_unfinished_copy_goes_on_after_its_longest_right_prefix(bundle: Path, medium: Path) -> None:
    partial = medium / f"{bundle.name}.partial"
    partial.mkdir()
    chunk = (bundle / "images.tar.0001").read_bytes()
    (partial / "bundle.json").write_bytes((bundle / "bundle.json").read_bytes())
    # one whole block, then half of the next
    (partial / "images.tar.0001").write_bytes(chunk[: BLOCK_SIZE_BYTES + 1000])
    result = copied(bundle, medium)
    assert result.kept_bytes == (bundle / "bundle.json").stat().st_size + BLOCK_SIZE_BYTES
    assert result.written_bytes == result.size_bytes - result.kept_bytes
    assert same_files(bundle, result.folder)


@pytest.mark.parametrize("damage", ["flipped", "longer", "zeros at the end"])
def test_what_an_interrupted_run_left_wrong_is_written_again(bundle: Path, medium: Path, damage: str) -> None:
    partial = medium / f"{bundle.name}.partial"
    partial.mkdir()
    for file in bundle.iterdir():
        (partial / file.name).write_bytes(file.read_bytes())
    victim = partial / "images.tar.0001"
    raw = victim.read_bytes()
    changed = {
        "flipped": bytes([raw[0] ^ 1]) + raw[1:],
        "longer": raw + b"x",
        "zeros at the end": raw[:-100] + bytes(100),
    }
    victim.write_bytes(changed[damage])
    result = copied(bundle, medium)
    assert same_files(bundle, result.folder)
    assert result.written_bytes == {"flipped": len(raw), "longer": 0, "zeros at the end": BLOCK_SIZE_BYTES}[damage]


def test_a_damaged_source_is_named_and_never_becomes_a_copy(bundle: Path, medium: Path) -> None:
    flip(bundle / "images.tar.0002", 12345)
    with pytest.raises(BundleFileDamaged, match=r"images\.tar\.0002") as caught:
        copied(bundle, medium)
    assert caught.value.facts["expected"] != caught.value.facts["found"]
    assert not (medium / bundle.name).exists()
    assert not (medium / f"{bundle.name}.partial" / "images.tar.0002").exists()
    # with the source healed, the same command goes on
    flip(bundle / "images.tar.0002", 12345)
    result = copied(bundle, medium)
    assert result.kept_bytes >= 2 * BLOCK_SIZE_BYTES
    assert same_files(bundle, result.folder)


def test_all_missing_source_files_are_named(bundle: Path, medium: Path) -> None:
    (bundle / "images.tar.0001").unlink()
    (bundle / "images.blocks").unlink()
    with pytest.raises(TransloadError) as caught:
        copied(bundle, medium)
    assert caught.value.reference == BundleFileMissing.reference
    assert "images.tar.0001" in caught.value.message
    assert "images.blocks" in caught.value.message
    assert list(medium.iterdir()) == []


def test_what_sha256sums_does_not_name_is_left_out_and_told(bundle: Path, medium: Path) -> None:
    (bundle / "notes.txt").write_text("mine")
    (bundle / ".DS_Store").write_text("")
    result = copied(bundle, medium)
    assert result.left_out == ("notes.txt",)  # an operating system's litter is not worth a word
    assert not (result.folder / ".DS_Store").exists()
    assert not (result.folder / "notes.txt").exists()


def test_further_signatures_are_carried(bundle: Path, medium: Path) -> None:
    (bundle / "SHA256SUMS.officer.sig").write_bytes((bundle / "SHA256SUMS.sig").read_bytes())
    assert (copied(bundle, medium).folder / "SHA256SUMS.officer.sig").exists()


@pytest.mark.parametrize("gone", ["SHA256SUMS", "SHA256SUMS.sig"])
def test_what_is_not_finished_is_not_a_bundle(bundle: Path, medium: Path, gone: str) -> None:
    (bundle / gone).unlink()
    with pytest.raises(NotABundle):
        copied(bundle, medium)
    assert list(medium.iterdir()) == []


def test_things_that_are_no_bundle_are_refused(bundle: Path, medium: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for folder, error in ((file, NotABundle), (tmp_path / "nothing", PathMissing), (medium, NotABundle)):
        with pytest.raises(error):
            copied(folder, medium)
    (bundle / "images.blocks").unlink()
    (bundle / "images.blocks").symlink_to("/etc/passwd")
    with pytest.raises(MalformedBundle, match="not a regular file"):
        copied(bundle, medium)
    (bundle / "SHA256SUMS").write_bytes(checksums_file.encode({"README.txt": "0" * 64}))
    with pytest.raises(NotABundle, match=r"bundle\.json"):
        copied(bundle, medium)


def test_the_medium_must_be_a_folder_and_not_the_bundle(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(PathMissing, match="nowhere"):
        copied(bundle, tmp_path / "nowhere")
    with pytest.raises(InvalidConfiguration):
        copied(bundle, bundle.parent)
    with pytest.raises(InvalidConfiguration):
        copied(bundle, bundle)
    link = tmp_path / "link"
    link.symlink_to(bundle.parent)
    with pytest.raises(InvalidConfiguration):
        copied(bundle, link)


def test_an_unfinished_copy_of_something_else_is_left_alone(bundle: Path, medium: Path) -> None:
    partial = medium / f"{bundle.name}.partial"
    partial.mkdir()
    (partial / "holiday.jpg").write_text("x")
    with pytest.raises(AlreadyExists, match=r"holiday\.jpg"):
        copied(bundle, medium)
    assert [file.name for file in partial.iterdir()] == ["holiday.jpg"]


def test_two_copies_to_one_place_do_not_cut_each_other(bundle: Path, medium: Path) -> None:
    FaultPoints.reached = lambda step: (
        second_run_is_refused(bundle, medium) if step == "fsync images.tar.0001" else None
    )
    try:
        copied(bundle, medium)
    finally:
        FaultPoints.reached = None


def second_run_is_refused(bundle: Path, medium: Path) -> None:
    with pytest.raises(Locked):
        copied(bundle, medium)


def test_fat_is_refused_a_file_beyond_its_limit_before_the_first_byte(bundle: Path, medium: Path) -> None:
    Medium(medium, "vfat").check_file_size("images.tar.0001", 4_294_967_295)
    Medium(medium, "fuseblk").check_file_size("images.tar.0001", 4_294_967_296)
    with pytest.raises(FileTooLarge):
        Medium(medium, "msdos").check_file_size("images.tar.0001", 4_294_967_296)
    os.truncate(bundle / "images.tar.0001", 4_294_967_296)  # sparse: no kernel here mounts vfat, so its name must do
    with pytest.raises(FileTooLarge, match=r"images\.tar\.0001") as caught:
        copy_bundle(bundle, Medium(medium, "vfat"), progress=SilentProgress(), stop=Stop())
    assert caught.value.facts["largest_bytes"] == 4_294_967_295
    assert list(medium.iterdir()) == []


def test_space_is_checked_before_the_first_byte(bundle: Path, medium: Path) -> None:
    os.truncate(bundle / "images.tar.0001", 1 << 43)
    with pytest.raises(NotEnoughSpace) as caught:
        copied(bundle, medium)
    facts = caught.value.facts
    assert isinstance(facts["needed_bytes"], int)
    assert 1 << 43 < facts["needed_bytes"] < (1 << 43) + (1 << 24)
    assert list(medium.iterdir()) == []


def test_the_mount_table_names_type_and_device(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "43 27 8:17 / /media/a\\040stick rw,nosuid shared:2 master:3 - vfat /dev/disk/my\\040stick rw\n"
    )
    assert _mounted(table, os.makedev(8, 17)) == ("vfat", "/dev/disk/my stick")
    assert _mounted(table, os.makedev(9, 9)) == ("unknown", "")
    assert _mounted(tmp_path / "no table", os.makedev(8, 1)) == ("unknown", "")


def test_the_command_says_what_it_did_and_json_says_the_same(bundle: Path, medium: Path) -> None:
    first = CliRunner().invoke(copy_command, [str(bundle), str(medium)], catch_exceptions=False)
    assert first.exit_code == 0
    assert str(medium / bundle.name) in first.stdout
    assert "written and read back" in first.stdout
    again = CliRunner().invoke(copy_command, [str(bundle), str(medium), "--json"], catch_exceptions=False)
    answer = json.loads(again.stdout)
    assert answer["command"] == "copy"
    assert answer["was_complete"] is True
    assert answer["written_bytes"] == 0
    assert answer["size_bytes"] == sum(file.stat().st_size for file in bundle.iterdir())


def test_the_program_reports_a_refusal_with_its_exit_code(bundle: Path, medium: Path) -> None:
    flip(bundle / "images.tar.0001", 5)
    done = subprocess.run(
        [sys.executable, "-m", "transload.shared.command_line", "copy", bundle, medium, "--json", "--quiet"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == BundleFileDamaged.exit_code
    assert json.loads(done.stdout)["facts"]["file"] == "images.tar.0001"
    assert "Traceback" not in done.stderr


class CountingProgress(SilentProgress):
    """Adds up what the one stage of a run is told."""

    def __init__(self) -> None:
        self.total = self.done = 0

    def advance(self, size_bytes: int) -> None:
        self.done += size_bytes

    @contextlib.contextmanager
    def stage(self, title: str, total_bytes: int, *, done_bytes: int = 0) -> Iterator[Stage]:
        self.total, self.done = total_bytes, done_bytes
        yield self


def test_progress_counts_every_byte_there_and_back(bundle: Path, medium: Path) -> None:
    for _ in range(2):
        progress = CountingProgress()
        copy_bundle(bundle, Medium.of(medium), progress=progress, stop=Stop())
        assert progress.done == progress.total == 2 * sum(file.stat().st_size for file in bundle.iterdir())


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x20]))


def test_the_double_really_is_what_sha256sums_names(pristine: Path) -> None:
    sums = checksums_file.decode((pristine / "SHA256SUMS").read_bytes())
    assert all(hashlib.sha256((pristine / name).read_bytes()).hexdigest() == digest for name, digest in sums.items())
