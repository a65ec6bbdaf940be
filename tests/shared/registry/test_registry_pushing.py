"""Writing to a registry that misbehaves: mounts, uploads, manifests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from doubles import image_factory
from doubles.certificates import make_certificates
from doubles.clients import NotingStop, client_of
from doubles.http_doubles import HttpDouble, serving
from doubles.registry_faults import Change, Fault, Reply, Request, Serve, answer, html, reset, with_headers
from doubles.scripted_registry import ScriptedRegistry, scripted_registry
from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import (
    BlobDamaged,
    ContentMismatch,
    InsecureRefused,
    NotFoundInRegistry,
    RegistryLoginRefused,
    RegistryProtocolError,
    RegistryUnreachable,
)
from transload.shared.image import Descriptor
from transload.shared.registry.push import RegistryPusher
from transload.shared.registry.settings import Credential
from transload.shared.workers import Stop, Stopped

_RAW = image_factory.noise_layer("pushing", 3 * limits.MIB).raw
_BLOB = Descriptor("application/octet-stream", Digest.of(_RAW), len(_RAW))
_IMAGE = image_factory.image("x.example/team/app:1", [image_factory.noise_layer("pushed")])
_PUT_BLOB = "/blobs/uploads/."


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with scripted_registry() as running:
        yield running


@pytest.fixture
def pusher(registry: ScriptedRegistry) -> Iterator[RegistryPusher]:
    with client_of(registry) as client:
        yield RegistryPusher(client)


def _pieces(raw: bytes = _RAW) -> Iterator[bytes | memoryview]:
    view = memoryview(raw)
    return (view[start : start + 1_000_000] for start in range(0, len(raw), 1_000_000))


def _stored(registry: ScriptedRegistry, path: str = "team/app") -> bytes | None:
    repository = registry.repositories.get(path)
    return repository.blobs.get(str(_BLOB.digest)) if repository else None


# --- uploads ---


def test_a_blob_is_sent_in_one_request_with_its_length(registry: ScriptedRegistry, pusher: RegistryPusher) -> None:
    pusher.upload_blob("team/app", _BLOB, _pieces)
    assert _stored(registry) == _RAW
    assert [one.method for one in registry.requests if "uploads" in one.path] == ["POST", "PUT"]
    assert registry.asked("PUT")[0].headers["content-length"] == str(len(_RAW))


def test_an_empty_blob_can_be_sent(registry: ScriptedRegistry, pusher: RegistryPusher) -> None:
    empty = Descriptor("application/octet-stream", Digest.of(b""), 0)
    pusher.upload_blob("team/app", empty, lambda: iter(()))
    assert registry.repositories["team/app"].blobs == {str(empty.digest): b""}


@pytest.mark.parametrize(
    "location",
    [
        "{url}{path}?{query}",
        "{path}?{query}",
        "?{query}",
        "{path}?{query}#part",
        "{path}?{query}&digest_hint=a%2Bb%3D",
        "{path}?x=1&{query}",
    ],
)
def test_every_form_of_location_is_followed_with_its_query(
    registry: ScriptedRegistry, pusher: RegistryPusher, location: str
) -> None:
    def rewrite(request: Request, serve: Serve) -> Reply:
        reply = serve()
        path, _, query = reply.header("Location").partition("?")
        if location.startswith("?"):
            query = f"{query}&name={path.rpartition('/')[2]}"
        return reply.having(location=location.format(url=registry.url, path=path, query=query))

    def named(request: Request, _serve: Serve) -> Reply:
        name = dict(part.split("=") for part in request.query.split("&"))["name"]
        return registry.reply(Request("PUT", f"{request.path}{name}", request.query, request.headers, request.body))

    registry.faults.append(Fault("POST", "/uploads/", rewrite))
    if location.startswith("?"):
        registry.faults.append(Fault("PUT", "/uploads/$", named))
    pusher.upload_blob("team/app", _BLOB, _pieces)
    assert _stored(registry) == _RAW
    sent = registry.asked("PUT")[0].query
    assert "_state=a%2Bb%3D0" in sent  # as given, not decoded and encoded again
    assert sent.endswith(f"&digest={_BLOB.digest}")


def test_a_location_on_another_host_gets_the_bytes_and_no_login() -> None:
    class Bucket(HttpDouble):
        def reply(self, request: Request) -> Reply:
            return Reply(201)

    bucket = Bucket()
    with serving(bucket), scripted_registry(users={"a": "secret-b"}) as registry:
        registry.faults.append(Fault("POST", "/uploads/", with_headers(location=f"{bucket.url}/up?sig=1"), skip=1))
        with client_of(registry, credential=Credential("a", "secret-b")) as client:
            RegistryPusher(client).upload_blob("team/app", _BLOB, _pieces)
    (sent,) = bucket.requests
    assert sent.body == _RAW
    assert sent.query == f"sig=1&digest={_BLOB.digest}"
    assert "authorization" not in sent.headers


def test_a_location_that_falls_to_http_is_refused_and_the_header_named(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    with scripted_registry(certificates=certificates) as registry:
        downgrade = with_headers(location=f"http://{registry.host}/v2/team/app/blobs/uploads/1")
        registry.faults.append(Fault("POST", "/uploads/", downgrade))
        with (
            client_of(registry, ca_cert=certificates.ca_cert) as client,
            pytest.raises(InsecureRefused, match="Location header"),
        ):
            RegistryPusher(client).upload_blob("team/app", _BLOB, _pieces)
        assert registry.asked("PUT") == []


def test_a_location_at_a_link_local_address_is_refused(registry: ScriptedRegistry, pusher: RegistryPusher) -> None:
    registry.faults.append(Fault("POST", "/uploads/", with_headers(location="http://169.254.169.254/x")))
    with pytest.raises(InsecureRefused, match="link-local"):
        pusher.upload_blob("team/app", _BLOB, _pieces)


def test_an_upload_without_a_location_is_refused(registry: ScriptedRegistry, pusher: RegistryPusher) -> None:
    registry.faults.append(Fault("POST", "/uploads/", with_headers(location="")))
    with pytest.raises(RegistryProtocolError, match="without a Location"):
        pusher.upload_blob("team/app", _BLOB, _pieces)


@pytest.mark.parametrize("change", [reset(), html(502), answer(401), answer(404), answer(429)])
def test_what_may_pass_is_tried_again_from_the_beginning(
    registry: ScriptedRegistry, pusher: RegistryPusher, change: Change
) -> None:
    registry.faults.append(Fault("PUT", _PUT_BLOB, change))
    pusher.upload_blob("team/app", _BLOB, _pieces)
    assert _stored(registry) == _RAW
    assert len(registry.asked("POST")) == 2


def test_a_proxy_that_limits_bodies_is_met_with_pieces(
    registry: ScriptedRegistry, pusher: RegistryPusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UPLOAD_PIECE_BYTES", 900_000)
    registry.faults.append(Fault("PUT|PATCH", _PUT_BLOB, html(413), times=None, least_body_bytes=1_000_000))
    pusher.upload_blob("team/app", _BLOB, _pieces)
    assert _stored(registry) == _RAW
    ranges = [one.headers["content-range"] for one in registry.asked("PATCH")]
    assert ranges[:2] == ["0-899999", "900000-1799999"]
    assert ranges[-1].endswith(f"-{len(_RAW) - 1}")


def test_a_proxy_that_refuses_pieces_too_is_named(registry: ScriptedRegistry, pusher: RegistryPusher) -> None:
    registry.faults.append(Fault("PUT|PATCH", _PUT_BLOB, html(413), times=None, least_body_bytes=1_000))
    with pytest.raises(RegistryProtocolError, match="too large") as caught:
        pusher.upload_blob("team/app", _BLOB, _pieces)
    assert str(_BLOB.digest) in caught.value.message
    assert f"{len(_RAW):,} bytes" in caught.value.message
    assert "client_max_body_size" in caught.value.hint
    assert len(registry.asked("PUT|PATCH")) == 2


def test_an_upload_that_always_breaks_is_given_up_with_where_it_broke(
    registry: ScriptedRegistry, pusher: RegistryPusher
) -> None:
    registry.faults.append(Fault("PUT|PATCH", _PUT_BLOB, reset(), times=None))
    with pytest.raises(RegistryUnreachable, match=f"broke after .* bytes.*{limits.MAX_UPLOAD_ATTEMPTS} attempts") as it:
        pusher.upload_blob("team/app", _BLOB, _pieces)
    assert it.value.facts["digest"] == str(_BLOB.digest)
    assert len(registry.asked("POST")) == limits.MAX_UPLOAD_ATTEMPTS
    assert registry.asked("PATCH"), "what breaks twice is tried in pieces"


@pytest.mark.parametrize("status", [401, 404])
def test_a_project_that_is_not_there_ends_the_upload_before_a_byte_is_sent(status: int) -> None:
    with scripted_registry(users={"a": "b"}, wants_tokens=True) as registry:
        body = b'{"errors":[{"code":"UNAUTHORIZED","message":"project ghost not found"}]}'
        challenge = f'Bearer realm="{registry.url}/token"'
        denied = answer(status, body, content_type="application/json", www_authenticate=challenge)
        registry.faults.append(Fault("POST", "/v2/ghost/", denied, times=None))
        with client_of(registry, credential=Credential("a", "b")) as client:
            pusher = RegistryPusher(client)
            with pytest.raises((RegistryLoginRefused, NotFoundInRegistry)) as caught:
                pusher.upload_blob("ghost/app", _BLOB, _pieces)
            assert "project ghost not found" in caught.value.message
            assert caught.value.facts["status"] == status
            pusher.upload_blob("team/app", _BLOB, _pieces)
        assert registry.asked("PUT", "/ghost/") == []
        assert _stored(registry) == _RAW


def test_a_token_is_there_before_the_body_is_sent() -> None:
    with scripted_registry(users={"a": "b"}, wants_tokens=True) as registry:
        with client_of(registry, credential=Credential("a", "b")) as client:
            RegistryPusher(client).upload_blob("team/app", _BLOB, _pieces)
        assert [one.status for one in registry.asked("PUT")] == [201]
        scopes = [one.query for one in registry.asked("GET", "^/token$")]
    assert scopes == ["service=scripted&scope=repository:team/app:pull,push"]


def test_a_token_that_dies_during_an_upload_is_renewed() -> None:
    with scripted_registry(users={"a": "b"}, wants_tokens=True, token_uses=1) as registry:
        with client_of(registry, credential=Credential("a", "b")) as client:
            stop = client.transport.stop
            registry.faults.append(Fault("PUT", _PUT_BLOB, _reviving(registry), skip=1))
            RegistryPusher(client).upload_blob("team/app", _BLOB, _pieces)
        assert isinstance(stop, NotingStop)
        assert _stored(registry) == _RAW


def _reviving(registry: ScriptedRegistry) -> Change:
    """The second PUT comes with a token that is still good."""

    def change(request: Request, serve: Serve) -> Reply:
        registry.tokens[request.headers["authorization"].removeprefix("Bearer ")] = 1
        return serve()

    return change


def test_a_blob_that_the_registry_calls_by_another_digest_is_a_mismatch(
    registry: ScriptedRegistry, pusher: RegistryPusher
) -> None:
    other = with_headers(docker_content_digest=str(Digest.of(b"other")))
    registry.faults.append(Fault("PUT", _PUT_BLOB, other))
    with pytest.raises(ContentMismatch):
        pusher.upload_blob("team/app", _BLOB, _pieces)


# --- streams that fail ---


def _failing_after(count: int, error: BaseException) -> Callable[[], Iterator[bytes | memoryview]]:
    def stream() -> Iterator[bytes | memoryview]:
        yield from itertools.islice(_pieces(), count)
        raise error

    return stream


@pytest.mark.parametrize("count", [0, 1, 3, 4], ids=["at once", "early", "late", "after the last byte"])
@pytest.mark.parametrize("error", [BlobDamaged("bad"), OSError(5, "Input/output error"), KeyError("bug")])
def test_a_stream_that_fails_breaks_the_connection(
    registry: ScriptedRegistry, pusher: RegistryPusher, count: int, error: BaseException
) -> None:
    with pytest.raises(type(error)) as caught:
        pusher.upload_blob("team/app", _BLOB, _failing_after(count, error))
    assert caught.value is error
    pusher.close()
    registry.settle()
    assert len(registry.asked("POST")) == 1, "a failed stream is not tried again"
    assert registry.asked("PUT") == [], "no whole request may have arrived"
    assert _stored(registry) is None


@pytest.mark.parametrize("change", [lambda raw: raw[:-1], lambda raw: raw + b"x"], ids=["short", "long"])
def test_a_stream_of_another_length_is_a_bug_and_never_a_whole_request(
    registry: ScriptedRegistry, pusher: RegistryPusher, change: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(RuntimeError, match="another length"):
        pusher.upload_blob("team/app", _BLOB, lambda: _pieces(change(_RAW)))
    pusher.close()
    registry.settle()
    assert registry.asked("PUT") == []


def test_a_stop_breaks_an_upload(registry: ScriptedRegistry) -> None:
    stop = Stop()

    def stream() -> Iterator[bytes | memoryview]:
        for piece in _pieces():
            yield piece
            stop.request()

    with client_of(registry, stop=stop) as client, pytest.raises(Stopped):
        RegistryPusher(client).upload_blob("team/app", _BLOB, stream)
    registry.settle()
    assert registry.asked("PUT") == []


def test_a_source_may_use_its_buffer_again(registry: ScriptedRegistry, pusher: RegistryPusher) -> None:
    def stream() -> Iterator[bytes | memoryview]:
        buffer = bytearray(700_000)
        for start in range(0, len(_RAW), len(buffer)):
            piece = _RAW[start : start + len(buffer)]
            buffer[: len(piece)] = piece
            yield memoryview(buffer)[: len(piece)]
        buffer[:] = bytes(len(buffer))

    pusher.upload_blob("team/app", _BLOB, stream)
    assert _stored(registry) == _RAW


# --- mounts ---


def test_a_mount_spares_the_upload(registry: ScriptedRegistry, pusher: RegistryPusher) -> None:
    pusher.upload_blob("other/app", _BLOB, _pieces)
    assert pusher.mount_blob("team/app", _BLOB.digest, "other/app")
    assert _stored(registry) == _RAW
    assert registry.asked("POST")[-1].query == f"mount={_BLOB.digest}&from=other/app"


def test_a_mount_answered_with_an_upload_is_cancelled(registry: ScriptedRegistry, pusher: RegistryPusher) -> None:
    assert not pusher.mount_blob("team/app", _BLOB.digest, "other/app")
    assert len(registry.asked("DELETE", _PUT_BLOB)) == 1
    assert registry._uploads == {}


@pytest.mark.parametrize("change", [*(answer(status) for status in (400, 401, 403, 404, 405, 429, 500)), reset()])
def test_a_refused_mount_is_no_error_and_no_wait(registry: ScriptedRegistry, change: Change) -> None:
    stop = NotingStop()
    with client_of(registry, stop=stop) as client:
        registry.faults.append(Fault("POST", "/uploads/", change, times=None))
        assert RegistryPusher(client).mount_blob("team/app", _BLOB.digest, "other/app") is False
    assert stop.waits == []


# --- manifests ---


def _put_blobs(registry: ScriptedRegistry) -> None:
    registry.put(_IMAGE, tag="old")
    registry.repositories["team/app"].manifests.clear()


def test_a_manifest_is_put_byte_for_byte(registry: ScriptedRegistry, pusher: RegistryPusher) -> None:
    _put_blobs(registry)
    pusher.put_manifest("team/app", _IMAGE.image.root, str(_IMAGE.image.digest))
    pusher.put_manifest("team/app", _IMAGE.image.root, "1")
    root = _IMAGE.image.root
    assert registry.repositories["team/app"].manifests[str(root.digest)] == (root.media_type, root.raw)
    assert registry.repositories["team/app"].tags["1"] == str(root.digest)


def test_a_manifest_that_the_registry_changes_is_a_mismatch(registry: ScriptedRegistry, pusher: RegistryPusher) -> None:
    _put_blobs(registry)
    registry.faults.append(Fault("PUT", "/manifests/", with_headers(docker_content_digest=f"sha256:{'0' * 64}")))
    with pytest.raises(ContentMismatch, match="000"):
        pusher.put_manifest("team/app", _IMAGE.image.root, "1")


def test_missing_blobs_are_named_in_the_facts(registry: ScriptedRegistry, pusher: RegistryPusher) -> None:
    with pytest.raises(RegistryProtocolError, match="MANIFEST_BLOB_UNKNOWN") as caught:
        pusher.put_manifest("team/app", _IMAGE.image.root, "1")
    manifest = _IMAGE.image.manifests[0]
    assert caught.value.facts["missing_blobs"] == [str(manifest.config.digest), str(manifest.layers[0].digest)]
    assert caught.value.facts["status"] == 400


@pytest.mark.parametrize("status", [400, 409, 412])
def test_an_immutable_tag_is_told_with_its_status_and_codes(
    registry: ScriptedRegistry, pusher: RegistryPusher, status: int
) -> None:
    body = b'{"errors":[{"code":"TAG_INVALID","message":"The image tag \'1\' already exists"}]}'
    registry.faults.append(Fault("PUT", "/manifests/", answer(status, body, content_type="application/json")))
    with pytest.raises(RegistryProtocolError, match="already exists") as caught:
        pusher.put_manifest("team/app", _IMAGE.image.root, "1")
    assert caught.value.facts["status"] == status
    assert caught.value.facts["codes"] == ["TAG_INVALID"]


def test_a_manifest_is_put_again_after_what_may_pass(registry: ScriptedRegistry, pusher: RegistryPusher) -> None:
    _put_blobs(registry)
    registry.faults += [Fault("PUT", "/manifests/", reset()), Fault("PUT", "/manifests/", html(503))]
    pusher.put_manifest("team/app", _IMAGE.image.root, "1")
    assert registry.put_order == ["1"]
