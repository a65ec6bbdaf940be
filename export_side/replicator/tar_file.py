"""One docker-save file: its blobs are fetched in parallel, each written straight at its place and hashed as it comes.

The file has its name only once it is complete and synced.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from transload.manifests.archive_layout import ArchiveLayout, BlobPlace, Literal, Piece, hybrid_archive
from transload.shared import limits
from transload.shared.atomic_files import fault_point, rename, reporting_write_errors
from transload.shared.digests import Digest
from transload.shared.errors import ContentMismatch, NotEnoughSpace, ReadFailed, TransloadError, raise_all
from transload.shared.image import Descriptor, Image
from transload.shared.progress import Stage
from transload.shared.sizes import format_size
from transload.shared.workers import Stop, run_parallel

PARTIAL_SUFFIX = ".partial"
_ATTEMPTS = 2
"""For a blob whose bytes are wrong: once more from its beginning, then the image fails."""

FetchPieces = Callable[[Descriptor], Iterator[bytes]]
"""A blob's bytes from its beginning, not yet compared with its digest."""


@dataclass(frozen=True, slots=True)
class TarWriter:
    """Writes docker-save files into one folder.

    Args:
        folder: Where.
        jobs: How many blobs are fetched at once.
        stop: Ends the run.
    """

    folder: Path
    jobs: int
    stop: Stop

    def write(
        self, name: str, image: Image, known: Mapping[Digest, bytes], fetch: FetchPieces, stage: Stage
    ) -> Path:  # fmt: skip
        """Write one file.

        Args:
            name: Its name; a file that has it is replaced.
            image: What goes in.
            known: Blobs whose bytes are at hand, already compared with their digests.
            fetch: Gets the others.
            stage: Told what has come.

        Returns:
            Its path.

        Raises:
            ContentMismatch: A blob's bytes are wrong, twice.
            NotEnoughSpace: It does not fit.
            WriteFailed, FileTooLarge: What the operating system said.
            RegistryError: What fetching raises.
        """
        layout, path = hybrid_archive([image]), self.folder / name
        self._require_space(layout, path)
        descriptors = {one.digest: one for one in image.descriptors()}
        temporary = self.folder / f".{name.lstrip('.')}{PARTIAL_SUFFIX}"
        try:
            with _created(temporary, path, layout.size_bytes) as file:
                self._place_all(file, path, layout, known, lambda digest: fetch(descriptors[digest]), stage)
                with reporting_write_errors(path):
                    fault_point(f"fsync {name}")
                    os.fsync(file)
            rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        return path

    def remove_leftovers(self) -> None:
        """Remove what runs that were killed left unfinished."""
        for leftover in self.folder.glob(".docker_image_*"):
            with contextlib.suppress(OSError):
                leftover.unlink()

    def _place_all(
        self,
        file: int,
        path: Path,
        layout: ArchiveLayout,
        known: Mapping[Digest, bytes],
        fetch: Callable[[Digest], Iterator[bytes]],
        stage: Stage,
    ) -> None:
        errors: list[TransloadError] = []

        def place(piece: Piece) -> None:
            self.stop.check()
            if errors:  # the image has failed: its other blobs are not worth fetching
                return
            try:
                if isinstance(piece, Literal):
                    _write_at(file, path, piece.offset, piece.content)
                elif piece.digest in known:
                    _write_at(file, path, piece.offset, known[piece.digest])
                    stage.advance(piece.size_bytes)
                else:
                    self._fetch(file, path, piece, lambda: fetch(piece.digest), stage)
            except TransloadError as error:
                errors.append(error)

        pieces = sorted(layout.pieces, key=lambda piece: -piece.size_bytes)  # the long ones first
        # Never left early: that would stop the whole run, and other images go on.
        for _ in run_parallel(pieces, place, jobs=self.jobs, stop=self.stop):
            pass
        raise_all(errors[:1])

    def _fetch(
        self, file: int, path: Path, place: BlobPlace, open_stream: Callable[[], Iterator[bytes]], stage: Stage
    ) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            hasher, position = place.digest.hasher(), 0
            for piece in open_stream():
                self.stop.check()
                if position + len(piece) > place.size_bytes:
                    break
                _write_at(file, path, place.offset + position, piece)
                hasher.update(piece)
                position += len(piece)
                stage.advance(len(piece))
            else:
                if position == place.size_bytes and hasher.hexdigest() == place.digest.hex:
                    return
            stage.advance(-position)
            if attempt == _ATTEMPTS:
                raise ContentMismatch(
                    f"Blob {place.digest} for {path.name} came with other bytes than its digest promises, "
                    f"{_ATTEMPTS} times.",
                    hint="The registry, or a proxy before it, gives wrong bytes; tell its operator.",
                    blob=str(place.digest),
                )

    def _require_space(self, layout: ArchiveLayout, path: Path) -> None:
        with reporting_write_errors(path):
            found = os.statvfs(self.folder)
        available = found.f_bavail * found.f_frsize
        if layout.size_bytes > available:
            raise NotEnoughSpace(
                f"{path.name} has {format_size(layout.size_bytes)}, but {self.folder} has "
                f"{format_size(available)} left.",
                hint="Free some space, or choose another --output-path; the next run goes on with this image.",
                path=str(path),
                needed_bytes=layout.size_bytes,
                available_bytes=available,
            )


def tar_bytes(image: Image) -> int:
    """The exact size of an image's file."""
    return hybrid_archive([image]).size_bytes


def blob_bytes(image: Image) -> int:
    """The size of an image's blobs."""
    return sum(descriptor.size_bytes for descriptor in image.descriptors())


def file_pieces(path: Path, offset: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
    """Read a file, or a part of it, in pieces.

    Raises:
        ReadFailed: It cannot be read, or ends early.
    """
    try:
        with path.open("rb") as file:
            left = path.stat().st_size if size_bytes is None else size_bytes
            file.seek(offset)
            while left:
                piece = file.read(min(left, limits.COPY_BUFFER_BYTES))
                if not piece:
                    raise ReadFailed(f"{path} is shorter than it was written.", path=str(path))
                yield piece
                left -= len(piece)
    except OSError as error:
        raise ReadFailed(f"{path} cannot be read: {error.strerror}.", path=str(path)) from error


@contextlib.contextmanager
def _created(temporary: Path, path: Path, size_bytes: int) -> Iterator[int]:
    with reporting_write_errors(path):
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600)
    try:
        with reporting_write_errors(path):
            os.fchmod(descriptor, 0o644)
            os.ftruncate(descriptor, size_bytes)
        yield descriptor
    finally:
        os.close(descriptor)


def _write_at(descriptor: int, path: Path, offset: int, content: bytes) -> None:
    view = memoryview(content)
    with reporting_write_errors(path):
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written
