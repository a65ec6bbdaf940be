"""Step 4 of a bundle's checks: every way in which the files of a folder can differ from what was signed."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from doubles.memory_bundle import (
    BLOCK,
    MemoryBundle,
    small_manifest,
)
from transload.manifests.file_checks import is_litter
from transload.shared import errors
from transload.shared.errors import Faults, TransloadError


def _set(bundle: MemoryBundle, name: str, size: int) -> None:
    bundle.found[name] = size


def _damage(bundle: MemoryBundle, name: str) -> None:
    bundle.small_files[name] = bytes(len(bundle.small_files[name]))


def _resum(bundle: MemoryBundle, **changes: str) -> None:
    bundle.sums.update({name.replace("__", "."): digest for name, digest in changes.items()})
    bundle.seal()


def _unsum(bundle: MemoryBundle, name: str) -> None:
    del bundle.sums[name]
    bundle.seal()


FILE_FAULTS: dict[str, tuple[Callable[[MemoryBundle], object], type[TransloadError], str]] = {
    "chunk missing": (lambda b: b.found.pop("images.tar.0002"), errors.BundleFileMissing, "images.tar.0002 is missing"),
    "readme missing": (lambda b: b.found.pop("README.txt"), errors.BundleFileMissing, "README.txt is missing"),
    "blocks missing": (lambda b: b.found.pop("images.blocks"), errors.BundleFileMissing, "images.blocks is missing"),
    "chunk short": (lambda b: _set(b, "images.tar.0001", BLOCK - 1), errors.BundleFileWrongSize, "images.tar.0001 has"),
    "chunk long": (lambda b: _set(b, "images.tar.0002", 1001), errors.BundleFileWrongSize, "1,001 bytes; 1,000 were"),
    "chunk empty": (lambda b: _set(b, "images.tar.0002", 0), errors.BundleFileWrongSize, "images.tar.0002 has 0"),
    "blocks short": (lambda b: _set(b, "images.blocks", 32), errors.BundleFileWrongSize, "has 32 bytes; 64"),
    "readme huge": (lambda b: _set(b, "README.txt", 1 << 30), errors.BundleFileWrongSize, "has 1,073,741,824"),
    "readme damaged": (lambda b: _damage(b, "README.txt"), errors.BundleFileDamaged, "README.txt does"),
    "blocks damaged": (lambda b: _damage(b, "images.blocks"), errors.BundleFileDamaged, "images.blocks does"),
    "stray file": (lambda b: _set(b, "virus.exe", 5), errors.UnnamedFile, "virus.exe lies in"),
    "stray chunk": (lambda b: _set(b, "images.tar.0003", 5), errors.UnnamedFile, "images.tar.0003 lies in"),
    "stray folder": (lambda b: _set(b, "folder/", 0), errors.UnnamedFile, "folder/ lies in"),
    "file in a folder": (lambda b: _set(b, "sif/a", 0), errors.UnnamedFile, "sif/a lies in"),
    "name with an escape": (lambda b: _set(b, "a\x1b[2J", 0), errors.UnnamedFile, r"a\\x1b\[2J lies in"),
    "bad signature name": (lambda b: _set(b, "SHA256SUMS.a.b.sig", 0), errors.UnnamedFile, "SHA256SUMS.a.b.sig lies"),
    "extra name in sums": (lambda b: _resum(b, extra__txt="3" * 64), errors.MalformedBundle, "names extra.txt, which"),
    "chunk not in sums": (lambda b: _unsum(b, "images.tar.0002"), errors.MalformedBundle, "not name images.tar.0002"),
    "readme not in sums": (lambda b: _unsum(b, "README.txt"), errors.MalformedBundle, "does not name README.txt"),
}  # fmt: skip


@pytest.mark.parametrize("case", FILE_FAULTS)
def test_one_fault_of_the_files_is_that_one_error(case: str) -> None:
    change, kind, words = FILE_FAULTS[case]
    bundle = MemoryBundle()
    change(bundle)
    with pytest.raises(kind, match=words):
        bundle.check()


def test_names_that_differ_in_case_alone_are_refused() -> None:
    bundle = MemoryBundle()
    _resum(bundle, readme__TXT="3" * 64)
    with pytest.raises(Faults, match=r"README\.txt and readme\.TXT differ in case alone"):
        bundle.check()


def test_a_name_in_other_case_gets_a_hint() -> None:
    bundle = MemoryBundle()
    bundle.found["readme.txt"] = bundle.found.pop("README.txt")
    with pytest.raises(Faults) as caught:
        bundle.check()
    missing, unnamed = caught.value.errors
    assert isinstance(missing, errors.BundleFileMissing)
    assert "readme.txt is there: rename it" in missing.hint
    assert isinstance(unnamed, errors.UnnamedFile)


def test_all_faults_of_the_files_come_together_and_integrity_outranks_format() -> None:
    bundle = MemoryBundle()
    bundle.found |= {"stray": 1, "images.tar.0001": 7}
    del bundle.found["images.tar.0002"]
    bundle.small_files["README.txt"] = b"x"
    with pytest.raises(Faults) as caught:
        bundle.check()
    assert [type(error) for error in caught.value.errors] == [
        errors.BundleFileWrongSize, errors.BundleFileMissing, errors.BundleFileDamaged, errors.UnnamedFile,
    ]  # fmt: skip
    assert caught.value.exit_code == errors.BundleFileWrongSize.exit_code


LITTER = [".DS_Store", "._images.tar.0001", "Thumbs.db", "THUMBS.DB", "desktop.ini", "System Volume Information",
          "System Volume Information/IndexerVolumeGuid", "$RECYCLE.BIN/x", "lost+found/", ".Trashes", ".Trash-1000",
          ".fseventsd", ".Spotlight-V100/Store-V2/"]  # fmt: skip


def test_what_operating_systems_leave_is_noted_and_no_fault() -> None:
    bundle = MemoryBundle()
    bundle.found |= dict.fromkeys(LITTER, 1)
    checks = bundle.check()
    assert len(checks.notes) == len(LITTER)
    assert all(note.startswith("Left alone: ") for note in checks.notes)


@pytest.mark.parametrize("name", ["DS_Store", "x.DS_Store", ".bashrc", "Thumbs.db.exe", "lost+found2", ".", "a/b"])
def test_what_only_looks_like_litter_is_none(name: str) -> None:
    assert not is_litter(name)


def test_further_signature_files_are_no_strangers() -> None:
    bundle = MemoryBundle()
    bundle.found |= {"SHA256SUMS.sig": 1, "SHA256SUMS.officer.sig": 1}
    assert bundle.check().notes == []


def test_a_small_file_that_was_not_handed_in_is_a_bug() -> None:
    bundle = MemoryBundle()
    del bundle.small_files["README.txt"]
    with pytest.raises(RuntimeError, match=r"README\.txt"):
        bundle.check()


def test_a_manifest_that_names_other_chunks_is_held_against_the_sums() -> None:
    artifact = replace(small_manifest().artifacts[0], size=BLOCK, chunks=small_manifest().artifacts[0].chunks[:1])
    bundle = MemoryBundle(manifest=replace(small_manifest(), artifacts=(artifact,)))
    with pytest.raises(Faults) as caught:
        bundle.check()
    kinds = {type(error) for error in caught.value.errors}
    assert kinds == {errors.MalformedBundle, errors.BundleFileWrongSize, errors.UnnamedFile}
