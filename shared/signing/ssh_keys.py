"""OpenSSH keys: public keys as lines of text, private keys as files.

Formats: sshd(8) AUTHORIZED_KEYS FILE FORMAT for the line; OpenSSH's PROTOCOL.key for the private file.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from transload.shared import limits
from transload.shared.atomic_files import read_bounded
from transload.shared.errors import KeyTypeUnsupported, KeyUnusable, TransloadError
from transload.shared.signing import algorithms
from transload.shared.signing.ssh_wire import WireError

KeyTypeName = Literal["ed25519", "ecdsa-p256"]
Passphrase = Callable[[], str]

_PRIVATE_HEADER = b"-----BEGIN OPENSSH PRIVATE KEY-----"


class KeyMalformed(ValueError):
    """Text or bytes that are no public key; its callers turn it into an error that names the place."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key of a supported type; two with the same blob are equal.

    Args:
        key_type: As SSH calls it, such as `ssh-ed25519`.
        blob: Its binary form.
        comment: What stands behind it in a .pub file.
    """

    key_type: str
    blob: bytes
    comment: str = field(default="", compare=False)

    @classmethod
    def from_blob(cls, blob: bytes, comment: str = "") -> PublicKey:
        """Read the binary form.

        Args:
            blob: Untrusted bytes.
            comment: Remembered with the key.

        Raises:
            KeyTypeUnsupported: A certificate, a security key, weak RSA, another type.
            KeyMalformed: Bytes that are no key.
        """
        try:
            key_type, _ = algorithms.read_public_key(blob)
        except algorithms.UnsupportedKey as error:
            raise KeyTypeUnsupported(str(error)) from error
        except WireError as error:
            raise KeyMalformed(str(error)) from error
        return cls(key_type, blob, comment)

    @classmethod
    def parse_line(cls, text: str) -> PublicKey:
        """Read `type base64 [comment]`, as in a .pub file.

        Args:
            text: Untrusted text of one line.

        Raises:
            KeyTypeUnsupported: A certificate, a security key, weak RSA, another type.
            KeyMalformed: Text that is no key.
        """
        key_type, blob, comment = split_line(text)
        key = cls.from_blob(blob, comment)
        if key.key_type != key_type:  # pragma: no cover - split_line has compared them
            raise KeyMalformed(f"it is called {key_type[:60]} and is a {key.key_type}")
        return key

    @property
    def fingerprint(self) -> str:
        """`SHA256:...`, as `ssh-keygen -l` prints it."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode("ascii").rstrip("=")

    def line(self) -> str:
        """`type base64 [comment]`, without an end of line."""
        return f"{self.key_type} {base64.b64encode(self.blob).decode('ascii')} {self.comment}".rstrip()

    def is_signature_valid(self, signature: bytes, data: bytes) -> bool:
        """Whether `signature` (algorithm and value, SSH's binary form) is one of `data` by this key.

        Raises:
            KeyTypeUnsupported: An algorithm that does not count for this type of key, such as SHA-1.
            KeyMalformed: Not a signature of this type of key.
        """
        try:
            key_type, public = algorithms.read_public_key(self.blob)
            return algorithms.is_signature_valid(key_type, public, signature, data)
        except algorithms.UnsupportedKey as error:
            raise KeyTypeUnsupported(str(error)) from error
        except WireError as error:
            raise KeyMalformed(str(error)) from error


def split_line(text: str) -> tuple[str, bytes, str]:
    """Split `type base64 [comment]` of any key type and compare the type with the one inside.

    Returns:
        The type, the blob, the comment.

    Raises:
        KeyMalformed: Not such a line.
    """
    parts = text.strip(" \t\r\n").replace("\t", " ").split(" ", 1)
    if len(parts) != 2:
        raise KeyMalformed("a key type and a key in base64 were expected")
    key_type, rest = parts
    encoded, _, comment = rest.lstrip(" ").partition(" ")
    try:
        blob = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise KeyMalformed(f"the key is not base64 ({error})") from error
    if base64.b64encode(blob).decode("ascii") != encoded:
        raise KeyMalformed("the key is not canonical base64")
    if blob[:4] != len(key_type.encode()).to_bytes(4, "big") or blob[4 : 4 + len(key_type)] != key_type.encode():
        raise KeyMalformed(f"it is called {key_type[:60]!r} and is another type inside")
    return key_type, blob, comment.strip()


class SigningKey:
    """A private key in memory.

    Args:
        private: The key, of a supported type.
        comment: For the public half.

    Raises:
        KeyUnusable: A type that does not count here.
    """

    def __init__(self, private: object, comment: str = "") -> None:
        try:
            blob = algorithms.public_blob(getattr(private, "public_key", lambda: None)())
            self.public_key = PublicKey.from_blob(blob, comment)
        except (algorithms.UnsupportedKey, KeyTypeUnsupported) as error:
            raise KeyUnusable(str(error), hint="Make a key with `transload keygen`.") from error
        self._private = cast("algorithms.PrivateHalf", private)

    @classmethod
    def generate(cls, key_type: KeyTypeName = "ed25519", comment: str = "") -> SigningKey:
        """Make a new key.

        Args:
            key_type: `ed25519`, or `ecdsa-p256` where FIPS rules.
            comment: For the public half.

        Raises:
            KeyUnusable: This host's cryptography has no such keys.
        """
        try:
            if key_type == "ed25519":
                return cls(ed25519.Ed25519PrivateKey.generate(), comment)
            return cls(ec.generate_private_key(ec.SECP256R1()), comment)
        except UnsupportedAlgorithm as error:
            raise KeyUnusable(
                f"This host's cryptography makes no {key_type} keys ({error}).",
                hint="In FIPS mode: transload keygen --type ecdsa-p256",
            ) from error

    @classmethod
    def load(cls, path: Path, *, passphrase: Passphrase | None = None) -> SigningKey:
        """Read a private key file.

        Args:
            path: The file.
            passphrase: Asked only if the file is encrypted.

        Raises:
            KeyUnusable: Missing, readable by others, encrypted and no (or the wrong) passphrase, no key, unsupported.
        """
        try:
            raw = read_bounded(path, limits.MAX_KEY_FILE_BYTES)
        except TransloadError as error:
            raise KeyUnusable(
                f"The signing key cannot be read: {error.message}", hint="Make one with `transload keygen`."
            ) from error
        _check_mode(path)
        return cls.from_bytes(raw, where=str(path), passphrase=passphrase)

    @classmethod
    def from_bytes(cls, raw: bytes, *, where: str, passphrase: Passphrase | None = None) -> SigningKey:
        """Read the content of a private key file; see `load`.

        Args:
            raw: The content.
            where: What messages call it.
            passphrase: Asked only if it is encrypted.

        Raises:
            KeyUnusable: As `load`.
        """
        if not raw.lstrip().startswith(_PRIVATE_HEADER):
            raise KeyUnusable(
                f"{where} is not a private key in OpenSSH's format.",
                hint=f"Convert an older format with `ssh-keygen -p -f {where}`, or make a key with `transload keygen`.",
            )
        try:
            private: object = serialization.load_ssh_private_key(raw, password=None)
        except TypeError:  # cryptography's way to say that it is encrypted
            private = _decrypt(raw, where, passphrase)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise KeyUnusable(f"{where} is not a usable private key: {error}.") from error
        try:
            return cls(private)
        except KeyUnusable as error:
            raise KeyUnusable(f"{where} cannot sign bundles: {error.message}", hint=error.hint) from error

    def sign(self, data: bytes) -> bytes:
        """A signature of `data` in SSH's binary form: algorithm and value."""
        return algorithms.make_signature(self._private, data)

    def private_bytes(self) -> bytes:
        """The content of an unencrypted private key file."""
        return self._private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )


def _decrypt(raw: bytes, where: str, passphrase: Passphrase | None) -> object:
    if passphrase is None:
        raise KeyUnusable(
            f"{where} is protected by a passphrase and none was given.",
            hint="Name a file with it in TRANSLOAD_KEY_PASSPHRASE_FILE, or load the key into ssh-agent and give the "
            ".pub file as signing key.",
        )
    try:
        return serialization.load_ssh_private_key(raw, password=passphrase().encode())
    except (ValueError, TypeError) as error:
        raise KeyUnusable(f"The passphrase does not open {where}.") from error
    except UnsupportedAlgorithm as error:
        raise KeyUnusable(f"{where} is encrypted in a way that is not supported: {error}.") from error


def _check_mode(path: Path) -> None:
    """What ssh-keygen does: a key of ours that others can read is no secret any more."""
    status = path.stat()
    if status.st_uid == os.getuid() and status.st_mode & 0o077:
        raise KeyUnusable(
            f"{path} can be read by others (mode {status.st_mode & 0o777:04o}); a signing key must be yours alone.",
            hint=f"chmod 600 {path}",
        )
