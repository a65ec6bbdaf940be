"""Streams of blobs: every byte verified, across blocks and chunks, and a wrong blob never handed out to its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from doubles.bundle_factory import BundleDraft
from doubles.image_factory import image, noise_layer
from doubles.import_runs import open_bundle
from transload.import_side.verified_bundle import VerifiedBundle
from transload.shared import errors
from transload.shared.image import Descriptor


@pytest.fixture(scope="module")
def large_layer() -> Descriptor:
    return noise_layer("over several blocks", 9_000_000, "").descriptor()


def draft() -> BundleDraft:
    return BundleDraft([image("x.example/large:1", [noise_layer("over several blocks", 9_000_000, "")])])


def read_until_it_fails(
    bundle: VerifiedBundle, descriptor: Descriptor, kind: type[errors.TransloadError]
) -> tuple[int, errors.TransloadError]:
    """How many bytes came out before the error, and the error."""
    received = 0
    try:
        for piece in bundle.open_blob(descriptor):
            received += len(piece)
    except kind as error:
        return received, error
    pytest.fail(f"all {received} bytes came out")


def test_a_blob_over_several_chunks_comes_out_as_it_went_in(tmp_path: Path, large_layer: Descriptor) -> None:
    bundle = open_bundle(draft().seal(tmp_path / "bundle"))
    content = b"".join(bytes(piece) for piece in bundle.open_blob(large_layer))
    assert content == noise_layer("over several blocks", 9_000_000, "").raw
    assert large_layer.digest in bundle.blobs_checked


def test_the_last_piece_of_a_wrong_blob_is_kept_back(tmp_path: Path, large_layer: Descriptor) -> None:
    """Whoever counts bytes, as a registry with a Content-Length does, never has all of it."""
    wrong = draft()
    place = next(one for one in wrong.layout.blobs if one.digest == large_layer.digest)
    wrong.archive[place.offset + 100] ^= 1
    bundle = open_bundle(wrong.seal(tmp_path / "bundle"))
    received, _ = read_until_it_fails(bundle, large_layer, errors.BlobDamaged)
    assert 0 < received < large_layer.size_bytes
    assert large_layer.digest not in bundle.blobs_checked


def test_nothing_of_a_damaged_block_is_handed_on(tmp_path: Path, large_layer: Descriptor) -> None:
    folder = draft().seal(tmp_path / "bundle")
    with (folder / "images.tar.0002").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"?")
    bundle = open_bundle(folder)
    place = next(one for one in bundle.manifest.blobs if one.digest == str(large_layer.digest))
    received, error = read_until_it_fails(bundle, large_layer, errors.BlockDamaged)
    assert place.offset + received == bundle.manifest.artifacts[0].block_size
    assert (error.facts["file"], error.facts["block"], error.facts["first_byte"]) == ("images.tar.0002", 1, 0)


def test_what_is_verified_is_what_is_handed_on(tmp_path: Path, large_layer: Descriptor) -> None:
    """A file that changes after its block was verified changes nothing: no byte is read twice."""
    folder = draft().seal(tmp_path / "bundle")
    bundle = open_bundle(folder)
    stream = bundle.open_blob(large_layer)
    first = next(stream)
    for path in folder.glob("images.tar.*"):
        path.write_bytes(bytes(path.stat().st_size))
    assert noise_layer("over several blocks", 9_000_000, "").raw.startswith(bytes(first))
    with pytest.raises(errors.BlockDamaged):
        next(stream)


def test_a_piece_cannot_be_used_after_the_next_was_asked_for(tmp_path: Path, large_layer: Descriptor) -> None:
    bundle = open_bundle(draft().seal(tmp_path / "bundle"))
    stream = bundle.open_blob(large_layer)
    first = next(stream)
    next(stream)
    with pytest.raises(ValueError, match="released"):
        bytes(first)


def test_several_threads_read_at_once(sealed_small: Path) -> None:
    bundle = open_bundle(sealed_small)
    descriptors = [one for an_image in bundle.images() for one in an_image.descriptors()]
    wrong: list[Descriptor] = []

    def read(descriptor: Descriptor) -> None:
        hasher = descriptor.digest.hasher()
        for piece in bundle.open_blob(descriptor):
            hasher.update(piece)
        if hasher.hexdigest() != descriptor.digest.hex:
            wrong.append(descriptor)

    threads = [threading.Thread(target=read, args=(descriptor,)) for descriptor in descriptors * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert bundle.blobs_checked == {descriptor.digest for descriptor in descriptors}


def test_a_chunk_cut_short_after_the_listing_is_noticed(
    tmp_path: Path, large_layer: Descriptor, copy_of: Callable[[Path], Path]
) -> None:
    folder = draft().seal(tmp_path / "bundle")
    bundle = open_bundle(folder)
    (folder / "images.tar.0002").write_bytes(b"short")
    with pytest.raises(errors.BundleFileWrongSize) as raised:
        for _ in bundle.open_blob(large_layer):
            pass
    assert raised.value.facts["file"] == "images.tar.0002"


def test_a_blob_that_is_not_there_is_malformed(sealed_tiny: Path, large_layer: Descriptor) -> None:
    bundle = open_bundle(sealed_tiny)
    with pytest.raises(errors.MalformedBundle):
        next(iter(bundle.open_blob(large_layer)))
    config = bundle.images()[0].manifests[0].config
    with pytest.raises(errors.MalformedBundle):
        bundle.read_blob(config, config.size_bytes - 1)
