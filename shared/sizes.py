"""Sizes in bytes as people write and read them: 4GB is 4,000,000,000 bytes, 4GiB is 4,294,967,296."""

from __future__ import annotations

import re

from transload.shared.errors import InvalidConfiguration

_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
          "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
          "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}  # fmt: skip


def parse_size(text: str) -> int:
    """Read a size such as `4GB` (or `4G`), `650 MiB` or `4000000000`.

    Raises:
        InvalidConfiguration: Text of another shape.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip(), re.ASCII)
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise InvalidConfiguration(f"Not a size: {text[:50]!r}.", hint="Write it like 4GB, 650MiB or 4000000000.")
    whole, _, fraction = match[1].partition(".")
    return int(whole) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)


def format_size(size_bytes: int) -> str:
    """A size for people: three digits and a decimal unit."""
    value = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1000
    return f"{value:.2f} TB"
