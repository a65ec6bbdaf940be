"""HTTP for one registry: TLS, redirects, retries and proxies, and nothing that leaks a login.

The rules; `connections` does the talking.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import urllib.parse
from collections.abc import Mapping

from transload.shared import limits
from transload.shared.errors import (
    InsecureRefused,
    RegistryBusy,
    RegistryProtocolError,
    RegistryUnreachable,
)
from transload.shared.registry.answer import Answer
from transload.shared.registry.connections import Body, ConnectionFailed, Connections, retry_after_seconds
from transload.shared.registry.proxies import proxy_for
from transload.shared.registry.redaction import Redactor
from transload.shared.registry.settings import RegistrySettings, hostname_of
from transload.shared.registry.urls import origin_of, refuse_link_local, resolve, shown
from transload.shared.workers import Stop

_RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_log = logging.getLogger("transload.registry")


class Transport:
    """Sends requests to one registry and to where it points; safe to use from several threads.

    Args:
        settings: The registry.
        stop: Ends waits.
    """

    def __init__(self, settings: RegistrySettings, stop: Stop) -> None:
        self.settings = settings
        self.stop = stop
        self.redactor = Redactor(settings.credential.secrets() if settings.credential else ())
        self.requests_made = 0
        self._count_lock = threading.Lock()
        self._scheme_lock = threading.Lock()
        self._base_url: str | None = None
        self._own_hostname = hostname_of(settings.api_host)
        self._answered: set[str] = set()
        self._checked = Connections(ca_cert=settings.ca_cert, checked=True, redactor=self.redactor)
        self._unchecked = Connections(ca_cert=None, checked=False, redactor=self.redactor)

    @property
    def base_url(self) -> str:
        """`https://HOST`; for hosts that may be plain http, whichever of the two answers, https tried first.

        Raises:
            RegistryUnreachable: Neither answers.
        """
        if not self.settings.may_be_plain:
            return f"https://{self.settings.api_host}"
        with self._scheme_lock:
            if self._base_url is None:
                self._base_url = self._probed_base_url()
            return self._base_url

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        authorization: str | None = None,
        body: bytes | Body | None = None,
        may_repeat: bool = True,
    ) -> Answer:
        """Send a request; repeat it while that helps; follow redirects of GET and HEAD.

        Args:
            method: Such as `GET`.
            url: Absolute.
            headers: Further headers.
            authorization: Sent to the URL's own origin and to no other.
            body: Bytes, or an object that is read once (then `may_repeat` must be False).
            may_repeat: Whether the request may be sent again after 429, 5xx or a broken connection.

        Returns:
            The answer to the last request, whatever its status but a redirect; its body is not read yet.

        Raises:
            RegistryUnreachable: No connection.
            RegistryBusy: Still 429 or 5xx after the last attempt, or a wait beyond the cap is asked for.
            RegistryProtocolError, InsecureRefused: A redirect that may not be followed; an encoded body.
            Stopped: The run is being stopped.
        """
        first_origin = origin_of(url)
        for _ in range(limits.MAX_REDIRECTS + 1):
            answer = self._send_repeatedly(method, url, headers or {}, authorization, body, may_repeat=may_repeat)
            answer.has_left_origin = origin_of(url) != first_origin
            if answer.status not in _REDIRECTS:
                return answer
            answer.close()
            location = answer.header("Location")
            if method not in ("GET", "HEAD") or not location:
                raise RegistryProtocolError(
                    f"{shown(url)} answers {method} with a redirect ({answer.status}), which is not followed.",
                    url=shown(url), status=answer.status,
                )  # fmt: skip
            next_url = resolve(url, location, "Location")
            self.refuse_link_local(next_url, "redirect")
            if origin_of(next_url) != origin_of(url):
                authorization = None  # for good: a redirect back does not bring it back
            url = next_url
        raise RegistryProtocolError(
            f"{shown(url)} is the {limits.MAX_REDIRECTS + 1}th redirect in a row; {limits.MAX_REDIRECTS} are followed."
        )

    def refuse_link_local(self, url: str, what: str) -> None:
        """Refuse a URL that a server named, if it is link-local (see `urls.refuse_link_local`)."""
        look_up = proxy_for(url, os.environ) is None
        refuse_link_local(url, own_hostname=self._own_hostname, what=what, look_up=look_up)

    def close(self) -> None:
        """Close every idle connection."""
        self._checked.close()
        self._unchecked.close()

    # --- one request ---

    def _send_repeatedly(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        authorization: str | None,
        body: bytes | Body | None,
        *,
        may_repeat: bool,
    ) -> Answer:
        attempts = limits.MAX_REQUEST_ATTEMPTS if may_repeat else 1
        for attempt in range(1, attempts + 1):
            self.stop.check()
            try:
                answer = self.send_once(method, url, headers, authorization, body)
            except ConnectionFailed as error:
                if attempt == attempts or not self._may_pass(error, url):
                    raise self.unreachable(error, url) from error
                self.wait_before_retry(attempt)
                continue
            if answer.status not in _RETRIED_STATUSES or not may_repeat:
                return answer
            wait = self.asked_wait(answer)
            if attempt == attempts:
                raise self._busy(answer, f"after {attempts} attempts")
            answer.close()
            self.wait_before_retry(attempt, wait)
        raise AssertionError("unreachable")  # pragma: no cover

    def send_once(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        authorization: str | None,
        body: bytes | Body | None = None,
    ) -> Answer:
        """Send one request, once, whatever comes.

        Raises:
            ConnectionFailed: No answer.
            RegistryProtocolError: The body is encoded although this was not asked for, or its length is no number.
        """
        with self._count_lock:
            self.requests_made += 1
        sent_headers = {**headers, "Authorization": authorization} if authorization else headers
        answer = self._connections_for(url).send(method, url, sent_headers, body, proxy_for(url, os.environ))
        _log.debug("%s %s: %d", method, shown(url), answer.status)
        self._answered.add(urllib.parse.urlsplit(url).netloc)
        encoding = answer.header("Content-Encoding").lower()
        if encoding not in ("", "identity") and answer.status < 300:
            answer.close()
            raise RegistryProtocolError(
                f"{shown(url)} answers with a body encoded as {encoding[:40]!r} although it was asked not to; "
                "its digest could not be checked.",
                hint="A proxy between here and the registry compresses answers. Turn that off for the registry.",
                url=shown(url),
            )
        if answer.header("Content-Length") and answer.content_length is None:
            answer.close()  # read by it, the body would end only with the timeout
            raise RegistryProtocolError(
                f"{shown(url)} answers with a Content-Length that is no number of bytes: "
                f"{answer.header('Content-Length')[:40]!r}.",
                url=shown(url),
                status=answer.status,
            )
        return answer

    def _connections_for(self, url: str) -> Connections:
        is_own = origin_of(url)[1] == self._own_hostname
        return self._unchecked if self.settings.insecure and is_own else self._checked

    # --- failures and waits ---

    def _may_pass(self, error: ConnectionFailed, url: str) -> bool:
        """Whether a failure may pass by itself: not a bad certificate, and not a host that never answered."""
        if error.kind in ("certificate", "tls"):
            return False
        return error.kind == "broken" or urllib.parse.urlsplit(url).netloc in self._answered

    def unreachable(self, error: ConnectionFailed, url: str) -> RegistryUnreachable:
        """The error for people that stands for a failed connection."""
        host = urllib.parse.urlsplit(url).netloc.rpartition("@")[2]
        hint = "Check the host name, the network and the proxy settings."
        if error.kind == "certificate":
            hint = (
                f"If {host} has a certificate of a private authority, give it as --ca-cert {self.settings.host}=FILE."
            )
        elif error.kind == "tls" and not self.settings.may_be_plain:
            hint = f"If it really speaks plain http, allow that with --insecure {self.settings.host}."
        return RegistryUnreachable(f"No answer from {shown(url)}: {error.why}.", hint=hint, host=host, kind=error.kind)

    def wait_before_retry(self, attempt: int, seconds: float | None = None) -> None:
        """Wait, but not through a stop.

        Args:
            attempt: How many attempts failed so far; the wait doubles with each.
            seconds: What the server asked for.

        Raises:
            Stopped: The run was stopped meanwhile.
        """
        backoff = limits.FIRST_RETRY_WAIT_SECONDS * 2 ** (attempt - 1)
        spread = backoff * random.uniform(0.75, 1.25)  # noqa: S311 - not for secrets: keeps workers apart
        self.stop.sleep(spread if seconds is None else max(seconds, spread))

    def asked_wait(self, answer: Answer) -> float | None:
        """How long an answer asks to wait; None if it does not say.

        Raises:
            RegistryBusy: Longer than a run should hang.
        """
        seconds = retry_after_seconds(answer.header("Retry-After"))
        if seconds is not None and seconds > limits.MAX_RETRY_AFTER_SECONDS:
            raise self._busy(answer, f"and asks to wait {seconds:,.0f} s")
        return seconds

    def _busy(self, answer: Answer, why: str) -> RegistryBusy:
        status = answer.status
        return RegistryBusy(
            f"{shown(answer.url)} answers {answer.method} with {status} {why}: {answer.problem()}.",
            hint="Run the same command again later; what is done stays done.",
            url=shown(answer.url), status=status, host=self.settings.host,
        )  # fmt: skip

    def _probed_base_url(self) -> str:
        host = self.settings.api_host
        secure, plain = f"https://{host}", f"http://{host}"
        try:
            self.send_once("GET", f"{secure}/v2/", {}, None).close()
        except ConnectionFailed as error:
            other_port = ":" not in host.rpartition("]")[2]  # without a port, http is another one
            if error.kind == "certificate" or (error.kind == "connect" and not other_port):
                raise self.unreachable(error, f"{secure}/v2/") from error
        else:
            return secure
        try:
            self.send_once("GET", f"{plain}/v2/", {}, None).close()
        except ConnectionFailed as error:
            raise self.unreachable(error, f"{plain}/v2/") from error
        return plain

    def refuse_plain_realm(self, url: str) -> None:
        """Refuse a token server on plain http, unless the registry is plain itself and the host may be so.

        Raises:
            InsecureRefused: It is refused.
        """
        scheme, hostname, _ = origin_of(url)
        allowed = self.base_url.startswith("http:") and (
            RegistrySettings(hostname).may_be_plain or (self.settings.insecure and hostname == self._own_hostname)
        )
        if scheme == "http" and not allowed:
            raise InsecureRefused(
                f"{self.settings.host} names a token server on plain http, {shown(url)}. Nothing was sent there.",
                url=shown(url), host=self.settings.host,
            )  # fmt: skip
