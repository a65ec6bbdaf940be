"""Images as registries describe them: descriptors, manifests, indexes, and the graph of one image.

Manifests are raw bytes end to end: they are parsed to be understood and never serialised again.
Specification: OCI image-spec v1.1 (manifest.md, image-index.md, descriptor.md) and Docker distribution's schema 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import InvalidReference, RegistryProtocolError, UnsupportedImage
from transload.shared.platforms import Platform
from transload.shared.references import Reference

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFEST_TYPES = (OCI_MANIFEST, DOCKER_MANIFEST)
INDEX_TYPES = (OCI_INDEX, DOCKER_LIST)
ACCEPTED_TYPES = (*MANIFEST_TYPES, *INDEX_TYPES)
SCHEMA_1_TYPES = (
    "application/vnd.docker.distribution.manifest.v1+prettyjws",
    "application/vnd.docker.distribution.manifest.v1+json",
)
CONFIG_TYPES = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
_FOREIGN_MARKS = ("nondistributable", "foreign")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A pointer to content: what it is, its digest and its exact size.

    Args:
        media_type: The content's media type.
        digest: The content's digest.
        size_bytes: The content's exact size.
        platform: For a manifest in an index, the platform that the index claims for it.
        urls: Where foreign layers say that they can be had.
        is_attestation: The index marks it as an attestation of another manifest.
    """

    media_type: str
    digest: Digest
    size_bytes: int
    platform: Platform | None = None
    urls: tuple[str, ...] = ()
    is_attestation: bool = False

    @property
    def is_foreign(self) -> bool:
        """Whether it is a layer that a registry need not hold (Windows base layers)."""
        return any(mark in self.media_type for mark in _FOREIGN_MARKS)


@dataclass(frozen=True, slots=True)
class ManifestDocument:
    """The raw bytes of a manifest or index, with the media type that they were served as."""

    raw: bytes
    media_type: str
    digest: Digest

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor that points at these bytes."""
        return Descriptor(self.media_type, self.digest, len(self.raw))


@dataclass(frozen=True, slots=True)
class ImageManifest:
    """One runnable image (or attestation): a config and its layers, in order, repeats kept.

    Args:
        document: The manifest's raw bytes.
        config: The config's descriptor.
        layers: The layers' descriptors, lowest first.
        platform: What the index claims or the config says; None when nothing does.
    """

    document: ManifestDocument
    config: Descriptor
    layers: tuple[Descriptor, ...]
    platform: Platform | None = None

    @property
    def is_runnable(self) -> bool:
        """False for artifacts and attestations, whose config is not an image config or whose layers are no layers."""
        return self.config.media_type in CONFIG_TYPES and not any(
            layer.media_type.startswith("application/vnd.in-toto") for layer in self.layers
        )


@dataclass(frozen=True, slots=True)
class ImageIndex:
    """A list of manifests for several platforms."""

    document: ManifestDocument
    manifests: tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """An image as it is carried: its names, its documents and everything that they point at.

    Args:
        reference: What was asked for, normalised.
        name: What it is called in archives and at targets; `reference` unless an image list renames it.
        source_digest: What the reference resolved to at the source (perhaps an index).
        documents: Every manifest and index carried, parents before children, each once; the first is delivered.
        manifests: The image manifests among them, in graph order.
        platform: The platform chosen out of an index or read from the config; None for a whole index.
    """

    reference: Reference
    name: Reference
    source_digest: Digest
    documents: tuple[ManifestDocument, ...]
    manifests: tuple[ImageManifest, ...]
    platform: Platform | None

    @property
    def root(self) -> ManifestDocument:
        """The document that is delivered."""
        return self.documents[0]

    @property
    def digest(self) -> Digest:
        """The digest that is delivered: what `docker pull name@digest` will ask for on the other side."""
        return self.root.digest

    @property
    def is_index(self) -> bool:
        """Whether a whole index is carried."""
        return self.root.media_type in INDEX_TYPES

    def descriptors(self) -> Iterator[Descriptor]:
        """Every blob of the image once, in graph order: documents, then configs, then layers."""
        seen: set[Digest] = set()
        documents = (document.descriptor for document in self.documents)
        configs = (manifest.config for manifest in self.manifests)
        layers = (layer for manifest in self.manifests for layer in manifest.layers)
        for group in (documents, configs, layers):
            for descriptor in group:
                if descriptor.digest not in seen:
                    seen.add(descriptor.digest)
                    yield descriptor


def parse_document(document: ManifestDocument) -> ImageManifest | ImageIndex:
    """Understand a manifest or index.

    Args:
        document: Its raw bytes, already compared with their digest.

    Raises:
        UnsupportedImage: Schema 1 or another media type.
        RegistryProtocolError: Bytes that are not what the media type says.
    """
    where = f"manifest {document.digest}"
    if document.media_type in SCHEMA_1_TYPES:
        raise UnsupportedImage(
            f"The {where} is of the old schema 1, which cannot be carried with its digest.",
            hint="Ask the publisher for a newer tag, or pull and push the image once with a current Docker.",
        )
    fields = _json_object(document.raw, where)
    claimed = fields.get("mediaType", document.media_type)
    if claimed != document.media_type:
        raise RegistryProtocolError(
            f"The {where} was served as {document.media_type} but says of itself that it is {str(claimed)[:100]}."
        )
    if document.media_type in MANIFEST_TYPES:
        if "manifests" in fields or fields.get("schemaVersion") != 2:
            raise RegistryProtocolError(f"The {where} has the fields of another kind of document.")
        layers = _list(fields, "layers", where, limits.MAX_LAYERS)
        return ImageManifest(
            document,
            _descriptor(fields.get("config"), f"{where}: config"),
            tuple(_descriptor(entry, f"{where}: layers[{i}]") for i, entry in enumerate(layers)),
        )
    if document.media_type in INDEX_TYPES:
        if "layers" in fields or "config" in fields:
            raise RegistryProtocolError(f"The {where} has the fields of another kind of document.")
        entries = _list(fields, "manifests", where, limits.MAX_INDEX_MANIFESTS)
        return ImageIndex(
            document, tuple(_descriptor(entry, f"{where}: manifests[{i}]") for i, entry in enumerate(entries))
        )
    raise UnsupportedImage(f"The {where} has the media type {document.media_type[:100]!r}, which is no image.")


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """What of an image's config matters here.

    Args:
        platform: What the config says it runs on.
        diff_ids: Digests of the decompressed layers, in order.
    """

    platform: Platform
    diff_ids: tuple[Digest, ...]

    @classmethod
    def parse(cls, raw: bytes, digest: Digest) -> ImageConfig:
        """Read an image config (OCI image-spec, config.md).

        Args:
            raw: The config's bytes, already compared with their digest.
            digest: That digest, for messages.

        Raises:
            RegistryProtocolError: Bytes that are no image config.
        """
        where = f"config {digest}"
        fields = _json_object(raw, where)
        system, architecture, variant = (fields.get(key) or "" for key in ("os", "architecture", "variant"))
        if not (isinstance(system, str) and isinstance(architecture, str) and isinstance(variant, str)):
            raise RegistryProtocolError(f"The {where} has an os, architecture or variant that is not text.")
        rootfs = fields.get("rootfs") or {}
        diff_ids = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
        if diff_ids is not None and not (isinstance(diff_ids, list) and all(isinstance(d, str) for d in diff_ids)):
            raise RegistryProtocolError(f"The {where} has diff_ids that are not a list of digests.")
        try:
            parsed = tuple(Digest.parse(text) for text in diff_ids or ())
        except InvalidReference as error:
            raise RegistryProtocolError(f"The {where} has a diff_id that is no digest: {error.message}") from error
        return cls(Platform(system or "linux", architecture, variant), parsed)


def _json_object(raw: bytes, where: str) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        start = raw[:60].decode("utf-8", "replace")
        raise RegistryProtocolError(f"The {where} is not JSON ({error}); it begins with {start!r}.") from error
    if not isinstance(fields, dict):
        raise RegistryProtocolError(f"The {where} is JSON but not an object.")
    return fields


def _list(fields: dict[str, Any], key: str, where: str, most: int) -> list[Any]:
    value = fields.get(key)
    if not isinstance(value, list):
        raise RegistryProtocolError(f"The {where} has no list of {key}.")
    if len(value) > most:
        raise RegistryProtocolError(f"The {where} names {len(value)} {key}; at most {most} are accepted.")
    return value


def _descriptor(value: object, where: str) -> Descriptor:
    if not isinstance(value, dict):
        raise RegistryProtocolError(f"The {where} is not a descriptor.")
    media_type, digest, size = value.get("mediaType"), value.get("digest"), value.get("size")
    if not (isinstance(media_type, str) and isinstance(digest, str)):
        raise RegistryProtocolError(f"The {where} has no media type or no digest.")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= limits.MAX_BLOB_BYTES:
        raise RegistryProtocolError(f"The {where} has the size {str(size)[:40]}, which is out of range.")
    try:
        parsed = Digest.parse(digest)
    except InvalidReference as error:
        raise RegistryProtocolError(f"The {where} has a bad digest: {error.message}") from error
    urls = value.get("urls") or []
    if not (isinstance(urls, list) and all(isinstance(url, str) for url in urls)):
        raise RegistryProtocolError(f"The {where} has urls that are not a list of text.")
    annotations = value.get("annotations") or {}
    is_attestation = isinstance(annotations, dict) and (
        annotations.get("vnd.docker.reference.type") == "attestation-manifest"
    )
    return Descriptor(media_type, parsed, size, _platform(value.get("platform"), where), tuple(urls), is_attestation)


def _platform(value: object, where: str) -> Platform | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise RegistryProtocolError(f"The {where} has a platform that is not an object.")
    parts = [value.get(key) or "" for key in ("os", "architecture", "variant")]
    if not all(isinstance(part, str) for part in parts):
        raise RegistryProtocolError(f"The {where} has a platform whose fields are not text.")
    return Platform(*parts)
