"""Where a server may point: redirects, realms, Links and Locations."""

from __future__ import annotations

import pytest

from transload.shared.errors import InsecureRefused, RegistryProtocolError
from transload.shared.registry.urls import origin_of, refuse_link_local, resolve, shown

_BASE = "https://r.example/v2/a/b/blobs/uploads/"


def test_a_shown_url_has_no_query_no_user_and_no_fragment() -> None:
    assert shown("https://user:secret@h.example:8/p/q?sig=secret#f") == "https://h.example:8/p/q"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/v2/a/b/u/1", "https://r.example/v2/a/b/u/1"),
        ("../u/1?_state=a%2Bb%3D", "https://r.example/v2/a/b/blobs/u/1?_state=a%2Bb%3D"),
        ("?x=1", f"{_BASE}?x=1"),
        ("//other.example/u", "https://other.example/u"),
        ("https://other.example:444/u?a=b#part", "https://other.example:444/u?a=b"),
    ],
)
def test_a_location_is_resolved_and_its_query_kept(target: str, expected: str) -> None:
    assert resolve(_BASE, target, "Location") == expected


@pytest.mark.parametrize("target", ["ftp://h/x", "mailto:a@b", "https://[::1", "https://h/a b", "file:///etc/passwd"])
def test_what_is_no_http_url_is_refused(target: str) -> None:
    with pytest.raises(RegistryProtocolError, match="Location"):
        resolve(_BASE, target, "Location")


def test_https_never_falls_to_http_and_the_message_names_the_header() -> None:
    with pytest.raises(InsecureRefused, match="Location header leads to plain http") as caught:
        resolve(_BASE, "http://r.example/u?secret=1", "Location")
    assert "X-Forwarded-Proto" in caught.value.hint
    assert "secret" not in str(caught.value.as_json())


def test_http_may_become_https() -> None:
    assert resolve("http://127.0.0.1:1/x", "https://127.0.0.1:2/y", "Location") == "https://127.0.0.1:2/y"


def test_default_ports_are_part_of_an_origin() -> None:
    assert origin_of("https://H.example/x") == origin_of("https://h.example:443/y")
    assert origin_of("http://h.example") != origin_of("http://h.example:443")


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "[fe80::1]",
        "[::ffff:169.254.169.254]",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "metadata.google.internal",
        "METADATA.google.internal.",
    ],
)
@pytest.mark.parametrize("look_up", [True, False])
def test_link_local_and_metadata_hosts_are_refused(host: str, look_up: bool) -> None:
    with pytest.raises(InsecureRefused, match="link-local"):
        refuse_link_local(f"http://{host}/latest?x=1", own_hostname="r.example", what="redirect", look_up=look_up)


def test_a_name_that_resolves_to_a_link_local_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    address = (2, 1, 6, "", ("169.254.7.7", 443))
    monkeypatch.setattr("socket.getaddrinfo", lambda *_args, **_options: [address])
    with pytest.raises(InsecureRefused):
        refuse_link_local("https://cdn.example/x", own_hostname="r.example", what="redirect", look_up=True)


def test_the_registry_itself_may_be_link_local_when_the_operator_chose_it() -> None:
    refuse_link_local("https://169.254.1.1/x", own_hostname="169.254.1.1", what="redirect", look_up=True)


def test_other_addresses_pass() -> None:
    refuse_link_local("https://127.0.0.1/x", own_hostname="r.example", what="redirect", look_up=True)
    refuse_link_local("https://10.1.2.3/x", own_hostname="r.example", what="redirect", look_up=False)
