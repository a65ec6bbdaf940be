"""Connections to hosts: pools, TLS, one request at a time, every failure explained.

The only module that imports requests and urllib3. requests' own sessions are not used: they follow redirects, read
.netrc, keep cookies and decode bodies, and each of these would break a promise of `transport`.
"""

from __future__ import annotations

import functools
import os
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict

from transload.shared import limits
from transload.shared.registry.answer import Answer, BrokenOff
from transload.shared.registry.redaction import Redactor, hide_queries_in_log
from transload.shared.registry.urls import origin_of

_USER_AGENT = "transload"
hide_queries_in_log("urllib3.connectionpool")


class Body(Protocol):
    """What is sent: `read` is called until it returns nothing."""

    def read(self, size: int, /) -> bytes | memoryview:
        """At most `size` bytes."""
        ...


class ConnectionFailed(Exception):
    """One request got no answer. Stays within this package: retried, or turned into an error for people.

    Args:
        kind: `certificate`, `tls`, `connect`, `proxy`, `silent` or `broken`.
        why: For people.
    """

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind, self.why = kind, why


class Connections:
    """Pools of connections that share one idea of whom to trust; safe to use from several threads.

    Args:
        ca_cert: Certificates trusted beside the system's.
        checked: Whether certificates are checked at all.
        redactor: For quotes of what servers answer.
    """

    def __init__(self, *, ca_cert: Path | None, checked: bool, redactor: Redactor) -> None:
        self._adapter = _Adapter(_checking_context(ca_cert) if checked else _trusting_context())
        self._redactor = redactor

    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | Body | None, proxy: str | None
    ) -> Answer:
        """Send one request, once.

        Args:
            method: Such as `GET`.
            url: Absolute; sent as it is.
            headers: All headers but the technical ones.
            body: Bytes, or an object that is read once.
            proxy: The proxy's URL, or None.

        Raises:
            ConnectionFailed: No answer.
        """
        prepared = requests.PreparedRequest()
        prepared.method, prepared.url, prepared.body, prepared.hooks = method, url, body, {}  # type: ignore[assignment]
        prepared.headers = CaseInsensitiveDict({"User-Agent": _USER_AGENT, "Accept-Encoding": "identity", **headers})
        if isinstance(body, bytes):
            prepared.headers["Content-Length"] = str(len(body))
        try:
            response = self._adapter.send(
                prepared,
                stream=True,
                timeout=(limits.CONNECT_TIMEOUT_SECONDS, limits.READ_TIMEOUT_SECONDS),
                proxies={urllib.parse.urlsplit(url).scheme: proxy} if proxy else {},
            )
        except (requests.RequestException, urllib3.exceptions.HTTPError, HTTPException, UnicodeError) as error:
            kind, why = _explain(error)
            raise ConnectionFailed(kind, why) from error
        return Answer(method, url, _Wire(response.raw), self._redactor)

    def close(self) -> None:
        """Close every idle connection."""
        self._adapter.close()


class _Wire:
    """A response on the wire, without its library's exceptions."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self.status: int = response.status

    def header_values(self, name: str) -> list[str]:
        return list(self._response.headers.getlist(name))

    def read(self, size: int) -> bytes:
        try:
            return self._response.read(size, decode_content=False) or b""
        except (urllib3.exceptions.HTTPError, HTTPException, OSError) as error:
            raise BrokenOff(type(error).__name__) from error

    def release(self) -> None:
        self._response.release_conn()

    def close(self) -> None:
        self._response.close()


def retry_after_seconds(text: str) -> float | None:
    """How long a Retry-After header asks to wait, in either of its forms; None if it is not one."""
    try:
        return float(text) if text.isascii() and text.isdigit() else float(urllib3.Retry().parse_retry_after(text))
    except (urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
        return None


class _Adapter(HTTPAdapter):
    """requests' connection pools, with one TLS context and large writes."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        super().__init__(pool_connections=limits.CONNECTIONS_PER_HOST, pool_maxsize=limits.CONNECTIONS_PER_HOST)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        options.update(ssl_context=self._context, blocksize=limits.COPY_BUFFER_BYTES)
        super().init_poolmanager(*args, **options)

    def proxy_manager_for(self, proxy: Any, **options: Any) -> Any:
        options.update(ssl_context=self._context, blocksize=limits.COPY_BUFFER_BYTES)
        return super().proxy_manager_for(proxy, **options)

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        """The address alone: trust is the context's."""
        del verify, cert
        scheme, hostname, port = origin_of(request.url)
        return {"scheme": scheme, "host": hostname, "port": port}, {"ssl_context": self._context}

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        """Nothing: trust is the context's, and requests' own list of authorities stays out of it."""


@functools.lru_cache(maxsize=16)  # reading the system's authorities takes 50 ms
def _checking_context(ca_cert: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    if not paths.cafile and not (paths.capath and os.listdir(paths.capath)):  # noqa: PTH208
        context.load_verify_locations(requests.utils.DEFAULT_CA_BUNDLE_PATH)  # no system store, as in slim containers
    if ca_cert:
        context.load_verify_locations(cafile=ca_cert)
    return context


def _trusting_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # the option itself has warned
    return context


def _explain(error: BaseException) -> tuple[str, str]:
    """Kind of a failure and words for it, found in the chain of exceptions that the libraries wrap it in."""
    chain = list(_chain(error))

    def first(kind: type[BaseException]) -> Any:
        return next((link for link in chain if isinstance(link, kind)), None)

    certificate = first(ssl.SSLCertVerificationError)
    unconnected = first(urllib3.exceptions.NewConnectionError)
    system = next((link for link in chain if isinstance(link, OSError) and link.strerror), None)
    silent = f"silent for {limits.READ_TIMEOUT_SECONDS:.0f} s"
    table = (  # the first that applies
        (certificate, "certificate", f"its certificate is not trusted ({getattr(certificate, 'verify_message', '')})"),
        (first(urllib3.exceptions.ProxyError), "proxy", "the proxy that the environment names does not connect"),
        (first(urllib3.exceptions.NameResolutionError), "connect", "its name cannot be resolved"),
        (unconnected, "connect", ((system.strerror if system else "") or "no connection").lower()),
        (first(urllib3.exceptions.ConnectTimeoutError), "connect", f"none in {limits.CONNECT_TIMEOUT_SECONDS:.0f} s"),
        (first(urllib3.exceptions.ReadTimeoutError) or first(TimeoutError), "silent", silent),
        (first(ssl.SSLError), "tls", "it does not speak TLS"),
        (first(UnicodeError) or first(requests.exceptions.InvalidURL), "connect", "its name is not one"),
    )
    found = ((kind, why) for link, kind, why in table if link)
    return next(found, ("broken", "the connection was broken off"))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[Any] = [error]
    while waiting:
        link = waiting.pop(0)
        if isinstance(link, BaseException) and id(link) not in seen:
            seen.add(id(link))
            yield link
            waiting += [getattr(link, "reason", None), *link.args, link.__cause__, link.__context__]
