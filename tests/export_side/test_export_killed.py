"""Exports that are killed and given again: the same bytes and the same state as if nothing had happened."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from doubles.export_runs import CLOCK, ExportRuns, blob_digests_in, manifest_of, tree
from doubles.image_factory import image, noise_layer
from doubles.registries import RunningRegistry, plain_registry
from transload.shared.atomic_files import FaultPoints
from transload.shared.command_line import cli
from transload.shared.errors import UnfinishedBundle

pytestmark = pytest.mark.engine

SEED = int(os.environ.get("TRANSLOAD_TEST_SEED", "20240102"))
KILLS = 5
BASE = noise_layer("killed-base", 3_000_000)


class Killed(BaseException):
    """Ends a run in this process at a durable step, with nothing cleaned up but what `finally` closes."""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with plain_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def references(registry: RunningRegistry) -> list[str]:
    images = [image(f"k/{name}:1", [BASE, noise_layer(f"killed-{name}", 2_000_000)]) for name in "abc"]
    return [registry.put(one) for one in images]


@pytest.fixture(scope="module")
def undisturbed(references: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], list[str]]:
    """What an undisturbed run leaves, and the names of its durable steps."""
    folder = tmp_path_factory.mktemp("undisturbed")
    runs, log = ExportRuns(folder / "out"), folder / "steps"
    finished = runs.call(*references, log=log)
    assert finished.returncode == 0, finished.stderr
    return tree(runs.output), log.read_text().splitlines()


@pytest.fixture
def stop_at() -> Iterator[Callable[[str], None]]:
    """Ends a run in this process before the first durable step whose name contains some text."""

    def set_up(text: str) -> None:
        def reached(name: str) -> None:
            if text in name:
                FaultPoints.reached = None
                raise Killed(name)

        FaultPoints.reached = reached

    yield set_up
    FaultPoints.reached = None


@pytest.mark.slow
def test_sigkill_at_seeded_steps_ends_in_the_same_bytes_and_state(
    registry: RunningRegistry, references: list[str], undisturbed: tuple[dict[str, str], list[str]], tmp_path: Path
) -> None:
    expected, steps = undisturbed
    print(f"seed {SEED}: {len(steps)} durable steps")
    # Always the journal's making and the last steps, which are repaired in other ways than by going on.
    begin = next(number for number, name in enumerate(steps, 1) if re.match(r"rename .*\.journal", name))
    moments = {begin, *(len(steps) - back for back in range(3))} | set(
        random.Random(SEED).sample(range(1, len(steps) + 1), KILLS)
    )
    for moment in sorted(moments):
        print(f"killed before step {moment}: {steps[moment - 1]}")
        runs = ExportRuns(tmp_path / str(moment))
        killed = runs.call(*references, kill_at=moment)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        again = runs.call(*references)
        assert again.returncode == 0, again.stderr
        assert tree(runs.output) == expected, steps[moment - 1]


@pytest.mark.slow
def test_killed_again_and_again(
    references: list[str], undisturbed: tuple[dict[str, str], list[str]], tmp_path: Path
) -> None:
    runs, generator, kills = ExportRuns(tmp_path / "out"), random.Random(SEED), 0
    while (finished := runs.call(*references, kill_at=generator.randint(1, 8 + 6 * kills))).returncode:
        assert finished.returncode == -signal.SIGKILL, finished.stderr
        assert all((bundle / "SHA256SUMS.sig").exists() for bundle in runs.bundles())
        kills += 1
    assert kills
    assert tree(runs.output) == undisturbed[0]


@pytest.mark.slow
def test_sigkill_while_a_failed_image_is_left_out(registry: RunningRegistry, tmp_path: Path) -> None:
    images = [image(f"r/{name}:1", [BASE, noise_layer(f"replanned-{name}", 900_000)]) for name in "abc"]
    wanted = [registry.put(one) for one in images]
    registry.storage.delete_blob(noise_layer("replanned-a", 900_000).descriptor().digest)
    undisturbed, log = ExportRuns(tmp_path / "undisturbed"), tmp_path / "steps"
    assert undisturbed.call(*wanted, "--jobs", "1", log=log).returncode == 3
    steps = log.read_text().splitlines()
    begin, smaller = (number for number, name in enumerate(steps, 1) if re.match(r"rename .*\.journal", name))
    sealing = next(number for number, name in enumerate(steps, 1) if name.startswith("fsync images.tar"))
    assert begin < smaller < sealing
    for moment in (smaller, smaller + 1, (smaller + sealing) // 2, sealing - 1):
        print(f"killed before step {moment}: {steps[moment - 1]}")
        runs = ExportRuns(tmp_path / str(moment))
        killed = runs.call(*wanted, "--jobs", "1", kill_at=moment)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert runs.call(*wanted).returncode == 3
        assert tree(runs.output) == tree(undisturbed.output), steps[moment - 1]


def test_finished_blobs_are_not_fetched_again(
    registry: RunningRegistry, references: list[str], tmp_path: Path, stop_at: Callable[[str], None]
) -> None:
    runs = ExportRuns(tmp_path / "out")
    stop_at("fsync images.tar.0001")
    with pytest.raises(Killed):
        runs.run(*references)
    assert runs.bundles() == []
    fetched = len(registry.requests(r'"GET /v2/k/./blobs/'))
    result = runs.run(*references)
    assert result.was_resumed
    assert len(registry.requests(r'"GET /v2/k/./blobs/')) == fetched


def test_a_finished_blob_that_the_disk_changed_is_fetched_again(
    registry: RunningRegistry, references: list[str], tmp_path: Path, stop_at: Callable[[str], None]
) -> None:
    runs = ExportRuns(tmp_path / "out")
    stop_at("fsync images.tar.0001")
    with pytest.raises(Killed):
        runs.run(*references)
    chunk = next((runs.output / ".unfinished").glob("*/images.tar.0002"))
    raw = bytearray(chunk.read_bytes())
    raw[1000] ^= 1
    chunk.write_bytes(raw)
    fetched = len(registry.requests(r'"GET /v2/k/./blobs/'))
    result = runs.run(*references)
    assert blob_digests_in(result.path) == [blob.digest for blob in manifest_of(result.path).blobs]
    assert len(registry.requests(r'"GET /v2/k/./blobs/')) == fetched + 1


def test_a_moved_tag_is_named_and_the_frozen_plan_goes_on(
    registry: RunningRegistry, tmp_path: Path, stop_at: Callable[[str], None]
) -> None:
    old = image("k/moving:1", [noise_layer("moving-old")])
    new = image("k/moving:1", [noise_layer("moving-new")])
    runs, reference = ExportRuns(tmp_path / "out"), registry.put(old)
    stop_at("fsync images.tar.0001")
    with pytest.raises(Killed):
        runs.run(reference)
    registry.put(new)
    result = runs.run(reference)
    assert [(str(one.reference), now) for one, now in result.moved] == [(reference, new.image.digest)]
    assert [one.digest for one in manifest_of(result.path).images] == [str(old.image.digest)]
    assert any("has moved" in note for note in result.notes)
    assert [one.digest for one in manifest_of(runs.run(reference).path).images] == [str(new.image.digest)]


def test_another_request_is_refused_until_restart(
    registry: RunningRegistry, references: list[str], tmp_path: Path, stop_at: Callable[[str], None]
) -> None:
    runs = ExportRuns(tmp_path / "out")
    stop_at("fsync images.tar.0001")
    with pytest.raises(Killed):
        runs.run(*references)
    with pytest.raises(UnfinishedBundle) as raised:
        runs.run(references[0])
    assert "--restart" in raised.value.hint
    assert all(reference in raised.value.message for reference in references)
    assert runs.run(references[0], destination="other").path is not None
    restarted = runs.run(references[0], restart=True)
    assert not restarted.was_resumed
    assert [one.reference for one in manifest_of(restarted.path).images] == [references[0]]
    assert not (runs.output / ".unfinished").exists()


def test_status_shows_what_is_unfinished(references: list[str], tmp_path: Path, stop_at: Callable[[str], None]) -> None:
    runs = ExportRuns(tmp_path / "out")
    stop_at("fsync images.tar.0001")
    with pytest.raises(Killed):
        runs.run(*references)
    command = ["status", "--output-path", str(runs.output)]
    shown = CliRunner().invoke(cli, command).stdout
    assert [line.split()[-1] for line in shown.partition("Unfinished:")[2].splitlines()[2:]] == sorted(references)
    (one,) = json.loads(CliRunner().invoke(cli, [*command, "--json"]).stdout)["unfinished"]
    assert (one["destination"], one["references"]) == ("default", sorted(references))
    assert 0 < one["placed_bytes"] <= one["total_bytes"]
    journal = next((runs.output / ".unfinished").glob("*.journal"))
    whole = journal.read_bytes()
    journal.write_bytes(b"x" + whole)
    assert "cannot be understood" in CliRunner().invoke(cli, command).stdout
    journal.write_bytes(whole)
    stop_at("remove default-0001")  # sealed and remembered; only the journal is still there
    with pytest.raises(Killed):
        runs.run(*references)
    assert "Unfinished: none" in CliRunner().invoke(cli, command).stdout
    runs.run(*references)
    assert not (runs.output / ".unfinished").exists()


def test_created_is_that_of_the_first_run(
    registry: RunningRegistry, references: list[str], tmp_path: Path, stop_at: Callable[[str], None]
) -> None:
    runs = ExportRuns(tmp_path / "out")
    stop_at("fsync images.tar.0001")
    with pytest.raises(Killed):
        runs.run(*references)
    later = runs.exporter(*references)
    object.__setattr__(later, "now", lambda: CLOCK.replace(year=2031))
    assert manifest_of(later.run().path).created == "2024-01-02T03:04:05Z"


def test_an_unreadable_journal_is_named_and_restart_helps(
    references: list[str], tmp_path: Path, stop_at: Callable[[str], None]
) -> None:
    runs = ExportRuns(tmp_path / "out")
    stop_at("fsync images.tar.0001")
    with pytest.raises(Killed):
        runs.run(*references)
    journal = next((runs.output / ".unfinished").glob("*.journal"))
    journal.write_bytes(b"x" + journal.read_bytes())
    finished = runs.call(*references)
    assert finished.returncode == 16
    assert "--restart" in finished.stderr
    assert runs.call(*references, "--restart").returncode == 0
