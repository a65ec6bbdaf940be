"""The wheel: what is in it, and that it works where nothing of this project's tools is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared", "manifests", "export_side", "import_side")
BESIDES_CODE = {
    "transload/shared/py.typed",
    "transload/manifests/FORMAT.md",
    "transload/manifests/bundle.schema.json",
    "transload/manifests/import_report.schema.json",
}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("packaging")]


def clean_environment() -> dict[str, str]:
    """The caller's, without what would make this project importable by accident."""
    return {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }


def find_python(which: str) -> str:
    return subprocess.run(
        [ROOT / "tests" / "setup" / "find-python", which], check=True, capture_output=True, text=True
    ).stdout.strip()


def make_environment(folder: Path, which: str) -> Path:
    subprocess.run([ROOT / "tests" / "setup" / "make-venv", find_python(which), folder], check=True)
    return folder / "bin"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built in a clean copy: setuptools leaves folders behind in its source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-v", "--disable-pip-version-check", "--no-deps", "-w", folder, source],
        check=False, capture_output=True, text=True, env=clean_environment(),
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    warnings = re.findall(r".*(?:Warning|warning:).*", built.stdout)
    assert [line for line in warnings if "byte-compiling is disabled" not in line] == []
    return next(folder.glob("transload-*.whl"))


def modules_beside(wheel: Path) -> set[str]:
    """The modules of the copy that the wheel was built from."""
    source = wheel.with_name("source")
    return {
        f"transload/{path.relative_to(source)}" for package in PACKAGES for path in (source / package).rglob("*.py")
    }


def test_the_wheel_holds_every_module_and_no_test(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == modules_beside(wheel) | BESIDES_CODE


def test_the_wheel_names_its_licence_and_command(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    names = {name.partition(".dist-info/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
    assert "licenses/LICENSE" in names
    programs = archive.read(names["entry_points.txt"]).splitlines()
    assert b"transload = transload.shared.command_line:main" in programs
    assert b"ngc_replicator = transload.export_side.replicator.cli:main" in programs
    assert b"License-Expression: Apache-2.0" in archive.read(names["METADATA"])


@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_the_wheel_works_in_a_fresh_environment(wheel: Path, which: str, tmp_path: Path) -> None:
    """Nothing but the declared dependencies is there, and every module can be imported."""
    programs = make_environment(tmp_path / "fresh", which)
    environment = clean_environment()
    subprocess.run(
        [programs / "pip", "install", "-q", "--disable-pip-version-check", wheel], check=True, env=environment
    )
    helped = subprocess.run(
        [programs / "transload", "--help"], check=False, capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "export" in helped.stdout
    modules = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in zipfile.ZipFile(wheel).namelist()
        if name.endswith(".py")
    ]
    everything = (
        f"import importlib, warnings; warnings.simplefilter('error'); [importlib.import_module(m) for m in {modules}]"
    )
    subprocess.run([programs / "python", "-c", everything], check=True, env=environment, cwd=tmp_path)
