"""A carrying medium: what its file system can hold, and how to read what really is on it.

A file that has just been written is read back from the page cache, even when the stick below it has lost or changed
the bytes. So a copy is synced, dropped from the cache, and read past it (O_DIRECT) where the file system can.
A file system in user space (exFAT, NTFS) reads its device through one more cache, the device's: that one is
dropped too.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transload.shared.atomic_files import write_error
from transload.shared.errors import FileTooLarge, NotEnoughSpace, PathMissing, ReadFailed, TransloadError, WriteFailed
from transload.shared.limits import BLOCK_SIZE_BYTES
from transload.shared.sizes import format_size

MOUNT_TABLE = Path("/proc/self/mountinfo")
FAT_FILE_SYSTEMS = frozenset({"vfat", "msdos", "umsdos"})
FAT_MAX_FILE_BYTES = 4_294_967_295
"""FAT keeps a file's size in 32 bits."""

_PULLED_OUT = frozenset({errno.EIO, errno.ENOTCONN, errno.ENODEV, errno.ENXIO, errno.ESHUTDOWN, errno.ESTALE,
                         errno.ENOMEDIUM})  # fmt: skip
"""What the kernel says of a device or a file system's process that has gone away."""

_PLUG_IN_AGAIN = "Check the medium and its plug, mount it again, and run the same command; it goes on where it stopped."


@dataclass(frozen=True, slots=True)
class Medium:
    """The folder that is copied to, and the file system below it.

    Args:
        path: The folder.
        file_system: Its type as the kernel names it (`ext4`, `vfat`, `fuseblk`), or `unknown`.
        device: The block device of a file system in user space, whose own cache must be dropped; else None.
    """

    path: Path
    file_system: str
    device: Path | None = None

    @classmethod
    def of(cls, path: Path) -> Medium:
        """Look at the file system that a folder is on.

        Args:
            path: The folder.

        Raises:
            PathMissing: No such folder, or something that is no folder.
            WriteFailed: The medium does not answer.
        """
        try:
            if not path.is_dir():
                raise PathMissing(
                    f"{path} is not a folder that exists.",
                    hint="Mount the medium and name a folder on it.",
                    path=str(path),
                )
            device_number = path.stat().st_dev
        except OSError as error:
            raise medium_error(path, error) from error
        kind, source = _mounted(MOUNT_TABLE, device_number)
        is_user_space = kind == "fuse" or kind.startswith(("fuse.", "fuseblk"))
        return cls(path, kind, Path(source) if is_user_space and source.startswith("/dev/") else None)

    def check_file_size(self, name: str, size_bytes: int) -> None:
        """Refuse a file that this file system cannot hold, before hours are spent on it.

        Raises:
            FileTooLarge: FAT32, and a file beyond its limit.
        """
        if self.file_system in FAT_FILE_SYSTEMS and size_bytes > FAT_MAX_FILE_BYTES:
            raise FileTooLarge(
                f"{self.path} is a {self.file_system} file system, which holds no file larger than "
                f"{FAT_MAX_FILE_BYTES:,} bytes; {name} has {size_bytes:,}.",
                hint="Format the medium as exFAT or ext4, or export again with --chunk-size 4GB.",
                path=str(self.path), file=name, size_bytes=size_bytes, largest_bytes=FAT_MAX_FILE_BYTES,
            )  # fmt: skip

    def check_space(self, sizes_bytes: list[int], occupied_bytes: int) -> None:
        """Refuse a copy that will not fit.

        Args:
            sizes_bytes: The sizes of all files of the copy.
            occupied_bytes: What of them already lies on the medium.

        Raises:
            NotEnoughSpace: With needed and available bytes.
            WriteFailed: The medium does not answer.
        """
        try:
            figures = os.statvfs(self.path)
        except OSError as error:
            raise medium_error(self.path, error) from error
        cluster = max(figures.f_frsize, 1)
        needed = sum(-(-size // cluster) * cluster for size in sizes_bytes) - occupied_bytes
        available = figures.f_bavail * cluster
        if needed > available:
            raise NotEnoughSpace(
                f"{self.path} has {format_size(available)} free ({available:,} bytes); "
                f"the copy needs {format_size(needed)} ({needed:,} bytes).",
                hint="Use a larger medium or free some space on this one.",
                path=str(self.path), needed_bytes=needed, available_bytes=available,
            )  # fmt: skip

    def forget_cached(self, descriptor: int) -> None:
        """Drop what the caches hold of a synced file, so that the next read comes from the medium.

        Args:
            descriptor: The open file.
        """
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if self.device is not None:
            with contextlib.suppress(OSError):  # without permission on the device its cache stays
                device = os.open(self.device, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.posix_fadvise(device, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(device)

    @property
    def reads_past_caches(self) -> bool:
        """Whether reading back is certain not to be answered by the device's own cache."""
        return self.device is None or os.access(self.device, os.R_OK)


class MediumReader:
    """Reads a file block by block from the medium, past the page cache where that is possible.

    Args:
        path: The file.
        medium: What it lies on; its caches are dropped first.

    Raises:
        WriteFailed: The medium does not answer.
    """

    def __init__(self, path: Path, medium: Medium) -> None:
        self._path = path
        self._buffer = mmap.mmap(-1, BLOCK_SIZE_BYTES)  # page-aligned, as O_DIRECT wants it
        with reporting_medium_errors(path):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            medium.forget_cached(self._descriptor)
            self._read_directly()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)

    def block_at(self, offset: int) -> memoryview:
        """One block, shorter at the end of the file; valid until the next call.

        Args:
            offset: A multiple of the block size.

        Raises:
            ReadFailed: The medium cannot give it.
        """
        view, filled = memoryview(self._buffer), 0
        try:
            while filled < BLOCK_SIZE_BYTES:
                taken = self._read(view[filled:], offset + filled)
                if taken == 0:
                    break
                filled += taken
        except OSError as error:
            raise ReadFailed(
                f"{self._path} cannot be read back from the medium at byte {offset + filled:,}: {error.strerror}.",
                hint=f"{_PLUG_IN_AGAIN} If it fails at the same place, use another medium.",
                path=str(self._path), offset=offset + filled, errno=errno.errorcode.get(error.errno or 0, "?"),
            ) from error  # fmt: skip
        return view[:filled]

    def _read(self, view: memoryview, offset: int) -> int:
        try:
            return os.preadv(self._descriptor, [view], offset)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._is_direct:
                raise
        # O_DIRECT was accepted but not for this offset or length, as after a short read: go on through the cache
        self._reopen(0)
        return os.preadv(self._descriptor, [view], offset)

    def _read_directly(self) -> None:
        self._is_direct = False
        try:
            self._reopen(os.O_DIRECT)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
                raise

    def _reopen(self, flag: int) -> None:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | flag)
        os.close(self._descriptor)
        self._descriptor, self._is_direct = descriptor, flag != 0


@contextlib.contextmanager
def reporting_medium_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's errors about a path on the medium into errors that say what to do.

    Args:
        path: The file or folder.

    Raises:
        WriteFailed, NotEnoughSpace, FileTooLarge, AlreadyExists, PathMissing: By errno.
    """
    try:
        yield
    except OSError as error:
        raise medium_error(path, error) from error


def medium_error(path: Path, error: OSError) -> TransloadError:
    """The error that stands for an OSError on the medium.

    Args:
        path: The file or folder on the medium.
        error: What the operating system said.
    """
    facts = {"path": str(path), "errno": errno.errorcode.get(error.errno or 0, str(error.errno))}
    if error.errno in _PULLED_OUT:
        return WriteFailed(
            f"The medium does not answer any more while {path} is written or read: {error.strerror}.",
            hint=_PLUG_IN_AGAIN,
            **facts,
        )
    if error.errno == errno.EROFS:
        return WriteFailed(
            f"{path} cannot be written: the medium is read-only.",
            hint="Look for a write-protect switch, or mount it again for writing.",
            **facts,
        )
    if error.errno in {errno.EACCES, errno.EPERM}:
        return WriteFailed(
            f"{path} cannot be written: {error.strerror}.",
            hint="Mount the medium so that this user may write to it, or run the command as a user who may.",
            **facts,
        )
    return write_error(path, error)


def _mounted(mount_table: Path, device_number: int) -> tuple[str, str]:
    """Type and source of the mounted file system with a device number (proc(5), /proc/pid/mountinfo)."""
    wanted = f"{os.major(device_number)}:{os.minor(device_number)}"
    with contextlib.suppress(OSError):
        for line in mount_table.read_text("utf-8", "surrogateescape").splitlines():
            before, separator, after = line.partition(" - ")
            fields, ending = before.split(" "), after.split(" ")
            if separator and len(fields) > 2 and len(ending) > 1 and fields[2] == wanted:
                return ending[0], _unescaped(ending[1])
    return "unknown", ""


def _unescaped(text: str) -> str:
    """Mount tables write blanks and backslashes as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
