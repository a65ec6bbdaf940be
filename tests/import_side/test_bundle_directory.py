"""What may lie on a medium: links, pipes, devices, litter, huge files, folders that are no bundle."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from doubles.import_runs import open_bundle
from transload.import_side.bundle_directory import BundleDirectory
from transload.shared import errors, limits

Copy = Callable[[Path], Path]


def test_litter_is_noted_and_never_opened(sealed_tiny: Path, copy_of: Copy) -> None:
    folder = copy_of(sealed_tiny)
    (folder / ".DS_Store").write_bytes(b"x")
    os.mkfifo(folder / "._bundle.json")  # opening it would hang
    (folder / "System Volume Information").mkdir()
    (folder / "System Volume Information" / "IndexerVolumeGuid").write_bytes(b"x")
    (folder / "Thumbs.db").symlink_to("/etc/passwd")
    bundle = open_bundle(folder)
    assert sum("Left alone" in note for note in bundle.notes) == 4


def test_hard_links_do_not_matter(sealed_tiny: Path, copy_of: Copy) -> None:
    folder = copy_of(sealed_tiny)
    os.link(folder / "bundle.json", folder.with_name("second-name"))
    open_bundle(folder)


def test_the_folder_may_be_renamed_and_reached_by_a_link(sealed_tiny: Path, copy_of: Copy, tmp_path: Path) -> None:
    folder = copy_of(sealed_tiny).rename(tmp_path / "a:b c")
    (tmp_path / "link").symlink_to(folder)
    assert open_bundle(tmp_path / "link").manifest.bundle_id == "default-0001-20240102-0123"


@pytest.mark.parametrize("mode", ["c", "b"])
def test_devices_are_refused(mode: str, sealed_tiny: Path, copy_of: Copy) -> None:
    folder = copy_of(sealed_tiny)
    (folder / "README.txt").unlink()
    numbers = ("1", "5") if mode == "c" else ("7", "0")
    if subprocess.run(["mknod", folder / "README.txt", mode, *numbers], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make devices")
    with pytest.raises(errors.MalformedBundle) as raised:
        open_bundle(folder)
    assert raised.value.facts["file"] == "README.txt"
    with pytest.raises(errors.MalformedBundle):
        BundleDirectory(folder).read_small("README.txt", 100)


def test_a_file_that_became_a_link_after_the_listing_is_not_followed(sealed_tiny: Path, copy_of: Copy) -> None:
    folder = copy_of(sealed_tiny)
    directory = BundleDirectory(folder)
    directory.list()
    (folder / "README.txt").unlink()
    (folder / "README.txt").symlink_to("/etc/hostname")
    with pytest.raises(errors.MalformedBundle):
        directory.read_small("README.txt", 1000)


def test_a_folder_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.sif").write_bytes(b"secret")
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "sif").symlink_to(tmp_path / "outside")
    with pytest.raises(errors.TransloadError):
        BundleDirectory(tmp_path / "bundle").read_small("sif/x.sif", 1000)


@pytest.mark.parametrize(
    ("name", "most_bytes", "kind"),
    [
        ("SHA256SUMS", limits.MAX_CHECKSUMS_BYTES, errors.BundleFileWrongSize),
        ("SHA256SUMS.sig", limits.MAX_SIGNATURE_BYTES, errors.SignatureMalformed),
        ("bundle.json", limits.MAX_BUNDLE_MANIFEST_BYTES, errors.BundleFileWrongSize),
        ("README.txt", limits.MAX_README_BYTES, errors.BundleFileWrongSize),
        ("images.blocks", limits.MAX_BLOCKS_FILE_BYTES, errors.BundleFileWrongSize),
    ],
)
def test_a_file_beyond_its_bound_is_not_read(
    name: str, most_bytes: int, kind: type[Exception], sealed_tiny: Path, copy_of: Copy
) -> None:
    folder = copy_of(sealed_tiny)
    os.truncate(folder / name, most_bytes + 1)
    with pytest.raises(kind):
        open_bundle(folder)


def test_a_folder_with_too_many_files_is_no_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BUNDLE_DIRECTORY_ENTRIES", 20)
    (tmp_path / "inner").mkdir()
    for number in range(21):
        (tmp_path / "inner" / f"file-{number}").touch()
    with pytest.raises(errors.NotABundle):
        open_bundle(tmp_path)


def test_what_is_no_bundle_is_told_with_what_was_probably_meant(sealed_tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(errors.PathMissing):
        open_bundle(tmp_path / "nowhere")
    with pytest.raises(errors.NotABundle):
        open_bundle(sealed_tiny / "bundle.json")
    with pytest.raises(errors.NotABundle) as raised:
        open_bundle(tmp_path)
    assert "SHA256SUMS" in raised.value.hint
    (tmp_path / "medium").mkdir()
    (tmp_path / "medium" / "the-bundle").symlink_to(sealed_tiny)
    with pytest.raises(errors.NotABundle) as raised:
        open_bundle(tmp_path / "medium")
    assert raised.value.hint == f"Did you mean {tmp_path / 'medium' / 'the-bundle'}?"


def test_an_unfinished_bundle_is_no_bundle(sealed_tiny: Path, copy_of: Copy) -> None:
    folder = copy_of(sealed_tiny)
    (folder / "SHA256SUMS.sig").unlink()
    with pytest.raises(errors.SignatureMissing):
        open_bundle(folder)
    (folder / "SHA256SUMS").unlink()
    with pytest.raises(errors.NotABundle) as raised:
        open_bundle(folder)
    assert "interrupted" in raised.value.hint


def test_names_that_could_fool_a_terminal_are_escaped(sealed_tiny: Path, copy_of: Copy) -> None:
    folder = copy_of(sealed_tiny)
    (folder / "evil\x1b[2Jname\n").write_bytes(b"x")
    os.close(os.open(os.fsencode(folder) + b"/\xff\xfe", os.O_CREAT | os.O_WRONLY))
    with pytest.raises(errors.Faults) as raised:
        open_bundle(folder)
    assert {error.reference for error in raised.value.errors} == {"unnamed-file"}
    assert "\x1b" not in raised.value.message
    raised.value.message.encode()


def test_a_read_error_names_file_and_place(sealed_tiny: Path, copy_of: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copy_of(sealed_tiny)
    bundle = open_bundle(folder)
    real = os.preadv

    def failing(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if offset >= 0 and os.readlink(f"/proc/self/fd/{descriptor}").endswith("images.tar.0001"):
            raise OSError(5, "Input/output error")
        return real(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(errors.ReadFailed) as raised:
        bundle.images()
    assert (raised.value.facts["file"], raised.value.facts["offset"]) == ("images.tar.0001", 0)
    assert raised.value.facts["errno"] == "EIO"
