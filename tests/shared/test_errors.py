"""Every error class: its own code, in its family's ten, and in docs/exit_codes.md with the same words."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from transload.shared import errors
from transload.shared.errors import Faults, TransloadError

DOCUMENT = Path(__file__).parents[2] / "docs" / "exit_codes.md"
CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, TransloadError) and kind not in (TransloadError, Faults)
]
FAMILIES = {
    10: "the request", 20: "the source registry", 30: "a local engine", 40: "the medium and local files",
    50: "the bundle's format", 60: "integrity", 70: "authenticity", 80: "delivery",
}  # fmt: skip


def test_codes_and_names_are_unique() -> None:
    assert len({kind.exit_code for kind in CLASSES}) == len(CLASSES)
    assert len({kind.reference for kind in CLASSES}) == len(CLASSES)


@pytest.mark.parametrize("kind", CLASSES)
def test_a_class_is_in_the_family_under_whose_heading_it_stands(kind: type[TransloadError]) -> None:
    source = inspect.getsource(errors)
    headings = {match.start(): int(match[1]) for match in re.finditer(r"# --- (\d\d)-\d\d: ", source)}
    place = source.index(f"class {kind.__name__}(")
    family = headings[max(start for start in headings if start < place)]
    assert family <= kind.exit_code <= family + 9
    assert family in FAMILIES
    assert kind.reference.replace("-", "") == kind.__name__.lower()


def test_the_document_lists_exactly_the_classes() -> None:
    rows = re.findall(r"^\| (\d+) \| `([a-z-]+)` \| (.+) \|$", DOCUMENT.read_text(), re.MULTILINE)
    documented = {int(code): (name, text) for code, name, text in rows}
    assert len(documented) == len(rows)
    assert documented == {
        kind.exit_code: (kind.reference, " ".join((kind.__doc__ or "").split("\n\n")[0].split())) for kind in CLASSES
    }


def test_the_document_lists_the_other_codes_and_the_families() -> None:
    text = DOCUMENT.read_text()
    others = [errors.EXIT_DONE, errors.EXIT_BUG, errors.EXIT_USAGE, errors.EXIT_PARTIAL, errors.EXIT_INTERRUPTED,
              errors.EXIT_TERMINATED, 141]  # fmt: skip
    for code in others:
        assert re.search(rf"^\| {code} \| [^`]", text, re.MULTILINE), code
    assert others[:4] == [0, 1, 2, 3]
    for ten, name in FAMILIES.items():
        assert f"## {ten}-{ten + 9}: {name}" in text


def test_an_error_for_machines() -> None:
    error = errors.NotEnoughSpace("No room.", hint="Make room.", needed_bytes=5)
    assert str(error) == "No room."
    assert error.as_json() == {
        "error": "not-enough-space", "exit_code": 41, "message": "No room.", "hint": "Make room.",
        "facts": {"needed_bytes": 5},
    }  # fmt: skip


def test_of_several_faults_the_gravest_decides_and_all_are_told() -> None:
    malformed, damaged, missing = errors.MalformedBundle("a"), errors.BundleFileDamaged("b"), errors.PathMissing("c")
    unsigned = errors.SignatureInvalid("d", hint="Ask.")
    cases: list[tuple[list[TransloadError], TransloadError]] = [
        ([missing, malformed, damaged, unsigned], unsigned),
        ([missing, malformed, damaged], damaged),
        ([missing, malformed], malformed),
        ([missing, errors.Locked("x")], missing),
    ]
    for found, gravest in cases:
        with pytest.raises(Faults) as caught:
            errors.raise_all(found)
        assert (caught.value.exit_code, caught.value.reference) == (gravest.exit_code, gravest.reference)
        assert caught.value.hint == gravest.hint
        assert caught.value.message.splitlines() == [error.message for error in found]
        assert caught.value.as_json()["errors"] == [error.as_json() for error in found]


def test_one_fault_is_itself_and_none_is_nothing() -> None:
    errors.raise_all([])
    with pytest.raises(errors.PathMissing):
        errors.raise_all([errors.PathMissing("c")])
