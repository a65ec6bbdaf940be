"""Signature files: one form, one namespace, and no changed bit passes."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.shared.errors import (
    KeyTypeUnsupported,
    SignatureInvalid,
    SignatureMalformed,
    TransloadError,
)
from transload.shared.signing.ssh_keys import SigningKey
from transload.shared.signing.ssh_wire import string, uint32
from transload.shared.signing.sshsig import NAMESPACE, SshSignature, sign

MESSAGE = b"0123  bundle.json\n"
BEGIN, END = b"-----BEGIN SSH SIGNATURE-----\n", b"-----END SSH SIGNATURE-----\n"


def _armour(blob: bytes, width: int = 70) -> bytes:
    encoded = base64.b64encode(blob)
    lines = [encoded[start : start + width] + b"\n" for start in range(0, len(encoded), width)]
    return BEGIN + b"".join(lines) + END


def _blob(key: SigningKey, **changes: Any) -> bytes:
    parsed = SshSignature.parse(sign(MESSAGE, key))
    fields: dict[str, bytes] = {
        "magic": b"SSHSIG",
        "version": uint32(1),
        "public_key": string(parsed.public_key.blob),
        "namespace": string(parsed.namespace.encode()),
        "reserved": string(b""),
        "hash_algorithm": string(parsed.hash_algorithm.encode()),
        "signature": string(parsed.signature),
        "trailing": b"",
        **changes,
    }
    return b"".join(fields.values())


def _check(raw: bytes, message: bytes = MESSAGE, namespace: str = NAMESPACE) -> SshSignature:
    signature = SshSignature.parse(raw)
    signature.verify(message, namespace)
    return signature


def test_a_signature_of_every_key_type_verifies(any_key: SigningKey) -> None:
    signature = _check(sign(MESSAGE, any_key))
    assert signature.public_key == any_key.public_key
    assert (signature.namespace, signature.hash_algorithm) == (NAMESPACE, "sha512")


def test_the_builder_of_this_test_builds_what_sign_makes(key: SigningKey) -> None:
    assert _armour(_blob(key)) == sign(MESSAGE, key)  # ed25519 is deterministic


def test_another_message_is_refused(any_key: SigningKey) -> None:
    with pytest.raises(SignatureInvalid, match=r"not one of this content"):
        _check(sign(MESSAGE, any_key), MESSAGE + b"\n")


def test_every_single_bit_counts(key: SigningKey) -> None:
    raw = sign(MESSAGE, key)
    passed = []
    for position in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[position // 8] ^= 1 << position % 8
        try:
            _check(bytes(flipped))
        except TransloadError as error:
            assert error.exit_code // 10 == 7  # noqa: PT017 - the family: authenticity
        else:
            passed.append(position)
    assert passed == []


def test_every_truncation_and_every_added_byte_is_refused(key: SigningKey) -> None:
    raw = sign(MESSAGE, key)
    for wrong in [*(raw[:length] for length in range(len(raw))), raw + b"\n", raw + raw, b"\n" + raw, raw + b"\0"]:
        with pytest.raises(SignatureMalformed):
            SshSignature.parse(wrong)


@given(st.data())
def test_no_exchange_of_bytes_passes(key: SigningKey, data: st.DataObject) -> None:
    raw = sign(MESSAGE, key)
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, min(len(raw), start + 6)))
    replacement = data.draw(st.binary(max_size=6))
    changed = raw[:start] + replacement + raw[end:]
    if changed != raw:
        with pytest.raises(TransloadError):
            _check(changed)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"magic": b"SSHSIH"}, "does not begin with SSHSIG"),
        ({"version": uint32(0)}, "version is 0"),
        ({"version": uint32(2)}, "version is 2"),
        ({"reserved": string(b"x")}, "reserved field"),
        ({"namespace": string(b"")}, "namespace is empty"),
        ({"namespace": string(b"transload-bundle\0")}, "printable"),
        ({"trailing": b"\0"}, "1 bytes follow"),
        ({"trailing": b"\0\0\0\0"}, "4 bytes follow"),
        ({"signature": uint32(0xFFFFFFFF)}, "are left"),
        ({"public_key": string(b"")}, "needs 4 bytes"),
    ],
)
def test_a_malformed_signature_is_refused(key: SigningKey, changes: dict[str, bytes], words: str) -> None:
    with pytest.raises(SignatureMalformed, match=words):
        SshSignature.parse(_armour(_blob(key, **changes)))


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw.replace(b"\n", b"\r\n"),
        lambda raw: raw[:-1],
        lambda raw: raw.replace(END, b" " + END),
        lambda raw: raw.replace(BEGIN, BEGIN + b"\n"),
        lambda raw: _armour(base64.b64decode(raw[len(BEGIN) : -len(END)]), width=64),
        lambda raw: _armour(base64.b64decode(raw[len(BEGIN) : -len(END)]), width=10_000),
        lambda raw: b"",
        lambda raw: BEGIN + END,
        lambda raw: raw * 60,
    ],
)
def test_another_armour_of_the_same_signature_is_refused(key: SigningKey, change: Any) -> None:
    with pytest.raises(SignatureMalformed):
        SshSignature.parse(change(sign(MESSAGE, key)))


def test_a_signature_for_another_use_is_refused(key: SigningKey) -> None:
    git = sign(MESSAGE, key, "git")
    with pytest.raises(SignatureInvalid, match="'git', not 'transload-bundle'"):
        _check(git)
    relabelled = _armour(_blob(key, namespace=string(b"git")))
    with pytest.raises(SignatureInvalid, match="not one of this content"):
        _check(relabelled, namespace="git")


def test_both_hashes_count_and_no_other(key: SigningKey) -> None:
    relabelled = _armour(_blob(key, hash_algorithm=string(b"sha256")))
    with pytest.raises(SignatureInvalid):
        _check(relabelled)
    for algorithm in (b"sha1", b"md5", b"SHA512", b"sha384", b""):
        with pytest.raises(KeyTypeUnsupported, match="hash algorithm"):
            SshSignature.parse(_armour(_blob(key, hash_algorithm=string(algorithm))))


def test_a_key_cannot_be_exchanged(keys: dict[str, SigningKey]) -> None:
    key, other = keys["ed25519"], SigningKey.generate()
    with pytest.raises(SignatureInvalid):
        _check(_armour(_blob(key, public_key=string(other.public_key.blob))))
    with pytest.raises(KeyTypeUnsupported, match="does not count for a ecdsa-sha2-nistp256"):
        _check(_armour(_blob(key, public_key=string(keys["ecdsa-p256"].public_key.blob))))


@pytest.mark.parametrize("name", [b"sk-ssh-ed25519@openssh.com", b"ssh-ed25519-cert-v01@openssh.com", b"ssh-dss"])
def test_an_unsupported_key_is_refused_by_name(key: SigningKey, name: bytes) -> None:
    with pytest.raises(KeyTypeUnsupported, match=name.decode()):
        SshSignature.parse(_armour(_blob(key, public_key=string(string(name) + string(b"x" * 32)))))


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_do_more_than_be_refused(raw: bytes, armoured: bool) -> None:
    with pytest.raises((SignatureMalformed, KeyTypeUnsupported)):
        SshSignature.parse(_armour(b"SSHSIG\0\0\0\1" + raw) if armoured else raw)
