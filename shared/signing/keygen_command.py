"""`transload keygen`: a signing key pair, and the one line that is carried across the gap once."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
from pathlib import Path
from typing import cast

import click

from transload.shared.atomic_files import fault_point, reporting_write_errors, sync_directory
from transload.shared.console import print_text, say
from transload.shared.errors import AlreadyExists, InvalidConfiguration

DEFAULT_OUTPUT = Path("transload_signing_key")
ALLOWED_SIGNERS_SUFFIX = ".allowed_signers"

_PRINCIPAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}", re.ASCII)
"""What stands in allowed_signers without quotes and is no pattern."""


@click.command()
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), default=DEFAULT_OUTPUT, show_default=True,
    help="The private key's file; FILE.pub and FILE.allowed_signers are made beside it. Nothing is ever overwritten.",
)  # fmt: skip
@click.option(
    "--type", "key_type", type=click.Choice(["ed25519", "ecdsa-p256"]), default="ed25519", show_default=True,
    help="ecdsa-p256 for hosts in FIPS mode.",
)  # fmt: skip
@click.option("--comment", default=None, show_default="the principal", help="Stands in FILE.pub.")
@click.option(
    "--principal", default=None, metavar="NAME", show_default="user@host",
    help="What the other side calls the signer (--signer).",
)  # fmt: skip
def keygen(output: Path, key_type: str, comment: str | None, principal: str | None) -> None:
    """Make a key pair that signs bundles, and the line by which the other side trusts it.

    The line on standard output goes into the importer's trust file (--trust). Carry it over once, by a way that
    you trust: whoever can change it on its way can sign bundles for the other side.
    """
    name = _checked_principal(principal if principal is not None else _default_principal())
    fingerprint, line = make_key_files(output, key_type, comment=comment or name, principal=name)
    print_text(line)
    say(f"Made {output} (private: keep it on this side), {output}.pub and {output}{ALLOWED_SIGNERS_SUFFIX}.")
    say(f"Its fingerprint is {fingerprint}; read it out to the other side and compare.")
    say("Next:")
    say(f"  1. Carry {output}{ALLOWED_SIGNERS_SUFFIX} to the importer once; it holds the line above.")
    say(f"  2. Here:  transload export REFERENCE --sign-key {output}")
    say(f"  3. There: transload import BUNDLE --trust {output.name}{ALLOWED_SIGNERS_SUFFIX} --to docker")
    say(f"A passphrase protects the key from whoever reads this disk: ssh-keygen -p -f {output}")


def make_key_files(output: Path, key_type: str, *, comment: str, principal: str) -> tuple[str, str]:
    """Make a key and its three files.

    Args:
        output: The private key's file, mode 0600.
        key_type: `ed25519` or `ecdsa-p256`.
        comment: Stands in the .pub file.
        principal: First field of the allowed_signers line.

    Returns:
        The key's fingerprint and its allowed_signers line.

    Raises:
        InvalidConfiguration: A comment that does not fit in a line.
        AlreadyExists: One of the files is there; none was made.
        WriteFailed, NotEnoughSpace, PathMissing: None of them is left behind.
    """
    from transload.shared.signing.ssh_keys import KeyTypeName, SigningKey  # noqa: PLC0415 - `--help` stays quick
    from transload.shared.signing.sshsig import NAMESPACE  # noqa: PLC0415

    if not comment.isprintable():
        raise InvalidConfiguration(f"The comment {comment[:80]!r} does not fit in one line of text.")
    key = SigningKey.generate(cast("KeyTypeName", key_type), comment)
    public_line = key.public_key.line()
    signers_line = f'{principal} namespaces="{NAMESPACE}" {public_line}'
    _write_all({
        output: (key.private_bytes(), 0o600),
        output.with_name(f"{output.name}.pub"): (f"{public_line}\n".encode(), 0o644),
        output.with_name(output.name + ALLOWED_SIGNERS_SUFFIX): (f"{signers_line}\n".encode(), 0o644),
    })  # fmt: skip
    return key.public_key.fingerprint, signers_line


def _write_all(files: dict[Path, tuple[bytes, int]]) -> None:
    """All files or none, and never over something that is there, not even through a link."""
    for path in files:
        if os.path.lexists(path):
            raise AlreadyExists(
                f"{path} already exists; no key was made.",
                hint="Choose another --output. A signing key is never overwritten: bundles may depend on it.",
                path=str(path),
            )
    made: list[Path] = []
    try:
        for path, (content, mode) in files.items():
            _write_exclusively(path, content, mode, made)
        sync_directory(next(iter(files)).parent)
    except BaseException:
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink()
        raise


def _write_exclusively(path: Path, content: bytes, mode: int, made: list[Path]) -> None:
    with reporting_write_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        made.append(path)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # whatever the umask
            file.write(content)
            file.flush()
            fault_point(f"fsync {path.name}")
            os.fsync(descriptor)


def _checked_principal(name: str) -> str:
    if not _PRINCIPAL.fullmatch(name):
        raise InvalidConfiguration(
            f"{name[:140]!r} cannot name a signer.",
            hint="Use letters, digits and . _ @ + - in --principal, such as exporter@hpc.example.org.",
        )
    return name


def _default_principal() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in containers
        user = f"uid{os.getuid()}"
    name = re.sub(r"[^A-Za-z0-9._@+-]", "-", f"{user}@{socket.gethostname()}")[:128]
    return name if name[0].isalnum() else f"signer{name}"[:128]
