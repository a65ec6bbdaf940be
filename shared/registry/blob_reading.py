"""Reading one blob to its end, over as many connections as it takes (RFC 9110, 14: range requests)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping

from transload.shared import limits
from transload.shared.errors import ContentMismatch, RegistryProtocolError, RegistryUnreachable
from transload.shared.image import Descriptor
from transload.shared.registry.answer import Answer, BrokenOff
from transload.shared.registry.transport import Transport
from transload.shared.registry.urls import shown

_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)", re.ASCII)

_SIZE_ALONE = re.compile(r"bytes \*/([0-9]{1,19})", re.ASCII)


class BlobReading:
    """The state of reading one blob.

    Args:
        transport: For waits and stops.
        begin: Asks for the blob with these further headers; answers are 200, 206 or 416.
        repository: For messages.
        descriptor: The blob.
        start: Where to begin.
    """

    def __init__(
        self,
        transport: Transport,
        begin: Callable[[Mapping[str, str]], Answer],
        repository: str,
        descriptor: Descriptor,
        start: int,
    ) -> None:
        self._transport, self._begin = transport, begin
        self._descriptor, self._position = descriptor, start
        self._ranges_work = True
        self._host = transport.settings.host
        self._where = f"Blob {descriptor.digest} of {repository}"

    def pieces(self) -> Iterator[bytes]:
        """The blob's bytes from the start to exactly its size.

        Raises:
            ContentMismatch: The registry's blob has another size.
            RegistryUnreachable: Connections break again and again without progress.
            RegistryProtocolError: Ranges other than those asked for, again and again.
            TransloadError: As `RegistryClient.get_manifest`.
        """
        futile = 0
        while self._position < self._descriptor.size_bytes:
            begun_at = self._position
            with contextlib.suppress(BrokenOff):
                yield from self._over_one_connection()
            if self._position == self._descriptor.size_bytes:
                return
            has_progress = self._position - begun_at >= limits.MIN_PROGRESS_BYTES
            futile = 0 if has_progress else futile + 1
            if futile > limits.MAX_RESUMES_WITHOUT_PROGRESS:
                raise RegistryUnreachable(
                    f"{self._where}: the connection broke at byte {self._position:,} of "
                    f"{self._descriptor.size_bytes:,}, {futile} times in a row.",
                    hint="Run the same command again; it goes on at this byte.",
                    digest=str(self._descriptor.digest), position=self._position, host=self._host,
                )  # fmt: skip
            if futile:
                self._transport.wait_before_retry(futile)

    def _over_one_connection(self) -> Iterator[bytes]:
        asks_range = self._position > 0 and self._ranges_work
        headers = {"Range": f"bytes={self._position}-"} if asks_range else {}
        answer = self._begin(headers)
        try:
            skipped, rest = self._check_head(answer, asks_range=asks_range)
            self._skip(answer, skipped)
            while rest:
                piece = answer.read(min(limits.COPY_BUFFER_BYTES, rest))
                if not piece:
                    raise BrokenOff
                self._transport.stop.check()
                rest -= len(piece)
                self._position += len(piece)
                yield piece
            if self._position == self._descriptor.size_bytes and answer.read(1):
                raise self._mismatch("longer")
        finally:
            answer.close()

    def _check_head(self, answer: Answer, *, asks_range: bool) -> tuple[int, int]:
        """How many bytes of the body to skip, and how many to read after that."""
        size, position = self._descriptor.size_bytes, self._position
        if answer.status == 200:
            if answer.content_length not in (None, size):
                raise self._mismatch(f"{answer.content_length:,} bytes")
            return position, size - position
        if asks_range and answer.status == 206:
            found = _CONTENT_RANGE.fullmatch(answer.header("Content-Range"))
            if found and found[3] not in ("*", str(size)):
                raise self._mismatch(f"{int(found[3]):,} bytes")
            first, last = (int(found[1]), int(found[2])) if found else (-1, -1)
            if 0 <= first <= position <= last < size:
                return position - first, last + 1 - position
        unsatisfied = _SIZE_ALONE.fullmatch(answer.header("Content-Range"))
        if answer.status == 416 and unsatisfied and int(unsatisfied[1]) != size:
            raise self._mismatch(f"{int(unsatisfied[1]):,} bytes")
        if asks_range and answer.status in (206, 416):
            self._ranges_work = False  # from the beginning then, skipping what is known
            raise BrokenOff
        raise RegistryProtocolError(
            f"{self._where}: {shown(answer.url)} answers {answer.status} with the range "
            f"{answer.header('Content-Range')[:60]!r}, which was not asked for.",
            url=shown(answer.url), status=answer.status,
        )  # fmt: skip

    def _skip(self, answer: Answer, count: int) -> None:
        while count:
            piece = answer.read(min(limits.COPY_BUFFER_BYTES, count))
            if not piece:
                raise BrokenOff
            self._transport.stop.check()
            count -= len(piece)

    def _mismatch(self, found: str) -> ContentMismatch:
        return ContentMismatch(
            f"{self._where} should have {self._descriptor.size_bytes:,} bytes, but the registry's has {found}.",
            hint="The registry or a proxy before it serves damaged content.",
            digest=str(self._descriptor.digest), host=self._host,
        )  # fmt: skip
