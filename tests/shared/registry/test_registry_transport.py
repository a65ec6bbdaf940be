"""HTTP rules: redirects, retries, encodings, schemes, trust. The registry is the scripted one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path

import pytest

from doubles import image_factory
from doubles.certificates import make_certificates
from doubles.clients import NotingStop, client_of
from doubles.http_doubles import HttpDouble, serving
from doubles.registry_faults import Fault, Reply, Request, answer, gzip_encoded, html, redirect, reset, with_headers
from doubles.scripted_registry import ScriptedRegistry, scripted_registry
from transload.shared import limits
from transload.shared.errors import (
    InsecureRefused,
    NotFoundInRegistry,
    RegistryBusy,
    RegistryProtocolError,
    RegistryUnreachable,
    TransloadError,
)
from transload.shared.image import Descriptor
from transload.shared.registry.push import RegistryPusher
from transload.shared.registry.settings import Credential
from transload.shared.workers import Stop, Stopped

_IMAGE = image_factory.image("x.example/team/app:1", [image_factory.noise_layer("transport", 50_000)])
_LAYER: Descriptor = _IMAGE.image.manifests[0].layers[0]
_USERS = {"alice": "wonder"}


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with scripted_registry() as running:
        running.put(_IMAGE)
        yield running


@dataclass
class Storage(HttpDouble):
    """Object storage behind signed URLs: it answers 400 to whoever brings an Authorization header of his own."""

    content: bytes = _IMAGE.blobs[_LAYER.digest]

    def reply(self, request: Request) -> Reply:
        if "authorization" in request.headers:
            return Reply(400, body=b"<Error>Only one auth mechanism allowed</Error>")
        if "range" in request.headers:
            first = int(request.headers["range"].removeprefix("bytes=").partition("-")[0])
            where = f"bytes {first}-{len(self.content) - 1}/{len(self.content)}"
            return Reply(206, body=self.content[first:]).having(content_range=where)
        return Reply(200, body=self.content)


@pytest.fixture
def storage() -> Iterator[Storage]:
    double = Storage()
    with serving(double):
        yield double


# --- redirects ---


def test_a_login_does_not_follow_a_redirect_to_another_port(storage: Storage) -> None:
    with scripted_registry(users=_USERS) as registry:
        registry.put(_IMAGE)
        registry.faults.append(Fault("GET|HEAD", "/blobs/", redirect(f"{storage.url}/o?X-Sig=abc%2F"), times=None))
        registry.faults[0].skip = 1  # the first request learns that a login is wanted
        with client_of(registry, credential=Credential("alice", "wonder")) as client:
            assert b"".join(client.blob_pieces("team/app", _LAYER)) == storage.content
            assert b"".join(client.blob_pieces("team/app", _LAYER, 1000)) == storage.content[1000:]
            assert client.has_blob("team/app", _LAYER)
    assert {one.method for one in storage.requests} == {"GET", "HEAD"}
    assert {one.query for one in storage.requests} == {"X-Sig=abc%2F"}
    assert all(one.status < 300 and "authorization" not in one.headers for one in storage.requests)


def test_a_login_is_not_picked_up_again_by_a_second_redirect_back(storage: Storage) -> None:
    with scripted_registry(users=_USERS) as registry:
        registry.put(_IMAGE)
        registry.faults.append(Fault("GET", "/blobs/", redirect(f"{storage.url}/o"), skip=1))
        storage.faults.append(Fault("GET", "/o", redirect(f"{registry.url}/v2/team/app/elsewhere")))
        with client_of(registry, credential=Credential("alice", "wonder")) as client, pytest.raises(TransloadError):
            b"".join(client.blob_pieces("team/app", _LAYER))
        (returned,) = registry.asked("GET", "/elsewhere")
    assert "authorization" not in returned.headers


def test_a_login_follows_a_redirect_within_the_same_origin() -> None:
    with scripted_registry(users=_USERS) as registry:
        registry.put(_IMAGE, "moved/app")
        registry.put(_IMAGE)
        moved = redirect(lambda request: request.path.replace("team/", "moved/"))
        registry.faults.append(Fault("GET", "/v2/team/app/blobs/", moved, skip=1))
        with client_of(registry, credential=Credential("alice", "wonder")) as client:
            assert b"".join(client.blob_pieces("team/app", _LAYER)) == _IMAGE.blobs[_LAYER.digest]
        assert "authorization" in registry.asked("GET", "/moved/")[0].headers


def test_a_redirect_from_https_to_http_is_refused(tmp_path: Path, storage: Storage) -> None:
    certificates = make_certificates(tmp_path)
    with scripted_registry(certificates=certificates) as registry:
        registry.put(_IMAGE)
        registry.faults.append(Fault("GET", "/blobs/", redirect(f"{storage.url}/o")))
        with client_of(registry, ca_cert=certificates.ca_cert) as client, pytest.raises(InsecureRefused):
            b"".join(client.blob_pieces("team/app", _LAYER))
    assert storage.requests == []


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/meta-data", "http://[fe80::1]/x"])
def test_a_redirect_to_a_link_local_address_is_refused(registry: ScriptedRegistry, target: str) -> None:
    registry.faults.append(Fault("GET", "/blobs/", redirect(target)))
    with client_of(registry) as client, pytest.raises(InsecureRefused, match="link-local"):
        b"".join(client.blob_pieces("team/app", _LAYER))


@pytest.mark.parametrize(("count", "ends_well"), [(limits.MAX_REDIRECTS, True), (limits.MAX_REDIRECTS + 1, False)])
def test_redirects_are_followed_up_to_a_limit(registry: ScriptedRegistry, count: int, ends_well: bool) -> None:
    registry.faults.append(Fault("GET", "/manifests/", redirect(lambda request: request.path), times=count))
    with client_of(registry) as client:
        if ends_well:
            assert client.get_manifest("team/app", "1") == _IMAGE.image.root
        else:
            with pytest.raises(RegistryProtocolError, match="redirect in a row"):
                client.get_manifest("team/app", "1")
    assert len(registry.asked("GET", "/manifests/")) == limits.MAX_REDIRECTS + 1


def test_a_redirected_put_is_refused(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("PUT", "/manifests/", redirect("/v2/elsewhere/manifests/1")))
    with client_of(registry) as client, pytest.raises(RegistryProtocolError, match="redirect"):
        RegistryPusher(client).put_manifest("team/app", _IMAGE.image.root, "2")


# --- answers that may pass ---


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429, 408])
def test_passing_errors_are_repeated(registry: ScriptedRegistry, status: int) -> None:
    registry.faults.append(Fault("GET", "/manifests/", html(status), times=2))
    stop = NotingStop()
    with client_of(registry, stop=stop) as client:
        assert client.get_manifest("team/app", "1") == _IMAGE.image.root
    first, second = stop.waits
    assert 0 < first < second


def test_a_registry_that_stays_broken_is_named_with_status_and_url(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/manifests/", html(502), times=None))
    with client_of(registry) as client, pytest.raises(RegistryBusy) as caught:
        client.get_manifest("team/app", "1")
    assert f"{registry.url}/v2/team/app/manifests/1" in caught.value.message
    assert "502" in caught.value.message
    assert "an HTML page" in caught.value.message
    assert len(registry.asked("GET", "/manifests/")) == limits.MAX_REQUEST_ATTEMPTS


def test_resets_are_repeated(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/manifests/", reset(), times=2))
    with client_of(registry) as client:
        assert client.get_manifest("team/app", "1") == _IMAGE.image.root


def test_a_registry_that_always_resets_is_given_up(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/manifests/", reset(), times=None))
    with client_of(registry) as client, pytest.raises(RegistryUnreachable, match="broken off"):
        client.get_manifest("team/app", "1")
    assert len(registry.asked("GET", "/manifests/")) == limits.MAX_REQUEST_ATTEMPTS


def test_retry_after_in_seconds_is_waited(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/manifests/", answer(429, retry_after="20")))
    stop = NotingStop()
    with client_of(registry, stop=stop) as client:
        client.get_manifest("team/app", "1")
    assert stop.waits == [20.0]


def test_retry_after_as_a_date_is_waited(registry: ScriptedRegistry) -> None:
    date = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=30), usegmt=True)
    registry.faults.append(Fault("GET", "/manifests/", answer(503, retry_after=date)))
    stop = NotingStop()
    with client_of(registry, stop=stop) as client:
        client.get_manifest("team/app", "1")
    (wait,) = stop.waits
    assert 20 < wait <= 30


@pytest.mark.parametrize("text", ["86400", "Fri, 31 Dec 2100 23:59:59 GMT"])
def test_a_wait_beyond_the_cap_ends_the_run_at_once(registry: ScriptedRegistry, text: str) -> None:
    registry.faults.append(Fault("GET", "/manifests/", answer(429, retry_after=text), times=None))
    stop = NotingStop()
    with client_of(registry, stop=stop) as client, pytest.raises(RegistryBusy, match="asks to wait") as caught:
        client.get_manifest("team/app", "1")
    assert stop.waits == []
    assert "again" in caught.value.hint


@pytest.mark.parametrize("text", ["soon", "-5", ""])
def test_a_retry_after_that_is_none_means_the_usual_wait(registry: ScriptedRegistry, text: str) -> None:
    registry.faults.append(Fault("GET", "/manifests/", answer(429, retry_after=text)))
    with client_of(registry) as client:
        assert client.get_manifest("team/app", "1") == _IMAGE.image.root


def test_a_stop_ends_a_wait(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/manifests/", answer(429, retry_after="100"), times=None))
    stop = Stop()
    with client_of(registry, stop=stop) as client:
        client.transport.base_url  # noqa: B018 - probes
        threading.Timer(0.05, stop.request).start()
        with pytest.raises(Stopped):
            client.get_manifest("team/app", "1")


# --- content ---


def test_an_encoded_body_is_refused(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/blobs/", gzip_encoded()))
    with client_of(registry) as client, pytest.raises(RegistryProtocolError, match="gzip"):
        b"".join(client.blob_pieces("team/app", _LAYER))
    assert registry.asked("GET", "/blobs/")[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("length", ["-5", "abc", "1e3", "5 bytes"])
@pytest.mark.parametrize("what", ["/blobs/", "/manifests/"])
def test_a_length_that_is_no_number_is_refused_and_not_waited_for(
    registry: ScriptedRegistry, what: str, length: str
) -> None:
    registry.faults.append(Fault("GET", what, with_headers(content_length=length)))
    with client_of(registry) as client:
        reads: dict[str, Callable[[], object]] = {
            "/blobs/": lambda: b"".join(client.blob_pieces("team/app", _LAYER)),
            "/manifests/": lambda: client.get_manifest("team/app", "1"),
        }
        with pytest.raises(RegistryProtocolError, match="Content-Length"):
            reads[what]()
    assert len(registry.asked("GET", what)) == 1


def test_an_html_page_with_status_200_is_no_manifest(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/manifests/", html(200)))
    with client_of(registry) as client, pytest.raises(RegistryProtocolError, match="HTML page") as caught:
        client.get_manifest("team/app", "1")
    assert caught.value.facts["status"] == 200
    assert "portal" in caught.value.hint


def test_the_registry_s_own_words_are_quoted_in_one_line(registry: ScriptedRegistry) -> None:
    body = b'{"errors":[{"code":"DENIED","message":"no\\nway\\u001b[31m https://h/p?sig=1"},{"code":"X"}]}'
    registry.faults.append(Fault("GET", "/manifests/", answer(404, body, content_type="application/json")))
    with client_of(registry) as client, pytest.raises(NotFoundInRegistry) as caught:
        client.get_manifest("team/app", "1")
    assert "DENIED: no way [31m https://h/p?***" in caught.value.message


# --- schemes and trust ---


def test_loopback_may_be_plain_http_and_https_is_tried_first(registry: ScriptedRegistry, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    with client_of(registry) as client:
        assert client.transport.base_url == registry.url
    with (
        scripted_registry(certificates=certificates) as secure,
        client_of(secure, ca_cert=certificates.ca_cert) as client,
    ):
        assert client.transport.base_url == secure.url


def test_a_certificate_that_is_not_trusted_is_no_reason_for_plain_http(tmp_path: Path) -> None:
    with scripted_registry(certificates=make_certificates(tmp_path)) as registry:
        with (
            client_of(registry) as client,
            pytest.raises(RegistryUnreachable, match="not trusted") as caught,
        ):
            client.list_tags("team/app")
        assert f"--ca-cert {registry.host}=FILE" in caught.value.hint
        assert registry.requests == []


def test_another_host_is_never_spoken_to_in_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    first_bytes: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                first_bytes.append(connection.recv(3))

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    port = listener.getsockname()[1]
    real = socket.getaddrinfo
    monkeypatch.setattr("socket.getaddrinfo", lambda _host, *rest, **options: real("127.0.0.1", *rest, **options))
    with client_of(f"registry.test:{port}") as client, pytest.raises(RegistryUnreachable):
        client.list_tags("a/b")
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()
    assert first_bytes
    assert all(start[:1] == b"\x16" for start in first_bytes)


def test_insecure_is_for_one_host_only(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(scripted_registry(certificates=make_certificates(tmp_path / name))) for name in "ab"
        )
        first.put(_IMAGE)
        second.put(_IMAGE)
        client = stack.enter_context(client_of(first, insecure=True))
        assert client.list_tags("team/app") == ["1"]
        other = stack.enter_context(client_of(second))
        with pytest.raises(RegistryUnreachable, match="certificate"):
            other.list_tags("team/app")


def test_insecure_does_not_reach_where_the_host_redirects_to(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(scripted_registry(certificates=make_certificates(tmp_path / "a")))
        second = stack.enter_context(scripted_registry(certificates=make_certificates(tmp_path / "b")))
        first.put(_IMAGE)
        target = f"https://localhost:{second.host.rpartition(':')[2]}/v2/"
        first.faults.append(Fault("GET", "/manifests/", redirect(target)))
        client = stack.enter_context(client_of(first, insecure=True))
        with pytest.raises(RegistryUnreachable, match="certificate"):
            client.get_manifest("team/app", "1")
        assert second.requests == []


def test_nobody_there_is_found_at_the_first_attempt() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host = f"127.0.0.1:{listener.getsockname()[1]}"
    stop = NotingStop()
    with client_of(host, stop=stop) as client, pytest.raises(RegistryUnreachable, match="refused") as caught:
        client.list_tags("a/b")
    assert stop.waits == []
    assert caught.value.facts["host"] == host


def test_an_unknown_name_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_args: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    with client_of("no-such-host.test") as client, pytest.raises(RegistryUnreachable, match="cannot be resolved"):
        client.list_tags("a/b")


def test_the_proxy_of_the_environment_is_used_and_its_password_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:proxy-secret@127.0.0.1:{port}")
    with client_of("nvcr.io") as client, pytest.raises(RegistryUnreachable, match="proxy") as caught:
        client.list_tags("nvidia/pytorch")
    assert "proxy-secret" not in str(caught.value.as_json())


def test_a_dead_proxy_does_not_matter_to_what_no_proxy_names(
    registry: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr("socket.getaddrinfo", lambda _host, *rest, **options: real("127.0.0.1", *rest, **options))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "registry.test")
    with client_of(f"registry.test:{registry.host.rpartition(':')[2]}", insecure=True) as client:
        assert client.list_tags("team/app") == ["1"]
