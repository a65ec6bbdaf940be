"""README.txt of a bundle: every command in it is run as it stands, by a shell, in a copy of the bundle."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from doubles.docker_daemons import DockerDaemon
from doubles.engines import require
from doubles.export_runs import manifest_of
from doubles.registries import plain_registry
from transload.manifests.archive_layout import docker_manifest

pytestmark = pytest.mark.engine

NO_TAG = "<none>:<none>"  # what Docker 20.10 lists for the image that was asked for by digest


def commands(folder: Path) -> list[str]:
    """The indented lines, less the two that say what only the person knows: what a person pastes."""
    lines = (folder / "README.txt").read_text("ascii").splitlines()
    body = lines[: lines.index("Images")]
    found = [line.strip() for line in body if line.startswith("    ") and line.strip()]
    assert found[0] == "TRUST=/path/to/allowed_signers"
    assert found[1] == f"WORK=/var/tmp/{manifest_of(folder).bundle_id}"
    return found[2:]


@pytest.fixture
def shell_folder(spoilable: Any) -> Path:
    (spoilable.folder.parent / "trust").mkdir()
    (spoilable.folder.parent / "trust" / "allowed_signers").write_bytes(spoilable.trust.read_bytes())
    return Path(spoilable.folder)


def shell(command: str, folder: Path, docker_url: str = "") -> subprocess.CompletedProcess[str]:
    home = folder.parent
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin"
    environment = {"PATH": path, "LC_ALL": "C.UTF-8", "HOME": str(home), "DOCKER_HOST": docker_url,
                   "TRANSLOAD_IMPORT_STATE": str(home / "state.yml"),
                   "TRUST": str(home / "trust" / "allowed_signers"), "WORK": str(home / "work")}  # fmt: skip
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, capture_output=True, text=True, check=False, env=environment
    )


def test_every_command_of_the_readme_works(
    shell_folder: Path, carried: Any, docker_20: DockerDaemon, tmp_path: Path
) -> None:
    for program in ("ssh-keygen", "sha256sum", "/usr/bin/docker", "skopeo"):
        require(program)
    everything = commands(shell_folder)
    said: dict[str, str] = {}
    name = ""
    for command in everything:
        if command.startswith("transload "):
            continue
        done = shell(command.replace("-I NAME", f"-I {name}"), shell_folder, docker_20.url)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        said[command] = done.stdout
        if "find-principals" in command:
            name = done.stdout.strip()
    kinds = ("find-principals", "-Y verify", "sha256sum", "docker load", '> "$WORK/images.tar"', "skopeo copy")
    for kind in kinds:
        assert any(kind in command for command in said), f"README.txt has no {kind} any more"
    # and each did what the text around it promises
    verified = next(text for command, text in said.items() if "-Y verify" in command)
    assert verified.startswith('Good "transload-bundle" signature for exporter@example.org')
    checked = next(text for command, text in said.items() if "sha256sum" in command)
    assert {line for line in checked.splitlines() if not line.endswith(": OK")} == set()
    assert set(docker_20.tags()) - {NO_TAG} == {str(one.image.name) for one in carried.tagged}
    assert (tmp_path / "work" / "images.tar").read_bytes() == carried.joined.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"bundle", "trust", "work"}, "nothing lies beside the bundle"
    copies = [command for command in said if command.startswith("skopeo copy")]
    assert len(copies) == len(carried.tagged)
    for one in carried.tagged:
        assert any(f':{one.image.name}" ' in command for command in copies)


def test_every_command_with_transload_works(shell_folder: Path, carried: Any, docker_20: DockerDaemon) -> None:
    ours = [command for command in commands(shell_folder) if command.startswith("transload ")]
    assert ours
    for command in ours:
        done = shell(command, shell_folder, docker_20.url)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert set(docker_20.tags()) >= {str(one.image.name) for one in carried.tagged}


def test_the_push_that_the_readme_suggests(shell_folder: Path, carried: Any, tmp_path: Path) -> None:
    readme = (shell_folder / "README.txt").read_text()
    assert "In place of the last part, --preserve-digests docker://REGISTRY/PATH:TAG pushes to a registry" in readme
    assert "oci:FOLDER:TAG" in readme
    one = carried.tagged[1]
    (tmp_path / "work").mkdir()
    os.link(carried.joined, tmp_path / "work" / "images.tar")
    command = next(line for line in commands(shell_folder) if str(one.image.name) in line)
    with plain_registry(tmp_path / "registry") as inside:
        pushed = (
            f"{command.rpartition(' ')[0]} --dest-tls-verify=false --preserve-digests docker://{inside.host}/pushed:1"
        )
        done = shell(pushed, shell_folder)
        assert done.returncode == 0, done.stderr
        manifest = docker_manifest(one.image)
        assert manifest is not None
        assert inside.storage.tagged("pushed", "1") == str(manifest.document.digest)
    oci = carried.tagged[0]
    command = next(line for line in commands(shell_folder) if str(oci.image.name) in line)
    done = shell(f"{command.rpartition(' ')[0]} oci:$WORK/layout:1", shell_folder)
    assert done.returncode == 0, done.stderr
