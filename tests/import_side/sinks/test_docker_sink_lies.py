"""Daemons that say "Loaded image" when it is not true: what they hold is looked at, tried, and taken away again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from doubles.image_factory import image, noise_layer
from doubles.memory_blobs import MemoryBlobs
from doubles.scripted_docker import INFO, Answer, ScriptedDocker, scripted_docker
from transload.import_side.sinks.docker_sink import DockerSink
from transload.shared.digests import Digest
from transload.shared.errors import DeliveredDigestDiffers, LoadFailed, TransloadError
from transload.shared.progress import SilentProgress
from transload.shared.sinks.base import Wanted
from transload.shared.workers import Stop

NAME = "registry.example/team/app:1.0"
LAYER = noise_layer("lies", 5000)
DOUBLE = image(NAME, [LAYER])
MANIFEST = DOUBLE.image.manifests[0]
CONTAINERD = {**INFO, "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}


@pytest.fixture(params=["layers", "containerd"])
def script(request: pytest.FixtureRequest) -> Iterator[ScriptedDocker]:
    """A daemon that holds nothing and accepts every load."""
    with scripted_docker() as script:
        if request.param == "containerd":
            script.answers["/info"] = Answer(json.dumps(CONTAINERD).encode())
        script.answers["/images/json"] = Answer(b"[]")
        script.answers["/images/load"] = Answer(b'{"stream":"Loaded image: app\\n"}\r\n')
        script.answers["/containers/create"] = Answer(b'{"Id":"c1","Warnings":[]}', 201)
        script.answers["/containers/c1"] = Answer(b"", 204)
        script.answers["/tag"] = Answer(b"", 201)
        yield script


def held_after_load(script: ScriptedDocker, *diff_ids: str) -> str:
    """Let the daemon hold the image from now on; returns its id there."""
    is_containerd = b"containerd" in script.answers["/info"].body
    identity = str(MANIFEST.document.digest if is_containerd else MANIFEST.config.digest)
    fields = {"Id": identity, "RootFS": {"Layers": diff_ids}, "RepoTags": [], "RepoDigests": []}
    script.answers[f"/images/{identity}/json"] = Answer(json.dumps(fields).encode())
    script.answers[f"/images/{identity}"] = Answer(b"[]")  # DELETE
    return identity


def deliver(script: ScriptedDocker, blobs: MemoryBlobs) -> TransloadError | None:
    with contextlib.closing(DockerSink(script.url)) as sink:
        (outcome,) = sink.deliver([Wanted(DOUBLE.image, NAME)], blobs, stop=Stop(), progress=SilentProgress())
    return outcome.error


def tagged(script: ScriptedDocker) -> bool:
    return any("/tag?" in line for line in script.requests)


def removed(script: ScriptedDocker, identity: str) -> bool:
    return any(line.startswith("DELETE") and identity in line for line in script.requests)


def loading(script: ScriptedDocker, *diff_ids: str) -> MemoryBlobs:
    """Blobs; as soon as the layer is sent, the daemon holds an image with these layers."""
    blobs = MemoryBlobs.of(DOUBLE)
    layer = MANIFEST.layers[0].digest

    def on_open(digest: Digest) -> None:
        if digest == layer:
            held_after_load(script, *diff_ids)

    blobs.on_open = on_open
    return blobs


def test_a_daemon_that_tells_the_truth_is_believed(script: ScriptedDocker) -> None:
    assert deliver(script, loading(script, LAYER.diff_id)) is None
    assert tagged(script)


def test_a_daemon_that_holds_nothing_afterwards(script: ScriptedDocker) -> None:
    error = deliver(script, MemoryBlobs.of(DOUBLE))
    assert isinstance(error, LoadFailed)
    assert "does not hold" in error.message
    assert not tagged(script)


def test_a_daemon_that_holds_other_layers(script: ScriptedDocker) -> None:
    other = str(Digest.of(b"another layer"))
    error = deliver(script, loading(script, other))
    assert isinstance(error, DeliveredDigestDiffers)
    assert error.facts == {"expected": [LAYER.diff_id], "found": [other]}
    assert not tagged(script)
    assert removed(script, held_after_load(script))


def test_a_daemon_that_cannot_make_a_container_of_it(script: ScriptedDocker) -> None:
    script.answers["/containers/create"] = Answer(b'{"message":"failed to extract layer: not found"}', 500)
    error = deliver(script, loading(script, LAYER.diff_id))
    assert isinstance(error, LoadFailed)
    assert "failed to extract layer: not found" in error.message
    assert not tagged(script)
    assert removed(script, held_after_load(script))


def test_a_failure_in_words_behind_a_success(script: ScriptedDocker) -> None:
    script.answers["/images/load"] = Answer(
        b'{"stream":"Loaded image: app\\n"}\r\n{"stream":"Error unpacking image app: not found\\n"}\r\n'
    )
    error = deliver(script, loading(script, LAYER.diff_id))
    assert isinstance(error, LoadFailed)
    assert not tagged(script)
    assert removed(script, held_after_load(script))
