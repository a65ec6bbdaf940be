"""What images are called at their targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from doubles.image_factory import image, noise_layer
from transload.import_side.sinks.docker_sink import DockerSink
from transload.import_side.target_names import Rename, registry_name, rename, same_name
from transload.import_side.targets import TargetSpec
from transload.shared.errors import InvalidConfiguration
from transload.shared.references import Reference

APP = image("nvcr.io/nvidia/pytorch:24.01-py3", [noise_layer("app")]).image


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], "nvcr.io/nvidia/team/app:1"),
        (["nvidia=mirror"], "nvcr.io/mirror/team/app:1"),
        (["nvcr.io/nvidia=inner.example/nv"], "inner.example/nv/team/app:1"),
        (["nvcr.io=inner.example:5000"], "inner.example:5000/nvidia/team/app:1"),
        (["nvcr.io/nvidia/team/app=tools/app"], "nvcr.io/tools/app:1"),
        (["nvidia=short", "nvidia/team=long"], "nvcr.io/long/app:1"),
        (["nvidia/team=long", "nvidia=short"], "nvcr.io/long/app:1"),
        (["nvid=x", "team=x", "app=x", "vcr.io=x.example"], "nvcr.io/nvidia/team/app:1"),
        (["nvidia=a", "a=b"], "nvcr.io/a/team/app:1"),
    ],
)
def test_the_longest_renaming_of_whole_components_is_applied_once(rules: list[str], expected: str) -> None:
    source = Reference.parse("nvcr.io/nvidia/team/app:1")
    assert str(rename(source, [Rename.parse(rule) for rule in rules])) == expected


@pytest.mark.parametrize("text", ["", "a", "a=", "=b", "a@sha256:0=b", "/=b"])
def test_what_is_no_renaming_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfiguration):
        Rename.parse(text)


def test_the_standard_socket_by_name_is_the_same_target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    assert DockerSink("unix:///run/docker.sock").identity == DockerSink().identity == "docker"
    monkeypatch.setenv("DOCKER_HOST", "unix:///elsewhere.sock")
    assert DockerSink("unix:///run/docker.sock").identity != DockerSink().identity


def test_a_url_is_no_registry_and_the_hint_says_what_is() -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        TargetSpec.parse("registry=http://inner:5000/x")
    assert "registry=inner:5000/x" in raised.value.hint
    assert "name:tag" not in raised.value.message


def test_a_renaming_to_no_repository_name_is_refused() -> None:
    with pytest.raises(InvalidConfiguration):
        rename(Reference.parse("nvcr.io/nvidia/app:1"), [Rename.parse("nvidia=UPPER")])


@pytest.mark.parametrize(
    ("source", "prefix", "keep_host", "expected"),
    [
        ("nvcr.io/nvidia/pytorch:24.01", "", False, "reg.example/nvidia/pytorch:24.01"),
        ("nvcr.io/nvidia/pytorch:24.01", "mirror/x", False, "reg.example/mirror/x/nvidia/pytorch:24.01"),
        ("nvcr.io/nvidia/pytorch:24.01", "mirror", True, "reg.example/mirror/nvcr.io/nvidia/pytorch:24.01"),
        ("ubuntu", "", False, "reg.example/library/ubuntu:latest"),
        ("ubuntu", "", True, "reg.example/docker.io/library/ubuntu:latest"),
        ("127.0.0.1:5000/a:1", "", True, "reg.example/127.0.0.1-5000/a:1"),
    ],
)
def test_names_at_a_registry(source: str, prefix: str, keep_host: bool, expected: str) -> None:
    name = registry_name(APP, Reference.parse(source), host="reg.example", prefix=prefix, keep_host=keep_host)
    assert name == expected


def test_a_name_without_a_tag_is_the_delivered_digest() -> None:
    name = Reference.parse(f"nvcr.io/nvidia/pytorch@sha256:{'0' * 64}")
    assert same_name(APP, name) == f"nvcr.io/nvidia/pytorch@{APP.digest}"
    there = registry_name(APP, name, host="reg.example", prefix="", keep_host=False)
    assert there == f"reg.example/nvidia/pytorch@{APP.digest}"


def test_a_tag_wins_over_a_digest_beside_it() -> None:
    name = Reference.parse(f"nvcr.io/nvidia/pytorch:1@sha256:{'0' * 64}")
    assert same_name(APP, name) == "nvcr.io/nvidia/pytorch:1"


def test_a_name_that_gets_too_long_is_refused() -> None:
    with pytest.raises(InvalidConfiguration):
        registry_name(APP, APP.name, host="reg.example", prefix="/".join(["x" * 60] * 5), keep_host=False)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [("docker", "docker", ""), ("docker=unix:///run/docker.sock", "docker", "unix:///run/docker.sock"),
     ("registry=reg.example/a/b/", "registry", "reg.example/a/b"),
     ("registry=localhost:5000", "registry", "localhost:5000"),
     ("archive=/srv/a=b", "archive", "/srv/a=b"), ("oci=out", "oci", "out")],
)  # fmt: skip
def test_targets_are_read(text: str, kind: str, value: str) -> None:
    spec = TargetSpec.parse(text)
    assert (spec.kind, spec.value) == (kind, value)


@pytest.mark.parametrize(
    "text",
    ["", "dockers", "docker=", "registry", "registry=", "registry=UPPER.example/UPPER", "registry=plainword/x",
     "registry=reg.example/a:tag", "archive", "archive=", "http://reg.example"],
)  # fmt: skip
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfiguration):
        TargetSpec.parse(text)
