"""Opening a bundle's files safely: whatever lies on a medium, only regular files of bounded size are read.

Everything is opened relative to one directory descriptor and without following links, so that a link on the medium
cannot point the importer at a file of the host, and a pipe or device cannot hang it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from transload.manifests import checksums_file
from transload.manifests.file_checks import COPY_AGAIN, is_litter, read_hint
from transload.shared import limits
from transload.shared.console import printable
from transload.shared.errors import (
    BundleFileMissing,
    BundleFileWrongSize,
    MalformedBundle,
    NotABundle,
    PathMissing,
    ReadFailed,
    SignatureMissing,
    TransloadError,
)

UNFINISHED_COPY = (
    "A folder whose name ends in .partial is an unfinished copy. Finish it where the bundle is: repeat the same "
    "transload copy."
)
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(slots=True)
class Listing:
    """What lies in a bundle's folder.

    Attributes:
        files: Size in bytes of every regular file but signatures, by name; a stray folder is `name/`, and litter
            that operating systems leave is here by name too, whatever it is.
        signatures: Names of the signature files.
        irregular: Names of links, devices, pipes and sockets, with what they are.
    """

    files: dict[str, int] = field(default_factory=dict)
    signatures: list[str] = field(default_factory=list)
    irregular: dict[str, str] = field(default_factory=dict)


class BundleDirectory:
    """A folder that should hold one bundle.

    Args:
        folder: The folder; the last component may be a symbolic link, since the operator names it.

    Raises:
        PathMissing: There is no such folder.
        NotABundle: It is no folder.
        ReadFailed: It cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise PathMissing(f"There is no folder {folder}.", path=str(folder)) from error
        except NotADirectoryError as error:
            raise NotABundle(
                f"{folder} is not a folder.", hint="Name the folder that holds SHA256SUMS.", path=str(folder)
            ) from error
        except OSError as error:
            raise ReadFailed(
                f"The folder {folder} cannot be opened: {error.strerror}.",
                hint=read_hint(folder, error),
                path=str(folder),
            ) from error

    def close(self) -> None:
        """Give up the directory."""
        os.close(self._descriptor)

    def list(self) -> Listing:
        """Look at every name, without opening a file.

        Raises:
            NotABundle: More names than any bundle has.
            ReadFailed: The folder cannot be read.
        """
        listing = Listing()
        budget = limits.MAX_BUNDLE_DIRECTORY_ENTRIES
        for name, kind, size in self._entries(self._descriptor, ""):
            budget -= 1
            if stat.S_ISDIR(kind) and not is_litter(name):
                budget -= self._list_folder(name, listing, budget)
            else:
                _sort_in(listing, name, kind, size)
            if budget < 0:
                raise NotABundle(
                    f"{self.folder} holds more than {limits.MAX_BUNDLE_DIRECTORY_ENTRIES:,} files; no bundle does.",
                    hint="Name the folder of one bundle.",
                    path=str(self.folder),
                )
        return listing

    def _list_folder(self, name: str, listing: Listing, budget: int) -> int:
        """Look into a folder of the bundle; folders in it are none of a bundle's."""
        count = 0
        with self._opened(name, os.O_DIRECTORY) as descriptor:
            for inner, kind, size in self._entries(descriptor, f"{name}/"):
                count += 1
                if count > budget:
                    break
                full_name = f"{name}/{inner}"
                if stat.S_ISDIR(kind) and not is_litter(inner):
                    listing.files[f"{full_name}/"] = 0
                else:
                    _sort_in(listing, full_name, kind, size)
        if not count:
            listing.files[f"{name}/"] = 0
        return count

    def _entries(self, descriptor: int, prefix: str) -> Iterator[tuple[str, int, int]]:
        try:
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    yield entry.name, found.st_mode, found.st_size
        except OSError as error:
            raise ReadFailed(
                f"The folder {self.folder / prefix} cannot be listed: {error.strerror}.", path=str(self.folder / prefix)
            ) from error

    def read_small(self, name: str, most_bytes: int) -> bytes:
        """Read a whole small file.

        Args:
            name: Its name in the bundle.
            most_bytes: Largest size accepted.

        Raises:
            BundleFileMissing: It is not there.
            MalformedBundle: It is no regular file.
            BundleFileWrongSize: It is larger.
            ReadFailed: The medium cannot be read.
        """
        with self._opened(name) as descriptor:
            parts: list[bytes] = []
            offset = 0
            while offset <= most_bytes:
                try:
                    part = os.pread(descriptor, min(most_bytes + 1 - offset, limits.COPY_BUFFER_BYTES), offset)
                except OSError as error:
                    raise self._read_failed(name, offset, error) from error
                if not part:
                    return b"".join(parts)
                parts.append(part)
                offset += len(part)
        raise BundleFileWrongSize(
            f"{name} is larger than the {most_bytes:,} bytes that a file of its kind may have.",
            hint=COPY_AGAIN,
            file=name,
        )

    def read_into(self, name: str, offset: int, buffer: memoryview) -> int:
        """Fill a buffer from a place in a file.

        Returns:
            How many bytes there were: fewer than asked for at the file's end.

        Raises:
            BundleFileMissing, MalformedBundle, ReadFailed: As `read_small`.
        """
        filled = 0
        with self._opened(name) as descriptor:
            while filled < len(buffer):
                try:
                    count = os.preadv(descriptor, [buffer[filled:]], offset + filled)
                except OSError as error:
                    raise self._read_failed(name, offset + filled, error) from error
                if not count:
                    break
                filled += count
        return filled

    @contextlib.contextmanager
    def _opened(self, name: str, flags: int = 0) -> Iterator[int]:
        """Open `name` or `folder/name`, no component of which may be a link."""
        folder, slash, last = name.rpartition("/")
        with contextlib.ExitStack() as opened:
            try:
                parent = self._descriptor
                if slash:
                    parent = os.open(folder, _OPEN_FLAGS | os.O_DIRECTORY, dir_fd=parent)
                    opened.callback(os.close, parent)
                descriptor = os.open(last, _OPEN_FLAGS | flags, dir_fd=parent)
                opened.callback(os.close, descriptor)
                mode = os.fstat(descriptor).st_mode
            except OSError as error:
                raise self._open_failed(name, error) from error
            if not flags and not stat.S_ISREG(mode):
                raise irregular_file(name, _kind(mode))
            yield descriptor

    def _open_failed(self, name: str, error: OSError) -> TransloadError:
        match error.errno:
            case errno.ENOENT | errno.ENOTDIR:
                return BundleFileMissing(
                    f"{name} is missing from the bundle in {self.folder}.", hint=COPY_AGAIN, file=name
                )
            case errno.ELOOP | errno.EMLINK:
                return irregular_file(name, "a symbolic link")
            case errno.ENXIO | errno.ENODEV:
                return irregular_file(name, "a device or socket")
            case _:
                return self._read_failed(name, 0, error)

    def _read_failed(self, name: str, offset: int, error: OSError) -> ReadFailed:
        return ReadFailed(
            f"{self.folder / name} cannot be read at byte {offset:,}: {error.strerror}.",
            hint=read_hint(self.folder / name, error),
            file=name,
            offset=offset,
            reason=error.strerror or str(error),
            errno=errno.errorcode.get(error.errno or 0, str(error.errno)),
        )

    def require_bundle(self, listing: Listing) -> None:
        """Refuse a folder that is no bundle, with what was probably meant.

        Raises:
            NotABundle: Neither SHA256SUMS nor a signature is there.
            SignatureMissing: SHA256SUMS is there without any signature.
            BundleFileMissing: A signature is there without SHA256SUMS.
            MalformedBundle: One of them is a link, device or pipe.
        """
        for name, kind in listing.irregular.items():
            if name == checksums_file.FILE_NAME or checksums_file.is_signature_name(name):
                raise irregular_file(name, kind)
        has_sums = checksums_file.FILE_NAME in listing.files
        if has_sums and listing.signatures:
            return
        if listing.signatures:
            raise BundleFileMissing(
                f"{checksums_file.FILE_NAME} is missing from the bundle in {self.folder}.",
                hint=COPY_AGAIN,
                file=checksums_file.FILE_NAME,
            )
        if has_sums:
            raise SignatureMissing(
                f"The bundle in {self.folder} has no signature (SHA256SUMS.sig).",
                hint=UNFINISHED_COPY
                if self.is_unfinished_copy
                else "Nothing may be taken from it. Copy SHA256SUMS.sig from where the bundle was exported.",
                file=f"{checksums_file.FILE_NAME}.sig",
            )
        raise NotABundle(
            f"{self.folder} holds no finished bundle: SHA256SUMS and SHA256SUMS.sig are not there.",
            hint=UNFINISHED_COPY if self.is_unfinished_copy else self._probably_meant(),
            path=str(self.folder),
        )

    @property
    def is_unfinished_copy(self) -> bool:
        """Whether `transload copy` has not ended here, or is to repair what is here."""
        return self.folder.absolute().name.endswith(".partial")

    def _probably_meant(self) -> str:
        with contextlib.suppress(OSError):
            inside = sorted(
                path.parent.name for path in self.folder.glob(f"*/{checksums_file.FILE_NAME}.sig") if path.is_file()
            )
            if len(inside) == 1:
                return f"Did you mean {self.folder / inside[0]}?"
            if inside:
                return f"Name one of the bundles in it: {', '.join(inside[:10])}."
        return "Name the folder that holds SHA256SUMS. An export that was interrupted is finished by running it again."


def irregular_file(name: str, kind: str) -> MalformedBundle:
    """The error for what is no regular file."""
    return MalformedBundle(
        f"{printable(name)} is {kind}; a bundle holds regular files only, and this one was not opened.",
        hint="Copy the bundle again; if it comes like this from its exporter, do not trust it.",
        file=printable(name),
    )


def _sort_in(listing: Listing, name: str, kind: int, size: int) -> None:
    last = name.rpartition("/")[2]
    if is_litter(last):
        listing.files[name] = size
    elif not stat.S_ISREG(kind):
        listing.irregular[name] = _kind(kind)
    elif checksums_file.is_signature_name(name):
        listing.signatures.append(name)
    else:
        listing.files[name] = size


def _kind(mode: int) -> str:
    kinds = {stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
             stat.S_IFBLK: "a block device", stat.S_IFCHR: "a character device", stat.S_IFDIR: "a folder"}  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "no regular file")
