from __future__ import annotations

import pytest

from transload.shared.wording import did_you_mean, number_of


@pytest.mark.parametrize(
    ("count", "noun", "plural", "text"),
    [
        (0, "image", "", "0 images"),
        (1, "image", "", "1 image"),
        (2, "image", "", "2 images"),
        (1, "copy", "copies", "1 copy"),
        (2, "copy", "copies", "2 copies"),
        (12_345, "block", "", "12,345 blocks"),
    ],
)
def test_one_thing_or_several(count: int, noun: str, plural: str, text: str) -> None:
    assert number_of(count, noun, plural) == text


def test_the_nearest_name_is_suggested_and_nothing_far_off() -> None:
    assert did_you_mean("vrify", ["list", "verify"]) == "Did you mean 'verify'?"
    assert did_you_mean("xyz", ["list", "verify"]) == ""
