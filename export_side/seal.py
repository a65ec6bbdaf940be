"""From filled chunk files to a bundle: digests, documents, signature, and last its name.

1. every chunk is synced and read once, which gives its block digests and its SHA-256;
2. images.blocks, bundle.json, README.txt and SHA256SUMS are written and synced;
3. the signature is written, last of all files;
4. the folder is renamed to the bundle's id.

What has no signature, or lies under `.unfinished`, is not a bundle. A crash anywhere is repaired by sealing again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from transload.export_side.chunk_files import ChunkFiles
from transload.export_side.documents import SIGNATURE_NAME, documents
from transload.export_side.journal import BundleIdentity
from transload.export_side.plan import ExportPlan
from transload.manifests import checksums_file
from transload.shared import limits
from transload.shared.atomic_files import fault_point, rename, reporting_write_errors, sync_directory, write_new
from transload.shared.errors import AlreadyExists, ReadFailed
from transload.shared.progress import Progress, Stage
from transload.shared.workers import Stop, run_parallel

Sign = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class _ChunkDigests:
    blocks: bytes
    sha256: str


def seal(
    files: ChunkFiles,
    plan: ExportPlan,
    identity: BundleIdentity,
    sign: Sign,
    final: Path,
    *,
    jobs: int,
    stop: Stop,
    progress: Progress,
) -> None:
    """Make a bundle out of a folder whose chunks are complete.

    Args:
        files: The chunk files; their folder becomes the bundle.
        plan: What is in them.
        identity: Of the bundle.
        sign: From SHA256SUMS to the content of its signature file.
        final: Where the bundle is to be; beside nothing of that name.
        jobs: How many chunks are read at once.
        stop: Ends the run.
        progress: Where the reading is shown.

    Raises:
        AlreadyExists: Something is at `final`.
        ReadFailed, WriteFailed, NotEnoughSpace: The disk failed; the next run seals again.
        KeyUnusable: The agent does not sign any more.
    """
    if os.path.lexists(final):
        raise AlreadyExists(f"{final} already exists.", hint="Move it away, and run the same command again.")
    folder = files.folder
    # 1
    digests = _digest_chunks(files, jobs=jobs, stop=stop, progress=progress)
    # 2
    contents = {files.chunks.blocks_file_name: b"".join(one.blocks for one in digests), **documents(plan, identity)}
    sums = {chunk.name: one.sha256 for chunk, one in zip(files.chunks.chunks, digests, strict=True)}
    sums.update({name: hashlib.sha256(content).hexdigest() for name, content in contents.items()})
    contents[checksums_file.FILE_NAME] = checksums_file.encode(sums)
    _remove_others(folder, {*sums, checksums_file.FILE_NAME})
    for name, content in contents.items():
        _make_parent(folder / name)
        write_new(folder / name, content)
    for inner in sorted({(folder / name).parent for name in contents} - {folder}):
        sync_directory(inner)
    with reporting_write_errors(folder):
        folder.chmod(0o755)
    sync_directory(folder)
    # 3
    write_new(folder / SIGNATURE_NAME, sign(contents[checksums_file.FILE_NAME]))
    sync_directory(folder)
    # 4
    rename(folder, final)
    sync_directory(folder.parent)


def _digest_chunks(files: ChunkFiles, *, jobs: int, stop: Stop, progress: Progress) -> list[_ChunkDigests]:
    found: dict[int, _ChunkDigests] = {}
    with progress.stage("Sealing", files.chunks.size_bytes) as stage:

        def work(index: int) -> _ChunkDigests:
            return _digest_chunk(files, index, stop, stage)

        indexes = range(files.chunks.chunk_count)
        with contextlib.closing(run_parallel(indexes, work, jobs=jobs, stop=stop)) as outcomes:
            for outcome in outcomes:
                if outcome.error is not None:
                    raise outcome.error
                if outcome.result is not None:
                    found[outcome.item] = outcome.result
    return [found[index] for index in sorted(found)]


def _digest_chunk(files: ChunkFiles, index: int, stop: Stop, stage: Stage) -> _ChunkDigests:
    files.sync(index)
    whole, blocks = hashlib.sha256(), []
    chunk = files.chunks.chunks[index]
    begin = index * files.chunks.chunk_size_bytes
    # The chunk's own hash goes on in a second thread meanwhile: often there is one chunk, and there are more cores.
    with ThreadPoolExecutor(1, "chunk digest") as helper:
        updated: Future[None] | None = None
        for start in range(begin, begin + chunk.size, limits.BLOCK_SIZE_BYTES):
            stop.check()
            size = min(limits.BLOCK_SIZE_BYTES, begin + chunk.size - start)
            block = b"".join(files.read(start, size))
            if len(block) < size:
                path = files.path(index)
                raise ReadFailed(f"{path} ends early: it should have {chunk.size:,} bytes.", path=str(path))
            if updated is not None:
                updated.result()  # in order, and never more than two blocks in memory
            updated = helper.submit(whole.update, block)
            blocks.append(hashlib.sha256(block).digest())
            stage.advance(size)
        if updated is not None:
            updated.result()
    return _ChunkDigests(b"".join(blocks), whole.hexdigest())


def _make_parent(path: Path) -> None:
    if not path.parent.exists():
        with reporting_write_errors(path.parent):
            fault_point(f"make {path.parent.name}")
            path.parent.mkdir(mode=0o755)


def _remove_others(folder: Path, named: set[str]) -> None:
    """Remove what an earlier attempt left: chunks of a larger plan, temporary files, a signature."""
    with reporting_write_errors(folder):
        for entry in list(os.scandir(folder)):
            if entry.name not in named:
                fault_point(f"remove {entry.name}")
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    Path(entry.path).unlink()
