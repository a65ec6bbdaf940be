"""What the catalogue says about images, as Markdown files that travel in the bundle."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from transload.export_side.ngc.answers import CatalogImage
from transload.manifests.bundle_manifest import DESCRIPTIONS_FOLDER
from transload.shared import limits
from transload.shared.image import Image

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_LONGEST_STEM = 180
_CUT = "\n\n(The text was longer; it is cut here.)\n"


@dataclass(frozen=True, slots=True)
class Description:
    """One file of the bundle.

    Args:
        name: Its name there.
        repository: What it is about, `host/path`.
        content: Markdown, UTF-8.
    """

    name: str
    repository: str
    content: bytes


def describe(images: Iterable[Image], about: Mapping[str, CatalogImage]) -> tuple[Description, ...]:
    """The descriptions of a bundle's images, one for each repository that something is known about, by name.

    All of them together stay within what a bundle may hold: what comes last is left out.

    Args:
        images: What is in the bundle.
        about: What the catalogue says, by repository.
    """
    found: list[Description] = []
    names: set[str] = set()
    total = 0
    for repository in sorted({image.reference.repository for image in images} & about.keys()):
        content = _text(repository, about[repository])
        total += len(content)
        if content and total <= limits.MAX_DESCRIPTIONS_BYTES and len(found) < limits.MAX_DESCRIPTIONS:
            name = _file_name(repository, names)
            names.add(name.casefold())
            found.append(Description(name, repository, content))
    return tuple(sorted(found, key=lambda one: one.name))


def _text(repository: str, image: CatalogImage) -> bytes:
    if not (image.display_name or image.description or image.license_url):
        return b""
    lines = [f"# {_clean(image.display_name).strip() or repository}", "", f"Image: {repository}"]
    if image.license_url:
        lines += ["", f"Licence: {image.license_url}"]
    if image.description:
        lines += ["", _clean(image.description).strip()]
    raw = ("\n".join(lines) + "\n").encode("utf-8", "replace")
    if len(raw) <= limits.MAX_DESCRIPTION_BYTES:
        return raw
    kept = raw[: limits.MAX_DESCRIPTION_BYTES - len(_CUT)].decode("utf-8", "ignore")
    return (kept + _CUT).encode()


def _clean(text: str) -> str:
    """Text without control characters and what turns the direction of writing."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def _file_name(repository: str, taken: set[str]) -> str:
    stem = _UNSAFE.sub("_", repository).lstrip("._-")
    name = f"{DESCRIPTIONS_FOLDER}/{stem}.md"
    if len(stem) > _LONGEST_STEM or name.casefold() in taken:
        digest = hashlib.sha256(repository.encode()).hexdigest()[:12]
        name = f"{DESCRIPTIONS_FOLDER}/{stem[:_LONGEST_STEM]}-{digest}.md"
    return name
