"""What no linter says: files stay short, packages are complete, nothing of one machine is written down."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES = 400


def checked_in() -> list[Path]:
    """The files of the project; the working tree's without version control."""
    try:
        listing = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True, text=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return [
            path for path in ROOT.rglob("*") if path.is_file() and not any(p.startswith(".venv") for p in path.parts)
        ]
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


FILES = checked_in()
PYTHON_FILES = [path for path in FILES if path.suffix == ".py"]


@pytest.mark.parametrize("path", PYTHON_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES


def test_every_source_folder_is_a_listed_package() -> None:
    """A sub-package that pyproject.toml does not list would silently not ship."""
    listed = set(re.findall(r'"(transload\.[a-z_.]+)",?\n', (ROOT / "pyproject.toml").read_text()))
    folders = {
        "transload." + ".".join(path.parent.relative_to(ROOT).parts)
        for package in ("shared", "manifests", "export_side", "import_side")
        for path in (ROOT / package).rglob("*.py")
    }
    assert folders == listed


@pytest.mark.parametrize(
    "path", [path for path in PYTHON_FILES if "tests" not in path.parts], ids=lambda p: str(p.relative_to(ROOT))
)
def test_no_loose_ends(path: Path) -> None:
    assert not re.search(r"\b(TODO|FIXME|XXX)\b|NotImplementedError", path.read_text())
