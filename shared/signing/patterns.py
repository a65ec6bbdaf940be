"""Pattern lists of ssh_config(5), "PATTERNS": `*`, `?`, commas, and `!` for what must not match."""

from __future__ import annotations


def matches_pattern_list(text: str, patterns: str) -> bool:
    """Whether text matches one of comma-separated patterns and none of the negated ones.

    Args:
        text: A principal or namespace.
        patterns: Such as `*@example.com,!root@*`. A negated pattern alone matches nothing.
    """
    found = False
    for pattern in patterns.split(","):
        if pattern.startswith("!"):
            if _matches(text, pattern[1:]):
                return False
        elif _matches(text, pattern):
            found = True
    return found


def _matches(text: str, pattern: str) -> bool:
    """Glob with `*` and `?` only; linear in memory and never exponential, unlike a regular expression of stars."""
    at, star, resume = 0, -1, 0
    position = 0
    while position < len(text):
        if at < len(pattern) and pattern[at] == "*":
            star, resume = at, position
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", text[position]):
            at += 1
            position += 1
        elif star >= 0:
            resume += 1
            at, position = star + 1, resume
        else:
            return False
    return all(character == "*" for character in pattern[at:])
