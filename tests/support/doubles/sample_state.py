"""A small state for tests of state files, importable by the child processes of tests as well."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from transload.shared.state_file import State, StateFile, encode_state


class Entry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    tag: str
    count: Annotated[int, msgspec.Meta(ge=0)] = 0
    is_good: bool = True


class Sample(State, kw_only=True):
    SCHEMA: ClassVar[int] = 3
    SIDE: ClassVar[str] = "export"

    entries: dict[str, Entry] = msgspec.field(default_factory=dict)
    names: list[str] = msgspec.field(default_factory=list)

    @classmethod
    def fresh(cls) -> Sample:
        return cls(schema=cls.SCHEMA, side=cls.SIDE)


def sample(*tags: str) -> Sample:
    state = Sample.fresh()
    state.entries = {f"image-{tag}": Entry(tag=tag, count=7) for tag in tags}
    state.names = list(tags)
    return state


def write_sample(path: Path, *tags: str) -> bytes:
    path.write_bytes(encode_state(sample(*tags)))
    return path.read_bytes()


def add_and_save(path: Path, *names: str) -> None:
    with StateFile.open(path, Sample, Sample.fresh) as file:
        file.state.names.extend(names)
        file.save()


def names_in(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}
