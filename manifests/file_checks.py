"""Step 4 of a bundle's checks: which files there must be, which there are, and what lies beside them."""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from transload.manifests import bundle_manifest, checksums_file
from transload.manifests.block_digests import blocks_file_size
from transload.manifests.bundle_manifest import BundleManifest
from transload.shared import limits
from transload.shared.console import printable
from transload.shared.errors import (
    BundleFileDamaged,
    BundleFileMissing,
    BundleFileWrongSize,
    MalformedBundle,
    TransloadError,
    UnnamedFile,
)

README_NAME: Final = "README.txt"
COPY_AGAIN: Final = "Copy the bundle again from where it was exported, or from another copy of it."

LITTER = (
    ".DS_Store", "._*", ".AppleDouble", ".Spotlight-V100", ".Trashes", ".fseventsd", ".TemporaryItems",
    ".DocumentRevisions-V100", ".Trash-*", ".directory", "Thumbs.db", "ehthumbs.db", "desktop.ini",
    "System Volume Information", "$RECYCLE.BIN", "RECYCLER", "lost+found",
)  # fmt: skip
"""What operating systems leave on media: named in a note, never opened."""


def read_hint(path: Path, error: OSError) -> str:
    """What to do about a file or folder of a bundle that the operating system does not let us read."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"Run as a user who may read it, or let everybody read it: chmod -R a+rX {shlex.quote(str(path))}"
    return "Clean or replace the medium, or copy the bundle to a local disk first: transload copy BUNDLE FOLDER."


def is_litter(name: str) -> bool:
    """Whether a name, or the folder or file that it ends in, is one that operating systems leave on media."""
    return any(
        fnmatch.fnmatchcase(part.casefold(), pattern.casefold())
        for part in name.rstrip("/").split("/")
        for pattern in LITTER
    )


class FileChecks:
    """Compares the files of a folder with what SHA256SUMS and bundle.json say.

    Args:
        checksums: Verified SHA256SUMS.
        manifest: Verified bundle.json.

    Attributes:
        notes: After `faults`: the litter.
    """

    def __init__(self, checksums: Mapping[str, str], manifest: BundleManifest) -> None:
        self.notes: list[str] = []
        self._checksums = checksums
        self._sizes: dict[str, int | None] = {bundle_manifest.FILE_NAME: None, README_NAME: None}
        self._small = {README_NAME}
        for artifact in manifest.artifacts:
            self._sizes[artifact.blocks] = blocks_file_size(artifact)
            self._small.add(artifact.blocks)
            self._sizes.update((chunk.name, chunk.size) for chunk in artifact.chunks)
        for description in manifest.descriptions:
            self._sizes[description.name] = description.size
            self._small.add(description.name)

    def faults(self, found: Mapping[str, int], small_files: Mapping[str, bytes]) -> list[TransloadError]:
        """Everything that is wrong; see `BundleChecks.check_files`."""
        return [
            *self._names_of_documents(),
            *self._missing_or_wrong_size(found),
            *self._damaged(found, small_files),
            *self._unnamed(found),
        ]

    def _names_of_documents(self) -> Iterator[TransloadError]:
        """4a: the signed documents agree on which files there are, on every file system."""
        for name in sorted(self._sizes.keys() - self._checksums.keys()):
            yield MalformedBundle(f"{checksums_file.FILE_NAME} does not name {name}, which a bundle needs.", file=name)
        for name in sorted(self._checksums.keys() - self._sizes.keys()):
            yield MalformedBundle(
                f"{checksums_file.FILE_NAME} names {name}, which {bundle_manifest.FILE_NAME} knows nothing of.",
                file=name,
            )
        seen: dict[str, str] = {}
        for name in sorted(self._checksums.keys() | self._sizes.keys()):
            if (other := seen.setdefault(name.casefold(), name)) != name:  # one file on FAT, exFAT, NTFS
                yield MalformedBundle(f"The names {other} and {name} differ in case alone.", file=name)

    def _missing_or_wrong_size(self, found: Mapping[str, int]) -> Iterator[TransloadError]:
        """4b: cheap, before anything is hashed."""
        by_folded_name = {name.casefold(): name for name in found}
        for name, expected in self._sizes.items():
            size = found.get(name)
            if size is None:
                other = by_folded_name.get(name.casefold())
                near = f"{printable(other or '')} is there: rename it, or mount the medium with its long names."
                yield BundleFileMissing(f"{name} is missing.", hint=near if other else COPY_AGAIN, file=name)
            elif expected is not None and size != expected:
                yield BundleFileWrongSize(
                    f"{name} has {size:,} bytes; {expected:,} were expected.",
                    hint=COPY_AGAIN, file=name, expected=expected, found=size,
                )  # fmt: skip

    def _damaged(self, found: Mapping[str, int], small_files: Mapping[str, bytes]) -> Iterator[TransloadError]:
        """4c: the digests of the files that are read whole."""
        for name in sorted(self._small & found.keys()):
            expected, size = self._checksums.get(name), self._sizes[name]
            if expected is None or size not in (None, found[name]):
                continue  # already a fault
            most = limits.MAX_README_BYTES if name == README_NAME else limits.MAX_BLOCKS_FILE_BYTES
            if found[name] > most:
                yield BundleFileWrongSize(
                    f"{name} has {found[name]:,} bytes; at most {most:,} are accepted.", hint=COPY_AGAIN, file=name
                )
                continue
            if name not in small_files:
                raise RuntimeError(f"{name} was found and its content was not handed in")
            if (digest := hashlib.sha256(small_files[name]).hexdigest()) != expected:
                yield BundleFileDamaged(
                    f"{name} does not have its digest: expected {expected}, found {digest}.",
                    hint=COPY_AGAIN, file=name, expected=expected, found=digest,
                )  # fmt: skip

    def _unnamed(self, found: Mapping[str, int]) -> Iterator[TransloadError]:
        """4d: a file that nobody signed has no business in a bundle, except what operating systems leave."""
        for name in sorted(found):
            if name in self._sizes or name == checksums_file.FILE_NAME or checksums_file.is_signature_name(name):
                continue
            shown = printable(name)
            if is_litter(name):
                self.notes.append(f"Left alone: {shown} (an operating system put it there).")
                continue
            yield UnnamedFile(
                f"{shown} lies in the bundle's folder and {checksums_file.FILE_NAME} does not name it.",
                hint="Nobody signed it. Find out where it comes from; then move it away and try again.", file=shown,
            )  # fmt: skip
