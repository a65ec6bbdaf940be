"""Reads the state.yml of NVIDIA's NGC Container Replicator.

PyYAML wrote its `defaultdict(dict)` with tags that name Python objects, and reading it back needed a loader that can
run any code. Here exactly these tags are read as the plain mappings that they stand for; any other is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from transload.shared.errors import StateUnreadable
from transload.shared.yaml_files import load_yaml

_PYTHON = "tag:yaml.org,2002:python/"
_TAGS = frozenset({
    f"{_PYTHON}object/apply:collections.defaultdict",
    f"{_PYTHON}name:builtins.dict",
    f"{_PYTHON}name:__builtin__.dict",  # as Python 2 called it
})  # fmt: skip
_FIRST_LINE = re.compile(rb"\s*(?:---\s+)?!!python/object/apply:collections\.defaultdict\s*$", re.MULTILINE)
_HINT = "Correct the file, or move it away to begin anew: then everything is fetched again."


def read_old_state(raw: bytes) -> dict[str, dict[str, str]] | None:
    """What the old tool's state.yml lists.

    Args:
        raw: The file's content.

    Returns:
        Image name -> tag -> what was remembered: a date or a Docker image id, or empty for external images. None if
        the file is not the old tool's.

    Raises:
        StateUnreadable: It is, but cannot be understood.
    """
    if not _FIRST_LINE.match(raw):
        return None
    document = load_yaml(raw, "state.yml of the old replicator", raising=StateUnreadable, ignored_tags=_TAGS)
    fields = document if isinstance(document, Mapping) else {}
    images = fields.get("dictitems") or {}  # left out where there are none
    if not isinstance(images, Mapping) or not set(fields) <= {"args", "dictitems"}:
        raise StateUnreadable("The state.yml of the old replicator has no list of images.", hint=_HINT)
    return {str(name): _tags(str(name), tags) for name, tags in images.items()}


def _tags(name: str, tags: object) -> dict[str, str]:
    if not isinstance(tags, Mapping) or not all(isinstance(value, str) for value in tags.values()):
        raise StateUnreadable(
            f"The state.yml of the old replicator lists {name[:100]!r} without tags and their ids.", hint=_HINT
        )
    return {str(tag): str(value) for tag, value in tags.items()}
