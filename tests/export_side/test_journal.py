"""The journal of an unfinished bundle, and plans that become smaller."""

from __future__ import annotations

from pathlib import Path

import pytest

from doubles.bundle_factory import EXPORTER, small_images
from doubles.image_factory import image, noise_layer
from transload.export_side.chunk_files import ChunkFiles
from transload.export_side.journal import BundleIdentity, Journal
from transload.export_side.moves import move_blobs
from transload.export_side.plan import ExportPlan, make_plan
from transload.manifests.archive_layout import Literal
from transload.manifests.bundle_manifest import FailedEntry
from transload.shared.digests import Digest
from transload.shared.errors import StateUnreadable, TargetNamesCollide
from transload.shared.limits import BLOCK_SIZE_BYTES as BLOCK
from transload.shared.workers import Stop

IDENTITY = BundleIdentity(
    bundle_id="default-0001-20240102-0123", exporter=EXPORTER, destination="default", sequence=1, previous=None,
    created="2024-01-02T03:04:05Z",
)  # fmt: skip
FAILED = FailedEntry(reference="a/b:1", error="not-found-in-registry", message="gone")
ONE, TWO = Digest.of(b"one"), Digest.of(b"two")


@pytest.fixture
def plan() -> ExportPlan:
    return make_plan([double.image for double in small_images()], [FAILED], BLOCK)


def test_the_frozen_plan_comes_back_whole(plan: ExportPlan, tmp_path: Path) -> None:
    Journal.create(tmp_path / "x.journal", "fingerprint", IDENTITY, plan).close()
    journal = Journal.read(tmp_path / "x.journal")
    assert (journal.plan, journal.identity, journal.fingerprint) == (plan, IDENTITY, "fingerprint")
    assert journal.plan.layout == plan.layout
    assert journal.placed_bytes == {}


def test_the_last_record_of_a_blob_counts(plan: ExportPlan, tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "x.journal", "f", IDENTITY, plan)
    for digest, size in ((ONE, 10), (TWO, 5), (ONE, 20)):
        journal.record(digest, size)
    journal.close()
    assert Journal.read(tmp_path / "x.journal").placed_bytes == {ONE: 20, TWO: 5}


def test_a_torn_last_line_loses_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    plan = make_plan([image("a/b:1", []).image], [], BLOCK)
    journal = Journal.create(path, "f", IDENTITY, plan)
    header = path.stat().st_size
    journal.record(ONE, 10)
    first = path.stat().st_size
    journal.record(TWO, 5)
    journal.close()
    whole = path.read_bytes()
    for cut in range(header, len(whole)):
        path.write_bytes(whole[:cut])
        torn = Journal.read(path)
        assert torn.placed_bytes == ({ONE: 10} if cut >= first else {})
        torn.record(TWO, 7)  # what comes after a torn line is whole again
        torn.close()
        assert Journal.read(path).placed_bytes[TWO] == 7


def test_a_damaged_header_is_named_and_never_taken_for_nothing(plan: ExportPlan, tmp_path: Path) -> None:
    path = tmp_path / "x.journal"
    Journal.create(path, "f", IDENTITY, plan).close()
    raw = path.read_bytes()
    manifest = raw.index(b'"raw":"') + 20
    flipped = raw[:manifest] + bytes([raw[manifest] ^ 1]) + raw[manifest + 1 :]
    for damaged in (b"", b"{}", raw[:100], flipped, raw.replace(b'"version":1', b'"version":2')):
        path.write_bytes(damaged)
        with pytest.raises(StateUnreadable) as raised:
            Journal.read(path)
        assert "--restart" in raised.value.hint


def test_a_plan_does_not_depend_on_the_order_of_the_request(plan: ExportPlan) -> None:
    images = [double.image for double in small_images()]
    assert make_plan([*reversed(images), images[0]], [FAILED], BLOCK) == plan


def test_what_images_share_is_counted_once(plan: ExportPlan) -> None:
    sizes = [sum(len(raw) for raw in double.blobs.values()) for double in small_images()]
    assert plan.blob_bytes + plan.shared_bytes == sum(sizes)
    assert plan.shared_bytes == len(noise_layer("base", 5_000_000).raw)


def test_one_name_for_two_images_is_refused_even_if_one_has_a_digest() -> None:
    first, second = image("a/b:1", [noise_layer("p")]), image("a/b:1", [noise_layer("q")])
    pinned = first.renamed(f"a/b:1@{first.image.digest}").image
    with pytest.raises(TargetNamesCollide, match=r"docker\.io/a/b:1"):
        make_plan([pinned, second.image], [], BLOCK)
    assert len(make_plan([pinned, first.image], [], BLOCK).images) == 1


def test_a_blob_that_images_share_can_be_fetched_from_each_repository(plan: ExportPlan) -> None:
    shared = noise_layer("base", 5_000_000).descriptor().digest
    assert [str(source.repository) for source in plan.sources[shared]] == [
        "registry.example/team/first", "registry.example/team/second",
    ]  # fmt: skip


@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_blobs_move_to_their_places_in_the_smaller_plan(plan: ExportPlan, tmp_path: Path, dropped: int) -> None:
    contents = {digest: raw for double in small_images() for digest, raw in double.blobs.items()}
    smaller = plan.without([plan.images[dropped]], [])
    with ChunkFiles(tmp_path, plan.chunks) as old, ChunkFiles(tmp_path, smaller.chunks) as new:
        old.allocate()
        for piece in plan.layout.pieces:
            old.write(piece.offset, piece.content if isinstance(piece, Literal) else contents[piece.digest])
        placed = {digest: place.size_bytes for digest, place in plan.places.items()}
        moved = dict(move_blobs(old, new, plan, smaller, placed, Stop()))
        for digest, size in moved.items():
            assert b"".join(new.read(smaller.places[digest].offset, size)) == contents[digest]
    lost = [digest for digest in smaller.places if digest not in moved and smaller.places[digest].size_bytes]
    # Only a shared blob that came first with the dropped image may have changed places to the right.
    assert all(smaller.places[digest].offset > plan.places[digest].offset for digest in lost)
    assert len(lost) <= 1


def test_a_blob_that_would_move_right_is_fetched_instead(tmp_path: Path) -> None:
    shared, first, second = (noise_layer(name, 300_000) for name in ("m-shared", "m-first", "m-second"))
    images = [image("m/a:1", [shared, first]), image("m/b:1", [second, shared])]
    plan = make_plan([double.image for double in images], [], BLOCK)
    smaller = plan.without([plan.images[0]], [])
    placed = {digest: place.size_bytes for digest, place in plan.places.items()}
    contents = {digest: raw for double in images for digest, raw in double.blobs.items()}
    with ChunkFiles(tmp_path, plan.chunks) as old, ChunkFiles(tmp_path, smaller.chunks) as new:
        old.allocate()
        for place in plan.layout.blobs:
            old.write(place.offset, contents[place.digest])
        moved = dict(move_blobs(old, new, plan, smaller, placed, Stop()))
        for digest, size in moved.items():
            assert b"".join(new.read(smaller.places[digest].offset, size)) == contents[digest]
    assert second.descriptor().digest in moved
