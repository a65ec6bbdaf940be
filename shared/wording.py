"""Words for people: a number with its noun, the nearest name to one that was mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def number_of(count: int, noun: str, plural: str = "") -> str:
    """A number and its noun: `1 image`, `2 images`, `0 copies`.

    Args:
        count: How many.
        noun: What one of them is called.
        plural: What several are called, where that is not the noun and an s.
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def did_you_mean(typed: str, names: Iterable[str]) -> str:
    """`Did you mean 'verify'?`, or nothing if no name is near."""
    near = difflib.get_close_matches(typed, list(names), n=1)
    return f"Did you mean {near[0]!r}?" if near else ""
