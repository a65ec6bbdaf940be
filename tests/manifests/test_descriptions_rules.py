"""Descriptions in bundle.json and among the files of a bundle."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from doubles.memory_bundle import MemoryBundle, digest_of, small_manifest
from transload.manifests.bundle_manifest import BundleManifest, DescriptionEntry, decode, encode, repository_of
from transload.shared.errors import (
    BundleFileDamaged,
    BundleFileMissing,
    BundleFileWrongSize,
    MalformedBundle,
    TransloadError,
    UnnamedFile,
)
from transload.shared.limits import MAX_DESCRIPTION_BYTES

NAME, TEXT = "descriptions/reg.example_a.md", b"# A\n"


def entry(name: str = NAME, repository: str = "reg.example/a", size: int = len(TEXT)) -> DescriptionEntry:
    return DescriptionEntry(name=name, repository=repository, size=size)


def described(*entries: DescriptionEntry) -> BundleManifest:
    return replace(small_manifest(), descriptions=entries)


def bundle() -> MemoryBundle:
    """A bundle with one description, sealed."""
    made = MemoryBundle(described(entry()))
    made.sums[NAME] = digest_of(TEXT)
    made.found[NAME] = len(TEXT)
    made.small_files[NAME] = TEXT
    made.seal()
    return made


def test_a_description_is_a_file_of_the_bundle() -> None:
    bundle().check()


def test_the_field_round_trips() -> None:
    assert decode(encode(described(entry()))) == described(entry())


@pytest.mark.parametrize(
    "name",
    ["a.md", "descriptions/a", "descriptions/.md", "descriptions/../a.md", "descriptions/a/b.md", "other/a.md",
     "descriptions//a.md", "/descriptions/a.md", "descriptions/a.md\n", "descriptions/a\\b.md", "Descriptions/a.md",
     "descriptions/" + "a" * 198 + ".md"],
)  # fmt: skip
def test_names_that_could_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(MalformedBundle):
        decode(encode(described(entry(name))))


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ((entry("descriptions/b.md"), entry("descriptions/a.md", "reg.example/a")), "ascending"),
        ((entry("descriptions/a.md"), entry("descriptions/b.md")), "described twice"),
        ((entry("descriptions/A.md"), entry("descriptions/a.md")), "one name, case apart"),
        ((entry(repository="reg.example/b"),), "no image is of it"),
        ((entry(size=0),), "breaks the format"),
        ((entry(size=MAX_DESCRIPTION_BYTES + 1),), "breaks the format"),
    ],
)
def test_rules(entries: tuple[DescriptionEntry, ...], why: str) -> None:
    with pytest.raises(MalformedBundle, match=why):
        decode(encode(described(*entries)))


def test_all_descriptions_together_are_bounded() -> None:
    images = tuple(
        replace(
            small_manifest().images[0], name=f"reg.example/a{number:02d}:1", reference=f"reg.example/a{number:02d}:1"
        )
        for number in range(65)
    )
    entries = tuple(
        entry(f"descriptions/a{number:02d}.md", f"reg.example/a{number:02d}", MAX_DESCRIPTION_BYTES)
        for number in range(65)
    )
    decode(encode(replace(small_manifest(), images=images, descriptions=entries[:64])))
    with pytest.raises(MalformedBundle, match="68,157,440 bytes"):
        decode(encode(replace(small_manifest(), images=images, descriptions=entries)))


@pytest.mark.parametrize(
    ("reference", "repository"),
    [
        ("host:5000/a/b:1.0", "host:5000/a/b"),
        ("host:5000/a/b", "host:5000/a/b"),
        (f"host/a@sha256:{'0' * 64}", "host/a"),
        (f"host/a:1@sha256:{'0' * 64}", "host/a"),
    ],
)
def test_the_repository_of_a_reference(reference: str, repository: str) -> None:
    assert repository_of(reference) == repository


@pytest.mark.parametrize("fault", ["changed", "missing", "longer", "unnamed", "unlisted"])
def test_what_is_wrong_with_a_description_is_named(fault: str) -> None:
    broken = bundle()
    expected: type[TransloadError]
    if fault == "changed":
        broken.small_files[NAME], expected = b"# B\n", BundleFileDamaged
    elif fault == "missing":
        del broken.found[NAME]
        expected = BundleFileMissing
    elif fault == "longer":
        broken.found[NAME], expected = len(TEXT) + 1, BundleFileWrongSize
    elif fault == "unnamed":
        broken.found["descriptions/other.md"], expected = 3, UnnamedFile
    else:
        del broken.sums[NAME]
        broken.seal()
        expected = MalformedBundle
    with pytest.raises(expected, match="descriptions/"):
        broken.check()
