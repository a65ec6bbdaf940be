from __future__ import annotations

import pytest

from transload.shared.errors import InvalidConfiguration
from transload.shared.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("4000000000", 4_000_000_000), ("4GB", 4_000_000_000), ("4 gb", 4_000_000_000), (" 1MiB ", 1048576),
        ("1.5KiB", 1536), ("0.1GB", 100_000_000), ("2TiB", 2 << 40), ("1b", 1), ("3tb", 3 * 10**12), ("1.9B", 1),
        ("4.7GB", 4_700_000_000), ("650M", 650_000_000), ("5G", 5_000_000_000),
    ],
)  # fmt: skip
def test_sizes_are_read_exactly(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GB", "-1", "4 G B", "4XB", "1e9", "4,7GB", "1..5GB", ".5GB", "\u0664GB", "4GB\n4"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfiguration, match="Not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (3_997_171_712, "4.00 GB"), (1_234_567, "1.23 MB"),
     (5 * 10**12, "5.00 TB"), (5 * 10**15, "5000.00 TB")],
)  # fmt: skip
def test_sizes_are_shown_for_people(size: int, text: str) -> None:
    assert format_size(size) == text
