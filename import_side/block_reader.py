"""Verified blocks: read a whole block into memory, hash it, compare, and only then hand on those very bytes.

What was verified is what is used: nothing is read a second time, so a medium that answers differently the next time
cannot slip a byte past the check.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from transload.import_side.bundle_directory import BundleDirectory
from transload.manifests.block_digests import BlockDigests
from transload.manifests.bundle_manifest import ArtifactEntry
from transload.manifests.chunks import ChunkPlan
from transload.shared.errors import BlockDamaged, BundleFileWrongSize

_KEPT_BLOCKS = 4
"""Verified blocks kept for small reads: documents and configs of many images lie side by side in few blocks."""


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """Where a block lies.

    Args:
        number: Counted over the artifact, from 0.
        file: The chunk file.
        offset: Of its first byte, in that file.
        size_bytes: Its length.
    """

    number: int
    file: str
    offset: int
    size_bytes: int


class BlockReader:
    """Reads one artifact, block by verified block. Safe to use from several threads.

    Args:
        directory: The bundle's folder.
        digests: The SHA-256 of every block, from the verified blocks file.
    """

    def __init__(self, directory: BundleDirectory, digests: BlockDigests) -> None:
        self.artifact: ArtifactEntry = digests.artifact
        self._directory = directory
        self._digests = digests
        self._plan = ChunkPlan.of_artifact(digests.artifact)
        self._lock = threading.Lock()
        self._spare_buffers: list[bytearray] = []
        self._recent: OrderedDict[int, bytes] = OrderedDict()
        self._verified = bytearray(len(digests))

    @property
    def block_count(self) -> int:
        """How many blocks the artifact has."""
        return len(self._digests)

    @property
    def verified_count(self) -> int:
        """How many different blocks have been found intact so far."""
        return self._verified.count(1)

    def place(self, number: int) -> BlockPlace:
        """Where a block lies."""
        start = number * self.artifact.block_size
        chunk, offset = self._plan.locate(start)
        size = min(self.artifact.block_size, self.artifact.size - start)
        return BlockPlace(number, self.artifact.chunks[chunk].name, offset, size)

    def check(self, number: int) -> int:
        """Read a block and compare its digest.

        Returns:
            Its size in bytes.

        Raises:
            BlockDamaged, BundleFileWrongSize, BundleFileMissing, MalformedBundle, ReadFailed: It cannot be had intact.
        """
        buffer = self._take_buffer()
        try:
            return len(self._fill(number, buffer))
        finally:
            self._give_back(buffer)

    def stream(self, offset: int, size_bytes: int) -> Iterator[memoryview]:
        """The bytes of a range, from verified blocks.

        Args:
            offset: Where in the artifact the range begins.
            size_bytes: Its length.

        Yields:
            Slices that are valid until the next one is asked for.

        Raises:
            BlockDamaged, BundleFileWrongSize, BundleFileMissing, MalformedBundle, ReadFailed: As `check`, before any
                byte of that block was handed on.
        """
        block_size, end = self.artifact.block_size, offset + size_bytes
        buffer = self._take_buffer()
        try:
            while offset < end:
                number, inside = divmod(offset, block_size)
                block = self._fill(number, buffer)
                with block[inside : inside + end - offset] as piece:
                    offset += len(piece)
                    yield piece
        finally:
            self._give_back(buffer)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """A small range as a whole, as `stream`."""
        block_size, end = self.artifact.block_size, offset + size_bytes
        parts = []
        while offset < end:
            number, inside = divmod(offset, block_size)
            part = self._recent_block(number)[inside : inside + end - offset]
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def _recent_block(self, number: int) -> bytes:
        with self._lock:
            if number in self._recent:
                self._recent.move_to_end(number)
                return self._recent[number]
        buffer = self._take_buffer()
        try:
            block = bytes(self._fill(number, buffer))
        finally:
            self._give_back(buffer)
        with self._lock:
            self._recent[number] = block
            while len(self._recent) > _KEPT_BLOCKS:
                self._recent.popitem(last=False)
        return block

    def _fill(self, number: int, buffer: bytearray) -> memoryview:
        """Read a block into the buffer and verify it there."""
        place = self.place(number)
        block = memoryview(buffer)[: place.size_bytes]
        count = self._directory.read_into(place.file, place.offset, block)
        if count < place.size_bytes:
            raise BundleFileWrongSize(
                f"{place.file} ends at byte {place.offset + count:,}, inside block {number} of {self.artifact.name}, "
                f"which needs {place.size_bytes:,} bytes from byte {place.offset:,}.",
                hint=f"Copy {place.file} again from where the bundle was exported, or from another copy.",
                **_facts(self.artifact.name, place),
            )
        found = hashlib.sha256(block).digest()
        if found != self._digests[number]:
            raise BlockDamaged(
                f"Block {number} of {self.artifact.name} is damaged: bytes {place.offset:,} to "
                f"{place.offset + place.size_bytes - 1:,} of {place.file} do not have their SHA-256 "
                f"(expected {self._digests[number].hex()}, found {found.hex()}).",
                hint=f"Copy {place.file} again from where the bundle was exported, or from another copy.",
                **_facts(self.artifact.name, place),
            )
        self._verified[number] = 1
        return block

    def _take_buffer(self) -> bytearray:
        with self._lock:
            if self._spare_buffers:
                return self._spare_buffers.pop()
        return bytearray(self.artifact.block_size)

    def _give_back(self, buffer: bytearray) -> None:
        with self._lock:
            self._spare_buffers.append(buffer)


def _facts(artifact: str, place: BlockPlace) -> dict[str, object]:
    first, last = place.offset, place.offset + place.size_bytes - 1
    return {"artifact": artifact, "file": place.file, "block": place.number, "first_byte": first, "last_byte": last}
