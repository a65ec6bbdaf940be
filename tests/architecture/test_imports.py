"""Who may import whom: `shared <- manifests <- {export_side, import_side}`, and third parties behind their adapters."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared", "manifests", "export_side", "import_side")
MAY_IMPORT = {
    "shared": {"shared"},
    "manifests": {"shared", "manifests"},
    "export_side": {"shared", "manifests", "export_side"},
    "import_side": {"shared", "manifests", "import_side"},
}

# An engine can be replaced, and its exceptions translated, where it has one door.
DOORS = {
    "docker": {"shared/docker_engine.py", "shared/registry/docker_login.py"},
    "requests": {"shared/registry/connections.py", "shared/docker_engine.py"},  # the latter for errors of docker-py
    "urllib3": {"shared/registry/connections.py"},
    "zstandard": {"shared/compression.py"},
    "yaml": {"shared/yaml_files.py"},
    "cryptography": {"shared/signing/"},
    "rich": {"shared/console.py", "shared/progress.py"},
}
EVERYWHERE = {"click", "msgspec"}

# The table of commands names both sides as text and loads one of them; nothing else in `shared` knows either.
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def imported_names(path: Path) -> Iterator[str]:
    """Every module that a file imports, also inside functions and for types only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            if node.module == "transload":
                yield from (f"transload.{alias.name}" for alias in node.names)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_packages_import_downwards_only(path: Path) -> None:
    package = relative(path).split("/")[0]
    names = {name.split(".")[1] for name in imported_names(path) if name.startswith("transload.")}
    assert names <= MAY_IMPORT[package]


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_third_parties_have_one_door(path: Path) -> None:
    where = relative(path)
    for name in imported_names(path):
        top = name.split(".")[0]
        if top in sys.stdlib_module_names or top in EVERYWHERE or top == "transload":
            continue
        assert top in DOORS, f"{where} imports {top}, which is not in the table"
        assert any(where == door or (door.endswith("/") and where.startswith(door)) for door in DOORS[top]), (
            f"{where} imports {top}; only {sorted(DOORS[top])} may"
        )


def test_the_table_names_only_what_is_used() -> None:
    used = {(relative(path), name.split(".")[0]) for path in SOURCES for name in imported_names(path)}
    for top, doors in DOORS.items():
        for door in doors:
            assert any(where.startswith(door) and name == top for where, name in used), f"{door} does not import {top}"


def test_every_dependency_is_imported() -> None:
    used = {name.split(".")[0].lower() for path in SOURCES for name in imported_names(path)}
    distribution_names = {"yaml": "pyyaml"}
    used = {distribution_names.get(name, name) for name in used}
    assert declared_dependencies() <= used


def declared_dependencies() -> set[str]:
    """The names under `dependencies` of pyproject.toml (tomllib is younger than the oldest interpreter)."""
    text = (ROOT / "pyproject.toml").read_text()
    block = text.partition("\ndependencies = [\n")[2].partition("\n]")[0]
    return {line.strip().strip('"').split(">")[0].split("[")[0].lower() for line in block.splitlines()}
