"""Layers, decompressed: gzip with any number of members, zstd with any number of frames, plain tar.

The kind is decided by the first bytes, as Docker and containerd do it, since media types are often wrong about it.
A layer is decompressed in bounded memory and to a bounded size; it is complete or an error, and nothing may follow
it but the zero padding that GNU gzip tolerates too. The one proof of its content is its diff_id.

Formats: RFC 1952 (gzip), RFC 8878 (zstd).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import LayerContentDiffers

if TYPE_CHECKING:
    from zstandard import ZstdDecompressionObj

Buffer: TypeAlias = bytes | bytearray | memoryview

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE_MAGICS = tuple(bytes((low, 0x2A, 0x4D, 0x18)) for low in range(0x50, 0x60))
_TAR_MAGIC_OFFSET = 257
_HEAD_BYTES = 512
_GZIP_INPUT_BYTES = 64 * limits.KIB


def decompressed(
    pieces: Iterable[Buffer], media_type: str, *, layer: Digest | None = None, most_bytes: int | None = None
) -> Iterator[bytes]:
    """A layer's tar, whatever the layer's compression.

    Args:
        pieces: The layer's verified bytes, in order, in pieces of any size.
        media_type: What the manifest calls them. It may be wrong about the compression, but a layer that is called
            compressed and is neither compressed nor a tar is refused.
        layer: The layer's digest, for messages.
        most_bytes: The decompressed size that is expected at most; None for what the limits allow.

    Yields:
        The decompressed bytes in pieces of bounded size.

    Raises:
        LayerContentDiffers: A damaged, truncated or over-large stream, one with other data behind it, or no layer.
    """
    where = f"Layer {layer}" if layer else "A layer"
    counted = _Input(iter(pieces))
    head = counted.peek(_HEAD_BYTES)
    compression = compression_of(head)
    if compression is None and _is_called_compressed(media_type) and not _is_tar(head):
        raise _differs(where, layer, f"is called {media_type}, but is neither gzip, zstd nor tar (or empty)")
    produced = 0
    for piece in _decode(counted, compression, where, layer):
        produced += len(piece)
        allowed = counted.taken_bytes * limits.MAX_DECOMPRESSION_RATIO + limits.DECOMPRESSION_ALLOWANCE_BYTES
        if most_bytes is not None and produced > most_bytes:
            raise _differs(where, layer, f"decompresses to more than the {most_bytes:,} bytes expected")
        if compression is not None and produced > allowed:
            raise _differs(
                where, layer,
                f"decompresses to more than {limits.MAX_DECOMPRESSION_RATIO:,} times its size; no real layer does",
            )  # fmt: skip
        yield piece


def diff_id(
    pieces: Iterable[Buffer], media_type: str, *, layer: Digest | None = None, algorithm: str = "sha256"
) -> tuple[Digest, int]:
    """The digest that an image's config must name for a layer (OCI image-spec, config.md, "Layer DiffID").

    Args:
        pieces: The layer's verified bytes.
        media_type: What the manifest calls them.
        layer: The layer's digest, for messages.
        algorithm: That of the diff_id to compare with.

    Returns:
        The digest of the decompressed layer, and its size in bytes.

    Raises:
        LayerContentDiffers: As `decompressed`.
    """
    hasher, size_bytes = hashlib.new(algorithm), 0
    for piece in decompressed(pieces, media_type, layer=layer):
        hasher.update(piece)
        size_bytes += len(piece)
    return Digest(algorithm, hasher.hexdigest()), size_bytes


def compression_of(head: bytes) -> str | None:
    """`gzip`, `zstd` or None, by a layer's first bytes.

    Args:
        head: At least the first four bytes, if there are as many.
    """
    if head.startswith(_GZIP_MAGIC):
        return "gzip"
    return "zstd" if head.startswith((_ZSTD_MAGIC, *_ZSTD_SKIPPABLE_MAGICS)) else None


def _is_called_compressed(media_type: str) -> bool:
    return media_type.endswith(("gzip", "zstd"))


def _is_tar(head: bytes) -> bool:
    """Whether it is a tar header with a magic, or the end of an empty archive."""
    return len(head) == _HEAD_BYTES and (head[_TAR_MAGIC_OFFSET:].startswith(b"ustar") or not any(head))


@dataclass(slots=True)
class _Input:
    """Pieces of any size in, slices of a chosen size out."""

    pieces: Iterator[Buffer]
    taken_bytes: int = 0
    _held: memoryview = field(default_factory=lambda: memoryview(b""))

    def peek(self, size_bytes: int) -> bytes:
        """The first bytes, which stay there; fewer at the end of the stream."""
        collected = bytearray(self._held)
        while len(collected) < size_bytes:
            piece = next(self.pieces, None)
            if piece is None:
                break
            collected += piece
        self._held = memoryview(collected)
        return bytes(collected[:size_bytes])

    def take(self, most_bytes: int) -> memoryview:
        """The next bytes; empty at the end of the stream."""
        while not self._held:
            piece = next(self.pieces, None)
            if piece is None:
                break
            self._held = memoryview(piece)
        taken, self._held = self._held[:most_bytes], self._held[most_bytes:]
        self.taken_bytes += len(taken)
        return taken


class _DecodeFailed(Exception):
    """What zlib or zstandard says about damaged data."""


class _Decoder(Protocol):
    """One gzip member or zstd frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decode(self, piece: Buffer) -> Iterator[bytes]: ...


class _GzipMember:
    """`zlib`, asked for a bounded amount of output at a time."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decode(self, piece: Buffer) -> Iterator[bytes]:
        waiting: Buffer = piece
        while True:
            try:
                decoded = self._zlib.decompress(waiting, limits.COPY_BUFFER_BYTES)
            except zlib.error as error:
                raise _DecodeFailed(str(error)) from error
            waiting = self._zlib.unconsumed_tail
            if decoded:
                yield decoded
            if self._zlib.eof or (not waiting and len(decoded) < limits.COPY_BUFFER_BYTES):
                return


class _ZstdFrame:
    """zstandard's streaming decoder, whose output is bounded by giving it little input at a time."""

    def __init__(self) -> None:
        import zstandard  # noqa: PLC0415 - most layers are gzip, and --help needs neither

        self._failure = zstandard.ZstdError
        decompressor = zstandard.ZstdDecompressor(max_window_size=limits.MAX_ZSTD_WINDOW_BYTES)
        self._zstd: ZstdDecompressionObj = decompressor.decompressobj()

    @property
    def eof(self) -> bool:
        return self._zstd.eof

    @property
    def unused_data(self) -> bytes:
        return self._zstd.unused_data

    def decode(self, piece: Buffer) -> Iterator[bytes]:
        try:
            decoded = self._zstd.decompress(cast("bytes", piece))  # any buffer will do
        except self._failure as error:
            raise _DecodeFailed(str(error)) from error
        if decoded:
            yield decoded


def _decode(counted: _Input, compression: str | None, where: str, layer: Digest | None) -> Iterator[bytes]:
    if compression is None:
        while piece := counted.take(limits.COPY_BUFFER_BYTES):
            yield bytes(piece)
    elif compression == "gzip":
        yield from _members(counted, _GzipMember, _GZIP_INPUT_BYTES, where, layer)
    else:
        yield from _members(counted, _ZstdFrame, limits.ZSTD_INPUT_BYTES, where, layer)


def _members(
    counted: _Input, start: type[_GzipMember | _ZstdFrame], input_bytes: int, where: str, layer: Digest | None
) -> Iterator[bytes]:
    """The content of one member or frame after the other.

    Raises:
        LayerContentDiffers: What the decoder says, or the stream ends inside a member.
    """
    decoder: _Decoder = start()
    is_inside = True
    while piece := counted.take(input_bytes):
        waiting: Buffer = piece
        while waiting:
            if not is_inside:
                # RFC 1952 knows no padding, but tapes and some uploaders pad with zeros and readers skip them.
                if waiting[0] == 0:
                    _skip_zeros(waiting, counted, where, layer)
                    return
                decoder, is_inside = start(), True
            try:
                yield from decoder.decode(waiting)
            except _DecodeFailed as error:
                raise _differs(where, layer, f"cannot be decompressed ({error})") from error
            waiting = decoder.unused_data if decoder.eof else b""
            is_inside = not decoder.eof
    if is_inside:
        raise _differs(where, layer, f"ends in the middle of its compressed data, after {counted.taken_bytes:,} bytes")


def _skip_zeros(waiting: Buffer, counted: _Input, where: str, layer: Digest | None) -> None:
    while waiting:
        if any(waiting):
            raise _differs(where, layer, "has other data behind its compressed data")
        waiting = counted.take(limits.COPY_BUFFER_BYTES)


def _differs(where: str, layer: Digest | None, what: str) -> LayerContentDiffers:
    return LayerContentDiffers(
        f"{where} {what}.",
        hint="Its bytes are those that were exported, so the image is broken at its source: export another tag.",
        layer=str(layer) if layer else None,
    )
