"""The part of a run that writes docker-save files and fills the local Docker, image after image."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from transload.export_side.replicator.local_docker import find_docker, keep
from transload.export_side.replicator.names import Candidate
from transload.export_side.replicator.progress_posts import ProgressPosts
from transload.export_side.replicator.request import ReplicatorRequest
from transload.export_side.replicator.result import ReplicationResult
from transload.export_side.replicator.state import ReplicaRecord, ReplicatorState
from transload.export_side.replicator.tar_file import TarWriter, blob_bytes
from transload.export_side.resolve import SourceRegistries
from transload.export_side.selection import Failure
from transload.shared.digests import Digest
from transload.shared.docker_engine import DockerEngine
from transload.shared.image import Image
from transload.shared.progress import Progress
from transload.shared.state_file import StateFile
from transload.shared.workers import Stop, attempt


@dataclass
class ReplicaSaving:
    """The files of one run.

    Args:
        request: What is asked for.
        sources: Where the images come from.
        contents: Documents and configs whose bytes are at hand.
        file: The state, told of every file as soon as it is complete.
        result: Told what was made and what was not.
        posts: Told of every step.
        stop: Ends the run.
        progress: Where the fetching is shown.
    """

    request: ReplicatorRequest
    sources: SourceRegistries
    contents: Mapping[Digest, bytes]
    file: StateFile[ReplicatorState]
    result: ReplicationResult
    posts: ProgressPosts
    stop: Stop
    progress: Progress

    def run(self, images: Mapping[Candidate, Image]) -> list[Candidate]:
        """Save every image; one that fails does not stop the others.

        Returns:
            Those that failed.
        """
        writer = TarWriter(self.request.output_path, self.request.jobs, self.stop)
        writer.remove_leftovers()
        failed = []
        with contextlib.ExitStack() as stack:
            engine = self._engine() if self.request.keeps_in_docker and images else None
            if engine is not None:
                stack.callback(engine.close)
            for one, image in images.items():
                outcome = attempt(one, lambda one, image=image: self._save(one, image, writer, engine))  # type: ignore[misc]
                if outcome.error is not None:
                    self.result.failures.append(Failure(one.url, outcome.error))
                    self.posts.update(one.step, "error", outcome.error.reference)
                    failed.append(one)
        return failed

    def _engine(self) -> DockerEngine | None:
        engine, why_not = find_docker()
        if engine is None:
            self.result.notes.append(f"--no-remove: no image stays in Docker. {why_not}")
        return engine

    def _save(self, one: Candidate, image: Image, writer: TarWriter, engine: DockerEngine | None) -> None:
        is_last_step = self.request.registry_url is None
        if self.request.makes_tars and not self._has_file(one, image):
            self.posts.update(one.step, "running", "Saving image to tarfile")
            self._write(one.tar_name, one, image, writer)
            self._record(one, image).tar = one.tar_name
            self.file.save(force=True)
            self.result.tars.append(one.tar_name)
            self.posts.update(one.step, "complete" if is_last_step else "running", f"Saved {one.tar_name}")
        if engine is not None:
            self.posts.update(one.step, "running", "Loading image into Docker")
            self._keep(one, image, writer, engine)
            self.posts.update(one.step, "complete" if is_last_step else "running", "Kept in Docker")

    def _has_file(self, one: Candidate, image: Image) -> bool:
        record = self.file.state.record_of(one)
        return record is not None and record.digest == str(image.source_digest) and bool(record.tar)

    def _keep(self, one: Candidate, image: Image, writer: TarWriter, engine: DockerEngine) -> None:
        """Load an image from its file, or from one that is there for so long only."""
        tar = self.request.output_path / one.tar_name
        is_temporary = not (self.request.makes_tars and tar.is_file())
        if is_temporary:
            tar = self._write(f".{one.tar_name}", one, image, writer)
        try:
            keep(engine, image, tar)
        finally:
            if is_temporary:
                with contextlib.suppress(OSError):
                    tar.unlink()
        self._record(one, image)
        self.file.save(force=True)
        self.result.kept.append(one.url)

    def _record(self, one: Candidate, image: Image) -> ReplicaRecord:
        record = self.file.state.begin(one, str(image.source_digest))
        record.touch()
        return record

    def _write(self, name: str, one: Candidate, image: Image, writer: TarWriter) -> Path:
        with self.progress.stage(f"Fetching {one.step}", blob_bytes(image)) as stage:
            return writer.write(
                name,
                image,
                self.contents,
                lambda descriptor: self.sources.pieces(image.reference, descriptor, 0),
                stage,
            )
