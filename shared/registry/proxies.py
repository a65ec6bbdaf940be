"""Which proxy a request goes through: the environment's, except for loopback and what NO_PROXY names.

requests matches host:port only for names and CIDR only for IPv4, hence an own reading of NO_PROXY.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from transload.shared.registry.settings import is_loopback
from transload.shared.registry.urls import origin_of


def proxy_for(url: str, environment: Mapping[str, str]) -> str | None:
    """The proxy for a URL, or None for a direct connection.

    Args:
        url: What is asked for.
        environment: Usually `os.environ`. Lower-case names win, as in curl; HTTP_PROXY, HTTPS_PROXY and ALL_PROXY
            are read, and NO_PROXY with its forms `*`, name, `.suffix`, `*.suffix`, address, CIDR, each with an
            optional port.
    """
    scheme, hostname, port = origin_of(url)
    proxy = _variable(environment, f"{scheme}_proxy") or _variable(environment, "all_proxy")
    if not proxy or is_loopback(hostname):
        return None
    rules = _variable(environment, "no_proxy").replace(",", " ").split()
    return None if any(_matches(rule, hostname, port) for rule in rules) else proxy


def _variable(environment: Mapping[str, str], name: str) -> str:
    return (environment.get(name) or environment.get(name.upper()) or "").strip()


def _matches(rule: str, hostname: str, port: int) -> bool:
    if rule == "*":
        return True
    name, wanted_port = _split_port(rule.lower())
    if wanted_port and wanted_port != str(port):
        return False
    try:
        network = ipaddress.ip_network(name, strict=False)
    except ValueError:
        suffix = name.removeprefix("*").lstrip(".")
        return bool(suffix) and (hostname == suffix or hostname.endswith(f".{suffix}"))
    try:
        return ipaddress.ip_address(hostname) in network
    except ValueError:
        return False


def _split_port(rule: str) -> tuple[str, str]:
    if rule.startswith("["):
        address, _, rest = rule[1:].partition("]")
        return address, rest.removeprefix(":")
    if rule.count(":") == 1:
        name, _, port = rule.partition(":")
        return name, port
    return rule, ""
