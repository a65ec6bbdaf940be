"""Rules by which tags of a repository are chosen, as a person writes them; `export_side.ngc.filters` applies them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from transload.shared.errors import InvalidConfiguration

VERSION_PATTERN: Final = re.compile(r"[vr]?[0-9]{1,18}(?:\.[0-9]{1,18})*(?:[-_.+][^\s]*)?", re.ASCII)
"""What `min_version` may be: a version as tags begin with one."""

_MOST = 999_999


@dataclass(frozen=True, slots=True, kw_only=True)
class TagRules:
    """Which tags of a repository; without any rule all of them.

    Args:
        min_version: The oldest version, such as `24.01`; numbers compare as numbers.
        py_version: Text that the tag must contain, such as `py3`.
        keep_last: How many of the newest of each repository.
        since_days: Only what was made or updated in so many days.
        exclude: Regular expressions; a tag in which one is found is left out.

    Raises:
        InvalidConfiguration: A value that cannot be one.
    """

    min_version: str | None = None
    py_version: str | None = None
    keep_last: int | None = None
    since_days: int | None = None
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.min_version is not None and not VERSION_PATTERN.fullmatch(self.min_version):
            raise InvalidConfiguration(
                f"The oldest version is {self.min_version[:60]!r}, which is no version.",
                hint="Write it as the tags begin, such as 24.01 or 12.4.1.",
            )
        for name in ("keep_last", "since_days"):
            number = getattr(self, name)
            if number is not None and not 1 <= number <= _MOST:
                raise InvalidConfiguration(f"{name} is {number}; it must be from 1 to {_MOST:,}.")
        for pattern in self.exclude:
            try:
                re.compile(pattern)
            except re.error as error:  # noqa: PERF203 - a handful of patterns
                raise InvalidConfiguration(f"exclude: {pattern[:60]!r} is no regular expression: {error}.") from error

    @property
    def has_rules(self) -> bool:
        """Whether anything is asked of a tag at all."""
        return any(value is not None and value != [] for value in self.as_fields())

    def as_fields(self) -> list[object]:
        """The rules as plain values in a fixed order, for fingerprints."""
        return [self.min_version, self.py_version, self.keep_last, self.since_days, sorted(self.exclude)]


def rules_of(rules: TagRules) -> dict[str, object]:
    """The rules of any object that has some, as keyword arguments."""
    names: Iterable[str] = TagRules.__dataclass_fields__
    return {name: getattr(rules, name) for name in names}
