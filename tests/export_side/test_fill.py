"""Filling with a source that misbehaves as it is told: short, long, wrong, gone, broken off, in the middle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from doubles.bundle_factory import EXPORTER
from doubles.image_factory import ImageDouble, image, noise_layer
from transload.export_side import fill, medium
from transload.export_side.chunk_files import ChunkFiles
from transload.export_side.fill import Filler
from transload.export_side.journal import BundleIdentity, Journal
from transload.export_side.plan import ExportPlan, make_plan
from transload.manifests.archive_layout import Literal
from transload.shared.digests import Digest
from transload.shared.errors import (
    ContentMismatch,
    NotFoundInRegistry,
    RegistryUnreachable,
    TransloadError,
)
from transload.shared.image import Descriptor
from transload.shared.limits import BLOCK_SIZE_BYTES as BLOCK
from transload.shared.progress import SilentProgress
from transload.shared.references import Reference
from transload.shared.workers import Stop

IDENTITY = BundleIdentity(
    bundle_id="default-0001-20240102-0123", exporter=EXPORTER, destination="default", sequence=1, previous=None,
    created="2024-01-02T03:04:05Z",
)  # fmt: skip
PIECE = 10_000
BIG = noise_layer("fill-big", 400_000)
DIGEST = BIG.descriptor().digest

Fault = Callable[[bytes, int], Iterator[bytes]]
"""What comes instead of a blob's bytes from an offset on."""


def images() -> list[ImageDouble]:
    small = noise_layer("fill-small", 5000)
    return [image("f/a:1", [BIG, small]), image("f/b:1", [small, noise_layer("fill-b", 70_000)])]


@dataclass
class Source:
    """A registry whose faults are spelled: for each fetch of a blob, in order, what is wrong with it.

    Attributes:
        faults: Digest -> one fault a fetch; after the last, all is well.
        fetches: Every fetch: blob and offset.
    """

    faults: dict[Digest, list[Fault]] = field(default_factory=dict)
    fetches: list[tuple[str, Digest, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.contents = {digest: raw for double in images() for digest, raw in double.blobs.items()}

    def fetch(self, source: Reference, descriptor: Descriptor, start: int) -> Iterator[bytes]:
        with self.lock:
            self.fetches.append((source.path, descriptor.digest, start))
            waiting = self.faults.get(descriptor.digest)
            fault = waiting.pop(0) if waiting else whole
        return fault(self.contents[descriptor.digest], start)

    def of(self, digest: Digest) -> list[int]:
        """At which offsets a blob was fetched."""
        return [start for _, fetched, start in self.fetches if fetched == digest]


def whole(raw: bytes, start: int) -> Iterator[bytes]:
    for position in range(start, len(raw), PIECE):
        yield raw[position : position + PIECE]


def flipped(raw: bytes, start: int) -> Iterator[bytes]:
    yield from whole(bytes([*raw[:-1], raw[-1] ^ 1]), start)


def too_long(raw: bytes, start: int) -> Iterator[bytes]:
    yield from whole(raw + b"x", start)


def too_short(raw: bytes, start: int) -> Iterator[bytes]:
    yield from whole(raw[:-1], start)


def gone(raw: bytes, start: int) -> Iterator[bytes]:
    raise NotFoundInRegistry("no such blob")
    yield b""


def broken_at(position: int) -> Fault:
    def fault(raw: bytes, start: int) -> Iterator[bytes]:
        yield from whole(raw[:position], start)
        raise RegistryUnreachable("the line broke")

    return fault


@dataclass
class Filling:
    """One unfinished bundle that may be filled several times."""

    folder: Path
    source: Source
    plan: ExportPlan
    finished: list[Digest] = field(default_factory=list)

    def __post_init__(self) -> None:
        Journal.create(self.folder / "x.journal", "f", IDENTITY, self.plan).close()

    def run(self) -> dict[Digest, TransloadError]:
        self.finished.clear()
        journal = Journal.read(self.folder / "x.journal")
        with ChunkFiles(self.folder, self.plan.chunks) as files:
            files.allocate()
            try:
                return Filler(
                    self.plan, files, journal, self.source.fetch, {}, 3, Stop(), SilentProgress(), self.finished.append
                ).run()
            finally:
                journal.close()

    def is_right(self) -> bool:
        with ChunkFiles(self.folder, self.plan.chunks) as files:
            return all(
                b"".join(files.read(piece.offset, piece.size_bytes))
                == (piece.content if isinstance(piece, Literal) else self.source.contents[piece.digest])
                for piece in self.plan.layout.pieces
            )


@pytest.fixture
def filling(tmp_path: Path) -> Filling:
    return Filling(tmp_path, Source(), make_plan([double.image for double in images()], [], BLOCK))


def test_every_byte_is_in_place_and_every_blob_fetched_once(filling: Filling) -> None:
    assert filling.run() == {}
    assert filling.is_right()
    assert sorted(filling.finished) == sorted(filling.plan.places)
    assert sorted(digest for _, digest, _ in filling.source.fetches) == sorted(filling.plan.places)


def test_the_largest_blob_is_begun_first(filling: Filling) -> None:
    filling.run()
    assert DIGEST in [digest for _, digest, _ in filling.source.fetches[:3]]


@pytest.mark.parametrize("fault", [flipped, too_long, too_short])
def test_wrong_bytes_are_fetched_once_more(filling: Filling, fault: Fault) -> None:
    filling.source.faults[DIGEST] = [fault]
    assert filling.run() == {}
    assert filling.is_right()
    assert filling.source.of(DIGEST) == [0, 0]


@pytest.mark.parametrize("fault", [flipped, too_long, too_short])
def test_bytes_that_stay_wrong_fail_that_blob_alone(filling: Filling, fault: Fault) -> None:
    filling.source.faults[DIGEST] = [fault, fault]
    failures = filling.run()
    assert {digest: type(error) for digest, error in failures.items()} == {DIGEST: ContentMismatch}
    assert set(filling.finished) >= {digest for digest in filling.plan.places if _is_of(filling.plan, digest, "f/b")}
    assert DIGEST not in filling.finished


def test_another_repository_is_asked_for_a_shared_blob(filling: Filling) -> None:
    shared = noise_layer("fill-small", 5000).descriptor().digest
    filling.source.faults[shared] = [gone]
    assert filling.run() == {}
    assert filling.is_right()
    assert [path for path, digest, _ in filling.source.fetches if digest == shared] == ["f/a", "f/b"]


def test_a_broken_line_stops_the_run_and_the_next_goes_on_inside_the_blob(
    filling: Filling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fill, "CHECKPOINT_BYTES", 4 * PIECE)
    filling.source.faults[DIGEST] = [broken_at(15 * PIECE)]
    with pytest.raises(RegistryUnreachable):
        filling.run()
    assert filling.run() == {}
    assert filling.source.of(DIGEST) == [0, 12 * PIECE]
    assert filling.is_right()


def test_a_prefix_that_was_wrong_is_fetched_from_zero(filling: Filling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill, "CHECKPOINT_BYTES", 4 * PIECE)
    filling.source.faults[DIGEST] = [broken_at(15 * PIECE)]
    with pytest.raises(RegistryUnreachable):
        filling.run()
    with ChunkFiles(filling.folder, filling.plan.chunks) as files:
        files.write(filling.plan.places[DIGEST].offset + 5, b"damage")
    assert filling.run() == {}
    assert filling.source.of(DIGEST) == [0, 12 * PIECE, 0]
    assert filling.is_right()


def test_where_gaps_cost_the_archive_is_written_front_to_back(
    filling: Filling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(medium, "_mounted", lambda *_: ("exfat", "/dev/none"))
    writes: list[tuple[int, int]] = []
    write = ChunkFiles.write

    def spying(self: ChunkFiles, offset: int, content: bytes) -> None:
        writes.append((offset, len(content)))
        write(self, offset, content)

    monkeypatch.setattr(ChunkFiles, "write", spying)
    assert filling.run() == {}
    assert filling.is_right()
    ends = [0, *(offset + size for offset, size in writes)]
    assert [offset for offset, _ in writes] == ends[:-1]
    assert ends[-1] == filling.plan.layout.size_bytes


def test_blobs_that_only_failed_images_need_are_not_fetched(filling: Filling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(medium, "_mounted", lambda *_: ("exfat", "/dev/none"))  # one worker, in order
    config = next(one.image.manifests[0].config.digest for one in images() if one.image.name.path == "f/a")
    filling.source.faults[config] = [gone]
    assert list(filling.run()) == [config]
    assert filling.source.of(DIGEST) == []


def _is_of(plan: ExportPlan, digest: Digest, path: str) -> bool:
    return any(source.path.endswith(path) for source in plan.sources[digest])
