"""Later runs of `ngc_replicator`: other outputs than before, stopped runs, files that were damaged meanwhile."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.image_factory import image, noise_layer
from doubles.ngc import NgcDouble, running_ngc
from doubles.registry_faults import Fault, Reply, Request, Serve
from doubles.replicator_runs import ReplicatorRuns
from doubles.scripted_registry import ScriptedRegistry, scripted_registry

LAYER = noise_layer("later", 300_000)


@pytest.fixture
def ngc() -> Iterator[NgcDouble]:
    with running_ngc() as running:
        running.publish(image("any/name:1", [LAYER], docker=True), "nvidia/cuda", "12.4.1-base")
        yield running


@pytest.fixture
def runs(ngc: NgcDouble, tmp_path: Path) -> ReplicatorRuns:
    return ReplicatorRuns(ngc, tmp_path / "out")


@pytest.fixture
def target() -> Iterator[ScriptedRegistry]:
    with scripted_registry() as running:
        yield running


def test_a_registry_that_is_named_later_gets_what_is_there(runs: ReplicatorRuns, target: ScriptedRegistry) -> None:
    assert runs.call().returncode == 0
    runs.ngc.registry.requests.clear()
    done = runs.call(f"--registry-url={target.host}")
    assert "0 saved, 1 pushed" in done.stdout, done.stderr
    assert not [one for one in runs.ngc.registry.asked("GET", "/blobs/") if str(LAYER.descriptor().digest) in one.path]
    # The file is carried away: another registry gets the image from the source.
    runs.tar("nvidia/cuda", "12.4.1-base").unlink()
    done = runs.call(f"--registry-url={target.host}/second")
    assert "0 saved, 1 pushed" in done.stdout, done.stderr
    assert target.repositories["second/nvidia/cuda"].tags == target.repositories["nvidia/cuda"].tags
    assert runs.records()["nvidia/cuda"]["12.4.1-base"].registries == [target.host, f"{target.host}/second"]


def test_a_file_that_was_damaged_meanwhile_is_not_pushed(runs: ReplicatorRuns, target: ScriptedRegistry) -> None:
    assert runs.call().returncode == 0
    tar = runs.tar("nvidia/cuda", "12.4.1-base")
    content = bytearray(tar.read_bytes())
    content[content.index(LAYER.raw) + 200_000] ^= 1
    tar.write_bytes(content)
    done = runs.call(f"--registry-url={target.host}")
    assert done.returncode == 64, done.stderr
    assert tar.name in done.stderr
    assert not target.put_order


def test_the_same_external_image_twice_is_one_image(
    runs: ReplicatorRuns, target: ScriptedRegistry, tmp_path: Path
) -> None:
    with scripted_registry() as other:
        other.put(image("nvidia/cuda:1", []), "nvidia/cuda", "12.4.1-base")
        listing = tmp_path / "external.yml"
        listing.write_text("images:\n" + 2 * f"  - {{name: '{other.host}/nvidia/cuda', tag: 12.4.1-base}}\n")
        done = runs.call(f"--registry-url={target.host}", f"--external-images={listing}")
        assert done.returncode == 0, done.stderr
        assert "2 saved, 2 pushed" in done.stdout


def test_ctrl_c_leaves_nothing_half_and_the_next_run_goes_on(runs: ReplicatorRuns) -> None:
    asked, over = threading.Event(), threading.Event()

    def silent(request: Request, serve: Serve) -> Reply:
        asked.set()
        over.wait(60)
        return serve()

    runs.ngc.registry.faults.append(Fault("GET", f"/blobs/{LAYER.descriptor().digest}", silent, times=None))
    process = runs.start()
    try:
        assert asked.wait(30)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    finally:
        over.set()
    assert process.returncode == 143, errors
    assert "goes on where this one stopped" in errors
    assert runs.files() == []
    runs.ngc.registry.faults.clear()
    assert "1 saved" in runs.call().stdout
