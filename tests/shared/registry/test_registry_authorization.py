"""Logins and tokens: what is asked for, who sees the credential, and dead tokens in the middle of a job."""

from __future__ import annotations

import base64
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from doubles import image_factory
from doubles.certificates import make_certificates
from doubles.clients import client_of
from doubles.http_doubles import HttpDouble, serving
from doubles.registry_faults import Fault, Reply, Request, answer, cut_after, with_body
from doubles.scripted_registry import ScriptedRegistry, scripted_registry
from transload.shared import limits
from transload.shared.errors import InsecureRefused, RegistryLoginRefused, RegistryProtocolError
from transload.shared.image import Descriptor
from transload.shared.registry.authorization import token_query
from transload.shared.registry.challenge import Challenge
from transload.shared.registry.settings import Credential, RegistrySettings
from transload.shared.workers import Stop, run_parallel

_LAYERS = [image_factory.noise_layer(f"auth-{number}", 3000) for number in range(12)]
_IMAGE = image_factory.image("x.example/nvidia/app:1", _LAYERS)
_BLOBS: list[Descriptor] = list(_IMAGE.image.manifests[0].layers)
_ALICE = Credential("alice", "wonder", source="--login")
_USERS = {"alice": "wonder"}


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with scripted_registry(users=_USERS, wants_tokens=True) as running:
        running.put(_IMAGE)
        yield running


@dataclass
class TokenHost(HttpDouble):
    """A token server of its own that gives the registry's tokens to anybody."""

    registry: ScriptedRegistry = field(default_factory=ScriptedRegistry)

    def reply(self, request: Request) -> Reply:
        return self.registry.new_token()


def _queries(registry: ScriptedRegistry) -> list[dict[str, list[str]]]:
    return [urllib.parse.parse_qs(one.query) for one in registry.asked("GET", "^/token$")]


def test_one_token_serves_many_requests(registry: ScriptedRegistry) -> None:
    with client_of(registry, credential=_ALICE) as client:
        client.get_manifest("nvidia/app", "1")
        for blob in _BLOBS:
            b"".join(client.blob_pieces("nvidia/app", blob))
    assert _queries(registry) == [{"service": ["scripted"], "scope": ["repository:nvidia/app:pull"]}]


def test_tokens_that_die_after_three_requests_do_not_stop_a_long_pull(registry: ScriptedRegistry) -> None:
    registry.token_uses = 3
    with client_of(registry, credential=_ALICE) as client:
        client.get_manifest("nvidia/app", "1")
        for blob in _BLOBS:
            assert b"".join(client.blob_pieces("nvidia/app", blob)) == _IMAGE.blobs[blob.digest]
    assert len(_queries(registry)) == 5


def test_tokens_that_other_workers_use_up_fail_no_worker(registry: ScriptedRegistry) -> None:
    registry.token_uses = 2
    with client_of(registry, credential=_ALICE) as client:

        def pull(blob: Descriptor) -> bytes:
            return b"".join(client.blob_pieces("nvidia/app", blob))

        outcomes = list(run_parallel(_BLOBS * 4, pull, jobs=8, stop=Stop()))
    assert [outcome.error for outcome in outcomes if outcome.error] == []
    assert all(outcome.result == _IMAGE.blobs[outcome.item.digest] for outcome in outcomes)


def test_many_workers_with_tokens_that_are_always_rejected_all_end(registry: ScriptedRegistry) -> None:
    registry.token_uses = 0
    with client_of(registry, credential=_ALICE) as client:
        outcomes = list(run_parallel(range(16), lambda _: client.get_manifest("nvidia/app", "1"), jobs=8, stop=Stop()))
    assert all(isinstance(outcome.error, RegistryLoginRefused) for outcome in outcomes)
    assert len(_queries(registry)) <= 16 * limits.MAX_REJECTED_TOKENS


def test_a_token_that_dies_is_renewed_in_the_middle_of_a_blob(registry: ScriptedRegistry) -> None:
    registry.token_uses = 1
    registry.faults.append(Fault("GET", "/blobs/", cut_after(1000), skip=1))
    with client_of(registry, credential=_ALICE) as client:
        assert b"".join(client.blob_pieces("nvidia/app", _BLOBS[0])) == _IMAGE.blobs[_BLOBS[0].digest]
    assert registry.asked("GET", "/blobs/")[-1].headers["range"] == "bytes=1000-"


def test_after_a_rejected_token_the_next_request_is_a_stranger_s(registry: ScriptedRegistry) -> None:
    """nvcr.io names a useless realm to the bearer of a dead token (nvidia-container-toolkit #1945)."""
    with client_of(registry, credential=_ALICE) as client:
        client.get_manifest("nvidia/app", "1")
        registry.tokens.clear()
        dead_end = answer(401, www_authenticate='Bearer realm="http://authn.nowhere.example/token"')
        registry.faults.append(Fault("GET", "/manifests/", dead_end))
        client.get_manifest("nvidia/app", "1")
    assert [
        "token" if "authorization" in one.headers else "stranger" for one in registry.asked("GET", "/manifests/")
    ] == ["stranger", "token", "token", "stranger", "token"]


def test_a_token_that_is_always_rejected_ends_after_a_few_tries(registry: ScriptedRegistry) -> None:
    registry.token_uses = 0
    with client_of(registry, credential=_ALICE) as client, pytest.raises(RegistryLoginRefused) as caught:
        client.get_manifest("nvidia/app", "1")
    assert len(_queries(registry)) == limits.MAX_REJECTED_TOKENS
    assert "user alice" in caught.value.message


def test_a_wrong_password_is_asked_for_once(registry: ScriptedRegistry) -> None:
    bad = Credential("alice", "not-wonder")
    with client_of(registry, credential=bad) as client, pytest.raises(RegistryLoginRefused) as caught:
        client.get_manifest("nvidia/app", "1")
    assert len(_queries(registry)) == 1
    assert caught.value.facts["has_login"] is True
    assert "UNAUTHORIZED: wrong user or password" in caught.value.message
    assert "not-wonder" not in str(caught.value.as_json())


def test_without_a_login_the_message_says_how_to_give_one() -> None:
    with (
        scripted_registry(users=_USERS) as registry,
        client_of(registry) as client,
        pytest.raises(RegistryLoginRefused, match="anonymous") as caught,
    ):
        client.get_manifest("nvidia/app", "1")
    assert f"--login {registry.host}=" in caught.value.hint


def test_why_docker_s_store_gave_no_login_is_said_when_one_is_wanted() -> None:
    with (
        scripted_registry(users=_USERS) as registry,
        client_of(registry, credential_problem="docker-credential-x is not installed") as client,
        pytest.raises(RegistryLoginRefused) as caught,
    ):
        client.get_manifest("nvidia/app", "1")
    assert "docker-credential-x is not installed" in caught.value.hint


def test_many_threads_share_one_token(registry: ScriptedRegistry) -> None:
    with client_of(registry, credential=_ALICE) as client:
        threads = [threading.Thread(target=client.has_blob, args=("nvidia/app", blob)) for blob in _BLOBS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(_queries(registry)) == 1


def test_a_token_is_renewed_before_it_ends(registry: ScriptedRegistry) -> None:
    short = with_body(lambda raw: raw.replace(b'"expires_in": 300', b'"expires_in": 0.001'))
    registry.faults.append(Fault("GET", "^/token$", short))
    with client_of(registry, credential=_ALICE) as client:
        client.list_tags("nvidia/app")
        client.list_tags("nvidia/app")
    assert [one.status for one in registry.asked("GET", "/tags/")] == [401, 200, 200]
    assert len(_queries(registry)) == 2


# --- who sees the credential ---


def test_an_identity_token_is_exchanged_at_the_token_server(registry: ScriptedRegistry) -> None:
    registry.users = {}
    registry.faults.append(Fault("POST", "^/token$", lambda _request, _serve: registry.new_token()))
    with client_of(registry, credential=Credential("", identity_token="idt-1/2+3")) as client:
        client.list_tags("nvidia/app")
    (asked,) = registry.asked("POST", "^/token$")
    assert urllib.parse.parse_qs(asked.body.decode()) == {
        "grant_type": ["refresh_token"], "client_id": ["transload"], "refresh_token": ["idt-1/2+3"],
        "service": ["scripted"], "scope": ["repository:nvidia/app:pull"],
    }  # fmt: skip
    assert asked.query == ""


def test_a_realm_on_another_host_never_sees_the_login(registry: ScriptedRegistry) -> None:
    other = TokenHost(registry=registry)
    with serving(other):
        port = other.host.rpartition(":")[2]
        registry.challenges = (f'Bearer realm="http://localhost:{port}/token"',)
        with client_of(registry, credential=_ALICE) as client, pytest.raises(InsecureRefused) as caught:
            client.list_tags("nvidia/app")
        assert other.requests == []
        assert f"--token-host {registry.host}=localhost" in caught.value.hint
        with client_of(registry, credential=_ALICE, token_hosts=frozenset({"localhost"})) as client:
            assert client.list_tags("nvidia/app") == ["1"]
        assert other.requests[0].headers["authorization"].startswith("Basic ")
        with client_of(registry) as client:  # a stranger has nothing to lose
            assert client.list_tags("nvidia/app") == ["1"]
        assert "authorization" not in other.requests[-1].headers


def test_a_plain_realm_of_an_https_registry_is_refused(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    with scripted_registry(certificates=certificates, users=_USERS, wants_tokens=True) as registry:
        other = TokenHost(registry=registry)
        with serving(other), client_of(registry, credential=_ALICE, ca_cert=certificates.ca_cert) as client:
            registry.challenges = (f'Bearer realm="{other.url}/token"',)
            with pytest.raises(InsecureRefused, match="plain http"):
                client.list_tags("nvidia/app")
            assert other.requests == []


def test_a_plain_realm_outside_this_machine_is_refused_even_to_a_plain_registry(registry: ScriptedRegistry) -> None:
    registry.challenges = ('Bearer realm="http://tokens.example/token"',)
    with client_of(registry) as client, pytest.raises(InsecureRefused, match="plain http"):
        client.list_tags("nvidia/app")


def test_a_link_local_realm_is_refused(registry: ScriptedRegistry) -> None:
    registry.challenges = ('Bearer realm="https://169.254.169.254/token"',)
    with client_of(registry) as client, pytest.raises(InsecureRefused, match="link-local"):
        client.list_tags("nvidia/app")


@pytest.mark.parametrize(
    ("host", "realm_host", "is_trusted"),
    [
        ("nvcr.io", "nvcr.io", True),
        ("nvcr.io", "authn.nvidia.com", True),
        ("docker.io", "auth.docker.io", True),
        ("docker.io", "authn.nvidia.com", False),
        ("nvcr.io", "evil.example", False),
        ("nvcr.io", "sub.nvcr.io", False),
        ("r.example:5000", "r.example", True),
        ("[::1]:5000", "::1", True),
    ],
)
def test_whose_token_servers_may_see_a_login(host: str, realm_host: str, is_trusted: bool) -> None:
    assert RegistrySettings(host).trusts_token_host(realm_host) is is_trusted


def test_docker_hub_s_api_has_another_name() -> None:
    assert RegistrySettings("docker.io").api_host == "registry-1.docker.io"


# --- what is asked for ---

_PULL = ("repository:nvidia/tf:pull",)


@pytest.mark.parametrize(
    ("realm", "parameters", "expected"),
    [
        ("https://r/t", {"service": "s"}, [("service", "s"), ("scope", _PULL[0])]),
        ("https://r/t", {"scope": "repository:nvidia/tf:pull,push"}, [("scope", _PULL[0])]),
        ("https://nvcr.io/proxy_auth?scope=repository:nvidia/tf:pull,push", {}, [("scope", _PULL[0])]),
        ("https://r/t?account=a%2Bb", {"service": "s"}, [("account", "a+b"), ("service", "s"), ("scope", _PULL[0])]),
        ("https://r/t?service=own", {"service": "s"}, [("service", "own"), ("scope", _PULL[0])]),
        ("https://r/t", {"scope": "group/ngc:org"}, [("scope", _PULL[0]), ("scope", "group/ngc:org")]),
    ],
)
def test_the_token_server_is_asked_for_what_is_needed(
    realm: str, parameters: dict[str, str], expected: list[tuple[str, str]]
) -> None:
    assert token_query(realm, _PULL, Challenge("bearer", parameters)) == expected


def test_nvcr_s_challenge_without_service_works(registry: ScriptedRegistry) -> None:
    registry.challenges = (f'Bearer realm="{registry.url}/token?scope=repository:nvidia/app:pull,push"',)
    with client_of(registry, credential=_ALICE) as client:
        client.list_tags("nvidia/app")
    assert registry.asked("GET", "^/token$")[0].query == "scope=repository:nvidia/app:pull"


def test_bearer_is_chosen_where_basic_is_offered_first(registry: ScriptedRegistry) -> None:
    registry.challenges = (f'Basic realm="x", bearer realm="{registry.url}/token"',)
    with client_of(registry, credential=_ALICE) as client:
        assert client.list_tags("nvidia/app") == ["1"]


def test_basic_is_sent_as_utf_8_from_then_on() -> None:
    user, password = "$oauthtoken", 'k:$%"+é\\ end'
    with scripted_registry(users={user: password}) as registry:
        registry.put(_IMAGE)
        with client_of(registry, credential=Credential(user, password)) as client:
            client.list_tags("nvidia/app")
            client.list_tags("nvidia/app")
        sent = [one.headers.get("authorization") for one in registry.asked("GET", "/tags/")]
    expected = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
    assert sent == [None, expected, expected]


def test_an_unknown_scheme_is_named(registry: ScriptedRegistry) -> None:
    registry.challenges = ("Negotiate",)
    with client_of(registry, credential=_ALICE) as client, pytest.raises(RegistryLoginRefused, match="negotiate"):
        client.list_tags("nvidia/app")


@pytest.mark.parametrize(
    "body",
    [b"{}", b"[]", b'{"token": 5}', b'{"token": "a b"}', b'{"token": "a\\r\\nX: y"}', b"<html></html>", b"\xff"],
)
def test_an_answer_without_a_usable_token_is_refused(registry: ScriptedRegistry, body: bytes) -> None:
    registry.faults.append(Fault("GET", "^/token$", answer(200, body)))
    with client_of(registry, credential=_ALICE) as client, pytest.raises(RegistryProtocolError):
        client.list_tags("nvidia/app")
