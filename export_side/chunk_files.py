"""An artifact as it lies on disk in chunk files: positioned reads and writes at artifact offsets.

On a file system that can, every chunk gets its full size at once, so that a full disk is found before the first
byte and parts may be written in any order. On FAT, exFAT and FUSE a write beyond the end fills everything before
it with zeros; there `must_fill_in_order` is true and files grow from the front.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from transload.export_side.medium import Medium
from transload.manifests.chunks import ChunkPlan
from transload.shared import limits
from transload.shared.atomic_files import fault_point, reporting_write_errors
from transload.shared.errors import NotEnoughSpace, ReadFailed
from transload.shared.sizes import format_size

Buffer = bytes | bytearray | memoryview

_ALLOCATING = frozenset({"bcachefs", "btrfs", "ext4", "f2fs", "gfs2", "ocfs2", "overlay", "tmpfs", "xfs"})
"""They reserve space at once; elsewhere the C library would imitate that by writing every block."""

_WITHOUT_GAPS = frozenset({"exfat", "fat", "hfs", "hfsplus", "msdos", "ntfs", "udf", "vfat"})
"""A write beyond the end of a file fills everything before it with zeros, or may do so."""

_NO_PREALLOCATION = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV)
_MARGIN_BYTES = 1 * limits.MIB
"""For directories, the journal and state.yml, which lie beside the bundle."""


_MOST_OPEN_FILES = 64


@dataclass(slots=True)
class _OpenFile:
    descriptor: int
    users: int = 0


class ChunkFiles:
    """The chunk files of one artifact in one folder. Reads and writes are safe from several threads.

    Args:
        folder: Where they lie; it exists.
        chunks: Their names and sizes.
    """

    def __init__(self, folder: Path, chunks: ChunkPlan) -> None:
        self.folder = folder
        self.chunks = chunks
        self._medium = Medium.of(folder)
        kind = self._medium.file_system
        self.must_fill_in_order = kind in _WITHOUT_GAPS or kind.startswith("fuse")
        self._allocates = kind in _ALLOCATING
        self._files: OrderedDict[int, _OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    def __enter__(self) -> ChunkFiles:  # noqa: PYI034 - Self is in typing from Python 3.11 on
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def path(self, index: int) -> Path:
        """Where a chunk lies; `index` counts from 0."""
        return self.folder / self.chunks.chunks[index].name

    def check_space(self, other_bytes: int) -> None:
        """Find out before the first byte whether the disk can hold the bundle.

        Args:
            other_bytes: What the bundle needs beside its chunks.

        Raises:
            NotEnoughSpace: It cannot; the facts give needed and available bytes.
        """
        status = os.statvfs(self.folder)
        available = status.f_bavail * status.f_frsize
        paths = [self.path(index) for index in range(self.chunks.chunk_count)]
        there = sum(_allocated_bytes(path, chunk.size) for path, chunk in zip(paths, self.chunks.chunks, strict=True))
        needed = self.chunks.size_bytes - there + other_bytes + _MARGIN_BYTES
        if needed > available:
            raise NotEnoughSpace(
                f"The bundle needs {needed:,} bytes ({format_size(needed)}) more in {self.folder.parent.parent}; "
                f"{available:,} ({format_size(available)}) are available.",
                hint="Free some space, or choose another --output-path. Nothing was fetched.",
                needed=needed,
                available=available,
                path=str(self.folder),
            )

    def allocate(self) -> None:
        """Give every chunk its size on disk, if the file system can; cut off what is too long.

        Raises:
            NotEnoughSpace, FileTooLarge, WriteFailed: What the operating system said.
        """
        self._medium.check_file_size(self.chunks.chunks[0].name, self.chunks.chunks[0].size)
        for index, chunk in enumerate(self.chunks.chunks):
            with reporting_write_errors(self.path(index)), self._opened(index) as descriptor:
                fault_point(f"allocate {chunk.name}")
                if os.fstat(descriptor).st_size > chunk.size:
                    os.ftruncate(descriptor, chunk.size)
                if not self.must_fill_in_order:
                    self._extend(descriptor, chunk.size)

    def write(self, offset: int, content: Buffer) -> None:
        """Write bytes at their place.

        Args:
            offset: In the artifact.
            content: All of it inside the artifact.

        Raises:
            NotEnoughSpace, FileTooLarge, WriteFailed: What the operating system said.
        """
        view = memoryview(content)
        for index, start, length in self.chunks.spans(offset, len(view)):
            part, view, inside = view[:length], view[length:], start
            with reporting_write_errors(self.path(index)), self._opened(index) as descriptor:
                while part:
                    written = os.pwrite(descriptor, part, inside)
                    part, inside = part[written:], inside + written

    def read(self, offset: int, size_bytes: int) -> Iterator[bytes]:
        """Read a range in pieces of at most 1 MiB; it ends early where a file does.

        Raises:
            ReadFailed: What the operating system said.
        """
        for index, start, length in self.chunks.spans(offset, size_bytes):
            inside, end = start, start + length
            while inside < end:
                wanted = min(limits.COPY_BUFFER_BYTES, end - inside)
                try:
                    with self._opened(index) as descriptor:
                        piece = os.pread(descriptor, wanted, inside)
                except OSError as error:
                    path = self.path(index)
                    raise ReadFailed(f"{path} cannot be read: {error.strerror}.", path=str(path)) from error
                if not piece:
                    return
                yield piece
                inside += len(piece)

    def sync(self, index: int) -> None:
        """Make a chunk's content durable.

        Raises:
            WriteFailed: What the operating system said.
        """
        path = self.path(index)
        with reporting_write_errors(path), self._opened(index) as descriptor:
            os.fchmod(descriptor, 0o644)
            fault_point(f"fsync {path.name}")
            os.fsync(descriptor)

    def close(self) -> None:
        """Close every file."""
        with self._lock:
            while self._files:
                with suppress(OSError):
                    os.close(self._files.popitem()[1].descriptor)

    def _extend(self, descriptor: int, size_bytes: int) -> None:
        if self._allocates:
            try:
                os.posix_fallocate(descriptor, 0, size_bytes)
            except OSError as error:
                if error.errno not in _NO_PREALLOCATION:
                    raise
        os.ftruncate(descriptor, size_bytes)

    @contextmanager
    def _opened(self, index: int) -> Iterator[int]:
        """A chunk's descriptor; a few stay open between calls, so that thousands of chunks need no thousands."""
        with self._lock:
            file = self._files.get(index)
            if file is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                file = self._files[index] = _OpenFile(os.open(self.path(index), flags, 0o644))
            self._files.move_to_end(index)
            file.users += 1
            idle = [other for other, open_file in self._files.items() if not open_file.users]
            for other in idle[: max(len(self._files) - _MOST_OPEN_FILES, 0)]:
                os.close(self._files.pop(other).descriptor)
        try:
            yield file.descriptor
        finally:
            with self._lock:
                file.users -= 1


def _allocated_bytes(path: Path, most_bytes: int) -> int:
    try:
        return min(path.stat().st_blocks * 512, most_bytes)
    except FileNotFoundError:
        return 0
