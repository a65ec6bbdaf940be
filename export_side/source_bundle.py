"""A finished bundle as it lies on the exporting side: what it consists of, recognised but not verified."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from transload.export_side.checked_copy import NamedFile
from transload.manifests import bundle_manifest, checksums_file
from transload.manifests.file_checks import is_litter
from transload.shared.atomic_files import read_bounded
from transload.shared.errors import (
    BundleFileMissing,
    MalformedBundle,
    NotABundle,
    PathMissing,
    ReadFailed,
    TransloadError,
    raise_all,
)
from transload.shared.limits import MAX_BUNDLE_DIRECTORY_ENTRIES, MAX_CHECKSUMS_BYTES, MAX_SIGNATURE_BYTES

_CHUNK = re.compile(r"\.[0-9]{4}$")


@dataclass(frozen=True, slots=True)
class SourceBundle:
    """A bundle as it lies here, recognised but not verified.

    Args:
        folder: Where it is.
        files: What it consists of, in the order in which it is copied.
        left_out: Other names in the folder, but for the litter of operating systems.
    """

    folder: Path
    files: tuple[NamedFile, ...]
    left_out: tuple[str, ...]

    @classmethod
    def recognise(cls, folder: Path) -> SourceBundle:
        """Find out what a bundle consists of.

        Args:
            folder: What a person named.

        Raises:
            PathMissing: No such folder.
            NotABundle: No SHA256SUMS, no signature, or no bundle.json.
            MalformedBundle: A SHA256SUMS of another form.
            BundleFileMissing: Files that it names are not there; all of them are named.
        """
        names = _names_in(folder)
        signatures = sorted(name for name in names if checksums_file.is_signature_name(name))
        if checksums_file.FILE_NAME not in names or not signatures:
            raise NotABundle(
                f"{folder} is not a finished bundle: it has no "
                f"{'signature' if checksums_file.FILE_NAME in names else checksums_file.FILE_NAME}.",
                hint="Name the folder that `transload export` made; if an export was interrupted, run it again first.",
                path=str(folder),
            )
        checksums_raw = read_bounded(folder / checksums_file.FILE_NAME, MAX_CHECKSUMS_BYTES)
        checksums = checksums_file.decode(checksums_raw)
        if bundle_manifest.FILE_NAME not in checksums:
            raise NotABundle(f"{folder} is not a bundle: its SHA256SUMS names no {bundle_manifest.FILE_NAME}.")

        faults: list[TransloadError] = []
        files: list[NamedFile] = []
        # Small files first, so that what tells what this is comes early; then the chunks in order.
        for name in sorted(checksums, key=lambda name: (_CHUNK.search(name) is not None, name)):
            size_bytes = _regular_file_size(folder / name)
            if size_bytes is None:
                faults.append(_missing(folder / name))
            else:
                files.append(NamedFile(name, folder / name, size_bytes, checksums[name]))
        raise_all(faults)
        # The signed root and its signatures come last: without them nothing is a bundle.
        files.append(_small_file(folder, checksums_file.FILE_NAME, checksums_raw))
        files += [_small_file(folder, name, read_bounded(folder / name, MAX_SIGNATURE_BYTES)) for name in signatures]
        known = {file.name.partition("/")[0] for file in files}
        left_out = sorted(name for name in names - known if not is_litter(name))
        return cls(folder, tuple(files), tuple(left_out))

    @property
    def size_bytes(self) -> int:
        """The sum of all files."""
        return sum(file.size_bytes for file in self.files)


def _small_file(folder: Path, name: str, content: bytes) -> NamedFile:
    return NamedFile(name, folder / name, len(content), hashlib.sha256(content).hexdigest())


def _missing(path: Path) -> BundleFileMissing:
    return BundleFileMissing(
        f"{path} is missing, although SHA256SUMS names it.",
        hint="Export the bundle again, or take this file from an intact copy.",
        path=str(path),
    )


def _regular_file_size(path: Path) -> int | None:
    """None when there is no such file."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ReadFailed(f"{path} cannot be read: {error.strerror}.", path=str(path)) from error
    if not stat.S_ISREG(found.st_mode):
        raise MalformedBundle(f"{path} is not a regular file.", path=str(path))
    return found.st_size


def _names_in(folder: Path) -> set[str]:
    names: set[str] = set()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.add(entry.name)
                if len(names) > MAX_BUNDLE_DIRECTORY_ENTRIES:
                    raise NotABundle(
                        f"{folder} is not a bundle: it has more than {MAX_BUNDLE_DIRECTORY_ENTRIES:,} entries."
                    )
    except FileNotFoundError as error:
        raise PathMissing(f"{folder} does not exist.", path=str(folder)) from error
    except NotADirectoryError as error:
        raise NotABundle(f"{folder} is a file; a bundle is a folder.", path=str(folder)) from error
    except OSError as error:
        raise ReadFailed(f"{folder} cannot be listed: {error.strerror}.", path=str(folder)) from error
    return names
