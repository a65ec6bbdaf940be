"""The exact layout of an archive before a byte of it exists: one docker-save tar that is also an OCI layout.

Given the same images it is always the same bytes: fixed tar headers, fixed order, nothing random. The exporter
plans with it, sinks stream with it, and `verify --full` compares an archive's own headers with it.

Order: `oci-layout`, `index.json`, `manifest.json`, the directory entries `blobs/` and `blobs/<algorithm>/`
(Apptainer needs them), the doors (`oci_door`), then every blob once in graph order. Sources: OCI image-spec
image-layout.md; the docker-save format as read by moby's image/tarexport.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from transload.shared.digests import Digest
from transload.shared.image import OCI_INDEX, OCI_MANIFEST, Descriptor, Image, ImageManifest
from transload.shared.platforms import DEFAULT_PLATFORM

TAR_BLOCK_BYTES = 512
_END_OF_ARCHIVE = bytes(2 * TAR_BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class Literal:
    """Bytes of the archive that are known in advance.

    Args:
        offset: Where in the archive they begin.
        content: The bytes.
    """

    offset: int
    content: bytes

    @property
    def size_bytes(self) -> int:
        """How many bytes they are."""
        return len(self.content)


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """The place of a blob's content in the archive.

    Args:
        offset: Where in the archive the content begins.
        digest: Whose content.
        size_bytes: Its exact size.
    """

    offset: int
    digest: Digest
    size_bytes: int


Piece = Literal | BlobPlace


@dataclass(slots=True)
class TarPlan:
    """A tar file in the making: members are added in order, each gets its offset.

    Members are regular files and directories with fixed headers: mode 0644 or 0755, owner 0:0, mtime 0. Sizes
    of 8 GiB and more use GNU's base-256 form, which GNU tar, Go's archive/tar and Docker read.
    """

    pieces: list[Piece] = field(default_factory=list)
    size_bytes: int = 0

    def add_directory(self, name: str) -> None:
        """Add a directory entry; `name` ends with a slash."""
        self._add_literal(_header(name, 0, tarfile.DIRTYPE, 0o755))

    def add_bytes(self, name: str, content: bytes) -> None:
        """Add a file whose content is known."""
        self._add_literal(_header(name, len(content), tarfile.REGTYPE, 0o644) + content + _padding(len(content)))

    def add_blob(self, name: str, digest: Digest, size_bytes: int) -> None:
        """Add a file whose content comes later."""
        self._add_literal(_header(name, size_bytes, tarfile.REGTYPE, 0o644))
        self.pieces.append(BlobPlace(self.size_bytes, digest, size_bytes))
        self.size_bytes += size_bytes
        if padding := _padding(size_bytes):
            self._add_literal(padding)

    def finish(self) -> ArchiveLayout:
        """End the archive with its two zero blocks."""
        self._add_literal(_END_OF_ARCHIVE)
        return ArchiveLayout(tuple(self.pieces), self.size_bytes)

    def _add_literal(self, content: bytes) -> None:
        last = self.pieces[-1] if self.pieces else None
        if isinstance(last, Literal):
            self.pieces[-1] = Literal(last.offset, last.content + content)
        else:
            self.pieces.append(Literal(self.size_bytes, content))
        self.size_bytes += len(content)


@dataclass(frozen=True, slots=True)
class ArchiveLayout:
    """Every byte of an archive, either known or the place of a blob.

    Args:
        pieces: In ascending order of offset, without gaps.
        size_bytes: The archive's exact size.
    """

    pieces: tuple[Piece, ...]
    size_bytes: int

    @property
    def blobs(self) -> tuple[BlobPlace, ...]:
        """The places of all blobs, in order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, BlobPlace))

    @property
    def literals(self) -> tuple[Literal, ...]:
        """The parts that are known in advance, in order."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Literal))


def hybrid_archive(images: Sequence[Image]) -> ArchiveLayout:
    """The layout of one archive that holds these images, each blob once.

    Args:
        images: In the order in which they are to be listed.

    Returns:
        The layout; its blobs are those of all images in graph order: documents, configs, layers.
    """
    plan = TarPlan()
    descriptors = unique_descriptors(images)
    plan.add_bytes("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
    plan.add_bytes("index.json", index_json(images))
    plan.add_bytes("manifest.json", manifest_json(images))
    plan.add_directory("blobs/")
    for algorithm in sorted({descriptor.digest.algorithm for descriptor in descriptors}):
        plan.add_directory(f"blobs/{algorithm}/")
    doors = {Digest.of(door): door for image in images if (door := oci_door(image)) is not None}
    for digest, door in doors.items():
        plan.add_bytes(blob_path(digest), door)
    for descriptor in descriptors:
        plan.add_blob(blob_path(descriptor.digest), descriptor.digest, descriptor.size_bytes)
    return plan.finish()


def unique_descriptors(images: Iterable[Image]) -> tuple[Descriptor, ...]:
    """Every blob of all images once: all documents, then all configs, then all layers, each in graph order."""
    groups: tuple[dict[Digest, Descriptor], ...] = ({}, {}, {})
    for image in images:
        for document in image.documents:
            groups[0].setdefault(document.digest, document.descriptor)
        for manifest in image.manifests:
            groups[1].setdefault(manifest.config.digest, manifest.config)
            for layer in manifest.layers:
                groups[2].setdefault(layer.digest, layer)
    merged: dict[Digest, Descriptor] = {}
    for group in groups:
        for digest, descriptor in group.items():
            merged.setdefault(digest, descriptor)
    return tuple(merged.values())


def blob_path(digest: Digest) -> str:
    """Where an OCI layout keeps a blob."""
    return f"blobs/{digest.algorithm}/{digest.hex}"


def index_json(images: Sequence[Image]) -> bytes:
    """The archive's `index.json`: one entry an image, named by its full reference.

    A bare tag would collide between repositories, so both annotations that readers look at carry the full name.
    A door stands before the entry of its image: skopeo takes the first entry that it understands, and containerd, which
    takes every one, keeps the last of a name: the image itself.
    """
    entries = []
    for image in images:
        annotations = {} if image.name.tag is None else {
            "io.containerd.image.name": str(image.name.with_digest(None)),
            "org.opencontainers.image.ref.name": str(image.name.with_digest(None)),
        }  # fmt: skip
        entry: dict[str, object] = {
            "mediaType": image.root.media_type,
            "digest": str(image.digest),
            "size": len(image.root.raw),
        }
        if annotations:
            entry["annotations"] = annotations
        door = oci_door(image)
        if door is not None:
            entries.append({
                "mediaType": OCI_INDEX,
                "digest": str(Digest.of(door)),
                "size": len(door),
                "annotations": {"org.opencontainers.image.ref.name": str(image.name.with_digest(None))},
            })  # fmt: skip
        entries.append(entry)
    return _canonical_json({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries})


def oci_door(image: Image) -> bytes | None:
    """An OCI index through which skopeo finds an image whose own document is of Docker's kind.

    `oci-archive:FILE:REFERENCE` looks at entries of OCI's two media types only, so that it would not find most of NGC's
    images. Through the door it copies the image with its original digest.

    Returns:
        The index of the image's runnable manifests, or None for an image that needs none: an OCI image, or one
        without a tag, which nobody can ask for by name.
    """
    runnable = [manifest for manifest in image.manifests if manifest.is_runnable]
    if image.name.tag is None or image.root.media_type in (OCI_MANIFEST, OCI_INDEX) or not runnable:
        return None
    return _canonical_json({
        "schemaVersion": 2,
        "mediaType": OCI_INDEX,
        "manifests": [_door_entry(manifest) for manifest in runnable],
    })  # fmt: skip


def _door_entry(manifest: ImageManifest) -> dict[str, object]:
    platform = manifest.platform or DEFAULT_PLATFORM
    fields = {"os": platform.os, "architecture": platform.architecture, "variant": platform.variant}
    return {
        "mediaType": manifest.document.media_type,
        "digest": str(manifest.document.digest),
        "size": len(manifest.document.raw),
        "platform": {key: value for key, value in fields.items() if value},
    }


def manifest_json(images: Sequence[Image]) -> bytes:
    """The archive's `manifest.json`: exactly one platform for each name, as `docker load` reads it.

    Docker 20.10 keeps the last entry of a name, and refuses `name@sha256:...` as a RepoTag for the whole archive.
    """
    entries = []
    for image in images:
        manifest = docker_manifest(image)
        if manifest is None:
            continue
        entries.append({
            "Config": blob_path(manifest.config.digest),
            "RepoTags": None if image.name.tag is None else [str(image.name.with_digest(None))],
            "Layers": [blob_path(layer.digest) for layer in manifest.layers],
        })  # fmt: skip
    return _canonical_json(entries)


def docker_manifest(image: Image) -> ImageManifest | None:
    """The one manifest that a docker-save archive names for an image: linux/amd64 if it is there, else the first."""
    runnable = [manifest for manifest in image.manifests if manifest.is_runnable]
    for manifest in runnable:
        if manifest.platform and manifest.platform.satisfies(DEFAULT_PLATFORM):
            return manifest
    return runnable[0] if runnable else None


def _header(name: str, size_bytes: int, kind: bytes, mode: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.mode = size_bytes, kind, mode
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict")


def _padding(size_bytes: int) -> bytes:
    return bytes(-size_bytes % TAR_BLOCK_BYTES)


def _canonical_json(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")
