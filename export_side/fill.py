"""Fetching every blob straight to its place in the chunk files, several at once, hashed as it comes.

What an earlier run has put in place is hashed from disk and kept if it is right. A blob that is permanently wrong
or gone is reported and does not stop the others; trouble that may pass (network, busy registry, full disk) stops
the run, and the next one goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transload.export_side.chunk_files import ChunkFiles
from transload.export_side.journal import Journal
from transload.export_side.plan import ExportPlan
from transload.manifests.archive_layout import BlobPlace, Literal, Piece
from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import (
    ContentMismatch,
    NotFoundInRegistry,
    RegistryProtocolError,
    TransloadError,
    UnsupportedImage,
)
from transload.shared.image import Descriptor
from transload.shared.progress import Progress, Stage
from transload.shared.references import Reference
from transload.shared.workers import Stop, run_parallel

if TYPE_CHECKING:
    from hashlib import _Hash

FetchPieces = Callable[[Reference, Descriptor, int], Iterator[bytes]]
"""A blob's bytes out of a reference's repository, from an offset to its end; not yet compared with its digest."""

CHECKPOINT_BYTES = 64 * limits.MIB
"""How much of one blob a killed run fetches again at most."""

PERMANENT_ERRORS = (ContentMismatch, NotFoundInRegistry, RegistryProtocolError, UnsupportedImage)
"""What will be the same tomorrow, so that the image fails and the others go on."""

_ATTEMPTS = 2
"""For a blob whose bytes are wrong: once more from its beginning, then it fails."""


@dataclass
class Filler:
    """Fills the chunk files of a plan.

    Args:
        plan: What goes where.
        files: The chunk files, allocated.
        journal: Says what is there already, and is told what comes.
        fetch: Gets a blob's bytes.
        known: Blobs whose bytes are at hand: documents and configs, already compared with their digests.
        jobs: How many blobs at once.
        stop: Ends the run.
        progress: Where the fetching is shown.
        finished: Told of every blob that is in place, on the calling thread.
    """

    plan: ExportPlan
    files: ChunkFiles
    journal: Journal
    fetch: FetchPieces
    known: Mapping[Digest, bytes]
    jobs: int
    stop: Stop
    progress: Progress
    finished: Callable[[Digest], None]
    _failures: dict[Digest, TransloadError] = field(default_factory=dict)
    _stage: Stage = field(init=False)

    def run(self) -> dict[Digest, TransloadError]:
        """Put every byte in place.

        Returns:
            The blobs that cannot be had, and why; blobs that only failed images need may be missing too.

        Raises:
            TransloadError: What may pass: the run ends and can be continued.
        """
        in_order = self.files.must_fill_in_order
        pieces = list(self.plan.layout.pieces) if in_order else sorted(self.plan.layout.pieces, key=_largest_first)
        placed = sum(self.journal.placed_bytes.get(digest, 0) for digest in self.plan.places)
        with self.progress.stage("Fetching", self.plan.blob_bytes, done_bytes=placed) as self._stage:
            jobs = 1 if in_order else self.jobs
            with contextlib.closing(run_parallel(pieces, self._place, jobs=jobs, stop=self.stop)) as outcomes:
                for outcome in outcomes:
                    if isinstance(outcome.item, Literal):
                        if outcome.error:
                            raise outcome.error
                    elif outcome.error is None:
                        if outcome.result:
                            self.finished(outcome.item.digest)
                    elif outcome.item.digest not in self._failures:
                        raise outcome.error
        return dict(self._failures)

    def _place(self, piece: Piece) -> bool:
        """Put one piece in place; False for a blob that no image needs any more."""
        self.stop.check()
        if isinstance(piece, Literal):
            self.files.write(piece.offset, piece.content)
            return True
        start, hasher = self._on_disk(piece)
        if start == piece.size_bytes and hasher.hexdigest() == piece.digest.hex:
            self.journal.record(piece.digest, piece.size_bytes)
            return True
        if start == piece.size_bytes:  # all there and wrong: begin again
            self._stage.advance(-start)
            start, hasher = 0, piece.digest.hasher()
        content = self.known.get(piece.digest)
        if content is not None:
            self.files.write(piece.offset, content)
            self._stage.advance(piece.size_bytes - start)
        elif self._is_wanted(piece.digest):
            try:
                self._fetch(piece, start, hasher)
            except PERMANENT_ERRORS as error:
                self._failures[piece.digest] = error  # noted here, so that this worker's next blob knows
                raise
        else:
            return False
        self.journal.record(piece.digest, piece.size_bytes)
        return True

    def _on_disk(self, place: BlobPlace) -> tuple[int, _Hash]:
        """How much of a blob is there, by the journal and the disk, and its hash so far."""
        hasher = place.digest.hasher()
        noted = self.journal.placed_bytes.get(place.digest, 0)
        start = 0
        for content in self.files.read(place.offset, min(noted, place.size_bytes)):
            self.stop.check()
            hasher.update(content)
            start += len(content)
        self._stage.advance(start - noted)
        return start, hasher

    def _is_wanted(self, digest: Digest) -> bool:
        if not self._failures:
            return True
        doomed = self.plan.images_using(self._failures.copy().keys())
        return any(image not in doomed for image in self.plan.images_using({digest}))

    def _fetch(self, place: BlobPlace, start: int, hasher: _Hash) -> None:
        """Fetch a blob from the first repository that has it right.

        Raises:
            ContentMismatch, NotFoundInRegistry, RegistryProtocolError: By all of them; the last one's error.
        """
        error: TransloadError | None = None
        for source in self.plan.sources[place.digest]:
            for _ in range(_ATTEMPTS):
                try:
                    self._stream(source, place, start, hasher)
                except ContentMismatch as mismatch:  # noqa: PERF203 - each attempt has its own end
                    error = mismatch
                    start, hasher = 0, place.digest.hasher()
                except PERMANENT_ERRORS as other:
                    error = other
                    break
                else:
                    return
        assert error is not None  # noqa: S101 - every blob has a source
        raise error

    def _stream(self, source: Reference, place: BlobPlace, start: int, hasher: _Hash) -> None:
        position = checkpoint = start
        for content in self.fetch(source, self.plan.descriptors[place.digest], start):
            self.stop.check()
            if position + len(content) > place.size_bytes:
                break
            self.files.write(place.offset + position, content)
            hasher.update(content)
            position += len(content)
            self._stage.advance(len(content))
            if position - checkpoint >= CHECKPOINT_BYTES:
                self.journal.record(place.digest, position)
                checkpoint = position
        else:
            if position == place.size_bytes and hasher.hexdigest() == place.digest.hex:
                return
        self._stage.advance(-position)
        found = "more" if position < place.size_bytes else "other bytes"
        raise ContentMismatch(
            f"{source.repository}: blob {place.digest} of {place.size_bytes:,} bytes came with {found} "
            f"than its digest and size promise ({position:,} bytes read).",
            hint="The registry, or a proxy before it, gives wrong bytes; tell its operator.",
            blob=str(place.digest),
            repository=source.repository,
        )


def _largest_first(piece: Piece) -> tuple[int, int]:
    return (0, piece.offset) if isinstance(piece, Literal) else (1, -piece.size_bytes)
