"""The whole export: select, resolve, plan, fill, seal, remember.

What is durable, in this order: the exporter's id in state.yml; the journal with the frozen plan; the chunks; the
sealed folder under its final name; the bundle in state.yml; the journal gone. After a crash between any two of
these the next run sees from what is there how far it came, and goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from transload.export_side.build import BundleBuild
from transload.export_side.delivered import Carried, Deliveries, moved_references
from transload.export_side.descriptions import describe
from transload.export_side.documents import bundle_file_sizes
from transload.export_side.export_state import ExportState
from transload.export_side.journal import BundleIdentity, Journal
from transload.export_side.ngc.endpoints import NgcEndpoints
from transload.export_side.ngc.source import NgcSource
from transload.export_side.plan import make_plan
from transload.export_side.request import ExportRequest
from transload.export_side.resolve import SourceRegistries, resolve
from transload.export_side.result import ExportResult, failed_entries
from transload.export_side.selection import Failure, Selection, Wanted, select
from transload.export_side.unfinished import UnfinishedBundles
from transload.manifests import bundle_manifest
from transload.manifests.checksums_file import FILE_NAME as SUMS_NAME
from transload.shared import limits
from transload.shared.atomic_files import read_bounded
from transload.shared.digests import Digest
from transload.shared.errors import AlreadyExists, InvalidConfiguration, UnfinishedBundle, raise_all
from transload.shared.progress import Progress
from transload.shared.registry.options import RegistryDirectory
from transload.shared.state_file import FILE_NAME, StateFile, read_state
from transload.shared.workers import Stop

_NAMED_AT_MOST = 5

Sign = Callable[[bytes], bytes]

DEFAULT_JOBS = 4
ED25519_SIGNATURE_BYTES = 310
"""An armoured SSHSIG by an ed25519 key for this namespace; what a dry run without a key assumes."""


@dataclass(frozen=True)
class Exporter:
    """One run of `transload export`.

    Args:
        request: What is to be in the bundle.
        output_path: Where bundles and state.yml are.
        registries: Logins and trust.
        sign: From SHA256SUMS to its signature; None only for a dry run.
        jobs: How many requests, blobs or chunks at once.
        again: Export what earlier bundles bring, too.
        restart: Throw an unfinished bundle away first.
        stop: Ends the run.
        progress: Where long steps are shown.
        now: The clock; `SOURCE_DATE_EPOCH` in the environment goes before it.
        ngc: Where NGC's catalogue is.
    """

    request: ExportRequest
    output_path: Path
    registries: RegistryDirectory
    sign: Sign | None
    jobs: int
    again: bool
    restart: bool
    stop: Stop
    progress: Progress
    now: Callable[[], datetime] = field(default=lambda: datetime.now(timezone.utc))
    ngc: NgcEndpoints = field(default_factory=NgcEndpoints)

    def dry_run(self) -> ExportResult:
        """Say what `run` would do, and write nothing.

        Raises:
            TransloadError: What `run` would raise before it fetches.
        """
        self._check_output_path()
        state = read_state(self.output_path / FILE_NAME, ExportState) or ExportState.fresh()
        with SourceRegistries(self.registries, self.stop) as sources:
            unfinished = UnfinishedBundles(self.output_path)
            bundle_id = None if self.restart else unfinished.find(self.request.destination)
            journal = Journal.read(unfinished.journal_path(bundle_id)) if bundle_id else None
            if journal is not None and not self._is_sealed(journal, unfinished, state):
                self._check_same_request(journal)
                result = ExportResult(self.request.destination, plan=journal.plan, identity=journal.identity)
                result.was_resumed, result.failed = True, list(journal.plan.failed)
            else:
                result, _ = self._plan(state, sources)
        result.is_dry_run = True
        if result.plan is not None and result.identity is not None:
            signature = len(self.sign(b"how long is a signature?\n")) if self.sign else ED25519_SIGNATURE_BYTES
            if self.sign is None:
                result.notes.append("No --sign-key given: the size of an ed25519 signature is assumed.")
            _note_size(result, bundle_file_sizes(result.plan, result.identity, signature))
        return result

    def run(self) -> ExportResult:
        """Make a bundle, or find that there is nothing new.

        Raises:
            TransloadError: There is no new bundle; if one was begun, the next run goes on with it.
        """
        if self.sign is None:
            raise InvalidConfiguration("A bundle must be signed.", hint="Name a key with --sign-key FILE.")
        self._check_output_path()
        path = self.output_path / FILE_NAME
        with (
            StateFile.open(path, ExportState, ExportState.fresh) as state,
            SourceRegistries(self.registries, self.stop) as sources,
        ):
            return self._run(state, sources, self.sign)

    def _check_output_path(self) -> None:
        """Refuse to put anything into a sealed bundle: a file that it does not list makes it invalid."""
        if os.path.lexists(self.output_path / SUMS_NAME):
            raise InvalidConfiguration(
                f"--output-path {self.output_path} is a sealed bundle: it holds {SUMS_NAME}.",
                hint="Name the folder that bundles and state.yml are in, or a new one.",
                path=str(self.output_path),
            )

    def _run(self, state: StateFile[ExportState], sources: SourceRegistries, sign: Sign) -> ExportResult:
        unfinished = UnfinishedBundles(self.output_path)
        contents: dict[Digest, bytes] = {}
        journal = self._unfinished_journal(unfinished, state)
        if isinstance(journal, ExportResult):
            return journal
        if journal is not None:
            result = self._resumed(journal, sources)
        else:
            result, contents = self._plan(state.state, sources)
            if result.plan is None or result.identity is None:
                return result
            state.save(force=True)  # the exporter's id, before anything carries it
            journal = unfinished.begin(self.request.fingerprint, result.identity, result.plan)
        build = BundleBuild(journal, unfinished, state, sources, contents, sign, self.jobs, self.stop, self.progress)
        sizes = build.run()
        result.plan, result.failed = journal.plan, list(journal.plan.failed)
        result.path = self.output_path / journal.identity.bundle_id
        _note_size(result, sizes)
        return result

    def _unfinished_journal(
        self, unfinished: UnfinishedBundles, state: StateFile[ExportState]
    ) -> Journal | ExportResult | None:
        """The journal to go on with; or what a crashed run had already come to; or None to begin."""
        bundle_id = unfinished.find(self.request.destination)
        if bundle_id is None:
            return None
        if self.restart and not (self.output_path / bundle_id).exists():
            state.state.forget_filled(bundle_id)
            state.save(force=True)
            unfinished.discard(bundle_id)
            return None
        journal = Journal.read(unfinished.journal_path(bundle_id))
        if self._is_sealed(journal, unfinished, state.state):
            return self._remember_sealed(journal, unfinished, state)
        self._check_same_request(journal)
        if journal.identity.exporter != state.state.exporter:
            raise UnfinishedBundle(
                f"The unfinished bundle {bundle_id} was begun by another exporter (or with another state.yml).",
                hint="Bring its state.yml back, or throw the bundle away with --restart.",
                bundle=bundle_id,
            )
        return journal

    def _check_same_request(self, journal: Journal) -> None:
        if journal.fingerprint != self.request.fingerprint:
            raise UnfinishedBundle(
                f"Another request for destination {self.request.destination!r} has an unfinished bundle: "
                f"{journal.identity.bundle_id}. It asked for {_some_of(journal.asked_for)}.",
                hint="Run that request's command again to finish it, or throw it away with --restart. "
                "`transload status` shows how far it is.",
                bundle=journal.identity.bundle_id,
                references=journal.asked_for[:20],
            )

    def _is_sealed(self, journal: Journal, unfinished: UnfinishedBundles, state: ExportState) -> bool:
        return unfinished.is_sealed(journal.identity.bundle_id, self.request.destination, state)

    def _remember_sealed(
        self, journal: Journal, unfinished: UnfinishedBundles, state: StateFile[ExportState]
    ) -> ExportResult | None:
        """A run was killed after the seal and before it could say so."""
        identity, final = journal.identity, self.output_path / journal.identity.bundle_id
        if final.exists():
            raw = read_bounded(final / bundle_manifest.FILE_NAME, limits.MAX_BUNDLE_MANIFEST_BYTES)
            state.state.record_sealed(bundle_manifest.decode(raw))
            state.save(force=True)
        unfinished.forget(identity.bundle_id)
        if not final.exists() or journal.fingerprint != self.request.fingerprint or self.restart:
            return None
        result = ExportResult(self.request.destination, identity=identity, path=final, plan=journal.plan)
        result.was_resumed, result.failed = True, list(journal.plan.failed)
        _note_size(result, {str(path): path.stat().st_size for path in final.rglob("*") if path.is_file()})
        return result

    def _resumed(self, journal: Journal, sources: SourceRegistries) -> ExportResult:
        result = ExportResult(self.request.destination, identity=journal.identity, plan=journal.plan, was_resumed=True)
        self.progress.note(f"Going on with the unfinished bundle {journal.identity.bundle_id}.")
        result.moved = moved_references(journal.plan.images, sources.current_digest, jobs=self.jobs, stop=self.stop)
        for image, now in result.moved:
            result.notes.append(
                f"{image.reference} has moved since the bundle was begun: the bundle has {image.source_digest}, "
                f"the registry now {now or 'nothing'}. Export again afterwards, or begin anew with --restart."
            )
        return result

    def _plan(self, state: ExportState, sources: SourceRegistries) -> tuple[ExportResult, dict[Digest, bytes]]:
        """Find out what is new; without anything new the result has no plan."""
        with NgcSource(self.registries, self.ngc, self.stop) as ngc:
            selection = select(
                self.request,
                sources.list_tags,
                look_up=ngc.repositories,
                dates_of=lambda repository, tags: ngc.dates(sources.client(repository), repository, tags),
                stop=self.stop,
            )
            selection.notes[:0] = ngc.take_notes()
        result = ExportResult(self.request.destination, notes=list(selection.notes))
        deliveries = Deliveries(state, self.request.destination)
        carried = self._unchanged(selection, deliveries, sources)
        resolved = resolve(
            [one for one in selection.wanted if one not in carried], sources, jobs=self.jobs, stop=self.stop
        )
        failures = [*selection.failures, *resolved.failures]
        plan = make_plan(resolved.images, failed_entries(failures), self.request.chunk_size_bytes)
        result.carried = list(carried.values())
        if not self.again:
            found = {image: one for image in plan.images if (one := deliveries.of_image(image)) is not None}
            result.carried += found.values()
            plan = plan.without(found.keys(), [])
        result.failed = list(plan.failed)
        plan = replace(plan, descriptions=describe(plan.images, ngc.about))
        if not plan.images:
            if failures and not result.carried:
                _raise(failures)
            return result, {}
        result.plan, result.identity = plan, self._identity(state)
        final = self.output_path / result.identity.bundle_id
        if os.path.lexists(final):
            raise AlreadyExists(f"{final} already exists.", hint="Move it away first.", path=str(final))
        return result, resolved.contents

    def _unchanged(
        self, selection: Selection, deliveries: Deliveries, sources: SourceRegistries
    ) -> Mapping[Wanted, Carried]:
        if self.again:
            return {}
        return deliveries.unchanged(selection.wanted, sources.current_digest, jobs=self.jobs, stop=self.stop)

    def _identity(self, state: ExportState) -> BundleIdentity:
        created, sequence = self._created(), state.next_sequence(self.request.destination)
        return BundleIdentity(
            bundle_id=f"{self.request.destination}-{sequence:04d}-{created:%Y%m%d}-{state.exporter[:4]}",
            exporter=state.exporter,
            destination=self.request.destination,
            sequence=sequence,
            previous=state.previous_bundle(self.request.destination),
            created=f"{created:%Y-%m-%dT%H:%M:%SZ}",
        )

    def _created(self) -> datetime:
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch is None:
            return self.now().astimezone(timezone.utc)
        try:
            return datetime.fromtimestamp(int(epoch), timezone.utc)
        except (ValueError, OverflowError, OSError) as error:
            raise InvalidConfiguration(
                f"SOURCE_DATE_EPOCH is {epoch[:40]!r}; it must be a number of seconds since 1970."
            ) from error


def _some_of(references: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = len(references) - _NAMED_AT_MOST
    return ", ".join(references[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def _note_size(result: ExportResult, sizes: Mapping[str, int]) -> None:
    result.size_bytes, result.file_count = sum(sizes.values()), len(sizes)


def _raise(failures: Sequence[Failure]) -> None:
    """Every image failed: the run ends with their own errors."""
    raise_all([failure.error for failure in failures])
