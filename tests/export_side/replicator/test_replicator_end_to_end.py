"""The call that people have in their scripts, with real parts: Docker loads the files, a registry takes the pushes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.docker_daemons import DockerDaemon
from doubles.engines import require
from doubles.image_factory import ImageDouble, image, layer, noise_layer
from doubles.ngc import NgcDouble, running_ngc
from doubles.registries import htpasswd_registry
from doubles.replicator_runs import ReplicatorRuns
from doubles.static_program import program

pytestmark = [pytest.mark.engine, pytest.mark.slow]

IMAGES = {
    ("nvidia/tensorflow", "19.06-py3"): "tensorflow 19.06",
    ("nvidia/tensorflow", "19.07-py3"): "tensorflow 19.07",
    ("nvidia/pytorch", "19.06-py3"): "pytorch 19.06",
}


def build(says: str) -> ImageDouble:
    base = noise_layer("end-to-end-base", 3_000_000)
    return image("any/name:1", [base, layer({"say": program(says + "\n")})], docker=True, command=["/say"])


@pytest.fixture
def ngc() -> Iterator[NgcDouble]:
    with running_ngc(keys={"KEY": {"nvidia"}}, token_uses=3) as running:
        for (path, tag), says in IMAGES.items():
            running.publish(build(says), path, tag, description="text", is_public=path != "nvidia/pytorch")
        running.publish(build("too old"), "nvidia/tensorflow", "19.05-py3")
        running.publish(build("not asked for"), "nvidia/caffe", "19.06-py3")
        yield running


@pytest.fixture
def runs(ngc: NgcDouble, tmp_path: Path) -> ReplicatorRuns:
    return ReplicatorRuns(ngc, tmp_path / "out")


def test_the_call_of_old_scripts(runs: ReplicatorRuns, docker_20: DockerDaemon, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    strace = [str(require("strace")), "-f", "-e", "trace=execve", "-o", str(trace)]
    with htpasswd_registry(tmp_path / "registry", {"USER": "PASSWORD"}) as registry:
        call = (
            "--project=nvidia --min-version=19.06 --image=tensorflow --image=pytorch --singularity --exporter "
            f"--registry-url={registry.host} --registry-username=USER --registry-password=PASSWORD --api-key=KEY"
        )
        done = runs.call(*call.split(), below=strace)
        # Everything is made but the SIF files, and that is said.
        assert done.returncode == 3, done.stderr
        assert re.findall(r"warning: (.*?):", done.stderr) == ["--singularity"]
        source = runs.ngc.registry.repositories
        for path, tag in IMAGES:
            assert registry.storage.tagged(path, tag) == source[path].tags[tag]
        assert registry.storage.tagged("nvidia/tensorflow", "19.05-py3") is None
        assert registry.storage.tagged("nvidia/caffe", "19.06-py3") is None
    assert len(list(runs.output.glob("*.tar"))) == len(IMAGES)
    assert {file.name for file in runs.output.glob("*.md")} == {
        "description_nvidia%%pytorch.md",
        "description_nvidia%%tensorflow.md",
    }
    for (path, tag), says in IMAGES.items():
        loaded = docker_20.command_line("load", "-i", str(runs.tar(path, tag)))
        assert loaded.returncode == 0, loaded.stderr
        assert docker_20.run(f"{runs.ngc.registry.host}/{path}:{tag}").strip() == says
    # No child was started, so no secret was in a child's argv; and none is in what was written.
    assert trace.read_text().count("execve(") == 1
    assert "PASSWORD" not in done.stdout + done.stderr + runs.state_path.read_text()


def test_no_remove_keeps_images_in_docker(runs: ReplicatorRuns, docker_20: DockerDaemon) -> None:
    runs.environment["DOCKER_HOST"] = docker_20.url
    done = runs.call("--image=tensorflow", "--min-version=19.07", "--no-remove", "--no-exporter")
    assert done.returncode == 0, done.stderr
    name = f"{runs.ngc.registry.host}/nvidia/tensorflow:19.07-py3"
    assert list(docker_20.tags()) == [name]
    assert docker_20.run(name).strip() == "tensorflow 19.07"
    assert runs.files() == ["description_nvidia%%tensorflow.md"]  # no file was asked for, and none is left
    before = runs.blob_reads()
    assert "1 were there already" in runs.call(
        "--image=tensorflow", "--min-version=19.07", "--no-remove", "--no-exporter"
    ).stdout  # fmt: skip
    assert runs.blob_reads() == before


def test_no_remove_with_the_containerd_store(runs: ReplicatorRuns, docker_containerd: DockerDaemon) -> None:
    runs.environment["DOCKER_HOST"] = docker_containerd.url
    done = runs.call("--image=tensorflow", "--min-version=19.07", "--no-remove")
    assert done.returncode == 0, done.stderr
    name = f"{runs.ngc.registry.host}/nvidia/tensorflow:19.07-py3"
    assert docker_containerd.run(name).strip() == "tensorflow 19.07"
    assert runs.tar("nvidia/tensorflow", "19.07-py3").exists()


def test_an_image_that_docker_cannot_use_is_a_failure(runs: ReplicatorRuns, docker_20: DockerDaemon) -> None:
    broken = image("any/name:1", [layer({"say": b"x"}, compression="zstd")])
    runs.ngc.publish(broken, "nvidia/zstd", "24.01")
    runs.environment["DOCKER_HOST"] = docker_20.url
    done = runs.call("--image=zstd", "--no-remove")
    assert done.returncode == 3, done.stderr
    assert "load-failed" in done.stderr
    assert runs.tar("nvidia/zstd", "24.01").exists()
    assert docker_20.tags() == {}
