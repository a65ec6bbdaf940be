"""Where an import writes: never into the bundle, never over what is no file, and under names of any bytes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from doubles.bundle_factory import write_trust
from doubles.import_runs import names

COMMAND = [sys.executable, "-m", "transload.shared.command_line"]
Copy = Callable[[Path], Path]


def run_import(
    bundle: Path, tmp_path: Path, *arguments: object, **environment: str
) -> subprocess.CompletedProcess[str]:
    trust = write_trust(tmp_path / "allowed_signers")
    options = ["--trust", trust] if "--trust" not in arguments else []
    command: list[object] = [*COMMAND, "import", bundle, *options, *arguments]
    if "--state" not in arguments:
        command += ["--state", tmp_path / "state" / "state.yml"]
    shown = [argument if isinstance(argument, (str, Path)) else str(argument) for argument in command]
    return subprocess.run(
        shown, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, **environment}, cwd=tmp_path, errors="backslashreplace",
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ("--to", "archive=BUNDLE"), ("--to", "oci=BUNDLE/oci"), ("--to", "archive=out", "--state", "BUNDLE/state.yml"),
        ("--to", "archive=out", "--report", "BUNDLE/bundle.json"),
        ("--to", "archive=out", "--descriptions", "BUNDLE/x"),
        ("--to", "archive=out/../BUNDLE/x"), ("--to", "archive=link/x"),
    ],
)  # fmt: skip
def test_nothing_is_written_into_the_bundle(
    sealed_tiny: Path, copy_of: Copy, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    bundle = copy_of(sealed_tiny)
    (tmp_path / "link").symlink_to(bundle)
    before = {path.name: path.read_bytes() for path in bundle.iterdir()}
    done = run_import(bundle, tmp_path, *(argument.replace("BUNDLE", bundle.name) for argument in arguments))
    assert done.returncode == 12
    assert "spoil the bundle" in done.stderr
    assert {path.name: path.read_bytes() for path in bundle.iterdir()} == before
    assert names(tmp_path / "out") == []


@pytest.mark.parametrize("name", ["allowed_signers", "state/state.yml"])
def test_a_report_takes_no_other_files_place(sealed_tiny: Path, tmp_path: Path, name: str) -> None:
    done = run_import(sealed_tiny, tmp_path, "--to", "archive=out", "--report", name)
    assert done.returncode == 12
    assert (tmp_path / "allowed_signers").read_text().startswith("exporter@")


def test_a_report_replaces_no_pipe_and_no_device(sealed_tiny: Path, tmp_path: Path) -> None:
    """As root, a report "to /dev/null" would take the null device away from the whole system."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for name in ("pipe", "null"):
        done = run_import(sealed_tiny, tmp_path, "--to", "archive=out", "--report", name)
        assert done.returncode == 45
        assert "no regular file" in done.stderr
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert names(tmp_path / "out") == []  # found before the first byte


@pytest.mark.parametrize("policy", ["overwrite", "keep", "fail"])
def test_a_pipe_under_an_archives_name_is_not_waited_for(sealed_tiny: Path, tmp_path: Path, policy: str) -> None:
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "registry.example_tiny_one_1.tar")
    done = run_import(sealed_tiny, tmp_path, "--to", "archive=out", "--on-existing-tag", policy)
    assert done.returncode == 3
    assert "no regular file" in done.stderr
    assert "registry.example_tiny_two_1.tar" in names(tmp_path / "out")


@pytest.mark.parametrize("kind", ["archive", "oci"])
@pytest.mark.parametrize("name", [b"bad\xff", b"new\nline:and space", "caf\u00e9".encode()])
@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_folders_have_names_of_any_bytes(
    sealed_tiny: Path, tmp_path: Path, kind: str, name: bytes, locale: str
) -> None:
    folder = tmp_path / os.fsdecode(name)
    environment = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    to, report = f"{kind}={folder / 'out'}", folder / "report.json"
    options = ("--to", to, "--report", report, "--state", folder / "state.yml", "--json")
    results = []
    for _ in range(2):
        done = run_import(sealed_tiny, tmp_path, *options, **environment)
        assert done.returncode == 0, done.stderr
        results.append([one["action"] for one in json.loads(report.read_text("utf-8"))["deliveries"]])
    assert results == [["delivered"] * 2, ["already-there"] * 2]
    state = (folder / "state.yml").read_text("utf-8")
    assert state.count(f"{kind}=") == 1
    assert os.fsencode(tmp_path).decode() in state


def test_the_same_folder_has_the_same_name_in_every_locale(sealed_tiny: Path, tmp_path: Path) -> None:
    to = f"archive={tmp_path}/caf\u00e9"
    run_import(sealed_tiny, tmp_path, "--to", to, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    run_import(sealed_tiny, tmp_path, "--to", to, LC_ALL="C.UTF-8")
    assert (tmp_path / "state" / "state.yml").read_text("utf-8").count("caf\u00e9") == 1


def test_links_in_a_circle_are_no_bug(sealed_tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    assert run_import(sealed_tiny, tmp_path, "--to", "archive=circle/x").returncode == 43
