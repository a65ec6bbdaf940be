"""Which tag is newer."""

from __future__ import annotations

import pytest

from transload.export_side.tag_order import newest_first, version_key

NGC_TAGS = ["19.07-py3", "20.11-tensorflow-py3", "r32.4.2-pth1.2-py3", "29Oct2020", "v0.9.2", "v0.20.1", "latest"]


def test_tags_that_name_no_version_are_told_apart() -> None:
    newest, without_version = newest_first(NGC_TAGS)
    assert newest == ["r32.4.2-pth1.2-py3", "20.11-tensorflow-py3", "19.07-py3", "v0.20.1", "v0.9.2"]
    assert without_version == ["29Oct2020", "latest"]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("9.1", "10.0"),
        ("24.01-py3", "24.10-py3"),
        ("v0.9.2", "v0.20.1"),
        ("1.0.0-rc2", "1.0.0"),
        ("1.0.0-rc2", "1.0.0-rc10"),
        ("1.0", "1.0.1"),
        ("24.01-tf1-py3", "24.01-tf2-py3"),
        ("24.01-cuda9", "24.01-cuda11"),
        ("1.0-alpha", "1.0-beta"),
    ],
)
def test_numbers_compare_as_numbers(older: str, newer: str) -> None:
    assert newest_first([older, newer]) == ([newer, older], [])
    assert newest_first([newer, older]) == ([newer, older], [])


def test_equal_versions_have_a_fixed_order() -> None:
    assert newest_first(["1.0", "v1.0"]) == newest_first(["v1.0", "1.0"])


@pytest.mark.parametrize("tag", ["latest", "29Oct2020", "sha-1234", "", "v", "-1", "1e5x"])
def test_no_version(tag: str) -> None:
    assert version_key(tag) is None
