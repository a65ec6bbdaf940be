"""Reading from a registry that misbehaves: blobs and manifests."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from doubles import image_factory
from doubles.clients import NotingStop, client_of
from doubles.registry_faults import (
    Change,
    Fault,
    Reply,
    Request,
    Serve,
    answer,
    cut_after,
    endless,
    with_body,
    with_headers,
)
from doubles.scripted_registry import ScriptedRegistry, scripted_registry
from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import (
    ContentMismatch,
    NotFoundInRegistry,
    RegistryProtocolError,
    RegistryUnreachable,
    UnsupportedImage,
)
from transload.shared.image import DOCKER_LIST, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST, Descriptor
from transload.shared.workers import Stop, Stopped

_SIZE = 3 * limits.MIB
_IMAGE = image_factory.image("x.example/team/app:1", [image_factory.noise_layer("reading", _SIZE)])
_BLOB: Descriptor = _IMAGE.image.manifests[0].layers[0]
_RAW = _IMAGE.blobs[_BLOB.digest]
_CUT = 1_500_000


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with scripted_registry() as running:
        running.put(_IMAGE)
        yield running


def _ranges(registry: ScriptedRegistry) -> list[str]:
    return [one.headers.get("range", "") for one in registry.asked("GET", "/blobs/")]


def _read(registry: ScriptedRegistry, start: int = 0) -> bytes:
    with client_of(registry) as client:
        return b"".join(client.blob_pieces("team/app", _BLOB, start))


# --- blobs over broken connections ---


def test_a_blob_comes_in_pieces_of_at_most_a_mebibyte(registry: ScriptedRegistry) -> None:
    with client_of(registry) as client:
        pieces = list(client.blob_pieces("team/app", _BLOB))
    assert b"".join(pieces) == _RAW
    assert max(map(len, pieces)) == limits.MIB


def test_a_blob_can_be_read_from_anywhere(registry: ScriptedRegistry) -> None:
    assert _read(registry, _CUT) == _RAW[_CUT:]
    assert _read(registry, len(_RAW) - 1) == _RAW[-1:]
    assert _ranges(registry) == [f"bytes={_CUT}-", f"bytes={len(_RAW) - 1}-"]


def test_nothing_is_asked_when_nothing_is_missing(registry: ScriptedRegistry) -> None:
    assert _read(registry, len(_RAW)) == b""
    assert _ranges(registry) == []


def test_a_broken_connection_is_resumed_where_it_broke(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/blobs/", cut_after(_CUT), times=2))
    assert _read(registry) == _RAW
    assert _ranges(registry) == ["", f"bytes={_CUT}-", f"bytes={2 * _CUT}-"]


def test_a_resume_answered_with_the_whole_blob_skips_what_is_known(registry: ScriptedRegistry) -> None:
    def whole(_request: Request, _serve: Serve) -> Reply:
        return Reply(200, body=_RAW)

    registry.faults += [Fault("GET", "/blobs/", cut_after(_CUT)), Fault("GET", "/blobs/", whole, times=None)]
    assert _read(registry) == _RAW


def test_a_resume_answered_from_an_earlier_offset_skips_what_is_known(registry: ScriptedRegistry) -> None:
    def earlier(_request: Request, _serve: Serve) -> Reply:
        first = _CUT - 777
        where = f"bytes {first}-{len(_RAW) - 1}/{len(_RAW)}"
        return Reply(206, body=_RAW[first:]).having(content_range=where)

    registry.faults += [Fault("GET", "/blobs/", cut_after(_CUT)), Fault("GET", "/blobs/", earlier)]
    assert _read(registry) == _RAW


def test_a_resume_answered_with_a_short_range_goes_on_from_there(registry: ScriptedRegistry) -> None:
    def short(_request: Request, _serve: Serve) -> Reply:
        last = _CUT + 299_999
        return Reply(206, body=_RAW[_CUT : last + 1]).having(content_range=f"bytes {_CUT}-{last}/{len(_RAW)}")

    registry.faults += [Fault("GET", "/blobs/", cut_after(_CUT)), Fault("GET", "/blobs/", short)]
    assert _read(registry) == _RAW
    assert _ranges(registry)[-1] == f"bytes={_CUT + 300_000}-"


_USELESS: list[tuple[str, Change]] = [
    ("a later offset", with_headers(content_range=f"bytes {_CUT + 9}-{len(_RAW) - 1}/{len(_RAW)}")),
    ("beyond the end", with_headers(content_range=f"bytes {_CUT}-{len(_RAW)}/{len(_RAW)}")),
    ("no Content-Range", with_headers(content_range="")),
    ("not bytes", with_headers(content_range="lines 1-2/3")),
    ("416", answer(416)),
]


@pytest.mark.parametrize("change", [change for _, change in _USELESS], ids=[name for name, _ in _USELESS])
def test_a_useless_range_is_answered_by_reading_from_the_beginning(registry: ScriptedRegistry, change: Change) -> None:
    registry.faults += [Fault("GET", "/blobs/", cut_after(_CUT)), Fault("GET", "/blobs/", change)]
    assert _read(registry) == _RAW
    assert _ranges(registry) == ["", f"bytes={_CUT}-", ""]


@pytest.mark.parametrize(
    "change",
    [
        with_headers(content_range=f"bytes {_CUT}-{len(_RAW)}/{len(_RAW) + 1}"),
        answer(416, content_range="bytes */5"),
    ],
    ids=["206", "416"],
)
def test_a_range_of_a_blob_of_another_size_is_a_mismatch(registry: ScriptedRegistry, change: Change) -> None:
    registry.faults += [Fault("GET", "/blobs/", cut_after(_CUT)), Fault("GET", "/blobs/", change)]
    with pytest.raises(ContentMismatch):
        _read(registry)


def test_a_206_that_was_not_asked_for_is_refused(registry: ScriptedRegistry) -> None:
    part = answer(206, b"x", content_range=f"bytes 5-5/{len(_RAW)}")
    registry.faults.append(Fault("GET", "/blobs/", part))
    with pytest.raises(RegistryProtocolError, match="not asked for"):
        _read(registry)


def test_a_blob_that_breaks_at_one_place_for_ever_is_given_up(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/blobs/", cut_after(100), times=None))
    stop = NotingStop()
    with client_of(registry, stop=stop) as client, pytest.raises(RegistryUnreachable) as caught:
        list(client.blob_pieces("team/app", _BLOB))
    attempts = limits.MAX_RESUMES_WITHOUT_PROGRESS + 1
    assert len(_ranges(registry)) == attempts
    assert f"byte {100 * attempts:,}" in caught.value.message
    assert stop.waits == sorted(stop.waits)


def test_progress_pays_for_more_breaks(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/blobs/", cut_after(limits.MIN_PROGRESS_BYTES), times=None))
    assert _read(registry) == _RAW
    assert len(_ranges(registry)) > limits.MAX_RESUMES_WITHOUT_PROGRESS + 1


@pytest.mark.parametrize("extra", [-1, 1])
def test_a_blob_of_another_size_is_found_before_its_bytes_are_read(registry: ScriptedRegistry, extra: int) -> None:
    registry.faults.append(Fault("GET", "/blobs/", with_body(lambda raw: raw[:extra] if extra < 0 else raw + b"x")))
    with client_of(registry) as client, pytest.raises(ContentMismatch, match=f"{len(_RAW) + extra:,} bytes"):
        next(client.blob_pieces("team/app", _BLOB))


def test_an_endless_body_is_left_after_the_blob_s_size(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/blobs/", endless()))
    with pytest.raises(ContentMismatch, match="longer"):
        _read(registry)


def test_a_stop_ends_a_transfer(registry: ScriptedRegistry) -> None:
    stop = Stop()
    with client_of(registry, stop=stop) as client:
        pieces = client.blob_pieces("team/app", _BLOB)
        next(pieces)
        stop.request()
        with pytest.raises(Stopped):
            next(pieces)


def test_connections_are_used_again(registry: ScriptedRegistry) -> None:
    with client_of(registry) as client:
        for _ in range(5):
            client.get_manifest("team/app", "1")
            b"".join(client.blob_pieces("team/app", _BLOB))
            client.has_blob("team/app", _BLOB)
        pool = client.transport._checked._adapter.poolmanager.connection_from_url(registry.url)
    assert pool.num_connections == 1


def test_a_client_counts_its_requests_from_many_threads(registry: ScriptedRegistry) -> None:
    with client_of(registry) as client:
        threads = [threading.Thread(target=client.has_blob, args=("team/app", _BLOB)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert client.requests_made == len(registry.requests) + 1  # and the try over https


# --- small blobs ---


def test_a_small_blob_is_verified(registry: ScriptedRegistry) -> None:
    config = _IMAGE.image.manifests[0].config
    with client_of(registry) as client:
        assert client.get_small_blob("team/app", config, limits.MAX_CONFIG_BYTES) == _IMAGE.blobs[config.digest]
        with pytest.raises(RegistryProtocolError, match="at most 3 are accepted"):
            client.get_small_blob("team/app", config, 3)
        flip = with_body(lambda raw: bytes([raw[0] ^ 1]) + raw[1:])
        registry.faults.append(Fault("GET", "/blobs/", flip))
        with pytest.raises(ContentMismatch, match="another digest"):
            client.get_small_blob("team/app", config, limits.MAX_CONFIG_BYTES)


def test_a_sha512_blob_is_verified_as_one(registry: ScriptedRegistry) -> None:
    raw = b"a layer of another algorithm"
    digest = Digest("sha512", hashlib.sha512(raw).hexdigest())
    registry.repositories["team/app"].blobs[str(digest)] = raw
    descriptor = Descriptor("application/octet-stream", digest, len(raw))
    with client_of(registry) as client:
        assert client.get_small_blob("team/app", descriptor, 100) == raw
        registry.faults.append(Fault("GET", "/blobs/", with_body(bytes.upper)))
        with pytest.raises(ContentMismatch):
            client.get_small_blob("team/app", descriptor, 100)


def test_a_missing_blob_is_named(registry: ScriptedRegistry) -> None:
    lost = replace(_BLOB, digest=Digest.of(b"lost"))
    with client_of(registry) as client:
        assert not client.has_blob("team/app", lost)
        with pytest.raises(NotFoundInRegistry, match=str(lost.digest)):
            list(client.blob_pieces("team/app", lost))


def test_a_blob_of_another_length_does_not_count_as_there(registry: ScriptedRegistry) -> None:
    registry.repositories["team/app"].blobs[str(_BLOB.digest)] = b"short"
    with client_of(registry) as client:
        assert not client.has_blob("team/app", _BLOB)


# --- manifests ---


@pytest.mark.parametrize("docker", [False, True], ids=["OCI", "Docker"])
def test_all_four_kinds_of_documents_are_asked_for(docker: bool) -> None:
    layer = image_factory.noise_layer("kinds")
    images = [
        image_factory.image("x.example/a:1", [layer], docker=docker, platform=p) for p in ("linux/amd64", "linux/arm64")
    ]
    index = image_factory.index("x.example/a:1", images, docker=docker)
    with scripted_registry(is_strict_about_accept=True) as registry:
        registry.put(index, "a", "all")
        registry.put(images[0], "a", "one")
        with client_of(registry) as client:
            assert client.get_manifest("a", "all") == index.image.root
            assert client.get_manifest("a", "one") == images[0].image.root
            assert client.get_manifest("a", str(images[1].image.digest)) == images[1].image.root
            assert client.head_manifest("a", "all") == index.image.digest
    assert {index.image.root.media_type, images[0].image.root.media_type} == (
        {DOCKER_LIST, DOCKER_MANIFEST} if docker else {OCI_INDEX, OCI_MANIFEST}
    )


@pytest.mark.parametrize("version", ["1", str(_IMAGE.image.digest)])
def test_a_changed_manifest_is_a_mismatch(registry: ScriptedRegistry, version: str) -> None:
    registry.faults.append(Fault("GET", "/manifests/", with_body(lambda raw: raw + b" ")))
    with client_of(registry) as client, pytest.raises(ContentMismatch) as caught:
        client.get_manifest("team/app", version)
    assert caught.value.facts["expected"] == str(_IMAGE.image.digest)


def test_a_digest_is_checked_even_if_the_header_agrees_with_the_changed_bytes(registry: ScriptedRegistry) -> None:
    def lie(_request: Request, serve: Serve) -> Reply:
        reply = serve()
        raw = reply.body + b" "
        return replace(reply, body=raw).having(docker_content_digest=str(Digest.of(raw)))

    registry.faults.append(Fault("GET", "/manifests/", lie))
    with client_of(registry) as client, pytest.raises(ContentMismatch):
        client.get_manifest("team/app", str(_IMAGE.image.digest))


def test_a_registry_may_leave_the_digest_header_out(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET|HEAD", "/manifests/", with_headers(docker_content_digest=""), times=None))
    with client_of(registry) as client:
        assert client.get_manifest("team/app", "1").digest == _IMAGE.image.digest
        assert client.head_manifest("team/app", "1") == _IMAGE.image.digest


def test_a_digest_header_that_is_none_is_refused(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/manifests/", with_headers(docker_content_digest="sha256:../../x")))
    with client_of(registry) as client, pytest.raises(RegistryProtocolError, match="no digest"):
        client.get_manifest("team/app", "1")


@pytest.mark.parametrize("served_as", ["application/json", "text/plain; charset=utf-8", ""])
def test_an_untyped_answer_is_what_its_mediatype_field_says(registry: ScriptedRegistry, served_as: str) -> None:
    registry.faults.append(Fault("GET", "/manifests/", with_headers(content_type=served_as)))
    with client_of(registry) as client:
        assert client.get_manifest("team/app", "1") == _IMAGE.image.root


def test_schema_1_is_recognised(registry: ScriptedRegistry) -> None:
    kind = "application/vnd.docker.distribution.manifest.v1+prettyjws"
    old = answer(200, b'{"schemaVersion": 1}', content_type=kind, docker_content_digest=str(Digest.of(b"payload")))
    registry.faults.append(Fault("GET", "/manifests/", old))
    with client_of(registry) as client, pytest.raises(UnsupportedImage, match="schema 1"):
        client.get_manifest("team/app", "1")


def test_a_manifest_without_end_is_refused(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/manifests/", endless()))
    with client_of(registry) as client, pytest.raises(RegistryProtocolError, match="accepted here"):
        client.get_manifest("team/app", "1")


def test_a_manifest_that_breaks_off_is_asked_for_again(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("GET", "/manifests/", cut_after(10), times=2))
    with client_of(registry) as client:
        assert client.get_manifest("team/app", "1") == _IMAGE.image.root


def test_missing_names_are_told_apart_from_trouble(registry: ScriptedRegistry) -> None:
    with client_of(registry) as client:
        assert client.head_manifest("team/app", "no-such-tag") is None
        assert client.head_manifest("no/repository", "1") is None
        with pytest.raises(
            NotFoundInRegistry, match=f"The registry does not have {registry.host}/team/app:2: MANIFEST_UNKNOWN"
        ):
            client.get_manifest("team/app", "2")


def test_a_registry_without_head_is_asked_in_full(registry: ScriptedRegistry) -> None:
    registry.faults.append(Fault("HEAD", "/manifests/", answer(405), times=None))
    with client_of(registry) as client:
        assert client.head_manifest("team/app", "1") == _IMAGE.image.digest
        assert client.head_manifest("team/app", "2") is None
