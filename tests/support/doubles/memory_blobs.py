"""A source of verified blobs in memory, which fails on request and counts what is asked of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from doubles.image_factory import ImageDouble
from transload.shared.digests import Digest
from transload.shared.errors import BlockDamaged
from transload.shared.image import Descriptor


@dataclass
class MemoryBlobs:
    """Blobs of any number of images.

    Attributes:
        blobs: Their bytes.
        bad_from: Where a blob's stream meets a damaged block, by digest.
        opened: How often each blob was opened.
        on_open: Called with the digest before a blob is opened, to change the world meanwhile.
    """

    blobs: Mapping[Digest, bytes]
    piece_bytes: int = 100_000
    bad_from: dict[Digest, int] = field(default_factory=dict)
    opened: Counter[Digest] = field(default_factory=Counter)
    on_open: Callable[[Digest], None] | None = None

    @classmethod
    def of(cls, *images: ImageDouble) -> MemoryBlobs:
        return cls({digest: raw for image in images for digest, raw in image.blobs.items()})

    def open_blob(self, descriptor: Descriptor) -> Iterator[memoryview]:
        self.opened[descriptor.digest] += 1
        if self.on_open is not None:
            self.on_open(descriptor.digest)
        raw = self.blobs[descriptor.digest]
        bad_from = self.bad_from.get(descriptor.digest)
        buffer = bytearray(self.piece_bytes)  # reused: who keeps a piece for later sees it change
        for start in range(0, len(raw), self.piece_bytes):
            piece = raw[start : start + self.piece_bytes]
            if bad_from is not None and start + len(piece) > bad_from:
                raise BlockDamaged(f"A block of {descriptor.digest} is damaged.", digest=str(descriptor.digest))
            buffer[: len(piece)] = piece
            yield memoryview(buffer)[: len(piece)].toreadonly()

    def read_blob(self, descriptor: Descriptor, most_bytes: int) -> bytes:
        raw = b"".join(bytes(piece) for piece in self.open_blob(descriptor))
        assert len(raw) <= most_bytes
        return raw
