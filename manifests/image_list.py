r"""`--images FILE.yml`: which images to export, as a person writes them down.

    images:
      - nvcr.io/nvidia/cuda:12.4.1-base-ubuntu22.04            # a reference alone
      - reference: nvcr.io/nvidia/pytorch:24.01-py3
        platform: linux/arm64                                  # or `all`; the command's --platform otherwise
        rename: ml/pytorch:24.01-py3                           # what it is called from here on
      - repository: nvcr.io/nvidia/tensorflow
        tag_pattern: '24\.\d+-tf2-py3'                         # a regular expression for the whole tag
        keep_last: 2                                           # the newest two of those
        exclude: ['-igpu$']                                    # further rules: min_version, py_version, since_days
      - repository: docker.io/library/busybox
        tags: ["1.36", "1.37"]
      - ngc:                                                   # what NGC's catalogue has
          project: nvidia
          images: [pytorch, tensorflow]                        # all of the project without
          min_version: "24.01"
          keep_last: 2

Unknown keys are refused, so that a misspelt one is not silently ignored; all faults are reported together.
docs/image_list.md describes every key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from transload.manifests.tag_rules import TagRules
from transload.shared.errors import InvalidImageList, InvalidReference, TransloadError, raise_all
from transload.shared.platforms import Platform
from transload.shared.references import Reference, is_tag
from transload.shared.yaml_files import load_yaml

ALL_PLATFORMS: Final = "all"
PlatformChoice = Platform | Literal["all"]

_IMAGE_KEYS = {"reference", "platform", "rename"}
_RULE_KEYS = {"min_version", "py_version", "keep_last", "since_days", "exclude"}
_REPOSITORY_KEYS = {"repository", "platform", "tags", "tag_pattern", *_RULE_KEYS}
_SELECTING_KEYS = ("tags", "tag_pattern", "keep_last", "min_version", "since_days", "py_version")
_NGC_KEYS = {"project", "images", "strict_name_match", "platform", *_RULE_KEYS}
ENTRY_KEYS: Final = (_IMAGE_KEYS, _REPOSITORY_KEYS, _NGC_KEYS)
_SHAPE_HINT = (
    "An entry is a reference, {reference, platform?, rename?}, {repository, tags | tag_pattern, keep_last, ...} or "
    "{ngc: {project, images, min_version, keep_last, ...}}."
)


@dataclass(frozen=True, slots=True)
class ListedImage:
    """One image by name.

    Args:
        reference: What to fetch.
        platform: Which platform of it; None for the command's own choice.
        rename: What it is called from here on; None to keep its name.
    """

    reference: Reference
    platform: PlatformChoice | None = None
    rename: Reference | None = None


@dataclass(frozen=True, slots=True)
class ListedRepository(TagRules):
    """Several tags of one repository: those named or matching, and of them what the rules let pass.

    Args:
        repository: The repository; its tag and digest do not count.
        tags: These tags, if any are named.
        tag_pattern: Otherwise the tags that match this regular expression as a whole; every tag if it is empty,
            which a list cannot say.
        platform: Which platform of them; None for the command's own choice.
    """

    repository: Reference
    tags: tuple[str, ...] = ()
    tag_pattern: str = ""
    platform: PlatformChoice | None = None


@dataclass(frozen=True, slots=True)
class ListedNgc(TagRules):
    """Images that NGC's catalogue has, and of each the tags that the rules let pass.

    Args:
        project: An organisation, such as `nvidia`, or `org/team`.
        images: Which of its images; all without.
        strict_name_match: A name is the whole one; otherwise a part of it is enough.
        platform: Which platform of them; None for the command's own choice.
    """

    project: str
    images: tuple[str, ...] = ()
    strict_name_match: bool = True
    platform: PlatformChoice | None = None


ListEntry = ListedImage | ListedRepository | ListedNgc


def parse(raw: bytes, where: str) -> tuple[ListEntry, ...]:
    """Read an image list.

    Args:
        raw: The file's content, already bounded by `limits.MAX_IMAGE_LIST_BYTES`.
        where: The file's name, for messages.

    Raises:
        InvalidImageList: Not YAML, or not of the documented shape; every fault is named.
    """
    document = load_yaml(raw, where, raising=InvalidImageList)
    if not isinstance(document, Mapping) or not isinstance(document.get("images"), list):
        raise InvalidImageList(f"{where} has no list `images:`.", hint=_SHAPE_HINT, file=where)
    errors = [
        InvalidImageList(f"{where}: unknown key {str(key)[:60]!r} beside `images`.", file=where)
        for key in document
        if key != "images"
    ]
    entries: list[ListEntry] = []
    for number, value in enumerate(document["images"], start=1):
        try:
            entries.append(_entry(value))
        except TransloadError as error:  # noqa: PERF203 - every entry's fault is wanted
            message = f"{where}: entry {number}: {error.message}"
            errors.append(InvalidImageList(message, hint=error.hint or _SHAPE_HINT, file=where, entry=number))
    raise_all(errors)
    if not entries:
        raise InvalidImageList(f"{where} lists no images.", hint=_SHAPE_HINT, file=where)
    return tuple(entries)


def parse_platform_choice(text: str) -> PlatformChoice:
    """Read a platform, or `all`.

    Raises:
        InvalidReference: Text of another shape.
    """
    return ALL_PLATFORMS if text == ALL_PLATFORMS else Platform.parse(text)


def _entry(value: object) -> ListEntry:
    if isinstance(value, str):
        return ListedImage(Reference.parse(value))
    if not isinstance(value, Mapping):
        raise InvalidImageList("it is neither a reference nor a mapping.")
    if sum(kind in value for kind in ("reference", "repository", "ngc")) != 1:
        raise InvalidImageList("it needs either `reference` or `repository` or `ngc`.")
    if "ngc" in value:
        _refuse_unknown(value, {"ngc"})
        return _ngc(value["ngc"])
    _refuse_unknown(value, _IMAGE_KEYS if "reference" in value else _REPOSITORY_KEYS)
    platform = _platform(value)
    reference_text = _text(value, "reference")
    if reference_text is not None:
        rename = _text(value, "rename")
        return ListedImage(Reference.parse(reference_text), platform, _new_name(rename) if rename is not None else None)
    return _repository(value, platform)


def _refuse_unknown(value: Mapping[object, object], allowed: set[str]) -> None:
    unknown = [str(key) for key in value if key not in allowed]
    if unknown:
        raise InvalidImageList(f"unknown key {unknown[0][:60]!r}; here may be: {', '.join(sorted(allowed))}.")


def _platform(value: Mapping[object, object]) -> PlatformChoice | None:
    text = _text(value, "platform")
    return parse_platform_choice(text) if text is not None else None


def _ngc(value: object) -> ListedNgc:
    if not isinstance(value, Mapping):
        raise InvalidImageList("`ngc` is not a mapping, such as {project: nvidia, images: [pytorch]}.")
    _refuse_unknown(value, _NGC_KEYS)
    strict = _text(value, "strict_name_match")
    if strict not in (None, "true", "false"):
        raise InvalidImageList("`strict_name_match` is neither true nor false.")
    project = _text(value, "project") or "nvidia"
    return ListedNgc(project, _texts(value, "images"), strict != "false", _platform(value), **_rules(value))


def _rules(value: Mapping[object, object]) -> dict[str, Any]:
    return {
        "min_version": _text(value, "min_version"),
        "py_version": _text(value, "py_version"),
        "keep_last": _positive_number(value, "keep_last"),
        "since_days": _positive_number(value, "since_days"),
        "exclude": _texts(value, "exclude"),
    }


def _texts(value: Mapping[object, object], key: str) -> tuple[str, ...]:
    """A list of texts, or one alone."""
    found = value.get(key, [])
    found = [found] if isinstance(found, str) else found
    if not isinstance(found, list) or not all(isinstance(text, str) and text for text in found):
        raise InvalidImageList(f"`{key}` is not a list of texts.")
    return tuple(found)


def _new_name(text: str) -> Reference:
    name = Reference.parse(text)
    if name.digest is not None:
        raise InvalidReference(f"`rename` is {text[:300]!r}; a digest cannot be chosen.", hint="Name a tag only.")
    return name


def _repository(value: Mapping[object, object], platform: PlatformChoice | None) -> ListedRepository:
    text = _text(value, "repository") or ""
    repository = Reference.parse(text)
    if "@" in text or ":" in text.rpartition("/")[2]:
        raise InvalidImageList(f"`repository` is {text[:300]!r}, which has a tag or digest; use `reference` for that.")
    if "tags" in value and "tag_pattern" in value:
        raise InvalidImageList("`tags` and `tag_pattern` exclude each other.")
    listed = ListedRepository(repository, tuple(_tags(value)), _pattern(value), platform, **_rules(value))
    if not any(value.get(key) for key in _SELECTING_KEYS):
        raise InvalidImageList(
            f"nothing chooses among the tags of {repository.repository}.",
            hint=f"Give one of {', '.join(_SELECTING_KEYS)}; `tag_pattern: .*` means every tag.",
        )
    return listed


def _tags(value: Mapping[object, object]) -> Iterator[str]:
    if "tags" not in value:
        return
    tags = value["tags"]
    if not isinstance(tags, list) or not tags:
        raise InvalidImageList("`tags` is not a list of tags, or an empty one.")
    for tag in tags:
        if not isinstance(tag, str) or not is_tag(tag):
            raise InvalidImageList(f"`tags` has {str(tag)[:130]!r}, which is no tag.")
        yield tag


def _pattern(value: Mapping[object, object]) -> str:
    pattern = _text(value, "tag_pattern") or ""
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidImageList(f"`tag_pattern` is no regular expression: {error}.") from error
    return pattern


def _positive_number(value: Mapping[object, object], key: str) -> int | None:
    if key not in value:
        return None
    text = str(value[key])
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text, re.ASCII):
        raise InvalidImageList(f"`{key}` is {text[:60]!r}; it must be a number from 1 on.")
    return int(text)


def _text(value: Mapping[object, object], key: str) -> str | None:
    if key not in value:
        return None
    text = value[key]
    if not isinstance(text, str):
        raise InvalidImageList(f"`{key}` is not text.")
    return text
