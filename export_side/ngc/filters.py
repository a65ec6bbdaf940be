"""Which repositories and which of their tags: filters that do not guess.

A tag's version is the number that it begins with (`tag_order`): `24.01` of `24.01-py3`. Numbers compare as numbers,
never as text or floats. A tag that begins with none cannot be compared: with `min_version` or `keep_last` it stays
out, otherwise it stays in, and either way it is listed apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import zip_longest

from transload.export_side.tag_order import newest_first, version_key
from transload.manifests.tag_rules import TagRules, rules_of
from transload.shared.references import is_tag

Dates = Callable[[Sequence[str]], Mapping[str, datetime]]
"""When tags were made or updated; those whose date nobody knows are left out of the answer."""

_SIGNATURE_TAG = re.compile(r"sha(?:256-[0-9a-f]{64}|512-[0-9a-f]{128})(?:\.[a-z0-9]+)?", re.ASCII)
"""cosign's `.sig`, `.att`, `.sbom`, and the referrers fallback tag: about images, not images."""

SIGNATURE = "a signature or attestation, not an image"
ILLEGAL = "not a legal tag name"


@dataclass(frozen=True, slots=True)
class Selected:
    """What a filter comes to.

    Args:
        tags: What is chosen: those that name a version, newest first, then the others.
        unparsed: Tags that name no version, chosen or not, in text order.
        excluded: Every tag that was not chosen, and why.
    """

    tags: list[str] = field(default_factory=list)
    unparsed: list[str] = field(default_factory=list)
    excluded: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TagFilter(TagRules):
    """Rules about tags that can be applied to a registry's list of them."""

    @classmethod
    def of(cls, rules: TagRules) -> TagFilter:
        """The filter for anything that has rules, such as an entry of an image list."""
        return cls(**rules_of(rules))  # type: ignore[arg-type]

    def apply(self, tags: Sequence[str], *, dates: Dates | None = None, now: datetime | None = None) -> Selected:
        """Choose tags.

        Args:
            tags: As a registry lists them.
            dates: Asked once, for the tags that everything else lets pass; needed for `since_days`.
            now: What `since_days` is counted from; the present if None.

        Raises:
            ValueError: `since_days` without `dates`.
        """
        # 1. What is no image, and what is not wanted by name.
        excluded = {tag: why for tag in tags if (why := self._refused_by_name(tag))}
        newest, unparsed = newest_first(tag for tag in tags if tag not in excluded)
        # 2. Versions.
        if self.min_version is not None:
            too_old = [tag for tag in newest if not is_at_least(tag, self.min_version)]
            excluded |= dict.fromkeys(too_old, f"older than {self.min_version}")
        if self.min_version is not None or self.keep_last is not None:
            excluded |= dict.fromkeys(unparsed, "no version in the name")
        # 3. Dates, of as few tags as possible: each may cost a request.
        if self.since_days is not None:
            if dates is None:
                raise ValueError("since_days needs dates")
            left = [tag for tag in (*newest, *unparsed) if tag not in excluded]
            excluded |= self._too_long_ago(left, dates(left), now or datetime.now(timezone.utc))
        # 4. The newest of what is left.
        left = [tag for tag in (*newest, *unparsed) if tag not in excluded]
        if self.keep_last is not None:
            excluded |= dict.fromkeys(left[self.keep_last :], f"not one of the newest {self.keep_last}")
            left = left[: self.keep_last]
        return Selected(left, unparsed, excluded)

    def _refused_by_name(self, tag: str) -> str:
        if _SIGNATURE_TAG.fullmatch(tag):
            return SIGNATURE
        if not is_tag(tag):
            return ILLEGAL
        if self.py_version is not None and self.py_version not in tag:
            return f"without {self.py_version}"
        return next((f"excluded by {pattern}" for pattern in self.exclude if re.search(pattern, tag)), "")

    def _too_long_ago(self, tags: Sequence[str], known: Mapping[str, datetime], now: datetime) -> dict[str, str]:
        first = now - timedelta(days=self.since_days or 0)
        undated = {tag: "no date is known" for tag in tags if tag not in known}
        return undated | {tag: f"of {known[tag]:%Y-%m-%d}" for tag in tags if tag in known and known[tag] < first}


def is_at_least(tag: str, version: str) -> bool:
    """Whether a tag's version is another one or newer; False for a tag without a version.

    Missing numbers count as zeros (`24.01` is `24.01.0`), and a pre-release is older than its release.
    """
    mine, least = version_key(tag), version_key(version)
    if mine is None or least is None:
        return False
    for number, other in zip_longest(mine[0], least[0], fillvalue=0):
        if number != other:
            return number > other
    return mine[1] >= least[1]


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Which repositories of a project.

    Args:
        images: Names without the organisation (`pytorch`, `team/model`) or with it (`nvidia/pytorch`); none for all.
        strict: A name must be the whole one; otherwise a part of it is enough, so that `pytorch` also finds
            `l4t-pytorch`.
    """

    images: tuple[str, ...] = ()
    strict: bool = True

    def matches(self, path: str) -> bool:
        """Whether a repository is wanted.

        Args:
            path: Such as `nvidia/pytorch` or `org/team/name`.
        """
        name = path.partition("/")[2] or path
        if not self.images:
            return True
        wanted = [image.strip("/").lower() for image in self.images]
        if self.strict:
            return any(image in (name, path) for image in wanted)
        return any(image in name or ("/" in image and image in path) for image in wanted)
