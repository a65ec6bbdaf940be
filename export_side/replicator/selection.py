"""Which images a run is about: the catalogue's names and the registry's tags, by the old tool's rules.

Its rules, kept: `--image` is a part of the name unless --strict-name-match; `--min-version` judges the tags that begin
with YY.MM and lets every other one pass, so that CUDA's `12.4.1-base` is not measured by a calendar. But versions
compare as versions, what was not judged is named, and signatures are no images.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from transload.export_side.ngc.answers import CatalogImage
from transload.export_side.ngc.filters import TagFilter, is_at_least
from transload.export_side.replicator.names import Candidate
from transload.export_side.replicator.request import ReplicatorRequest
from transload.export_side.selection import Failure
from transload.shared.errors import NothingSelected
from transload.shared.references import Reference
from transload.shared.workers import Stop, run_parallel

_CALENDAR_VERSION = re.compile(r"\d\d\.\d\d(?!\d)", re.ASCII)
_MOST_NAMED = 8

ListTags = Callable[[Reference], list[str]]


@dataclass(slots=True)
class ReplicaSelection:
    """What a request comes to.

    Attributes:
        candidates: The images, CUDA's first, as the old tool had them.
        failures: Repositories whose tags could not be listed.
        notes: What a person should know.
    """

    candidates: list[Candidate] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def select_images(catalog: Sequence[CatalogImage], request: ReplicatorRequest) -> list[CatalogImage]:
    """The repositories that `--image` means.

    Raises:
        NothingSelected: There is none; the message says what there is.
    """
    chosen = [image for image in catalog if is_wanted(image.path, request.images, strict=request.strict_name_match)]
    if not chosen:
        names = ", ".join(request.images)
        there = ", ".join(image.path for image in catalog[:_MOST_NAMED])
        more = f" and {len(catalog) - _MOST_NAMED} more" if len(catalog) > _MOST_NAMED else ""
        raise NothingSelected(
            f"Project {request.project} has no image {names}. It has: {there}{more}.",
            hint="Correct --image; without --strict-name-match a part of the name is enough."
            if request.strict_name_match
            else "Correct --image or --project.",
        )
    return sorted(chosen, key=lambda image: not image.path.endswith("cuda"))


def is_wanted(path: str, images: Sequence[str], *, strict: bool) -> bool:
    """Whether `--image` means a repository.

    Args:
        path: Such as `nvidia/tensorflow` or `org/team/name`.
        images: What was asked for; everything if empty.
        strict: The last component, or more of them, must match as a whole.
    """
    wanted = [image.strip().strip("/") for image in images]
    if not wanted:
        return True
    if strict:
        return any(path == image or path.endswith(f"/{image}") for image in wanted)
    return any(image in path for image in wanted)


def select_tags(
    images: Sequence[CatalogImage],
    request: ReplicatorRequest,
    registry: str,
    list_tags: ListTags,
    *,
    stop: Stop,
) -> ReplicaSelection:
    """The tags of these repositories that a request means; a repository that cannot be listed is a failure.

    Args:
        images: The repositories.
        request: The rules.
        registry: NGC's registry.
        list_tags: Asks it.
        stop: Ends the run.
    """
    selection = ReplicaSelection()
    found: dict[str, list[str]] = {}
    work = {Reference(registry, image.path): image.path for image in images}
    for outcome in run_parallel(work, list_tags, jobs=request.jobs, stop=stop):
        if outcome.error is not None:
            selection.failures.append(Failure(outcome.item.repository, outcome.error))
        elif outcome.result is not None:
            found[work[outcome.item]] = outcome.result
    for image in images:
        tags, unjudged = wanted_tags(found.get(image.path, []), request)
        selection.candidates += [
            Candidate(image.path, tag, Reference(registry, image.path, tag)) for tag in tags
        ]  # fmt: skip
        if unjudged and request.min_version is not None:
            named = ", ".join(unjudged[:_MOST_NAMED])
            more = f" and {len(unjudged) - _MOST_NAMED} more" if len(unjudged) > _MOST_NAMED else ""
            selection.notes.append(
                f"{image.path}: taken although --min-version cannot judge them, "
                f"because they do not begin with YY.MM: {named}{more}."
            )
    return selection


def wanted_tags(tags: Sequence[str], request: ReplicatorRequest) -> tuple[list[str], list[str]]:
    """The tags of one repository that a request means, newest first; and those that `--min-version` cannot judge."""
    named = TagFilter(py_version=request.py_version).apply(tags).tags
    if request.min_version is None:
        return named, []
    unjudged = [tag for tag in named if not _CALENDAR_VERSION.match(tag)]
    return [tag for tag in named if tag in unjudged or is_at_least(tag, request.min_version)], unjudged
