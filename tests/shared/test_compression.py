"""Layers decompressed: every kind, every kind of damage, bounded in size and memory."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import tarfile
import tracemalloc
import zlib
from collections.abc import Iterator

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from transload.shared import compression, limits
from transload.shared.digests import Digest
from transload.shared.errors import LayerContentDiffers

GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"
PLAIN = "application/vnd.oci.image.layer.v1.tar"
DOCKER_GZIP = "application/vnd.docker.image.rootfs.diff.tar.gzip"
LAYER = Digest.of(b"the layer")


def a_tar(size_bytes: int = 60_000) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("data")
        info.size = size_bytes
        archive.addfile(info, io.BytesIO(random.Random(1).randbytes(size_bytes // 2) + bytes(size_bytes)))
    return buffer.getvalue()


TAR = a_tar()
HALF = len(TAR) // 2
ZSTD_WITH_CHECKSUM = zstandard.ZstdCompressor(write_checksum=True)
SKIPPABLE = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"table"
KINDS = {
    "gzip": gzip.compress(TAR, 1),
    "two gzip members": gzip.compress(TAR[:HALF], 1) + gzip.compress(TAR[HALF:], 1),
    "gzip with an empty member": gzip.compress(TAR, 1) + gzip.compress(b""),
    "zero-padded gzip": gzip.compress(TAR, 1) + bytes(1000),
    "zstd": ZSTD_WITH_CHECKSUM.compress(TAR),
    "two zstd frames": ZSTD_WITH_CHECKSUM.compress(TAR[:HALF]) + ZSTD_WITH_CHECKSUM.compress(TAR[HALF:]),
    "zstd:chunked": ZSTD_WITH_CHECKSUM.compress(TAR) + SKIPPABLE,
    "zstd behind a skippable frame": SKIPPABLE + ZSTD_WITH_CHECKSUM.compress(TAR),
    "plain": TAR,
}


def pieces(content: bytes, size_bytes: int = 10_000) -> Iterator[memoryview]:
    for start in range(0, len(content), size_bytes):
        yield memoryview(content)[start : start + size_bytes]


def decompress(content: bytes, media_type: str = GZIP, size_bytes: int = 10_000) -> bytes:
    return b"".join(compression.decompressed(pieces(content, size_bytes), media_type, layer=LAYER))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size_bytes", [1, 7, 4096, 10_000_000])
def test_every_kind_in_pieces_of_any_size(kind: str, size_bytes: int) -> None:
    assert decompress(KINDS[kind], size_bytes=size_bytes) == TAR


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("media_type", [GZIP, ZSTD, PLAIN, DOCKER_GZIP])
def test_the_first_bytes_decide_whatever_the_media_type(kind: str, media_type: str) -> None:
    assert decompress(KINDS[kind], media_type) == TAR


@pytest.mark.parametrize("kind", KINDS)
def test_diff_id_is_that_of_the_tar(kind: str) -> None:
    expected = Digest("sha256", hashlib.sha256(TAR).hexdigest()), len(TAR)
    assert compression.diff_id(pieces(KINDS[kind]), GZIP) == expected


def test_diff_id_of_another_algorithm() -> None:
    found, _ = compression.diff_id(pieces(KINDS["zstd"]), ZSTD, algorithm="sha512")
    assert found == Digest("sha512", hashlib.sha512(TAR).hexdigest())


@pytest.mark.parametrize("kind", ["gzip", "two gzip members", "zstd", "two zstd frames"])
@pytest.mark.parametrize("missing", [1, 4, 1000])
def test_a_truncated_layer_is_refused(kind: str, missing: int) -> None:
    with pytest.raises(LayerContentDiffers, match="ends in the middle") as caught:
        decompress(KINDS[kind][:-missing])
    assert caught.value.facts["layer"] == str(LAYER)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_layer_cut_inside_its_first_bytes_is_refused(kind: str) -> None:
    with pytest.raises(LayerContentDiffers):
        decompress(KINDS[kind][:5])


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
@pytest.mark.parametrize("garbage", [b"x", bytes(700) + b"x", b"\x1f", b"\x28\xb5"])
def test_other_data_behind_the_layer_is_refused(kind: str, garbage: bytes) -> None:
    with pytest.raises(LayerContentDiffers):
        decompress(KINDS[kind] + garbage)


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_flipped_bit_is_refused(kind: str) -> None:
    content = bytearray(KINDS[kind])
    content[len(content) // 2] ^= 1
    with pytest.raises(LayerContentDiffers):
        decompress(bytes(content))


@pytest.mark.parametrize("content", [b"", b"\x1f", b"<html>not found</html>", b"x" * 2000])
@pytest.mark.parametrize("media_type", [GZIP, ZSTD, DOCKER_GZIP])
def test_what_is_called_compressed_and_is_neither_that_nor_a_tar_is_refused(content: bytes, media_type: str) -> None:
    with pytest.raises(LayerContentDiffers, match="neither gzip, zstd nor tar"):
        decompress(content, media_type)


def test_what_is_called_plain_is_not_judged() -> None:
    assert decompress(b"v7 tar or anything else", PLAIN) == b"v7 tar or anything else"


def test_an_error_of_the_source_passes_unchanged() -> None:
    def broken() -> Iterator[bytes]:
        yield KINDS["gzip"][:5000]
        raise OSError("unplugged")

    with pytest.raises(OSError, match="unplugged"):
        list(compression.decompressed(broken(), GZIP))


def a_gzip_bomb(size_bytes: int) -> Iterator[bytes]:
    compressor = zlib.compressobj(9, wbits=31)
    for _ in range(size_bytes // limits.MIB):
        yield compressor.compress(bytes(limits.MIB))
    yield compressor.flush()


def test_a_gzip_bomb_never_sits_in_memory() -> None:
    bomb = b"".join(a_gzip_bomb(64 * limits.MIB))
    tracemalloc.start()
    try:
        total = sum(len(piece) for piece in compression.decompressed(iter([bomb]), GZIP))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == 64 * limits.MIB
    assert peak_bytes < 8 * limits.MIB


def test_a_zstd_bomb_is_refused_and_never_sits_in_memory() -> None:
    bomb = zstandard.ZstdCompressor(level=1).compress(bytes(512 * limits.MIB))
    tracemalloc.start()
    try:
        with pytest.raises(LayerContentDiffers, match="1,200 times"):
            for _ in compression.decompressed(iter([bomb]), ZSTD):
                pass
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 80 * limits.MIB


def test_a_small_layer_may_hold_one_sparse_file() -> None:
    content = zstandard.ZstdCompressor(level=1).compress(bytes(60 * limits.MIB))
    assert sum(map(len, compression.decompressed(iter([content]), ZSTD))) == 60 * limits.MIB


def test_a_zstd_window_beyond_the_limit_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=28)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    content = compressor.compress(TAR) + compressor.flush()
    with pytest.raises(LayerContentDiffers, match="memory"):
        decompress(content)


@pytest.mark.parametrize("kind", ["gzip", "zstd", "plain"])
def test_more_than_expected_is_refused(kind: str) -> None:
    assert list(compression.decompressed(pieces(KINDS[kind]), GZIP, most_bytes=len(TAR)))
    with pytest.raises(LayerContentDiffers, match="more than the"):
        list(compression.decompressed(pieces(KINDS[kind]), GZIP, most_bytes=len(TAR) - 1))


@given(parts=st.lists(st.binary(max_size=3000), min_size=1, max_size=5), size_bytes=st.integers(1, 4000))
def test_any_members_and_frames_in_any_pieces(parts: list[bytes], size_bytes: int) -> None:
    whole = b"".join(parts)
    members = b"".join(gzip.compress(part) for part in parts)
    frames = b"".join(zstandard.ZstdCompressor().compress(part) for part in parts)
    assert decompress(members, size_bytes=size_bytes) == whole
    assert decompress(frames, size_bytes=size_bytes) == whole
