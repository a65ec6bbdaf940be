"""Text that every file format can hold.

A path may have bytes that are no UTF-8, which Python keeps as lone surrogates; neither YAML nor JSON can hold those,
and what was done must never be lost because its place has an odd name.
"""

from __future__ import annotations

import os
from pathlib import Path


def path_text(path: Path) -> str:
    r"""A path as text, the same whatever the locale: what is no UTF-8 is shown as `\xNN`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def well_formed(text: str) -> str:
    r"""Text with lone surrogates written as `\uNNNN`."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def well_formed_data(value: object) -> object:
    """Plain data (mappings, lists, tuples) with `well_formed` text in it, keys too."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {well_formed_data(key): well_formed_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [well_formed_data(item) for item in value]
    return value


def real_path(path: Path) -> Path:
    """A path without links and `..`.

    `Path.resolve` raises for links in a circle on Python 3.10; those are for whoever opens them to report.
    """
    return Path(os.path.realpath(path))
