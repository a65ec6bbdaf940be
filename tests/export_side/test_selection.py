"""From list entries to images."""

from __future__ import annotations

import threading

import pytest

from transload.export_side.request import ExportRequest
from transload.export_side.selection import Selection, select
from transload.manifests.image_list import ListedImage, ListedNgc, ListedRepository
from transload.shared.errors import InvalidConfiguration, NothingSelected, RegistryUnreachable
from transload.shared.platforms import Platform
from transload.shared.references import Reference

REPOSITORY = Reference.parse("host:5000/nvidia/pytorch")
SIGNATURE_TAGS = [f"sha256-{'a' * 64}{suffix}" for suffix in (".sig", ".att", ".sbom", "")]


def selected(entry: ListedRepository | ListedImage, *tags: str) -> Selection:
    return select(ExportRequest((entry,)), lambda _: list(tags))


def tags_of(selection: Selection) -> list[str | None]:
    return [one.reference.tag for one in selection.wanted]


def test_fixed_tags_are_not_looked_up() -> None:
    def refuse(_: Reference) -> list[str]:
        raise AssertionError

    selection = select(ExportRequest((ListedRepository(REPOSITORY, ("2", "1")),)), refuse)
    assert tags_of(selection) == ["2", "1"]


def test_a_pattern_must_match_the_whole_tag() -> None:
    tags = ("24.01-py3", "24.01-py3-extra", "x24.01-py3")
    assert tags_of(selected(ListedRepository(REPOSITORY, tag_pattern=r"24\.\d+-py3"), *tags)) == ["24.01-py3"]


def test_the_newest_are_kept_by_number_not_by_text() -> None:
    selection = selected(ListedRepository(REPOSITORY, keep_last=2), "9.1", "10.2", "10.10", "latest", "29Oct2020")
    assert tags_of(selection) == ["10.10", "10.2"]
    assert "2 tags ('29Oct2020', 'latest') left out: no version" in selection.notes[0]


def test_signatures_and_illegal_tags_are_skipped_and_named() -> None:
    selection = selected(ListedRepository(REPOSITORY), "1.0", *SIGNATURE_TAGS, "bad tag", "latest")
    assert tags_of(selection) == ["1.0", "latest"]
    assert any("4 signature or attestation tags" in note and ".sig" in note for note in selection.notes)
    assert any("'bad tag'" in note and "illegal tag" in note for note in selection.notes)


def test_a_repository_that_cannot_be_listed_fails_alone() -> None:
    def list_tags(repository: Reference) -> list[str]:
        if repository == REPOSITORY:
            raise RegistryUnreachable("nobody answers")
        return ["1"]

    other = Reference.parse("host:5000/nvidia/team/model")
    selection = select(ExportRequest((ListedRepository(REPOSITORY), ListedRepository(other))), list_tags)
    assert [failure.reference for failure in selection.failures] == ["host:5000/nvidia/pytorch"]
    assert [str(one.reference) for one in selection.wanted] == ["host:5000/nvidia/team/model:1"]


def test_nothing_that_fits_is_an_error_that_says_why() -> None:
    with pytest.raises(NothingSelected, match=r"none of its 2 tags matches 25"):
        selected(ListedRepository(REPOSITORY, tag_pattern=r"25\..*"), "24.01", "24.02")


def test_one_image_asked_for_twice_is_one() -> None:
    entry = ListedImage(Reference.parse("host/a:1"))
    request = ExportRequest((entry, ListedRepository(Reference.parse("host/a"), ("1",)), entry))
    assert len(select(request, lambda _: []).wanted) == 1


def test_the_platform_of_an_entry_goes_before_the_commands() -> None:
    arm = Platform("linux", "arm64")
    entries = (ListedImage(Reference.parse("a:1"), arm), ListedImage(Reference.parse("b:1")))
    selection = select(ExportRequest(entries, "all"), lambda _: [])
    assert [one.platform for one in selection.wanted] == [arm, "all"]


def test_the_fingerprint_is_of_what_decides_the_bundle() -> None:
    one, two = ListedImage(Reference.parse("a:1")), ListedImage(Reference.parse("b:1"))
    request = ExportRequest((one, two))
    assert request.fingerprint == ExportRequest((two, one)).fingerprint
    others = [
        ExportRequest((one,)),
        ExportRequest((one, two), "all"),
        ExportRequest((one, two), destination="plant"),
        ExportRequest((one, two), chunk_size_bytes=4 << 20),
        ExportRequest((one, ListedImage(two.reference, rename=Reference.parse("c:1")))),
        ExportRequest((one, ListedRepository(two.reference, ("1",)))),
        ExportRequest((one, ListedRepository(two.reference, ("1",), keep_last=1))),
        ExportRequest((one, ListedRepository(two.reference, ("1",), exclude=("a",)))),
        ExportRequest((one, ListedNgc("nvidia"))),
        ExportRequest((one, ListedNgc("nvidia", min_version="24.01"))),
        ExportRequest((one, ListedNgc("nvidia", ("pytorch",)))),
        ExportRequest((one, ListedNgc("nvidia", ("pytorch",), strict_name_match=False))),
    ]
    assert len({request.fingerprint, *(other.fingerprint for other in others)}) == 1 + len(others)


@pytest.mark.parametrize("destination", ["", "Plant", "a" * 25, "a_b", "-a", "a/b", ".."])
def test_destinations_are_plain_names(destination: str) -> None:
    with pytest.raises(InvalidConfiguration, match="destination"):
        ExportRequest((ListedImage(Reference.parse("a:1")),), destination=destination)


def test_several_tag_lists_are_asked_for_at_once_and_the_order_stays() -> None:
    barrier = threading.Barrier(3, timeout=30)

    def list_tags(repository: Reference) -> list[str]:
        barrier.wait()
        return ["latest"] if repository.path.endswith("2") else ["1.0"]

    entries = tuple(ListedRepository(Reference.parse(f"host:5000/a/{number}"), keep_last=1) for number in (3, 2, 1))
    selection = select(ExportRequest(entries), list_tags)
    assert [str(one.reference) for one in selection.wanted] == ["host:5000/a/3:1.0", "host:5000/a/1:1.0"]
    assert selection.notes == [
        "host:5000/a/2: 1 tag ('latest') left out: no version in the name.",
        "host:5000/a/2: none of its 1 tags fits.",
    ]
