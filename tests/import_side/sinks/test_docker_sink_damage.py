"""Deliveries into real Docker daemons that must fail: nothing is left behind, and old tags stay."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles import engines
from doubles.docker_daemons import DockerDaemon
from doubles.image_factory import ImageDouble, LayerDouble, image, layer, noise_layer
from doubles.memory_blobs import MemoryBlobs
from doubles.static_program import program
from transload.import_side.sinks.docker_delivery import require_space
from transload.import_side.sinks.docker_layers import containerd_archive
from transload.import_side.sinks.docker_sink import DockerSink
from transload.shared.digests import Digest
from transload.shared.docker_engine import DockerEngine, LoadStream
from transload.shared.errors import (
    BlockDamaged,
    EngineUnavailable,
    LayerContentDiffers,
    LoadFailed,
    NotEnoughSpace,
    TargetCannotHold,
    TransloadError,
)
from transload.shared.image import Descriptor
from transload.shared.progress import SilentProgress
from transload.shared.sinks.base import Delivery, Wanted
from transload.shared.workers import Outcome, Stop, Stopped

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("docker")]

WORKS = layer({"works": program("it works\n")})
NAME = "registry.example/team/app:1.0"


def deliver(daemon: DockerDaemon, *images: ImageDouble, blobs: MemoryBlobs) -> list[Outcome[Wanted, Delivery]]:
    wanted = [Wanted(one.image, str(one.image.name)) for one in images]
    with contextlib.closing(DockerSink(daemon.url)) as sink:
        sink.check(wanted)
        return list(sink.deliver(wanted, blobs, stop=Stop(), progress=SilentProgress()))


def error_of(outcomes: list[Outcome[Wanted, Delivery]]) -> TransloadError:
    (outcome,) = outcomes
    assert outcome.error is not None
    return outcome.error


def with_old_tag(daemon: DockerDaemon) -> str:
    """Another image that already has the name; returns its id."""
    old = image(NAME, [WORKS], environment=["RELEASE=0"])
    assert deliver(daemon, old, blobs=MemoryBlobs.of(old))[0].error is None
    return daemon.tags()[NAME]


@pytest.mark.parametrize("compression", ["gzip", "zstd", ""])
@pytest.mark.parametrize("position", [0, 1])
def test_a_bad_block_leaves_no_image_and_the_old_tag(
    either_docker: DockerDaemon, compression: str, position: int
) -> None:
    old = with_old_tag(either_docker)
    layers = [noise_layer(f"bad-{name}", 400_000, compression) for name in ("one", "two")]
    double = image(NAME, layers)
    other = image("registry.example/team/other:1", [WORKS], command=["/works"])
    blobs = MemoryBlobs.of(double, other)
    bad = double.image.manifests[0].layers[position].digest
    blobs.bad_from[bad] = 350_000  # the last piece of that layer; the very last of the archive for the second
    failed, worked = deliver(either_docker, double, other, blobs=blobs)
    assert isinstance(failed.error, BlockDamaged)
    assert worked.error is None
    assert either_docker.run("registry.example/team/other:1") == "it works\n"
    assert either_docker.tags()[NAME] == old
    assert len(either_docker.image_ids()) == 2
    assert either_docker.containers() == []


def test_the_same_image_arrives_once_the_medium_is_good(either_docker: DockerDaemon) -> None:
    double = image(NAME, [WORKS, noise_layer("mended", 400_000)], command=["/works"])
    blobs = MemoryBlobs.of(double)
    blobs.bad_from[double.image.manifests[0].layers[1].digest] = 350_000
    assert isinstance(error_of(deliver(either_docker, double, blobs=blobs)), BlockDamaged)
    blobs.bad_from.clear()
    assert deliver(either_docker, double, blobs=blobs)[0].error is None
    assert either_docker.run(NAME) == "it works\n"


def test_a_stop_breaks_the_load(either_docker: DockerDaemon) -> None:
    double = image(NAME, [noise_layer("stopped", 400_000)])
    blobs = MemoryBlobs.of(double)
    stop = Stop()
    blobs.on_open = lambda digest: stop.request() if digest == double.image.manifests[0].layers[0].digest else None
    with contextlib.closing(DockerSink(either_docker.url)) as sink:
        engine = DockerEngine(either_docker.url)
        archive = containerd_archive(double.image, None, blobs)
        with contextlib.closing(engine), pytest.raises(Stopped):
            engine.load(LoadStream(archive.size_bytes, archive.pieces(stop, lambda _: None)), NAME)
        del sink
    assert either_docker.image_ids() == set()


def test_a_layer_that_is_not_what_its_config_says(either_docker: DockerDaemon) -> None:
    old = with_old_tag(either_docker)
    diff_ids = [str(Digest.of(b"something else"))]
    lying = image(
        NAME, [noise_layer("lying", 50_000)], config_changes={"rootfs": {"type": "layers", "diff_ids": diff_ids}}
    )
    error = error_of(deliver(either_docker, lying, blobs=MemoryBlobs.of(lying)))
    assert isinstance(error, LoadFailed)
    assert "diff" in error.message
    assert either_docker.image_ids() == {old}
    assert either_docker.tags() == {NAME: old}


def test_a_zstd_layer_that_is_not_what_its_config_says_is_not_even_sent(docker_20: DockerDaemon) -> None:
    diff_ids = [str(Digest.of(b"something else"))]
    lying = image(
        NAME,
        [noise_layer("lying", 50_000, "zstd")],
        config_changes={"rootfs": {"type": "layers", "diff_ids": diff_ids}},
    )
    error = error_of(deliver(docker_20, lying, blobs=MemoryBlobs.of(lying)))
    assert isinstance(error, LayerContentDiffers)
    assert error.facts["expected"] == diff_ids[0]
    assert docker_20.image_ids() == set()


def test_a_layer_that_is_no_layer(either_docker: DockerDaemon) -> None:
    junk = LayerDouble(b"<html>not found</html>" * 100, "gzip", str(Digest.of(b"x")))
    double = image(NAME, [junk])
    assert isinstance(error_of(deliver(either_docker, double, blobs=MemoryBlobs.of(double))), LoadFailed)
    assert either_docker.image_ids() == set()


@pytest.mark.parametrize("rootfs", [None, {"type": "layers", "diff_ids": []}])
def test_a_config_without_diff_ids_is_refused_before_anything_is_sent(
    either_docker: DockerDaemon, rootfs: object
) -> None:
    double = image(NAME, [WORKS], config_changes={"rootfs": rootfs})
    error = error_of(deliver(either_docker, double, blobs=MemoryBlobs.of(double)))
    assert isinstance(error, TargetCannotHold)
    assert either_docker.image_ids() == set()


def test_a_broken_image_of_somebody_elses_is_not_taken_for_there(docker_containerd: DockerDaemon) -> None:
    """The containerd store keeps a tagged image whose layer is missing; only trying it shows that."""
    double = image(NAME, [WORKS, noise_layer("lost", 60_000)], command=["/works"])
    whole = MemoryBlobs.of(double)
    lost = double.image.manifests[0].layers[1]
    archive = b"".join(
        bytes(piece) for piece in containerd_archive(double.image, NAME, whole).pieces(Stop(), lambda _: None)
    )
    docker_containerd.command_line("load", stdin=without(archive, lost))
    with contextlib.closing(docker_containerd.client()) as client:
        assert client.inspect_image(NAME)["Id"] == str(double.image.digest)  # it is there, and useless
    assert docker_containerd.command_line("run", "--rm", "--network=none", NAME).returncode != 0
    (outcome,) = deliver(docker_containerd, double, blobs=whole)
    assert outcome.result is not None
    assert outcome.result.action == "delivered"
    assert docker_containerd.run(NAME) == "it works\n"


def without(archive: bytes, lost: Descriptor) -> bytes:
    """The archive without one of its files."""
    changed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as source, tarfile.open(fileobj=changed, mode="w") as target:
        for member in source:
            if lost.digest.hex not in member.name:
                target.addfile(member, source.extractfile(member))
    return changed.getvalue()


def test_no_docker_at_all() -> None:
    double = image(NAME, [WORKS])
    with pytest.raises(EngineUnavailable) as caught, contextlib.closing(DockerSink("unix:///nowhere.sock")) as sink:
        sink.check([Wanted(double.image, NAME)])
    assert "--to registry=HOST" in caught.value.hint


@pytest.fixture
def small_daemon(docker_20: DockerDaemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DockerDaemon]:
    """A daemon whose data directory looks as if it had 20 MB."""
    engines.require("mount")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", tmp_path], check=True)
    real = os.statvfs

    def small(path: str | Path) -> os.statvfs_result:
        return real(tmp_path if str(path) == str(docker_20.folder / "root") else path)

    monkeypatch.setattr(os, "statvfs", small)
    yield docker_20
    subprocess.run(["umount", tmp_path], check=True)


def test_an_image_that_does_not_fit_is_refused_before_anything_is_sent(small_daemon: DockerDaemon) -> None:
    large = image(NAME, [noise_layer("large", 15_000_000)])
    blobs = MemoryBlobs.of(large)
    with pytest.raises(NotEnoughSpace) as caught:
        deliver(small_daemon, large, blobs=blobs)
    needed, available = caught.value.facts["needed_bytes"], caught.value.facts["available_bytes"]
    assert isinstance(needed, int)
    assert needed >= 2 * 15_000_000
    assert available == 20 * 2**20
    assert not blobs.opened


def test_where_images_are_held_the_room_is_checked_image_by_image(small_daemon: DockerDaemon) -> None:
    small = image("registry.example/team/small:1", [WORKS])
    large = image(NAME, [noise_layer("large", 15_000_000)])
    blobs = MemoryBlobs.of(small, large)
    deliver(small_daemon, small, blobs=blobs)
    error = error_of(deliver(small_daemon, large, blobs=blobs))
    assert isinstance(error, NotEnoughSpace)
    assert set(small_daemon.tags()) == {"registry.example/team/small:1"}


def test_room_that_cannot_be_known_is_not_asked_for(docker_containerd: DockerDaemon) -> None:
    with contextlib.closing(DockerEngine(docker_containerd.url)) as engine:
        require_space(engine, NAME, 2**60, 2**60)
