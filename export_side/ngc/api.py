"""Talking to NGC's API: JSON by GET, with the login that a key needs, and repeated while that helps."""

from __future__ import annotations

import threading
import urllib.parse
from pathlib import Path
from typing import Any

from transload.export_side.ngc.endpoints import NGC_USER, NgcEndpoints
from transload.shared import limits
from transload.shared.errors import (
    NotFoundInRegistry,
    RegistryLoginRefused,
    RegistryProtocolError,
    RegistryUnreachable,
    TransloadError,
)
from transload.shared.registry.answer import Answer, BrokenOff
from transload.shared.registry.settings import Credential, RegistrySettings
from transload.shared.registry.transport import Transport
from transload.shared.registry.urls import shown
from transload.shared.workers import Stop

_BEARER_KEY = "nvapi-"
_KEY_HINT = (
    "Make a new key at org.ngc.nvidia.com (Setup, API Keys) and give it as --login 'nvcr.io=$oauthtoken:FILE' or in "
    "NGC_API_KEY; public images need no key."
)


def is_closed(error: TransloadError) -> bool:
    """Whether the visitor is known to NGC and may not see what was asked for, as a 403 says."""
    return isinstance(error, RegistryLoginRefused) and error.facts.get("status") == 403


class NgcApi:
    """NGC's API. Safe to use from several threads.

    Args:
        endpoints: Where it is.
        api_key: Shown to the token server and the API alone; None for an anonymous visitor.
        stop: Ends waits.
        ca_cert: Certificates trusted beside the system's.
    """

    def __init__(
        self, endpoints: NgcEndpoints, api_key: str | None, *, stop: Stop, ca_cert: Path | None = None
    ) -> None:
        self.endpoints = endpoints
        self.has_key = api_key is not None
        self._credential = Credential(NGC_USER, api_key) if api_key else None
        self._api, self._auth = (
            Transport(RegistrySettings(urllib.parse.urlsplit(url).netloc, self._credential, ca_cert), stop)
            for url in (endpoints.api, endpoints.auth)
        )
        self._tokens: dict[str, str] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close idle connections."""
        self._api.close()
        self._auth.close()

    @property
    def requests_made(self) -> int:
        """How many HTTP requests went out."""
        return self._api.requests_made + self._auth.requests_made

    def public(self, url: str) -> object:
        """The JSON at a URL of the API that needs no login.

        Raises:
            TransloadError: As `RegistryClient.get_manifest`.
        """
        return self._json(self._api, url, None)

    def of_organisation(self, url: str, organisation: str) -> object:
        """The JSON at a URL of the API that members of an organisation may see.

        A token that has run out meanwhile is renewed once.

        Args:
            url: Absolute.
            organisation: Whose members; empty for whoever has a key.

        Raises:
            RegistryLoginRefused: The key is wrong or has expired; or it is good for others (see `is_closed`).
            TransloadError: As `RegistryClient.get_manifest`.
        """
        with self._lock:
            known = self._tokens.get(organisation)
        header = known or self._new_header(organisation)
        try:
            return self._json(self._api, url, header)
        except RegistryLoginRefused as error:
            if known is None or self._is_bearer_key or is_closed(error):
                raise
        return self._json(self._api, url, self._new_header(organisation))

    @property
    def _is_bearer_key(self) -> bool:
        return self._credential is not None and self._credential.password.startswith(_BEARER_KEY)

    def _new_header(self, organisation: str) -> str:
        if self._credential is None:
            raise RuntimeError("no key")
        if self._is_bearer_key:
            header = f"Bearer {self._credential.password}"
        else:
            scope = {"scope": f"group/ngc:{organisation}"} if organisation else {}
            query = urllib.parse.urlencode({"service": "ngc", **scope}, safe="/:")
            url = f"{self.endpoints.auth}/token?{query}"
            answer = self._json(self._auth, url, self._credential.basic_header())
            token = answer.get("token") if isinstance(answer, dict) else None
            if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
                raise RegistryProtocolError(f"{shown(url)} answers without a usable token.", url=shown(url))
            self._api.redactor.add(token)
            header = f"Bearer {token}"
        with self._lock:
            self._tokens[organisation] = header
        return header

    def _json(self, transport: Transport, url: str, authorization: str | None) -> object:
        for attempt in range(1, limits.MAX_REQUEST_ATTEMPTS + 1):
            answer = transport.send("GET", url, headers={"Accept": "application/json"}, authorization=authorization)
            if answer.status != 200:
                raise self._error(answer)
            try:
                return answer.json(limits.MAX_CATALOG_PAGE_BYTES)
            except BrokenOff:
                if attempt < limits.MAX_REQUEST_ATTEMPTS:
                    transport.wait_before_retry(attempt)
        raise RegistryUnreachable(f"{shown(url)} breaks off its answer every time.", url=shown(url))

    def _error(self, answer: Answer) -> TransloadError:
        where, why = shown(answer.url), answer.problem()
        facts: dict[str, Any] = {"url": where, "status": answer.status}
        if answer.status == 401:
            who = "the API key, which is wrong or has expired" if self.has_key else "an anonymous visitor"
            return RegistryLoginRefused(f"NGC refuses {who}: {where} answers 401: {why}.", hint=_KEY_HINT, **facts)
        if answer.status == 403:
            who = "the API key" if self.has_key else "an anonymous visitor"
            return RegistryLoginRefused(f"NGC does not let {who} see {where} (403): {why}.", hint=_KEY_HINT, **facts)
        if answer.status == 404:
            return NotFoundInRegistry(f"There is no {where}: {why}.", hint="Check the project's name.", **facts)
        return RegistryProtocolError(f"{where} answers with {answer.status}: {why}.", **facts)
