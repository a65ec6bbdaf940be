"""What the catalogue says goes into the bundle, survives kills and copies, and comes out on the other side."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.export_runs import ExportRuns, manifest_of
from doubles.image_factory import image, noise_layer
from doubles.import_runs import AT, run_import
from doubles.ngc import NgcDouble, running_ngc
from doubles.registry_faults import Fault, answer
from transload.export_side.descriptions import describe
from transload.export_side.ngc.answers import CatalogImage
from transload.shared.command_line import cli
from transload.shared.errors import BundleFileDamaged
from transload.shared.limits import MAX_DESCRIPTION_BYTES


@pytest.fixture
def ngc(monkeypatch: pytest.MonkeyPatch) -> Iterator[NgcDouble]:
    with running_ngc() as double:
        for name, value in double.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(AT.timestamp())))
        about = {"display_name": "PyTorch", "description": "Line one\r\nLine\x1b[2J two \u202e\ud800",
                 "license_url": "https://example.com/licence"}  # fmt: skip
        double.publish(image("x", [noise_layer("d1")]), "nvidia/pytorch", "24.01-py3", **about)
        double.publish(image("x", [noise_layer("d2")]), "nvidia/pytorch", "24.02-py3")
        double.publish(image("x", [noise_layer("d3")]), "nvidia/teamx/model", "1.0", description="A model.")
        double.publish(image("x", [noise_layer("d4")]), "nvidia/silent", "1.0", description=None)
        yield double


@pytest.fixture
def runs(tmp_path: Path) -> ExportRuns:
    return ExportRuns(tmp_path / "out")


def call(runs: ExportRuns, *arguments: str) -> int:
    code = cli.main(runs.command("--ngc", *arguments), prog_name="transload", standalone_mode=False)
    assert isinstance(code, int)
    return code


def stem(ngc: NgcDouble, path: str) -> str:
    return f"{ngc.registry.host}/{path}".replace("/", "_").replace(":", "_")


def test_one_file_for_each_repository_that_has_a_text(
    ngc: NgcDouble, runs: ExportRuns, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    call(runs, "--dry-run", "--json")
    planned = json.loads(capsys.readouterr().out)
    assert call(runs) == 0
    bundle = runs.bundles()[0]
    files = [path for path in bundle.rglob("*") if path.is_file()]
    assert (planned["bundle_bytes"], planned["files"]) == (sum(path.stat().st_size for path in files), len(files))
    pytorch = (bundle / "descriptions" / f"{stem(ngc, 'nvidia/pytorch')}.md").read_text()
    assert pytorch == (
        f"# PyTorch\n\nImage: {ngc.registry.host}/nvidia/pytorch\n\nLicence: https://example.com/licence\n\n"
        "Line one\nLine[2J two ?\n"
    )
    assert {entry.repository.partition("/")[2] for entry in manifest_of(bundle).descriptions} == {
        "nvidia/pytorch",
        "nvidia/teamx/model",
    }
    assert "Descriptions and licences" in (bundle / "README.txt").read_text()
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=bundle, check=True)


def test_the_importer_writes_them_where_it_is_told(ngc: NgcDouble, runs: ExportRuns, tmp_path: Path) -> None:
    call(runs)
    bundle, out = runs.bundles()[0], tmp_path / "texts"
    result = run_import(bundle, tmp_path / "in.yml", f"oci={tmp_path / 'oci'}", descriptions=out)
    assert result.exit_code == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        path.name: path.read_bytes() for path in (bundle / "descriptions").iterdir()
    }
    assert not (tmp_path / "oci" / "descriptions").exists()


def test_a_link_in_the_way_is_replaced_and_not_followed(ngc: NgcDouble, runs: ExportRuns, tmp_path: Path) -> None:
    call(runs)
    out, victim = tmp_path / "texts", tmp_path / "victim"
    out.mkdir()
    victim.write_text("untouched")
    (out / f"{stem(ngc, 'nvidia/pytorch')}.md").symlink_to(victim)
    run_import(runs.bundles()[0], tmp_path / "in.yml", f"oci={tmp_path / 'oci'}", descriptions=out)
    assert victim.read_text() == "untouched"


def test_a_changed_description_lets_nothing_be_delivered(ngc: NgcDouble, runs: ExportRuns, tmp_path: Path) -> None:
    call(runs)
    text = next((runs.bundles()[0] / "descriptions").iterdir())
    text.write_bytes(text.read_bytes().replace(b"Image", b"Imaqe"))
    with pytest.raises(BundleFileDamaged, match="descriptions/"):
        run_import(runs.bundles()[0], tmp_path / "in.yml", f"oci={tmp_path / 'oci'}", descriptions=tmp_path / "texts")
    assert not (tmp_path / "texts").exists()


def test_copies_have_them_too(ngc: NgcDouble, runs: ExportRuns, tmp_path: Path) -> None:
    call(runs, "--image", "teamx/model")
    (tmp_path / "stick").mkdir()
    bundle = runs.bundles()[0]
    cli.main(["copy", str(bundle), str(tmp_path / "stick")], prog_name="transload", standalone_mode=False)
    copied = tmp_path / "stick" / bundle.name
    result = run_import(copied, tmp_path / "in.yml", f"oci={tmp_path / 'oci'}", descriptions=tmp_path / "texts")
    assert result.exit_code == 0
    assert len(list((tmp_path / "texts").iterdir())) == 1


@pytest.mark.slow
def test_a_killed_export_goes_on_to_the_same_bytes(ngc: NgcDouble, runs: ExportRuns, tmp_path: Path) -> None:
    log = tmp_path / "log"
    undisturbed = ExportRuns(tmp_path / "undisturbed")
    undisturbed.call("--ngc", log=log)
    steps = [name for name in log.read_text().splitlines() if "descriptions" in name or name.endswith(".md")]
    assert steps
    expected = {path.name: path.read_bytes() for path in undisturbed.bundles()[0].rglob("*") if path.is_file()}
    originals = {path: entry.description for path, entry in ngc.entries.items()}
    for kill_at in ("make descriptions", ".md"):
        for path, text in originals.items():
            ngc.entries[path].description = text
        killed = ExportRuns(tmp_path / f"killed{len(kill_at)}")
        assert killed.call("--ngc", kill_at=kill_at).returncode == -9
        for entry in ngc.entries.values():
            entry.description = f"changed after {kill_at}"  # the frozen plan keeps what was read first
        assert killed.call("--ngc").returncode == 0
        found = {path.name: path.read_bytes() for path in killed.bundles()[0].rglob("*") if path.is_file()}
        assert found == expected


def test_an_image_that_fails_takes_its_description_along(ngc: NgcDouble, runs: ExportRuns) -> None:
    ngc.registry.faults.append(Fault("GET", "teamx/model/blobs/", answer(404), skip=1, times=None))
    assert call(runs, "--image", "pytorch", "--image", "teamx/model") == 3
    bundle = runs.bundles()[0]
    assert [path.name for path in (bundle / "descriptions").iterdir()] == [f"{stem(ngc, 'nvidia/pytorch')}.md"]


def test_texts_are_bounded_and_names_do_not_collide() -> None:
    images = [image(f"host/{path}:1", [noise_layer("d")]).image for path in ("a/b", "a_b", "c" * 200, "long")]
    about = {one.reference.repository: CatalogImage("x/y", description="é" * 600_000) for one in images}
    found = describe(images, about)
    assert len({one.name.casefold() for one in found}) == 4
    assert all(len(one.name) <= 213 for one in found)
    assert all(len(one.content) <= MAX_DESCRIPTION_BYTES and b"it is cut here" in one.content for one in found)
    assert all(one.content.decode() for one in found)
