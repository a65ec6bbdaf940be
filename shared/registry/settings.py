"""What is known about one registry before it is contacted: address, login, trust."""

from __future__ import annotations

import base64
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

DOCKER_HUB = "docker.io"
_DOCKER_HUB_API = "registry-1.docker.io"
_KNOWN_TOKEN_HOSTS = {
    DOCKER_HUB: frozenset({"auth.docker.io"}),
    "nvcr.io": frozenset({"authn.nvidia.com"}),
}
"""Token servers of other names that belong to the registry's owner (NGC's first one is nvcr.io itself)."""


@dataclass(frozen=True, slots=True)
class Credential:
    """A login: user name and password, or an identity token of `docker login`.

    Args:
        username: Such as `$oauthtoken`, literally, for NGC; empty with an identity token.
        password: The password or API key.
        identity_token: An OAuth2 refresh token, exchanged at the registry's token server.
        source: Where it was found, for messages.
    """

    username: str
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    source: str = ""

    def basic_header(self) -> str:
        """The Authorization header of RFC 7617, in UTF-8."""
        pair = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode('ascii')}"

    def secrets(self) -> tuple[str, ...]:
        """Every text that must not appear in a message."""
        header = self.basic_header().removeprefix("Basic ") if self.password else ""
        return tuple(secret for secret in (self.password, self.identity_token, header) if secret)


@dataclass(frozen=True)
class RegistrySettings:
    """One registry: address, login and trust.

    Args:
        host: As it stands in references, such as `nvcr.io` or `127.0.0.1:5000`.
        credential: The login; None for an anonymous visitor.
        ca_cert: A file of certificates trusted for this registry and its token server, beside the system's.
        insecure: Plain http and unchecked certificates are allowed for this host.
        token_hosts: Further hosts whose token servers may see the login.
        credential_problem: Why a login that was looked for could not be had, told if the registry wants one.
    """

    host: str
    credential: Credential | None = None
    ca_cert: Path | None = None
    insecure: bool = False
    token_hosts: frozenset[str] = frozenset()
    credential_problem: str = ""

    @property
    def api_host(self) -> str:
        """Where the registry's API is: Docker Hub's has another name than its images."""
        return _DOCKER_HUB_API if self.host == DOCKER_HUB else self.host

    @property
    def may_be_plain(self) -> bool:
        """Whether plain http is allowed: for loopback addresses, as Docker does, and where the operator says so."""
        return self.insecure or is_loopback(hostname_of(self.host))

    def trusts_token_host(self, hostname: str) -> bool:
        """Whether a token server on this host may see the login.

        Args:
            hostname: Without a port; the registry's own name is trusted on any port.
        """
        own = {hostname_of(self.host), hostname_of(self.api_host)}
        known = _KNOWN_TOKEN_HOSTS.get(self.host, frozenset())
        return hostname in own | known | {hostname_of(host) for host in self.token_hosts}


def hostname_of(host: str) -> str:
    """A registry host without its port, in lower case, an IPv6 address without brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def is_loopback(hostname: str) -> bool:
    """Whether a host name is this machine: `localhost`, 127.0.0.0/8 or ::1."""
    if hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(hostname).is_loopback
    except ValueError:
        return False
