"""The old replicator's state.yml: read without running anything, upgraded, kept beside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.image_factory import ImageDouble, image, noise_layer
from doubles.ngc import NgcDouble, running_ngc
from doubles.replicator_runs import ReplicatorRuns
from doubles.scripted_registry import scripted_registry
from transload.export_side.replicator.old_state import read_old_state
from transload.export_side.replicator.state import look
from transload.shared.errors import StateUnreadable
from transload.shared.status_command import load_report

HEAD = "!!python/object/apply:collections.defaultdict\nargs:\n- !!python/name:builtins.dict ''\n"
"""As PyYAML 5 and 6 write `defaultdict(dict)`."""

UPDATED = "2019-06-20T21:00:00.000Z"


def old_file(**images: dict[str, str]) -> str:
    lines = [HEAD + "dictitems:"]
    for name, tags in images.items():
        lines.append(f"  {name.replace('__', '/')}:{'' if tags else ' {}'}")
        lines += [f"    {tag}: '{old_id}'" for tag, old_id in tags.items()]
    return "\n".join(lines) + "\n"


def test_what_pyyaml_writes_is_what_is_read() -> None:
    collections = pytest.importorskip("collections")
    yaml = pytest.importorskip("yaml")
    state = collections.defaultdict(dict)
    state["nvidia/tensorflow"]["19.06-py3"] = UPDATED
    state["nvidia/cuda"]["10.1"] = "sha256:" + "a" * 64
    state["alpine"]["3.10"] = ""
    assert state["looked/at"] == {}
    assert read_old_state(yaml.dump(state).encode()) == state


@pytest.mark.parametrize("name", ["builtins", "__builtin__"])
def test_both_pythons_wrote_it(name: str) -> None:
    raw = old_file(nvidia__cuda={"10.1": UPDATED}).replace("builtins", name).encode()
    assert read_old_state(raw) == {"nvidia/cuda": {"10.1": UPDATED}}
    assert read_old_state(b"---\n" + raw) == {"nvidia/cuda": {"10.1": UPDATED}}


def test_an_empty_one_is_empty() -> None:
    assert read_old_state(HEAD.encode()) == {}


@pytest.mark.parametrize(
    "bad",
    [
        HEAD.replace("builtins.dict", "os.system"),
        HEAD + "dictitems:\n  a: !!python/object/apply:os.system ['touch run-by-yaml']\n",
        HEAD + "dictitems:\n  a: !!binary aGk=\n",
        HEAD + "dictitems:\n  a: [1]\n",
        HEAD + "dictitems:\n  a: {b: {c: d}}\n",
        HEAD + "dictitems: [a]\n",
        HEAD + "state: {}\n",
        HEAD + "dictitems:\n  a: {b: 'x\n",
        HEAD + "dictitems:\n  a: {b: x}\n  a: {b: y}\n",
    ],
)
def test_any_other_tag_and_any_damage_is_refused(bad: str) -> None:
    with pytest.raises(StateUnreadable):
        read_old_state(bad.encode())


@pytest.mark.parametrize(
    "other", ["", "images: {}\n", "!!python/object/apply:os.system ['true']\n", "schema: 1\n...\n"]
)
def test_other_files_are_not_taken_for_one(other: str) -> None:
    assert read_old_state(other.encode()) is None


def build(name: str) -> ImageDouble:
    return image("any/name:1", [noise_layer(f"old-{name}")], environment=[name])


@pytest.fixture
def ngc() -> Iterator[NgcDouble]:
    with running_ngc(keys={"nvapi-key": {"nvidia"}}) as running:
        running.publish(build("listed"), "nvidia/tensorflow", "19.06-py3", updated=UPDATED)
        running.publish(build("new"), "nvidia/tensorflow", "19.07-py3")
        yield running


@pytest.fixture
def runs(ngc: NgcDouble, tmp_path: Path) -> ReplicatorRuns:
    runs = ReplicatorRuns(ngc, tmp_path / "out")
    runs.output.mkdir()
    return runs


def test_what_it_lists_is_not_fetched_again_and_the_original_is_kept(runs: ReplicatorRuns) -> None:
    original = old_file(nvidia__tensorflow={"19.06-py3": UPDATED}, nvidia__caffe={})
    runs.state_path.write_text(original)
    done = runs.call("--image=tensorflow")
    assert done.returncode == 0, done.stderr
    assert "1 saved, 0 pushed, 1 were there already" in done.stdout
    assert not runs.tar("nvidia/tensorflow", "19.06-py3").exists()
    assert (runs.output / "state.yml.from_ngc_replicator").read_text() == original
    record = runs.records()["nvidia/tensorflow"]["19.06-py3"]
    assert (record.from_old_tool, record.old_id) == (True, UPDATED)
    report = load_report(runs.state_path)
    assert "ngc_replicator" in report.summary
    assert any("by the old replicator" in row for row in report.tables[0].rows)
    # From now on a tag that moves is noticed.
    runs.ngc.publish(build("moved"), "nvidia/tensorflow", "19.06-py3", updated=UPDATED)
    assert "1 saved" in runs.call("--image=tensorflow").stdout


def test_a_tag_with_a_later_date_is_fetched_again_where_a_key_shows_dates(runs: ReplicatorRuns) -> None:
    runs.state_path.write_text(old_file(nvidia__tensorflow={"19.06-py3": "2019-06-01T00:00:00.000Z"}))
    done = runs.call("--image=tensorflow", "--api-key=nvapi-key")
    assert "2 saved" in done.stdout, done.stderr
    assert "later date" in done.stderr


def test_a_docker_id_is_the_digest_of_the_config(runs: ReplicatorRuns) -> None:
    same = build("listed").image.manifests[0].config.digest
    runs.state_path.write_text(old_file(nvidia__tensorflow={"19.06-py3": str(same), "19.07-py3": f"sha256:{'0' * 64}"}))
    done = runs.call("--image=tensorflow")
    assert "1 saved, 0 pushed, 1 were there already" in done.stdout, done.stderr
    assert runs.tar("nvidia/tensorflow", "19.07-py3").exists()


def test_external_images_were_listed_without_an_id(runs: ReplicatorRuns, tmp_path: Path) -> None:
    with scripted_registry() as other:
        other.put(image("tools/pause:3.2", []))
        name = f"{other.host}/tools/pause"
        listing = tmp_path / "external.yml"
        listing.write_text(f"images: [{{name: '{name}', tag: '3.2'}}]\n")
        runs.state_path.write_text(HEAD + f"dictitems:\n  '{name}':\n    '3.2': ''\n")
        done = runs.call("--image=tensorflow", f"--external-images={listing}")
        assert "2 saved, 0 pushed, 1 were there already" in done.stdout, done.stderr


def test_a_dry_run_reads_it_and_leaves_it(runs: ReplicatorRuns) -> None:
    original = old_file(nvidia__tensorflow={"19.06-py3": UPDATED})
    runs.state_path.write_text(original)
    done = runs.call("--image=tensorflow", "--dry-run")
    assert "19.07-py3" in done.stdout
    assert "19.06-py3" not in done.stdout
    assert [file.name for file in runs.output.iterdir()] == ["state.yml"]
    assert runs.state_path.read_text() == original
    assert look(runs.state_path, runs.ngc.registry.host).images


def test_a_damaged_one_stops_the_run(runs: ReplicatorRuns) -> None:
    runs.state_path.write_text(HEAD + "dictitems:\n  nvidia/tensorflow: {'19.06-py3\n")
    assert runs.call("--image=tensorflow").returncode == 16
    assert "dictitems" in runs.state_path.read_text()
