"""The command `transload export` as it is typed: words, tables, JSON, exit codes, signals."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from doubles.export_runs import ExportRuns, blob_digests_in, manifest_of, tree
from doubles.image_factory import image, noise_layer
from doubles.registry_faults import Fault, Reply, Request, Serve, answer
from doubles.scripted_registry import ScriptedRegistry, scripted_registry
from transload.shared.errors import InvalidConfiguration

ROOT = Path(__file__).parents[2]


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with scripted_registry() as running:
        yield running


@pytest.fixture
def runs(tmp_path: Path) -> ExportRuns:
    return ExportRuns(tmp_path / "out")


def documented_keys(section: str) -> set[str]:
    page = (ROOT / "docs" / "json.md").read_text()
    table = page.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return {key for cell in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE) for key in re.findall(r"`(\w+)`", cell)}


def test_json_is_the_documented_document_and_alone_on_standard_output(
    registry: ScriptedRegistry, runs: ExportRuns
) -> None:
    reference = registry.put(image("c/a:1", [noise_layer("command")]))
    planned = json.loads(runs.call(reference, "--dry-run", "--json").stdout)
    made = json.loads(runs.call(reference, "--json").stdout)
    nothing = json.loads(runs.call(reference, "--json").stdout)
    for document in (planned, made, nothing):
        assert set(document) == documented_keys("export")
    differing = {key for key in made if made[key] != planned[key]}
    assert differing == {"dry_run", "path"}
    assert made["bundle_bytes"] == sum(file.stat().st_size for file in Path(made["path"]).iterdir())
    assert [image["reference"] for image in made["images"]] == [reference]
    assert (nothing["nothing_new"], nothing["relies_on"]) == (True, [made["bundle_id"]])


def test_a_partial_export_ends_with_3_and_names_what_is_missing(registry: ScriptedRegistry, runs: ExportRuns) -> None:
    reference = registry.put(image("c/a:1", [noise_layer("command")]))
    missing = f"{registry.host}/c/missing:1"
    done = runs.call(reference, missing)
    assert done.returncode == 3
    assert f"{missing} is not in the bundle" in done.stderr
    assert reference in done.stdout
    assert [entry.reference for entry in manifest_of(runs.bundles()[0]).failed] == [missing]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 12, "No image was named"),
        (["lower/CASE"], 10, "Not an image reference"),
        (["a:1", "--platform", "arm"], 10, "Not a platform"),
        (["a:1", "--platform", "linux/arm64", "--all-platforms"], 12, "exclude each other"),
        (["a:1", "--destination", "Plant"], 12, "Not a destination name"),
        (["a:1", "--chunk-size", "4GiB"], 12, "allowed"),
        (["a:1", "--chunk-size", "much"], 12, "Not a size"),
        (["a:1", "--sign-key", "/nonexistent/key"], 13, "signing key"),
        (["--images", "/nonexistent/list.yml"], 11, "image list"),
        (["127.0.0.1:1/a:1"], 21, "127.0.0.1:1"),
    ],
)
def test_bad_requests_get_one_clear_message(runs: ExportRuns, arguments: list[str], code: int, says: str) -> None:
    before = tree(runs.output)
    done = runs.call(*arguments)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert tree(runs.output) == before


@pytest.mark.parametrize("arguments", [[], ["--dry-run"]])
def test_a_key_that_is_named_must_be_usable(registry: ScriptedRegistry, runs: ExportRuns, arguments: list[str]) -> None:
    reference = registry.put(image("c/a:1", []))
    runs.key.unlink()
    done = runs.call(reference, *arguments)
    assert done.returncode == 13
    assert str(runs.key) in done.stderr


def test_without_a_key_a_dry_run_assumes_an_ed25519_one(registry: ScriptedRegistry, runs: ExportRuns) -> None:
    exporter = runs.exporter(registry.put(image("c/a:1", [])))
    without = replace(exporter, sign=None)
    planned = without.dry_run()
    assert any("ed25519" in note for note in planned.notes)
    with pytest.raises(InvalidConfiguration, match="must be signed"):
        without.run()
    assert planned.size_bytes == exporter.run().size_bytes


def test_an_unreadable_state_stops_the_run(registry: ScriptedRegistry, runs: ExportRuns) -> None:
    runs.state_path.write_text("exporter: [")
    done = runs.call(registry.put(image("c/a:1", [])))
    assert done.returncode == 16
    assert runs.bundles() == []


@pytest.mark.parametrize("arguments", [[], ["--dry-run"]])
def test_nothing_is_put_into_a_sealed_bundle(
    registry: ScriptedRegistry, runs: ExportRuns, arguments: list[str]
) -> None:
    reference = registry.put(image("c/a:1", []))
    runs.call(reference)
    (bundle,) = runs.bundles()
    before = tree(bundle)
    done = runs.call(reference, *arguments, "--output-path", str(bundle))
    assert (done.returncode, "is a sealed bundle" in done.stderr) == (12, True)
    assert tree(bundle) == before


def test_a_busy_registry_stops_the_run_and_the_next_one_goes_on(registry: ScriptedRegistry, runs: ExportRuns) -> None:
    layers = [noise_layer(f"busy-{number}", 200_000) for number in range(3)]
    reference = registry.put(image("c/busy:1", layers))
    digest = layers[1].descriptor().digest
    registry.faults.append(Fault("GET", f"/blobs/{digest}", answer(429, retry_after="86400"), times=None))
    stopped = runs.call(reference, "--jobs", "1")
    assert stopped.returncode == 28, stopped.stderr
    assert runs.bundles() == []
    registry.faults.clear()
    assert runs.call(reference).returncode == 0
    (bundle,) = runs.bundles()
    assert blob_digests_in(bundle) == [blob.digest for blob in manifest_of(bundle).blobs]
    others = [one.descriptor().digest for one in layers if one is not layers[1]]
    for other in others:
        assert len([one for one in registry.requests if one.method == "GET" and str(other) in one.path]) == 1


def test_ctrl_c_stops_a_run_that_waits_and_the_next_one_goes_on(registry: ScriptedRegistry, runs: ExportRuns) -> None:
    layer = noise_layer("slow", 500_000)
    reference = registry.put(image("c/slow:1", [layer]))
    asked, over = threading.Event(), threading.Event()

    def silent(request: Request, serve: Serve) -> Reply:
        asked.set()
        over.wait(60)
        return serve()

    registry.faults.append(Fault("GET", f"/blobs/{layer.descriptor().digest}", silent, times=None))
    process = runs.start(reference)
    try:
        assert asked.wait(30)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)  # the registry is silent for longer
    finally:
        over.set()
    assert process.returncode == 130, errors
    assert "goes on where this one stopped" in errors
    assert runs.bundles() == []
    registry.faults.clear()
    assert runs.call(reference).returncode == 0
