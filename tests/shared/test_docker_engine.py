"""The engine adapter on real daemons of both stores."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from doubles.bundle_factory import archive_bytes
from doubles.docker_daemons import DockerDaemon
from doubles.image_factory import ImageDouble, image, noise_layer
from transload.manifests.archive_layout import hybrid_archive
from transload.shared.digests import Digest
from transload.shared.docker_engine import DockerEngine, LoadStream
from transload.shared.errors import LoadFailed
from transload.shared.platforms import Platform
from transload.shared.references import Reference

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("docker")]

LAYERS = [noise_layer("engine-base", 400_000), noise_layer("engine-top", 300_000)]
NAME = "registry.example/engine/test:1"


@pytest.fixture
def engine(either_docker: DockerDaemon) -> Iterator[DockerEngine]:
    with contextlib.closing(DockerEngine(either_docker.url)) as engine:
        yield engine


def an_archive(double: ImageDouble) -> bytes:
    return bytes(archive_bytes(hybrid_archive([double.image]), double.blobs))


def load(engine: DockerEngine, double: ImageDouble) -> Digest:
    """Load an image, and say how this daemon calls it."""
    archive = an_archive(double)
    engine.load(LoadStream(len(archive), [archive]), NAME)
    held = engine.inspect(str(double.image.name))
    assert held is not None
    return held.image_id


def test_the_kinds_of_daemon(docker_20: DockerDaemon, docker_26: DockerDaemon, docker_containerd: DockerDaemon) -> None:
    found = {}
    for name, daemon in (("old", docker_20), ("new", docker_26), ("containerd", docker_containerd)):
        with contextlib.closing(DockerEngine(daemon.url)) as engine:
            found[name] = engine.info()
    assert {name: info.store for name, info in found.items()} == {
        "old": "layers", "new": "layers", "containerd": "containerd",
    }  # fmt: skip
    assert {name: info.reads_zstd for name, info in found.items()} == {"old": False, "new": True, "containerd": True}
    assert found["old"].version.startswith("20.10")
    assert all(info.platform.os == "linux" for info in found.values())


def test_an_image_is_looked_up_by_name_and_id(engine: DockerEngine, either_docker: DockerDaemon) -> None:
    double = image(NAME, LAYERS)
    image_id = load(engine, double)
    manifest = double.image.manifests[0]
    assert image_id == (manifest.document.digest if either_docker.store == "containerd" else manifest.config.digest)
    held = engine.inspect(str(image_id))
    assert held is not None
    assert [str(diff_id) for diff_id in held.diff_ids] == [layer.diff_id for layer in LAYERS]
    assert held.tags == (NAME,)
    assert engine.inspect("registry.example/engine/other:1") is None


def test_held_chains_are_every_stack_from_below(engine: DockerEngine) -> None:
    assert engine.held_chains() == set()
    load(engine, image(NAME, LAYERS))
    base, top = (Digest.parse(layer.diff_id) for layer in LAYERS)
    assert engine.held_chains() == {(base,), (base, top)}


@pytest.mark.parametrize("name", ["docker.io/library/tiny:1", NAME])
def test_tag_move_and_remove(engine: DockerEngine, either_docker: DockerDaemon, name: str) -> None:
    first = load(engine, image("registry.example/one:1", LAYERS))
    second = load(engine, image("registry.example/two:1", LAYERS, environment=["A=1"]))
    target = Reference.parse(name)
    for image_id in (first, second):
        engine.tag(image_id, target)
        held = engine.inspect(name)
        assert held is not None
        assert held.image_id == image_id
    engine.remove(name)
    assert engine.inspect(name) is None
    engine.remove(name)  # once more is fine
    assert either_docker.tags() == {"registry.example/one:1": str(first), "registry.example/two:1": str(second)}


def test_what_is_no_archive_is_refused_with_the_daemons_reason(engine: DockerEngine) -> None:
    content = b"no tar at all" * 1000
    with pytest.raises(LoadFailed, match=r"registry\.example/engine/test:1: ") as caught:
        engine.load(LoadStream(len(content), [content]), NAME)
    assert caught.value.facts["reason"]


def test_an_archive_that_breaks_off_leaves_nothing(engine: DockerEngine, either_docker: DockerDaemon) -> None:
    archive = an_archive(image(NAME, LAYERS))

    class Unplugged(Exception):
        pass

    def breaking() -> Iterator[bytes]:
        # All but the very last byte: had the request been ended cleanly, both daemons would have taken the image.
        yield archive[:-1]
        raise Unplugged

    with pytest.raises(Unplugged):
        engine.load(LoadStream(len(archive), breaking()), NAME)
    settled = image("registry.example/settled:1", [])  # a daemon takes archives in turn, or at least survives
    load(engine, settled)
    assert set(either_docker.tags()) == {"registry.example/settled:1"}
    assert len(either_docker.image_ids()) == 1


def test_a_usable_image_is_probed_without_a_trace(engine: DockerEngine, either_docker: DockerDaemon) -> None:
    image_id = load(engine, image(NAME, LAYERS, command=()))
    engine.probe_usable(image_id, NAME)
    assert either_docker.containers() == []
    with pytest.raises(LoadFailed, match="no container can be made of it"):
        engine.probe_usable(Digest.of(b"no such image"), NAME)


def test_free_space_is_known_where_the_data_directory_is_visible(
    docker_20: DockerDaemon, docker_containerd: DockerDaemon
) -> None:
    with contextlib.closing(DockerEngine(docker_20.url)) as engine:
        found = engine.free_bytes()
    now = os.statvfs(docker_20.folder)
    assert found is not None
    assert abs(found - now.f_bavail * now.f_frsize) < 10 * 2**30  # others write to the same disk
    with contextlib.closing(DockerEngine(docker_containerd.url)) as engine:  # it runs in another root
        assert engine.free_bytes() is None


def test_the_platform_is_the_daemons(docker_20: DockerDaemon) -> None:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    with contextlib.closing(DockerEngine(docker_20.url)) as engine:
        assert engine.info().platform == Platform("linux", machine)
