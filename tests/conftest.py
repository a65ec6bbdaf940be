"""Fixtures that several folders of tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault of the code: no property test is judged by the clock.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("unhurried")

pytest_plugins = ["doubles.docker_daemons"]

DEFAULT_STATES = (Path("/var/lib/transload"), Path.home() / ".local" / "state" / "transload")
"""Where an importer of this machine may keep its real memory: root's place and everybody else's."""


def signs_of_use() -> set[tuple[str, int, int]]:
    """What changes when anything in these folders is made, written, replaced or removed."""
    found = [path for folder in DEFAULT_STATES if folder.is_dir() for path in (folder, *folder.iterdir())]
    seen = [(path, path.lstat()) for path in found if os.path.lexists(path)]
    return {(str(path), stat.st_ino, stat.st_mtime_ns) for path, stat in seen}


@pytest.fixture(autouse=True)
def nobodys_real_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test touches the state of an importer that this machine really has, nor of the person who runs the tests."""
    place = tmp_path_factory.mktemp("state-home")
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    monkeypatch.setenv("TRANSLOAD_IMPORT_STATE", str(place / "transload" / "state.yml"))
    before = signs_of_use()
    yield
    assert signs_of_use() == before, "a test (or an import that runs here meanwhile) used this machine's state.yml"
