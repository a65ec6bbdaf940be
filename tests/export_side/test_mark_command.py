from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from doubles.manifest_samples import bundle_manifest
from transload.export_side.export_state import ExportState
from transload.manifests.bundle_manifest import encode
from transload.shared.command_line import cli
from transload.shared.errors import InvalidConfiguration, NotABundle, PathMissing
from transload.shared.state_file import encode_state, read_state

BUNDLE = bundle_manifest(1).bundle_id


@pytest.fixture
def output(tmp_path: Path) -> Path:
    state = ExportState.fresh()
    state.record_sealed(bundle_manifest(1))
    (tmp_path / "state.yml").write_bytes(encode_state(state))
    return tmp_path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["mark", *map(str, arguments)])


def status_in(output: Path) -> str:
    state = read_state(output / "state.yml", ExportState)
    assert state is not None
    return state.destinations["default"].bundles[BUNDLE].status


def test_by_id(output: Path) -> None:
    result = run(BUNDLE, "acknowledged", "--output-path", output)
    assert result.output == f"{BUNDLE}: acknowledged (was sealed).\n"
    assert status_in(output) == "acknowledged"
    result = run(BUNDLE, "lost", "--output-path", output, "--json")
    assert json.loads(result.stdout) == {
        "bundle": BUNDLE, "command": "mark", "previous_status": "acknowledged", "status": "lost",
    }  # fmt: skip
    assert status_in(output) == "lost"


def test_by_id_in_the_current_folder(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(output)
    assert run(BUNDLE, "lost").exit_code == 0
    assert status_in(output) == "lost"


def test_by_folder_whatever_it_is_called(output: Path) -> None:
    folder = output / "renamed"
    folder.mkdir()
    (folder / "bundle.json").write_bytes(encode(bundle_manifest(1)))
    assert run(folder, "acknowledged").exit_code == 0
    assert status_in(output) == "acknowledged"


def test_a_folder_that_is_no_bundle(output: Path) -> None:
    (output / "other").mkdir()
    assert isinstance(run(output / "other", "lost").exception, NotABundle)


def test_an_unknown_bundle_leaves_the_state(output: Path) -> None:
    before = (output / "state.yml").read_bytes()
    assert isinstance(run("default-000009-x", "lost", "--output-path", output).exception, InvalidConfiguration)
    assert (output / "state.yml").read_bytes() == before


def test_without_a_state_nothing_is_made(tmp_path: Path) -> None:
    assert isinstance(run(BUNDLE, "lost", "--output-path", tmp_path).exception, PathMissing)
    assert list(tmp_path.iterdir()) == []


def test_another_word_is_a_usage_error(output: Path) -> None:
    assert run(BUNDLE, "arrived", "--output-path", output).exit_code == 2
