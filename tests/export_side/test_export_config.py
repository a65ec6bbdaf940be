"""`transload export --config FILE.yml`, and overlapping runs of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from doubles.export_runs import ExportRuns, manifest_of
from doubles.image_factory import image, noise_layer
from doubles.registry_faults import Fault, Reply, Request, Serve
from doubles.scripted_registry import ScriptedRegistry, scripted_registry
from transload.export_side.cli import export
from transload.shared.command_line import cli
from transload.shared.config_file import options_in
from transload.shared.errors import InvalidConfiguration, TransloadError

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "export.yml"


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with scripted_registry() as running:
        running.put(image("c/a:1.0", [noise_layer("one")]))
        running.put(image("c/a:2.0", [noise_layer("two")]))
        running.put(image("c/b:1.0", [noise_layer("three")]))
        yield running


@pytest.fixture
def runs(tmp_path: Path) -> ExportRuns:
    return ExportRuns(tmp_path / "out")


def write_config(runs: ExportRuns, text: str) -> str:
    path = runs.output.parent / "export.yml"
    path.write_text(f"output-path: {runs.output}\nsign-key: {runs.key}\nchunk-size: 4MiB\n{text}")
    return str(path)


def call(*arguments: str) -> object:
    return cli.main(["export", *arguments], prog_name="transload", standalone_mode=False)


def test_one_file_is_all_that_an_export_needs(registry: ScriptedRegistry, runs: ExportRuns) -> None:
    text = (
        f"repository: {registry.host}/c/a\nkeep-last: 1\nreferences: ['{registry.host}/c/b:1.0']\ndestination: plant\n"
    )
    assert call("--config", write_config(runs, text)) == 0
    manifest = manifest_of(runs.bundles()[0])
    assert manifest.destination == "plant"
    assert [entry.reference.partition("/")[2] for entry in manifest.images] == ["c/a:2.0", "c/b:1.0"]


def test_the_command_line_goes_before_the_environment_and_that_before_the_file(
    registry: ScriptedRegistry, runs: ExportRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(runs, f"repository: [{registry.host}/c/a]\nkeep-last: 1\ndestination: file\n")
    call("--config", config)
    monkeypatch.setenv("TRANSLOAD_EXPORT_DESTINATION", "environment")
    call("--config", config)
    call("--config", config, "--destination", "flag", "--keep-last", "2", "--repository", f"{registry.host}/c/a")
    made = {manifest_of(one).destination: len(manifest_of(one).images) for one in runs.bundles()}
    assert made == {"file": 1, "environment": 1, "flag": 2}


def test_flags_and_named_references(registry: ScriptedRegistry, runs: ExportRuns) -> None:
    config = write_config(runs, f"references: ['{registry.host}/c/a:1.0']\ndry-run: true\n")
    call("--config", config)
    assert runs.bundles() == []
    call("--config", write_config(runs, f"references: ['{registry.host}/c/a:1.0']\n"), f"{registry.host}/c/b:1.0")
    assert [entry.reference.partition("/")[2] for entry in manifest_of(runs.bundles()[0]).images] == ["c/b:1.0"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("keep_last: 2", "there is no option 'keep_last'"),
        ("config: other.yml", "no option 'config'"),
        ("dry-run: maybe", "dry-run must be true or false"),
        ("keep-last: [1, 2]", "keep-last must be text or a number"),
        ("image: {a: b}", "image must be a list of texts"),
        ("destination:", "destination must be text"),
        ("- a", "no list of options"),
        ("a: b: c", "line 1"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(InvalidConfiguration, match=why):
        options_in(text.encode(), "export.yml", export)


def test_every_fault_is_named_with_what_was_probably_meant() -> None:
    with pytest.raises(TransloadError) as faults:
        options_in(b"keep_last: 2\ndestinatoin: x\ndry-run: 1\n", "export.yml", export)
    assert faults.value.message.count("export.yml") == 3
    assert "keep-last" in faults.value.hint


def test_a_wrong_value_is_refused_like_one_of_the_command_line(runs: ExportRuns) -> None:
    with pytest.raises(click.BadParameter, match="no whole number from 1 to 64"):
        call("--config", write_config(runs, "jobs: 1000"))
    with pytest.raises(InvalidConfiguration, match="cannot be read"):
        call("--config", "no-such.yml")


def test_the_example_is_accepted_and_names_options_that_exist() -> None:
    text = EXAMPLE.read_text()
    given = options_in(text.encode(), "export.yml", export)
    assert given["keep_last"] == "2"
    uncommented = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ") and _is_option(line)]
    assert len(uncommented) >= 6
    options_in("\n".join(uncommented).encode(), "export.yml", export)
    context = export.make_context("export", [], default_map=given, resilient_parsing=False)
    assert context.params["choice" if "choice" in context.params else "min_version"] is not None
    assert "--config" in text


def _is_option(line: str) -> bool:
    name, colon, _ = line.removeprefix("# ").partition(": ")
    return bool(colon) and name.replace("-", "").isalpha() and name.islower() and "  " not in line


def test_a_run_that_overlaps_another_ends_with_46_and_spoils_nothing(
    registry: ScriptedRegistry, runs: ExportRuns
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(_request: Request, serve: Serve) -> Reply:
        reached.set()
        go_on.wait(60)
        return serve()

    registry.faults.append(Fault("GET", "/blobs/", hold))
    config = write_config(runs, f"references: ['{registry.host}/c/a:1.0']\n")
    first = runs.start("--config", config)
    assert reached.wait(60)
    second = runs.call("--config", config)
    go_on.set()
    _, errors = first.communicate()
    assert (first.returncode, second.returncode) == (0, 46), errors
    assert "locked" in second.stderr
    assert len(runs.bundles()) == 1
    assert runs.call("--config", config).returncode == 0
    assert len(runs.bundles()) == 1
