"""The archive that one image travels in to a Docker daemon: what goes in, in which form, and its stream of bytes.

A daemon with its own layer store gets a docker-save archive without the layers that it holds, and old ones get zstd
layers decompressed. A daemon with the containerd store gets an OCI layout with every blob as it is, so that digests
stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from transload.manifests.archive_layout import ArchiveLayout, Literal, TarPlan, blob_path, manifest_json
from transload.shared.compression import Buffer, compression_of, decompressed, diff_id
from transload.shared.digests import Digest
from transload.shared.errors import LayerContentDiffers
from transload.shared.image import OCI_INDEX, Descriptor, Image, ImageConfig, ImageManifest
from transload.shared.sinks.base import BlobSource
from transload.shared.workers import Stop

OpenContent = Callable[[], Iterator[Buffer]]
"""Opens the content of one file of the archive from its start."""


@dataclass(frozen=True, slots=True)
class DockerArchive:
    """An archive that is made while it is sent.

    Args:
        layout: Every byte that is known, and the places of the rest.
        contents: The rest.
        layer_bytes: Size of the layers in it, as they are sent.
        layers_left_out: How many layers are not in it because the daemon holds them.
    """

    layout: ArchiveLayout
    contents: Mapping[Digest, OpenContent]
    layer_bytes: int
    layers_left_out: int = 0

    @property
    def size_bytes(self) -> int:
        """The archive's exact size."""
        return self.layout.size_bytes

    @property
    def blob_bytes(self) -> int:
        """Size of the blobs in it, as they are sent: the archive without its tar headers."""
        return sum(place.size_bytes for place in self.layout.blobs)

    def pieces(self, stop: Stop, count: Callable[[int], None]) -> Iterator[Buffer]:
        """The archive's bytes.

        Args:
            stop: Checked between pieces.
            count: Told the size of every piece of a blob that was handed on.

        Raises:
            TransloadError: What the source of blobs raises; the stream is incomplete then.
        """
        for place in self.layout.pieces:
            if isinstance(place, Literal):
                yield place.content
                continue
            given = 0
            for piece in self.contents[place.digest]():
                stop.check()
                given += len(piece)
                yield piece
                count(len(piece))
            if given != place.size_bytes:
                raise LayerContentDiffers(
                    f"The content {place.digest} has {given:,} bytes where {place.size_bytes:,} were found before.",
                    hint="The medium gives other bytes at each reading: copy the bundle again.",
                    digest=str(place.digest),
                )


def layer_store_archive(
    manifest: ImageManifest,
    config: ImageConfig,
    blobs: BlobSource,
    held: Collection[tuple[Digest, ...]],
    *,
    reads_zstd: bool,
) -> DockerArchive:
    """The archive for a daemon with its own layer store (docker-save format, moby's image/tarexport).

    Its one image has no name: names are given last. `manifest.json` names every layer, also those left out.

    Args:
        manifest: The image.
        config: Its config, parsed.
        blobs: Where its blobs come from; zstd layers are read once here if the daemon cannot read them.
        held: Stacks of diff_ids that the daemon holds.
        reads_zstd: Whether the daemon reads zstd layers.

    Raises:
        LayerContentDiffers: A layer that had to be decompressed is not what the config says.
        TransloadError: What the source of blobs raises.
    """
    contents: dict[Digest, OpenContent] = {manifest.config.digest: _raw(blobs, manifest.config)}
    sizes = {manifest.config.digest: manifest.config.size_bytes}
    paths, left_out = [], 0
    for depth, layer in enumerate(manifest.layers, start=1):
        paths.append(blob_path(layer.digest))
        if config.diff_ids[:depth] in held:
            left_out += 1
        elif layer.digest not in contents:
            wanted = config.diff_ids[depth - 1] if depth <= len(config.diff_ids) else None
            contents[layer.digest], sizes[layer.digest] = _content(blobs, layer, wanted, reads_zstd=reads_zstd)
    plan = TarPlan()
    entry = {"Config": blob_path(manifest.config.digest), "RepoTags": None, "Layers": paths}
    plan.add_bytes("manifest.json", msgspec.json.encode([entry]))
    for digest, size_bytes in sizes.items():
        plan.add_blob(blob_path(digest), digest, size_bytes)
    layer_bytes = sum(sizes.values()) - manifest.config.size_bytes
    return DockerArchive(plan.finish(), contents, layer_bytes, left_out)


def containerd_archive(image: Image, name: str | None, blobs: BlobSource) -> DockerArchive:
    """The archive for a daemon with the containerd image store: an OCI layout, every blob as it is.

    Args:
        image: A single-platform image.
        name: What to call it in the archive; None to leave it without a name, which is given last.
        blobs: Where its blobs come from.
    """
    entry: dict[str, object] = {
        "mediaType": image.root.media_type,
        "digest": str(image.digest),
        "size": len(image.root.raw),
    }
    if name is not None:
        entry["annotations"] = {"io.containerd.image.name": name}
    plan = TarPlan()
    plan.add_bytes("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}
    plan.add_bytes("index.json", msgspec.json.encode(index))
    plan.add_bytes("manifest.json", manifest_json([image]))
    contents: dict[Digest, OpenContent] = {}
    for descriptor in image.descriptors():
        plan.add_blob(blob_path(descriptor.digest), descriptor.digest, descriptor.size_bytes)
        contents[descriptor.digest] = _raw(blobs, descriptor)
    layers = {layer.digest: layer.size_bytes for manifest in image.manifests for layer in manifest.layers}
    return DockerArchive(plan.finish(), contents, sum(layers.values()))


def _raw(blobs: BlobSource, descriptor: Descriptor) -> OpenContent:
    return lambda: blobs.open_blob(descriptor)


def _content(
    blobs: BlobSource, layer: Descriptor, wanted: Digest | None, *, reads_zstd: bool
) -> tuple[OpenContent, int]:
    """How a layer is sent, and the size that it has then."""
    if reads_zstd or not _is_zstd(blobs, layer):
        return _raw(blobs, layer), layer.size_bytes
    # A tar header needs the size first, and a temporary file of many gigabytes is worse than a second reading.
    found, size_bytes = diff_id(
        blobs.open_blob(layer), layer.media_type, layer=layer.digest, algorithm=wanted.algorithm if wanted else "sha256"
    )
    if found != wanted:
        raise LayerContentDiffers(
            f"Layer {layer.digest}, decompressed, is {found}, but the image's config names {wanted}.",
            hint="Its bytes are those that were exported, so the image is broken at its source: export another tag.",
            layer=str(layer.digest), expected=str(wanted), found=str(found),
        )  # fmt: skip
    return (
        lambda: decompressed(blobs.open_blob(layer), layer.media_type, layer=layer.digest, most_bytes=size_bytes),
        size_bytes,
    )


def _is_zstd(blobs: BlobSource, layer: Descriptor) -> bool:
    """By the first bytes: media types are often wrong about it."""
    head = b""
    for piece in blobs.open_blob(layer):
        head += bytes(piece[:4])
        if len(head) >= 4:
            break
    return compression_of(head) == "zstd"
