"""Where a registry's login comes from: `--login`, the environment, `docker login`, in this order.

A password is never part of a command line: `--login` names a user, and the password comes from a file, from standard
input or from a prompt.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from transload.shared import limits
from transload.shared.atomic_files import read_bounded
from transload.shared.errors import CredentialsUnusable, InvalidConfiguration, TransloadError
from transload.shared.registry.settings import Credential

_NGC_HOST = "nvcr.io"
_NGC_USER = "$oauthtoken"


@dataclass(frozen=True, slots=True)
class Login:
    """One `--login HOST=USER[:FILE]`.

    Args:
        host: The registry.
        username: The user name.
        password_source: A file's path, `-` for standard input, or empty for a prompt.
    """

    host: str
    username: str
    password_source: str = ""

    @classmethod
    def parse(cls, text: str) -> Login:
        """Read an option's value.

        Raises:
            InvalidConfiguration: Text of another shape. The message does not repeat it: it might hold a password.
        """
        host, equals, rest = text.partition("=")
        username, _, source = rest.partition(":")
        if not (host and equals and username):
            raise InvalidConfiguration(
                "A --login is not of the form HOST=USER or HOST=USER:FILE.",
                hint="For NGC: --login 'nvcr.io=$oauthtoken:FILE' with the API key in FILE, or - for standard input.",
            )
        return cls(host, username, source)

    def credential(self) -> Credential:
        """Read or ask for the password.

        Raises:
            CredentialsUnusable: The file cannot be read, is empty or not text, or there is nobody to ask.
        """
        if self.password_source:
            raw, where = self._read()
            password = password_from(raw, where)
        else:
            password = self._ask()
        return Credential(self.username, password, source="--login")

    def _read(self) -> tuple[bytes, str]:
        if self.password_source == "-":  # noqa: S105 - a file name
            where = "standard input"
            raw = sys.stdin.buffer.read(limits.MAX_PASSWORD_BYTES + 1)
            if len(raw) > limits.MAX_PASSWORD_BYTES:
                raise _unusable(self.host, where, f"is longer than {limits.MAX_PASSWORD_BYTES:,} bytes")
            return raw, where
        try:
            return read_bounded(Path(self.password_source), limits.MAX_PASSWORD_BYTES), self.password_source
        except TransloadError as error:
            raise CredentialsUnusable(
                f"The password file for {self.host} cannot be used: {error.message}",
                hint="--login takes HOST=USER:FILE, where FILE holds the password and nothing else.",
                host=self.host,
            ) from error

    def _ask(self) -> str:
        if not sys.stdin.isatty():
            raise CredentialsUnusable(
                f"No password for {self.username} at {self.host}, and no terminal to ask at.",
                hint=f"Give it as --login {self.host}={self.username}:FILE, or with FILE - for standard input.",
                host=self.host,
            )
        return str(click.prompt(f"Password for {self.username} at {self.host}", hide_input=True, err=True))


def password_from(raw: bytes, where: str) -> str:
    """A password out of a file's content: all of it, except one line end after it.

    Args:
        raw: The content.
        where: The file, for messages.

    Raises:
        CredentialsUnusable: It is empty, not UTF-8, or has control characters.
    """
    line = raw.removesuffix(b"\n").removesuffix(b"\r") if raw.endswith(b"\n") else raw
    try:
        password = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CredentialsUnusable(f"The password in {where} is not UTF-8 text.") from error
    if not password:
        raise CredentialsUnusable(f"The password in {where} is empty.")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in password):
        raise CredentialsUnusable(
            f"The password in {where} has line breaks or control characters.",
            hint="The file holds the password and nothing else; one line end after it is ignored.",
        )
    return password


def environment_credential(host: str, environment: Mapping[str, str]) -> Credential | None:
    """The login that `TRANSLOAD_USERNAME_<HOST>` and `TRANSLOAD_PASSWORD_<HOST>` give.

    For nvcr.io the user name may be left out: it is always `$oauthtoken`. NGC_API_KEY counts there, too, if neither
    of the two is set; TRANSLOAD_NGC_REGISTRY names another host that is NGC's registry.

    Args:
        host: The registry.
        environment: Usually `os.environ`.

    Raises:
        CredentialsUnusable: Only one of the two is set.
    """
    suffix = re.sub(r"[^A-Z0-9]", "_", host.upper())
    user_variable, password_variable = f"TRANSLOAD_USERNAME_{suffix}", f"TRANSLOAD_PASSWORD_{suffix}"
    username, password = environment.get(user_variable, ""), environment.get(password_variable, "")
    if host == (environment.get("TRANSLOAD_NGC_REGISTRY") or _NGC_HOST):
        if not username and not password and environment.get("NGC_API_KEY"):
            return Credential(_NGC_USER, environment["NGC_API_KEY"], source="the environment (NGC_API_KEY)")
        username = username or (_NGC_USER if password else "")
    if not username and not password:
        return None
    if not (username and password):
        missing = password_variable if username else user_variable
        raise CredentialsUnusable(
            f"The login for {host} in the environment is incomplete: {missing} is not set.",
            hint=f"Set {user_variable} and {password_variable}, or neither.",
            host=host,
        )
    return Credential(username, password, source=f"the environment ({password_variable})")


def _unusable(host: str, where: str, why: str) -> CredentialsUnusable:
    return CredentialsUnusable(f"The password for {host} from {where} {why}.", host=host)
