"""Tests keep out of the place where an importer of this machine has its real state (tests/conftest.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from doubles.bundle_factory import write_trust


def run_without_state(bundle: Path, folder: Path) -> None:
    trust = write_trust(folder / "allowed_signers")
    command = [sys.executable, "-m", "transload.shared.command_line", "import", str(bundle), "--trust", str(trust)]
    done = subprocess.run([*command, "--to", f"archive={folder / 'out'}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_import_without_a_state_option_lands_in_the_folder_of_this_test(sealed_tiny: Path, tmp_path: Path) -> None:
    place = Path(os.environ["TRANSLOAD_IMPORT_STATE"])
    assert not place.exists()
    run_without_state(sealed_tiny, tmp_path)
    assert place.is_file()
    assert place.is_relative_to(os.environ["XDG_STATE_HOME"])


def test_every_test_begins_with_an_empty_place() -> None:
    assert list(Path(os.environ["XDG_STATE_HOME"]).iterdir()) == []


def test_a_touched_place_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    guard = request.config.pluginmanager.getplugin(str(Path(__file__).parents[1] / "conftest.py"))
    state = tmp_path / "state.yml"
    with monkeypatch.context() as patched:
        patched.setattr(guard, "DEFAULT_STATES", (tmp_path, tmp_path / "none"))
        empty = guard.signs_of_use()
        state.write_text("")
        written = guard.signs_of_use()
        assert guard.signs_of_use() == written
        os.utime(state, ns=(1, 1))
        assert len({frozenset(signs) for signs in (empty, written, guard.signs_of_use())}) == 3
