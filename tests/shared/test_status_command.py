from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from doubles.manifest_samples import EXPORTER, bundle_manifest
from transload.export_side.export_state import ExportState
from transload.import_side.import_state import ImportState
from transload.shared.command_line import cli
from transload.shared.digests import Digest
from transload.shared.errors import BlockDamaged, PathMissing, StateUnreadable
from transload.shared.state_file import encode_state

DIGEST = str(Digest.of(b"image"))


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    state = ExportState.fresh()
    state.exporter = EXPORTER
    state.record_sealed(bundle_manifest(1))
    state.record_sealed(bundle_manifest(2))
    state.mark(bundle_manifest(1).bundle_id, "lost")
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "state.yml"
    path.write_bytes(encode_state(state))
    return path


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    state = ImportState.fresh()
    one = bundle_manifest(1)
    state.record_accepted(one, checksums_digest=DIGEST, signed_by="ops@example", when="2024-01-05T00:00:00Z")
    state.record_delivered("docker", "reg.example/app:1.10", digest=DIGEST, manifest=one, when="2024-01-05T00:00:01Z")
    state.record_failed("docker", "reg.example/b:1", digest=DIGEST, manifest=one, error=BlockDamaged("bad"), when="t")
    path = tmp_path / "import.yml"
    path.write_bytes(encode_state(state))
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["status", *map(str, arguments)], catch_exceptions=True)


def test_an_exporters_state(exported: Path) -> None:
    result = run("--output-path", exported.parent)
    assert result.exit_code == 0
    assert f"Exporter {EXPORTER}" in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["default", "1", "default-000001-20240101-abcd", "2024-01-01T00:00:00Z", "0", "lost"] in lines
    assert ["default", "2", "default-000002-20240101-abcd", "2024-01-01T00:00:00Z", "0", "sealed"] in lines
    assert "Images: none" in result.stdout


def test_an_importers_state(imported: Path) -> None:
    result = run("--state", imported)
    assert result.exit_code == 0
    assert "Importer for destination 'default'" in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    bundle = "default-000001-20240101-abcd"
    assert [bundle, "1", "abcdabcd", "ops@example", "2024-01-05T00:00:00Z", "accepted"] in lines
    assert ["docker", "reg.example/app:1.10", DIGEST, bundle, "2024-01-05T00:00:01Z"] in lines
    assert ["docker", "reg.example/b:1", bundle, "block-damaged", "bad", "t"] in lines


def test_json_is_the_state(imported: Path) -> None:
    document = json.loads(run("--state", imported, "--json").stdout)
    assert (document["command"], document["side"]) == ("status", "import")
    assert document["deliveries"]["docker"]["reg.example/app:1.10"]["digest"] == DIGEST


def test_the_current_folder_then_the_default_place(
    exported: Path, imported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transload.shared.status_command.default_state_path", lambda: imported)
    monkeypatch.chdir(tmp_path)
    assert "Importer" in run().stdout
    monkeypatch.chdir(exported.parent)
    assert "Exporter" in run().stdout


def test_no_state_is_an_error_that_says_how_to_name_one(tmp_path: Path) -> None:
    result = run("--state", tmp_path / "none.yml")
    assert isinstance(result.exception, PathMissing)
    assert "--output-path" in result.exception.hint


@pytest.mark.parametrize("content", ["", "side: export\n...\n", "side: other\n...\n", "schema: 1\n...\n"])
def test_what_cannot_be_understood_is_not_shown(tmp_path: Path, content: str) -> None:
    path = tmp_path / "state.yml"
    path.write_text(content)
    assert isinstance(run("--state", path).exception, StateUnreadable)


def test_one_side_at_a_time(exported: Path, imported: Path) -> None:
    result = run("--output-path", exported.parent, "--state", imported)
    assert result.exit_code == 2
    assert "give one of them" in result.stderr


def test_looking_changes_nothing(exported: Path) -> None:
    before = {path.name: path.read_bytes() for path in exported.parent.iterdir()}
    run("--output-path", exported.parent)
    assert {path.name: path.read_bytes() for path in exported.parent.iterdir()} == before
