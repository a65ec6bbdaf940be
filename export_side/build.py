"""From a frozen plan to a sealed bundle that the state knows: fill, drop what fails, seal, remember."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from transload.export_side.chunk_files import ChunkFiles
from transload.export_side.documents import SIGNATURE_NAME, bundle_file_sizes, bundle_manifest_of
from transload.export_side.export_state import ExportState
from transload.export_side.fill import Filler
from transload.export_side.journal import Journal
from transload.export_side.moves import move_blobs
from transload.export_side.plan import ExportPlan
from transload.export_side.resolve import SourceRegistries
from transload.export_side.result import failed_entries
from transload.export_side.seal import seal
from transload.export_side.selection import Failure
from transload.export_side.unfinished import UnfinishedBundles
from transload.shared.atomic_files import fault_point, reporting_write_errors
from transload.shared.digests import Digest
from transload.shared.errors import TransloadError, raise_all
from transload.shared.image import Image
from transload.shared.limits import MAX_SIGNATURE_BYTES
from transload.shared.progress import Progress
from transload.shared.state_file import StateFile
from transload.shared.workers import Stop


@dataclass
class BundleBuild:
    """The making of one bundle.

    Args:
        journal: The frozen plan and what is in place already.
        unfinished: Where the bundle lies until it is sealed.
        state: Told what was filled and sealed.
        sources: Where blobs are fetched.
        contents: Blobs whose bytes are at hand.
        sign: From SHA256SUMS to its signature.
        jobs: How many blobs or chunks at once.
        stop: Ends the run.
        progress: Where long steps are shown.
    """

    journal: Journal
    unfinished: UnfinishedBundles
    state: StateFile[ExportState]
    sources: SourceRegistries
    contents: Mapping[Digest, bytes]
    sign: Callable[[bytes], bytes]
    jobs: int
    stop: Stop
    progress: Progress
    _missing: dict[Image, set[Digest]] = field(default_factory=dict)

    def run(self) -> Mapping[str, int]:
        """Make the bundle.

        Returns:
            Its files and their sizes.

        Raises:
            TransloadError: No image is left, or the run cannot go on; then the next one can.
        """
        folder = self.unfinished.folder(self.journal.identity.bundle_id)
        with reporting_write_errors(folder):
            fault_point(f"make {folder.name}")
            folder.mkdir(exist_ok=True)
        try:
            while failures := self._fill():
                self._drop(failures)
            return self._seal()
        finally:
            self.journal.close()

    def _fill(self) -> dict[Digest, TransloadError]:
        plan, identity = self.journal.plan, self.journal.identity
        self._missing = {image: {one.digest for one in image.descriptors()} for image in plan.images}
        with ChunkFiles(self._folder, plan.chunks) as files:
            sizes = bundle_file_sizes(plan, identity, MAX_SIGNATURE_BYTES)
            files.check_space(sum(sizes.values()) - plan.layout.size_bytes)
            files.allocate()
            filler = Filler(
                plan,
                files,
                self.journal,
                self.sources.pieces,
                self._known(plan),
                self.jobs,
                self.stop,
                self.progress,
                self._finished,
            )
            return filler.run()

    def _known(self, plan: ExportPlan) -> Mapping[Digest, bytes]:
        documents = {document.digest: document.raw for image in plan.images for document in image.documents}
        return {**self.contents, **documents}

    def _finished(self, digest: Digest) -> None:
        identity = self.journal.identity
        for image, missing in list(self._missing.items()):
            missing.discard(digest)
            if not missing:
                del self._missing[image]
                self.state.state.record_filled(
                    image, bundle_id=identity.bundle_id, destination=identity.destination, when=identity.created
                )
                self.state.save()

    def _drop(self, failures: Mapping[Digest, TransloadError]) -> None:
        """Go on without the images that need a blob which cannot be had."""
        old = self.journal.plan
        doomed = old.images_using(failures.keys())
        told = [Failure(str(image.reference), _first_error(image, failures)) for image in doomed]
        for failure in told:
            self.progress.note(f"{failure.reference} is left out: {failure.error.message}")
        new = old.without(doomed, failed_entries(told))
        self.state.state.forget_filled(self.journal.identity.bundle_id)
        if not new.images:
            self.unfinished.discard(self.journal.identity.bundle_id)
            self.state.save(force=True)
            raise_all([failure.error for failure in told])
        placed = dict(self.journal.placed_bytes)
        self.journal.change_plan(new, {})
        with ChunkFiles(self._folder, old.chunks) as before, ChunkFiles(self._folder, new.chunks) as after:
            for digest, size in move_blobs(before, after, old, new, placed, self.stop):
                self.journal.record(digest, size)

    def _seal(self) -> Mapping[str, int]:
        plan, identity = self.journal.plan, self.journal.identity
        final = self.unfinished.output_path / identity.bundle_id
        with ChunkFiles(self._folder, plan.chunks) as files:
            seal(
                files,
                plan,
                identity,
                self.sign,
                final,
                jobs=self.jobs,
                stop=self.stop,
                progress=self.progress,
            )
        self.state.state.record_sealed(bundle_manifest_of(plan, identity))
        self.state.save(force=True)
        self.journal.close()
        self.unfinished.forget(identity.bundle_id)
        return bundle_file_sizes(plan, identity, (final / SIGNATURE_NAME).stat().st_size)

    @property
    def _folder(self) -> Path:
        return self.unfinished.folder(self.journal.identity.bundle_id)


def _first_error(image: Image, failures: Mapping[Digest, TransloadError]) -> TransloadError:
    return next(failures[one.digest] for one in image.descriptors() if one.digest in failures)
