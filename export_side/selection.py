"""From the entries of a request to single images: tags are listed, filtered and ordered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from transload.export_side.request import ExportRequest
from transload.export_side.tag_order import newest_first
from transload.manifests.image_list import ListedImage, ListedRepository, PlatformChoice
from transload.shared.errors import NothingSelected, TransloadError
from transload.shared.references import Reference, is_tag

ListTags = Callable[[Reference], list[str]]
"""Every tag that a registry lists for a repository."""

_SIGNATURE_TAG = re.compile(r"sha(?:256-[0-9a-f]{64}|512-[0-9a-f]{128})(?:\.[a-z0-9]+)?", re.ASCII)
"""cosign's `.sig`, `.att`, `.sbom`, and the referrers fallback tag: about images, not images."""

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
        failures: Repositories whose tags could not be listed.
        notes: What was left out, and why, for people.
    """

    wanted: list[Wanted] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def select(request: ExportRequest, list_tags: ListTags) -> Selection:
    """Find the images that a request means.

    Args:
        request: Its entries, in order.
        list_tags: Asked once for every entry that has no fixed tags.

    Raises:
        NothingSelected: Every repository was listed and no tag fits.
    """
    selection = Selection()
    for entry in request.entries:
        platform = entry.platform or request.platform
        if isinstance(entry, ListedImage):
            selection.wanted.append(Wanted(entry.reference, entry.rename or entry.reference, platform))
            continue
        try:
            tags = _tags_of(entry, list_tags, selection.notes)
        except TransloadError as error:
            selection.failures.append(Failure(entry.repository.repository, error))
            continue
        references = [entry.repository.with_tag(tag) for tag in tags]
        selection.wanted.extend(Wanted(reference, reference, platform) for reference in references)
    selection.wanted = list(dict.fromkeys(selection.wanted))
    if not selection.wanted and not selection.failures:
        raise NothingSelected(
            "No tag fits the request. " + " ".join(selection.notes),
            hint="Look at tag_pattern: it must match the whole tag.",
        )
    return selection


def _tags_of(entry: ListedRepository, list_tags: ListTags, notes: list[str]) -> Iterable[str]:
    name = entry.repository.repository
    tags = list(entry.tags) if entry.tags else _listed_tags(entry, list_tags, notes)
    if entry.keep_last is None:
        return tags
    newest, without_version = newest_first(tags)
    if without_version:
        notes.append(f"{name}: {_counted(without_version, 'tag')} not counted for keep_last: no version in the name.")
    return newest[: entry.keep_last]


def _listed_tags(entry: ListedRepository, list_tags: ListTags, notes: list[str]) -> list[str]:
    name = entry.repository.repository
    listed = list_tags(entry.repository)
    signatures = [tag for tag in listed if _SIGNATURE_TAG.fullmatch(tag)]
    illegal = [tag for tag in listed if not is_tag(tag)]
    if signatures:
        notes.append(f"{name}: {_counted(signatures, 'signature or attestation tag')} skipped.")
    if illegal:
        notes.append(f"{name}: {_counted(illegal, 'tag')} skipped: not a legal tag name.")
    skipped = {*signatures, *illegal}
    pattern = re.compile(entry.tag_pattern or r".*")
    newest, rest = newest_first(tag for tag in listed if tag not in skipped and pattern.fullmatch(tag))
    if not newest and not rest:
        notes.append(f"{name}: none of its {len(listed)} tags matches {entry.tag_pattern}.")
    return newest + rest


def _counted(tags: list[str], what: str) -> str:
    shown = ", ".join(repr(tag[:130]) for tag in tags[:_NAMED_AT_MOST])
    more = f" and {len(tags) - _NAMED_AT_MOST} more" if len(tags) > _NAMED_AT_MOST else ""
    return f"{len(tags)} {what}{'' if len(tags) == 1 else 's'} ({shown}{more})"
