"""The image list as people write it, and as they miswrite it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from transload.manifests.image_list import (
    ALL_PLATFORMS,
    ENTRY_KEYS,
    ListedImage,
    ListedNgc,
    ListedRepository,
    parse,
)
from transload.shared.errors import Faults, InvalidImageList
from transload.shared.platforms import Platform
from transload.shared.references import Reference

PYTORCH = Reference.parse("nvcr.io/nvidia/pytorch:24.01-py3")


PAGE = (Path(__file__).parents[2] / "docs" / "image_list.md").read_text()


def parsed(text: str) -> object:
    return parse(text.encode(), "list.yml")


def test_a_reference_alone_is_an_entry() -> None:
    assert parsed("images: [nvcr.io/nvidia/pytorch:24.01-py3, busybox]") == (
        ListedImage(PYTORCH),
        ListedImage(Reference("docker.io", "library/busybox", "latest")),
    )


def test_platform_and_rename() -> None:
    text = """
    images:
      - reference: nvcr.io/nvidia/pytorch:24.01-py3
        platform: linux/arm64
        rename: ml/pytorch:24.01
      - {reference: "nvcr.io/nvidia/pytorch:24.01-py3", platform: all}
    """
    assert parsed(text) == (
        ListedImage(PYTORCH, Platform("linux", "arm64"), Reference.parse("ml/pytorch:24.01")),
        ListedImage(PYTORCH, ALL_PLATFORMS),
    )


def test_tags_stay_text() -> None:
    text = """
    images:
      - {repository: nvcr.io/nvidia/team/model, tags: [1.10, 2024-01-01, on, 0x10]}
    """
    assert parsed(text) == (
        ListedRepository(Reference.parse("nvcr.io/nvidia/team/model"), ("1.10", "2024-01-01", "on", "0x10")),
    )


def test_a_pattern_with_a_number_to_keep() -> None:
    text = r"""
    images:
      - repository: host:5000/a/b
        tag_pattern: '24\.\d+-py3'
        keep_last: 2
    """
    expected = ListedRepository(Reference.parse("host:5000/a/b"), tag_pattern=r"24\.\d+-py3", keep_last=2)
    assert parsed(text) == (expected,)


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ("{reference: 'a:1', plattform: linux/arm64}", "unknown key 'plattform'"),
        ("{reference: 'a:1', keep_last: 2}", "unknown key 'keep_last'"),
        ("{reference: 'a:1', repository: b}", "either `reference` or `repository`"),
        ("{platform: linux/arm64}", "either `reference` or `repository`"),
        ("{reference: 'a/B:1'}", "upper-case"),
        ("{reference: 'a:1', platform: arm}", "Not a platform"),
        ("{reference: 'a:1', rename: 'b@sha256:" + "0" * 64 + "'}", "a digest cannot be chosen"),
        ("{repository: 'a:1'}", "has a tag or digest"),
        ("{repository: 'host:5000/a:1'}", "has a tag or digest"),
        ("{repository: a}", "nothing chooses among the tags of docker.io/library/a"),
        ("{repository: a, exclude: ['-rc'], platform: all}", "nothing chooses among the tags"),
        ("{repository: a, tag_pattern: ''}", "nothing chooses among the tags"),
        ("{repository: a, tags: []}", "empty"),
        ("{repository: a, tags: ['x y']}", "which is no tag"),
        ("{repository: a, tags: ['1'], tag_pattern: '.*'}", "exclude each other"),
        ("{repository: a, tag_pattern: '('}", "no regular expression"),
        ("{repository: a, keep_last: 0}", "a number from 1 on"),
        ("{repository: a, keep_last: many}", "a number from 1 on"),
        ("{reference: [a]}", "`reference` is not text"),
        ("[a]", "neither a reference nor a mapping"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(entry: str, complaint: str) -> None:
    with pytest.raises(InvalidImageList, match=r"list\.yml: entry 2: ") as raised:
        parsed(f"images:\n  - good:1\n  - {entry}\n")
    assert complaint in raised.value.message
    assert raised.value.facts["entry"] == 2


def test_all_faults_are_reported_together() -> None:
    with pytest.raises(Faults) as raised:
        parsed("images: [A, {tags: [x]}, ok, {reference: '-x'}]\nimage: []")
    assert raised.value.exit_code == InvalidImageList.exit_code
    assert len(raised.value.errors) == 4


@pytest.mark.parametrize(
    "text", ["", "images:", "images: {}", "[a, b]", "images: []", "a: [", "images: [!!python/name:os x]"]
)
def test_other_documents_are_no_image_lists(text: str) -> None:
    with pytest.raises(InvalidImageList):
        parsed(text)


def test_entries_of_ngc_and_rules() -> None:
    text = """
    images:
      - ngc: {images: [pytorch, team/model], min_version: "24.01", keep_last: 2, exclude: '-igpu$', platform: all}
      - ngc: {project: hpc, images: gromacs, strict_name_match: false}
      - ngc: {}
      - {repository: a, since_days: 30, py_version: py3, exclude: [x, 'y$'], tags: ["1.0"]}
    """
    assert parse(text.encode(), "list.yml") == (
        ListedNgc(
            "nvidia", ("pytorch", "team/model"), platform="all", min_version="24.01", keep_last=2, exclude=("-igpu$",)
        ),
        ListedNgc("hpc", ("gromacs",), strict_name_match=False),
        ListedNgc("nvidia"),
        ListedRepository(Reference.parse("a"), ("1.0",), since_days=30, py_version="py3", exclude=("x", "y$")),
    )


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("{ngc: nvidia}", "`ngc` is not a mapping"),
        ("{ngc: {image: pytorch}}", "unknown key 'image'"),
        ("{ngc: {}, platform: all}", "unknown key 'platform'"),
        ("{ngc: {}, repository: a}", "either `reference` or `repository` or `ngc`"),
        ("{ngc: {images: {a: b}}}", "`images` is not a list"),
        ("{ngc: {strict_name_match: maybe}}", "neither true nor false"),
        ("{ngc: {min_version: latest}}", "which is no version"),
        ("{repository: a, exclude: ['(']}", "no regular expression"),
        ("{repository: a, since_days: 0}", "a number from 1 on"),
        ("{reference: 'a:1', min_version: '1'}", "unknown key 'min_version'"),
    ],
)
def test_entries_that_make_no_sense(entry: str, why: str) -> None:
    with pytest.raises(InvalidImageList, match=re.escape(why)):
        parse(f"images:\n  - {entry}\n".encode(), "list.yml")


def test_every_tag_is_exported_only_on_request() -> None:
    assert parsed("images: [{repository: a, tag_pattern: .*}]") == (
        ListedRepository(Reference.parse("a"), tag_pattern=".*"),
    )


def test_the_page_names_every_key_and_its_example_is_a_list() -> None:
    for section, keys in zip(PAGE.split("\n## ")[1:], ENTRY_KEYS, strict=True):
        cells = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
        assert {key for cell in cells for key in re.findall(r"`(\w+)`", cell)} == keys
    example = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(parsed(example[0])) == 5  # type: ignore[arg-type]
