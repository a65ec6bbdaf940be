"""Durable writes: the one place where small files are made, so that a crash leaves the old or the new one.

Every step that must survive a power cut passes `fault_point`, which does nothing until a test sets it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

from transload.shared.errors import (
    AlreadyExists,
    FileTooLarge,
    NotEnoughSpace,
    PathMissing,
    ReadFailed,
    TransloadError,
    WriteFailed,
)


class FaultPoints:
    """A hook for tests that stop a run at each durable step.

    Attributes:
        reached: Called with the name of each durable step just before it is done; None in real runs.
    """

    reached: ClassVar[Callable[[str], None] | None] = None


def fault_point(name: str) -> None:
    """Mark a durable step, such as `fsync state.yml`."""
    if FaultPoints.reached is not None:
        FaultPoints.reached(name)


def write_atomically(path: Path, content: bytes, *, mode: int = 0o644, keep_previous: bool = False) -> None:
    """Replace a file as a whole: temporary file, fsync, rename, fsync of the directory.

    Args:
        path: The file to make or replace.
        content: Its new content.
        mode: Its permissions, whatever the umask.
        keep_previous: Leave the old content beside it as `<name>.previous`.

    Raises:
        WriteFailed, NotEnoughSpace, FileTooLarge: The old file is still there, untouched.
        AlreadyExists: What is there is no regular file.
    """
    require_replaceable(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with reporting_write_errors(path):
        try:
            write_new(temporary, content, mode=mode)
            if keep_previous and path.exists():
                _replace_previous(path)
            rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


def require_replaceable(path: Path) -> None:
    """See that a file may be made or replaced here: what is renamed over /dev/null or a pipe takes its place for all.

    Args:
        path: Perhaps a link to one.

    Raises:
        AlreadyExists: A folder, device, pipe or socket is there.
        WriteFailed: The operating system does not tell.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise write_error(path, error) from error
    if not stat.S_ISREG(mode):
        raise AlreadyExists(
            f"{path} is no regular file, and was not replaced.", hint="Name a file, or nothing.", path=str(path)
        )


def write_new(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file that nobody looks at yet, and sync it.

    Raises:
        WriteFailed, NotEnoughSpace, FileTooLarge: What the operating system said.
    """
    with reporting_write_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(descriptor, mode)
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            fault_point(f"fsync {path.name}")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Rename a file or directory and make the new name durable.

    Raises:
        WriteFailed: What the operating system said.
    """
    with reporting_write_errors(target):
        fault_point(f"rename {target.name}")
        source.replace(target)
        fault_point(f"sync directory of {target.name}")
        sync_directory(target.parent)


def sync_directory(directory: Path) -> None:
    """Make names in a directory durable; file systems that cannot are left alone.

    Raises:
        WriteFailed: What the operating system said.
    """
    with reporting_write_errors(directory):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
                raise
        finally:
            os.close(descriptor)


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """Read a whole small regular file.

    Args:
        path: The file; a symbolic link is followed, a device or pipe is refused.
        most_bytes: Largest size accepted.

    Raises:
        PathMissing: No such file.
        ReadFailed: It cannot be read, is no regular file, or is larger.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise PathMissing(f"{path} does not exist.", path=str(path)) from error
    except OSError as error:
        raise ReadFailed(f"{path} cannot be opened: {error.strerror}.", path=str(path)) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ReadFailed(f"{path} is not a regular file.", path=str(path))
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise ReadFailed(f"{path} cannot be read: {error.strerror}.", path=str(path)) from error
    finally:
        os.close(descriptor)
    if len(content) > most_bytes:
        raise ReadFailed(f"{path} is larger than the {most_bytes:,} bytes accepted here.", path=str(path))
    return content


@contextlib.contextmanager
def reporting_write_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's errors about a path into errors that say what to do.

    Args:
        path: What is being written.

    Raises:
        NotEnoughSpace, FileTooLarge, AlreadyExists, PathMissing, WriteFailed: By errno.
    """
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


def write_error(path: Path, error: OSError) -> TransloadError:
    """The error that stands for an OSError while writing `path`."""
    facts = {"path": str(path), "errno": errno.errorcode.get(error.errno or 0, str(error.errno))}
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return NotEnoughSpace(
                f"No space left while writing {path} ({error.strerror}).",
                hint="Free some space and run the same command again; it goes on where it stopped.",
                **facts,
            )
        case errno.EFBIG:
            return FileTooLarge(
                f"{path} has become larger than this file system or a limit allows.",
                hint="Choose a smaller --chunk-size, or raise the limit (ulimit -f).",
                **facts,
            )
        case errno.EEXIST | errno.ENOTEMPTY:
            return AlreadyExists(f"{path} already exists.", hint="Move it away first.", **facts)
        case errno.ENOENT | errno.ENOTDIR:
            return PathMissing(f"{path} cannot be made: its folder does not exist.", **facts)
        case errno.EROFS:
            return WriteFailed(f"{path} cannot be written: the file system is read-only.", **facts)
        case _:
            return WriteFailed(f"{path} cannot be written: {error.strerror or error}.", **facts)


def _replace_previous(path: Path) -> None:
    previous = path.with_name(f"{path.name}.previous")
    link = path.with_name(f".{path.name}.previous.tmp")
    with contextlib.suppress(FileNotFoundError):
        link.unlink()
    try:
        os.link(path, link)
    except OSError:  # no hard links here (FAT, some network file systems)
        write_new(link, path.read_bytes(), mode=path.stat().st_mode & 0o777)
    link.replace(previous)
    with contextlib.suppress(FileNotFoundError):
        link.unlink()  # rename(2) leaves both names if they are one file: a run was killed after this line before
