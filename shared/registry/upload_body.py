"""The body of an upload: a stream of bytes that must have an exact length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from transload.shared.workers import Stop

Buffer: TypeAlias = "bytes | memoryview"


class StreamFailed(Exception):
    """The stream raised; which error it was is kept beside."""


class UploadBody:
    """Hands a stream's pieces to a connection as they are, without copying.

    Args:
        pieces: The stream.
        size_bytes: Its exact length.
        stop: Checked at every piece.

    Attributes:
        bytes_read: How many bytes went out so far.
    """

    def __init__(self, pieces: Iterator[Buffer], size_bytes: int, stop: Stop) -> None:
        self._pieces, self._size_bytes, self._stop = pieces, size_bytes, stop
        self._rest = memoryview(b"")
        self._failure: BaseException | None = None
        self.bytes_read = 0

    def read(self, size: int) -> bytes | memoryview:
        """At most `size` bytes; empty at the end.

        Raises:
            StreamFailed: The stream failed, or has another length; the connection is then thrown away.
        """
        try:
            self._stop.check()
            if not self._rest:
                self._rest = self._next_piece()
        except BaseException as error:
            # An OSError of a medium must not look like one of the connection.
            self._failure = error
            raise StreamFailed from error
        taken, self._rest = self._rest[:size], self._rest[size:]
        self.bytes_read += len(taken)
        return taken

    def take(self, size: int) -> bytes:
        """Exactly `size` bytes.

        Raises:
            BaseException: Whatever the stream raised.
        """
        taken = bytearray()
        try:
            while len(taken) < size:
                taken += self.read(size - len(taken))
        except StreamFailed:
            self.raise_failure()
        return bytes(taken)

    def raise_failure(self) -> None:
        """Raise what the stream raised, if it did."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Let the stream go."""
        self._rest = memoryview(b"")
        close = getattr(self._pieces, "close", None)
        if close:
            close()

    def _next_piece(self) -> memoryview:
        """The next piece; the last one only once the stream has ended.

        A verified stream says at its end whether it was whole, and by then its last byte must not be out.
        """
        piece = next((piece for piece in self._pieces if piece), None)
        missing = self._size_bytes - self.bytes_read - len(piece or b"")
        if piece is not None and missing == 0:
            piece = bytes(piece)  # a source may use its buffer again
            if next((more for more in self._pieces if more), None) is not None:
                missing = -1
        if missing < 0 or (piece is None and missing):
            raise RuntimeError(f"a stream of {self._size_bytes} bytes has another length")
        return memoryview(piece or b"")
