"""Exports from a real registry: what is in the bundle, and what is not."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.engines import require
from doubles.export_runs import ExportRuns, archive_of, blob_digests_in, manifest_of, tree
from doubles.image_factory import ImageDouble, image, index, noise_layer
from doubles.registries import RunningRegistry, plain_registry
from transload.manifests.image_list import ListedImage, ListedRepository
from transload.shared.digests import Digest
from transload.shared.errors import (
    ContentMismatch,
    Faults,
    NotFoundInRegistry,
    PlatformNotFound,
    TargetNamesCollide,
)
from transload.shared.image import DOCKER_LIST, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST, ManifestDocument
from transload.shared.platforms import Platform
from transload.shared.references import Reference

pytestmark = pytest.mark.engine

BASE = noise_layer("export-base", 3_000_000)
ARM = Platform("linux", "arm64")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with plain_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def runs(tmp_path: Path) -> ExportRuns:
    return ExportRuns(tmp_path / "out")


def one(name: str, *, size_bytes: int = 2000, **options: object) -> ImageDouble:
    return image(f"x/{name}:1", [BASE, noise_layer(name, size_bytes)], **options)  # type: ignore[arg-type]


def machines(name: str, *, docker: bool = False, attestation: bool = False) -> ImageDouble:
    children = [one(f"{name}-amd64", docker=docker), one(f"{name}-arm64", docker=docker, platform="linux/arm64")]
    return index(f"x/{name}:1", children, docker=docker, attestation=attestation)


def every_kind() -> dict[str, ImageDouble]:
    layers = [noise_layer("gzip-layer"), noise_layer("zstd-layer", 1000, "zstd"), noise_layer("plain-layer", 1000, "")]
    return {
        OCI_MANIFEST: image("k/oci:1", [*layers, layers[0], layers[1]]),
        DOCKER_MANIFEST: image("k/docker:1", [layers[0], layers[2], layers[0]], docker=True),
        OCI_INDEX: index("k/index:1", [image("x", layers[:1]), image("y", [], platform=str(ARM))], attestation=True),
        DOCKER_LIST: index("k/list:1", [image("x", layers[:1], docker=True)], docker=True),
        "no layers": image("k/empty:1", [], environment=["EMPTY=yes"]),
    }


def test_every_kind_of_image_lies_in_the_archive_byte_for_byte(registry: RunningRegistry, runs: ExportRuns) -> None:
    kinds = every_kind()
    references = [registry.put(double) for double in kinds.values()]
    result = runs.run(*references, platform="all")
    manifest = manifest_of(result.path)
    assert blob_digests_in(result.path) == [blob.digest for blob in manifest.blobs]
    assert {entry.digest for entry in manifest.images} == {str(double.image.digest) for double in kinds.values()}
    expected = {str(digest) for double in kinds.values() for digest in double.blobs}
    assert {blob.digest for blob in manifest.blobs} == expected
    with tarfile.open(fileobj=io.BytesIO(archive_of(result.path))) as archive:
        members = archive.getmembers()
    assert all(member.isreg() or member.isdir() for member in members)
    assert len({member.name for member in members}) == len(members)


def test_a_dry_run_says_exactly_what_will_be_written(registry: RunningRegistry, runs: ExportRuns) -> None:
    references = [registry.put(one("dry-a")), registry.put(one("dry-b", size_bytes=5_000_000))]
    before = tree(runs.output)
    planned = runs.exporter(*references, f"{registry.host}/x/missing:1").dry_run()
    assert tree(runs.output) == before
    assert not registry.requests(r'"GET /v2/x/dry-b/blobs/' + str(noise_layer("dry-b", 5_000_000).descriptor().digest))
    result = runs.run(*references, f"{registry.host}/x/missing:1")
    assert result.path is not None
    files = list(result.path.iterdir())
    assert planned.size_bytes == result.size_bytes == sum(file.stat().st_size for file in files)
    assert planned.file_count == result.file_count == len(files)
    assert planned.plan is not None
    assert planned.plan.shared_bytes == len(BASE.raw)
    assert planned.plan.chunks.chunk_count == len([file for file in files if file.name.startswith("images.tar.")])


def test_two_exports_of_the_same_digests_have_the_same_chunks(registry: RunningRegistry, tmp_path: Path) -> None:
    references = [registry.put(one(f"same-{letter}", size_bytes=3_000_000)) for letter in "abc"]
    first = ExportRuns(tmp_path / "first").run(*references, jobs=4)
    second = ExportRuns(tmp_path / "second").run(*reversed(references), destination="other", jobs=1)
    assert first.path is not None
    assert second.path is not None
    chunks = {name: digest for name, digest in tree(first.path).items() if name.startswith("images.")}
    assert len(chunks) > 3
    assert chunks == {name: digest for name, digest in tree(second.path).items() if name.startswith("images.")}


def test_nothing_new_makes_no_bundle_and_leaves_the_state_alone(registry: RunningRegistry, runs: ExportRuns) -> None:
    references = [registry.put(one("twice-a")), registry.put(machines("twice-b"))]
    first = runs.run(*references)
    before, asked = tree(runs.output), len(registry.requests(r'"GET /v2/x/twice-.*'))
    second = runs.run(*references)
    assert (second.nothing_new, second.exit_code) == (True, 0)
    assert first.identity is not None
    assert second.relies_on == [first.identity.bundle_id]
    assert tree(runs.output) == before
    assert len(registry.requests(r'"GET /v2/x/twice-.*')) == asked
    assert runs.run(*references, again=True).path is not None


def test_a_new_image_alone_is_in_the_next_bundle(registry: RunningRegistry, runs: ExportRuns) -> None:
    old, new = registry.put(one("grow-a")), registry.put(one("grow-b"))
    first = runs.run(old)
    second = runs.run(old, new)
    manifest = manifest_of(second.path)
    assert [entry.reference for entry in manifest.images] == [new]
    assert (manifest.sequence, manifest.previous) == (2, manifest_of(first.path).bundle_id)
    assert [carried.reference for carried in second.carried] == [old]


def test_a_moved_tag_is_exported_again(registry: RunningRegistry, runs: ExportRuns) -> None:
    reference = registry.put(one("moving"))
    runs.run(reference)
    moved = one("moving", environment=["NEW=1"])
    registry.put(moved)
    second = runs.run(reference)
    assert [entry.digest for entry in manifest_of(second.path).images] == [str(moved.image.digest)]
    assert runs.run(reference).nothing_new
    state = runs.state_path.read_text()
    assert str(one("moving").image.digest) in state
    assert str(moved.image.digest) in state


def test_a_tag_that_went_back_is_exported_again(registry: RunningRegistry, runs: ExportRuns) -> None:
    old, new = one("rolled-back"), one("rolled-back", environment=["NEW=1"])
    reference = registry.put(old)
    runs.run(reference)
    registry.put(new)
    runs.run(reference)
    registry.put(old)
    third = manifest_of(runs.run(reference).path)
    assert (third.sequence, [entry.digest for entry in third.images]) == (3, [str(old.image.digest)])
    again = runs.run(reference)
    assert [carried.bundle_id for carried in again.carried] == [third.bundle_id]


def test_platforms_of_one_name_are_exported_in_turn(registry: RunningRegistry, runs: ExportRuns) -> None:
    reference = registry.put(machines("in-turn"))
    for platform in (Platform("linux", "amd64"), ARM, Platform("linux", "amd64")):
        result = runs.run(reference, platform=platform)
        assert [entry.platform for entry in manifest_of(result.path).images] == [str(platform)]
        assert runs.run(reference, platform=platform).nothing_new


def test_another_destination_gets_its_own_bundle(registry: RunningRegistry, runs: ExportRuns) -> None:
    reference = registry.put(one("two-places"))
    runs.run(reference)
    assert manifest_of(runs.run(reference, destination="plant-7").path).sequence == 1


def test_an_image_that_fails_does_not_stop_the_others(registry: RunningRegistry, runs: ExportRuns) -> None:
    references = [registry.put(one("three-a")), f"{registry.host}/x/three-b:1", registry.put(one("three-c"))]
    result = runs.run(*references)
    assert result.exit_code == 3
    manifest = manifest_of(result.path)
    assert [entry.reference for entry in manifest.images] == [references[0], references[2]]
    assert [(entry.reference, entry.error) for entry in manifest.failed] == [(references[1], "not-found-in-registry")]
    registry.put(one("three-b"))
    repaired = runs.run(*references)
    assert [entry.reference for entry in manifest_of(repaired.path).images] == [references[1]]
    assert repaired.exit_code == 0


def test_if_everything_fails_there_is_no_bundle(registry: RunningRegistry, runs: ExportRuns) -> None:
    before = tree(runs.output)
    with pytest.raises(Faults) as raised:
        runs.run(f"{registry.host}/x/gone-a:1", f"{registry.host}/x/gone-b:1")
    assert raised.value.exit_code == NotFoundInRegistry.exit_code
    assert tree(runs.output) == before


def test_a_lost_blob_costs_only_the_images_that_need_it(registry: RunningRegistry, runs: ExportRuns) -> None:
    names = ("lost-a", "lost-b", "lost-c")
    doubles = [one(name, size_bytes=size) for name, size in zip(names, (900_000, 5_000_000, 700_000), strict=True)]
    references = [registry.put(double) for double in doubles]
    registry.storage.delete_blob(noise_layer("lost-b", 5_000_000).descriptor().digest)
    result = runs.run(*references)
    manifest = manifest_of(result.path)
    assert result.exit_code == 3
    assert [entry.reference for entry in manifest.images] == [references[0], references[2]]
    assert [entry.reference for entry in manifest.failed] == [references[1]]
    assert blob_digests_in(result.path) == [blob.digest for blob in manifest.blobs]
    fetched = registry.requests(rf'"GET /v2/x/lost-./blobs/{noise_layer("lost-c", 700_000).descriptor().digest}')
    assert len(fetched) == 1, "what was in place is moved, not fetched again"
    # and the rest of the bundle is what it would be without the lost image
    alone = ExportRuns(runs.output.with_name("alone")).run(references[0], references[2])
    assert archive_of(result.path) == archive_of(alone.path)


def test_wrong_bytes_are_fetched_twice_and_then_refused(registry: RunningRegistry, runs: ExportRuns) -> None:
    double = one("wrong", size_bytes=100_000)
    reference, digest = registry.put(double), noise_layer("wrong", 100_000).descriptor().digest
    registry.storage.put_blob("x/wrong", digest, bytes(len(double.blobs[digest])))
    with pytest.raises(ContentMismatch):
        runs.run(reference)
    assert len(registry.requests(rf'"GET /v2/x/wrong/blobs/{digest}')) == 2
    assert runs.bundles() == []
    assert not (runs.output / ".unfinished").exists()


def test_one_platform_is_taken_out_of_an_index(registry: RunningRegistry, runs: ExportRuns) -> None:
    double = machines("index", attestation=True)
    reference = registry.put(double)
    manifest = manifest_of(runs.run(reference, platform=ARM).path)
    entry = manifest.images[0]
    arm = next(one for one in double.image.manifests if one.platform == ARM)
    assert (entry.platform, entry.digest) == ("linux/arm64", str(arm.document.digest))
    assert entry.source_digest == str(double.image.digest)
    with tarfile.open(fileobj=io.BytesIO(archive_of(runs.bundles()[0]))) as archive:
        listed = archive.extractfile("index.json")
        assert listed is not None
        assert [item["digest"] for item in json.load(listed)["manifests"]] == [entry.digest]


def test_another_platform_than_asked_for_is_refused(registry: RunningRegistry, runs: ExportRuns) -> None:
    reference = registry.put(one("only-arm", platform="linux/arm64"))
    with pytest.raises(PlatformNotFound) as raised:
        runs.run(reference)
    assert "--platform linux/arm64" in raised.value.hint
    entry = ListedImage(Reference.parse(reference), ARM)
    assert [one.platform for one in manifest_of(runs.run(entry).path).images] == ["linux/arm64"]


def test_a_mislabelled_index_is_refused(registry: RunningRegistry, runs: ExportRuns) -> None:
    honest = index("x/mislabelled:1", [one("liar", platform="linux/arm64")])
    registry.put(honest)
    raw = honest.image.root.raw.replace(b'"arm64"', b'"amd64"')
    lying = ManifestDocument(raw, OCI_INDEX, Digest.of(raw))
    registry.storage.put_manifest("x/mislabelled", lying)
    registry.storage.tag("x/mislabelled", "1", lying.digest)
    with pytest.raises(PlatformNotFound, match="its config says linux/arm64"):
        runs.run(f"{registry.host}/x/mislabelled:1")


def test_two_images_of_one_name_are_refused(registry: RunningRegistry, runs: ExportRuns) -> None:
    first, second = registry.put(one("name-a")), registry.put(one("name-b"))
    name = Reference.parse("ml/model:1")
    entries = [ListedImage(Reference.parse(reference), rename=name) for reference in (first, second)]
    with pytest.raises(TargetNamesCollide) as raised:
        runs.run(*entries)
    assert first in raised.value.message
    assert second in raised.value.message
    renamed = manifest_of(runs.run(entries[0]).path).images[0]
    assert (renamed.reference, renamed.name) == (first, "docker.io/ml/model:1")


def test_tags_are_listed_filtered_and_the_newest_kept(registry: RunningRegistry, runs: ExportRuns) -> None:
    double = one("series")
    for tag in ("1.9", "1.10", "1.2", "latest", "2.0-rc1"):
        registry.put(double, tag=tag)
    entry = ListedRepository(Reference.parse(f"{registry.host}/x/series"), tag_pattern=r"1\..*", keep_last=2)
    images = manifest_of(runs.run(entry).path).images
    assert [one.reference.rpartition(":")[2] for one in images] == ["1.10", "1.9"]


def test_a_digest_reference_is_carried_without_a_tag(registry: RunningRegistry, runs: ExportRuns) -> None:
    double = one("by-digest")
    registry.put(double)
    reference = f"{registry.host}/x/by-digest@{double.image.digest}"
    result = runs.run(reference)
    assert [one.name for one in manifest_of(result.path).images] == [reference]
    assert runs.run(reference).nothing_new


@pytest.mark.parametrize("umask", [0o077, 0o000])
def test_the_umask_does_not_matter(registry: RunningRegistry, runs: ExportRuns, umask: int) -> None:
    before = os.umask(umask)
    try:
        path = runs.run(registry.put(one("umask"))).path
    finally:
        os.umask(before)
    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o755
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o644}


def test_stock_tools_verify_the_bundle(registry: RunningRegistry, runs: ExportRuns, tmp_path: Path) -> None:
    keygen = require("ssh-keygen")
    path = runs.run(registry.put(one("stock"))).path
    assert path is not None
    trust = tmp_path / "allowed_signers"
    trust.write_text(runs.signer.trust_line())
    sums = (path / "SHA256SUMS").read_bytes()
    verify = [str(keygen), "-Y", "verify", "-n", "transload-bundle", "-f", str(trust), "-I", runs.signer.name,
              "-s", str(path / "SHA256SUMS.sig")]  # fmt: skip
    assert subprocess.run(verify, input=sums, check=False).returncode == 0
    assert subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=path, check=False).returncode == 0
    named = {line.split("  ")[1] for line in sums.decode().splitlines()}
    assert named | {"SHA256SUMS", "SHA256SUMS.sig"} == {file.name for file in path.iterdir()}
    archive = archive_of(path)
    blocks = [hashlib.sha256(archive[start : start + (4 << 20)]).digest() for start in range(0, len(archive), 4 << 20)]
    assert (path / "images.blocks").read_bytes() == b"".join(blocks)


def test_two_platforms_of_one_reference_under_two_names(registry: RunningRegistry, runs: ExportRuns) -> None:
    reference = Reference.parse(registry.put(machines("two-platforms")))
    amd = ListedImage(reference)
    arm = ListedImage(reference, ARM, reference.with_tag("1-arm"))
    runs.run(amd)
    second = runs.run(amd, arm)
    assert [one.platform for one in manifest_of(second.path).images] == ["linux/arm64"]
    assert [carried.reference for carried in second.carried] == [str(reference)]
    registry.put(machines("two-platforms", attestation=True))  # another index of the same children
    third = runs.run(amd, arm)
    assert third.nothing_new
    assert len(third.carried) == 2
