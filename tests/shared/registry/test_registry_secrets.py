"""At the highest verbosity and through every failure, no secret reaches a message, a fact or a log."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from doubles import image_factory
from doubles.clients import client_of
from doubles.registry_faults import Change, Fault, Reply, Request, Serve, answer, cut_after, html, redirect, reset
from doubles.scripted_registry import scripted_registry
from transload.shared.errors import TransloadError
from transload.shared.registry.client import RegistryClient
from transload.shared.registry.push import RegistryPusher
from transload.shared.registry.settings import Credential

_PASSWORD, _SIGNATURE = "pass-WORD-1234", "signed-5678"
_ALICE = Credential("alice", _PASSWORD)
_IMAGE = image_factory.image("x.example/team/app:1", [image_factory.noise_layer("secrets", 50_000)])
_LAYER = _IMAGE.image.manifests[0].layers[0]


def _echo(request: Request, _serve: Serve) -> Reply:
    """A server that repeats the login in its error message."""
    said = f"you sent {request.headers.get('authorization')} and {_PASSWORD} for https://h/x?X={_SIGNATURE}"
    return Reply(403, body=b'{"errors":[{"code":"DENIED","message":"%s"}]}' % said.encode())


_FAULTS: list[Change] = [
    _echo, answer(400), answer(401), html(502), reset(), cut_after(10),
    redirect(f"http://127.0.0.1:1/gone?X-Amz-Signature={_SIGNATURE}"),
    redirect(f"http://169.254.169.254/x?X-Amz-Signature={_SIGNATURE}"),
]  # fmt: skip
_WORK: list[Callable[[RegistryClient], object]] = [
    lambda client: client.get_manifest("team/app", "1"),
    lambda client: b"".join(client.blob_pieces("team/app", _LAYER)),
    lambda client: client.list_tags("team/app"),
    lambda client: RegistryPusher(client).upload_blob("team/b", _LAYER, lambda: iter([_IMAGE.blobs[_LAYER.digest]])),
    lambda client: RegistryPusher(client).put_manifest("team/app", _IMAGE.image.root, "2"),
]


@pytest.mark.parametrize("wants_tokens", [False, True], ids=["Basic", "Bearer"])
def test_no_secret_leaves_the_package(caplog: pytest.LogCaptureFixture, wants_tokens: bool) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    with scripted_registry(users={"alice": _PASSWORD}, wants_tokens=wants_tokens) as registry:
        registry.put(_IMAGE)
        for change in _FAULTS:
            for work in _WORK:
                registry.faults[:] = [Fault("GET|PUT|POST", "/v2/.+", change, skip=1, times=None)]
                with client_of(registry, credential=_ALICE) as client:
                    try:
                        work(client)
                    except TransloadError as error:
                        said.append(str(error.as_json()) + repr(error))
        tokens = list(registry.tokens)
    secrets = [_PASSWORD, _SIGNATURE, _ALICE.basic_header().removeprefix("Basic "), *tokens]
    assert len(said) > len(_WORK)
    assert bool(tokens) is wants_tokens
    everything = "\n".join([*said, caplog.text])
    assert "/v2/team/app/manifests/1" in caplog.text, "the log is on"
    assert [secret for secret in secrets if secret in everything] == []
