from __future__ import annotations

import pytest

from transload.shared.errors import InvalidReference
from transload.shared.platforms import DEFAULT_PLATFORM, Platform


@pytest.mark.parametrize("text", ["linux/amd64", "linux/arm64/v8", "windows/amd64", "linux/ppc64le", "linux/arm/v7"])
def test_platforms_survive_parsing(text: str) -> None:
    assert str(Platform.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "linux", "linux/", "/amd64", "linux/amd64/", "linux/amd64/v1/x", "Linux/amd64", "linux amd64", "a/b\n"]
)
def test_what_is_no_platform_is_refused(text: str) -> None:
    with pytest.raises(InvalidReference) as caught:
        Platform.parse(text)
    assert "linux/amd64" in caught.value.hint


@pytest.mark.parametrize(
    ("there", "wanted", "fits"),
    [
        ("linux/amd64", "linux/amd64", True),
        ("linux/amd64", "linux/arm64", False),
        ("windows/amd64", "linux/amd64", False),
        ("linux/arm64", "linux/arm64/v8", True),
        ("linux/arm64/v8", "linux/arm64", True),
        ("linux/arm64/v9", "linux/arm64/v8", False),
        ("linux/arm/v6", "linux/arm", True),
        ("linux/arm/v6", "linux/arm/v7", False),
        ("linux/arm", "linux/arm/v7", True),
        ("linux/amd64", "linux/amd64/v3", False),
        ("linux/amd64/v3", "linux/amd64", True),
    ],
)
def test_which_platform_satisfies_a_wish(there: str, wanted: str, fits: bool) -> None:
    assert Platform.parse(there).satisfies(Platform.parse(wanted)) is fits


def test_an_architecture_alone_gets_a_suggestion() -> None:
    with pytest.raises(InvalidReference) as caught:
        Platform.parse("arm64")
    assert "linux/arm64 meant?" in caught.value.hint


def test_attestations_have_no_known_platform() -> None:
    assert DEFAULT_PLATFORM.is_known
    assert not Platform("unknown", "unknown").is_known
    assert not Platform("linux", "unknown").is_known
