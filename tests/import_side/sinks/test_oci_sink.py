"""One OCI layout for all images: judged by skopeo, by its own bytes, and with somebody else's images in it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from doubles.bundle_factory import BundleDraft, small_images, tiny_images
from doubles.engines import require
from doubles.image_factory import image, noise_layer
from doubles.import_runs import actions, names, run_import
from transload.import_side.sinks.oci_sink import OciSink
from transload.shared import errors


def index_of(folder: Path) -> list[dict[str, object]]:
    entries = json.loads((folder / "index.json").read_text())["manifests"]
    assert isinstance(entries, list)
    return entries


def test_every_blob_lies_there_once_under_its_digest(sealed_small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run_import(sealed_small, tmp_path / "state.yml", f"oci={out}")
    blobs = {digest.hex: raw for double in small_images() for digest, raw in double.blobs.items()}
    doors = 1  # second:2.0 is of Docker's media types
    lying = {path.name: path.read_bytes() for path in (out / "blobs/sha256").iterdir()}
    assert {name: raw for name, raw in lying.items() if name in blobs} == blobs
    assert len(lying) == len(blobs) + doors
    assert json.loads((out / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    sent = sum(one.delivery.bytes_sent for one in result.outcomes if one.delivery)
    assert sent == sum(map(len, blobs.values()))


@pytest.mark.engine
def test_skopeo_finds_each_image_by_its_full_reference(sealed_small: Path, tmp_path: Path) -> None:
    skopeo = require("skopeo")
    run_import(sealed_small, tmp_path / "state.yml", f"oci={tmp_path / 'out'}")
    for number, double in enumerate(small_images()):
        every = ["--all"] if double.image.is_index else []
        copied = tmp_path / f"copied-{number}"
        source = f"oci:{tmp_path / 'out'}:{double.image.name}"
        subprocess.run([skopeo, "copy", "-q", *every, source, f"dir:{copied}"], check=True, capture_output=True)
        assert (copied / "manifest.json").read_bytes() == double.image.root.raw


def test_a_second_import_writes_nothing(sealed_small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_import(sealed_small, tmp_path / "state.yml", f"oci={out}")
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    again = run_import(sealed_small, tmp_path / "state.yml", f"oci={out}")
    assert actions(again) == ["already-there"] * 3
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == before


def test_a_damaged_or_missing_blob_is_written_again(sealed_small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_import(sealed_small, tmp_path / "state.yml", f"oci={out}")
    for path in (out / "blobs/sha256").iterdir():
        intact = path.read_bytes()
        path.write_bytes(bytes([intact[0] ^ 1]) + intact[1:])
        result = run_import(sealed_small, tmp_path / "state.yml", f"oci={out}")
        assert "delivered" in actions(result)
        assert path.read_bytes() == intact


def test_a_moved_reference_is_reported_and_foreign_entries_stay(tmp_path: Path) -> None:
    out, name = tmp_path / "out", "x.example/app:1"
    old, new = image(name, [noise_layer("old")], docker=True), image(name, [noise_layer("new")], docker=True)
    run_import(BundleDraft([old]).seal(tmp_path / "old"), tmp_path / "state.yml", f"oci={out}")
    index = json.loads((out / "index.json").read_text())
    foreign = {"mediaType": "application/x", "digest": f"sha256:{'0' * 64}", "size": 1, "annotations": {"a": "b"}}
    index["manifests"].insert(0, foreign)
    index["annotations"] = {"somebody": "else"}
    (out / "index.json").write_text(json.dumps(index))
    folder = BundleDraft([new], sequence=2).seal(tmp_path / "new")
    result = run_import(folder, tmp_path / "state.yml", f"oci={out}")
    (outcome,) = result.outcomes
    assert outcome.delivery is not None
    assert outcome.delivery.previous == str(old.image.digest)
    entries = index_of(out)
    assert entries[0] == foreign
    assert [entry["digest"] for entry in entries].count(str(new.image.digest)) == 1
    assert str(old.image.digest) not in [entry["digest"] for entry in entries]
    assert len(entries) == 3  # foreign, door, image
    assert json.loads((out / "index.json").read_text())["annotations"] == {"somebody": "else"}


def test_a_damaged_block_leaves_the_name_away_and_no_part_of_a_blob(
    sealed_small: Path, copy_of: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = copy_of(sealed_small)
    with (folder / "images.tar.0002").open("r+b") as file:
        file.write(b"damaged")
    run_import(folder, tmp_path / "state.yml", f"oci={tmp_path / 'out'}")
    named = {str(dict(entry["annotations"])["org.opencontainers.image.ref.name"])  # type: ignore[call-overload]
             for entry in index_of(tmp_path / "out")}  # fmt: skip
    assert named == {"registry.example/team/multi:3.0"}
    assert not list((tmp_path / "out").glob(".partial-*"))


def test_a_folder_with_something_else_is_refused_untouched(sealed_tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(errors.TargetCannotHold):
        run_import(sealed_tiny, tmp_path / "state.yml", f"oci={out}")
    assert [name for name in names(out) if not name.startswith(".")] == ["thesis.txt"]


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"imageLayoutVersion":"2.0.0"}'])
def test_a_layout_that_cannot_be_understood_is_refused(content: bytes, sealed_tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "oci-layout").write_bytes(content)
    with pytest.raises(errors.TargetCannotHold):
        run_import(sealed_tiny, tmp_path / "state.yml", f"oci={out}")


def test_two_runs_do_not_write_one_layout_at_once(sealed_tiny: Path, tmp_path: Path) -> None:
    other = OciSink(tmp_path / "out")
    other.check([])
    try:
        with pytest.raises(errors.Locked):
            run_import(sealed_tiny, tmp_path / "state.yml", f"oci={tmp_path / 'out'}")
    finally:
        other.close()
    assert actions(run_import(sealed_tiny, tmp_path / "state.yml", f"oci={tmp_path / 'out'}")) == ["delivered"] * 2


def test_an_image_without_a_tag_is_found_by_its_digest(tmp_path: Path) -> None:
    double = tiny_images()[0]
    named = double.renamed(f"registry.example/tiny/one@{double.image.digest}")
    folder = BundleDraft([named]).seal(tmp_path / "bundle")
    for expected in ("delivered", "already-there"):
        assert actions(run_import(folder, tmp_path / "state.yml", f"oci={tmp_path / 'out'}")) == [expected]
    (entry,) = index_of(tmp_path / "out")
    assert entry["digest"] == str(double.image.digest)
    assert "annotations" not in entry


def test_an_image_without_a_tag_takes_no_names_away(tmp_path: Path) -> None:
    named = image("reg.example/a:1", [noise_layer("oci-named")])
    out, state = tmp_path / "out", tmp_path / "state.yml"
    run_import(BundleDraft([named]).seal(tmp_path / "first"), state, f"oci={out}")
    pinned = named.renamed(f"reg.example/a@{named.image.digest}")
    (out / "blobs" / "sha256" / named.image.manifests[0].config.digest.hex).unlink()  # so that it is delivered again
    result = run_import(BundleDraft([pinned], sequence=2).seal(tmp_path / "second"), state, f"oci={out}")
    assert actions(result) == ["delivered"]
    annotated = [entry.get("annotations") for entry in index_of(out)]
    assert len(annotated) == 2
    assert any(annotated)
