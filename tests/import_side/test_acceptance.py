"""The import orders that happen: 1,1 - 1,3 - 2,1 - 1,2,1, and what one importer must never accept."""

from __future__ import annotations

import msgspec
import pytest

from doubles.manifest_samples import EXPORTER, OTHER_EXPORTER, bundle_manifest
from transload.import_side.acceptance import Acceptance, accept, moves_back
from transload.import_side.import_state import ImportState
from transload.manifests.bundle_manifest import BundleManifest
from transload.shared.digests import Digest
from transload.shared.errors import BundleIdReused, OlderSequence, WrongDestination
from transload.shared.state_file import encode_state


def checksums_of(manifest: BundleManifest) -> str:
    return str(Digest.of(msgspec.json.encode(manifest)))


def arrive(state: ImportState, manifest: BundleManifest, *, allow_older: bool = False) -> Acceptance:
    """Judge a bundle and, like the importer, remember it."""
    checksums = checksums_of(manifest)
    before = encode_state(state)
    acceptance = accept(state, manifest, checksums_digest=checksums, allow_older=allow_older)
    assert encode_state(state) == before
    state.record_accepted(manifest, checksums_digest=checksums, signed_by="ops", when="2024-01-01T00:00:00Z")
    return acceptance


@pytest.fixture
def state() -> ImportState:
    return ImportState.fresh()


def test_the_first_bundle_pins_the_destination(state: ImportState) -> None:
    assert arrive(state, bundle_manifest(1, destination="lab-a")) == Acceptance(is_new=True)
    assert state.destination == "lab-a"
    with pytest.raises(WrongDestination, match=r"'lab-b'.*'lab-a'") as caught:
        arrive(state, bundle_manifest(2, destination="lab-b"))
    assert caught.value.facts["expected"] == "lab-a"
    with pytest.raises(WrongDestination):
        arrive(state, bundle_manifest(2, destination="lab-b"), allow_older=True)


def test_1_1_is_seen_again(state: ImportState) -> None:
    assert arrive(state, bundle_manifest(1)).is_new
    before = encode_state(state)
    again = arrive(state, bundle_manifest(1))
    assert not again.is_new
    assert "seen before" in again.notes[0]
    assert encode_state(state) == before


def test_1_3_names_2(state: ImportState) -> None:
    arrive(state, bundle_manifest(1))
    acceptance = arrive(state, bundle_manifest(3))
    assert acceptance.is_new
    assert list(acceptance.missing) == [2]
    assert bundle_manifest(2).bundle_id in acceptance.notes[0]
    assert "number 3 and comes after number 1: 2 " in acceptance.notes[0]


def test_2_1_refuses_1_unless_allowed(state: ImportState) -> None:
    first = arrive(state, bundle_manifest(2))
    assert list(first.missing) == [1]
    assert "as the first from its exporter" in first.notes[0]
    with pytest.raises(OlderSequence, match="number 1, but number 2") as caught:
        arrive(state, bundle_manifest(1))
    assert "--allow-older --on-existing-tag keep" in caught.value.hint
    assert "--allow-older --on-existing-tag keep" in first.notes[0]
    assert bundle_manifest(2).bundle_id in caught.value.message
    allowed = arrive(state, bundle_manifest(1), allow_older=True)
    assert allowed.is_new
    assert "accepted with --allow-older" in allowed.notes[0]
    assert state.exporters[EXPORTER].highest_sequence == 2


def test_1_2_1_does_nothing_the_third_time(state: ImportState) -> None:
    arrive(state, bundle_manifest(1))
    assert arrive(state, bundle_manifest(2)) == Acceptance(is_new=True)
    assert not arrive(state, bundle_manifest(1)).is_new


def test_1_3_2_refuses_2(state: ImportState) -> None:
    arrive(state, bundle_manifest(1))
    arrive(state, bundle_manifest(3))
    with pytest.raises(OlderSequence):
        arrive(state, bundle_manifest(2))


def test_a_wide_gap_is_named_by_its_ends_and_costs_nothing(state: ImportState) -> None:
    acceptance = arrive(state, bundle_manifest(999_999_999))
    assert len(acceptance.missing) == 999_999_998
    assert "1 to 999999998" in acceptance.notes[0]


def test_one_id_with_other_content_is_refused(state: ImportState) -> None:
    arrive(state, bundle_manifest(1))
    forged = msgspec.structs.replace(bundle_manifest(1), tool="somebody else")
    with pytest.raises(BundleIdReused, match="other content") as caught:
        arrive(state, forged, allow_older=True)
    assert caught.value.exit_code == 79
    assert caught.value.facts["expected"] == checksums_of(bundle_manifest(1))


def test_one_number_under_two_ids_is_refused_unless_allowed(state: ImportState) -> None:
    arrive(state, bundle_manifest(1))
    twin = msgspec.structs.replace(bundle_manifest(1), bundle_id="default-000001-20250101-abcd")
    with pytest.raises(OlderSequence, match="which bundle default-000001-20240101-abcd has too") as caught:
        arrive(state, twin)
    assert "set back" in caught.value.hint
    assert arrive(state, twin, allow_older=True).is_new


def test_exporters_count_apart(state: ImportState) -> None:
    arrive(state, bundle_manifest(5))
    other = bundle_manifest(1, exporter=OTHER_EXPORTER)
    other = msgspec.structs.replace(other, bundle_id="default-000001-20240101-ffff")
    assert arrive(state, other) == Acceptance(is_new=True)


def test_a_reference_is_not_moved_back_to_an_older_bundle(state: ImportState) -> None:
    sink, target = "docker", "reg.example/app:1"
    old, new = str(Digest.of(b"old")), str(Digest.of(b"new"))
    one, three = bundle_manifest(1), bundle_manifest(3)
    assert moves_back(state, sink, target, digest=old, manifest=one) is None
    state.record_delivered(sink, target, digest=new, manifest=three, when="2024-01-03T00:00:00Z")
    why = moves_back(state, sink, target, digest=old, manifest=one)
    assert why is not None
    assert target in why
    assert three.bundle_id in why
    assert moves_back(state, sink, target, digest=new, manifest=one) is None, "it is the same image"
    assert moves_back(state, "registry=x", target, digest=old, manifest=one) is None, "another sink"
    assert moves_back(state, sink, "reg.example/app:2", digest=old, manifest=one) is None, "another tag"
    assert moves_back(state, sink, target, digest=old, manifest=three) is None, "not older"
    assert moves_back(state, sink, target, digest=old, manifest=bundle_manifest(4)) is None, "newer"
    foreign = bundle_manifest(1, exporter=OTHER_EXPORTER)
    assert moves_back(state, sink, target, digest=old, manifest=foreign) is None, "numbers of two exporters"
