"""How a bundle is signed: with a private key file here, or by ssh-keygen through an agent or a hardware token."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import click

from transload.shared import limits
from transload.shared.atomic_files import read_bounded
from transload.shared.errors import KeyTypeUnsupported, KeyUnusable, TransloadError
from transload.shared.signing.ssh_keys import KeyMalformed, Passphrase, PublicKey, SigningKey
from transload.shared.signing.sshsig import NAMESPACE, SshSignature, sign

Signer: TypeAlias = Callable[[bytes], bytes]

PASSPHRASE_FILE_VARIABLE = "TRANSLOAD_KEY_PASSPHRASE_FILE"  # noqa: S105 - a name
AGENT_TIMEOUT_SECONDS = 300.0
"""An agent may ask a person to confirm, or to touch a token; after this long nobody is there."""


def signer_for(path: Path, *, passphrase: Passphrase | None = None) -> Signer:
    """Make ready to sign, and find out now, not after the export, whether that will work.

    Args:
        path: A private key file, or a .pub file whose private half an agent holds.
        passphrase: Asked if the file is encrypted; by default the file named in TRANSLOAD_KEY_PASSPHRASE_FILE,
            else a prompt on a terminal.

    Returns:
        A function from the message to the content of its signature file.

    Raises:
        KeyUnusable: No usable key there, or an agent that does not sign with it.
    """
    public_key = _public_key_in(path)
    if public_key is None:
        key = SigningKey.load(path, passphrase=passphrase or _default_passphrase(path))
        return lambda message: _checked(sign(message, key), message, key.public_key)

    def sign_by_agent(message: bytes) -> bytes:
        return _checked(_ssh_keygen_sign(path, message), message, public_key)

    sign_by_agent(b"transload asks the agent whether it can sign with this key\n")
    return sign_by_agent


def _public_key_in(path: Path) -> PublicKey | None:
    """The key of a .pub file, or None for anything else, which is then read as a private key."""
    try:
        raw = read_bounded(path, limits.MAX_KEY_FILE_BYTES)
    except TransloadError as error:
        raise KeyUnusable(
            f"The signing key cannot be read: {error.message}", hint="Make one with `transload keygen`."
        ) from error
    try:
        return PublicKey.parse_line(raw.decode("utf-8"))
    except KeyTypeUnsupported as error:
        raise KeyUnusable(
            f"{path} cannot sign bundles: {error.message}", hint="Make a key with `transload keygen`."
        ) from error
    except (KeyMalformed, UnicodeDecodeError) as error:
        if path.suffix == ".pub":
            raise KeyUnusable(f"{path} is not a public key: {error}.") from error
        return None


def _ssh_keygen_sign(path: Path, message: bytes) -> bytes:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise KeyUnusable(
            f"{path} is a public key: signing with it takes ssh-keygen and an agent, and ssh-keygen is not installed.",
            hint="Install openssh-client, or name a private key file.",
        )
    command = [program, "-Y", "sign", "-n", NAMESPACE, "-f", str(path)]
    try:
        result = subprocess.run(command, input=message, capture_output=True, timeout=AGENT_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KeyUnusable(f"ssh-keygen did not sign with {path}: {error}.") from error
    if result.returncode != 0:
        said = result.stderr.decode("utf-8", "replace").strip().splitlines()[-3:]
        raise KeyUnusable(
            f"ssh-keygen did not sign with {path}: {' / '.join(said)[:500]}.",
            hint="Is the private half in the agent of SSH_AUTH_SOCK? `ssh-add -l` lists, `ssh-add FILE` adds it.",
        )
    return result.stdout


def _checked(signature: bytes, message: bytes, key: PublicKey) -> bytes:
    """A signature that our own verifier refuses is worth nothing on the other side of the gap: find out here."""
    try:
        parsed = SshSignature.parse(signature)
        parsed.verify(message)
    except TransloadError as error:
        raise KeyUnusable(f"The signature that was made is not usable: {error.message}") from error
    if parsed.public_key != key:
        raise KeyUnusable(f"The signature was made by another key: {parsed.public_key.fingerprint}.")
    return signature


def _default_passphrase(path: Path) -> Passphrase | None:
    if name := os.environ.get(PASSPHRASE_FILE_VARIABLE):
        return lambda: _passphrase_from(Path(name))
    if sys.stdin is not None and sys.stdin.isatty():
        return lambda: str(click.prompt(f"Passphrase for {path}", hide_input=True, err=True))
    return None


def _passphrase_from(path: Path) -> str:
    try:
        text = read_bounded(path, limits.MAX_PASSWORD_BYTES).decode("utf-8")
    except (TransloadError, UnicodeDecodeError) as error:
        raise KeyUnusable(f"The passphrase file of {PASSPHRASE_FILE_VARIABLE} cannot be read: {error}") from error
    return text.removesuffix("\n").removesuffix("\r")
