"""The replicator's state.yml: which images it has, and where it brought them."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import ClassVar

import msgspec

from transload.export_side.replicator.names import Candidate
from transload.export_side.replicator.old_state import read_old_state
from transload.export_side.replicator.request import ReplicatorRequest
from transload.shared import limits
from transload.shared.atomic_files import read_bounded, write_atomically
from transload.shared.console import say
from transload.shared.errors import PathMissing
from transload.shared.state_file import State, decode_state, read_state

OLD_COPY_SUFFIX = ".from_ngc_replicator"


class ReplicaRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One tag of one repository.

    Attributes:
        digest: What the tag stood for at the source; empty for what the old tool fetched and was not seen since.
        when: UTC time of the last change.
        tar: The name of its docker-save file, once it was written.
        registries: The registry URLs that it was pushed to.
        sif: The name of its SIF file, once it was built.
        from_old_tool: The old tool listed it, so everything that was asked of it then is done.
        old_id: What the old tool remembered of it: NGC's date of the tag, or a Docker image id.
    """

    digest: str = ""
    when: str = ""
    tar: str = ""
    registries: list[str] = []
    sif: str = ""
    from_old_tool: bool = False
    old_id: str = ""

    def is_complete(self, request: ReplicatorRequest) -> bool:
        """Whether nothing that a request asks for is missing; SIF images are left aside."""
        if self.from_old_tool:
            return True
        is_pushed = request.registry_url is None or request.registry_url in self.registries
        return is_pushed and (bool(self.tar) or not request.makes_tars)

    def touch(self) -> None:
        """Note the time."""
        self.when = f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


class ReplicatorState(State, kw_only=True):
    """The whole of a replicator's state.yml.

    Attributes:
        images: Repository URL (`nvcr.io/nvidia/tensorflow`) -> tag -> record. A tag that is taken out is fetched
            again.
    """

    SCHEMA: ClassVar[int] = 1
    SIDE: ClassVar[str] = "replicator"

    images: dict[str, dict[str, ReplicaRecord]] = msgspec.field(default_factory=dict)

    @classmethod
    def fresh(cls) -> ReplicatorState:
        """The state before the first run."""
        return cls(schema=cls.SCHEMA, side=cls.SIDE)

    def record_of(self, one: Candidate) -> ReplicaRecord | None:
        """What is known of an image."""
        return self.images.get(one.repository_url, {}).get(one.tag)

    def begin(self, one: Candidate, digest: str) -> ReplicaRecord:
        """The record of an image at a digest; one of another digest is forgotten, because its tag has moved."""
        tags = self.images.setdefault(one.repository_url, {})
        if one.tag not in tags or tags[one.tag].digest != digest:
            tags[one.tag] = ReplicaRecord(digest=digest)
        return tags[one.tag]


def upgraded(raw: bytes, registry: str) -> ReplicatorState | None:
    """The state that an old tool's file stands for; None if it is no such file.

    The old tool kept images of NGC by their name without the registry, and remembered something of each; of external
    images it remembered nothing.

    Args:
        raw: The file's content.
        registry: NGC's registry.

    Raises:
        StateUnreadable: It begins as the old tool's file and is damaged.
    """
    old = read_old_state(raw)
    if old is None:
        return None
    state = ReplicatorState.fresh()
    for name, tags in old.items():
        for tag, old_id in tags.items():
            record = ReplicaRecord(from_old_tool=True, old_id=old_id)
            state.images.setdefault(f"{registry}/{name}" if old_id else name, {})[tag] = record
    return state


def upgrade_file(raw: bytes, path: Path, registry: str) -> ReplicatorState | None:
    """`upgraded`, with the original kept beside the new file.

    Raises:
        StateUnreadable: See there.
        WriteFailed, NotEnoughSpace: The original cannot be kept.
    """
    state = upgraded(raw, registry)
    if state is not None:
        kept = path.with_name(f"{path.name}{OLD_COPY_SUFFIX}")
        write_atomically(kept, raw)
        count = sum(map(len, state.images.values()))
        say(f"{path} was written by the old replicator and lists {count} images, which are not fetched again. "
            f"It is upgraded; the original is kept as {kept.name}.")  # fmt: skip
    return state


def look(path: Path, registry: str) -> ReplicatorState:
    """The state, also an old tool's, without touching the file; a fresh one where there is none.

    Raises:
        StateUnreadable: It is there and cannot be understood.
    """
    try:
        raw = read_bounded(path, limits.MAX_STATE_BYTES)
    except PathMissing:
        return read_state(path, ReplicatorState) or ReplicatorState.fresh()
    return upgraded(raw, registry) or decode_state(raw, ReplicatorState, path)
