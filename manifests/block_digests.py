"""A blocks file: the SHA-256 of every block of an artifact, 32 raw bytes each (FORMAT.md, "Chunks and blocks")."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import overload

from transload.manifests.bundle_manifest import ArtifactEntry
from transload.manifests.chunks import DIGEST_BYTES
from transload.shared.errors import BundleFileWrongSize


def blocks_file_size(artifact: ArtifactEntry) -> int:
    """The one length in bytes that an artifact's blocks file can have."""
    return -(-artifact.size // artifact.block_size) * DIGEST_BYTES


class BlockDigests(Sequence[bytes]):
    """The digests of an artifact's blocks, in order; kept as one piece of memory.

    Args:
        artifact: The entry in bundle.json.
        raw: The blocks file, whose digest has been compared with SHA256SUMS.

    Raises:
        BundleFileWrongSize: Not exactly one digest per block.
    """

    def __init__(self, artifact: ArtifactEntry, raw: bytes) -> None:
        expected = blocks_file_size(artifact)
        if len(raw) != expected:
            raise BundleFileWrongSize(
                f"{artifact.blocks} has {len(raw):,} bytes; {expected:,} were expected, 32 for each block of "
                f"{artifact.name}.",
                file=artifact.blocks, expected=expected, found=len(raw),
            )  # fmt: skip
        self.artifact = artifact
        self._raw = raw

    def __len__(self) -> int:
        return len(self._raw) // DIGEST_BYTES

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, index: int | slice) -> bytes | tuple[bytes, ...]:
        if isinstance(index, slice):
            return tuple(self[number] for number in range(*index.indices(len(self))))
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"{self.artifact.name} has {len(self)} blocks; there is none at {index}")
        return self._raw[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]

    def matches(self, number: int, block: bytes | memoryview) -> bool:
        """Whether a whole block is the one of this number, counted from 0."""
        return hashlib.sha256(block).digest() == self[number]
