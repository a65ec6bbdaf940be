"""Proxies of the environment and every form of NO_PROXY (CASES of openshift/origin #7879)."""

from __future__ import annotations

import pytest

from transload.shared.registry.proxies import proxy_for

_PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])
def test_both_cases_are_read(name: str) -> None:
    assert proxy_for("https://nvcr.io/v2/", {name: _PROXY}) == _PROXY


def test_the_scheme_decides() -> None:
    assert proxy_for("https://nvcr.io/v2/", {"HTTP_PROXY": _PROXY}) is None


@pytest.mark.parametrize(
    ("rule", "url", "is_direct"),
    [
        ("registry.lan", "https://registry.lan/v2/", True),
        ("registry.lan", "https://Registry.LAN:5000/v2/", True),
        ("registry.lan:5000", "https://registry.lan:5000/v2/", True),
        ("registry.lan:5000", "https://registry.lan/v2/", False),
        ("registry.lan:443", "https://registry.lan/v2/", True),
        ("lan", "https://registry.lan/", True),
        (".lan", "https://registry.lan/", True),
        ("*.lan", "https://registry.lan/", True),
        (".lan", "https://registry.wlan/", False),
        ("10.1.2.3", "https://10.1.2.3:5000/", True),
        ("10.1.2.3:5000", "https://10.1.2.3:5000/", True),
        ("10.1.2.3:5001", "https://10.1.2.3:5000/", False),
        ("10.0.0.0/8", "https://10.1.2.3:5000/", True),
        ("10.0.0.0/8", "https://11.1.2.3/", False),
        ("10.0.0.0/8", "https://ten.example/", False),
        ("fd00::/8", "https://[fd12::1]:5000/", True),
        ("[fd12::1]:5000", "https://[fd12::1]:5000/", True),
        ("a.example, registry.lan b.example", "https://registry.lan/", True),
        ("*", "https://anything.example/", True),
        ("", "https://registry.lan/", False),
    ],
)
@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_no_proxy_forms(name: str, rule: str, url: str, is_direct: bool) -> None:
    found = proxy_for(url, {"HTTPS_PROXY": _PROXY, name: rule})
    assert found is None if is_direct else found == _PROXY


@pytest.mark.parametrize("host", ["127.0.0.1:5000", "localhost:5000", "[::1]:5000", "127.1.2.3"])
def test_loopback_never_goes_through_a_proxy(host: str) -> None:
    assert proxy_for(f"http://{host}/v2/", {"HTTP_PROXY": _PROXY, "ALL_PROXY": _PROXY}) is None
