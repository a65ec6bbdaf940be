"""What daemons answer, above all when they misbehave."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.scripted_docker import Answer, ScriptedDocker, scripted_docker
from transload.shared import docker_answers, docker_engine
from transload.shared.docker_engine import DockerEngine, LoadStream
from transload.shared.errors import EngineFailed, EngineUnavailable, LoadFailed, NotEnoughSpace

NAME = "registry.example/a:1"
LOADED = b'{"stream":"Loaded image: registry.example/a:1\\n"}\r\n'


@pytest.fixture
def script() -> Iterator[ScriptedDocker]:
    with scripted_docker() as script:
        yield script


@pytest.fixture
def engine(script: ScriptedDocker) -> Iterator[DockerEngine]:
    with contextlib.closing(DockerEngine(script.url)) as engine:
        yield engine


@pytest.fixture(autouse=True)
def no_docker_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / ".docker"))


@pytest.mark.parametrize(
    ("lines", "failure"),
    [
        ([LOADED], None),
        ([], None),
        ([b"", b"\r\n", LOADED], None),
        ([b'{"status":"Loading layer","progressDetail":{"current":1,"total":2},"id":"a"}'], None),
        ([b'{"errorDetail":{"message":"invalid diffID"},"error":"invalid diffID"}'], "invalid diffID"),
        ([LOADED, b'{"error":"no reason"}'], "no reason"),
        ([b'{"errorDetail":{}}'], "no reason given"),
        ([LOADED, b'{"stream":"Error unpacking image x: not found\\n"}'], "Error unpacking image x: not found"),
        ([b"<html>502</html>"], "an answer that is not JSON: b'<html>502</html>'"),
        ([b"[1]", LOADED], None),
    ],
)
def test_failures_in_the_stream_of_a_load(lines: list[bytes], failure: str | None) -> None:
    assert docker_answers.failure_in(lines) == failure


@pytest.mark.parametrize("version", ["20.10.24+dfsg1", "19.03.1", "", "dev", "22.06.0-beta"])
def test_old_and_unknown_versions_read_no_zstd(version: str) -> None:
    assert not docker_answers.engine_info({"Version": version}, {}).reads_zstd


def test_a_load_announces_its_size_and_sends_every_piece(engine: DockerEngine, script: ScriptedDocker) -> None:
    script.answers["/images/load"] = Answer(LOADED)
    engine.load(LoadStream(6, [b"abc", memoryview(b"de"), bytearray(b"f")]), NAME)
    assert script.received[-1] == b"abcdef"
    assert script.headers[-1]["Content-Length"] == "6"
    assert "Transfer-Encoding" not in script.headers[-1]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            Answer(LOADED + b'{"errorDetail":{"message":"invalid diffID for layer 0"}}\r\n'),
            "invalid diffID for layer 0",
        ),
        (Answer(LOADED + b'{"stream":"Error unpacking image a: gone\\n"}\r\n'), "Error unpacking image a: gone"),
        (Answer(b'{"message":"archive is empty"}', 500), "archive is empty"),
        (Answer(b"<html>proxy</html>", 502), "<html>proxy</html>"),
        (Answer(b"", 500), "no reason given"),
    ],
)
def test_a_refused_load_names_the_reason(
    engine: DockerEngine, script: ScriptedDocker, answer: Answer, expected: str
) -> None:
    script.answers["/images/load"] = answer
    with pytest.raises(LoadFailed) as caught:
        engine.load(LoadStream(1, [b"x"]), NAME)
    assert expected in caught.value.message
    assert NAME in caught.value.message


def test_a_full_disk_is_told_as_such(engine: DockerEngine, script: ScriptedDocker) -> None:
    script.answers["/images/load"] = Answer(b'{"errorDetail":{"message":"write /var/x: no space left on device"}}')
    with pytest.raises(NotEnoughSpace, match="is full") as caught:
        engine.load(LoadStream(1, [b"x"]), NAME)
    assert "docker image prune" in caught.value.hint


def test_a_long_silent_load_is_not_cut(
    engine: DockerEngine, script: ScriptedDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_engine, "_CALL_TIMEOUT_SECONDS", 0.3)
    script.answers["/images/load"] = Answer(LOADED, silent_seconds=1.0)
    engine.load(LoadStream(1, [b"x"]), NAME)
    script.answers["/images/a/json"] = Answer(b"{}", silent_seconds=1.0)
    with pytest.raises(EngineFailed, match="broke off"):
        engine.inspect("a")


@pytest.mark.parametrize(
    "answer", [Answer(b"", drops=True), Answer(b'{"message":"database is locked"}', 500), Answer(b"{}"), Answer(b"[]")]
)
def test_a_daemon_that_fails_is_an_engine_error(engine: DockerEngine, script: ScriptedDocker, answer: Answer) -> None:
    script.answers["/images/a/json"] = answer
    with pytest.raises(EngineFailed):
        engine.inspect("a")


def test_a_daemon_that_breaks_off_a_load_is_an_engine_error(engine: DockerEngine, script: ScriptedDocker) -> None:
    script.answers["/images/load"] = Answer(b"", drops=True)
    with pytest.raises(EngineFailed, match="broke off"):
        engine.load(LoadStream(1, [b"x"]), NAME)


def test_who_is_not_docker_is_not_taken_for_it(script: ScriptedDocker) -> None:
    script.answers["/version"] = Answer(b"<html>", 200)
    with pytest.raises(EngineUnavailable):
        DockerEngine(script.url).info()


@pytest.mark.parametrize("url", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:9", "gopher://x", "tcp://:x"])
def test_no_docker_is_said_in_one_sentence_with_what_else_there_is(url: str) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        DockerEngine(url).info()
    assert url.partition("//")[2] in caught.value.message
    assert "--to registry=HOST" in caught.value.hint
    assert "--to archive=DIR" in caught.value.hint


def test_ssh_without_paramiko_says_what_to_do() -> None:
    with contextlib.suppress(ImportError):
        import paramiko  # type: ignore[import-untyped]  # noqa: F401, PLC0415

        pytest.skip("paramiko is installed")
    with pytest.raises(EngineUnavailable, match="paramiko") as caught:
        DockerEngine("ssh://host.example").info()
    assert "ssh -nNT -L" in caught.value.hint


def test_docker_host_is_used(script: ScriptedDocker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", script.url)
    with contextlib.closing(DockerEngine()) as engine:
        assert engine.info().version == "26.1.5"


def test_no_proxy_is_asked_for_a_daemon(script: ScriptedDocker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with contextlib.closing(DockerEngine(script.url)) as engine:
        assert engine.info().version == "26.1.5"


def test_an_archive_that_is_shorter_than_announced_breaks_off_instead_of_hanging(
    engine: DockerEngine, script: ScriptedDocker
) -> None:
    script.answers["/images/load"] = Answer(LOADED)
    with pytest.raises(RuntimeError, match="an archive of 6 bytes gave 5"):
        engine.load(LoadStream(6, [b"abcde"]), NAME)
