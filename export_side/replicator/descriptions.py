"""`description_<image>.md`: what NGC's catalogue says of an image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transload.export_side.ngc.answers import CatalogImage
from transload.export_side.replicator.names import description_name
from transload.export_side.selection import Failure
from transload.shared import limits
from transload.shared.atomic_files import read_bounded, write_atomically
from transload.shared.errors import TransloadError


def write_descriptions(folder: Path, images: Sequence[CatalogImage]) -> list[Failure]:
    """Write the descriptions that are new or have changed.

    Args:
        folder: Where.
        images: The repositories that have images here.

    Returns:
        Those that could not be written.
    """
    failures = []
    for image in images:
        text = description_text(image)
        path = folder / description_name(image.path)
        if not text or _content(path) == text:
            continue
        try:
            write_atomically(path, text)
        except TransloadError as error:
            failures.append(Failure(path.name, error))
    return failures


def description_text(image: CatalogImage) -> bytes:
    """The catalogue's text as it is, and the licence's link below it if there is one."""
    parts = [image.description.rstrip("\n"), f"Licence: {image.license_url}" if image.license_url else ""]
    text = "\n\n".join(part for part in parts if part)
    return f"{text}\n".encode() if text else b""


def _content(path: Path) -> bytes | None:
    try:
        return read_bounded(path, limits.MAX_CATALOG_PAGE_BYTES)
    except TransloadError:
        return None
