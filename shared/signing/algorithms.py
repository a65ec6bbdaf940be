"""The key types and signature algorithms that count, and nothing else: the only module that does public-key arithmetic.

Wire formats: RFC 8709 (ed25519), RFC 5656 (ecdsa), RFC 4253 and RFC 8332 (rsa with SHA-2).
"""

from __future__ import annotations

from typing import TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from transload.shared.signing.ssh_wire import WireError, WireReader, mpint, string

PublicHalf: TypeAlias = "ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey"
PrivateHalf: TypeAlias = "ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey"

ED25519 = "ssh-ed25519"
RSA = "ssh-rsa"
ECDSA_P256 = "ecdsa-sha2-nistp256"
ECDSA_P384 = "ecdsa-sha2-nistp384"
SUPPORTED = "ssh-ed25519, ecdsa-sha2-nistp256, ecdsa-sha2-nistp384 and ssh-rsa of at least 3072 bits"

MIN_RSA_BITS = 3072
MAX_RSA_BITS = 16384
"""OpenSSH's own limit (SSHBUF_MAX_BIGNUM); it bounds the time of one verification."""
MAX_RSA_EXPONENT_BITS = 64
"""OpenSSL's limit for large moduli; everybody uses 65537."""

_CURVES: dict[str, tuple[bytes, ec.EllipticCurve, hashes.HashAlgorithm]] = {
    ECDSA_P256: (b"nistp256", ec.SECP256R1(), hashes.SHA256()),
    ECDSA_P384: (b"nistp384", ec.SECP384R1(), hashes.SHA384()),
}
_RSA_HASHES: dict[str, hashes.HashAlgorithm] = {"rsa-sha2-512": hashes.SHA512(), "rsa-sha2-256": hashes.SHA256()}
"""Not `ssh-rsa`, which is SHA-1."""


class UnsupportedKey(Exception):
    """A well-formed key or algorithm that does not count here; the text says which and why."""


def read_public_key(blob: bytes) -> tuple[str, PublicHalf]:
    """Understand the binary form of a public key.

    Args:
        blob: Untrusted bytes: what is in base64 in a .pub file, an allowed_signers line or a signature.

    Returns:
        Its type, as SSH calls it, and the key.

    Raises:
        UnsupportedKey: A certificate, a security key, weak RSA, another type.
        WireError: Bytes that are no key of the type that they name.
    """
    reader = WireReader(blob)
    key_type = reader.text("the key type")
    public: PublicHalf
    try:
        if key_type == ED25519:
            public = ed25519.Ed25519PublicKey.from_public_bytes(reader.string("the ed25519 key"))
        elif key_type in _CURVES:
            public = _read_point(reader, key_type)
        elif key_type == RSA:
            public = _read_rsa(reader)
        else:
            raise UnsupportedKey(why_unsupported(key_type))
    except UnsupportedAlgorithm as error:  # ed25519 in FIPS mode
        raise UnsupportedKey(f"This host's cryptography does not support {key_type} keys ({error}).") from error
    except ValueError as error:  # WireError is one too; cryptography: wrong length, not on the curve, even exponent
        raise WireError(f"not a {key_type} key: {error}") from error
    reader.end()
    return key_type, public


def why_unsupported(key_type: str) -> str:
    """One sentence about a key type that is not in `SUPPORTED`."""
    if "-cert-v0" in key_type:
        return f"{key_type[:60]} is a certificate; certificates do not count here, plain keys do."
    if key_type.startswith("sk-"):
        return f"{key_type[:60]} is a security key (FIDO); their flags are not checked yet, so they do not count."
    return f"Key type {key_type[:60]!r} is not supported. Supported are {SUPPORTED}."


def _read_point(reader: WireReader, key_type: str) -> ec.EllipticCurvePublicKey:
    curve_name, curve, _ = _CURVES[key_type]
    if (found := reader.string("the curve name")) != curve_name:
        raise WireError(f"the curve is called {found[:20]!r}")
    point = reader.string("the curve point")
    if point[:1] != b"\x04":
        raise WireError("the point is not in its uncompressed form")  # RFC 5656, section 3.1; one key, one blob
    return ec.EllipticCurvePublicKey.from_encoded_point(curve, point)


def _read_rsa(reader: WireReader) -> rsa.RSAPublicKey:
    exponent, modulus = reader.mpint("the exponent"), reader.mpint("the modulus")
    bits = modulus.bit_length()
    if not MIN_RSA_BITS <= bits <= MAX_RSA_BITS:
        raise UnsupportedKey(f"An RSA key of {bits} bits does not count: {MIN_RSA_BITS} to {MAX_RSA_BITS} bits do.")
    if exponent.bit_length() > MAX_RSA_EXPONENT_BITS:
        raise UnsupportedKey(f"An RSA exponent of {exponent.bit_length()} bits does not count.")
    return rsa.RSAPublicNumbers(exponent, modulus).public_key()


def public_blob(public: object) -> bytes:
    """The binary form of a public key.

    Raises:
        UnsupportedKey: A type that does not count here.
    """
    if isinstance(public, ed25519.Ed25519PublicKey):
        return string(ED25519.encode()) + string(public.public_bytes_raw())
    if isinstance(public, rsa.RSAPublicKey):
        numbers = public.public_numbers()
        return string(RSA.encode()) + mpint(numbers.e) + mpint(numbers.n)
    if isinstance(public, ec.EllipticCurvePublicKey):
        for key_type, (curve_name, curve, _) in _CURVES.items():
            if public.curve.name == curve.name:
                size = (curve.key_size + 7) // 8
                place = public.public_numbers()
                point = b"\x04" + place.x.to_bytes(size, "big") + place.y.to_bytes(size, "big")
                return string(key_type.encode()) + string(curve_name) + string(point)
        raise UnsupportedKey(f"Curve {public.curve.name} is not supported. Supported are {SUPPORTED}.")
    raise UnsupportedKey(f"Not a supported key. Supported are {SUPPORTED}.")


def make_signature(private: PrivateHalf, data: bytes) -> bytes:
    """Sign, and give the signature in SSH's binary form: algorithm and value."""
    if isinstance(private, ed25519.Ed25519PrivateKey):
        return string(ED25519.encode()) + string(private.sign(data))
    if isinstance(private, rsa.RSAPrivateKey):
        value = private.sign(data, padding.PKCS1v15(), hashes.SHA512())
        return string(b"rsa-sha2-512") + string(value)
    key_type = next(name for name, (_, curve, _) in _CURVES.items() if curve.name == private.curve.name)
    r, s = decode_dss_signature(private.sign(data, ec.ECDSA(_CURVES[key_type][2])))
    return string(key_type.encode()) + string(mpint(r) + mpint(s))


def is_signature_valid(key_type: str, public: PublicHalf, signature: bytes, data: bytes) -> bool:
    """Whether a signature in SSH's binary form is one of `data` by this key.

    Args:
        key_type: The key's type; only its own algorithms count.
        public: The key.
        signature: Untrusted bytes: algorithm and value.
        data: What was signed.

    Raises:
        UnsupportedKey: A well-formed signature by an algorithm that this key type does not allow here.
        WireError: Not a signature of this key type.
    """
    reader = WireReader(signature)
    algorithm = reader.text("the signature algorithm")
    value = reader.string("the signature value")
    reader.end()
    allowed = tuple(_RSA_HASHES) if key_type == RSA else (key_type,)
    if algorithm not in allowed:  # algorithm confusion, and SHA-1
        raise UnsupportedKey(
            f"Signature algorithm {algorithm[:60]!r} does not count for a {key_type} key; {' or '.join(allowed)} does."
        )
    try:
        if isinstance(public, ed25519.Ed25519PublicKey):
            public.verify(value, data)
        elif isinstance(public, rsa.RSAPublicKey):
            if len(value) != (public.key_size + 7) // 8:
                raise WireError(f"the signature value has {len(value)} bytes")
            public.verify(value, data, padding.PKCS1v15(), _RSA_HASHES[algorithm])
        else:
            numbers = WireReader(value)
            pair = numbers.mpint("r"), numbers.mpint("s")
            numbers.end()
            public.verify(encode_dss_signature(*pair), data, ec.ECDSA(_CURVES[key_type][2]))
    except InvalidSignature:
        return False
    except UnsupportedAlgorithm as error:
        raise UnsupportedKey(f"This host's cryptography does not support {algorithm} ({error}).") from error
    return True
