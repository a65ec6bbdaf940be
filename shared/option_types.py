"""Types of options that say in plain words what they take."""

from __future__ import annotations

from typing import Any

import click


class WholeNumber(click.IntRange):
    """A whole number within bounds.

    Args:
        least: The smallest that will do.
        most: The largest that will do.
    """

    name = "whole number"

    def __init__(self, least: int, most: int) -> None:
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a value; click's own words would be `'abc' is not a valid integer range`."""
        try:
            number: int = super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{str(value)[:50]!r} is no whole number from {self.min} to {self.max:,}.", param, ctx)
        return number
