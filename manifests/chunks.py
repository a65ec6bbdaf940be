"""How an artifact is cut into chunk files, and where each of its bytes then lies.

A chunk is a whole number of blocks, so no block straddles two chunks; only an artifact's last chunk may be shorter
(FORMAT.md, "Chunks and blocks").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from transload.manifests.bundle_manifest import ArtifactEntry, ChunkEntry, blocks_name, chunk_name
from transload.shared import limits
from transload.shared.errors import InvalidConfiguration
from transload.shared.sizes import format_size

DIGEST_BYTES = 32
"""Of a block, in the blocks file."""


@dataclass(frozen=True)
class ChunkPlan:
    """The chunk files of one artifact.

    Args:
        artifact_name: Such as `images.tar`.
        size_bytes: The artifact's size, at least 1.
        chunk_size_bytes: Size of every chunk but the last.

    Raises:
        InvalidConfiguration: More chunks than four digits can number.
    """

    artifact_name: str
    size_bytes: int
    chunk_size_bytes: int

    def __post_init__(self) -> None:
        if self.chunk_count > limits.MAX_CHUNKS:
            raise InvalidConfiguration(
                f"{format_size(self.size_bytes)} in chunks of {format_size(self.chunk_size_bytes)} would be "
                f"{self.chunk_count:,} files; at most {limits.MAX_CHUNKS:,} can be numbered.",
                hint="Choose a larger --chunk-size, or export fewer images at once.",
                chunks=self.chunk_count,
            )

    @classmethod
    def of_artifact(cls, artifact: ArtifactEntry) -> ChunkPlan:
        """The chunks of an artifact as bundle.json lists them, whose rules `bundle_manifest.decode` has checked."""
        return cls(artifact.name, artifact.size, artifact.chunks[0].size)

    @property
    def chunk_count(self) -> int:
        """How many chunk files there are; an exact multiple gives no empty one at the end."""
        return -(-self.size_bytes // self.chunk_size_bytes)

    @property
    def block_count(self) -> int:
        """How many blocks the artifact has, the last perhaps shorter."""
        return -(-self.size_bytes // limits.BLOCK_SIZE_BYTES)

    @property
    def blocks_file_name(self) -> str:
        """Name of the file with the digest of every block."""
        return blocks_name(self.artifact_name)

    @property
    def blocks_file_size_bytes(self) -> int:
        """Size of that file."""
        return self.block_count * DIGEST_BYTES

    @cached_property
    def chunks(self) -> tuple[ChunkEntry, ...]:
        """Every chunk's name and size, in order."""
        return tuple(
            ChunkEntry(name=chunk_name(self.artifact_name, number), size=self._chunk_size(number - 1))
            for number in range(1, self.chunk_count + 1)
        )

    def locate(self, offset: int) -> tuple[int, int]:
        """Where a byte of the artifact lies: the chunk's index, from 0, and the offset in that chunk.

        Raises:
            ValueError: The artifact has no such byte.
        """
        if not 0 <= offset < self.size_bytes:
            raise ValueError(f"{self.artifact_name} has {self.size_bytes} bytes; there is none at {offset}")
        return divmod(offset, self.chunk_size_bytes)

    def spans(self, offset: int, size_bytes: int) -> Iterator[tuple[int, int, int]]:
        """The parts of a range of the artifact, chunk by chunk.

        Args:
            offset: Where the range begins.
            size_bytes: Its length; 0 gives no parts.

        Yields:
            Chunk index from 0, offset in that chunk, length.

        Raises:
            ValueError: The range is not inside the artifact.
        """
        if offset < 0 or size_bytes < 0 or offset + size_bytes > self.size_bytes:
            raise ValueError(f"{self.artifact_name} has no range of {size_bytes} bytes at {offset}")
        end = offset + size_bytes
        while offset < end:
            index, inside = divmod(offset, self.chunk_size_bytes)
            length = min(self.chunk_size_bytes - inside, end - offset)
            yield index, inside, length
            offset += length

    def _chunk_size(self, index: int) -> int:
        return min(self.chunk_size_bytes, self.size_bytes - index * self.chunk_size_bytes)


def whole_blocks(chunk_size_bytes: int, *, allow_large_files: bool = False) -> int:
    """A chunk size as it is used: rounded down to whole blocks.

    Args:
        chunk_size_bytes: What was asked for.
        allow_large_files: Allow chunks that FAT32 cannot hold.

    Raises:
        InvalidConfiguration: Smaller than a block, or larger than allowed.
    """
    rounded = chunk_size_bytes // limits.BLOCK_SIZE_BYTES * limits.BLOCK_SIZE_BYTES
    if rounded == 0:
        raise InvalidConfiguration(
            f"A chunk size of {chunk_size_bytes:,} bytes is less than one block of {limits.BLOCK_SIZE_BYTES:,}.",
            hint="Choose 4MiB or more.",
        )
    most = limits.MAX_CHUNK_SIZE_LARGE_FILES_BYTES if allow_large_files else limits.MAX_CHUNK_SIZE_BYTES
    if rounded > most:
        hint = "" if allow_large_files else (
            "FAT32 holds no larger files. If no medium on the way is FAT32, add --allow-large-files."
        )  # fmt: skip
        raise InvalidConfiguration(
            f"A chunk size of {chunk_size_bytes:,} bytes is more than the {most:,} allowed.", hint=hint
        )
    return rounded
