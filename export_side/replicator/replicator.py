"""A whole run of the replicator: select, compare, save, push, describe; state.yml is saved after every image."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from transload.export_side.ngc.answers import CatalogImage, TagDetails
from transload.export_side.ngc.catalog import NgcCatalog
from transload.export_side.ngc.endpoints import NgcEndpoints
from transload.export_side.replicator import state as states
from transload.export_side.replicator.changes import Changes, Comparison
from transload.export_side.replicator.descriptions import write_descriptions
from transload.export_side.replicator.external_images import read_external_images
from transload.export_side.replicator.progress_posts import ProgressPosts
from transload.export_side.replicator.pushing import ReplicaPush
from transload.export_side.replicator.request import ReplicatorRequest
from transload.export_side.replicator.result import ReplicationResult
from transload.export_side.replicator.saving import ReplicaSaving
from transload.export_side.replicator.selection import ReplicaSelection, select_images, select_tags
from transload.export_side.replicator.state import ReplicatorState
from transload.export_side.resolve import SourceRegistries
from transload.export_side.selection import Failure
from transload.shared.errors import EngineUnavailable
from transload.shared.progress import Progress
from transload.shared.registry.options import RegistryDirectory
from transload.shared.state_file import FILE_NAME, StateFile
from transload.shared.workers import Stop

_QUERY, _DESCRIPTIONS = "query", "markdown"
_NO_SIF = (
    "SIF images cannot be built by this version: {names} {are} missing. Everything else that was asked for is made."
)


@dataclass
class Replicator:
    """One run.

    Args:
        request: What is asked for.
        registries: Logins and trust.
        endpoints: Where NGC is.
        api_key: For NGC's catalogue; None for what is public.
        stop: Ends the run.
        progress: Where long steps are shown.
    """

    request: ReplicatorRequest
    registries: RegistryDirectory
    endpoints: NgcEndpoints
    api_key: str | None
    stop: Stop
    progress: Progress
    _result: ReplicationResult = field(default_factory=ReplicationResult, init=False)

    def dry_run(self) -> ReplicationResult:
        """Find out what would be done; nothing is written.

        Raises:
            TransloadError: See `run`.
        """
        state = states.look(self.request.output_path / FILE_NAME, self.endpoints.registry)
        with self._sources() as (sources, catalog):
            _, selection = self._select(sources, catalog)
            self._result.planned = self._compare(selection, state, sources, catalog).images
        return self._finished()

    def run(self) -> ReplicationResult:
        """Do it.

        Raises:
            Locked: Another run works in the same folder.
            StateUnreadable: state.yml cannot be understood.
            NothingSelected: NGC has no such project, or it no such image.
            TransloadError: Everything failed; the gravest reason.
        """
        posts = ProgressPosts(self.request.progress_uri)
        path = self.request.output_path / FILE_NAME
        with (
            StateFile.open(
                path, ReplicatorState, ReplicatorState.fresh,
                upgrade=lambda raw, where: states.upgrade_file(raw, where, self.endpoints.registry),
            ) as file,
            self._sources() as (sources, catalog),
        ):  # fmt: skip
            # 1. What is wanted, and what of it is not there yet.
            posts.add(_QUERY, "Getting list of Docker images to clone")
            posts.update(_QUERY, "running")
            described, selection = self._select(sources, catalog)
            changes = self._compare(selection, file.state, sources, catalog)
            self._result.planned = changes.images
            for one in changes.images:
                posts.add(one.step, f"Cloning {one.step}", "Waiting to pull image")
            posts.add(_DESCRIPTIONS, "Downloading NVIDIA Deep Learning READMEs")
            posts.is_length_known = True
            posts.update(_QUERY, "complete")
            # 2. Whether the other registry takes anything, before the first layer moves.
            push = ReplicaPush(self.request, self.registries, sources, file, self._result, self.stop, self.progress)
            push.prepare(changes.images)
            # 3. Files, and the local Docker; then the other registry, all images together.
            saving = ReplicaSaving(
                self.request, sources, changes.contents, file, self._result, posts, self.stop, self.progress
            )
            with contextlib.closing(push):
                push.run(posts, saving.run(changes.images))
            # 4. Descriptions.
            self._note_missing_sifs(selection, file.state)
            posts.update(_DESCRIPTIONS, "running")
            here = {one.name for one in selection.candidates if file.state.record_of(one) is not None}
            self._result.failures += write_descriptions(
                self.request.output_path, [image for image in described if image.path in here]
            )
            posts.update(_DESCRIPTIONS, "complete")
            file.save(force=True)
        return self._finished()

    @contextlib.contextmanager
    def _sources(self) -> Iterator[tuple[SourceRegistries, NgcCatalog]]:
        catalog = NgcCatalog(
            api_base=self.endpoints.api,
            auth_base=self.endpoints.auth,
            api_key=self.api_key,
            stop=self.stop,
            ca_cert=self.registries.settings_for(self.endpoints.registry).ca_cert,
        )
        with contextlib.closing(catalog), SourceRegistries(self.registries, self.stop) as sources:
            yield sources, catalog

    def _select(
        self, sources: SourceRegistries, catalog: NgcCatalog
    ) -> tuple[list[CatalogImage], ReplicaSelection]:  # fmt: skip
        external = read_external_images(self.request.external_images) if self.request.external_images else []
        images = select_images(catalog.images(self.request.project), self.request)
        selection = select_tags(images, self.request, self.endpoints.registry, sources.list_tags, stop=self.stop)
        if not selection.candidates and not selection.failures:
            selection.notes.append(
                f"No tag of {', '.join(image.path for image in images[:8])} passes the filters "
                "(--min-version, --py-version); nothing is to be done for NGC."
            )
        selection.candidates += external
        self._result.failures += selection.failures
        self._result.notes += [*catalog.notes, *selection.notes]
        self._result.problems = catalog.problems  # it grows while dates of tags are asked for
        return images, selection

    def _compare(
        self, selection: ReplicaSelection, state: ReplicatorState, sources: SourceRegistries, catalog: NgcCatalog
    ) -> Changes:
        @cache
        def details(path: str) -> Mapping[str, TagDetails]:
            return catalog.tag_details(path)

        changes = Comparison(self.request, state, sources, details, self.stop).changes(selection.candidates)
        self._result.unchanged = changes.unchanged
        self._result.failures += changes.failures
        self._result.notes += changes.notes
        return changes

    def _note_missing_sifs(self, selection: ReplicaSelection, state: ReplicatorState) -> None:
        if not self.request.makes_sifs:
            return
        records = {one: state.record_of(one) for one in selection.candidates}
        missing = [
            one.sif_name
            for one, record in records.items()
            if record is None or not (record.sif or record.from_old_tool)
        ]
        if missing:
            message = _NO_SIF.format(names=", ".join(missing), are="are" if len(missing) > 1 else "is")
            hint = (
                "Meanwhile: `apptainer build FILE.sif docker-archive:FILE.tar`, where FILE.tar is a link to the "
                "docker-save file, because Apptainer takes no colons in that name."
            )
            self._result.failures.append(Failure("--singularity", EngineUnavailable(message, hint=hint)))

    def _finished(self) -> ReplicationResult:
        self._result.raise_if_nothing_went_well()
        return self._result
