"""Filters of tags and of repository names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

import pytest

from transload.export_side.ngc.filters import NameFilter, TagFilter, is_at_least
from transload.shared.errors import InvalidConfiguration

NGC_TAGS = ["19.07-py3", "20.11-tensorflow-py3", "r32.4.2-pth1.2-py3", "29Oct2020", "v0.9.2", "v0.20.1", "latest"]


def test_the_oldest_version_is_compared_in_numbers_and_unreadable_tags_are_listed_apart() -> None:
    selected = TagFilter(min_version="20.01").apply(NGC_TAGS)
    assert selected.tags == ["r32.4.2-pth1.2-py3", "20.11-tensorflow-py3"]
    assert selected.unparsed == ["29Oct2020", "latest"]
    assert selected.excluded == {
        "19.07-py3": "older than 20.01",
        "v0.9.2": "older than 20.01",
        "v0.20.1": "older than 20.01",
        "29Oct2020": "no version in the name",
        "latest": "no version in the name",
    }


def test_without_a_version_rule_unreadable_tags_are_in_and_listed() -> None:
    selected = TagFilter().apply(NGC_TAGS)
    assert sorted(selected.tags) == sorted(NGC_TAGS)
    assert selected.unparsed == ["29Oct2020", "latest"]
    assert selected.excluded == {}


@pytest.mark.parametrize(
    ("tag", "version", "expected"),
    [
        ("24.01-py3", "24.01", True),
        ("24.1", "24.01", True),
        ("24.01", "24.01.0", True),
        ("24.01.1-py3", "24.01", True),
        ("23.12-py3", "24.01", False),
        ("9.10", "9.9", True),  # as floats and as text 9.10 would be older
        ("9.9", "9.10", False),
        ("100.1", "99.9", True),
        ("24.01-rc1", "24.01", False),
        ("v0.20.1", "0.9.2", True),
        ("latest", "0", False),
    ],
)
def test_versions(tag: str, version: str, expected: bool) -> None:
    assert is_at_least(tag, version) is expected


def test_parts_of_a_tag_and_expressions() -> None:
    tags = ["24.01-py3", "24.01-py2", "24.01-tf2-py3", "24.01-py3-igpu"]
    selected = TagFilter(py_version="py3", exclude=("igpu$", "tf2")).apply(tags)
    assert selected.tags == ["24.01-py3"]
    assert selected.excluded["24.01-py2"] == "without py3"
    assert selected.excluded["24.01-py3-igpu"] == "excluded by igpu$"


def test_the_last_ones_are_those_of_the_largest_versions_among_what_else_fits() -> None:
    tags = ["24.9-py3", "24.10-py3", "24.11-py2", "23.1-py3", "latest-py3"]
    selected = TagFilter(keep_last=2, py_version="py3").apply(tags)
    assert selected.tags == ["24.10-py3", "24.9-py3"]
    assert selected.excluded["23.1-py3"] == "not one of the newest 2"
    assert selected.excluded["latest-py3"] == "no version in the name"


def test_dates_are_asked_of_the_tags_alone_that_all_else_lets_pass() -> None:
    asked: list[str] = []

    def dates(tags: Sequence[str]) -> Mapping[str, datetime]:
        asked.extend(tags)
        return {"24.03": datetime(2024, 3, 20, tzinfo=timezone.utc), "24.02": datetime(2024, 2, 1, tzinfo=timezone.utc)}

    now = datetime(2024, 3, 25, tzinfo=timezone.utc)
    selected = TagFilter(since_days=30, min_version="24").apply(
        ["24.03", "24.02", "24.01", "23.12"], dates=dates, now=now
    )
    assert asked == ["24.03", "24.02", "24.01"]
    assert selected.tags == ["24.03"]
    assert selected.excluded["24.02"] == "of 2024-02-01"
    assert selected.excluded["24.01"] == "no date is known"
    with pytest.raises(ValueError, match="dates"):
        TagFilter(since_days=1).apply(["1"])


def test_what_is_no_image_is_never_chosen() -> None:
    signature = f"sha256-{'a' * 64}.sig"
    selected = TagFilter().apply(["1.0", signature, "bad tag"])
    assert selected.tags == ["1.0"]
    assert "signature" in selected.excluded[signature]
    assert "legal" in selected.excluded["bad tag"]


def test_five_thousand_tags_keep_two() -> None:
    tags = [
        f"{year}.{month:02d}-py{flavour}" for year in range(1, 101) for month in range(1, 11) for flavour in range(5)
    ]
    selected = TagFilter(keep_last=2, min_version="50.01").apply(tags)
    assert selected.tags == ["100.10-py4", "100.10-py3"]
    assert len(selected.tags) + len(selected.excluded) == 5000


@pytest.mark.parametrize(
    "wrong",
    [{"min_version": "latest"}, {"min_version": ""}, {"keep_last": 0}, {"since_days": -1}, {"exclude": ("(",)}],
)
def test_rules_that_cannot_be(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidConfiguration):
        TagFilter(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("images", "strict", "path", "expected"),
    [
        (("pytorch",), True, "nvidia/pytorch", True),
        (("pytorch",), True, "nvidia/l4t-pytorch", False),
        (("pytorch",), False, "nvidia/l4t-pytorch", True),
        (("PyTorch",), True, "nvidia/pytorch", True),
        (("model-a",), True, "nvidia/model-a", True),
        (("model-a",), True, "nvidia/teamx/model-a", False),
        (("teamx/model-a",), True, "nvidia/teamx/model-a", True),
        (("nvidia/teamx/model-a",), True, "nvidia/teamx/model-a", True),
        (("model-a",), False, "nvidia/teamx/model-a", True),
        (("nvidia",), False, "nvidia/pytorch", False),
        (("nvidia/py",), False, "nvidia/pytorch", True),
        (("tensorflow", "pytorch"), True, "nvidia/pytorch", True),
        ((), True, "nvidia/anything", True),
    ],
)
def test_names(images: tuple[str, ...], strict: bool, path: str, expected: bool) -> None:
    assert NameFilter(images, strict).matches(path) is expected
