"""One docker-save tar an image, complete or not there; judged by skopeo and by the layout itself."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from doubles.bundle_factory import BundleDraft, small_images, tiny_images
from doubles.engines import require
from doubles.image_factory import image, noise_layer
from doubles.import_runs import actions, names, run_import
from doubles.media import tmpfs
from transload.import_side.sinks.archive_sink import file_name
from transload.import_side.sinks.folders import FolderLock
from transload.shared import errors


def test_each_image_becomes_a_tar_of_its_own_with_mode_0644(sealed_small: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        run_import(sealed_small, tmp_path / "state.yml", f"archive={tmp_path / 'out'}")
    finally:
        os.umask(before)
    assert names(tmp_path / "out") == [
        "registry.example_team_first_1.0.tar",
        "registry.example_team_multi_3.0.tar",
        "registry.example_team_second_2.0.tar",
    ]
    for double in small_images():
        path = tmp_path / "out" / file_name(str(double.image.name))
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        with tarfile.open(path) as archive:
            contents = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
            manifest = contents["manifest.json"]
            assert manifest is not None
            (entry,) = json.load(manifest)
            assert entry["RepoTags"] == [str(double.image.name)]
            for digest, raw in double.blobs.items():
                file = contents[f"blobs/sha256/{digest.hex}"]
                assert file is not None
                assert file.read() == raw


@pytest.mark.engine
def test_skopeo_reads_them_under_their_renamed_reference(sealed_tiny: Path, tmp_path: Path) -> None:
    skopeo = require("skopeo")
    from transload.import_side.target_names import Rename  # noqa: PLC0415

    renames = [Rename.parse("registry.example/tiny=inner.example/apps")]
    run_import(sealed_tiny, tmp_path / "state.yml", f"archive={tmp_path / 'out'}", renames=renames)
    archive = tmp_path / "out" / "inner.example_apps_one_1.tar"
    for transport in ("docker-archive", "oci-archive"):
        source = f"{transport}:{archive}:inner.example/apps/one:1"
        found = subprocess.run([skopeo, "inspect", "--raw", source], capture_output=True, check=True)
        if transport == "oci-archive":
            assert found.stdout == tiny_images()[0].image.root.raw


def test_a_damaged_tar_is_not_taken_for_delivered(sealed_tiny: Path, tmp_path: Path) -> None:
    to = f"archive={tmp_path / 'out'}"
    run_import(sealed_tiny, tmp_path / "state.yml", to)
    path = tmp_path / "out" / file_name("registry.example/tiny/one:1")
    intact = path.read_bytes()
    in_a_layer = intact.index(next(raw for raw in tiny_images()[0].blobs.values() if raw.startswith(b"\x1f\x8b"))) + 50
    for position in (10, in_a_layer, len(intact) - 1):
        path.write_bytes(intact[:position] + bytes([intact[position] ^ 1]) + intact[position + 1 :])
        assert sorted(actions(run_import(sealed_tiny, tmp_path / "state.yml", to))) == ["already-there", "delivered"]
        assert path.read_bytes() == intact
    path.write_bytes(intact[:-1])
    assert sorted(actions(run_import(sealed_tiny, tmp_path / "state.yml", to))) == ["already-there", "delivered"]
    assert path.read_bytes() == intact


@pytest.mark.parametrize(
    ("policy", "expected"), [("overwrite", "delivered"), ("keep", "kept"), ("fail", "tag-conflict")]
)
def test_a_tar_with_another_image_follows_the_policy(policy: str, expected: str, tmp_path: Path) -> None:
    to, name = f"archive={tmp_path / 'out'}", "x.example/app:1"
    old, new = image(name, [noise_layer("old")]), image(name, [noise_layer("new")])
    run_import(BundleDraft([old]).seal(tmp_path / "old"), tmp_path / "state.yml", to)
    before = (tmp_path / "out" / file_name(name)).read_bytes()
    result = run_import(
        BundleDraft([new], sequence=2).seal(tmp_path / "new"), tmp_path / "state.yml", to, policy=policy
    )
    assert actions(result) == [expected]
    after = (tmp_path / "out" / file_name(name)).read_bytes()
    assert (after == before) == (policy != "overwrite")
    if result.outcomes[0].delivery:
        assert result.outcomes[0].delivery.previous == str(old.image.digest)


def test_a_damaged_block_leaves_no_file(sealed_small: Path, copy_of: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = copy_of(sealed_small)
    with (folder / "images.tar.0002").open("r+b") as file:
        file.write(b"damaged")
    result = run_import(folder, tmp_path / "state.yml", f"archive={tmp_path / 'out'}")
    assert "block-damaged" in actions(result)
    assert names(tmp_path / "out") == ["registry.example_team_multi_3.0.tar"]


@pytest.mark.engine
def test_a_full_disk_is_found_before_the_first_byte(sealed_small: Path, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", size_bytes=8 * 1024 * 1024) as disk, pytest.raises(errors.NotEnoughSpace) as raised:
        run_import(sealed_small, tmp_path / "state.yml", f"archive={disk / 'out'}")
    assert int(str(raised.value.facts["needed_bytes"])) > int(str(raised.value.facts["available_bytes"]))
    assert not (tmp_path / "state.yml").exists()


def test_what_a_killed_run_left_is_removed(sealed_tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".registry.example_tiny_one_1.tar.partial").write_bytes(b"half")
    run_import(sealed_tiny, tmp_path / "state.yml", f"archive={out}")
    assert [name for name in names(out) if name.startswith(".")] == []


@pytest.mark.parametrize(
    "target",
    ["a.example/b:1", "a.example/b_c:1", "a.example/b/c:1", "[::1]:5000/a:1", f"a.example/{'x' * 200}:{'t' * 128}",
     f"a.example/b@sha256:{'0' * 64}", "localhost/con:1"],
)  # fmt: skip
def test_file_names_are_portable(target: str) -> None:
    name = file_name(target)
    assert re.fullmatch(r"[A-Za-z0-9._-]+\.tar", name)
    assert len(name) <= 220


def test_different_references_never_share_a_file() -> None:
    targets = [
        "h.example/a_b/c:1",
        "h.example/a/b_c:1",
        "h.example/a/b/c:1",
        "h.example/a/b:c_1",
        "h.example/a/b/c_1:x",
    ]
    assert len({file_name(target) for target in targets}) == len(targets)


@pytest.mark.parametrize("kind", ["archive", "oci"])
def test_two_runs_do_not_write_to_one_folder(kind: str, sealed_tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    other = FolderLock(out)
    other.take()
    with pytest.raises(errors.Locked):
        run_import(sealed_tiny, tmp_path / "state.yml", f"{kind}={out}")
    assert names(out) == []
    other.release()
    assert actions(run_import(sealed_tiny, tmp_path / "state.yml", f"{kind}={out}"))[0] == "delivered"
