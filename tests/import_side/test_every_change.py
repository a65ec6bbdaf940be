"""Every change of a bundle, generated over all of its files: refused or reported, named; nothing wrong delivered."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from doubles.bundle_factory import CHECKSUMS, SIGNATURE, BundleDraft, tiny_images
from doubles.import_runs import AT, actions, names, open_bundle, run_import, trust
from doubles.signer import Signer
from transload.import_side.verification import verify_bundle
from transload.shared import errors
from transload.shared.limits import BLOCK_SIZE_BYTES
from transload.shared.progress import SilentProgress
from transload.shared.workers import Stop

SMALL_FILES = (CHECKSUMS, SIGNATURE, "bundle.json", "README.txt", "images.blocks")
AUTHENTICITY = (
    errors.SignatureMalformed, errors.SignatureInvalid, errors.SignerUnknown, errors.KeyTypeUnsupported,
)  # fmt: skip
FLIP_CLASSES = {
    CHECKSUMS: (errors.SignatureInvalid,),
    SIGNATURE: AUTHENTICITY,
    "bundle.json": (errors.BundleFileDamaged,),
    "README.txt": (errors.BundleFileDamaged,),
    "images.blocks": (errors.BundleFileDamaged,),
}
Copy = Callable[[Path], Path]


def flip(path: Path, position: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit)]))


@pytest.mark.parametrize("name", SMALL_FILES)
def test_a_flip_at_any_byte_of_a_small_file_is_refused(name: str, sealed_tiny: Path, copy_of: Copy) -> None:
    folder = copy_of(sealed_tiny)
    path = folder / name
    for position in range(path.stat().st_size):
        bit = position % 8
        flip(path, position, bit)
        with pytest.raises(FLIP_CLASSES[name]) as raised:
            open_bundle(folder)
        flip(path, position, bit)
        if raised.type is errors.BundleFileDamaged:
            assert raised.value.facts["file"] == name
    open_bundle(folder).close()  # all flips are undone: the refusals were theirs


@pytest.mark.parametrize("bit", range(8))
def test_every_bit_of_the_signature_counts(bit: int, sealed_tiny: Path, copy_of: Copy) -> None:
    folder = copy_of(sealed_tiny)
    path = folder / SIGNATURE
    for position in range(path.stat().st_size):
        flip(path, position, bit)
        with pytest.raises(AUTHENTICITY):
            open_bundle(folder)
        flip(path, position, bit)


@pytest.mark.parametrize("name", SMALL_FILES)
def test_after_a_flip_in_a_small_file_nothing_is_delivered_or_remembered(
    name: str, sealed_tiny: Path, copy_of: Copy, tmp_path: Path
) -> None:
    folder = copy_of(sealed_tiny)
    flip(folder / name, (folder / name).stat().st_size // 2, 0)
    with pytest.raises(FLIP_CLASSES[name]):
        run_import(folder, tmp_path / "state.yml", f"archive={tmp_path / 'out'}")
    assert names(tmp_path / "out") == []
    assert not (tmp_path / "state.yml").exists()


def blocks_of(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Chunk file, number of the block in the artifact, offset in the file."""
    number = 0
    for path in sorted(folder.glob("images.tar.*")):
        for offset in range(0, path.stat().st_size, BLOCK_SIZE_BYTES):
            yield path.name, number, offset
            number += 1


def test_a_flip_in_any_block_is_named_and_spoils_only_the_images_that_need_it(
    sealed_small: Path, copy_of: Copy, tmp_path: Path
) -> None:
    folder = copy_of(sealed_small)
    manifest = open_bundle(folder).manifest
    places = {blob.digest: (blob.offset, blob.offset + blob.size) for blob in manifest.blobs}
    blocks = list(blocks_of(folder))
    assert len(blocks) == 3
    delivered_somewhere = 0
    for name, number, offset in blocks:
        position = offset + 1_234_567
        flip(folder / name, position, 3)
        start = number * BLOCK_SIZE_BYTES
        hit = [
            image.name
            for image in manifest.images
            if any(begin < start + BLOCK_SIZE_BYTES and end > start for begin, end in (places[d] for d in image.blobs))
        ]
        found = verify_bundle(
            folder, trust=trust(), at=AT, signer=None, is_full=False, jobs=2, stop=Stop(), progress=SilentProgress()
        )
        assert [(fault.reference, fault.facts["file"], fault.facts["blocks"]) for fault in found.faults] == [
            ("block-damaged", name, [number])
        ]
        out = tmp_path / f"out-{number}"
        result = run_import(folder, tmp_path / f"state-{number}.yml", f"archive={out}")
        failed = [one.image_name for one in result.outcomes if one.error]
        assert sorted(failed) == sorted(hit)
        assert {error.reference for error in result.failures} == {"block-damaged"}
        assert all(error.facts["file"] == name for error in result.failures)
        assert result.exit_code == 63
        assert len(names(out)) == len(manifest.images) - len(hit)
        delivered_somewhere += len(names(out))
        flip(folder / name, position, 3)
    assert delivered_somewhere  # some block is not needed by every image, so "the others are delivered" was seen


def test_verify_first_delivers_nothing_at_a_damaged_block(sealed_small: Path, copy_of: Copy, tmp_path: Path) -> None:
    folder = copy_of(sealed_small)
    flip(folder / "images.tar.0003", 100, 0)
    with pytest.raises(errors.BlockDamaged) as raised:
        run_import(folder, tmp_path / "state.yml", f"archive={tmp_path / 'out'}", verify_first=True)
    assert raised.value.facts["file"] == "images.tar.0003"
    assert names(tmp_path / "out") == []
    assert not (tmp_path / "state.yml").exists()


@dataclass(frozen=True)
class Change:
    """A change of the folder, the class that it must be refused with, and the file that must be named."""

    title: str
    make: Callable[[Path, str], None]
    kind: type[errors.TransloadError]
    named: str


def _swap(folder: Path, first: str, second: str) -> None:
    middle = folder.with_name("swapped")
    (folder / first).rename(middle)
    (folder / second).rename(folder / first)
    middle.rename(folder / second)


FILES = (*SMALL_FILES, "images.tar.0001", "images.tar.0002", "images.tar.0003")
MISSING = {CHECKSUMS: errors.BundleFileMissing, SIGNATURE: errors.SignatureMissing}
AS_FOLDER = {**MISSING, "bundle.json": errors.MalformedBundle}
TRUNCATED = {
    CHECKSUMS: errors.SignatureInvalid, SIGNATURE: errors.SignatureMalformed, "bundle.json": errors.BundleFileDamaged,
    "README.txt": errors.BundleFileDamaged,
}  # fmt: skip


def changes() -> Iterator[Change]:
    for name in FILES:
        lost = MISSING.get(name, errors.BundleFileMissing)
        other_size = TRUNCATED.get(name, errors.BundleFileWrongSize)
        yield Change(f"{name} missing", _remove, lost, name)
        yield Change(f"{name} renamed", _rename, lost, name)
        yield Change(f"{name} truncated", _truncate, other_size, name)
        yield Change(f"{name} emptied", _empty, other_size, name)
        yield Change(f"{name} grown", _grow, other_size, name)
        yield Change(f"{name} a link", _make_link, errors.MalformedBundle, name)
        yield Change(f"{name} a folder", _make_folder, AS_FOLDER.get(name, errors.BundleFileMissing), name)
        yield Change(f"{name} a pipe", _make_pipe, errors.MalformedBundle, name)
    for name in ("extra.txt", ".hidden", "images.tar.0004", "SHA256SUMS.bak"):
        yield Change(f"{name} too many", _grow, errors.UnnamedFile, name)
    yield Change("a folder too many", lambda f, n: (f / n).mkdir(), errors.UnnamedFile, "more/")
    yield Change("a link too many", lambda f, n: (f / n).symlink_to("/etc/passwd"), errors.MalformedBundle, "passwd")
    yield Change("swapped", lambda f, n: _swap(f, "README.txt", n), errors.BundleFileDamaged, "bundle.json")


def _remove(folder: Path, name: str) -> None:
    (folder / name).unlink()


def _rename(folder: Path, name: str) -> None:
    (folder / name).rename(folder / f"x-{name}")


def _truncate(folder: Path, name: str) -> None:
    os.truncate(folder / name, (folder / name).stat().st_size - 1)


def _empty(folder: Path, name: str) -> None:
    os.truncate(folder / name, 0)


def _grow(folder: Path, name: str) -> None:
    with (folder / name).open("ab") as file:
        file.write(b"x")


def _make_link(folder: Path, name: str) -> None:
    """The same content, but by way of a link out of the folder."""
    outside = folder.with_name(f"outside-{name}")
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)


def _make_folder(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()


def _make_pipe(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)


@pytest.mark.parametrize("change", list(changes()), ids=lambda change: change.title)
def test_every_change_of_the_folder_is_refused_by_name(
    change: Change, sealed_small: Path, copy_of: Copy, tmp_path: Path
) -> None:
    folder = copy_of(sealed_small)
    change.make(folder, change.named)
    with pytest.raises(errors.TransloadError) as raised:
        run_import(folder, tmp_path / "state.yml", f"archive={tmp_path / 'out'}")
    assert raised.value.reference == change.kind.reference
    assert raised.value.exit_code == change.kind.exit_code
    assert change.named in raised.value.message
    assert names(tmp_path / "out") == []
    assert not (tmp_path / "state.yml").exists()


def test_swapped_chunks_of_the_same_size_are_named_block_by_block(sealed_small: Path, copy_of: Copy) -> None:
    folder = copy_of(sealed_small)
    _swap(folder, "images.tar.0001", "images.tar.0002")
    found = verify_bundle(
        folder, trust=trust(), at=AT, signer=None, is_full=True, jobs=2, stop=Stop(), progress=SilentProgress()
    )
    assert [(fault.reference, fault.facts["file"]) for fault in found.faults] == [
        ("block-damaged", "images.tar.0001"), ("block-damaged", "images.tar.0002"),
    ]  # fmt: skip
    assert found.skipped


def test_a_chunk_swapped_together_with_its_line_in_sha256sums_is_caught(sealed_tiny: Path, copy_of: Copy) -> None:
    other = BundleDraft(tiny_images()[:1])
    folder = copy_of(sealed_tiny)
    shutil.copy(other.seal(folder.with_name("other"), Signer("stranger")) / CHECKSUMS, folder / CHECKSUMS)
    with pytest.raises(errors.SignatureInvalid):
        open_bundle(folder)


def test_another_key_is_unknown(tmp_path: Path) -> None:
    folder = BundleDraft(tiny_images()).seal(tmp_path / "b", Signer("stranger"))
    with pytest.raises(errors.SignerUnknown) as raised:
        open_bundle(folder)
    assert SIGNATURE in raised.value.message


def test_a_signature_for_another_namespace_does_not_count(tmp_path: Path) -> None:
    folder = BundleDraft(tiny_images()).seal(tmp_path / "b", namespace="git")
    with pytest.raises(errors.SignatureInvalid):
        open_bundle(folder)


def test_a_signature_of_another_file_does_not_count(sealed_tiny: Path, copy_of: Copy) -> None:
    folder = copy_of(sealed_tiny)
    (folder / SIGNATURE).write_bytes(Signer().sign((folder / "bundle.json").read_bytes()))
    with pytest.raises(errors.SignatureInvalid):
        open_bundle(folder)


def test_the_signer_can_be_demanded_by_name(sealed_tiny: Path) -> None:
    open_bundle(sealed_tiny, signer="exporter@example.org").close()
    with pytest.raises(errors.SignerUnknown):
        open_bundle(sealed_tiny, signer="somebody@example.org")


def test_another_destination_is_refused(tmp_path: Path) -> None:
    state, out = tmp_path / "state.yml", tmp_path / "out"
    run_import(BundleDraft(tiny_images()).seal(tmp_path / "ours"), state, f"archive={out}")
    theirs = BundleDraft(tiny_images(), sequence=2, destination="site-b").seal(tmp_path / "theirs")
    with pytest.raises(errors.WrongDestination):
        run_import(theirs, state, f"archive={tmp_path / 'other'}")
    assert names(tmp_path / "other") == []


def test_authenticity_outranks_damage(sealed_tiny: Path, copy_of: Copy, tmp_path: Path) -> None:
    folder = copy_of(sealed_tiny)
    _grow(folder, "extra.txt")
    (folder / "README.txt").unlink()
    with pytest.raises(errors.SignerUnknown):
        open_bundle(folder, trust=trust(Signer("somebody@else")))


def test_an_intact_bundle_is_delivered_whole(sealed_small: Path, tmp_path: Path) -> None:
    result = run_import(sealed_small, tmp_path / "state.yml", f"archive={tmp_path / 'out'}")
    assert actions(result) == ["delivered"] * 3
    assert result.exit_code == 0


@pytest.mark.parametrize("size_bytes", [0, 100, 17 * 1024])
def test_junk_called_a_signature_does_not_deny_a_bundle_with_a_valid_one(
    size_bytes: int, sealed_tiny: Path, copy_of: Copy
) -> None:
    folder = copy_of(sealed_tiny)
    (folder / f"{CHECKSUMS}.other.sig").write_bytes(b"x" * size_bytes)
    bundle = open_bundle(folder)
    bundle.close()
    assert bundle.signed_by
    assert any(f"{CHECKSUMS}.other.sig" in note for note in bundle.notes)
