"""The options of every command that talks to registries, and what they say about each registry."""

from __future__ import annotations

import functools
import os
import re
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import click

from transload.shared.console import warn
from transload.shared.errors import InvalidConfiguration
from transload.shared.registry.credentials import Login, environment_credential
from transload.shared.registry.docker_login import docker_credential
from transload.shared.registry.settings import Credential, RegistrySettings

_HOST = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)

Result = TypeVar("Result")


class RegistryDirectory:
    """Settings for every registry that a run may meet.

    Args:
        logins: Parsed `--login` options.
        ca_certs: Host -> file of trusted certificates; the key None stands for every host.
        insecure_hosts: Hosts that may be plain http or have unchecked certificates.
        token_hosts: Host -> further hosts whose token servers may see its login.
        environment: Where environment logins and docker's configuration folder are looked up.

    Raises:
        InvalidConfiguration: Two logins for one host, or two passwords from standard input.
    """

    def __init__(
        self,
        *,
        logins: Sequence[Login] = (),
        ca_certs: Mapping[str | None, Path] | None = None,
        insecure_hosts: frozenset[str] = frozenset(),
        token_hosts: Mapping[str, frozenset[str]] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._logins = {login.host: login for login in logins}
        if len(self._logins) != len(logins):
            raise InvalidConfiguration("Two --login options name the same registry.", hint="Give one login per host.")
        if sum(login.password_source == "-" for login in logins) > 1:  # noqa: S105 - a file name
            raise InvalidConfiguration("Only one password can come from standard input.", hint="Use files.")
        self._ca_certs = dict(ca_certs or {})
        self._insecure_hosts = insecure_hosts
        self._token_hosts = dict(token_hosts or {})
        self._environment = os.environ if environment is None else environment
        self._given: dict[str, Credential] = {}
        self._known: dict[str, RegistrySettings] = {}
        self._lock = threading.Lock()

    @classmethod
    def plain(cls) -> RegistryDirectory:
        """No options: the environment's and docker's logins, the system's trust."""
        return cls()

    def log_in(self, host: str, credential: Credential) -> None:
        """Use a login that came another way, before every other source but `--login`.

        Args:
            host: As it stands in references.
            credential: The login.
        """
        with self._lock:
            self._given[host] = credential
            self._known.pop(host, None)

    def settings_for(self, host: str) -> RegistrySettings:
        """What is known about one registry; a password is asked for at most once.

        Args:
            host: As it stands in references.

        Raises:
            CredentialsUnusable: A source of logins that has one for this host cannot be read.
        """
        with self._lock:
            if host not in self._known:
                credential, problem = self._credential(host)
                self._known[host] = RegistrySettings(
                    host,
                    credential,
                    self._ca_certs.get(host) or self._ca_certs.get(None),
                    host in self._insecure_hosts,
                    self._token_hosts.get(host, frozenset()),
                    problem,
                )
            return self._known[host]

    def _credential(self, host: str) -> tuple[Credential | None, str]:
        if host in self._logins:
            return self._logins[host].credential(), ""
        if host in self._given:
            return self._given[host], ""
        found = environment_credential(host, self._environment)
        return (found, "") if found else docker_credential(host, self._environment)


def registry_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Add `--login`, `--ca-cert`, `--insecure` and `--token-host` to a click command.

    Args:
        command: Called with one more keyword argument, `registries`, a `RegistryDirectory`.
    """

    @functools.wraps(command)
    def with_registries(
        *args: object,
        login: tuple[str, ...],
        ca_cert: tuple[str, ...],
        insecure: tuple[str, ...],
        token_host: tuple[str, ...],
        **options: object,
    ) -> Result:
        directory = RegistryDirectory(
            logins=[_login(text) for text in login],
            ca_certs=_ca_certs(ca_cert),
            insecure_hosts=frozenset(_host(text, "--insecure") for text in insecure),
            token_hosts=_token_hosts(token_host),
        )
        for host in insecure:
            warn(f"--insecure {host}: nothing proves who answers there, and others can listen.")
        return command(*args, registries=directory, **options)

    for decorate in reversed(_OPTIONS):
        with_registries = decorate(with_registries)
    return with_registries


_OPTIONS = (
    click.option(
        "--login", multiple=True, metavar="HOST=USER[:FILE]", envvar="TRANSLOAD_LOGIN", show_envvar=True,
        help="Login for a registry; may be repeated. The password is the content of FILE, or of standard input "
             "if FILE is -, or is asked for. For NGC the user is $oauthtoken and the password the API key. Otherwise "
             "TRANSLOAD_USERNAME_<HOST> and TRANSLOAD_PASSWORD_<HOST> (the host in capitals, other characters "
             "as _), then what `docker login` stored.",
    ),
    click.option(
        "--ca-cert", multiple=True, metavar="[HOST=]FILE", envvar="TRANSLOAD_CA_CERT", show_envvar=True,
        help="Certificates (PEM) to trust beside the system's, for one registry and its token server, or for all.",
    ),
    click.option(
        "--insecure", multiple=True, metavar="HOST", envvar="TRANSLOAD_INSECURE", show_envvar=True,
        help="Allow plain http and unchecked certificates for this registry (as HOST or HOST:PORT, as in its "
             "references), and for no other. Loopback addresses may be plain http without it.",
    ),
    click.option(
        "--token-host", multiple=True, metavar="HOST=REALMHOST", envvar="TRANSLOAD_TOKEN_HOST", show_envvar=True,
        help="Let the token server on REALMHOST see the login for the registry HOST. Without it a login goes to the "
             "registry's own host name only.",
    ),
)  # fmt: skip


def _login(text: str) -> Login:
    login = Login.parse(text)
    _host(login.host, "--login")
    return login


def _host(text: str, option: str) -> str:
    if not _HOST.fullmatch(text):
        raise InvalidConfiguration(
            f"{option}: {text[:100]!r} is not a registry host.",
            hint="Write the host as it stands in image references, such as nvcr.io or registry.example:5000.",
        )
    return text


def _ca_certs(texts: Sequence[str]) -> dict[str | None, Path]:
    certificates: dict[str | None, Path] = {}
    for text in texts:
        head, equals, tail = text.partition("=")
        host, file = (head, tail) if equals and _HOST.fullmatch(head) else (None, text)
        path = Path(file)
        try:
            ssl.create_default_context().load_verify_locations(cafile=path)
        except (OSError, ssl.SSLError) as error:
            why = "holds no certificate in PEM form" if isinstance(error, ssl.SSLError) else error.strerror
            raise InvalidConfiguration(f"--ca-cert: {path} cannot be used: {why}.", path=str(path)) from error
        if host in certificates:
            raise InvalidConfiguration(f"--ca-cert is given twice for {host or 'all registries'}.")
        certificates[host] = path
    return certificates


def _token_hosts(texts: Sequence[str]) -> dict[str, frozenset[str]]:
    hosts: dict[str, frozenset[str]] = {}
    for text in texts:
        host, equals, realm_host = text.partition("=")
        if not equals:
            raise InvalidConfiguration(f"--token-host: {text[:100]!r} is not of the form HOST=REALMHOST.")
        _host(host, "--token-host")
        hosts[host] = hosts.get(host, frozenset()) | {_host(realm_host, "--token-host")}
    return hosts
