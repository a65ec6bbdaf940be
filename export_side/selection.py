"""From the entries of a request to single images: tags are listed, filtered and ordered."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from transload.export_side.ngc.filters import ILLEGAL, SIGNATURE, Selected, TagFilter
from transload.export_side.request import ExportRequest
from transload.manifests.image_list import ListedImage, ListedNgc, ListedRepository, PlatformChoice
from transload.shared.errors import NothingSelected, TransloadError
from transload.shared.references import Reference
from transload.shared.workers import Outcome, Stop, run_parallel

ListTags = Callable[[Reference], list[str]]
"""Every tag that a registry lists for a repository."""

LookUp = Callable[[ListedNgc], Sequence[ListedRepository]]
"""The repositories that NGC's catalogue has for an entry."""

DatesOf = Callable[[Reference, Sequence[str]], Mapping[str, datetime]]
"""When tags of a repository were made."""

_TagsAndNotes = tuple[Sequence[str], list[str]]

_JOBS = 8
"""How many tag lists are asked for at once: a project of NGC has hundreds of repositories."""

_NAMED_AT_MOST = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """One image to fetch.

    Args:
        reference: Where it is.
        name: What it is called from here on.
        platform: Which platform of it, or all.
    """

    reference: Reference
    name: Reference
    platform: PlatformChoice


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that was asked for and cannot be exported.

    Args:
        reference: What was asked for.
        error: Why not.
    """

    reference: str
    error: TransloadError


@dataclass(slots=True)
class Selection:
    """What a request comes to.

    Attributes:
        wanted: The images, each once, in the order of the request.
        failures: Repositories whose tags could not be listed, projects that NGC's catalogue does not show.
        notes: What was left out, and why, for people.
    """

    wanted: list[Wanted] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def select(
    request: ExportRequest,
    list_tags: ListTags,
    *,
    look_up: LookUp | None = None,
    dates_of: DatesOf | None = None,
    stop: Stop | None = None,
) -> Selection:
    """Find the images that a request means; several repositories are asked at once.

    Args:
        request: Its entries, in order.
        list_tags: Asked once for every entry that has no fixed tags, from several threads.
        look_up: Asked once for every entry of NGC's catalogue.
        dates_of: Asked for entries that have a rule about dates, from several threads.
        stop: Ends the run.

    Raises:
        NothingSelected: Every repository was listed and no tag fits.
        ValueError: An entry needs `look_up` or `dates_of`.
    """
    selection = Selection()
    entries: list[ListedImage | ListedRepository] = []
    for entry in request.entries:
        entries += [entry] if isinstance(entry, ListedImage) else _repositories(entry, look_up, selection)
    repositories = dict.fromkeys(one for one in entries if isinstance(one, ListedRepository))
    found = _tags_of_all(list(repositories), list_tags, dates_of, stop or Stop())
    for one in entries:
        platform = one.platform or request.platform
        if isinstance(one, ListedImage):
            selection.wanted.append(Wanted(one.reference, one.rename or one.reference, platform))
            continue
        outcome = found[one]
        if outcome.error is not None:
            selection.failures.append(Failure(one.repository.repository, outcome.error))
            continue
        tags, notes = outcome.result or ((), [])
        selection.notes += [note for note in notes if note not in selection.notes]
        references = [one.repository.with_tag(tag) for tag in tags]
        selection.wanted.extend(Wanted(reference, reference, platform) for reference in references)
    selection.wanted = list(dict.fromkeys(selection.wanted))
    if not selection.wanted and not selection.failures:
        raise NothingSelected(
            "No tag fits the request. " + " ".join(selection.notes),
            hint="A tag_pattern must match the whole tag; `transload ngc list` shows what the other rules leave out.",
        )
    return selection


def _repositories(
    entry: ListedRepository | ListedNgc, look_up: LookUp | None, selection: Selection
) -> Sequence[ListedRepository]:
    if isinstance(entry, ListedRepository):
        return [entry]
    if look_up is None:
        raise ValueError("an entry of NGC's catalogue needs the catalogue")
    try:
        return look_up(entry)
    except TransloadError as error:
        selection.failures.append(Failure(f"NGC project {entry.project}", error))
        return []


def _tags_of_all(
    entries: Sequence[ListedRepository], list_tags: ListTags, dates_of: DatesOf | None, stop: Stop
) -> dict[ListedRepository, Outcome[ListedRepository, _TagsAndNotes]]:
    def work(entry: ListedRepository) -> _TagsAndNotes:
        return _tags_of(entry, list_tags, dates_of)

    with contextlib.closing(run_parallel(entries, work, jobs=_JOBS, stop=stop)) as outcomes:
        return {outcome.item: outcome for outcome in outcomes}


def _tags_of(entry: ListedRepository, list_tags: ListTags, dates_of: DatesOf | None) -> _TagsAndNotes:
    """The tags that are wanted; a list of them without rules is taken as it is."""
    if entry.tags and not entry.has_rules:
        return entry.tags, []
    notes = []
    selected = select_tags(entry, list_tags, dates_of)
    name = entry.repository.repository
    for why, what in ((SIGNATURE, "signature or attestation tag"), (ILLEGAL, "illegal tag")):
        if skipped := [tag for tag, reason in selected.excluded.items() if reason == why]:
            notes.append(f"{name}: {counted(skipped, what)} skipped.")
    if out := [tag for tag in selected.unparsed if tag in selected.excluded]:
        notes.append(f"{name}: {counted(out, 'tag')} left out: no version in the name.")
    if not selected.tags:
        pattern = f" matches {entry.tag_pattern}" if entry.tag_pattern else " fits"
        notes.append(f"{name}: none of its {selected.listed_count} tags{pattern}.")
    return selected.tags, notes


@dataclass(frozen=True, slots=True)
class SelectedTags(Selected):
    """What rules make of a repository's tags.

    Args:
        listed_count: How many tags there were.
    """

    listed_count: int = 0


def select_tags(entry: ListedRepository, list_tags: ListTags, dates_of: DatesOf | None) -> SelectedTags:
    """The tags of one repository that an entry asks for.

    Args:
        entry: The repository and its rules.
        list_tags: Asked unless the entry names its tags.
        dates_of: Asked if there is a rule about dates.
    """
    repository = entry.repository
    listed = list(entry.tags) or list_tags(repository)
    pattern = re.compile(entry.tag_pattern or ".*", re.DOTALL)
    matching = [tag for tag in listed if pattern.fullmatch(tag)]
    dates = None if dates_of is None else lambda tags: dates_of(repository, tags)
    found = TagFilter.of(entry).apply(matching, dates=dates)
    return SelectedTags(found.tags, found.unparsed, found.excluded, len(listed))


def counted(tags: Sequence[str], what: str) -> str:
    """How many tags, and the first few of them."""
    shown = ", ".join(repr(tag[:130]) for tag in tags[:_NAMED_AT_MOST])
    more = f" and {len(tags) - _NAMED_AT_MOST} more" if len(tags) > _NAMED_AT_MOST else ""
    return f"{len(tags)} {what}{'' if len(tags) == 1 else 's'} ({shown}{more})"
