"""Which of the images asked for are already on their way, by what the exporter's state says and HEAD requests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from transload.export_side.export_state import ExportState, ImageRecord, tag_name
from transload.export_side.selection import Wanted
from transload.manifests.image_list import ALL_PLATFORMS
from transload.shared.digests import Digest
from transload.shared.errors import InvalidReference, TransloadError
from transload.shared.image import Image
from transload.shared.platforms import Platform
from transload.shared.references import Reference
from transload.shared.workers import Stop, run_parallel

CurrentDigest = Callable[[Reference], Digest | None]
"""What a reference names at its registry now."""


@dataclass(frozen=True, slots=True)
class Carried:
    """An image that an earlier bundle brings.

    Args:
        reference: What was asked for.
        digest: What is delivered.
        bundle_id: The bundle.
        is_acknowledged: Whether it is known to have arrived.
    """

    reference: str
    digest: str
    bundle_id: str
    is_acknowledged: bool


@dataclass(frozen=True)
class Deliveries:
    """What one destination was sent already.

    Args:
        state: The exporter's state.
        destination: Whose bundles count.
    """

    state: ExportState
    destination: str

    def of_image(self, image: Image) -> Carried | None:
        """The bundle that brings exactly this image, if there is one."""
        record = self._standing.get(tag_name(str(image.name)))
        if record is None or record.digest != str(image.digest):
            return None
        return self._carried(str(image.reference), record)

    def unchanged(
        self, wanted: Sequence[Wanted], current_digest: CurrentDigest, *, jobs: int, stop: Stop
    ) -> dict[Wanted, Carried]:
        """The images whose reference still names what an earlier bundle brings, found without fetching anything.

        Args:
            wanted: The selection; only names that have been exported before are asked for.
            current_digest: Asks a registry, by HEAD.
            jobs: How many at once.
            stop: Ends the run.
        """
        known = [one for one in wanted if tag_name(str(one.name)) in self._standing]
        found: dict[Wanted, Carried] = {}
        with contextlib.closing(
            run_parallel(known, lambda one: current_digest(one.reference), jobs=jobs, stop=stop)
        ) as outcomes:
            for outcome in outcomes:  # what cannot be asked now is resolved later, and its error told then
                carried = self._unchanged(outcome.item, outcome.result) if outcome.result else None
                if carried is not None:
                    found[outcome.item] = carried
        return found

    @cached_property
    def _standing(self) -> Mapping[str, ImageRecord]:
        return self.state.standing(self.destination)

    def _unchanged(self, wanted: Wanted, source_digest: Digest) -> Carried | None:
        record = self._standing[tag_name(str(wanted.name))]
        if record.source_digest != str(source_digest) or not _is_of_platform(record, wanted):
            return None
        return self._carried(str(wanted.reference), record)

    def _carried(self, reference: str, record: ImageRecord) -> Carried:
        bundle = self.state.destinations[self.destination].bundles[record.bundle]
        return Carried(reference, record.digest, record.bundle, bundle.status == "acknowledged")


def moved_references(
    images: Sequence[Image], current_digest: CurrentDigest, *, jobs: int, stop: Stop
) -> list[tuple[Image, Digest | None]]:
    """The images of a frozen plan whose tags name something else by now (None: they are gone)."""
    tagged = [image for image in images if image.reference.digest is None]
    moved = []
    with contextlib.closing(
        run_parallel(tagged, lambda image: current_digest(image.reference), jobs=jobs, stop=stop)
    ) as outcomes:
        moved = [
            (outcome.item, outcome.result)
            for outcome in outcomes
            if outcome.error is None and outcome.result != outcome.item.source_digest
        ]
    return sorted(moved, key=lambda pair: str(pair[0].reference))


def _is_of_platform(record: ImageRecord, wanted: Wanted) -> bool:
    if wanted.platform == ALL_PLATFORMS:
        return record.digest == record.source_digest
    try:
        return Platform.parse(record.platform).satisfies(wanted.platform)
    except (InvalidReference, TransloadError):
        return False
