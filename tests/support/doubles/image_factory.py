"""Small images made in pure Python, the same bytes every time: layers, configs, manifests and indexes.

They are real images: a registry, skopeo and Docker take them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import zstandard

from transload.shared.digests import Digest
from transload.shared.image import (
    DOCKER_LIST,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Image,
    ManifestDocument,
)
from transload.shared.image_graph import build_image
from transload.shared.platforms import Platform
from transload.shared.references import Reference

_OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
_DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
_OCI_LAYERS = {
    "": "application/vnd.oci.image.layer.v1.tar",
    "gzip": "application/vnd.oci.image.layer.v1.tar+gzip",
    "zstd": "application/vnd.oci.image.layer.v1.tar+zstd",
}
_DOCKER_LAYERS = {
    "": "application/vnd.docker.image.rootfs.diff.tar",
    "gzip": "application/vnd.docker.image.rootfs.diff.tar.gzip",
}


@dataclass(frozen=True)
class LayerDouble:
    """A layer: its compressed bytes and what they are when decompressed."""

    raw: bytes
    compression: str
    diff_id: str

    def descriptor(self, *, docker: bool = False) -> Descriptor:
        media_type = (_DOCKER_LAYERS if docker else _OCI_LAYERS)[self.compression]
        return Descriptor(media_type, Digest.of(self.raw), len(self.raw))


@dataclass(frozen=True)
class ImageDouble:
    """An image with the bytes of everything that it points at."""

    image: Image
    blobs: Mapping[Digest, bytes]

    def renamed(self, reference: str) -> ImageDouble:
        """The same content under another name."""
        name = Reference.parse(reference)
        old = self.image
        image = Image(name, name, old.source_digest, old.documents, old.manifests, old.platform)
        return ImageDouble(image, self.blobs)


def tar_of(files: Mapping[str, bytes]) -> bytes:
    """A plain tar with these regular files, mode 0755."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def layer(files: Mapping[str, bytes], *, compression: str = "gzip") -> LayerDouble:
    """A layer with these files; `compression` is `gzip`, `zstd` or empty."""
    plain = tar_of(files)
    diff_id = f"sha256:{hashlib.sha256(plain).hexdigest()}"
    if compression == "gzip":
        return LayerDouble(gzip.compress(plain, 1, mtime=0), compression, diff_id)
    if compression == "zstd":
        return LayerDouble(zstandard.ZstdCompressor(level=1).compress(plain), compression, diff_id)
    return LayerDouble(plain, compression, diff_id)


@lru_cache(maxsize=32)
def noise_layer(name: str, size_bytes: int = 1000, compression: str = "gzip") -> LayerDouble:
    """A layer with one file of incompressible bytes, always the same for the same name."""
    content = random.Random(name).randbytes(size_bytes)
    return layer({f"data/{name}": content}, compression=compression)


@dataclass
class _Blobs:
    known: dict[Digest, bytes] = field(default_factory=dict)

    def add(self, raw: bytes) -> Digest:
        digest = Digest.of(raw)
        self.known[digest] = raw
        return digest


def image(
    reference: str,
    layers: Sequence[LayerDouble],
    *,
    platform: str = "linux/amd64",
    docker: bool = False,
    environment: Sequence[str] = (),
    command: Sequence[str] = ("/bin/true",),
    config_changes: Mapping[str, object] | None = None,
) -> ImageDouble:
    """A single-platform image.

    Args:
        reference: Its name.
        layers: Lowest first; the same one may come twice, or none at all.
        platform: What its config says.
        docker: Docker's media types instead of OCI's.
        environment: Makes configs differ.
        command: What `docker run` starts.
        config_changes: Replaces top-level fields of the config, to break it.
    """
    blobs = _Blobs()
    root = _manifest(blobs, layers, Platform.parse(platform), docker, environment, command, config_changes or {})
    return _build(reference, root, blobs)


def index(
    reference: str, children: Sequence[ImageDouble], *, docker: bool = False, attestation: bool = False
) -> ImageDouble:
    """A whole index of single-platform images, perhaps with an attestation of the first."""
    blobs = _Blobs()
    entries: list[dict[str, object]] = []
    for child in children:
        blobs.known.update(child.blobs)
        platform = child.image.platform
        assert platform is not None
        fields = {"os": platform.os, "architecture": platform.architecture}
        if platform.variant:
            fields["variant"] = platform.variant
        entries.append({**_pointer(child.image.root.descriptor), "platform": fields})
    if attestation:
        entries.append(_attestation(blobs, children[0].image.digest))
    media_type = DOCKER_LIST if docker else OCI_INDEX
    raw = _json({"schemaVersion": 2, "mediaType": media_type, "manifests": entries})
    return _build(reference, ManifestDocument(raw, media_type, blobs.add(raw)), blobs)


def _manifest(
    blobs: _Blobs,
    layers: Sequence[LayerDouble],
    platform: Platform,
    docker: bool,
    environment: Sequence[str],
    command: Sequence[str],
    config_changes: Mapping[str, object],
) -> ManifestDocument:
    config: dict[str, object] = {
        "architecture": platform.architecture,
        "os": platform.os,
        "config": {"Env": list(environment), "Cmd": list(command)},
        "created": "2024-01-01T00:00:00Z",
        "history": [{"created": "2024-01-01T00:00:00Z", "created_by": f"layer {i}"} for i in range(len(layers))],
        "rootfs": {"type": "layers", "diff_ids": [one.diff_id for one in layers]},
    }
    if platform.variant:
        config["variant"] = platform.variant
    raw_config = _json({**config, **config_changes})
    config_type = _DOCKER_CONFIG if docker else _OCI_CONFIG
    for one in layers:
        blobs.add(one.raw)
    media_type = DOCKER_MANIFEST if docker else OCI_MANIFEST
    raw = _json({
        "schemaVersion": 2,
        "mediaType": media_type,
        "config": _pointer(Descriptor(config_type, blobs.add(raw_config), len(raw_config))),
        "layers": [_pointer(one.descriptor(docker=docker)) for one in layers],
    })  # fmt: skip
    return ManifestDocument(raw, media_type, blobs.add(raw))


def _attestation(blobs: _Blobs, subject: Digest) -> dict[str, object]:
    statement = _json({"_type": "https://in-toto.io/Statement/v0.1", "subject": str(subject)})
    config = _json({"architecture": "unknown", "os": "unknown", "rootfs": {"type": "layers", "diff_ids": []}})
    raw = _json({
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": _pointer(Descriptor(_OCI_CONFIG, blobs.add(config), len(config))),
        "layers": [_pointer(Descriptor("application/vnd.in-toto+json", blobs.add(statement), len(statement)))],
    })  # fmt: skip
    annotations = {
        "vnd.docker.reference.type": "attestation-manifest",
        "vnd.docker.reference.digest": str(subject),
    }
    descriptor = Descriptor(OCI_MANIFEST, blobs.add(raw), len(raw))
    unknown = {"os": "unknown", "architecture": "unknown"}
    return {**_pointer(descriptor), "platform": unknown, "annotations": annotations}


def _pointer(descriptor: Descriptor) -> dict[str, object]:
    return {"mediaType": descriptor.media_type, "digest": str(descriptor.digest), "size": descriptor.size_bytes}


def _build(reference: str, root: ManifestDocument, blobs: _Blobs) -> ImageDouble:
    name = Reference.parse(reference)

    def document(wanted: Descriptor) -> ManifestDocument:
        return ManifestDocument(blobs.known[wanted.digest], wanted.media_type, wanted.digest)

    built = build_image(name, name, root.digest, root, document, lambda wanted: blobs.known[wanted.digest])
    needed = {descriptor.digest for descriptor in built.descriptors()}
    return ImageDouble(built, {digest: raw for digest, raw in blobs.known.items() if digest in needed})


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
