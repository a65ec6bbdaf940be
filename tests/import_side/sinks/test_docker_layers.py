"""The archives that go to a daemon, looked at without one."""

from __future__ import annotations

import io
import json
import tarfile

import pytest

from doubles.image_factory import ImageDouble, LayerDouble, image, noise_layer
from doubles.memory_blobs import MemoryBlobs
from transload.import_side.sinks.docker_layers import DockerArchive, containerd_archive, layer_store_archive
from transload.manifests.archive_layout import blob_path
from transload.shared.digests import Digest
from transload.shared.errors import BlockDamaged, LayerContentDiffers
from transload.shared.image import ImageConfig
from transload.shared.workers import Stop, Stopped

NAME = "registry.example/team/app:1.0"
ONE, TWO = noise_layer("one", 30_000), noise_layer("two", 20_000)
ZSTD = noise_layer("three", 40_000, "zstd")


def for_layer_store(
    double: ImageDouble,
    blobs: MemoryBlobs,
    *held: list[LayerDouble],
    reads_zstd: bool = True,
) -> DockerArchive:
    manifest = double.image.manifests[0]
    config = ImageConfig.parse(double.blobs[manifest.config.digest], manifest.config.digest)
    chains = {tuple(Digest.parse(layer.diff_id) for layer in stack) for stack in held}
    return layer_store_archive(manifest, config, blobs, chains, reads_zstd=reads_zstd)


def files(archive: DockerArchive, stop: Stop | None = None) -> dict[str, bytes]:
    """What is in an archive, and a check of its size."""
    raw = b"".join(bytes(piece) for piece in archive.pieces(stop or Stop(), lambda _: None))
    assert len(raw) == archive.size_bytes
    with tarfile.open(fileobj=io.BytesIO(raw)) as members:
        names = members.getnames()
        assert len(names) == len(set(names))
        return {name: (members.extractfile(name) or io.BytesIO()).read() for name in names}


def path(layer: LayerDouble) -> str:
    return blob_path(Digest.of(layer.raw))


def test_every_layer_is_named_and_only_those_not_held_are_in_it() -> None:
    double = image(NAME, [ONE, TWO, ZSTD])
    archive = for_layer_store(double, MemoryBlobs.of(double), [ONE], [ONE, TWO])
    found = files(archive)
    config = blob_path(double.image.manifests[0].config.digest)
    (entry,) = json.loads(found.pop("manifest.json"))
    assert entry == {"Config": config, "RepoTags": None, "Layers": [path(ONE), path(TWO), path(ZSTD)]}
    assert set(found) == {config, path(ZSTD)}
    assert archive.layers_left_out == 2
    assert archive.layer_bytes == len(ZSTD.raw)
    assert archive.blob_bytes == len(ZSTD.raw) + double.image.manifests[0].config.size_bytes


def test_a_layer_is_held_only_with_everything_below_it() -> None:
    double = image(NAME, [ONE, TWO])
    assert path(TWO) in files(for_layer_store(double, MemoryBlobs.of(double), [TWO], [TWO, ONE]))


def test_a_layer_that_comes_twice_is_sent_once_and_sent_if_one_of_them_is_not_held() -> None:
    double = image(NAME, [ONE, TWO, ONE])
    archive = for_layer_store(double, MemoryBlobs.of(double), [ONE])
    assert {path(ONE), path(TWO)} <= set(files(archive))
    assert archive.layer_bytes == len(ONE.raw) + len(TWO.raw)


def test_zstd_is_decompressed_for_those_who_cannot_read_it_in_two_readings() -> None:
    double = image(NAME, [ONE, ZSTD])
    blobs = MemoryBlobs.of(double)
    found = files(for_layer_store(double, blobs, reads_zstd=False))
    assert str(Digest.of(found[path(ZSTD)])) == ZSTD.diff_id
    assert found[path(ONE)] == ONE.raw
    assert blobs.opened[Digest.of(ZSTD.raw)] == 3  # its first bytes, its size, its content
    assert files(for_layer_store(double, MemoryBlobs.of(double)))[path(ZSTD)] == ZSTD.raw


def test_a_source_that_changes_between_two_readings_is_noticed() -> None:
    double = image(NAME, [ZSTD])
    blobs = MemoryBlobs(dict(double.blobs))
    archive = for_layer_store(double, blobs, reads_zstd=False)
    blobs.blobs = {**double.blobs, Digest.of(ZSTD.raw): TWO.raw}
    with pytest.raises(LayerContentDiffers, match="were found before"):
        files(archive)


def test_a_bad_block_ends_the_stream_by_its_error() -> None:
    double = image(NAME, [ONE])
    blobs = MemoryBlobs.of(double)
    blobs.bad_from[Digest.of(ONE.raw)] = 10
    for archive in (for_layer_store(double, blobs), containerd_archive(double.image, NAME, blobs)):
        with pytest.raises(BlockDamaged):
            files(archive)


def test_a_stop_ends_the_stream() -> None:
    double = image(NAME, [ONE])
    stop = Stop()
    stop.request()
    with pytest.raises(Stopped):
        files(containerd_archive(double.image, NAME, MemoryBlobs.of(double)), stop)


@pytest.mark.parametrize("name", [None, "registry.example/team/app@sha256:" + "1" * 64])
def test_the_containerd_store_gets_every_blob_as_it_is(name: str | None) -> None:
    double = image(NAME, [ONE, ZSTD, ONE])
    found = files(containerd_archive(double.image, name, MemoryBlobs.of(double)))
    (entry,) = json.loads(found["index.json"])["manifests"]
    assert entry["digest"] == str(double.image.digest)
    assert entry.get("annotations", {}).get("io.containerd.image.name") == name
    assert {Digest.of(raw) for path, raw in found.items() if path.startswith("blobs/")} == set(double.blobs)
