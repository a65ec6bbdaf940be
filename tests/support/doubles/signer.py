"""An ed25519 signer with a fixed key, written from OpenSSH's PROTOCOL.sshsig and independent of the code under test."""

from __future__ import annotations

import base64
import hashlib
import textwrap
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

NAMESPACE = "transload-bundle"


@dataclass(frozen=True)
class Signer:
    """Somebody with a key; the same name always has the same key."""

    name: str = "exporter@example.org"

    @property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(self.name.encode()).digest())

    @property
    def _public(self) -> bytes:
        raw = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return _string(b"ssh-ed25519") + _string(raw)

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(self._public).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    @property
    def private_file(self) -> bytes:
        """The key as an OpenSSH private key file."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())

    @property
    def public_line(self) -> str:
        return f"ssh-ed25519 {base64.b64encode(self._public).decode()} {self.name}"

    def trust_line(self, options: str = f'namespaces="{NAMESPACE}"') -> str:
        """This signer's line of an allowed_signers file."""
        return f"{self.name} {options} ssh-ed25519 {base64.b64encode(self._public).decode()}\n"

    def sign(self, message: bytes, namespace: str = NAMESPACE) -> bytes:
        """An armoured SSHSIG."""
        head = _string(namespace.encode()) + _string(b"") + _string(b"sha512")
        signed = b"SSHSIG" + head + _string(hashlib.sha512(message).digest())
        signature = _string(b"ssh-ed25519") + _string(self._key.sign(signed))
        blob = b"SSHSIG" + (1).to_bytes(4, "big") + _string(self._public) + head + _string(signature)
        body = "\n".join(textwrap.wrap(base64.b64encode(blob).decode(), 70))
        return f"-----BEGIN SSH SIGNATURE-----\n{body}\n-----END SSH SIGNATURE-----\n".encode()


def _string(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content
