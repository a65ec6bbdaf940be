"""`transload verify`: every block of a bundle, in parallel, and all that is damaged named, not only the first.

Stages; each reports all its faults, and what a later stage needs must be intact:

    1-4. signature, SHA256SUMS, bundle.json, files    `VerifiedBundle.open`
    5.   every block of every artifact
    6.   the images' documents against bundle.json
    With --full:
    7.   the SHA-256 of every chunk file, as `sha256sum -c` would find it
    8.   every blob's digest, and every layer's diff_id where a config names it
    9.   every byte of the archive that is not a blob's, against the layout of these images
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from transload.import_side.block_reader import BlockReader
from transload.import_side.damage import by_chunk, images_hit
from transload.import_side.verified_bundle import VerifiedBundle
from transload.manifests.archive_layout import hybrid_archive
from transload.manifests.bundle_manifest import IMAGES_ARTIFACT, ArtifactEntry
from transload.shared import compression, limits
from transload.shared.digests import Digest
from transload.shared.errors import (
    ArchiveInconsistent,
    BlobDamaged,
    BlockDamaged,
    BundleFileDamaged,
    LayerContentDiffers,
    ReadFailed,
    TransloadError,
)
from transload.shared.image import Descriptor, Image, ImageConfig
from transload.shared.progress import Progress, Stage
from transload.shared.signing.allowed_signers import AllowedSigners
from transload.shared.workers import Stop, run_parallel


@dataclass
class Verification:
    """What was checked, and everything that was found.

    Attributes:
        bundle: The bundle after checks 1 to 4; closed.
        is_full: Whether `--full` was asked for.
        blocks_intact: How many blocks have their digest.
        blocks_total: How many there are.
        chunks_checked: With `--full`: chunk files with their SHA-256 in SHA256SUMS.
        blobs_checked: With `--full`: blobs with their own digest.
        layers_checked: With `--full`: layers with their diff_id.
        images_checked: Images whose documents were looked at.
        images_consistent: Those whose documents agree with bundle.json.
        contradicting: Names of those whose documents do not.
        faults: Everything that is wrong, in the order of the stages.
        skipped: Stages that could not be done, and why.
    """

    bundle: VerifiedBundle
    is_full: bool
    blocks_intact: int = 0
    blocks_total: int = 0
    chunks_checked: int = 0
    blobs_checked: int = 0
    layers_checked: int = 0
    images_checked: int = 0
    images_consistent: int = 0
    contradicting: list[str] = field(default_factory=list)
    faults: list[TransloadError] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def images_hit(self) -> list[str]:
        """Names of the images that cannot be had intact."""
        hit = {*images_hit(self.bundle.manifest, self.faults), *self.contradicting}
        return [entry.name for entry in self.bundle.manifest.images if entry.name in hit]

    @property
    def verdict(self) -> Literal["good", "damaged"]:
        """What it comes to."""
        return "damaged" if self.faults else "good"


def default_jobs() -> int:
    """As many threads as this process may use processors: hashing takes one each."""
    return len(os.sched_getaffinity(0))


def verify_bundle(
    folder: Path,
    *,
    trust: AllowedSigners | None,
    at: datetime,
    signer: str | None,
    is_full: bool,
    jobs: int,
    stop: Stop,
    progress: Progress,
) -> Verification:
    """Check a whole bundle.

    Args:
        folder: Where it lies.
        trust: Who may sign.
        at: When the signer's key must be valid.
        signer: The principal that must have signed, or None for anyone in `trust`.
        is_full: Also chunk sums, blobs, diff_ids and archive headers.
        jobs: Number of threads.
        stop: Ends it early.
        progress: Where to show how far it is.

    Returns:
        What was found from step 4 on; the caller decides what faults mean.

    Raises:
        TransloadError: Steps 1 to 3 failed: without a signed list of files nothing more can be said.
    """
    bundle = VerifiedBundle.open(folder, trust=trust, at=at, signer=signer, keep_file_faults=True)
    try:
        found = Verification(bundle, is_full, faults=list(bundle.file_faults))
        # 5. Every block.
        check_blocks(bundle, found, jobs=jobs, stop=stop, progress=progress)
        # 6. The documents.
        images = _check_images(bundle, found)
        if is_full and found.faults:
            found.skipped.append("Chunk sums, blobs, layers and archive headers: repair what is damaged first.")
        elif is_full:
            # 7. Chunk sums.
            _check_chunks(bundle, found, jobs=jobs, stop=stop, progress=progress)
            # 8. Blobs and layers.
            _check_blobs(bundle, images, found, jobs=jobs, stop=stop, progress=progress)
            # 9. The archive's own headers.
            _check_layout(bundle, images, found)
        return found
    finally:
        bundle.close()


def check_blocks(bundle: VerifiedBundle, found: Verification, *, jobs: int, stop: Stop, progress: Progress) -> None:
    """Compare every block of every artifact with its digest; also what `import --verify-first` does.

    Args:
        bundle: The bundle.
        found: Gets the counts, and one fault for each damaged chunk file.
        jobs: Number of threads.
        stop: Ends it early.
        progress: Where to show how far it is.
    """
    blocks = [(reader, number) for reader in bundle.readers.values() for number in range(reader.block_count)]
    known_files = {fault.facts.get("file") for fault in bundle.file_faults}
    found.blocks_total = sum(-(-artifact.size // artifact.block_size) for artifact in bundle.manifest.artifacts)
    bad: list[tuple[ArtifactEntry, int, TransloadError]] = []
    with progress.stage("Checking blocks", sum(reader.artifact.size for reader in bundle.readers.values())) as stage:

        def check(block: tuple[BlockReader, int]) -> None:
            reader, number = block
            try:
                stage.advance(reader.check(number))
            except TransloadError:
                stage.advance(reader.place(number).size_bytes)
                raise

        for outcome in run_parallel(blocks, check, jobs=jobs, stop=stop):
            if outcome.error is None:
                found.blocks_intact += 1
            elif isinstance(outcome.error, (BlockDamaged, ReadFailed)) or (
                outcome.error.facts.get("file") not in known_files
            ):
                reader, number = outcome.item
                bad.append((reader.artifact, number, outcome.error))
    found.faults += by_chunk(bad)


def _check_images(bundle: VerifiedBundle, found: Verification) -> list[Image]:
    if bundle.file_faults:
        found.skipped.append("The images' documents: files are missing or damaged.")
        return []
    images = []
    for outcome in bundle.image_outcomes():
        found.images_checked += 1
        if outcome.result is not None:
            images.append(outcome.result)
        elif not isinstance(outcome.error, (BlockDamaged, ReadFailed)) and outcome.error:  # those are named already
            found.contradicting.append(outcome.item.name)
            found.faults.append(outcome.error)
    found.images_consistent = len(images)
    return images


def _check_chunks(bundle: VerifiedBundle, found: Verification, *, jobs: int, stop: Stop, progress: Progress) -> None:
    chunks = [chunk for artifact in bundle.manifest.artifacts for chunk in artifact.chunks]
    with progress.stage("Checking chunk files", sum(chunk.size for chunk in chunks)) as stage:
        outcomes = run_parallel(
            [chunk.name for chunk in chunks], lambda name: _check_chunk(bundle, name, stop, stage), jobs=jobs, stop=stop
        )
        for outcome in outcomes:
            if outcome.error is None:
                found.chunks_checked += 1
            else:
                found.faults.append(outcome.error)


def _check_chunk(bundle: VerifiedBundle, name: str, stop: Stop, stage: Stage) -> None:
    buffer, hasher, offset = memoryview(bytearray(limits.BLOCK_SIZE_BYTES)), hashlib.sha256(), 0
    while count := bundle.directory.read_into(name, offset, buffer):
        stop.check()
        hasher.update(buffer[:count])
        offset += count
        stage.advance(count)
    if hasher.hexdigest() != bundle.checksums[name]:
        # Its blocks are intact, so SHA256SUMS and images.blocks, both signed, say two things.
        raise BundleFileDamaged(
            f"{name} does not have its SHA-256, although its blocks are as signed: expected {bundle.checksums[name]}, "
            f"found {hasher.hexdigest()}.",
            hint="The bundle was wrong when it was made. Have it exported again.",
            file=name,
            expected=bundle.checksums[name],
            found=hasher.hexdigest(),
        )


def _check_blobs(
    bundle: VerifiedBundle, images: Sequence[Image], found: Verification, *, jobs: int, stop: Stop, progress: Progress
) -> None:
    diff_ids = _named_diff_ids(bundle, images)
    descriptors = {descriptor.digest: descriptor for image in images for descriptor in image.descriptors()}
    with progress.stage("Checking layers", sum(one.size_bytes for one in descriptors.values())) as stage:

        def watched(descriptor: Descriptor) -> Iterator[memoryview]:
            for piece in bundle.open_blob(descriptor):
                stop.check()
                yield piece
                stage.advance(len(piece))

        def check(descriptor: Descriptor) -> bool:
            expected = diff_ids.get(descriptor.digest)
            if expected is None:
                for _ in watched(descriptor):
                    pass
                return False
            _check_layer(watched, descriptor, expected)
            return True

        for outcome in run_parallel(list(descriptors.values()), check, jobs=jobs, stop=stop):
            if outcome.error is None:
                found.blobs_checked += 1
                found.layers_checked += bool(outcome.result)
            else:
                found.blobs_checked += not isinstance(outcome.error, BlobDamaged)
                found.faults.append(outcome.error)


def _named_diff_ids(bundle: VerifiedBundle, images: Sequence[Image]) -> dict[Digest, set[Digest]]:
    """For every layer what the configs say that it is when decompressed; all should agree."""
    named: dict[Digest, set[Digest]] = defaultdict(set)
    for image in images:
        for manifest in image.manifests:
            if manifest.is_runnable:
                raw = bundle.read_blob(manifest.config, limits.MAX_CONFIG_BYTES)
                config = ImageConfig.parse(raw, manifest.config.digest)
                for layer, diff_id in zip(manifest.layers, config.diff_ids, strict=False):
                    named[layer.digest].add(diff_id)
    return named


def _check_layer(
    open_blob: Callable[[Descriptor], Iterator[memoryview]], descriptor: Descriptor, expected: set[Digest]
) -> None:
    for diff_id in sorted(expected):
        pieces = open_blob(descriptor)
        actual, _ = compression.diff_id(
            pieces, descriptor.media_type, layer=descriptor.digest, algorithm=diff_id.algorithm
        )
        for _ in pieces:  # to its end, where the blob's own digest is compared
            pass
        if actual != diff_id:
            raise LayerContentDiffers(
                f"Layer {descriptor.digest}, decompressed, is {actual}, but a config calls it {diff_id}.",
                hint="The image is broken at its source; Docker would refuse it. Export another tag.",
                layer=str(descriptor.digest),
                expected=str(diff_id),
                found=str(actual),
            )


def _check_layout(bundle: VerifiedBundle, images: Sequence[Image], found: Verification) -> None:
    artifact = next((entry for entry in bundle.manifest.artifacts if entry.name == IMAGES_ARTIFACT), None)
    if artifact is None or len(images) != len(bundle.manifest.images):
        return
    layout = hybrid_archive(images)
    offsets = {str(place.digest): place.offset for place in layout.blobs}
    if layout.size_bytes != artifact.size or offsets != {blob.digest: blob.offset for blob in bundle.manifest.blobs}:
        found.faults.append(_layout_differs(artifact, "its size or the places of its blobs"))
        return
    reader = bundle.readers[artifact.name]
    for literal in layout.literals:
        if reader.read(literal.offset, literal.size_bytes) != literal.content:
            what = f"the {literal.size_bytes:,} bytes at {literal.offset:,}"
            found.faults.append(_layout_differs(artifact, what, offset=literal.offset))


def _layout_differs(artifact: ArtifactEntry, what: str, **facts: object) -> ArchiveInconsistent:
    return ArchiveInconsistent(
        f"{artifact.name} is not laid out as these images demand: {what} differ.",
        hint="Docker, tar or skopeo would read other images than bundle.json names. Have it exported again.",
        artifact=artifact.name,
        **facts,
    )
