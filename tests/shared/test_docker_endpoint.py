"""Where the daemon is, as the docker command finds it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from transload.shared.docker_endpoint import DEFAULT_URL, Endpoint, find_endpoint
from transload.shared.errors import EngineUnavailable

IDENTITY = hashlib.sha256(b"lab").hexdigest()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment whose docker folder has a context `lab`."""
    endpoint = {"Host": "tcp://lab.example:2376", "SkipTLSVerify": False}
    write(tmp_path / "contexts/meta" / IDENTITY / "meta.json", {"Name": "lab", "Endpoints": {"docker": endpoint}})
    return {"DOCKER_CONFIG": str(tmp_path)}


def write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def test_the_default_is_the_local_socket(environment: dict[str, str]) -> None:
    assert find_endpoint(None, environment) == Endpoint(DEFAULT_URL)
    assert find_endpoint(None, {**environment, "DOCKER_CONTEXT": "default"}) == Endpoint(DEFAULT_URL)


def test_docker_host_outranks_the_context(environment: dict[str, str]) -> None:
    found = find_endpoint(None, {**environment, "DOCKER_HOST": "unix:///other.sock", "DOCKER_CONTEXT": "lab"})
    assert found == Endpoint("unix:///other.sock", None, verifies=False)


def test_what_is_asked_for_outranks_everything(environment: dict[str, str]) -> None:
    found = find_endpoint("unix:///asked.sock", {**environment, "DOCKER_HOST": "unix:///other.sock"})
    assert found.url == "unix:///asked.sock"


def test_tls_settings_of_the_environment(environment: dict[str, str], tmp_path: Path) -> None:
    url = "tcp://lab.example:2376"
    assert find_endpoint(url, {**environment, "DOCKER_TLS_VERIFY": "1"}) == Endpoint(url, tmp_path, verifies=True)
    assert find_endpoint(url, {**environment, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/certs"}) == Endpoint(
        url, Path("/certs"), verifies=True
    )
    assert find_endpoint(url, {**environment, "DOCKER_CERT_PATH": "/certs"}) == Endpoint(
        url, Path("/certs"), verifies=False
    )


def test_the_context_of_the_environment(environment: dict[str, str]) -> None:
    assert find_endpoint(None, {**environment, "DOCKER_CONTEXT": "lab"}) == Endpoint("tcp://lab.example:2376")


def test_the_current_context(environment: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "config.json", {"auths": {}, "currentContext": "lab"})
    assert find_endpoint(None, environment) == Endpoint("tcp://lab.example:2376")


def test_the_certificates_of_a_context(environment: dict[str, str], tmp_path: Path) -> None:
    certificates = tmp_path / "contexts/tls" / IDENTITY / "docker"
    certificates.mkdir(parents=True)
    found = find_endpoint(None, {**environment, "DOCKER_CONTEXT": "lab"})
    assert found == Endpoint("tcp://lab.example:2376", certificates)


def test_a_context_that_is_not_there_is_named(environment: dict[str, str]) -> None:
    with pytest.raises(EngineUnavailable, match="'gone' does not exist"):
        find_endpoint(None, {**environment, "DOCKER_CONTEXT": "gone"})


def test_a_broken_config_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(EngineUnavailable, match=r"config\.json is not JSON"):
        find_endpoint(None, environment)
