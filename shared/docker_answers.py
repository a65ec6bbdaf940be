"""What the Docker daemon answers, understood: its kind, its images, its stream of load messages. No I/O.

Reference: Docker Engine API v1.41 and later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import EngineFailed, InvalidReference, UnsupportedImage
from transload.shared.platforms import Platform

Store = Literal["layers", "containerd"]
"""`layers`: the daemon's own store (overlay2 and others); `containerd`: the containerd image store."""

_CONTAINERD_DRIVER = "io.containerd.snapshotter.v1"
_FIRST_VERSION_WITH_ZSTD = 23


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What kind of daemon it is.

    Args:
        version: Its version, as it says it.
        store: Where it keeps images.
        platform: What it runs by itself.
        root: Its data directory, as it sees it.
    """

    version: str
    store: Store
    platform: Platform
    root: Path

    @property
    def reads_zstd(self) -> bool:
        """Whether it can load zstd layers; an unreadable version counts as old."""
        major = self.version.partition(".")[0]
        return self.store == "containerd" or (major.isdecimal() and int(major) >= _FIRST_VERSION_WITH_ZSTD)


@dataclass(frozen=True, slots=True)
class HeldImage:
    """An image that the daemon holds.

    Args:
        image_id: The config's digest, or the manifest's or index's on the containerd store.
        diff_ids: Digests of its decompressed layers, lowest first.
        tags: Its names, as the daemon writes them.
        repository_digests: `repository@digest` names.
    """

    image_id: Digest
    diff_ids: tuple[Digest, ...]
    tags: tuple[str, ...]
    repository_digests: tuple[str, ...]


def engine_info(version: Mapping[str, Any], info: Mapping[str, Any]) -> EngineInfo:
    """What kind of daemon it is, from its answers to /version and /info."""
    return EngineInfo(
        version=str(version.get("Version") or ""),
        store="containerd" if _CONTAINERD_DRIVER in str(info.get("DriverStatus")) else "layers",
        platform=Platform(str(version.get("Os") or "linux"), str(version.get("Arch") or "amd64")),
        root=Path(str(info.get("DockerRootDir") or "/var/lib/docker")),
    )


def held_image(fields: Mapping[str, Any]) -> HeldImage:
    """An image, from the answer to /images/NAME/json.

    Raises:
        EngineFailed: An answer of another shape.
    """
    try:
        return HeldImage(
            image_id=Digest.parse(fields["Id"]),
            diff_ids=tuple(Digest.parse(text) for text in (fields.get("RootFS") or {}).get("Layers") or ()),
            tags=tuple(fields.get("RepoTags") or ()),
            repository_digests=tuple(fields.get("RepoDigests") or ()),
        )
    except (KeyError, TypeError, AttributeError, InvalidReference, UnsupportedImage) as error:
        raise EngineFailed(f"The Docker daemon describes an image in an unknown way: {short(error)}.") from error


def failure_in(lines: Iterable[bytes]) -> str | None:
    """The first failure in a load's stream of JSON messages, or None.

    Some failures come as words in a message of success: the containerd store's "Error unpacking image".

    Args:
        lines: One JSON message a line.
    """
    for line in lines:
        if not line.strip():
            continue
        try:
            message = msgspec.json.decode(line)
        except msgspec.DecodeError:
            return f"an answer that is not JSON: {line[:200]!r}"
        if not isinstance(message, dict):
            continue
        detail = message.get("errorDetail")
        if isinstance(detail, dict) or message.get("error"):
            return str((detail or {}).get("message") or message.get("error") or "no reason given")
        if str(message.get("stream", "")).startswith("Error unpacking image"):
            return str(message["stream"]).strip()
    return None


def message_of(body: bytes) -> str:
    """The reason in the body of an HTTP error."""
    try:
        message = msgspec.json.decode(body)
    except msgspec.DecodeError:
        message = None
    found = message.get("message") if isinstance(message, dict) else None
    return str(found or body[: limits.MAX_ERROR_BODY_BYTES].decode("utf-8", "replace") or "no reason given")


def short(reason: object) -> str:
    """A reason on one line of bounded length, without its full stop."""
    text = " ".join(str(reason).split())
    return (text if len(text) <= 500 else f"{text[:500]}...").rstrip(".")
