"""What the sinks that write to a folder share: making it, locking it, asking for its space before the first byte."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from transload.shared.atomic_files import reporting_write_errors
from transload.shared.errors import InvalidConfiguration, Locked, NotEnoughSpace, WriteFailed
from transload.shared.sizes import format_size

LOCK_NAME = ".transload.lock"


class FolderLock:
    """Keeps other runs from writing to the same folder: a kernel lock, gone with the process.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor: int | None = None

    def take(self) -> None:
        """Lock the folder, unless this lock is held already.

        Raises:
            Locked: Another run writes there.
            WriteFailed: The lock's file cannot be made.
        """
        if self._descriptor is not None:
            return
        path = self._folder / LOCK_NAME
        with reporting_write_errors(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise Locked(
                f"Another run writes to {self._folder}.", hint="Wait until it ends.", path=str(self._folder)
            ) from error
        except OSError:  # a file system without locks: files still appear whole or not at all
            pass
        self._descriptor = descriptor

    def release(self) -> None:
        """Let other runs write there."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def make_folder(folder: Path) -> None:
    """Make a folder if it is missing, and see that files can be made in it.

    Raises:
        WriteFailed, PathMissing, AlreadyExists, NotEnoughSpace: What the operating system said.
    """
    with reporting_write_errors(folder):
        if not folder.is_dir():
            folder.mkdir(mode=0o755, parents=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise WriteFailed(
            f"{folder} cannot be written to.",
            hint="Choose another folder, or run as a user who may write there.",
            path=str(folder),
        )


def require_outside(folder: Path, bundle: Path, option: str) -> None:
    """Refuse to write into the bundle that is read: nobody signed what would lie there then.

    Args:
        folder: Where something is to be written, or the file itself.
        bundle: The bundle's folder.
        option: Who asked for it.

    Raises:
        InvalidConfiguration: It lies in the bundle.
    """
    # Not Path.resolve: it raises for links in a circle, which are for whoever opens them to report.
    if Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(bundle)):
        raise InvalidConfiguration(
            f"{option}: {folder} lies in the bundle's own folder, and what is written there would spoil the bundle.",
            hint="Name another place.",
            path=str(folder),
        )


def require_space(folder: Path, needed_bytes: int) -> None:
    """Compare what is to be written with what the file system has left.

    Raises:
        NotEnoughSpace: The facts have both numbers.
        WriteFailed: The file system does not answer.
    """
    with reporting_write_errors(folder):
        found = os.statvfs(folder)
    available = found.f_bavail * found.f_frsize
    if needed_bytes > available:
        raise NotEnoughSpace(
            f"{folder} has {format_size(available)} left, but {format_size(needed_bytes)} are to be written.",
            hint="Free some space, choose another folder, or deliver fewer images with --image.",
            path=str(folder),
            needed_bytes=needed_bytes,
            available_bytes=available,
        )
