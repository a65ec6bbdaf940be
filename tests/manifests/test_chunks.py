"""Cutting artifacts into chunk files: the sizes that go wrong are those at the limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.manifests.bundle_manifest import ArtifactEntry
from transload.manifests.chunks import ChunkPlan, whole_blocks
from transload.shared import limits
from transload.shared.errors import InvalidConfiguration
from transload.shared.sizes import parse_size

BLOCK = limits.BLOCK_SIZE_BYTES
LIMIT = 2 * BLOCK


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, [1]),
        (LIMIT - 1, [LIMIT - 1]),
        (LIMIT, [LIMIT]),
        (LIMIT + 1, [LIMIT, 1]),
        (3 * LIMIT, [LIMIT, LIMIT, LIMIT]),
        (3 * LIMIT + 7, [LIMIT, LIMIT, LIMIT, 7]),
    ],
)
def test_all_chunks_but_the_last_are_full_and_none_is_empty(size: int, expected: list[int]) -> None:
    plan = ChunkPlan("images.tar", size, LIMIT)
    assert [chunk.size for chunk in plan.chunks] == expected
    assert plan.chunk_count == len(expected)


def test_more_than_a_thousand_chunks_join_in_text_order() -> None:
    plan = ChunkPlan("images.tar", 1234 * BLOCK + 1, BLOCK)
    names = [chunk.name for chunk in plan.chunks]
    assert len(names) == 1235
    assert names == sorted(names)
    assert (names[0], names[-1]) == ("images.tar.0001", "images.tar.1235")


def test_chunks_that_four_digits_cannot_number_are_refused() -> None:
    assert ChunkPlan("images.tar", 9999 * BLOCK, BLOCK).chunk_count == 9999
    with pytest.raises(InvalidConfiguration, match="10,000 files"):
        ChunkPlan("images.tar", 9999 * BLOCK + 1, BLOCK)


@given(
    size=st.integers(1, 100 * BLOCK),
    chunk_blocks=st.integers(1, 7),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_spans_cover_exactly_the_range(size: int, chunk_blocks: int, ends: tuple[float, float]) -> None:
    plan = ChunkPlan("images.tar", size, chunk_blocks * BLOCK)
    start, end = sorted(int(end * size) for end in ends)
    position = start
    for index, inside, length in plan.spans(start, end - start):
        assert index * plan.chunk_size_bytes + inside == position
        assert 0 < length <= plan.chunks[index].size - inside
        position += length
    assert position == end


def test_ranges_outside_the_artifact_are_refused() -> None:
    plan = ChunkPlan("images.tar", 10, BLOCK)
    assert list(plan.spans(10, 0)) == []
    for offset, size in ((0, 11), (-1, 1), (11, 0), (5, -1)):
        with pytest.raises(ValueError, match="no range"):
            list(plan.spans(offset, size))


def test_a_byte_is_located_at_both_sides_of_a_border() -> None:
    plan = ChunkPlan("images.tar", 3 * BLOCK, BLOCK)
    assert [plan.locate(offset) for offset in (0, BLOCK - 1, BLOCK, 3 * BLOCK - 1)] == [
        (0, 0), (0, BLOCK - 1), (1, 0), (2, BLOCK - 1),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="none at"):
        plan.locate(3 * BLOCK)


@pytest.mark.parametrize(("size", "blocks"), [(1, 1), (BLOCK, 1), (BLOCK + 1, 2), (5 * BLOCK, 5)])
def test_every_begun_block_has_a_digest(size: int, blocks: int) -> None:
    plan = ChunkPlan("images.tar", size, LIMIT)
    assert plan.block_count == blocks
    assert (plan.blocks_file_name, plan.blocks_file_size_bytes) == ("images.blocks", 32 * blocks)


def test_the_plan_of_a_listed_artifact_is_the_same() -> None:
    plan = ChunkPlan("images.tar", 5 * BLOCK + 3, LIMIT)
    entry = ArtifactEntry(name="images.tar", kind="docker-archive", size=plan.size_bytes, block_size=4194304,
                          blocks="images.blocks", chunks=plan.chunks)  # fmt: skip
    assert ChunkPlan.of_artifact(entry) == plan


def test_the_default_is_below_what_fat32_and_a_dvd_hold() -> None:
    assert whole_blocks(parse_size("4GB")) == 3_997_171_712 == whole_blocks(limits.DEFAULT_CHUNK_SIZE_BYTES)


def test_the_largest_chunk_size_is_below_the_limit_of_fat32() -> None:
    assert whole_blocks(limits.MAX_CHUNK_SIZE_BYTES + BLOCK - 1) == limits.MAX_CHUNK_SIZE_BYTES <= 0xFFFFFFFF
    with pytest.raises(InvalidConfiguration, match="4,294,967,296") as raised:
        whole_blocks(parse_size("4GiB"))
    assert "--allow-large-files" in raised.value.hint
    assert whole_blocks(parse_size("4GiB"), allow_large_files=True) == parse_size("4GiB")


def test_less_than_a_block_is_refused() -> None:
    assert whole_blocks(BLOCK) == BLOCK
    with pytest.raises(InvalidConfiguration, match="less than one block"):
        whole_blocks(BLOCK - 1)


def test_even_large_files_have_a_limit() -> None:
    with pytest.raises(InvalidConfiguration, match="allowed"):
        whole_blocks(limits.MAX_CHUNK_SIZE_LARGE_FILES_BYTES + BLOCK, allow_large_files=True)
