"""Images out of a bundle: built from verified documents, and compared with what bundle.json says of them.

The two descriptions are both signed; where they contradict each other nothing is delivered, since one could not say
which of them the signer meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from transload.manifests.bundle_manifest import FILE_NAME, ImageEntry
from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import ArchiveInconsistent, InvalidReference, MalformedBundle, RegistryError
from transload.shared.image import INDEX_TYPES, Descriptor, Image, ManifestDocument
from transload.shared.image_graph import build_image
from transload.shared.references import Reference

ReadBlob = Callable[[Descriptor, int], bytes]
"""Gives a verified blob of at most so many bytes."""


class SharedDocuments:
    """The documents of all images of a bundle: each is held once, however many images share it, and all are bounded.

    Args:
        read_blob: Where verified blobs come from.
    """

    def __init__(self, read_blob: ReadBlob) -> None:
        self._read_blob = read_blob
        self._held: dict[Digest, bytes] = {}
        self._used_bytes = 0

    def read(self, descriptor: Descriptor) -> bytes:
        """A document's bytes.

        Raises:
            MalformedBundle: It is too large, or all together are.
            BlockDamaged, BlobDamaged, BundleFileWrongSize, ReadFailed: It cannot be had intact.
        """
        raw = self._held.get(descriptor.digest)
        if raw is None:
            raw = self._read_blob(descriptor, limits.MAX_MANIFEST_BYTES)
        self._used_bytes += len(raw)
        if self._used_bytes > limits.MAX_DOCUMENTS_BYTES:
            raise MalformedBundle(
                f"The manifests and indexes of the bundle's images have more than {limits.MAX_DOCUMENTS_BYTES:,} bytes "
                "together; no real ones do.",
                hint="Have it exported again in several bundles.",
            )
        return self._held.setdefault(descriptor.digest, raw)


def image_of_entry(
    entry: ImageEntry, sizes: Mapping[str, int], documents: SharedDocuments, read_blob: ReadBlob
) -> Image:
    """Build an image and compare it with its entry.

    Args:
        entry: Its entry in bundle.json.
        sizes: Size in bytes of every blob of the bundle, by digest.
        documents: Where manifests and indexes come from.
        read_blob: Where configs come from.

    Raises:
        MalformedBundle: A reference or document that cannot be understood.
        ArchiveInconsistent: Documents and entry contradict each other.
        BlockDamaged, BlobDamaged, BundleFileWrongSize, ReadFailed: A document cannot be had intact.
    """
    where = f"image {entry.reference}"
    root = Digest.parse(entry.digest)
    try:
        image = build_image(
            _reference(entry.reference),
            _reference(entry.name),
            Digest.parse(entry.source_digest),
            _document(Descriptor(entry.media_type, root, _size(entry.digest, sizes, where)), sizes, documents, where),
            lambda descriptor: _document(descriptor, sizes, documents, where),
            lambda descriptor: read_blob(_known(descriptor, sizes, where), limits.MAX_CONFIG_BYTES),
        )
    except RegistryError as error:  # the words of the reader of registries; here it is the bundle that is wrong
        raise MalformedBundle(
            f"The documents of {where} cannot be understood: {error.message}", hint=error.hint, image=entry.reference
        ) from error
    _compare(image, entry, sizes, where)
    return image


def _reference(text: str) -> Reference:
    try:
        parsed = Reference.parse(text)
    except InvalidReference as error:
        raise MalformedBundle(f"{FILE_NAME}: {error.message}") from error
    if str(parsed) != text:
        raise MalformedBundle(f"{FILE_NAME}: the reference {text!r} is not in its normal form, {str(parsed)!r}.")
    return parsed


def _document(
    descriptor: Descriptor, sizes: Mapping[str, int], documents: SharedDocuments, where: str
) -> ManifestDocument:
    raw = documents.read(_known(descriptor, sizes, where))
    return ManifestDocument(raw, descriptor.media_type, descriptor.digest)


def _known(descriptor: Descriptor, sizes: Mapping[str, int], where: str) -> Descriptor:
    size = _size(str(descriptor.digest), sizes, where)
    if size != descriptor.size_bytes:
        raise _inconsistent(
            f"{where} gives blob {descriptor.digest} {descriptor.size_bytes:,} bytes, {FILE_NAME} {size:,}"
        )
    return descriptor


def _size(digest: str, sizes: Mapping[str, int], where: str) -> int:
    size = sizes.get(digest)
    if size is None:
        raise _inconsistent(f"{where} needs blob {digest}, which {FILE_NAME} does not list")
    return size


def _compare(image: Image, entry: ImageEntry, sizes: Mapping[str, int], where: str) -> None:
    descriptors = list(image.descriptors())
    for descriptor in descriptors:
        _known(descriptor, sizes, where)
    if tuple(str(descriptor.digest) for descriptor in descriptors) != entry.blobs:
        raise _inconsistent(f"the blobs of {where} are not those that {FILE_NAME} lists for it, in that order")
    if (entry.platform is None) != (entry.media_type in INDEX_TYPES):
        raise _inconsistent(f"{where} is of type {entry.media_type}, but {FILE_NAME} says platform {entry.platform}")
    if image.reference.digest not in (None, image.source_digest):
        raise _inconsistent(f"{where} is said to come from {image.source_digest}, which it does not ask for")
    found = None if image.platform is None else str(image.platform)
    if found != entry.platform:
        raise _inconsistent(f"{where} is for platform {found}, but {FILE_NAME} says {entry.platform}")


def _inconsistent(what: str) -> ArchiveInconsistent:
    return ArchiveInconsistent(
        f"The bundle contradicts itself: {what}.",
        hint="It was wrong when it was made. Have it exported again, and tell the exporter.",
    )
