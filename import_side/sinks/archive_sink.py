"""Delivers every image as one docker-save tar (also an OCI layout) in a folder: `--to archive=DIR`.

A tar appears under its name only when it is complete and synced. One that is there already is compared byte for
byte with what would be written, so a damaged or foreign file never counts as delivered.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from transload.import_side.sinks.folders import FolderLock, make_folder, require_space
from transload.manifests.archive_layout import ArchiveLayout, Literal, hybrid_archive
from transload.shared import limits
from transload.shared.atomic_files import rename, reporting_write_errors, require_replaceable
from transload.shared.digests import Digest
from transload.shared.errors import TagConflict, TransloadError
from transload.shared.image import Descriptor
from transload.shared.progress import Progress, Stage
from transload.shared.references import Reference
from transload.shared.sinks.base import BlobSource, Delivery, ExistingTagPolicy, Wanted
from transload.shared.texts import path_text, real_path
from transload.shared.workers import Outcome, Stop, attempt

_LONGEST_NAME = 200
"""File systems hold 255 bytes; some room is left for what people append."""


class ArchiveSink:
    """A folder of docker-save tars.

    Args:
        folder: Made if it is missing.
        policy: For a tar of that name with another content.
    """

    def __init__(self, folder: Path, policy: ExistingTagPolicy = "overwrite") -> None:
        self.folder = folder
        self.policy = policy
        self._lock = FolderLock(folder)

    @property
    def identity(self) -> str:
        """`archive=DIR`, absolute."""
        return f"archive={path_text(real_path(self.folder))}"

    def check(self, wanted: Sequence[Wanted]) -> None:
        """Make the folder, lock it against other runs, and compare what is to be written with the space there.

        Raises:
            Locked: Another run writes there.
            NotEnoughSpace: The facts have needed and available bytes.
            WriteFailed, PathMissing: The folder cannot be made or written.
        """
        make_folder(self.folder)
        self._lock.take()
        for leftover in self.folder.glob(".*.tar.partial"):  # of a run that was killed
            with contextlib.suppress(OSError):
                leftover.unlink()
        sizes = [
            layout.size_bytes
            for one in wanted
            if not self._has_size(path := self.folder / file_name(one.target), layout := _layout(one))
            and not (self.policy != "overwrite" and path.exists())
        ]
        require_space(self.folder, sum(sizes))

    def deliver(
        self, wanted: Sequence[Wanted], blobs: BlobSource, *, stop: Stop, progress: Progress
    ) -> Iterator[Outcome[Wanted, Delivery]]:
        """Write one tar after the other; see `Sink.deliver`."""
        total = sum(_layout(one).size_bytes for one in wanted)
        is_there = all(self._has_size(self.folder / file_name(one.target), _layout(one)) for one in wanted)
        with progress.stage(f"{'Comparing' if is_there else 'Writing to'} {self.folder}", total) as stage:
            for one in wanted:
                yield attempt(one, lambda one: self._deliver_one(one, blobs, stop, stage))

    def close(self) -> None:
        """Let other runs write there."""
        self._lock.release()

    def _deliver_one(self, one: Wanted, blobs: BlobSource, stop: Stop, stage: Stage) -> Delivery:
        layout, path = _layout(one), self.folder / file_name(one.target)
        previous = None
        require_replaceable(path)
        if os.path.lexists(path):
            if self._has_size(path, layout) and self._has_content(path, layout, stop):
                stage.advance(layout.size_bytes)
                return Delivery(one, "already-there", one.image.digest)
            previous = _digest_in(path)
            if previous == str(one.image.digest):
                previous = None  # the same image, damaged or unfinished: written again whatever the policy
            elif self.policy == "keep":
                note = f"{path} holds {previous or 'something else'} and was kept."
                return Delivery(one, "kept", one.image.digest, previous, notes=(note,))
            elif self.policy == "fail":
                raise TagConflict(
                    f"{path} is there already and holds {previous or 'something else'}, not {one.image.digest}.",
                    hint="Move it away, or allow it with --on-existing-tag overwrite.",
                    target=one.target,
                    found=previous,
                    expected=str(one.image.digest),
                )
        self._write(path, layout, one, blobs, stop, stage)
        return Delivery(one, "delivered", one.image.digest, previous, layout.size_bytes)

    def _write(
        self, path: Path, layout: ArchiveLayout, one: Wanted, blobs: BlobSource, stop: Stop, stage: Stage
    ) -> None:
        descriptors = {descriptor.digest: descriptor for descriptor in one.image.descriptors()}
        temporary = path.with_name(f".{path.name}.partial")
        try:
            with reporting_write_errors(path):
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(temporary, flags, 0o600)
                try:
                    os.fchmod(descriptor, 0o644)
                    for piece in _pieces(layout, descriptors, blobs):
                        stop.check()
                        view = memoryview(piece)
                        while view:
                            view = view[os.write(descriptor, view) :]
                        stage.advance(len(piece))
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    @staticmethod
    def _has_size(path: Path, layout: ArchiveLayout) -> bool:
        return path.is_file() and not path.is_symlink() and path.stat().st_size == layout.size_bytes

    @staticmethod
    def _has_content(path: Path, layout: ArchiveLayout, stop: Stop) -> bool:
        """Whether a file is the archive, without any record of how it came there."""
        with contextlib.suppress(OSError), path.open("rb") as file:
            for piece in layout.pieces:
                if isinstance(piece, Literal):
                    if file.read(piece.size_bytes) != piece.content:
                        return False
                    continue
                hasher, left = piece.digest.hasher(), piece.size_bytes
                while left:
                    stop.check()
                    part = file.read(min(left, limits.COPY_BUFFER_BYTES))
                    if not part:
                        return False
                    hasher.update(part)
                    left -= len(part)
                if hasher.hexdigest() != piece.digest.hex:
                    return False
            return True
        return False


def file_name(target: str) -> str:
    """The portable file name of an image's tar.

    Anything but letters, digits, dots, dashes and underscores becomes an underscore. Where that could be the name
    of another reference too, or would be too long, digits of the reference's SHA-256 tell them apart.

    Args:
        target: The full reference.
    """
    plain = re.sub(r"[^A-Za-z0-9.-]", "_", target)
    if "_" in target or len(plain) > _LONGEST_NAME:
        plain = f"{plain[:_LONGEST_NAME]}-{hashlib.sha256(target.encode()).hexdigest()[:8]}"
    return f"{plain}.tar"


def _layout(one: Wanted) -> ArchiveLayout:
    return hybrid_archive([replace(one.image, name=Reference.parse(one.target))])


def _pieces(
    layout: ArchiveLayout, descriptors: dict[Digest, Descriptor], blobs: BlobSource
) -> Iterator[bytes | memoryview]:
    for piece in layout.pieces:
        if isinstance(piece, Literal):
            yield piece.content
        else:
            yield from blobs.open_blob(descriptors[piece.digest])


def _digest_in(path: Path) -> str | None:
    """What image a file that is in the way seems to hold; it only serves messages."""
    try:
        with tarfile.open(path, "r:") as archive:
            for member in itertools.islice(archive, 3):
                if member.name == "index.json" and member.size <= limits.MAX_MANIFEST_BYTES:
                    file = archive.extractfile(member)
                    index = msgspec.json.decode(file.read() if file else b"")
                    return str(Digest.parse(str(index["manifests"][-1]["digest"])))
    except (OSError, tarfile.TarError, msgspec.DecodeError, LookupError, TypeError, TransloadError):
        pass
    return None
