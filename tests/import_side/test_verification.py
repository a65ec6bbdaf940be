"""`verify`: everything that is damaged is named at once; --full also finds what a signer did wrong."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from doubles.bundle_factory import BundleDraft, reseal, small_images, tiny_images
from doubles.image_factory import LayerDouble, image, noise_layer
from doubles.import_runs import AT, open_bundle, trust
from transload.import_side.verification import Verification, verify_bundle
from transload.shared import errors
from transload.shared.limits import BLOCK_SIZE_BYTES
from transload.shared.progress import SilentProgress
from transload.shared.workers import Stop

Copy = Callable[[Path], Path]


def verify(folder: Path, *, is_full: bool = False, jobs: int = 2) -> Verification:
    return verify_bundle(
        folder, trust=trust(), at=AT, signer=None, is_full=is_full, jobs=jobs, stop=Stop(), progress=SilentProgress()
    )


def references(found: Verification) -> list[str]:
    return [fault.reference for fault in found.faults]


@pytest.mark.parametrize("jobs", [1, 3])
def test_an_intact_bundle_counts_as_much_as_its_manifest_names(sealed_small: Path, jobs: int) -> None:
    found = verify(sealed_small, is_full=True, jobs=jobs)
    manifest = found.bundle.manifest
    assert found.faults == []
    assert found.blocks_intact == found.blocks_total == 3
    assert found.chunks_checked == len(manifest.artifacts[0].chunks)
    assert found.blobs_checked == len(manifest.blobs)
    assert found.images_checked == len(manifest.images)
    layers = {
        layer.digest for one in small_images() for m in one.image.manifests if m.is_runnable for layer in m.layers
    }
    assert found.layers_checked == len(layers)


def test_all_faults_of_a_bundle_come_in_one_pass(copy_of: Copy, tmp_path: Path) -> None:
    images = [image(f"x.example/a:{n}", [noise_layer(f"part-{n}", 4_194_304, "")]) for n in range(6)]
    folder = BundleDraft(images, chunk_size_bytes=2 * BLOCK_SIZE_BYTES).seal(tmp_path / "bundle")
    (folder / "images.tar.0001").unlink()
    os.truncate(folder / "images.tar.0002", BLOCK_SIZE_BYTES + 10)
    for path, offset in (("images.tar.0002", 5), ("images.tar.0003", 7), ("images.tar.0003", BLOCK_SIZE_BYTES + 7)):
        with (folder / path).open("r+b") as file:
            file.seek(offset)
            file.write(b"damaged")
    found = verify(folder)
    named = [(fault.reference, fault.facts["file"], fault.facts.get("blocks")) for fault in found.faults]
    assert named == [
        ("bundle-file-missing", "images.tar.0001", None),
        ("bundle-file-wrong-size", "images.tar.0002", None),
        ("block-damaged", "images.tar.0002", [2]),
        ("block-damaged", "images.tar.0003", [4, 5]),
    ]
    assert found.faults[3].facts["ranges"] == [[0, 2 * BLOCK_SIZE_BYTES - 1]]
    assert found.blocks_intact == found.blocks_total - 6


def test_a_blocks_file_that_is_damaged_leaves_nothing_to_compare_with(sealed_tiny: Path, copy_of: Copy) -> None:
    folder = copy_of(sealed_tiny)
    (folder / "images.blocks").write_bytes(bytes(32))
    found = verify(folder)
    assert references(found) == ["bundle-file-damaged"]
    assert (found.blocks_intact, found.blocks_total) == (0, 1)


def test_a_bundle_with_faulty_files_gives_no_blob(sealed_tiny: Path, copy_of: Copy) -> None:
    folder = copy_of(sealed_tiny)
    (folder / "README.txt").unlink()
    bundle = open_bundle(folder, keep_file_faults=True)
    with pytest.raises(RuntimeError):
        next(iter(bundle.open_blob(tiny_images()[0].image.manifests[0].config)))


def test_full_finds_a_chunk_sum_that_disagrees_with_the_blocks(sealed_tiny: Path, copy_of: Copy) -> None:
    """Only a wrong signer can make it; a reader with sha256sum alone would see another bundle."""
    folder = copy_of(sealed_tiny)
    sums = (folder / "SHA256SUMS").read_text()
    right = hashlib.sha256((folder / "images.tar.0001").read_bytes()).hexdigest()
    from doubles.signer import Signer  # noqa: PLC0415

    changed = sums.replace(right, "0" * 64).encode()
    (folder / "SHA256SUMS").write_bytes(changed)
    (folder / "SHA256SUMS.sig").write_bytes(Signer().sign(changed))
    assert references(verify(folder)) == []
    found = verify(folder, is_full=True)
    assert references(found) == ["bundle-file-damaged"]
    assert found.faults[0].facts["file"] == "images.tar.0001"


def test_full_finds_a_blob_that_is_not_what_it_is_called(tmp_path: Path) -> None:
    draft = BundleDraft(tiny_images())
    layer = tiny_images()[0].image.manifests[0].layers[1]
    place = next(blob for blob in draft.layout.blobs if blob.digest == layer.digest)
    draft.archive[place.offset] ^= 1
    folder = draft.seal(tmp_path / "bundle")
    assert references(verify(folder)) == []
    assert references(verify(folder, is_full=True)) == ["blob-damaged"]


@pytest.mark.parametrize("compression", ["gzip", "zstd", ""])
def test_full_finds_a_layer_that_is_not_its_diff_id(compression: str, tmp_path: Path) -> None:
    good = noise_layer("layer", 1000, compression)
    wrong = LayerDouble(good.raw, good.compression, f"sha256:{'1' * 64}")
    folder = BundleDraft([image("x.example/a:1", [wrong])]).seal(tmp_path / "bundle")
    assert references(verify(folder)) == []
    assert references(verify(folder, is_full=True)) == ["layer-content-differs"]


@pytest.mark.parametrize("where", ["header", "index.json", "padding"])
def test_full_finds_an_archive_that_tells_others_something_else(where: str, tmp_path: Path) -> None:
    draft = BundleDraft(tiny_images())
    content = bytes(draft.archive)
    offset = {
        "header": content.index(b"blobs/sha256/") + 20,
        "index.json": content.index(b"tiny/one:1") + 9,
        "padding": len(content) - 1,
    }[where]
    draft.archive[offset] ^= 1
    folder = draft.seal(tmp_path / "bundle")
    assert references(verify(folder)) == []
    assert references(verify(folder, is_full=True)) == ["archive-inconsistent"]


def contradictions() -> list[tuple[str, dict[str, object], type[errors.TransloadError]]]:
    return [
        ("platform", {"platform": "linux/arm64"}, errors.ArchiveInconsistent),
        ("index", {"platform": None}, errors.ArchiveInconsistent),
        ("media type", {"media_type": "application/vnd.docker.distribution.manifest.v2+json"}, errors.MalformedBundle),
        ("schema 1", {"media_type": "application/vnd.docker.distribution.manifest.v1+json"}, errors.MalformedBundle),
        ("reference", {"reference": "tiny/one"}, errors.MalformedBundle),
        ("name", {"name": "UPPER"}, errors.MalformedBundle),
    ]


@pytest.mark.parametrize(("what", "change", "kind"), contradictions(), ids=[one[0] for one in contradictions()])
def test_an_entry_that_contradicts_its_documents_is_found(
    what: str, change: dict[str, object], kind: type[errors.TransloadError], tmp_path: Path
) -> None:
    draft = BundleDraft(tiny_images())
    first, second = draft.manifest.images
    draft.manifest = msgspec.structs.replace(draft.manifest, images=(msgspec.structs.replace(first, **change), second))
    found = verify(draft.seal(tmp_path / "bundle"))
    assert references(found) == [kind.reference]


def test_blobs_in_another_order_are_found(tmp_path: Path) -> None:
    draft = BundleDraft(tiny_images())
    first, second = draft.manifest.images
    swapped = (first.blobs[0], *reversed(first.blobs[1:]))
    images = (msgspec.structs.replace(first, blobs=swapped), second)
    draft.manifest = msgspec.structs.replace(draft.manifest, images=images)
    assert references(verify(draft.seal(tmp_path / "bundle"))) == ["archive-inconsistent"]


def test_a_blob_size_that_the_manifest_does_not_give_is_found(tmp_path: Path) -> None:
    draft = BundleDraft(tiny_images())
    *others, last = draft.manifest.blobs
    blobs = (*others, msgspec.structs.replace(last, size=last.size - 1))
    draft.manifest = msgspec.structs.replace(draft.manifest, blobs=blobs)
    assert "archive-inconsistent" in references(verify(draft.seal(tmp_path / "bundle")))


def test_resealed_damage_is_accepted_by_the_signature_and_found_by_the_blocks(sealed_tiny: Path, copy_of: Copy) -> None:
    folder = copy_of(sealed_tiny)
    raw = bytearray((folder / "images.tar.0001").read_bytes())
    raw[9999] ^= 1
    (folder / "images.tar.0001").write_bytes(raw)
    reseal(folder)
    assert references(verify(folder)) == ["block-damaged"]
