"""When the image behind a tag was made, by its own config: for registries that do not date their tags."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime

import msgspec

from transload.export_side.ngc.answers import parse_time
from transload.shared import limits
from transload.shared.image import ImageIndex, ImageManifest, ManifestDocument, parse_document
from transload.shared.references import Reference
from transload.shared.registry.client import RegistryClient
from transload.shared.workers import Stop, run_parallel

_JOBS = 8
_FIRST_REAL_YEAR = 1990
"""Reproducible builds write a time at the beginning of the epoch, which is no date of theirs."""


def config_dates(
    client: RegistryClient, repository: Reference, tags: Sequence[str], *, stop: Stop
) -> dict[str, datetime]:
    """The `created` of the config of each tag's image; of an index, of the first image in it.

    Args:
        client: The repository's registry.
        repository: Where the tags are.
        tags: Each costs three requests at most.
        stop: Ends the run.

    Returns:
        By tag; without those that have none or cannot be read.
    """
    found: dict[str, datetime] = {}

    def work(tag: str) -> datetime | None:
        return _created(client, repository.path, tag)

    with contextlib.closing(run_parallel(tags, work, jobs=_JOBS, stop=stop)) as outcomes:
        for outcome in outcomes:
            if outcome.result is not None:
                found[outcome.item] = outcome.result
    return found


def _created(client: RegistryClient, path: str, version: str) -> datetime | None:
    document: ManifestDocument = client.get_manifest(path, version)
    parsed = parse_document(document)
    for _ in range(limits.MAX_INDEX_DEPTH):
        if not isinstance(parsed, ImageIndex):
            break
        first = next((one for one in parsed.manifests if one.platform and one.platform.os != "unknown"), None)
        if first is None:
            return None
        parsed = parse_document(client.get_manifest(path, str(first.digest)))
    if not isinstance(parsed, ImageManifest):
        return None
    raw = client.get_small_blob(path, parsed.config, limits.MAX_CONFIG_BYTES)
    try:
        created = msgspec.json.decode(raw, type=dict[str, object]).get("created")
    except msgspec.MsgspecError:
        return None
    time = parse_time(created) if isinstance(created, str) else None
    return time if time is not None and time.year >= _FIRST_REAL_YEAR else None
