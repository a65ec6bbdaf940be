"""`ngc_replicator` against the NGC double: each option, and what a run leaves behind."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.http_doubles import HttpDouble, serving
from doubles.image_factory import ImageDouble, image, layer, noise_layer
from doubles.ngc import NgcDouble, running_ngc
from doubles.registry_faults import Fault, Reply, Request, answer
from doubles.replicator_runs import ReplicatorRuns
from doubles.scripted_registry import ScriptedRegistry, scripted_registry

BASE = noise_layer("replicator-base", 50_000)
SELECTED = ("--min-version=19.06", "--image=tensorflow", "--image=pytorch")


def build(name: str) -> ImageDouble:
    return image("any/name:1", [BASE, noise_layer(f"replicator-{name}")], docker=True, environment=[f"NAME={name}"])


@pytest.fixture
def ngc() -> Iterator[NgcDouble]:
    with running_ngc() as running:
        for path, tag in [
            ("nvidia/tensorflow", "19.05-py3"),
            ("nvidia/tensorflow", "19.06-py3"),
            ("nvidia/tensorflow", "19.06-py2"),
            ("nvidia/pytorch", "19.10-py3"),
            ("nvidia/l4t-pytorch", "r32.4.2-pth1.2-py3"),
            ("nvidia/cuda", "12.4.1-base"),
            ("nvidia/team/model", "1.0"),
        ]:
            running.publish(build(f"{path}:{tag}"), path, tag, description=f"# About {path}\n")
        yield running


@pytest.fixture
def runs(ngc: NgcDouble, tmp_path: Path) -> ReplicatorRuns:
    return ReplicatorRuns(ngc, tmp_path / "out")


def test_one_docker_save_file_an_image_and_a_description(runs: ReplicatorRuns) -> None:
    done = runs.call(*SELECTED)
    assert done.returncode == 0, done.stderr
    tars = [
        runs.tar("nvidia/l4t-pytorch", "r32.4.2-pth1.2-py3"),
        runs.tar("nvidia/pytorch", "19.10-py3"),
        runs.tar("nvidia/tensorflow", "19.06-py2"),
        runs.tar("nvidia/tensorflow", "19.06-py3"),
    ]
    descriptions = [f"description_nvidia%%{name}.md" for name in ("l4t-pytorch", "pytorch", "tensorflow")]
    assert runs.files() == sorted([*(tar.name for tar in tars), *descriptions])
    assert (runs.output / descriptions[1]).read_text() == "# About nvidia/pytorch\n"
    with tarfile.open(tars[1]) as archive:
        (entry,) = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
    assert entry["RepoTags"] == [f"{runs.ngc.registry.host}/nvidia/pytorch:19.10-py3"]
    assert "r32.4.2-pth1.2-py3" in done.stderr  # taken, and it is said that --min-version does not judge it
    record = runs.records()["nvidia/pytorch"]["19.10-py3"]
    assert (record.tar, record.registries) == (tars[1].name, [])


def test_a_second_run_reads_no_blob_even_if_the_files_were_carried_away(runs: ReplicatorRuns) -> None:
    assert runs.call(*SELECTED).returncode == 0
    for tar in runs.output.glob("*.tar"):
        tar.unlink()
    before = runs.blob_reads()
    done = runs.call(*SELECTED)
    assert (done.returncode, runs.blob_reads()) == (0, before)
    assert "4 were there already" in done.stdout


def test_an_entry_taken_out_of_the_state_is_fetched_again(runs: ReplicatorRuns) -> None:
    assert runs.call("--image=cuda").returncode == 0
    tar = runs.tar("nvidia/cuda", "12.4.1-base")
    content = tar.read_bytes()
    tar.unlink()
    text = runs.state_path.read_text()
    runs.state_path.write_text(re.sub(r"images:.*\.\.\.", "images: {}\n...", text, flags=re.DOTALL))
    assert runs.call("--image=cuda").returncode == 0
    assert tar.read_bytes() == content


def test_a_tag_that_has_moved_is_fetched_again(runs: ReplicatorRuns) -> None:
    assert runs.call("--image=cuda").returncode == 0
    first = runs.records()["nvidia/cuda"]["12.4.1-base"].digest
    runs.ngc.publish(build("moved"), "nvidia/cuda", "12.4.1-base")
    done = runs.call("--image=cuda")
    second = runs.records()["nvidia/cuda"]["12.4.1-base"].digest
    assert first != second
    assert f"moved from {first} to {second}" in done.stderr
    assert "1 saved" in done.stdout


def test_dry_run_writes_nothing(runs: ReplicatorRuns) -> None:
    done = runs.call(*SELECTED, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert not runs.output.exists()
    lines = re.findall(r"\[dry-run\] clone_image\((\S+), (\S+), sha256:[0-9a-f]{64}\)", done.stdout)
    assert sorted(lines) == [
        ("nvidia/l4t-pytorch", "r32.4.2-pth1.2-py3"),
        ("nvidia/pytorch", "19.10-py3"),
        ("nvidia/tensorflow", "19.06-py2"),
        ("nvidia/tensorflow", "19.06-py3"),
    ]


def test_names_match_in_part_unless_strict(runs: ReplicatorRuns) -> None:
    done = runs.call("--image=pytorch", "--strict-name-match", "--dry-run")
    assert re.findall(r"clone_image\(([^,]+)", done.stdout) == ["nvidia/pytorch"]
    done = runs.call("--image=model", "--strict-name-match", "--dry-run")
    assert re.findall(r"clone_image\(([^,]+)", done.stdout) == ["nvidia/team/model"]


def test_py_version_is_a_part_of_the_tag(runs: ReplicatorRuns) -> None:
    done = runs.call("--image=tensorflow", "--py-version=py2", "--dry-run")
    assert re.findall(r"clone_image\([^,]+, ([^,]+)", done.stdout) == ["19.06-py2"]


def test_every_option_comes_from_the_environment_too(runs: ReplicatorRuns) -> None:
    prefix = "NGC_REPLICATOR_"
    values = {"PROJECT": "nvidia", "IMAGE": "tensorflow pytorch", "MIN_VERSION": "19.06", "PY_VERSION": "py3",
              "STRICT_NAME_MATCH": "1", "DRY_RUN": "true"}  # fmt: skip
    runs.environment |= {f"{prefix}{name}": value for name, value in values.items()}
    done = runs.call()
    assert done.returncode == 0, done.stderr
    assert re.findall(r"clone_image\(([^,]+), ([^,]+)", done.stdout) == [
        ("nvidia/pytorch", "19.10-py3"),
        ("nvidia/tensorflow", "19.06-py3"),
    ]


@pytest.fixture
def target() -> Iterator[ScriptedRegistry]:
    with scripted_registry(users={"USER": "PASS:word$"}) as running:
        yield running


def test_images_are_pushed_with_their_digests_and_read_once(runs: ReplicatorRuns, target: ScriptedRegistry) -> None:
    arguments = (
        f"--registry-url={target.host}",
        "--registry-username=USER",
        "--registry-password=PASS:word$",
        "--image=cuda",
    )
    done = runs.call(*arguments)
    assert done.returncode == 0, done.stderr
    record = runs.records()["nvidia/cuda"]["12.4.1-base"]
    assert target.repositories["nvidia/cuda"].tags == {"12.4.1-base": record.digest}
    assert record.registries == [target.host]
    layers_and_config = 3
    assert runs.blob_reads() == layers_and_config  # the push reads the file
    again = runs.call(*arguments)
    assert (again.returncode, runs.blob_reads()) == (0, layers_and_config)


def test_without_files_images_go_straight_to_the_registry(runs: ReplicatorRuns, target: ScriptedRegistry) -> None:
    runs.environment |= {"NGC_REPLICATOR_REGISTRY_USERNAME": "USER", "NGC_REPLICATOR_REGISTRY_PASSWORD": "PASS:word$"}
    done = runs.call(f"--registry-url={target.host}/mirror", "--image=tensorflow", "--no-exporter")
    assert done.returncode == 0, done.stderr
    assert sorted(target.repositories["mirror/nvidia/tensorflow"].tags) == ["19.05-py3", "19.06-py2", "19.06-py3"]
    assert not list(runs.output.glob("*.tar"))
    # What is pushed later is in the state, too, so that files can be asked for later.
    before = runs.blob_reads()
    later = runs.call(f"--registry-url={target.host}/mirror", "--image=tensorflow")
    assert "3 saved, 0 pushed" in later.stdout
    assert runs.blob_reads() > before


def test_wrong_bytes_never_get_a_name_at_the_registry(runs: ReplicatorRuns, target: ScriptedRegistry) -> None:
    digest = BASE.descriptor().digest
    runs.environment |= {"NGC_REPLICATOR_REGISTRY_USERNAME": "USER", "NGC_REPLICATOR_REGISTRY_PASSWORD": "PASS:word$"}
    wrong = bytes(len(BASE.raw))
    runs.ngc.registry.faults.append(
        Fault("GET", f"/blobs/{digest}", lambda request, serve: Reply(200, body=wrong), times=None)
    )
    done = runs.call(f"--registry-url={target.host}", "--image=cuda", "--no-exporter")
    assert done.returncode == 25, done.stderr
    assert str(digest) in done.stderr
    assert not target.put_order
    assert all(str(digest) not in held.blobs for held in target.repositories.values())
    filed = runs.call("--image=cuda")
    assert filed.returncode == 25, filed.stderr
    assert runs.files() == []


def test_one_failed_image_does_not_stop_the_others(runs: ReplicatorRuns) -> None:
    runs.ngc.registry.faults.append(Fault("GET", "/nvidia/tensorflow/manifests/19.06-py2", answer(404), times=None))
    done = runs.call(*SELECTED)
    assert done.returncode == 3
    named = re.findall(r"warning: (\S+): ", done.stderr)
    assert named == [f"{runs.ngc.registry.host}/nvidia/tensorflow:19.06-py2"]
    assert "3 saved" in done.stdout
    runs.ngc.registry.faults.clear()
    before = runs.blob_reads()
    assert "1 saved, 0 pushed, 3 were there already" in runs.call(*SELECTED).stdout
    assert runs.blob_reads() == before + 3


def test_wrong_bytes_of_one_image_do_not_stop_the_others(runs: ReplicatorRuns, target: ScriptedRegistry) -> None:
    # Not the last one in the order of the run.
    own = noise_layer("replicator-nvidia/tensorflow:19.06-py3").descriptor()
    wrong = Reply(200, body=bytes(own.size_bytes))
    runs.ngc.registry.faults.append(Fault("GET", f"/blobs/{own.digest}", lambda request, serve: wrong, times=None))
    login = ("--registry-username=USER", "--registry-password=PASS:word$", f"--registry-url={target.host}")
    done = runs.call(*SELECTED, *login)
    assert done.returncode == 3
    assert "3 saved, 3 pushed, 0 were there already; 1 failed" in done.stdout
    assert [name for name in runs.files() if "19.06-py3" in name or name.startswith(".")] == []
    assert list(target.repositories["nvidia/tensorflow"].tags) == ["19.06-py2"]


def test_a_registry_that_refuses_the_push_does_not_stop_the_files(
    runs: ReplicatorRuns, target: ScriptedRegistry
) -> None:
    done = runs.call(
        f"--registry-url={target.host}", "--registry-username=USER", "--registry-password=no", "--image=cuda"
    )
    assert done.returncode == 3
    assert f"--registry-url={target.host}: " in done.stderr
    assert runs.tar("nvidia/cuda", "12.4.1-base").exists()
    retried = runs.call(
        f"--registry-url={target.host}", "--registry-username=USER", "--registry-password=PASS:word$", "--image=cuda"
    )
    assert "0 saved, 1 pushed" in retried.stdout


def test_external_images_keep_their_tags_as_text(
    runs: ReplicatorRuns, target: ScriptedRegistry, tmp_path: Path
) -> None:
    with scripted_registry() as other:
        other.put(image("tools/pause:3.10", [layer({"pause": b"zzz"})]))
        listing = tmp_path / "external.yml"
        listing.write_text(f"images:\n  - name: {other.host}/tools/pause\n    tag: 3.10\n")
        runs.environment |= {
            "NGC_REPLICATOR_REGISTRY_USERNAME": "USER",
            "NGC_REPLICATOR_REGISTRY_PASSWORD": "PASS:word$",
        }
        done = runs.call(f"--external-images={listing}", "--image=cuda", f"--registry-url={target.host}")
        assert done.returncode == 0, done.stderr
        name = f"{other.host}/tools/pause"
        assert (runs.output / f"docker_image_{name.replace('/', '%%')}:3.10.tar").exists()
        assert list(target.repositories[f"{other.host.replace(':', '-')}/tools/pause"].tags) == ["3.10"]
        assert "2 were there already" in runs.call(f"--external-images={listing}", "--image=cuda").stdout


@pytest.mark.parametrize(
    "content", ["images: [{tag: '1'}]", "images: {a: b}", "- a", "images: [{name: a:1, tag: '2'}]"]
)
def test_a_wrong_list_of_external_images_is_named(runs: ReplicatorRuns, tmp_path: Path, content: str) -> None:
    listing = tmp_path / "external.yml"
    listing.write_text(content)
    done = runs.call(f"--external-images={listing}")
    assert done.returncode == 11
    assert str(listing) in done.stderr


class _Page(HttpDouble):
    """Takes whatever is posted."""

    def reply(self, request: Request) -> Reply:
        return Reply(200)


def test_progress_is_posted_as_the_old_tool_did(runs: ReplicatorRuns) -> None:
    page = _Page()
    with serving(page):
        assert runs.call("--image=cuda", f"--progress-uri={page.url}/progress").returncode == 0
    documents = [json.loads(request.body) for request in page.asked("POST", "/progress")]
    assert documents[0]["percent"] == -2
    assert documents[-1]["percent"] == -1
    assert [set(step) for step in documents[-1]["steps"]] == [{"status", "header", "subHeader"}] * 3
    assert [step["status"] for step in documents[-1]["steps"]] == ["complete"] * 3
    assert documents[-1]["steps"][1]["header"] == "Cloning nvidia/cuda:12.4.1-base"


def test_a_deaf_progress_page_fails_nothing(runs: ReplicatorRuns) -> None:
    done = runs.call("--image=cuda", "--progress-uri=http://127.0.0.1:9/progress")
    assert done.returncode == 0
    assert done.stderr.count("could not be posted") == 1


def test_sif_files_are_said_to_be_missing_and_the_rest_is_made(runs: ReplicatorRuns) -> None:
    done = runs.call("--image=cuda", "--singularity")
    assert done.returncode == 3
    assert f"{runs.ngc.registry.host}_nvidia_cuda:12.4.1-base.sif is missing" in done.stderr
    assert runs.tar("nvidia/cuda", "12.4.1-base").exists()


def test_options_that_do_nothing_say_so(runs: ReplicatorRuns) -> None:
    done = runs.call("--image=cuda", "--templater", "--no-remove")
    assert done.returncode == 0, done.stderr
    assert "--templater does nothing" in done.stderr
    assert "--no-remove: no image stays in Docker" in done.stderr  # there is none here


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--service"], 12, "no gRPC service"),
        (["--image=tensorfolw"], 15, "nvidia/tensorflow"),
        (["--project=nobody"], 15, "no project 'nobody'"),
        (["--api-key=wrong"], 23, "key"),
        (["--min-version=latest"], 12, "no version"),
        (["--registry-url=http://plain.example"], 12, "--insecure"),
        (["--registry-url=h.example", "--registry-username=a"], 12, "belong together"),
        (["--progress-uri=ftp://a"], 12, "--progress-uri"),
        (["--no-such-option"], 2, "No such option"),
    ],
)
def test_bad_requests_get_one_clear_message(runs: ReplicatorRuns, arguments: list[str], code: int, says: str) -> None:
    done = runs.call(*arguments)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_an_odd_entry_of_the_catalogue_is_named_and_stops_nothing(runs: ReplicatorRuns) -> None:
    runs.ngc.odd_resources += [None, {"resourceId": {"a": 1}}, {"resourceId": "nvidia/caffe", "description": 3}]
    done = runs.call("--image=cuda", "--quiet")
    assert done.returncode == 0, done.stderr
    assert "resourceId" in done.stderr
    assert runs.tar("nvidia/cuda", "12.4.1-base").exists()


def test_no_tag_that_passes_the_filters_is_no_error(runs: ReplicatorRuns) -> None:
    """A cron line with "last month" for --min-version meets months without a release."""
    done = runs.call("--min-version=99.01", "--image=tensorflow")
    assert done.returncode == 0
    assert "No tag of nvidia/tensorflow passes" in done.stderr


def test_a_killed_run_goes_on_with_the_image_that_it_was_at(runs: ReplicatorRuns) -> None:
    killed = runs.call(*SELECTED, "--jobs=1", kill_at=("fsync docker_image", 3))
    assert killed.returncode == -9
    done_before = [(name, tag) for name, tags in runs.records().items() for tag in tags]
    assert len(done_before) == 2
    assert len(list(runs.output.glob("*.tar"))) == 2
    leftovers = [name for name in runs.files() if name.startswith(".docker_image")]
    assert len(leftovers) == 1
    asked = len(runs.ngc.registry.requests)
    assert runs.call(*SELECTED).returncode == 0
    later = [one.path for one in runs.ngc.registry.requests[asked:] if "/blobs/" in one.path]
    for name, tag in done_before:
        own = noise_layer(f"replicator-{name}:{tag}").descriptor().digest
        assert not any(str(own) in path for path in later)
    assert not [name for name in runs.files() if name.startswith(".")]
    assert len(list(runs.output.glob("*.tar"))) == 4


def test_two_runs_at_once_exclude_each_other(runs: ReplicatorRuns) -> None:
    import fcntl  # noqa: PLC0415

    runs.output.mkdir()
    with (runs.output / "state.yml.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert runs.call("--image=cuda").returncode == 46


def test_the_key_opens_private_images_and_is_nowhere_to_be_seen(runs: ReplicatorRuns) -> None:
    key = "nvapi-s3cret:$%+"
    runs.ngc.keys[key] = {"nvidia"}
    runs.ngc.publish(build("private"), "nvidia/private", "24.01", is_public=False)
    assert runs.call("--image=private").returncode == 15
    runs.environment["NGC_REPLICATOR_API_KEY"] = f"{key}\n"
    done = runs.call("--image=private", "-v")
    assert done.returncode == 0, done.stderr
    assert runs.tar("nvidia/private", "24.01").exists()
    written = b"".join(file.read_bytes() for file in runs.output.iterdir())
    assert key not in done.stdout + done.stderr
    assert key.encode() not in written
