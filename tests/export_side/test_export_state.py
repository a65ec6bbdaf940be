from __future__ import annotations

from pathlib import Path

import pytest

from transload.export_side.export_state import ExportState
from transload.manifests.bundle_manifest import ArtifactEntry, BundleManifest, ChunkEntry, ImageEntry
from transload.shared.digests import Digest
from transload.shared.errors import InvalidConfiguration, StateUnreadable
from transload.shared.image import OCI_MANIFEST, Image, ManifestDocument
from transload.shared.platforms import Platform
from transload.shared.references import Reference
from transload.shared.state_file import StateFile, decode_state, encode_state, read_state

AMD64, ARM64 = Platform("linux", "amd64"), Platform("linux", "arm64", "v8")
REFERENCE = "reg.example/app:1.10"


def an_image(
    content: str = "one", *, reference: str = REFERENCE, name: str = "", platform: Platform | None = AMD64
) -> Image:
    raw = content.encode()
    document = ManifestDocument(raw, OCI_MANIFEST, Digest.of(raw))
    parsed = Reference.parse(reference)
    return Image(parsed, Reference.parse(name) if name else parsed, document.digest, (document,), (), platform)


def sealed(
    *images: Image, state: ExportState, sequence: int | None = None, destination: str = "default", at: str = "01"
) -> BundleManifest:
    """Seal images into the next bundle, as the exporter does, and return its manifest."""
    number = sequence or state.next_sequence(destination)
    artifact = ArtifactEntry(
        name="images.tar", kind="docker-archive", size=1024, block_size=4194304, blocks="images.blocks",
        chunks=(ChunkEntry(name="images.tar.0001", size=1024),),
    )  # fmt: skip
    manifest = BundleManifest(
        bundle_id=f"{destination}-{number:06d}-202401{at}-abcd",
        exporter=state.exporter,
        destination=destination,
        sequence=number,
        previous=state.previous_bundle(destination),
        created=f"2024-01-{at}T00:00:00Z",
        tool="transload test",
        images=tuple(
            ImageEntry(
                reference=str(image.reference), name=str(image.name), source_digest=str(image.source_digest),
                digest=str(image.digest), media_type=OCI_MANIFEST,
                platform=str(image.platform) if image.platform else None, blobs=(),
            )
            for image in images
        ),
        blobs=(), artifacts=(artifact,), failed=(),
    )  # fmt: skip
    state.record_sealed(manifest)
    return manifest


@pytest.fixture
def state() -> ExportState:
    return ExportState.fresh()


def test_a_fresh_exporter_has_its_own_random_id() -> None:
    one, two = ExportState.fresh(), ExportState.fresh()
    assert one.exporter != two.exporter
    assert len(one.exporter) == 32
    assert one.next_sequence("default") == 1
    assert one.previous_bundle("default") is None


def test_only_sealed_counts(state: ExportState) -> None:
    image = an_image()
    state.record_filled(image, bundle_id="default-000001-20240101-abcd", destination="default", when="now")
    assert [record.status for record in state.references[REFERENCE]] == ["filled"]
    assert not state.is_delivered(image, "default")
    manifest = sealed(image, state=state)
    assert state.bundle_with(image, "default") == manifest.bundle_id
    assert [record.status for record in state.references[REFERENCE]] == ["sealed"]


def test_a_record_that_somebody_set_back_to_filled_does_not_count(state: ExportState) -> None:
    image = an_image()
    sealed(image, state=state)
    state.references[REFERENCE][0].status = "filled"
    assert not state.is_delivered(image, "default")


def test_a_bundle_given_up_leaves_no_filled_record(state: ExportState) -> None:
    sealed(an_image("old"), state=state)
    before = encode_state(state)
    state.record_filled(an_image("new"), bundle_id="default-000002-20240101-abcd", destination="default", when="now")
    state.record_filled(
        an_image(reference="reg.example/other:1"), bundle_id="default-000002-20240101-abcd", destination="default",
        when="now",
    )  # fmt: skip
    state.forget_filled("default-000002-20240101-abcd")
    assert encode_state(state) == before


def test_sealing_twice_changes_nothing(state: ExportState) -> None:
    manifest = sealed(an_image(), state=state)
    state.mark(manifest.bundle_id, "acknowledged")
    before = encode_state(state)
    state.record_sealed(manifest)
    assert encode_state(state) == before


def test_sequences_count_for_each_destination(state: ExportState) -> None:
    sealed(an_image(), state=state)
    second = sealed(an_image("two"), state=state)
    sealed(an_image(), state=state, destination="lab-b")
    assert state.next_sequence("default") == 3
    assert state.next_sequence("lab-b") == 2
    assert state.next_sequence("other") == 1
    assert state.previous_bundle("default") == second.bundle_id


def test_a_moved_tag_is_new_and_both_digests_are_kept(state: ExportState) -> None:
    old, new = an_image("old"), an_image("new")
    sealed(old, state=state)
    assert not state.is_delivered(new, "default")
    sealed(new, state=state)
    assert state.is_delivered(new, "default")
    assert [record.digest for record in state.references[REFERENCE]] == [str(old.digest), str(new.digest)]


def test_another_name_platform_or_destination_is_new(state: ExportState) -> None:
    sealed(an_image(), state=state)
    assert state.is_delivered(an_image(), "default")
    assert not state.is_delivered(an_image(), "lab-b")
    assert not state.is_delivered(an_image(name="inner.example/app:1.10"), "default")
    assert not state.is_delivered(an_image("one for arm", platform=ARM64), "default")
    sealed(an_image(name="inner.example/app:1.10"), state=state)
    assert state.is_delivered(an_image(name="inner.example/app:1.10"), "default")


def test_a_lost_bundle_no_longer_delivers(state: ExportState) -> None:
    only_in_first, in_both = an_image("a", reference="reg.example/a:1"), an_image("b", reference="reg.example/b:1")
    first = sealed(only_in_first, in_both, state=state)
    second = sealed(in_both, state=state)
    assert state.mark(first.bundle_id, "lost") == "sealed"
    assert not state.is_delivered(only_in_first, "default")
    assert state.bundle_with(in_both, "default") == second.bundle_id
    assert state.mark(first.bundle_id, "acknowledged") == "lost"
    assert state.is_delivered(only_in_first, "default")


def test_only_the_latest_bundle_of_a_name_counts(state: ExportState) -> None:
    old, new = an_image("old"), an_image("new")
    first, second = sealed(old, state=state), sealed(new, state=state)
    assert not state.is_delivered(old, "default"), "the importer does not move a tag back to an older bundle's"
    third = sealed(old, state=state)
    assert state.bundle_with(old, "default") == third.bundle_id
    assert not state.is_delivered(new, "default")
    state.mark(first.bundle_id, "acknowledged")
    assert state.bundle_with(old, "default") == third.bundle_id, "the first came before what the second brought"
    state.mark(third.bundle_id, "lost")
    assert state.bundle_with(new, "default") == second.bundle_id
    state.mark(second.bundle_id, "lost")
    assert state.bundle_with(old, "default") == first.bundle_id


def test_platforms_and_references_under_one_name_replace_each_other(state: ExportState) -> None:
    amd, arm = an_image("amd"), an_image("arm", platform=ARM64)
    sealed(amd, state=state)
    sealed(arm, state=state)
    assert not state.is_delivered(amd, "default")
    name = "inner.example/app:1"
    one, other = (an_image(text, reference=f"reg.example/{text}:1", name=name) for text in ("one", "other"))
    sealed(one, state=state)
    sealed(other, state=state)
    assert not state.is_delivered(one, "default")
    assert state.is_delivered(other, "default")


def test_a_digest_beside_a_tag_is_not_part_of_the_name(state: ExportState) -> None:
    pinned = an_image("old", reference=f"{REFERENCE}@{an_image('old').digest}")
    sealed(pinned, state=state)
    assert state.is_delivered(an_image("old"), "default")
    sealed(an_image("new"), state=state)
    assert not state.is_delivered(pinned, "default")
    untagged = [an_image(text, reference=f"reg.example/app@{an_image(text).digest}") for text in ("old", "new")]
    for image in untagged:
        sealed(image, state=state)
    assert all(state.is_delivered(image, "default") for image in untagged)


def test_what_nothing_new_relies_on(state: ExportState) -> None:
    a, b, c = (an_image(name, reference=f"reg.example/{name}:1") for name in "abc")
    first, second = sealed(a, b, state=state), sealed(b, c, state=state)
    assert state.unacknowledged([a, b, c], "default") == [first.bundle_id, second.bundle_id]
    assert state.unacknowledged([b], "default") == [second.bundle_id]
    state.mark(first.bundle_id, "acknowledged")
    assert state.unacknowledged([a, b], "default") == []
    assert state.bundle_with(b, "default") == first.bundle_id
    assert state.unacknowledged([c], "default") == [second.bundle_id]
    assert state.unacknowledged([a], "nowhere") == []


def test_marking_an_unknown_bundle_names_those_that_there_are(state: ExportState) -> None:
    manifest = sealed(an_image(), state=state)
    with pytest.raises(InvalidConfiguration) as caught:
        state.mark("default-000009-20240101-abcd", "lost")
    assert manifest.bundle_id in caught.value.hint


def test_the_file_reads_back_and_shows_whole_indexes(tmp_path: Path, state: ExportState) -> None:
    sealed(an_image(platform=None), an_image("arm", reference="reg.example/arm:on", platform=ARM64), state=state)
    path = tmp_path / "state.yml"
    with StateFile.open(path, ExportState, lambda: state) as file:
        file.save()
    assert read_state(path, ExportState) == state
    written = path.read_text()
    assert "platform: linux/arm64/v8" in written
    assert written.count("platform:") == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("exporter: ", "exporter: zz"),
        ("status: sealed", "status: delivered"),
        ("digest: sha256:", "digest: md5:"),
        ("sequence: 1", "sequence: -1"),
        ("default:\n", "Not A Name:\n"),
    ],
)
def test_values_that_cannot_be_are_refused(tmp_path: Path, state: ExportState, old: str, new: str) -> None:
    sealed(an_image(), state=state)
    raw = encode_state(state)
    assert old.encode() in raw
    with pytest.raises(StateUnreadable):
        decode_state(raw.replace(old.encode(), new.encode()), ExportState, tmp_path / "state.yml")
