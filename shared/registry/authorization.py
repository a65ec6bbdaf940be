"""Logins: which challenge is answered with what, and to whom the credential may be shown.

A registry says with 401 what it wants: Basic, or a Bearer token from a token server that it names (the realm).
Tokens are kept per scope and fetched again when they run out or are rejected, also in the middle of a job. After a
rejected token the next request goes out without any, since some registries (nvcr.io) name another, useless realm to
the bearer of a dead token than to a stranger.
Specifications: distribution, "Token Authentication" and "OAuth2 Token Authentication"; RFC 6750; RFC 7617.
"""

from __future__ import annotations

import math
import threading
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transload.shared import limits
from transload.shared.errors import InsecureRefused, RegistryLoginRefused, RegistryProtocolError, RegistryUnreachable
from transload.shared.registry.answer import Answer, BrokenOff
from transload.shared.registry.challenge import Challenge, parse_challenges
from transload.shared.registry.transport import Transport
from transload.shared.registry.urls import origin_of, resolve, shown

Scopes = tuple[str, ...]
"""Such as `("repository:nvidia/pytorch:pull",)`."""

_CLIENT_ID = "transload"
_RENEWED_BEFORE_END = 0.1
"""A token is renewed when a tenth of its life is left: clocks and requests take time."""


@dataclass(frozen=True, slots=True)
class _Token:
    header: str
    ends_at: float
    challenge: Challenge
    base_url: str


class AuthorizedTransport:
    """A transport that answers challenges; safe to use from several threads.

    Args:
        transport: Sends the requests.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._settings = transport.settings
        self._lock = threading.Lock()
        self._basic: str | None = None
        self._tokens: dict[Scopes, _Token] = {}

    def send(
        self,
        scopes: Scopes,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        may_repeat: bool = True,
    ) -> Answer:
        """Send a request with whatever login it needs.

        Args:
            scopes: What a token must allow.
            method: Such as `GET`.
            url: Absolute, of the registry's own origin.
            headers: Further headers.
            body: Bytes.
            may_repeat: See `Transport.send`.

        Returns:
            The answer; never a 401 of the registry itself.

        Raises:
            RegistryLoginRefused: No login is known, or it is refused.
            InsecureRefused: The login would have to go to a host that may not see it.
            TransloadError: As `Transport.send`.
        """
        rejected = 0
        header = self.header_for(scopes)
        own: _Token | None = None
        while True:
            answer = self.transport.send(
                method, url, headers=headers, authorization=header, body=body, may_repeat=may_repeat
            )
            if answer.status != 401 or answer.has_left_origin:
                if own is not None:
                    self._share(scopes, own)
                return answer
            if header is None:
                challenges = parse_challenges(answer.header_values("WWW-Authenticate"))
                # After a rejection only a token of this request's own tells whether the login is refused: other
                # workers may use up a shared one between its arrival and this request.
                found = self._answer_challenges(scopes, challenges, answer, is_shared=not rejected)
                own = found if rejected and isinstance(found, _Token) else None
                header = found.header if isinstance(found, _Token) else found
                continue
            rejected += 1
            self.forget(scopes, header)
            if header == self._basic or rejected >= limits.MAX_REJECTED_TOKENS:
                raise self.refused(answer)
            answer.close()
            header = own = None

    def header_for(self, scopes: Scopes) -> str | None:
        """The Authorization header for a request, as far as it is known; a token that has run out is renewed.

        Args:
            scopes: What a token must allow.

        Raises:
            TransloadError: As `send`, when a token is renewed.
        """
        with self._lock:
            if self._basic:
                return self._basic
            token = self._tokens.get(scopes)
            if token is None or time.monotonic() < token.ends_at:
                return token.header if token else None
            # Run out: ask again where the last one came from.
            del self._tokens[scopes]
            self._tokens[scopes] = self._fetched_token(scopes, token.challenge, token.base_url)
            return self._tokens[scopes].header

    def forget(self, scopes: Scopes, header: str) -> None:
        """Drop a rejected token, unless another worker has a newer one already.

        Args:
            scopes: What it was for.
            header: The header that was rejected.
        """
        with self._lock:
            token = self._tokens.get(scopes)
            if token and token.header == header:
                del self._tokens[scopes]

    def refused(self, answer: Answer) -> RegistryLoginRefused:
        """The error for an answer that says no to the login, or to the lack of one."""
        credential = self._settings.credential
        host = self._settings.host
        who = "an anonymous visitor"
        hint = f"Give a login: --login {host}=USER:FILE, or TRANSLOAD_USERNAME_... and TRANSLOAD_PASSWORD_..., "
        hint += "or `docker login`."
        if credential:
            who = f"the login from {credential.source}" if credential.source else "the login"
            who += f" (user {credential.username})" if credential.username else ""
            hint = "Check user and password, and that this account may use the repository."
        elif self._settings.credential_problem:
            hint = f"No login could be looked up: {self._settings.credential_problem}. {hint}"
        return RegistryLoginRefused(
            f"{host} refuses {who} with {answer.status} at {shown(answer.url)}: {answer.problem()}.",
            hint=hint,
            host=host, status=answer.status, url=shown(answer.url), has_login=credential is not None,
        )  # fmt: skip

    def _share(self, scopes: Scopes, token: _Token) -> None:
        with self._lock:
            self._tokens.setdefault(scopes, token)

    def _answer_challenges(
        self, scopes: Scopes, challenges: Sequence[Challenge], answer: Answer, *, is_shared: bool
    ) -> _Token | str:
        """A token, or the header of a Basic login, by which the request may be tried again.

        Args:
            scopes: What a token must allow.
            challenges: What the registry offers.
            answer: Where it said so; closed here.
            is_shared: Use the token of another worker if there is one, and leave a new one to the others.
        """
        bearer = next((one for one in challenges if one.scheme == "bearer" and one.parameters.get("realm")), None)
        if bearer and not is_shared and not self._basic:
            answer.close()
            return self._fetched_token(scopes, bearer, answer.url)
        with self._lock:
            if self._basic or scopes in self._tokens:
                answer.close()  # another worker was quicker
                return self._basic or self._tokens[scopes]
            if bearer:
                answer.close()
                self._tokens[scopes] = self._fetched_token(scopes, bearer, answer.url)
                return self._tokens[scopes]
            if any(one.scheme == "basic" for one in challenges):
                credential = self._settings.credential
                if credential is None or not credential.username:
                    raise self.refused(answer)
                answer.close()
                self._basic = credential.basic_header()
                return self._basic
            answer.close()
            offered = ", ".join(one.scheme[:20] for one in challenges) or "nothing"
            raise RegistryLoginRefused(
                f"{self._settings.host} wants a login at {shown(answer.url)} but offers no known way: {offered}.",
                host=self._settings.host, status=401, url=shown(answer.url),
            )  # fmt: skip

    # --- tokens ---

    def _fetched_token(self, scopes: Scopes, challenge: Challenge, base_url: str) -> _Token:
        realm = resolve(base_url, challenge.parameters["realm"], "WWW-Authenticate")
        self.transport.refuse_link_local(realm, "token server")
        self.transport.refuse_plain_realm(realm)
        hostname = origin_of(realm)[1]
        credential = self._settings.credential
        if credential and not self._settings.trusts_token_host(hostname):
            raise InsecureRefused(
                f"{self._settings.host} wants its login to be shown to a token server on another host, {hostname}. "
                "It was not sent.",
                hint=f"If that host belongs to the registry, allow it: --token-host {self._settings.host}={hostname}.",
                host=self._settings.host, realm_host=hostname,
            )  # fmt: skip
        asked_at = time.monotonic()
        answer = self._ask_token_server(realm, scopes, challenge)
        if answer.status in (400, 401, 403):
            raise self.refused(answer)
        if answer.status == 404 or not 200 <= answer.status < 300:
            raise RegistryProtocolError(
                f"The token server of {self._settings.host} answers {answer.status} at {shown(answer.url)}: "
                f"{answer.problem()}.",
                host=self._settings.host, status=answer.status, url=shown(answer.url),
            )  # fmt: skip
        try:
            fields = answer.json(limits.MAX_TOKEN_ANSWER_BYTES)
        except BrokenOff as error:
            raise RegistryUnreachable(f"{shown(realm)} broke off its answer.", host=hostname) from error
        token = fields.get("token") or fields.get("access_token") if isinstance(fields, dict) else None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
            raise RegistryProtocolError(f"{shown(realm)} answers without a usable token.", url=shown(realm))
        self.transport.redactor.add(token)
        lifetime = fields.get("expires_in")
        if not isinstance(lifetime, (int, float)) or not math.isfinite(lifetime) or lifetime <= 0:
            lifetime = limits.DEFAULT_TOKEN_LIFETIME_SECONDS
        return _Token(f"Bearer {token}", asked_at + lifetime * (1 - _RENEWED_BEFORE_END), challenge, base_url)

    def _ask_token_server(self, realm: str, scopes: Scopes, challenge: Challenge) -> Answer:
        credential = self._settings.credential
        fields = token_query(realm, scopes, challenge)
        if credential and credential.identity_token:
            address = urllib.parse.urlsplit(realm)._replace(query="").geturl()
            form = [
                *((name, value) for name, value in fields if name != "scope"),
                ("scope", " ".join(value for name, value in fields if name == "scope")),
                ("grant_type", "refresh_token"),
                ("client_id", _CLIENT_ID),
                ("refresh_token", credential.identity_token),
            ]
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            return self.transport.send("POST", address, headers=headers, body=urllib.parse.urlencode(form).encode())
        address = urllib.parse.urlsplit(realm)._replace(query=urllib.parse.urlencode(fields, safe=":/,")).geturl()
        return self.transport.send("GET", address, authorization=credential.basic_header() if credential else None)


def token_query(realm: str, scopes: Scopes, challenge: Challenge) -> list[tuple[str, str]]:
    """What to ask a token server for.

    The realm's own query is kept, except that a scope there, or in the challenge, about a repository that is asked
    for anyway gives way to what is really needed: nvcr.io names pull and push, and a key may allow only one.

    Args:
        realm: The token server's URL, perhaps with a query.
        scopes: What is needed.
        challenge: May add a service and further scopes.

    Returns:
        Names and values of the query, scopes last.
    """
    kept = urllib.parse.parse_qsl(urllib.parse.urlsplit(realm).query, keep_blank_values=True)
    named = [value for name, value in kept if name == "scope"] + [challenge.parameters.get("scope", "")]
    fields = [(name, value) for name, value in kept if name != "scope"]
    service = challenge.parameters.get("service")
    if service and not any(name == "service" for name, _ in fields):
        fields.append(("service", service))
    resources = {scope.rpartition(":")[0] for scope in scopes}
    others = [scope for text in named for scope in text.split() if scope.rpartition(":")[0] not in resources]
    return [*fields, *(("scope", scope) for scope in (*scopes, *dict.fromkeys(others)))]
