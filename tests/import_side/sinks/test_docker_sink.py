"""Images delivered into real Docker daemons of both stores: what runs, what is sent, what tags stand for."""

from __future__ import annotations

import contextlib
import gzip
from dataclasses import replace

import pytest

from doubles.docker_daemons import DockerDaemon
from doubles.image_factory import ImageDouble, LayerDouble, image, index, layer, noise_layer
from doubles.memory_blobs import MemoryBlobs
from doubles.static_program import program
from transload.import_side.sinks.docker_sink import DockerSink
from transload.shared.errors import TagConflict, TargetCannotHold, TransloadError
from transload.shared.progress import SilentProgress
from transload.shared.sinks.base import Delivery, ExistingTagPolicy, Wanted
from transload.shared.workers import Outcome, Stop

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("docker")]

WORKS = "it works\n"
BASE = layer({"works": program(WORKS)})
NOISE = noise_layer("docker-sink", 500_000)
NAME = "registry.example/team/app:1.0"


def app(*layers: LayerDouble, name: str = NAME, **changes: object) -> ImageDouble:
    return image(name, layers or (BASE, NOISE), command=["/works"], **changes)  # type: ignore[arg-type]


def deliver(
    daemon: DockerDaemon,
    *images: ImageDouble,
    targets: list[str] | None = None,
    policy: ExistingTagPolicy = "overwrite",
    blobs: MemoryBlobs | None = None,
) -> list[Outcome[Wanted, Delivery]]:
    """Deliver as the importer does it: check, then deliver, with a sink of its own."""
    names = targets or [str(one.image.name) for one in images]
    wanted = [Wanted(one.image, name) for one, name in zip(images, names, strict=True)]
    with contextlib.closing(DockerSink(daemon.url, on_existing_tag=policy)) as sink:
        sink.check(wanted)
        source = blobs or MemoryBlobs.of(*images)
        return list(sink.deliver(wanted, source, stop=Stop(), progress=SilentProgress()))


def delivered(outcomes: list[Outcome[Wanted, Delivery]]) -> list[Delivery]:
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert not errors, errors[0].message
    return [outcome.result for outcome in outcomes if outcome.result is not None]


def failure(outcomes: list[Outcome[Wanted, Delivery]]) -> TransloadError:
    (outcome,) = outcomes
    assert outcome.result is None
    assert outcome.error is not None
    return outcome.error


def image_id(daemon: DockerDaemon, double: ImageDouble) -> str:
    """What a daemon calls a single-platform image."""
    manifest = double.image.manifests[0]
    return str(manifest.document.digest if daemon.store == "containerd" else manifest.config.digest)


def multi_member(compressed: LayerDouble) -> LayerDouble:
    plain = gzip.decompress(compressed.raw)
    half = len(plain) // 2
    return replace(compressed, raw=gzip.compress(plain[:half], mtime=0) + gzip.compress(plain[half:], mtime=0))


PLAIN_NOISE = noise_layer("docker-plain", 200_000, "")
ZSTD_NOISE = noise_layer("docker-zstd", 200_000, "zstd")
KINDS = {
    "gzip": app(),
    "plain": app(BASE, PLAIN_NOISE),
    "zstd": app(layer({"works": program(WORKS)}, compression="zstd"), NOISE, ZSTD_NOISE),
    "zstd called gzip": app(BASE, replace(ZSTD_NOISE, compression="gzip")),
    "multi-member gzip": app(BASE, multi_member(NOISE)),
    "the same layer twice": app(NOISE, BASE, NOISE),
    "the same zstd layer twice": app(ZSTD_NOISE, BASE, ZSTD_NOISE),
    "docker's media types": app(BASE, NOISE, docker=True),
    "no command": image(NAME, [BASE], command=()),
}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "no command"])
def test_after_the_import_docker_run_works(either_docker: DockerDaemon, kind: str) -> None:
    double = KINDS[kind]
    (delivery,) = delivered(deliver(either_docker, double))
    assert delivery.action == "delivered"
    assert delivery.digest == double.image.digest
    assert delivery.previous is None
    assert either_docker.run(NAME) == WORKS
    assert either_docker.tags() == {NAME: image_id(either_docker, double)}
    assert either_docker.containers() == []


def test_newer_daemons_with_their_own_layer_store_get_zstd_as_it_is(docker_26: DockerDaemon) -> None:
    double = KINDS["zstd"]
    blobs = MemoryBlobs.of(double)
    delivered(deliver(docker_26, double, blobs=blobs))
    assert docker_26.run(NAME) == WORKS
    assert {blobs.opened[one.digest] for one in double.image.manifests[0].layers} == {1}


@pytest.mark.parametrize("double", [KINDS["no command"], image(NAME, [])], ids=["no command", "no layers"])
def test_images_that_cannot_be_run_by_themselves(either_docker: DockerDaemon, double: ImageDouble) -> None:
    delivered(deliver(either_docker, double))
    assert either_docker.tags() == {NAME: image_id(either_docker, double)}


def test_docker_hub_names_are_written_as_docker_does(either_docker: DockerDaemon) -> None:
    delivered(deliver(either_docker, app(name="tool:2")))
    assert set(either_docker.tags()) == {"tool:2"}
    assert either_docker.run("tool:2") == WORKS
    assert delivered(deliver(either_docker, app(name="tool:2")))[0].action == "already-there"


def test_a_layer_that_the_daemon_holds_is_not_sent_again(docker_20: DockerDaemon) -> None:
    first = app(BASE, NOISE)
    second = app(BASE, NOISE, PLAIN_NOISE, name="registry.example/team/second:1")
    blobs = MemoryBlobs.of(first, second)
    one, two = delivered(deliver(docker_20, first, second, blobs=blobs))
    manifest = second.image.manifests[0]
    assert one.bytes_sent == sum(len(raw) for digest, raw in first.blobs.items() if digest != first.image.digest)
    assert two.bytes_sent == manifest.config.size_bytes + len(PLAIN_NOISE.raw)
    assert docker_20.run("registry.example/team/second:1") == WORKS


def test_what_an_earlier_run_delivered_is_not_sent_again(docker_20: DockerDaemon) -> None:
    delivered(deliver(docker_20, app(BASE, NOISE)))
    above = app(BASE, NOISE, PLAIN_NOISE, name="registry.example/team/above:1")
    (delivery,) = delivered(deliver(docker_20, above))
    assert delivery.bytes_sent == above.image.manifests[0].config.size_bytes + len(PLAIN_NOISE.raw)


def test_a_held_layer_in_another_place_of_the_stack_is_sent(docker_20: DockerDaemon) -> None:
    delivered(deliver(docker_20, app(NOISE)))
    (delivery,) = delivered(deliver(docker_20, app(BASE, NOISE, name="registry.example/team/b:1")))
    assert delivery.bytes_sent > len(BASE.raw) + len(NOISE.raw)
    assert docker_20.run("registry.example/team/b:1") == WORKS


def test_a_held_layer_that_vanishes_meanwhile_is_sent_after_all(docker_20: DockerDaemon) -> None:
    held = app(BASE, NOISE)
    above = app(BASE, NOISE, PLAIN_NOISE, name="registry.example/team/above:1")
    delivered(deliver(docker_20, held))
    blobs = MemoryBlobs.of(above)

    def somebody_cleans_up(digest: object) -> None:
        if blobs.opened[above.image.manifests[0].layers[2].digest] == 1 and docker_20.tags():
            docker_20.empty()

    blobs.on_open = somebody_cleans_up
    delivered(deliver(docker_20, above, blobs=blobs))
    assert docker_20.run("registry.example/team/above:1") == WORKS
    assert blobs.opened[above.image.manifests[0].layers[0].digest] > 0


def test_a_second_import_sends_nothing(either_docker: DockerDaemon) -> None:
    double = app()
    delivered(deliver(either_docker, double))
    blobs = MemoryBlobs.of(double)
    (again,) = delivered(deliver(either_docker, double, blobs=blobs))
    assert (again.action, again.bytes_sent, again.digest) == ("already-there", 0, double.image.digest)
    assert set(blobs.opened) == {double.image.manifests[0].config.digest}


def test_another_name_for_an_image_that_is_there_sends_nothing(either_docker: DockerDaemon) -> None:
    double = app()
    other = "registry.example/elsewhere/app:2.0"
    delivered(deliver(either_docker, double))
    (again,) = delivered(deliver(either_docker, double, targets=[other]))
    assert (again.action, again.bytes_sent) == ("delivered", 0)
    assert either_docker.tags() == {NAME: image_id(either_docker, double), other: image_id(either_docker, double)}


def test_three_names_in_one_run_share_one_image(either_docker: DockerDaemon) -> None:
    double = app()
    names = [NAME, "registry.example/team/app:latest", "registry.example/other/app:1.0"]
    first, *others = delivered(deliver(either_docker, double, double, double, targets=names))
    assert first.bytes_sent > 0
    assert [one.bytes_sent for one in others] == [0, 0]
    assert either_docker.tags() == dict.fromkeys(names, image_id(either_docker, double))


def test_a_moved_tag_is_moved_and_told(either_docker: DockerDaemon) -> None:
    old, new = app(environment=["RELEASE=1"]), app(environment=["RELEASE=2"])
    delivered(deliver(either_docker, old))
    (delivery,) = delivered(deliver(either_docker, new))
    assert delivery.action == "delivered"
    assert delivery.previous == image_id(either_docker, old)
    assert either_docker.tags() == {NAME: image_id(either_docker, new)}
    assert image_id(either_docker, old) in either_docker.image_ids()


def test_keep_leaves_the_tag_and_sends_nothing(either_docker: DockerDaemon) -> None:
    old, new = app(environment=["RELEASE=1"]), app(environment=["RELEASE=2"])
    delivered(deliver(either_docker, old))
    (delivery,) = delivered(deliver(either_docker, new, policy="keep"))
    there = image_id(either_docker, old)
    assert (delivery.action, delivery.bytes_sent, delivery.previous) == ("kept", 0, there)
    assert str(delivery.image_id) == there
    assert str(delivery.digest) == image_id(either_docker, old)
    assert either_docker.tags() == {NAME: image_id(either_docker, old)}


def test_fail_leaves_the_tag_and_fails_that_image_alone(either_docker: DockerDaemon) -> None:
    old, new = app(environment=["RELEASE=1"]), app(environment=["RELEASE=2"])
    other = app(name="registry.example/team/other:1")
    delivered(deliver(either_docker, old))
    failed, worked = deliver(either_docker, new, other, policy="fail")
    assert isinstance(failed.error, TagConflict)
    assert failed.error.facts["existing"] == image_id(either_docker, old)
    assert worked.error is None
    assert either_docker.tags()[NAME] == image_id(either_docker, old)
    assert image_id(either_docker, new) not in either_docker.image_ids()


@pytest.mark.parametrize("policy", ["keep", "fail"])
def test_policies_do_not_matter_for_the_same_image(either_docker: DockerDaemon, policy: ExistingTagPolicy) -> None:
    delivered(deliver(either_docker, app()))
    assert delivered(deliver(either_docker, app(), policy=policy))[0].action == "already-there"


def test_a_whole_index_gives_the_daemons_own_image(either_docker: DockerDaemon) -> None:
    here, there = app(name="x"), app(NOISE, name="x", platform="linux/arm64")
    whole = index(NAME, [there, here], attestation=True)
    (delivery,) = delivered(deliver(either_docker, whole))
    assert delivery.digest == here.image.digest
    assert str(here.image.digest) in "".join(delivery.notes)
    assert either_docker.run(NAME) == WORKS
    assert either_docker.image_ids() == {image_id(either_docker, here)}
    assert delivered(deliver(either_docker, whole))[0].action == "already-there"


def test_an_index_without_the_daemons_platform_is_refused_alone(either_docker: DockerDaemon) -> None:
    foreign = index(NAME, [app(name="x", platform="linux/arm64"), app(name="x", platform="linux/s390x")])
    failed, worked = deliver(either_docker, foreign, app(name="registry.example/team/other:1"))
    assert isinstance(failed.error, TargetCannotHold)
    assert "linux/arm64, linux/s390x" in failed.error.message
    assert worked.error is None
    assert set(either_docker.tags()) == {"registry.example/team/other:1"}


def test_a_single_image_for_another_machine_is_delivered_with_a_note(either_docker: DockerDaemon) -> None:
    double = app(platform="linux/arm64")
    (delivery,) = delivered(deliver(either_docker, double))
    assert "linux/arm64" in delivery.notes[0]
    assert either_docker.tags() == {NAME: image_id(either_docker, double)}


@pytest.fixture
def by_digest() -> tuple[ImageDouble, str]:
    double = app()
    reference = f"registry.example/team/app@{double.image.digest}"
    return double.renamed(reference), reference


def test_a_digest_becomes_a_name_where_the_store_can(
    docker_containerd: DockerDaemon, by_digest: tuple[ImageDouble, str]
) -> None:
    double, reference = by_digest
    (delivery,) = delivered(deliver(docker_containerd, double))
    assert delivery.notes == ()
    assert docker_containerd.run(reference) == WORKS
    assert delivered(deliver(docker_containerd, double))[0].action == "already-there"


def test_a_digest_is_loaded_without_a_name_where_the_store_cannot(
    docker_20: DockerDaemon, by_digest: tuple[ImageDouble, str]
) -> None:
    double, _ = by_digest
    (delivery,) = delivered(deliver(docker_20, double))
    config = image_id(docker_20, double)
    assert config in delivery.notes[0]
    assert docker_20.run(config) == WORKS
    (again,) = delivered(deliver(docker_20, double))
    assert (again.action, again.bytes_sent) == ("already-there", 0)


def test_the_digest_is_known_to_the_containerd_store(docker_containerd: DockerDaemon) -> None:
    double = app()
    delivered(deliver(docker_containerd, double))
    assert docker_containerd.run(f"registry.example/team/app@{double.image.digest}") == WORKS
