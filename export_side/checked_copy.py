"""Copying one file to a medium so that it is known to be there: hashed, synced, read back, resumable.

Every byte is read twice in each run: once from the source, whose digest must be the one that the bundle names, and
once from the medium past the caches. What an interrupted run has left is compared block by block and kept up to
its first wrong block.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from transload.export_side.medium import Medium, MediumReader, reporting_medium_errors
from transload.manifests.file_checks import read_hint
from transload.shared.atomic_files import fault_point
from transload.shared.errors import BundleFileDamaged, BundleFileWrongSize, CopyDiffers, ReadFailed
from transload.shared.limits import BLOCK_SIZE_BYTES, MIB
from transload.shared.progress import Stage
from transload.shared.workers import Stop

if TYPE_CHECKING:
    from hashlib import _Hash

SYNC_INTERVAL_BYTES = 16 * MIB
"""A slow stick gets its data in such steps: the progress stays true, and a stop does not wait for gigabytes."""

_AGAIN = "That file was removed. Run the same command again; if it differs again, use another medium."


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file of a bundle, and what it must hold.

    Args:
        name: Its name in the bundle, perhaps `sif/<name>`.
        path: Where the source is.
        size_bytes: The source's size.
        sha256: What its content must have, in hexadecimal.
    """

    name: str
    path: Path
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class FileCopied:
    """What one file took.

    Args:
        kept_bytes: What was already on the medium and right.
        written_bytes: What was written.
    """

    kept_bytes: int
    written_bytes: int


def copy_file(source: NamedFile, target: Path, medium: Medium, stage: Stage, stop: Stop) -> FileCopied:
    """Copy a file, or go on with a copy of it, and prove it.

    Args:
        source: What to copy.
        target: Where to; a file that is there is kept up to its first wrong block.
        medium: What `target` lies on.
        stage: Advanced by two bytes for each byte of the file: one there, one back.
        stop: Checked after each block.

    Raises:
        BundleFileDamaged, BundleFileWrongSize: The source is not what the bundle names; its copy is removed.
        CopyDiffers: The medium gives back something else; that file is removed.
        ReadFailed, WriteFailed, NotEnoughSpace, FileTooLarge: What the operating system said.
    """
    with reporting_medium_errors(target):
        descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        run = _FileCopy(source, target, medium, stage, stop, descriptor)
        with _removing_on(target, BundleFileDamaged, BundleFileWrongSize, CopyDiffers):
            # 1. What is there already is compared, from the medium; the rest is written, the source hashed on the way.
            run.transfer()
            # 2. The source must be what SHA256SUMS names: a damaged source must not be carried.
            run.check_source()
            # 3. What was written must come back from the medium, not from a cache.
            run.sync()
            run.read_back()
    finally:
        with reporting_medium_errors(target):
            os.close(descriptor)
    return FileCopied(run.kept_bytes, source.size_bytes - run.kept_bytes)


def compare_file(source: NamedFile, target: Path, medium: Medium, stage: Stage, stop: Stop, *, repair: str) -> None:
    """Compare a finished copy with its source, reading it from the medium; nothing is changed.

    Args:
        source: What was copied.
        target: The copy.
        medium: What it lies on.
        stage: Advanced by two bytes for each byte of the file.
        stop: Checked after each block.
        repair: The hint: how a copy that differs is put right.

    Raises:
        BundleFileDamaged, BundleFileWrongSize: The source is not what the bundle names.
        CopyDiffers: The copy differs; names the first block that does.
        ReadFailed: One of them cannot be read.
    """
    hasher, position = hashlib.sha256(), 0
    with reporting_medium_errors(target):
        if not target.exists():
            raise CopyDiffers(f"{target} is missing.", hint=repair, path=str(target), file=source.name)
    with contextlib.closing(MediumReader(target, medium)) as reader:
        for block in _blocks(source):
            stop.check()
            hasher.update(block)
            if reader.block_at(position) != block:
                raise _differs(source, target, position, repair)
            position += len(block)
            stage.advance(2 * len(block))
        if reader.block_at(-(-position // BLOCK_SIZE_BYTES) * BLOCK_SIZE_BYTES):
            raise _differs(source, target, position, repair)
    _check_digest(source, position, hasher)


@dataclass(slots=True)
class _FileCopy:
    """The steps of one file's copy, and what they hand on to each other."""

    source: NamedFile
    target: Path
    medium: Medium
    stage: Stage
    stop: Stop
    descriptor: int
    kept_bytes: int = 0
    _seen_bytes: int = 0
    _hasher: _Hash = field(default_factory=hashlib.sha256)
    _hasher_where_writing_began: _Hash = field(default_factory=hashlib.sha256)
    # The digests of the source up to the end of each written block: one hash serves the source as a whole and
    # tells which block of what is read back is the first wrong one.
    _running_digests: list[bytes] = field(default_factory=list)

    def transfer(self) -> None:
        with contextlib.closing(_ExistingCopy(self.target, self.descriptor, self.medium)) as existing:
            for block in _blocks(self.source):
                self.stop.check()
                if existing.holds(block, self._seen_bytes):
                    self._hasher.update(block)
                    self.kept_bytes += len(block)
                    self.stage.advance(2 * len(block))
                else:
                    self._write(block)
                self._seen_bytes += len(block)
        if not self._running_digests:
            self._truncate()

    def check_source(self) -> None:
        _check_digest(self.source, self._seen_bytes, self._hasher)

    def sync(self) -> None:
        with reporting_medium_errors(self.target):
            fault_point(f"fsync {self.source.name}")
            os.fsync(self.descriptor)

    def read_back(self) -> None:
        if not self._running_digests:
            return
        fault_point(f"read back {self.source.name}")
        hasher, position = self._hasher_where_writing_began, self.kept_bytes
        with contextlib.closing(MediumReader(self.target, self.medium)) as reader:
            for expected in self._running_digests:
                self.stop.check()
                block = reader.block_at(position)
                hasher.update(block)
                if hasher.digest() != expected:
                    raise _differs(self.source, self.target, position, _AGAIN)
                position += len(block)
                self.stage.advance(len(block))

    def _write(self, block: memoryview) -> None:
        if not self._running_digests:
            self._truncate()
            self._hasher_where_writing_began = self._hasher.copy()
        with reporting_medium_errors(self.target):
            left, position = block, self._seen_bytes
            while left:
                written = os.pwrite(self.descriptor, left, position)
                left, position = left[written:], position + written
            if position % SYNC_INTERVAL_BYTES == 0:
                os.fdatasync(self.descriptor)
        self._hasher.update(block)
        self._running_digests.append(self._hasher.digest())
        self.stage.advance(len(block))

    def _truncate(self) -> None:
        with reporting_medium_errors(self.target):
            os.ftruncate(self.descriptor, self.kept_bytes)


class _ExistingCopy:
    """What an earlier run has left of a file: asked block by block until the first one that is wrong."""

    def __init__(self, path: Path, descriptor: int, medium: Medium) -> None:
        self._reader: MediumReader | None = None
        with reporting_medium_errors(path):
            self._is_right = os.fstat(descriptor).st_size > 0
            if self._is_right:
                os.fsync(descriptor)  # a killed run's last writes may still be in the cache only
                self._reader = MediumReader(path, medium)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def holds(self, block: memoryview, offset: int) -> bool:
        """Whether this block, and all before it, are there and right."""
        self._is_right = self._is_right and self._reader is not None and self._reader.block_at(offset) == block
        return self._is_right


def _blocks(source: NamedFile) -> Iterator[memoryview]:
    """The source in blocks; never more bytes than it should have."""
    buffer = memoryview(bytearray(min(BLOCK_SIZE_BYTES, max(source.size_bytes, 1))))
    left = source.size_bytes
    try:
        with source.path.open("rb", buffering=0) as file:
            while left:
                wanted = min(len(buffer), left)
                filled = 0
                while filled < wanted and (taken := file.readinto(buffer[filled:wanted])):
                    filled += taken
                if not filled:
                    return
                left -= filled
                yield buffer[:filled]
    except OSError as error:
        raise ReadFailed(
            f"{source.path} cannot be read: {error.strerror}.",
            hint=read_hint(source.path, error)
            if isinstance(error, PermissionError)
            else "The bundle on this side is damaged: export it again.",
            path=str(source.path),
        ) from error


def _check_digest(source: NamedFile, seen_bytes: int, hasher: _Hash) -> None:
    if seen_bytes != source.size_bytes:
        raise BundleFileWrongSize(
            f"{source.path} ended at {seen_bytes:,} bytes; it had {source.size_bytes:,} when the copy began.",
            hint="Something changes the bundle while it is copied; export it again.",
            path=str(source.path), expected_bytes=source.size_bytes, found_bytes=seen_bytes,
        )  # fmt: skip
    if hasher.hexdigest() != source.sha256:
        raise BundleFileDamaged(
            f"{source.path} is damaged on this side: its SHA-256 is {hasher.hexdigest()}, "
            f"SHA256SUMS names {source.sha256}.",
            hint="A damaged file is not carried. Export the bundle again, or take this file from an intact copy.",
            path=str(source.path), file=source.name, expected=source.sha256, found=hasher.hexdigest(),
        )  # fmt: skip


def _differs(source: NamedFile, target: Path, offset: int, hint: str) -> CopyDiffers:
    block = offset // BLOCK_SIZE_BYTES
    return CopyDiffers(
        f"{target} differs from its source {source.path}: block {block} (from byte {offset:,}) is the first wrong one.",
        hint=hint, path=str(target), file=source.name, block=block, offset=offset,
    )  # fmt: skip


@contextlib.contextmanager
def _removing_on(target: Path, *errors: type[Exception]) -> Iterator[None]:
    try:
        yield
    except errors:
        with contextlib.suppress(OSError):  # what is wrong with the file is the news; the next run compares it anyway
            target.unlink()
        raise
