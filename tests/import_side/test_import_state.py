from __future__ import annotations

from pathlib import Path

import pytest

from doubles.manifest_samples import EXPORTER, bundle_manifest
from transload.import_side.import_state import ImportState, default_state_path
from transload.shared import state_file
from transload.shared.digests import Digest
from transload.shared.errors import BlockDamaged, StateUnreadable
from transload.shared.state_file import StateFile, decode_state, encode_state, read_state

ONE, TWO, CHECKSUMS = (str(Digest.of(text)) for text in (b"one", b"two", b"checksums"))
DOCKER, REGISTRY, TARGET = "docker", "registry=reg.example:5000/mirror", "reg.example/app:1.10"


@pytest.fixture
def state() -> ImportState:
    state = ImportState.fresh()
    state.record_accepted(bundle_manifest(1), checksums_digest=CHECKSUMS, signed_by="ops", when="first")
    return state


def test_an_accepted_bundle_is_remembered_once(state: ImportState) -> None:
    state.record_accepted(bundle_manifest(1), checksums_digest=TWO, signed_by="else", when="later")
    seen = state.seen(EXPORTER, bundle_manifest(1).bundle_id)
    assert seen is not None
    assert (seen.checksums, seen.signed_by, seen.first_seen, seen.status) == (CHECKSUMS, "ops", "first", "accepted")
    assert state.seen(EXPORTER, "another") is None
    assert state.seen("ffff" * 8, bundle_manifest(1).bundle_id) is None


def test_how_an_import_ended(state: ImportState) -> None:
    def status() -> str:
        return state.exporters[EXPORTER].bundles[bundle_manifest(1).bundle_id].status

    state.record_finished(bundle_manifest(1), is_complete=False)
    assert status() == "partial"
    state.record_finished(bundle_manifest(1), is_complete=True)
    assert status() == "imported"
    state.record_finished(bundle_manifest(1), is_complete=False)
    assert status() == "imported"


def test_deliveries_count_by_sink_target_and_digest(state: ImportState) -> None:
    state.record_delivered(DOCKER, TARGET, digest=ONE, manifest=bundle_manifest(1), when="t1")
    assert state.is_delivered(DOCKER, TARGET, ONE)
    assert not state.is_delivered(DOCKER, TARGET, TWO)
    assert not state.is_delivered(REGISTRY, TARGET, ONE)
    assert not state.is_delivered(DOCKER, "reg.example/app:2", ONE)
    state.record_delivered(DOCKER, TARGET, digest=TWO, manifest=bundle_manifest(2), when="t2")
    record = state.delivered(DOCKER, TARGET)
    assert record is not None
    assert (record.digest, record.sequence, record.when) == (TWO, 2, "t2")


def test_the_same_delivery_again_leaves_the_state_as_it_is(state: ImportState) -> None:
    state.record_delivered(DOCKER, TARGET, digest=ONE, manifest=bundle_manifest(1), when="t1")
    before = encode_state(state)
    state.record_delivered(DOCKER, TARGET, digest=ONE, manifest=bundle_manifest(1), when="t2")
    assert encode_state(state) == before


def test_a_failure_is_remembered_until_it_is_made_good(state: ImportState) -> None:
    clean = encode_state(state)
    error = BlockDamaged("Block 7 of images.tar.0001 is damaged.", hint="Copy it again.")
    state.record_failed(DOCKER, TARGET, digest=ONE, manifest=bundle_manifest(1), error=error, when="t1")
    failure = state.failures[DOCKER][TARGET]
    assert (failure.error, failure.message) == ("block-damaged", error.message)
    assert not state.is_delivered(DOCKER, TARGET, ONE)
    state.record_delivered(DOCKER, TARGET, digest=ONE, manifest=bundle_manifest(1), when="t2")
    assert state.failures == {}
    state.deliveries.clear()
    assert encode_state(state) == clean


def test_a_failed_update_keeps_what_was_delivered_before(state: ImportState) -> None:
    state.record_delivered(DOCKER, TARGET, digest=ONE, manifest=bundle_manifest(1), when="t1")
    state.record_failed(
        DOCKER, TARGET, digest=TWO, manifest=bundle_manifest(2), error=BlockDamaged("damaged"), when="t2"
    )
    assert state.is_delivered(DOCKER, TARGET, ONE)


def test_the_file_reads_back(tmp_path: Path, state: ImportState) -> None:
    state.record_delivered(REGISTRY, TARGET, digest=ONE, manifest=bundle_manifest(1), when="2024-01-01T00:00:00Z")
    state.record_failed(
        DOCKER, TARGET, digest=ONE, manifest=bundle_manifest(1), error=BlockDamaged("a: b #c"), when="t"
    )
    path = tmp_path / "state.yml"
    with StateFile.open(path, ImportState, lambda: state) as file:
        file.save()
    assert read_state(path, ImportState) == state
    assert decode_state(encode_state(ImportState.fresh()), ImportState, path) == ImportState.fresh()


@pytest.mark.parametrize(
    ("old", "new"),
    [("destination: default", "destination: NOT/ONE"), ("status: accepted", "status: fine"), ("sha256:", "sha1:")],
)
def test_values_that_cannot_be_are_refused(tmp_path: Path, state: ImportState, old: str, new: str) -> None:
    raw = encode_state(state)
    assert old.encode() in raw
    with pytest.raises(StateUnreadable):
        decode_state(raw.replace(old.encode(), new.encode()), ImportState, tmp_path / "state.yml")


def test_the_default_place_is_the_shared_one() -> None:
    assert default_state_path is state_file.default_state_path
