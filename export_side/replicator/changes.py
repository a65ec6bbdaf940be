"""What is to be done: the selection compared with state.yml and with what the tags stand for now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from transload.export_side.ngc.answers import TagDetails
from transload.export_side.replicator.names import Candidate
from transload.export_side.replicator.request import ReplicatorRequest
from transload.export_side.replicator.state import ReplicaRecord, ReplicatorState
from transload.export_side.resolve import SourceRegistries, resolve
from transload.export_side.selection import Failure, Wanted
from transload.shared.digests import Digest
from transload.shared.image import Image
from transload.shared.workers import Stop, run_parallel

TagDates = Callable[[str], Mapping[str, TagDetails]]
"""What NGC says of the tags of a repository: nothing without an API key."""

_DATE_LENGTH = len("2017-12-04T05:56:41")


@dataclass(slots=True)
class Changes:
    """What a run has to do.

    Attributes:
        images: What is to be fetched or pushed, in the order of the selection.
        unchanged: Images of which nothing is missing.
        failures: Images that cannot be had, and why.
        notes: Tags that have moved.
        contents: Documents and configs whose bytes are at hand.
    """

    images: dict[Candidate, Image] = field(default_factory=dict)
    unchanged: list[Candidate] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    contents: dict[Digest, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares a selection with the state.

    Args:
        request: What is asked for.
        state: What is known; what the old tool listed gets the digest that its tag stands for now.
        sources: The registries.
        tag_details: NGC's dates of tags.
        stop: Ends the run.
    """

    request: ReplicatorRequest
    state: ReplicatorState
    sources: SourceRegistries
    tag_details: TagDates
    stop: Stop

    def changes(self, candidates: Sequence[Candidate]) -> Changes:
        """Find out what is to be done; only small requests are made."""
        # 1. Tags that are known: do they stand for what they stood for?
        changes = Changes()
        known = [one for one in candidates if self.state.record_of(one) is not None]
        settled: set[Candidate] = set()
        for outcome in run_parallel(known, self._current_digest, jobs=self.request.jobs, stop=self.stop):
            one = outcome.item
            if outcome.error is not None:
                changes.failures.append(Failure(one.url, outcome.error))
                settled.add(one)
            elif self._is_done(one, outcome.result, changes.notes):
                changes.unchanged.append(one)
                settled.add(one)
        # 2. The others: all their documents.
        wanted = {Wanted(one.reference, one.reference, self.request.platform): one
                  for one in candidates if one not in settled}  # fmt: skip
        resolved = resolve(list(wanted), self.sources, jobs=self.request.jobs, stop=self.stop)
        changes.failures += resolved.failures
        changes.contents = resolved.contents
        by_reference = {one.reference: one for one in wanted.values()}
        for image in resolved.images:
            one = by_reference[image.reference]
            if self._is_by_old_id(one, image):
                changes.unchanged.append(one)
            else:
                changes.images[one] = image
        return changes

    def _current_digest(self, one: Candidate) -> Digest | None:
        return self.sources.current_digest(one.reference)

    def _is_done(self, one: Candidate, now: Digest | None, notes: list[str]) -> bool:
        record = self.state.record_of(one)
        if record is None or now is None:  # gone: it is asked for in full, which says why it cannot be had
            return False
        if not record.digest:
            if record.old_id.startswith("sha256:"):
                return False  # compared with the config, once that is there
            if self._has_later_date(one, record):
                notes.append(f"{one.url} has a later date than the old replicator noted, and is fetched again.")
                return False
            record.digest = str(now)
        if record.digest != str(now):
            notes.append(f"{one.url} has moved from {record.digest} to {now}.")
            return False
        return record.is_complete(self.request)

    def _has_later_date(self, one: Candidate, record: ReplicaRecord) -> bool:
        before = _date(record.old_id)
        if before is None or one.is_external:
            return False
        details = self.tag_details(one.name).get(one.tag)
        return details is not None and details.updated is not None and details.updated > before + timedelta(seconds=1)

    def _is_by_old_id(self, one: Candidate, image: Image) -> bool:
        """Whether the old tool had exactly this image, by its Docker id: the digest of its config."""
        record = self.state.record_of(one)
        if record is None or record.digest or not record.old_id.startswith("sha256:"):
            return False
        if not any(str(manifest.config.digest) == record.old_id for manifest in image.manifests):
            return False
        record.digest = str(image.source_digest)
        return True


def _date(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text[:_DATE_LENGTH]).replace(tzinfo=timezone.utc)
    except ValueError:
        return None
