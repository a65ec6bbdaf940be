"""A blocks file: exactly one digest per block, and a block is compared as a whole."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.manifests.block_digests import BlockDigests, blocks_file_size
from transload.manifests.bundle_manifest import ArtifactEntry, ChunkEntry
from transload.shared.errors import BundleFileWrongSize
from transload.shared.limits import BLOCK_SIZE_BYTES


def _artifact(size: int) -> ArtifactEntry:
    chunk = ChunkEntry(name="images.tar.0001", size=size)
    return ArtifactEntry(
        name="images.tar", kind="docker-archive", size=size, block_size=4194304, blocks="images.blocks", chunks=(chunk,)
    )


@pytest.mark.parametrize(
    ("size", "blocks"),
    [(1, 1), (BLOCK_SIZE_BYTES - 1, 1), (BLOCK_SIZE_BYTES, 1), (BLOCK_SIZE_BYTES + 1, 2), (10 * BLOCK_SIZE_BYTES, 10)],
)
def test_there_is_one_digest_per_block(size: int, blocks: int) -> None:
    assert blocks_file_size(_artifact(size)) == 32 * blocks
    assert len(BlockDigests(_artifact(size), bytes(32 * blocks))) == blocks
    for wrong in (32 * blocks - 1, 32 * blocks + 1, 32 * blocks - 32, 32 * blocks + 32, 0):
        with pytest.raises(BundleFileWrongSize, match=r"images\.blocks has"):
            BlockDigests(_artifact(size), bytes(wrong))


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=20))
def test_digests_come_out_as_they_went_in(digests: list[bytes]) -> None:
    read = BlockDigests(_artifact(len(digests) * BLOCK_SIZE_BYTES), b"".join(digests))
    assert list(read) == digests
    assert read[-1] == digests[-1]
    assert read[1:3] == tuple(digests[1:3])
    for outside in (len(digests), -len(digests) - 1):
        with pytest.raises(IndexError):
            read[outside]


def test_a_block_matches_its_own_digest_only() -> None:
    one, two = b"1" * 100, b"2" * 50
    raw = hashlib.sha256(one).digest() + hashlib.sha256(two).digest()
    digests = BlockDigests(_artifact(BLOCK_SIZE_BYTES + 50), raw)
    assert digests.matches(0, one)
    assert digests.matches(1, memoryview(two))
    assert not digests.matches(1, one)
    assert not digests.matches(0, one[:-1])
