"""The archive's layout: every byte of it, before it exists."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doubles.bundle_factory import archive_bytes, small_images
from doubles.engines import require
from doubles.image_factory import ImageDouble, image, index, noise_layer
from transload.manifests.archive_layout import (
    ArchiveLayout,
    TarPlan,
    docker_manifest,
    hybrid_archive,
    index_json,
    manifest_json,
)
from transload.shared.digests import Digest
from transload.shared.limits import GIB


def opened(doubles: list[ImageDouble]) -> tuple[ArchiveLayout, tarfile.TarFile]:
    layout = hybrid_archive([double.image for double in doubles])
    contents = {digest: raw for double in doubles for digest, raw in double.blobs.items()}
    return layout, tarfile.open(fileobj=io.BytesIO(bytes(archive_bytes(layout, contents))))


def test_members_come_in_the_order_that_readers_need() -> None:
    _, archive = opened(small_images())
    names = archive.getnames()
    assert names[:5] == ["oci-layout", "index.json", "manifest.json", "blobs", "blobs/sha256"]
    assert len(names) == len(set(names))
    assert all(name.startswith("blobs/sha256/") for name in names[5:])


def test_every_member_is_a_plain_file_or_folder_with_a_fixed_header() -> None:
    _, archive = opened(small_images())
    for member in archive.getmembers():
        assert (member.uid, member.gid, member.uname, member.gname, member.mtime) == (0, 0, "", "", 0)
        assert member.mode == (0o755 if member.isdir() else 0o644)
        assert member.isdir() or member.isreg()


def test_each_blob_lies_where_the_layout_says() -> None:
    layout, archive = opened(small_images())
    places = {place.digest: place for place in layout.blobs}
    members = {member.name: member for member in archive.getmembers()}
    for digest, place in places.items():
        member = members[f"blobs/{digest.algorithm}/{digest.hex}"]
        assert (member.offset_data, member.size) == (place.offset, place.size_bytes)
    assert set(places) == {digest for double in small_images() for digest in double.blobs}


def test_pieces_follow_each_other_without_gaps() -> None:
    layout, _ = opened(small_images())
    position = 0
    for piece in layout.pieces:
        assert piece.offset == position
        position += piece.size_bytes
    assert position == layout.size_bytes
    assert layout.size_bytes % 512 == 0


def test_repeated_layers_are_one_member_and_repeated_in_the_manifest() -> None:
    layer = noise_layer("repeated")
    double = image("r/a:1", [layer, noise_layer("between"), layer])
    _, archive = opened([double])
    assert archive.getnames().count(f"blobs/sha256/{layer.descriptor().digest.hex}") == 1
    layers = json.loads(manifest_json([double.image]))[0]["Layers"]
    assert layers[0] == layers[2] != layers[1]


def test_an_image_without_layers() -> None:
    double = image("r/empty:1", [])
    opened([double])
    assert json.loads(manifest_json([double.image]))[0]["Layers"] == []


def test_names_are_whole_references_and_digest_references_have_none() -> None:
    tagged = image("host:5000/r/a:1", [])
    pinned = tagged.renamed(f"host:5000/r/a@{tagged.image.digest}")
    entries = json.loads(index_json([tagged.image, pinned.image]))["manifests"]
    assert entries[0]["annotations"] == {
        "io.containerd.image.name": "host:5000/r/a:1",
        "org.opencontainers.image.ref.name": "host:5000/r/a:1",
    }
    assert "annotations" not in entries[1]
    assert [one["RepoTags"] for one in json.loads(manifest_json([tagged.image, pinned.image]))] == [
        ["host:5000/r/a:1"], None,
    ]  # fmt: skip


def test_docker_gets_one_platform_of_an_index_and_never_an_attestation() -> None:
    arm, amd = (image("x", [noise_layer(p)], platform=p) for p in ("linux/arm64", "linux/amd64"))
    both = index("r/multi:1", [arm, amd], attestation=True)
    assert len(json.loads(manifest_json([both.image]))) == 1
    chosen = docker_manifest(both.image)
    assert chosen is not None
    assert chosen.document.digest == amd.image.digest
    only_arm = docker_manifest(index("r/multi:1", [arm]).image)
    assert only_arm is not None
    assert only_arm.document.digest == arm.image.digest


@given(sizes=st.lists(st.integers(0, 3000), max_size=6))
def test_any_sizes_are_read_back(sizes: list[int]) -> None:
    plan = TarPlan()
    plan.add_directory("d/")
    for number, size in enumerate(sizes):
        plan.add_bytes(f"d/{number}", bytes([number]) * size)
    layout = plan.finish()
    raw = b"".join(literal.content for literal in layout.literals)
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        assert [member.size for member in archive.getmembers()[1:]] == sizes


@pytest.mark.parametrize("size", [8 * GIB - 1, 8 * GIB, 8 * GIB + 1, 700 * GIB])
def test_members_beyond_8_gib_are_read_by_python_and_gnu_tar(size: int, tmp_path: Path) -> None:
    plan = TarPlan()
    plan.add_blob("big", Digest.of(b""), size)
    plan.add_bytes("after", b"after")
    layout = plan.finish()
    path = tmp_path / "sparse.tar"
    with path.open("wb") as file:
        file.truncate(layout.size_bytes)
        for literal in layout.literals:
            os.pwrite(file.fileno(), literal.content, literal.offset)
    with tarfile.open(path) as archive:
        assert [(member.name, member.size) for member in archive.getmembers()] == [("big", size), ("after", 5)]
    listed = subprocess.run([require("tar"), "-tvf", path], capture_output=True, text=True, check=True).stdout
    assert [(line.split()[-1], int(line.split()[2])) for line in listed.splitlines()] == [("big", size), ("after", 5)]
