"""`transload copy`: a bundle onto the medium that crosses the gap, in order, proven, resumable.

The copy grows as `<folder>.partial` and is renamed when every file has been read back; SHA256SUMS and the signatures
come last. So half a copy is never taken for a bundle. No trust file is needed: what is proven is that the copy
is what the source's SHA256SUMS names. Whether that is trusted is decided on the other side.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from transload.export_side.checked_copy import compare_file, copy_file
from transload.export_side.medium import Medium, reporting_medium_errors
from transload.export_side.source_bundle import SourceBundle
from transload.manifests import bundle_manifest, checksums_file
from transload.manifests.file_checks import is_litter
from transload.shared.atomic_files import fault_point, read_bounded, sync_directory
from transload.shared.errors import AlreadyExists, InvalidConfiguration, Locked, TransloadError, raise_all
from transload.shared.limits import MAX_BUNDLE_MANIFEST_BYTES
from transload.shared.progress import Progress
from transload.shared.texts import real_path
from transload.shared.workers import Stop, run_parallel

PARTIAL_SUFFIX = ".partial"


@dataclass(frozen=True, slots=True)
class CopyResult:
    """What a copy came to.

    Args:
        folder: The bundle on the medium.
        file_count: How many files it has.
        size_bytes: Their sum.
        written_bytes: What this run wrote.
        kept_bytes: What an earlier run had written and was found right.
        was_complete: The medium already held the finished copy; it was only compared.
        file_system: Of the medium, as the kernel names it.
        reads_past_caches: Whether it was certainly the medium that was read back, not a cache of its device.
        left_out: Names in the source folder that SHA256SUMS does not name; they were not copied.
    """

    folder: Path
    file_count: int
    size_bytes: int
    written_bytes: int
    kept_bytes: int
    was_complete: bool
    file_system: str
    reads_past_caches: bool
    left_out: tuple[str, ...]


def copy_bundle(folder: Path, medium: Medium, *, progress: Progress, stop: Stop) -> CopyResult:
    """Copy a bundle to a medium, or go on with a copy, or compare one that is finished.

    Args:
        folder: The bundle.
        medium: What to copy to; the copy gets the name of `folder`.
        progress: Shown one stage of twice the bundle's bytes: once there, once back.
        stop: Ends the copy at the next block.

    Raises:
        NotABundle, MalformedBundle, BundleFileMissing: The source is none, or not whole.
        InvalidConfiguration: The medium's folder is the source itself or lies inside it.
        AlreadyExists: The medium holds something else under that name.
        FileTooLarge, NotEnoughSpace: The medium cannot hold it; found before the first byte.
        BundleFileDamaged: A source file is not what SHA256SUMS names.
        CopyDiffers: The medium gives back something else than was written.
        Locked: Another copy to the same place is going on.
        ReadFailed, WriteFailed: What the operating system said.
    """
    # 1. What there is to copy, and whether it is whole.
    bundle = SourceBundle.recognise(folder)
    target = medium.path / real_path(folder).name
    _refuse_same_place(folder, medium.path, target)

    # 2. A finished copy is compared, never written to.
    with reporting_medium_errors(target):
        is_finished = target.is_symlink() or target.exists()
    if is_finished:
        return _compare_finished(bundle, target, medium, progress, stop)

    # 3. Whether the medium can hold it, before the first byte.
    partial = target.with_name(target.name + PARTIAL_SUFFIX)
    for file in bundle.files:
        medium.check_file_size(file.name, file.size_bytes)
    _refuse_strangers(partial, bundle)
    medium.check_space([file.size_bytes for file in bundle.files], _occupied_bytes(partial, bundle))

    # 4. Each file, in order, is there and back before the next one.
    kept_bytes = written_bytes = 0
    with reporting_medium_errors(partial):
        partial.mkdir(exist_ok=True)
    with _only_run(partial), progress.stage("Copying and reading back", 2 * bundle.size_bytes) as stage:

        def copy_all() -> None:
            nonlocal kept_bytes, written_bytes
            for file in bundle.files:
                path = partial / file.name
                with reporting_medium_errors(path):
                    path.parent.mkdir(exist_ok=True)
                copied = copy_file(file, path, medium, stage, stop)
                kept_bytes += copied.kept_bytes
                written_bytes += copied.written_bytes

        _on_a_thread(copy_all, stop)

        # 5. Only now it gets the name of a bundle.
        with reporting_medium_errors(partial):
            for directory in {(partial / file.name).parent for file in bundle.files}:
                sync_directory(directory)
            fault_point(f"rename {target.name}")
            partial.rename(target)
            fault_point(f"sync directory of {target.name}")
            sync_directory(medium.path)
    return _result(bundle, target, medium, kept_bytes, written_bytes, was_complete=False)


def _compare_finished(bundle: SourceBundle, target: Path, medium: Medium, progress: Progress, stop: Stop) -> CopyResult:
    if not _is_copy_of(bundle, target):
        raise AlreadyExists(
            f"{target} already exists and is not a copy of {bundle.folder}.",
            hint="Move it away, or copy to another folder of the medium.",
            path=str(target),
        )
    names = (target, target.with_name(target.name + PARTIAL_SUFFIX), bundle.folder, medium.path)
    was, partial, source, place = (shlex.quote(str(path)) for path in names)
    repair = f"Only what is wrong is copied again by: mv {was} {partial} && transload copy {source} {place}"
    with progress.stage("Comparing the finished copy", 2 * bundle.size_bytes) as stage:

        def compare_all() -> None:
            faults: list[TransloadError] = []
            for file in bundle.files:
                try:
                    compare_file(file, target / file.name, medium, stage, stop, repair=repair)
                except TransloadError as fault:  # noqa: PERF203 - all that is wrong is named, not only the first
                    faults.append(fault)
            raise_all(faults)

        _on_a_thread(compare_all, stop)
    return _result(bundle, target, medium, bundle.size_bytes, 0, was_complete=True)


def _result(
    bundle: SourceBundle, target: Path, medium: Medium, kept_bytes: int, written_bytes: int, *, was_complete: bool
) -> CopyResult:
    return CopyResult(
        folder=target,
        file_count=len(bundle.files),
        size_bytes=bundle.size_bytes,
        written_bytes=written_bytes,
        kept_bytes=kept_bytes,
        was_complete=was_complete,
        file_system=medium.file_system,
        reads_past_caches=medium.reads_past_caches,
        left_out=bundle.left_out,
    )


def _on_a_thread(work: Callable[[], None], stop: Stop) -> None:
    """Do it where a signal need not wait for a slow medium's system call to return."""
    for outcome in run_parallel([None], lambda _: work(), jobs=1, stop=stop):
        if outcome.error is not None:
            raise outcome.error


def _refuse_same_place(folder: Path, medium: Path, target: Path) -> None:
    source = real_path(folder)
    if real_path(target) == source or real_path(medium).is_relative_to(source):
        raise InvalidConfiguration(
            f"{target} would be the bundle itself or lie inside it.",
            hint="Name the folder on the medium that is to hold the copy.",
            path=str(target),
        )


def _refuse_strangers(partial: Path, bundle: SourceBundle) -> None:
    """A file of something else in the unfinished copy would make the finished one invalid."""
    known = {file.name.partition("/")[0] for file in bundle.files}
    with reporting_medium_errors(partial):
        names = {entry.name for entry in partial.iterdir()} if partial.is_dir() else set()
    strangers = sorted(name for name in names - known if not is_litter(name))
    if strangers:
        raise AlreadyExists(
            f"{partial} holds files that are not of this bundle: {', '.join(strangers[:5])}.",
            hint="It is the unfinished copy of something else: remove it, or copy to another folder.",
            path=str(partial), files=strangers[:100],
        )  # fmt: skip


def _occupied_bytes(partial: Path, bundle: SourceBundle) -> int:
    occupied = 0
    for file in bundle.files:
        with contextlib.suppress(OSError):
            occupied += min((partial / file.name).stat().st_blocks * 512, file.size_bytes)
    return occupied


def _is_copy_of(bundle: SourceBundle, target: Path) -> bool:
    """By either of its two roots, so that a damaged one is reported as damage and not as another bundle."""
    for name in (checksums_file.FILE_NAME, bundle_manifest.FILE_NAME):
        expected = next(file.sha256 for file in bundle.files if file.name == name)
        with contextlib.suppress(TransloadError):
            if hashlib.sha256(read_bounded(target / name, MAX_BUNDLE_MANIFEST_BYTES)).hexdigest() == expected:
                return True
    return False


@contextlib.contextmanager
def _only_run(partial: Path) -> Iterator[None]:
    """Two copies to one place would cut each other's files."""
    with reporting_medium_errors(partial):
        descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Locked(
                f"Another copy to {partial} is going on.", hint="Wait until it has ended.", path=str(partial)
            ) from error
        except OSError:  # file systems without locks (some network ones): go on without
            pass
        yield
    finally:
        os.close(descriptor)
