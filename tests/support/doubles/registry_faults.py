"""What a scripted registry does wrong, as data: which requests, how often, and how the correct reply is changed."""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Request:
    """One request as the registry saw it.

    Attributes:
        method: Such as `GET`.
        path: Without the query.
        query: The raw query.
        headers: Names in lower case.
        body: What came with it.
        status: What it was answered with, once it was; 0 for a connection that was cut instead.
    """

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes = b""
    status: int = 0


@dataclass(frozen=True)
class Reply:
    """One reply.

    Attributes:
        status: Its status.
        headers: Its headers; a name may come twice. Content-Length is added from the body unless it is here.
        body: Its body.
        cut_after: Break the connection after so many bytes of the body.
        is_endless: Go on sending after the body, without a Content-Length.
        is_reset: Break the connection instead of replying.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    cut_after: int | None = None
    is_endless: bool = False
    is_reset: bool = False

    def header(self, name: str) -> str:
        """A header's first value, or empty."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")

    def having(self, **headers: str) -> Reply:
        """The same reply with these headers replaced; `_` stands for `-`, an empty value removes one."""
        changed = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        kept = [(name, value) for name, value in self.headers if name.lower() not in changed]
        added = [(name.title(), value) for name, value in changed.items() if value]
        return replace(self, headers=(*kept, *added))


Serve = Callable[[], Reply]
Change = Callable[[Request, Serve], Reply]
"""Makes the wrong reply; calling its second argument serves the request and gives the correct one."""


@dataclass
class Fault:
    """One thing that goes wrong.

    Attributes:
        method: Regular expression for the whole method.
        path: Regular expression searched in the path.
        change: Makes the wrong reply out of the correct one.
        times: How many matching requests it strikes; None for all.
        skip: How many matching requests are served correctly first.
        least_body_bytes: Only requests with at least so large a body.
        is_early: It strikes before the request's body is read.
        struck: How often it has.
    """

    method: str
    path: str
    change: Change
    times: int | None = 1
    skip: int = 0
    least_body_bytes: int = 0
    is_early: bool = False
    struck: int = field(default=0, init=False)
    _seen: int = field(default=0, init=False)

    def strikes(self, request: Request, body_bytes: int) -> bool:
        """Whether it is this request's turn; counts."""
        if not re.fullmatch(self.method, request.method) or not re.search(self.path, request.path):
            return False
        if body_bytes < self.least_body_bytes:
            return False
        self._seen += 1
        if self._seen <= self.skip or (self.times is not None and self.struck >= self.times):
            return False
        self.struck += 1
        return True


def answer(status: int, body: bytes = b"", **headers: str) -> Change:
    """Reply with this instead."""
    return lambda _request, _serve: Reply(status, body=body).having(**headers)


def html(status: int) -> Change:
    """Reply with a page for people."""
    return answer(status, b"<!DOCTYPE html><html><body>Bad gateway</body></html>", content_type="text/html")


def cut_after(size_bytes: int) -> Change:
    """Break the connection after so many bytes of the body."""
    return lambda _request, serve: replace(serve(), cut_after=size_bytes)


def reset() -> Change:
    """Break the connection instead of serving the request."""
    return lambda _request, _serve: Reply(0, is_reset=True)


def lost() -> Change:
    """Serve the request, then break the connection instead of replying."""
    return lambda _request, serve: replace(serve(), is_reset=True)


def endless() -> Change:
    """Never stop sending."""
    return lambda _request, serve: replace(serve(), is_endless=True)


def with_headers(**headers: str) -> Change:
    """Replace headers of the correct reply."""
    return lambda _request, serve: serve().having(**headers)


def with_body(change: Callable[[bytes], bytes]) -> Change:
    """Change the body of the correct reply."""
    return lambda _request, serve: _rebuilt(serve(), change)


def gzip_encoded() -> Change:
    """Compress the body as Content-Encoding, unasked."""
    return lambda _request, serve: _rebuilt(serve(), gzip.compress).having(content_encoding="gzip")


def redirect(target: Callable[[Request], str] | str, status: int = 307) -> Change:
    """Send the client elsewhere: to a URL, or to what a function makes of the request."""

    def change(request: Request, _serve: Serve) -> Reply:
        return Reply(status).having(location=target if isinstance(target, str) else target(request))

    return change


def later(seconds: float) -> Change:
    """Reply correctly, but late."""

    def change(_request: Request, serve: Serve) -> Reply:
        time.sleep(seconds)
        return serve()

    return change


def _rebuilt(reply: Reply, change: Callable[[bytes], bytes]) -> Reply:
    return replace(reply, body=change(reply.body))
