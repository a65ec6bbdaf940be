"""What NGC's API answers, read entry by entry: one of the wrong shape is named and does not stop the others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from transload.shared.errors import InvalidReference, RegistryProtocolError
from transload.shared.references import Reference

_LICENSE_KEYS = frozenset({"license", "licence", "licenseurl", "licenceurl", "licenselink", "eula", "eulaurl"})
_LINK = re.compile(r"https?://[^\s<>\"'`\\]{3,1000}", re.ASCII)
_MOST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class CatalogImage:
    """One repository of the catalogue.

    Args:
        path: `org/name` or `org/team/name`.
        display_name: What the catalogue calls it; may be empty.
        description: Its text, Markdown; may be empty.
        license_url: Where its licence is.
        latest_tag: The tag that the catalogue calls the latest.
    """

    path: str
    display_name: str = ""
    description: str = ""
    license_url: str | None = None
    latest_tag: str | None = None


@dataclass(frozen=True, slots=True)
class TagDetails:
    """What the organisation's listing says about one tag.

    Args:
        updated: When it was last pushed; None if that is not said.
        size_bytes: Its compressed size; None if that is not said.
    """

    updated: datetime | None
    size_bytes: int | None


@dataclass(slots=True)
class Page:
    """One page of the catalogue.

    Attributes:
        images: Its entries that can be used.
        page_count: How many pages there are.
        problems: What is wrong with the others, by URL and field.
    """

    images: list[CatalogImage] = field(default_factory=list)
    page_count: int = 1
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Fields:
    """The fields of one JSON object, with the place where it stands."""

    value: Mapping[str, Any]
    where: str
    problems: list[str]

    def field(self, name: str) -> str:
        """A field's place, for messages."""
        return f"{self.where}{'' if self.where.endswith(' ') else '.'}{name}"

    def text(self, name: str) -> str:
        """An optional text: missing and null are empty, anything else is a problem."""
        found = self.value.get(name)
        if found is None or isinstance(found, str):
            return found or ""
        self.problems.append(f"{self.field(name)} is {_kind(found)} where text is expected.")
        return ""

    def objects(self, name: str) -> Iterator[_Fields]:
        """An optional list of objects: missing and null are empty."""
        found = self.value.get(name)
        if found is None:
            return
        if not isinstance(found, list):
            self.problems.append(f"{self.field(name)} is {_kind(found)} where a list is expected.")
            return
        for number, item in enumerate(found):
            where = f"{self.field(name)}[{number}]"
            if isinstance(item, dict):
                yield _Fields(item, where, self.problems)
            else:
                self.problems.append(f"{where} is {_kind(item)} where an object is expected.")


def search_page(answer: object, where: str) -> Page:
    """Read one page of the public search.

    Args:
        answer: The JSON.
        where: Its URL and page, for messages.

    Raises:
        RegistryProtocolError: It is no page of results at all.
    """
    page = Page()
    top = _top(answer, "results", where, page.problems)
    page.page_count = _count(top, "resultPageTotal")
    for group in top.objects("results"):
        if group.value.get("groupValue") not in ("CONTAINER", None):
            continue
        for resource in group.objects("resources"):
            path = _path(resource, "resourceId", resource.value.get("resourceId"))
            if path:
                page.images.append(_with_attributes(_described(resource, path), resource))
    return page


def org_page(answer: object, where: str) -> Page:
    """Read one page of an organisation's repositories.

    Args:
        answer: The JSON.
        where: Its URL and page, for messages.

    Raises:
        RegistryProtocolError: It is no list of repositories at all.
    """
    page = Page()
    top = _top(answer, "repositories", where, page.problems)
    pages = top.value.get("paginationInfo")
    if isinstance(pages, dict):
        page.page_count = _count(_Fields(pages, top.field("paginationInfo"), page.problems), "totalPages")
    for repository in top.objects("repositories"):
        namespace, name = repository.value.get("namespace"), repository.value.get("name")
        if not isinstance(namespace, str):
            page.problems.append(f"{repository.field('namespace')} is {_kind(namespace)} where text is expected.")
            continue
        path = _path(repository, "name", f"{namespace}/{name}" if isinstance(name, str) else name)
        if path:
            page.images.append(_with_attributes(_described(repository, path), repository))
    return page


def tag_details(answer: object, where: str, problems: list[str]) -> dict[str, TagDetails]:
    """Read the tags of one repository as its organisation lists them.

    Args:
        answer: The JSON.
        where: Its URL, for messages.
        problems: Entries of the wrong shape are named here.

    Raises:
        RegistryProtocolError: It is no list of images at all.
    """
    found = {}
    for entry in _top(answer, "images", where, problems).objects("images"):
        tag, size = entry.value.get("tag"), entry.value.get("size")
        if not isinstance(tag, str):
            problems.append(f"{entry.field('tag')} is {_kind(tag)} where text is expected.")
            continue
        is_size = isinstance(size, int) and not isinstance(size, bool) and size >= 0
        found[tag] = TagDetails(_time(entry, "updatedDate"), size if is_size else None)
    return found


def org_names(answer: object, where: str) -> list[str]:
    """The names in a list of organisations; what has none is left out.

    Raises:
        RegistryProtocolError: It is no list of organisations at all.
    """
    entries = _top(answer, "organizations", where, []).objects("organizations")
    return [name for entry in entries if (name := entry.text("name"))]


def parse_time(text: str) -> datetime | None:
    """A time in RFC 3339, with any number of digits after the second; None for anything else."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.\d+)?([Zz]|[+-]\d\d:\d\d)?", text, re.ASCII)
    if match is None:
        return None
    zone = "+00:00" if match[3] in (None, "Z", "z") else match[3]
    try:
        return datetime.fromisoformat(f"{match[1]}T{match[2]}{zone}").astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


def _top(answer: object, name: str, where: str, problems: list[str]) -> _Fields:
    if not isinstance(answer, dict) or not isinstance(answer.get(name), list):
        found = _kind(answer.get(name)) if isinstance(answer, dict) else f"{_kind(answer)} and not an object"
        raise RegistryProtocolError(
            f"{where}: the field {name} is {found} where a list is expected.",
            hint="NGC's API may have changed. Name the images themselves, such as nvcr.io/nvidia/pytorch:24.01-py3.",
            url=where, field=name,
        )  # fmt: skip
    return _Fields(answer, f"{where}: ", problems)


def _path(entry: _Fields, name: str, value: object) -> str | None:
    if isinstance(value, str):
        try:
            reference = Reference.parse(f"registry.invalid/{value}")
            if "/" in reference.path and f"{reference.path}" == value:
                return value
        except InvalidReference:
            pass
        entry.problems.append(f"{entry.field(name)} is {value[:_MOST_SHOWN]!r}, which is no repository.")
    else:
        entry.problems.append(f"{entry.field(name)} is {_kind(value)} where text is expected.")
    return None


def _described(entry: _Fields, path: str) -> CatalogImage:
    description = entry.text("description") or entry.text("shortDescription")
    tag = entry.text("latestTag")
    return CatalogImage(path, entry.text("displayName"), description, _license(entry), tag or None)


def _license(entry: _Fields) -> str | None:
    values = (value for key, value in entry.value.items() if _plain(key) in _LICENSE_KEYS)
    return next((value for value in values if isinstance(value, str) and _LINK.fullmatch(value)), None)


def _with_attributes(image: CatalogImage, entry: _Fields) -> CatalogImage:
    for attribute in entry.objects("attributes"):
        key, value = attribute.text("key"), attribute.text("value")
        if key == "latestTag" and value:
            image = replace(image, latest_tag=value)
        elif _plain(key) in _LICENSE_KEYS and _LINK.fullmatch(value):
            image = replace(image, license_url=value)
    return image


def _plain(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "").replace(" ", "")


def _count(entry: _Fields, name: str) -> int:
    found = entry.value.get(name, 1)
    if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
        return found
    entry.problems.append(f"{entry.field(name)} is {_kind(found)} where a number is expected.")
    return 1


def _time(entry: _Fields, name: str) -> datetime | None:
    text = entry.text(name)
    found = parse_time(text) if text else None
    if text and found is None:
        entry.problems.append(f"{entry.field(name)} is {text[:_MOST_SHOWN]!r}, which is no time.")
    return found


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return "missing or null" if value is None else kinds.get(type(value), type(value).__name__)
