"""A whole import: verify, accept, name, ask the targets, deliver, remember.

    1. the bundle's checks 1 to 4                   `verified_bundle`
    2. destination, sequence, replay                `acceptance`
    3. which images, and their names at each target `target_names`
    4. every target is asked before the first byte  `Sink.check`
    5. with --verify-first, every block
    6. delivery; the state is saved after each image

Nothing is delivered if 1, 2, 3 or 5 find a fault. In 4 and 6 a target or image that fails stops no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from transload.import_side.acceptance import Acceptance, accept, moves_back
from transload.import_side.descriptions import write_descriptions
from transload.import_side.import_state import ImportState
from transload.import_side.target_names import Rename, idle_rules, plan_targets, select_entries
from transload.import_side.targets import Target
from transload.import_side.verification import Verification, check_blocks
from transload.import_side.verified_bundle import VerifiedBundle
from transload.manifests.bundle_manifest import ImageEntry
from transload.shared.digests import Digest
from transload.shared.errors import (
    EXIT_DONE,
    EXIT_PARTIAL,
    ArchiveInconsistent,
    Faults,
    InvalidConfiguration,
    MalformedBundle,
    TransloadError,
    raise_all,
)
from transload.shared.image import Image
from transload.shared.progress import Progress
from transload.shared.signing.allowed_signers import AllowedSigners
from transload.shared.sinks.base import Delivery, Wanted
from transload.shared.state_file import StateFile, read_state
from transload.shared.workers import Stop

_FIRST_BUNDLE_FAMILY, _LAST_BUNDLE_FAMILY = 50, 79


@dataclass(frozen=True)
class ImportRequest:
    """What is to be imported, and how.

    Args:
        folder: Where the bundle lies.
        trust: Who may sign.
        at: When the signer's key must be valid.
        signer: The principal that must have signed, or None for anyone in `trust`.
        state_path: The importer's state.yml.
        images: `--image`: full references or endings; empty for all.
        renames: `--rename`.
        destination: The destination name to pin, or None for the bundle's own.
        allow_older: Accept an older bundle, and set references back to what it holds.
        verify_first: Check every block before the first delivery.
        is_dry_run: Say what would be done; change nothing.
        jobs: Number of threads.
        descriptions: Where what the bundle says about its images is written; None for nowhere.
    """

    folder: Path
    trust: AllowedSigners
    at: datetime
    signer: str | None
    state_path: Path
    images: Sequence[str] = ()
    renames: Sequence[Rename] = ()
    destination: str | None = None
    allow_older: bool = False
    verify_first: bool = False
    is_dry_run: bool = False
    jobs: int = 4
    descriptions: Path | None = None


@dataclass(frozen=True)
class Delivered:
    """An outcome at one target: a delivery, or why there was none.

    Args:
        sink: The target's identity.
        image_name: The image's name in the bundle.
        target: Its name at the target.
        digest: What it should hold.
        source_digest: What the reference resolved to at its source.
        delivery: What became of it.
        error: Why it failed.
    """

    sink: str
    image_name: str
    target: str
    digest: Digest
    source_digest: Digest
    delivery: Delivery | None
    error: TransloadError | None


@dataclass
class ImportResult:
    """What an import did.

    Attributes:
        request: What was asked for.
        bundle: The bundle; closed.
        acceptance: Whether it was new, and what is missing before it.
        started: When the import began.
        finished: When it ended.
        outcomes: One for each image and target.
    """

    request: ImportRequest
    bundle: VerifiedBundle
    acceptance: Acceptance
    started: datetime
    finished: datetime
    outcomes: list[Delivered] = field(default_factory=list)

    @property
    def failures(self) -> list[TransloadError]:
        """Why images were not delivered."""
        return [outcome.error for outcome in self.outcomes if outcome.error]

    @property
    def exit_code(self) -> int:
        """How the run ends.

        0 if every image is where it should be. Otherwise, the first that fits: the gravest code of damage to the bundle
        (50 to 79), whatever else failed; the gravest code of the failures if nothing was delivered at all; 3 if some
        images were delivered and the rest are named.
        """
        failures = self.failures
        if not failures:
            return EXIT_DONE
        damage = [one for one in failures if _FIRST_BUNDLE_FAMILY <= one.exit_code <= _LAST_BUNDLE_FAMILY]
        if damage:
            return Faults(damage).exit_code
        return EXIT_PARTIAL if len(failures) < len(self.outcomes) else Faults(failures).exit_code


def import_bundle(
    request: ImportRequest, targets: Sequence[Target], *, stop: Stop, progress: Progress, warn: Callable[[str], None]
) -> ImportResult:
    """Do a whole import.

    Args:
        request: What and how.
        targets: Where to; closed by the caller.
        stop: Ends it early.
        progress: Where to show how far it is.
        warn: Told at once what a person should know before the first byte moves, such as a gap in the sequence.

    Raises:
        TransloadError: Nothing was delivered, for the reason given. Failures of single images are in the result.
    """
    started = _now()
    # 1. The bundle.
    bundle = VerifiedBundle.open(request.folder, trust=request.trust, at=request.at, signer=request.signer)
    try:
        if request.is_dry_run:
            state = read_state(request.state_path, ImportState) or ImportState.fresh()
            run = _Run(request, bundle, targets, state, lambda: None, stop, progress)
            acceptance, outcomes = run.plan_only(warn)
        else:
            with StateFile.open(request.state_path, ImportState, ImportState.fresh) as file:
                run = _Run(request, bundle, targets, file.state, file.save, stop, progress)
                acceptance, outcomes = run.deliver(warn)
                file.save(force=True)
    finally:
        bundle.close()
    return ImportResult(request, bundle, acceptance, started, _now(), outcomes)


class _Run:
    def __init__(
        self,
        request: ImportRequest,
        bundle: VerifiedBundle,
        targets: Sequence[Target],
        state: ImportState,
        save: Callable[[], None],
        stop: Stop,
        progress: Progress,
    ) -> None:
        self._request, self._bundle, self._targets = request, bundle, targets
        self._state, self._save, self._stop, self._progress = state, save, stop, progress
        self._outcomes: list[Delivered] = []
        self._is_accepted = False

    def plan_only(self, warn: Callable[[str], None]) -> tuple[Acceptance, list[Delivered]]:
        """What would be delivered; targets are not asked."""
        acceptance, plans = self._prepare(warn)
        for target, wanted in plans:
            for one in self._not_moving_back(target, wanted):
                self._add(target, one, Delivery(one, "delivered", one.image.digest), None)
        return acceptance, self._outcomes

    def deliver(self, warn: Callable[[str], None]) -> tuple[Acceptance, list[Delivered]]:
        """Deliver, and remember."""
        acceptance, plans = self._prepare(warn)
        # 4. Every target is asked before the first byte.
        ready = self._ask_targets(plans)
        # 5. Every block.
        if self._request.verify_first:
            self._check_every_block()
        # 6. Delivery.
        self._remember_acceptance()
        if self._request.descriptions is not None:
            count = write_descriptions(self._bundle, self._request.descriptions)
            self._progress.note(f"{count} descriptions of images are in {self._request.descriptions}.")
        for target, wanted in ready:
            for outcome in target.sink.deliver(wanted, self._bundle, stop=self._stop, progress=self._progress):
                self._add(target, outcome.item, outcome.result, outcome.error)
                self._save()
        self._state.record_finished(
            self._bundle.manifest,
            is_complete=self._is_all_done(),
        )
        return acceptance, self._outcomes

    def _is_all_done(self) -> bool:
        """Whether every image of the bundle is dealt with: by this run, or delivered by an earlier one."""
        if any(outcome.error for outcome in self._outcomes):
            return False
        done = {outcome.image_name for outcome in self._outcomes}
        held = {record.digest for targets in self._state.deliveries.values() for record in targets.values()}
        return all(entry.name in done or entry.digest in held for entry in self._bundle.manifest.images)

    def _prepare(self, warn: Callable[[str], None]) -> tuple[Acceptance, list[tuple[Target, list[Wanted]]]]:
        manifest = self._bundle.manifest
        # 2. Destination, sequence, replay.
        self._pin_destination()
        acceptance = accept(
            self._state,
            manifest,
            checksums_digest=str(self._bundle.checksums_digest),
            allow_older=self._request.allow_older,
        )
        for note in self._bundle.notes:
            self._progress.note(note)
        for note in acceptance.notes:
            (warn if acceptance.is_new else self._progress.note)(note)
        # 3. Images and their names.
        images, spoiled = self._images()
        for rule in idle_rules(self._request.renames, [image.name for image in images]) if images else ():
            warn(f"--rename {rule} fits none of these images; FROM is the beginning of a name, in whole components.")
        plans = [(target, plan_targets(images, self._request.renames, target.name_at)) for target in self._targets]
        for target, _ in plans:
            for entry, error in spoiled:
                self._add_spoiled(target, entry, error)
        return acceptance, plans

    def _pin_destination(self) -> None:
        asked = self._request.destination
        if asked is None:
            return
        if self._state.destination and self._state.destination != asked:
            raise InvalidConfiguration(
                f"This importer is pinned to destination {self._state.destination!r}, not {asked!r}.",
                hint="Leave --destination out, or use another --state file for the other destination.",
            )
        self._state.destination = asked

    def _images(self) -> tuple[list[Image], list[tuple[ImageEntry, TransloadError]]]:
        """The images asked for, and those that damage has spoiled."""
        chosen = {entry.name for entry in select_entries(self._bundle.manifest.images, self._request.images)}
        outcomes = list(self._bundle.image_outcomes())
        # Documents that contradict each other are a fault of the bundle, not of one image.
        raise_all([
            outcome.error
            for outcome in outcomes
            if isinstance(outcome.error, (MalformedBundle, ArchiveInconsistent))
        ])  # fmt: skip
        outcomes = [outcome for outcome in outcomes if outcome.item.name in chosen]
        images = [outcome.result for outcome in outcomes if outcome.result]
        return images, [(outcome.item, outcome.error) for outcome in outcomes if outcome.error]

    def _ask_targets(self, plans: Sequence[tuple[Target, list[Wanted]]]) -> list[tuple[Target, list[Wanted]]]:
        ready: list[tuple[Target, list[Wanted]]] = []
        errors: list[TransloadError] = []
        for target, planned in plans:
            wanted = list(self._not_moving_back(target, planned))
            try:
                if wanted:
                    target.sink.check(wanted)
            except TransloadError as error:
                errors.append(error)
                for one in wanted:
                    self._add(target, one, None, error)
            else:
                ready.append((target, wanted))
        if errors and (self._request.verify_first or len(errors) == len(plans)):
            raise_all(errors)
        return ready

    def _not_moving_back(self, target: Target, wanted: Sequence[Wanted]) -> Iterator[Wanted]:
        """Leaves out, and records as kept, what would set a reference back to an older bundle's image."""
        for one in wanted:
            digest = str(one.image.digest)
            why = moves_back(
                self._state, target.sink.identity, one.target, digest=digest, manifest=self._bundle.manifest
            )
            if why is None or self._request.allow_older:
                yield one
                continue
            known = self._state.delivered(target.sink.identity, one.target)
            note = f"Kept: {why} Use --allow-older to do it."
            self._add(
                target,
                one,
                Delivery(one, "kept", one.image.digest, known.digest if known else None, notes=(note,)),
                None,
            )

    def _check_every_block(self) -> None:
        found = Verification(self._bundle, is_full=False)
        check_blocks(self._bundle, found, jobs=self._request.jobs, stop=self._stop, progress=self._progress)
        raise_all(found.faults)

    def _remember_acceptance(self) -> None:
        signed_by = self._bundle.signed_by
        self._state.record_accepted(
            self._bundle.manifest,
            checksums_digest=str(self._bundle.checksums_digest),
            signed_by=signed_by.principal if signed_by else "",
            when=_text(_now()),
        )
        self._is_accepted = True
        for outcome in self._outcomes:  # what failed or was kept before the first byte
            self._remember(outcome)
        self._save()

    def _add(self, target: Target, one: Wanted, delivery: Delivery | None, error: TransloadError | None) -> None:
        image = one.image
        outcome = Delivered(
            target.sink.identity, str(image.name), one.target, image.digest, image.source_digest, delivery, error
        )
        self._outcomes.append(outcome)
        if self._is_accepted:
            self._remember(outcome)

    def _add_spoiled(self, target: Target, entry: ImageEntry, error: TransloadError) -> None:
        digests = Digest.parse(entry.digest), Digest.parse(entry.source_digest)
        self._outcomes.append(Delivered(target.sink.identity, entry.name, entry.name, *digests, None, error))

    def _remember(self, outcome: Delivered) -> None:
        digest, when, manifest = str(outcome.digest), _text(_now()), self._bundle.manifest
        if outcome.error is not None:
            self._state.record_failed(
                outcome.sink, outcome.target, digest=digest, manifest=manifest, error=outcome.error, when=when
            )
        elif outcome.delivery is not None and outcome.delivery.action != "kept":
            self._state.record_delivered(outcome.sink, outcome.target, digest=digest, manifest=manifest, when=when)


def _now() -> datetime:
    return datetime.now(timezone.utc).replace(microsecond=0)


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
