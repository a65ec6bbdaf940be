"""Rules about URLs that a server names: where a redirect, a realm, a Link or a Location may lead."""

from __future__ import annotations

import ipaddress
import socket
import urllib.parse
from collections.abc import Iterable

from transload.shared.errors import InsecureRefused, RegistryProtocolError

_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal"})
_METADATA_ADDRESSES = frozenset({"100.100.100.200", "fd00:ec2::254"})
"""Cloud metadata services that are not link-local: they hand out the machine's own credentials."""
_DEFAULT_PORTS = {"http": 80, "https": 443}

Origin = tuple[str, str, int]


def shown(url: str) -> str:
    """A URL for messages and logs: no query (signed URLs are secrets), no user, no fragment."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def origin_of(url: str) -> Origin:
    """Scheme, host name and port: what an Authorization header belongs to."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)


def resolve(base: str, target: str, header: str) -> str:
    """The absolute URL that a header's value means (RFC 3986, 5), its query kept as it is.

    Args:
        base: The URL that was asked.
        target: The header's value, absolute or relative.
        header: The header's name, for messages.

    Raises:
        RegistryProtocolError: Not a URL of http or https.
        InsecureRefused: It leaves https.
    """
    try:
        joined = urllib.parse.urldefrag(urllib.parse.urljoin(base, target.strip())).url
        scheme, hostname, _ = origin_of(joined)
    except ValueError as error:
        raise RegistryProtocolError(f"{shown(base)} answers with a {header} header that is not a URL.") from error
    has_control = any(character <= " " or character == "\x7f" for character in joined)
    if scheme not in _DEFAULT_PORTS or not hostname or has_control:
        raise RegistryProtocolError(
            f"{shown(base)} answers with a {header} header that is not an http or https URL.", url=shown(base)
        )
    if scheme == "http" and urllib.parse.urlsplit(base).scheme == "https":
        raise InsecureRefused(
            f"{shown(base)} answers over https, but its {header} header leads to plain http: {shown(joined)}. "
            "It was not followed.",
            hint="A TLS proxy before the registry hides https from it: let the proxy send X-Forwarded-Proto and Host, "
            "or set the registry's external URL (docker-registry: http.host).",
            header=header, url=shown(joined),
        )  # fmt: skip
    return joined


def refuse_link_local(url: str, *, own_hostname: str, what: str, look_up: bool) -> None:
    """Refuse a URL of another host that is link-local or a cloud's metadata service.

    Args:
        url: Where a server wants the request to go.
        own_hostname: The registry's own host, which the operator chose.
        what: Such as "redirect", for the message.
        look_up: Resolve names too; not done where a proxy does the resolving.

    Raises:
        InsecureRefused: The host is one of these.
    """
    _, hostname, port = origin_of(url)
    if hostname == own_hostname:
        return
    addresses = _looked_up(hostname, port) if look_up else _literal(hostname)
    if hostname.rstrip(".") in _METADATA_NAMES or any(_is_link_local(address) for address in addresses):
        raise InsecureRefused(
            f"The {what} to {shown(url)} is refused: it is a link-local address or a cloud's metadata service.",
            hint="No registry has business there. Ask its operator where this comes from.",
            url=shown(url),
        )


def _is_link_local(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        parsed = parsed.ipv4_mapped
    return parsed.is_link_local or str(parsed) in _METADATA_ADDRESSES


def _literal(hostname: str) -> Iterable[str]:
    try:
        return [hostname, socket.inet_ntoa(socket.inet_aton(hostname))]  # also 2852039166 and 0xa9fea9fe
    except (OSError, UnicodeError):
        return [hostname]


def _looked_up(hostname: str, port: int) -> Iterable[str]:
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(hostname, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        return _literal(hostname)  # the connection will fail by itself
