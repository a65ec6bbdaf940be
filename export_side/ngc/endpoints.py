"""Where NGC is, and which key is shown to it."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

from transload.shared.errors import InvalidConfiguration
from transload.shared.registry.options import RegistryDirectory
from transload.shared.registry.settings import hostname_of, is_loopback

NGC_USER = "$oauthtoken"


@dataclass(frozen=True, slots=True)
class NgcEndpoints:
    """The three services of NGC.

    Args:
        api: The catalogue's URL.
        auth: The token server's URL for keys that are no Bearer tokens themselves.
        registry: The registry's host.

    Raises:
        InvalidConfiguration: A URL that is none, or plain http to another machine: it would show the key to others.
    """

    api: str = "https://api.ngc.nvidia.com"
    auth: str = "https://authn.nvidia.com"
    registry: str = "nvcr.io"

    def __post_init__(self) -> None:
        for url in (self.api, self.auth):
            parts = urllib.parse.urlsplit(url)
            plain = parts.scheme == "http" and is_loopback(hostname_of(parts.netloc))
            if not parts.hostname or "@" in parts.netloc or not (plain or parts.scheme == "https"):
                raise InvalidConfiguration(
                    f"Not a URL for NGC's API: {url[:200]!r}.", hint="Give an https URL, such as https://HOST."
                )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> NgcEndpoints:
        """NGC's own, or what TRANSLOAD_NGC_API, TRANSLOAD_NGC_AUTH and TRANSLOAD_NGC_REGISTRY say."""
        own = cls()
        return cls(
            environment.get("TRANSLOAD_NGC_API") or own.api,
            environment.get("TRANSLOAD_NGC_AUTH") or own.auth,
            environment.get("TRANSLOAD_NGC_REGISTRY") or own.registry,
        )


def ngc_api_key(registries: RegistryDirectory, endpoints: NgcEndpoints, environment: Mapping[str, str]) -> str | None:
    """The API key: the password for NGC's registry, else NGC_API_KEY; None for an anonymous visitor.

    Args:
        registries: Knows the logins of `--login`, the environment and `docker login`.
        endpoints: Which registry is NGC's.
        environment: Usually `os.environ`.

    Raises:
        CredentialsUnusable: A source that has a login for the registry cannot be read.
    """
    credential = registries.settings_for(endpoints.registry).credential
    if credential is not None and credential.username == NGC_USER and credential.password:
        return credential.password
    return environment.get("NGC_API_KEY") or None
