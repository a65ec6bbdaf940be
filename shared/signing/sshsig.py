"""SSHSIG, the signature files of `ssh-keygen -Y sign`: made and checked (OpenSSH's PROTOCOL.sshsig).

Stricter than ssh-keygen: version 1 only, nothing in the reserved field, and armouring the parsed signature again must
give the same bytes. ssh-keygen accepts a signature file after some changes of single bits; here there is one form.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass

from transload.shared import limits
from transload.shared.errors import KeyTypeUnsupported, SignatureInvalid, SignatureMalformed
from transload.shared.signing.ssh_keys import KeyMalformed, PublicKey, SigningKey
from transload.shared.signing.ssh_wire import WireError, WireReader, string, uint32

NAMESPACE = "transload-bundle"
"""Keeps a signature of something else (a git commit, a mail) from counting for a bundle, and the other way round."""

_MAGIC = b"SSHSIG"
_VERSION = 1
_HASHES = ("sha512", "sha256")
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----\n", "-----END SSH SIGNATURE-----\n"
_LINE_WIDTH = 70


@dataclass(frozen=True, slots=True)
class SshSignature:
    """A parsed signature; nothing about it is true until `verify`.

    Args:
        public_key: The key that it claims to be by.
        namespace: What it claims to be for.
        hash_algorithm: `sha512` or `sha256`, of the message.
        signature: Algorithm and value in SSH's binary form.
    """

    public_key: PublicKey
    namespace: str
    hash_algorithm: str
    signature: bytes

    @classmethod
    def parse(cls, raw: bytes) -> SshSignature:
        """Read the content of a signature file.

        Args:
            raw: Untrusted bytes.

        Raises:
            KeyTypeUnsupported: Well-formed, but by a certificate, security key, weak RSA or other type or algorithm.
            SignatureMalformed: Anything that is not the one form of such a signature.
        """
        if len(raw) > limits.MAX_SIGNATURE_BYTES:
            raise SignatureMalformed(
                f"A signature file has at most {limits.MAX_SIGNATURE_BYTES:,} bytes, not {len(raw):,}."
            )
        try:
            signature = cls._from_blob(_dearmour(raw))
        except (WireError, KeyMalformed) as error:
            raise SignatureMalformed(f"Not a well-formed SSH signature: {error}.") from error
        if signature.armoured() != raw:
            raise SignatureMalformed(
                "Not a well-formed SSH signature: written again it is other bytes.",
                hint="The file was changed on its way, or another tool than ssh-keygen or transload wrote it.",
            )
        return signature

    @classmethod
    def _from_blob(cls, blob: bytes) -> SshSignature:
        reader = WireReader(blob)
        if reader.take(len(_MAGIC), "the magic") != _MAGIC:
            raise WireError("it does not begin with SSHSIG")
        if (version := reader.uint32("the version")) != _VERSION:
            raise WireError(f"its version is {version}, not {_VERSION}")
        key_blob = reader.string("the public key")
        namespace = reader.text("the namespace")
        if not namespace:
            raise WireError("its namespace is empty")
        if reader.string("the reserved field"):
            raise WireError("its reserved field is not empty")
        hash_algorithm = reader.text("the hash algorithm")
        signature = reader.string("the signature")
        reader.end()
        if hash_algorithm not in _HASHES:
            raise KeyTypeUnsupported(
                f"The signature's hash algorithm {hash_algorithm[:60]!r} does not count; {' and '.join(_HASHES)} do."
            )
        return cls(PublicKey.from_blob(key_blob), namespace, hash_algorithm, signature)

    def verify(self, message: bytes, namespace: str = NAMESPACE) -> None:
        """Check that this is a signature of `message`, for `namespace`, by `public_key`.

        Whether that key is trusted is not asked here: see `allowed_signers`.

        Args:
            message: What must have been signed.
            namespace: What it must have been signed for.

        Raises:
            SignatureInvalid: It is not.
            KeyTypeUnsupported: The algorithm does not count for this type of key.
            SignatureMalformed: The value cannot be a signature of this type of key.
        """
        if self.namespace != namespace:
            raise SignatureInvalid(
                f"The signature is for namespace {self.namespace[:60]!r}, not {namespace!r}.",
                hint=f"Sign with `ssh-keygen -Y sign -n {namespace}` or `transload export --sign-key`.",
                expected=namespace, found=self.namespace[:200],
            )  # fmt: skip
        data = _signed_data(message, self.namespace, self.hash_algorithm)
        try:
            is_valid = self.public_key.is_signature_valid(self.signature, data)
        except KeyMalformed as error:
            raise SignatureMalformed(f"Not a well-formed SSH signature: {error}.") from error
        if not is_valid:
            raise SignatureInvalid(
                f"The signature is not one of this content by the key {self.public_key.fingerprint} that it names.",
                fingerprint=self.public_key.fingerprint,
            )

    def armoured(self) -> bytes:
        """The content of the signature file."""
        blob = b"".join((
            _MAGIC, uint32(_VERSION), string(self.public_key.blob), string(self.namespace.encode("ascii")), string(b""),
            string(self.hash_algorithm.encode("ascii")), string(self.signature),
        ))  # fmt: skip
        encoded = base64.b64encode(blob).decode("ascii")
        lines = (encoded[start : start + _LINE_WIDTH] + "\n" for start in range(0, len(encoded), _LINE_WIDTH))
        return (_BEGIN + "".join(lines) + _END).encode("ascii")


def sign(message: bytes, key: SigningKey, namespace: str = NAMESPACE) -> bytes:
    """Sign a message as `ssh-keygen -Y sign` does.

    Args:
        message: What to sign; SHA256SUMS here.
        key: The private key.
        namespace: What for.

    Returns:
        The content of the signature file.
    """
    hash_algorithm = _HASHES[0]
    value = key.sign(_signed_data(message, namespace, hash_algorithm))
    return SshSignature(key.public_key, namespace, hash_algorithm, value).armoured()


def _signed_data(message: bytes, namespace: str, hash_algorithm: str) -> bytes:
    digest = hashlib.new(hash_algorithm, message).digest()
    return (
        _MAGIC
        + string(namespace.encode("ascii"))
        + string(b"")
        + string(hash_algorithm.encode("ascii"))
        + string(digest)
    )


def _dearmour(raw: bytes) -> bytes:
    try:
        text = raw.decode("ascii")
    except UnicodeDecodeError as error:
        raise WireError("it is not text") from error
    if not (text.startswith(_BEGIN) and text.endswith("\n" + _END)):
        raise WireError("the BEGIN or END line is missing")
    try:
        return base64.b64decode(text[len(_BEGIN) : -len(_END)].replace("\n", ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise WireError(f"it is not base64 ({error})") from error
