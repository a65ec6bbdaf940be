"""Which of two tags is newer: numbers compare as numbers, and a tag that names no version is not guessed at.

A tag names a version if it begins with a number, perhaps after `v` or `r`, that ends at a separator: `24.01-py3`,
`v0.20.1`, `r32.4.2-pth1.2-py3`. `latest` and `29Oct2020` name none. Of equal numbers, a pre-release (`-rc1`) is
older than the release; otherwise the rest of the tag decides, its numbers as numbers too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

VersionKey = tuple[tuple[int, ...], bool, tuple[tuple[int, int, str], ...], str]

_VERSION = re.compile(r"[vr]?(\d{1,18}(?:\.\d{1,18})*)(?:[-_.+](.*))?", re.ASCII | re.DOTALL)
_PRE_RELEASE = re.compile(r"(?:alpha|beta|rc|dev|pre|ea)(?![a-z])", re.ASCII)


def version_key(tag: str) -> VersionKey | None:
    """What a tag is ordered by; None for a tag that names no version.

    Returns:
        Numbers, whether it is a release, the rest split at its numbers, and the tag itself so that no two are equal.
    """
    match = _VERSION.fullmatch(tag)
    if match is None:
        return None
    rest = match[2] or ""
    numbers = tuple(int(part) for part in match[1].split("."))
    return numbers, not _PRE_RELEASE.match(rest), tuple(_natural(rest)), tag


def newest_first(tags: Iterable[str]) -> tuple[list[str], list[str]]:
    """Order tags by version.

    Returns:
        The tags that name a version, newest first; and those that name none, in text order.
    """
    keys = {tag: version_key(tag) for tag in tags}
    versions = {tag: key for tag, key in keys.items() if key is not None}
    return sorted(versions, key=versions.__getitem__, reverse=True), sorted(keys.keys() - versions.keys())


def _natural(text: str) -> Iterable[tuple[int, int, str]]:
    for part in re.findall(r"\d{1,18}|\D+", text, re.ASCII):
        yield (1, int(part), "") if part[0].isdigit() else (0, 0, part)
