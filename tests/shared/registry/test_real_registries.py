"""The real docker-registry: plain, TLS, htpasswd, tokens; pulled, pushed, resumed, mounted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from doubles import image_factory
from doubles.certificates import Certificates, make_certificates
from doubles.clients import client_of
from doubles.image_factory import ImageDouble
from doubles.registries import RunningRegistry, Storage, htpasswd_registry, plain_registry, tls_registry, token_registry
from transload.shared.digests import Digest
from transload.shared.errors import (
    NotFoundInRegistry,
    RegistryLoginRefused,
    RegistryProtocolError,
    RegistryUnreachable,
)
from transload.shared.registry.client import RegistryClient
from transload.shared.registry.push import RegistryPusher
from transload.shared.registry.settings import Credential

pytestmark = pytest.mark.engine

_LAYERS = [image_factory.noise_layer(f"real-{number}", 200_000) for number in range(8)]
_IMAGE = image_factory.image("x.example/team/app:1", _LAYERS)
_ARM = image_factory.image("x.example/team/app:1", _LAYERS[:2], platform="linux/arm64")
_INDEX = image_factory.index("x.example/team/app:all", [_IMAGE, _ARM], attestation=True)
_USERS = {"alice": "wonder"}
_ALICE = Credential("alice", "wonder")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    filled = Storage(tmp_path_factory.mktemp("storage"))
    for image in (_IMAGE, _INDEX):
        filled.put(image)
        filled.put(image, f"public/{image.image.name.path}")
    return filled


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, storage: Storage) -> Iterator[RunningRegistry]:
    with plain_registry(tmp_path_factory.mktemp("plain"), storage=storage.folder) as registry:
        yield registry


@pytest.fixture(scope="module")
def secure(
    tmp_path_factory: pytest.TempPathFactory, storage: Storage, certificates: Certificates
) -> Iterator[RunningRegistry]:
    with tls_registry(tmp_path_factory.mktemp("tls"), certificates=certificates, storage=storage.folder) as registry:
        yield registry


@pytest.fixture
def tokens(tmp_path: Path, storage: Storage, certificates: Certificates) -> Iterator[RunningRegistry]:
    with token_registry(tmp_path, _USERS, certificates=certificates, storage=storage.folder) as registry:
        yield registry


def _pull(client: RegistryClient, image: ImageDouble, path: str = "team/app") -> None:
    """Everything of an image, compared byte by byte."""
    tag = image.image.name.tag or ""
    assert client.get_manifest(path, tag) == image.image.root
    assert client.head_manifest(path, tag) == image.image.digest
    documents = {document.digest for document in image.image.documents}
    for descriptor in image.image.descriptors():
        if descriptor.digest in documents:
            assert client.get_manifest(path, str(descriptor.digest)).raw == image.blobs[descriptor.digest]
        else:
            assert b"".join(client.blob_pieces(path, descriptor)) == image.blobs[descriptor.digest]


def _halves(raw: bytes) -> Iterator[bytes | memoryview]:
    return iter([raw[:100], memoryview(raw)[100:]])


def _push(client: RegistryClient, image: ImageDouble, path: str, tag: str) -> None:
    pusher = RegistryPusher(client)
    documents = {document.digest for document in image.image.documents}
    for descriptor in image.image.descriptors():
        if descriptor.digest not in documents and not client.has_blob(path, descriptor):
            pusher.upload_blob(path, descriptor, partial(_halves, image.blobs[descriptor.digest]))
    for document in reversed(image.image.documents):
        pusher.put_manifest(path, document, str(document.digest))
    pusher.put_manifest(path, image.image.root, tag)


@pytest.mark.parametrize("image", [_IMAGE, _INDEX], ids=["image", "index"])
def test_plain_pull(plain: RunningRegistry, image: ImageDouble) -> None:
    with client_of(plain) as client:
        _pull(client, image)
        assert sorted(client.list_tags("team/app")) == ["1", "all"]


@pytest.mark.parametrize("image", [_IMAGE, _INDEX], ids=["image", "index"])
def test_what_is_pushed_has_the_same_digest(plain: RunningRegistry, image: ImageDouble) -> None:
    with client_of(plain) as client:
        _push(client, image, f"pushed/{'index' if image.image.is_index else 'image'}", image.image.name.tag or "")
        _pull(client, image, f"pushed/{'index' if image.image.is_index else 'image'}")


def test_a_range_is_served_from_any_offset(plain: RunningRegistry) -> None:
    layer = _IMAGE.image.manifests[0].layers[0]
    raw = _IMAGE.blobs[layer.digest]
    with client_of(plain) as client:
        for start in (1, 1000, len(raw) - 1):
            assert b"".join(client.blob_pieces("team/app", layer, start)) == raw[start:]
    assert plain.requests(r'GET /v2/team/app/blobs/\S+ HTTP/1.1" 206')


def test_a_blob_is_mounted_from_another_repository(plain: RunningRegistry, storage: Storage) -> None:
    layer = _IMAGE.image.manifests[0].layers[0]
    with client_of(plain) as client:
        pusher = RegistryPusher(client)
        assert pusher.mount_blob("mounted/app", layer.digest, "team/app")
        assert client.has_blob("mounted/app", layer)
        assert not pusher.mount_blob("mounted/app", Digest.of(b"nowhere"), "team/app")


def test_an_index_without_its_children_is_refused(plain: RunningRegistry) -> None:
    with client_of(plain) as client, pytest.raises(RegistryProtocolError) as caught:
        RegistryPusher(client).put_manifest("childless/app", _INDEX.image.root, "1")
    missing = caught.value.facts["missing_blobs"]
    assert isinstance(missing, list)
    assert str(_IMAGE.image.digest) in missing


def test_tls_needs_the_authority_s_certificate(secure: RunningRegistry) -> None:
    with client_of(secure) as client, pytest.raises(RegistryUnreachable, match="not trusted"):
        client.list_tags("team/app")
    with client_of(secure, ca_cert=secure.ca_cert) as client:
        _pull(client, _IMAGE)


def test_insecure_allows_any_certificate(secure: RunningRegistry) -> None:
    with client_of(secure, insecure=True) as client:
        _pull(client, _IMAGE)


def test_htpasswd_compares_user_and_password_byte_for_byte(tmp_path: Path, storage: Storage) -> None:
    user, password = "$oauthtoken", 'k:$%"+é&=#\\ end'
    with htpasswd_registry(tmp_path, {user: password}, storage=storage.folder) as registry:
        with client_of(registry, credential=Credential(user, password)) as client:
            _pull(client, _IMAGE)
            _push(client, _IMAGE, "basic/app", "1")
        for credential in (None, Credential(user, password[:-1]), Credential("oauthtoken", password)):
            with client_of(registry, credential=credential) as client, pytest.raises(RegistryLoginRefused):
                client.list_tags("team/app")


def test_tokens_for_pull_and_push(tokens: RunningRegistry) -> None:
    with client_of(tokens, credential=_ALICE, ca_cert=tokens.ca_cert) as client:
        _pull(client, _INDEX)
        _push(client, _IMAGE, "tokens/app", "1")
        assert RegistryPusher(client).mount_blob("tokens/other", _IMAGE.image.manifests[0].layers[0].digest, "team/app")


def test_anybody_may_pull_what_is_public_and_nothing_else(tokens: RunningRegistry) -> None:
    with client_of(tokens, ca_cert=tokens.ca_cert) as client:
        _pull(client, _IMAGE, "public/team/app")
        with pytest.raises(RegistryLoginRefused, match="anonymous"):
            client.get_manifest("team/app", "1")


def test_a_wrong_password_is_refused_by_the_token_server(tokens: RunningRegistry) -> None:
    bad = Credential("alice", "not-it")
    with (
        client_of(tokens, credential=bad, ca_cert=tokens.ca_cert) as client,
        pytest.raises(RegistryLoginRefused, match="user alice"),
    ):
        client.get_manifest("team/app", "1")


def test_the_token_server_needs_the_authority_too(tokens: RunningRegistry) -> None:
    with client_of(tokens, credential=_ALICE) as client, pytest.raises(RegistryUnreachable, match="not trusted"):
        client.get_manifest("team/app", "1")


def test_short_lived_tokens_are_renewed_over_many_blobs(tokens: RunningRegistry) -> None:
    assert tokens.token_server
    tokens.token_server.lifetime_seconds = 1
    with client_of(tokens, credential=_ALICE, ca_cert=tokens.ca_cert) as client:
        before = len(tokens.token_server.tokens)
        for _ in range(3):
            _pull(client, _IMAGE)
            for token in list(client.authorized._tokens):  # as if a second went by
                known = client.authorized._tokens[token]
                client.authorized._tokens[token] = type(known)(known.header, 0.0, known.challenge, known.base_url)
        assert len(tokens.token_server.tokens) - before >= 3


def test_an_identity_token_is_exchanged(tokens: RunningRegistry) -> None:
    assert tokens.token_server
    tokens.token_server.refresh_tokens["identity-1"] = "alice"
    with client_of(tokens, credential=Credential("", identity_token="identity-1"), ca_cert=tokens.ca_cert) as client:
        _pull(client, _IMAGE)


def test_what_is_not_there_is_said_to_be_missing(plain: RunningRegistry) -> None:
    with client_of(plain) as client:
        with pytest.raises(NotFoundInRegistry, match="team/app:none"):
            client.get_manifest("team/app", "none")
        with pytest.raises(NotFoundInRegistry):
            client.list_tags("no/such")
