"""Where the blobs of a push come from: the docker-save file that was just written, else the source registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from transload.export_side.replicator.tar_file import file_pieces
from transload.export_side.resolve import SourceRegistries
from transload.manifests.archive_layout import BlobPlace, hybrid_archive
from transload.shared.digests import Digest
from transload.shared.errors import BlobDamaged, ContentMismatch, MalformedBundle, TransloadError
from transload.shared.image import Descriptor, Image
from transload.shared.references import Reference


@dataclass(slots=True)
class ReplicaBlobs:
    """A `BlobSource`. A blob's digest is compared while it is read; a stream of other bytes raises before its end.

    Args:
        sources: The registries that images are read from.
    """

    sources: SourceRegistries
    _places: dict[Digest, tuple[Path, BlobPlace]] = field(default_factory=dict)
    _origins: dict[Digest, Reference] = field(default_factory=dict)

    def add(self, image: Image, tar: Path | None) -> None:
        """Make an image's blobs known.

        Args:
            image: The image.
            tar: Its docker-save file; one that is not there, or of another size, is not used.
        """
        for descriptor in image.descriptors():
            self._origins.setdefault(descriptor.digest, image.reference)
        layout = hybrid_archive([image])
        if tar is not None and tar.is_file() and tar.stat().st_size == layout.size_bytes:
            for place in layout.blobs:
                self._places.setdefault(place.digest, (tar, place))

    def open_blob(self, descriptor: Descriptor) -> Iterator[memoryview]:
        """A blob's bytes.

        Raises:
            BlobDamaged, ReadFailed: The file does not have it intact.
            RegistryError: The source does not have it, or not intact.
        """
        hasher, position = descriptor.digest.hasher(), 0
        for piece in self._pieces(descriptor):
            hasher.update(piece)
            position += len(piece)
            if position > descriptor.size_bytes:
                break
            yield memoryview(piece)
        if position != descriptor.size_bytes or hasher.hexdigest() != descriptor.digest.hex:
            raise self._wrong(descriptor)

    def read_blob(self, descriptor: Descriptor, most_bytes: int) -> bytes:
        """A small blob as a whole.

        Raises:
            MalformedBundle: It is larger.
            TransloadError: As `open_blob`.
        """
        if descriptor.size_bytes > most_bytes:
            raise MalformedBundle(f"Blob {descriptor.digest} has more than {most_bytes:,} bytes.")
        return b"".join(self.open_blob(descriptor))

    def _pieces(self, descriptor: Descriptor) -> Iterator[bytes]:
        found = self._places.get(descriptor.digest)
        if found is not None:
            tar, place = found
            return file_pieces(tar, place.offset, place.size_bytes)
        return self.sources.pieces(self._origins[descriptor.digest], descriptor, 0)

    def _wrong(self, descriptor: Descriptor) -> TransloadError:
        found = self._places.get(descriptor.digest)
        if found is not None:
            return BlobDamaged(
                f"Blob {descriptor.digest} in {found[0]} has other bytes than were written.",
                hint="Remove the file and its entry in state.yml; the next run fetches the image again.",
                path=str(found[0]),
                blob=str(descriptor.digest),
            )
        return ContentMismatch(
            f"Blob {descriptor.digest} of {self._origins[descriptor.digest].repository} came with other bytes than its "
            "digest promises.",
            hint="The registry, or a proxy before it, gives wrong bytes; tell its operator.",
            blob=str(descriptor.digest),
        )
