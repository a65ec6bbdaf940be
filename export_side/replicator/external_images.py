"""`--external-images FILE`: images of other registries that are replicated beside NGC's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from transload.export_side.replicator.names import Candidate
from transload.shared import limits
from transload.shared.atomic_files import read_bounded
from transload.shared.errors import InvalidImageList, InvalidReference, PathMissing, ReadFailed
from transload.shared.references import DEFAULT_TAG, Reference
from transload.shared.yaml_files import load_yaml

_HINT = "It is YAML: `images:` and below it entries of `name:` and `tag:`, such as name: k8s.gcr.io/pause, tag: '3.2'."


def read_external_images(path: Path) -> list[Candidate]:
    """Read the file.

    Args:
        path: The file: `images: [{name, tag}]`; without a tag it is `latest`.

    Raises:
        InvalidImageList: It cannot be read or is of another shape; the message names the entry.
    """
    try:
        raw = read_bounded(path, limits.MAX_IMAGE_LIST_BYTES)
    except (PathMissing, ReadFailed) as error:
        raise InvalidImageList(f"--external-images: {error.message}", hint=_HINT) from error
    document = load_yaml(raw, str(path), raising=InvalidImageList)
    images = document.get("images", "") if isinstance(document, Mapping) else None
    if images is None or not isinstance(images, list | str) or (isinstance(images, str) and images):
        raise InvalidImageList(f"{path}: a list `images` is expected.", hint=_HINT)
    return list(dict.fromkeys(_candidates(path, images or [])))


def _candidates(path: Path, images: list[object]) -> Iterator[Candidate]:
    for number, entry in enumerate(images, start=1):
        name, tag = (entry.get("name"), entry.get("tag") or DEFAULT_TAG) if isinstance(entry, Mapping) else (None, "")
        if not isinstance(name, str) or not name or not isinstance(tag, str):
            raise InvalidImageList(f"{path}, image {number}: a name is expected, and perhaps a tag.", hint=_HINT)
        try:
            reference = Reference.parse(f"{name}:{tag}")
        except InvalidReference as error:
            raise InvalidImageList(f"{path}, image {number}: {error.message}", hint=_HINT) from error
        if reference.tag != tag or reference.digest is not None:
            raise InvalidImageList(f"{path}, image {number}: {name[:100]!r} is no name without a tag.", hint=_HINT)
        yield Candidate(name, tag, reference, is_external=True)
