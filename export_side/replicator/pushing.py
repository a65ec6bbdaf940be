"""Pushing to the other registry as `<registry-url>/<image>:<tag>`, with the same digests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from transload.export_side.replicator.names import Candidate
from transload.export_side.replicator.progress_posts import ProgressPosts
from transload.export_side.replicator.replica_blobs import ReplicaBlobs
from transload.export_side.replicator.request import ReplicatorRequest
from transload.export_side.replicator.result import ReplicationResult
from transload.export_side.replicator.state import ReplicatorState
from transload.export_side.resolve import SourceRegistries
from transload.export_side.selection import Failure
from transload.shared.errors import TargetNamesCollide, TransloadError
from transload.shared.image import Image
from transload.shared.progress import Progress
from transload.shared.registry.options import RegistryDirectory
from transload.shared.sinks.base import Wanted
from transload.shared.sinks.registry_sink import RegistrySink
from transload.shared.state_file import StateFile
from transload.shared.workers import Stop


@dataclass
class ReplicaPush:
    """The pushes of one run; does nothing where no registry was named.

    Args:
        request: What is asked for.
        registries: Logins and trust.
        sources: Where the images come from.
        file: The state, told of every image that is there.
        result: Told what was pushed and what was not.
        stop: Ends the run.
        progress: Where the pushing is shown.
    """

    request: ReplicatorRequest
    registries: RegistryDirectory
    sources: SourceRegistries
    file: StateFile[ReplicatorState]
    result: ReplicationResult
    stop: Stop
    progress: Progress
    _sink: RegistrySink | None = None
    _wanted: dict[Candidate, Wanted] = field(default_factory=dict)

    def prepare(self, images: Mapping[Candidate, Image]) -> None:
        """Name every image, and see whether the registry answers and lets us in.

        A registry that does not is a failure of the pushes alone: files are still made.
        """
        if self.request.registry_url is None or self.request.registry_host is None:
            return
        names: dict[str, Candidate] = {}
        for one, image in images.items():
            record = self.file.state.record_of(one)
            is_same = record is not None and record.digest == str(image.source_digest)
            if is_same and record is not None and self.request.registry_url in record.registries:
                continue
            try:
                target = one.target(self.request.registry_url)
                if (other := names.setdefault(target, one)) is not one:
                    raise TargetNamesCollide(f"{other.url} and {one.url} would both be called {target}.")
            except TransloadError as error:
                self.result.failures.append(Failure(one.url, error))
            else:
                self._wanted[one] = Wanted(image, target)
        if not self._wanted:
            return
        settings = self.registries.settings_for(self.request.registry_host)
        sink = RegistrySink(settings, jobs=self.request.jobs, stop=self.stop)
        try:
            sink.check(list(self._wanted.values()))
        except TransloadError as error:
            sink.close()
            self.result.failures.append(Failure(f"--registry-url={self.request.registry_url}", error))
            self._wanted.clear()
        else:
            self._sink = sink

    def run(self, posts: ProgressPosts, not_saved: Collection[Candidate]) -> None:
        """Push every image; one that fails does not stop the others.

        Args:
            posts: Told of every step.
            not_saved: Images that could not be had; they are not tried again.
        """
        for one in not_saved:
            self._wanted.pop(one, None)
        if self._sink is None or not self._wanted:
            return
        blobs = ReplicaBlobs(self.sources)
        for one, wanted in self._wanted.items():
            blobs.add(wanted.image, self.request.output_path / one.tar_name if self.request.makes_tars else None)
            posts.update(one.step, "running", "Pushing image to registry")
        candidates = {wanted.target: one for one, wanted in self._wanted.items()}
        delivered = self._sink.deliver(
            list(self._wanted.values()), blobs, stop=self.stop, progress=self.progress
        )  # fmt: skip
        for outcome in delivered:
            one = candidates[outcome.item.target]
            if outcome.error is not None:
                self.result.failures.append(Failure(outcome.item.target, outcome.error))
                posts.update(one.step, "error", outcome.error.reference)
            elif outcome.result is not None:
                self.result.pushed.append(outcome.item.target)
                self._record(one, outcome.item.image)
                posts.update(one.step, "complete", f"Pushed {outcome.item.target}")

    def close(self) -> None:
        """Give up connections."""
        if self._sink is not None:
            self._sink.close()

    def _record(self, one: Candidate, image: Image) -> None:
        record = self.file.state.begin(one, str(image.source_digest))
        if self.request.registry_url is not None and self.request.registry_url not in record.registries:
            record.registries.append(self.request.registry_url)
        record.touch()
        self.file.save(force=True)
