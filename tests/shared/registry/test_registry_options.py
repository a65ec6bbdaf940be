"""Where logins come from, and the options that say it; every source against a registry that compares bytes."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from doubles import image_factory
from doubles.certificates import make_certificates
from doubles.clients import client_of
from doubles.scripted_registry import scripted_registry
from transload.shared.errors import CredentialsUnusable, InvalidConfiguration
from transload.shared.registry.credentials import Login, environment_credential, password_from
from transload.shared.registry.options import RegistryDirectory, registry_options
from transload.shared.registry.settings import Credential, RegistrySettings

_USER = "$oauthtoken"
_PASSWORD = 'k:$%"+é&=#\\ end '
_IMAGE = image_factory.image("x.example/team/app:1", [image_factory.noise_layer("options")])


def _pair() -> str:
    return base64.b64encode(f"{_USER}:{_PASSWORD}".encode()).decode()


def _helper(folder: Path, name: str, answer: str, code: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / f"docker-credential-{name}"
    (folder / f"{name}.json").write_text(answer)
    program.write_text(f'#!/bin/sh\ncat > "{folder}/{name}.asked"\ncat "{folder}/{name}.json"\nexit {code}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def _run(arguments: list[str], *, host: str, stdin: bytes | None = None, **environment: str) -> RegistrySettings:
    found: list[RegistrySettings] = []

    @click.command()
    @registry_options
    def command(registries: RegistryDirectory) -> None:
        found.append(registries.settings_for(host))

    result = CliRunner().invoke(command, arguments, input=stdin, env=environment, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0]


@pytest.mark.parametrize("source", ["file", "stdin", "environment", "docker auth", "docker fields", "helper", "store"])
def test_every_source_gives_user_and_password_byte_for_byte(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    _helper(tmp_path / "bin", "test", json.dumps({"ServerURL": "x", "Username": _USER, "Secret": _PASSWORD}))
    with scripted_registry(users={_USER: _PASSWORD}) as registry:
        registry.put(_IMAGE)
        host = registry.host
        arguments, stdin, environment = [], None, {}
        config: dict[str, object] = {}
        match source:
            case "file":
                (tmp_path / "key").write_bytes(_PASSWORD.encode() + b"\n")
                arguments = ["--login", f"{host}={_USER}:{tmp_path / 'key'}"]
            case "stdin":
                arguments, stdin = ["--login", f"{host}={_USER}:-"], _PASSWORD.encode() + b"\r\n"
            case "environment":
                suffix = host.replace(".", "_").replace(":", "_")
                environment = {f"TRANSLOAD_USERNAME_{suffix}": _USER, f"TRANSLOAD_PASSWORD_{suffix}": _PASSWORD}
            case "docker auth":
                config = {"auths": {f"https://{host}/v2/": {"auth": _pair()}}}
            case "docker fields":
                config = {"auths": {host: {"username": _USER, "password": _PASSWORD}}}
            case "helper":
                config = {"credHelpers": {host: "test"}, "credsStore": "absent"}
            case "store":
                config = {"auths": {host: {}}, "credsStore": "test"}
        (tmp_path / "config.json").write_text(json.dumps(config))
        settings = _run(arguments, host=host, stdin=stdin, **environment)
        assert settings.credential
        assert (settings.credential.username, settings.credential.password) == (_USER, _PASSWORD)
        with client_of(registry, credential=settings.credential) as client:
            assert client.list_tags("team/app") == ["1"]


def test_the_order_is_login_then_environment_then_docker(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"r.example": {"auth": _pair()}}}))
    (tmp_path / "key").write_text("from file")
    environment = {"DOCKER_CONFIG": str(tmp_path)}
    assert RegistryDirectory(environment=environment).settings_for("r.example").credential.source == "docker login"  # type: ignore[union-attr]
    environment |= {"TRANSLOAD_USERNAME_R_EXAMPLE": "u", "TRANSLOAD_PASSWORD_R_EXAMPLE": "p"}
    assert "environment" in RegistryDirectory(environment=environment).settings_for("r.example").credential.source  # type: ignore[union-attr]
    login = Login.parse(f"r.example=me:{tmp_path / 'key'}")
    found = RegistryDirectory(logins=[login], environment=environment).settings_for("r.example").credential
    assert found is not None
    assert found.password == "from file"
    assert RegistryDirectory(logins=[login], environment=environment).settings_for("other.example").credential is None


def test_a_password_is_never_in_a_repr() -> None:
    found = environment_credential("nvcr.io", {"TRANSLOAD_PASSWORD_NVCR_IO": "secret-key"})
    assert found is not None
    assert found.username == _USER
    assert "secret-key" not in repr(RegistrySettings("nvcr.io", found))


@pytest.mark.parametrize("name", ["USERNAME", "PASSWORD"])
def test_half_a_login_in_the_environment_is_refused(name: str) -> None:
    with pytest.raises(CredentialsUnusable, match="is not set"):
        environment_credential("r.example:5000", {f"TRANSLOAD_{name}_R_EXAMPLE_5000": "x"})


@pytest.mark.parametrize("raw", [b"", b"\n", b"a\nb", b"\xff", b"a\x00b"])
def test_a_password_file_with_anything_else_is_refused(raw: bytes) -> None:
    with pytest.raises(CredentialsUnusable):
        password_from(raw, "FILE")


def test_a_missing_password_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsUnusable, match="no-such-file"):
        Login.parse(f"r.example=u:{tmp_path / 'no-such-file'}").credential()


def test_nobody_is_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(CredentialsUnusable, match="no terminal"):
        Login.parse("r.example=u").credential()


@pytest.mark.parametrize("text", ["", "host", "=u:f", "host=", "host=:secret"])
def test_a_login_of_another_shape_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        Login.parse(text)
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("content", ["not json", "[]", '{"auths": {"r.example": {"auth": "!!!"}}}'])
def test_a_docker_configuration_that_cannot_be_understood_is_an_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(CredentialsUnusable):
        RegistryDirectory(environment={"DOCKER_CONFIG": str(tmp_path)}).settings_for("r.example")


def test_a_credential_store_that_is_not_installed_is_told_only_when_needed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"credsStore": "no-such"}')
    directory = RegistryDirectory(environment={"DOCKER_CONFIG": str(tmp_path)})
    settings = directory.settings_for("r.example")
    assert settings.credential is None
    assert "docker-credential-no-such" in settings.credential_problem


def test_a_failed_helper_s_output_is_not_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    _helper(tmp_path / "bin", "bad", "secret-output", code=1)
    (tmp_path / "config.json").write_text('{"credHelpers": {"r.example": "bad"}}')
    with pytest.raises(CredentialsUnusable, match="helper failed") as caught:
        RegistryDirectory(environment={"DOCKER_CONFIG": str(tmp_path)}).settings_for("r.example")
    assert "secret-output" not in str(caught.value.as_json())


def test_an_identity_token_of_docker_is_taken(tmp_path: Path) -> None:
    entry = {"auth": base64.b64encode(b"00000000-0000-0000-0000-000000000000:").decode(), "identitytoken": "idt"}
    (tmp_path / "config.json").write_text(json.dumps({"auths": {"r.example": entry}}))
    found = RegistryDirectory(environment={"DOCKER_CONFIG": str(tmp_path)}).settings_for("r.example").credential
    assert found is not None
    assert (found.identity_token, found.password) == ("idt", "")


def test_trust_is_per_host(tmp_path: Path) -> None:
    one, every = make_certificates(tmp_path, "one").ca_cert, make_certificates(tmp_path, "every").ca_cert
    arguments = ["--ca-cert", f"a.example:5000={one}", "--ca-cert", str(every), "--insecure", "b.example",
                 "--token-host", "a.example:5000=auth.example"]  # fmt: skip
    first = _run(arguments, host="a.example:5000", DOCKER_CONFIG=str(tmp_path))
    assert (first.ca_cert, first.insecure, first.token_hosts) == (one, False, frozenset({"auth.example"}))
    second = _run(arguments, host="b.example", DOCKER_CONFIG=str(tmp_path))
    assert (second.ca_cert, second.insecure, second.token_hosts) == (every, True, frozenset())


def test_options_come_from_the_environment_too(tmp_path: Path) -> None:
    found = _run([], host="b.example", TRANSLOAD_INSECURE="a.example b.example", DOCKER_CONFIG=str(tmp_path))
    assert found.insecure


@pytest.mark.parametrize(
    "arguments",
    [
        ["--insecure", "http://a.example"],
        ["--insecure", "a.example/path"],
        ["--token-host", "a.example"],
        ["--ca-cert", "/no/such/file"],
        ["--login", "a.example=u:-", "--login", "b.example=u:-"],
        ["--login", "a.example=u:f", "--login", "a.example=v:f"],
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    with pytest.raises(InvalidConfiguration):
        _run(arguments, host="a.example")


def test_a_login_that_came_another_way_goes_before_all_but_an_option(tmp_path: Path) -> None:
    environment = {"TRANSLOAD_USERNAME_R_EXAMPLE": "u", "TRANSLOAD_PASSWORD_R_EXAMPLE": "p"}
    directory = RegistryDirectory(environment=environment)
    assert directory.settings_for("r.example").credential.password == "p"  # type: ignore[union-attr]
    directory.log_in("r.example", Credential("me", "given"))
    assert directory.settings_for("r.example").credential == Credential("me", "given")
    (tmp_path / "key").write_text("from file")
    directory = RegistryDirectory(logins=[Login.parse(f"r.example=me:{tmp_path / 'key'}")], environment=environment)
    directory.log_in("r.example", Credential("me", "given"))
    assert directory.settings_for("r.example").credential.password == "from file"  # type: ignore[union-attr]
