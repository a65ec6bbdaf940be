"""Keys as lines of text and as files, without OpenSSH; `test_signing_with_openssh.py` has it judge them."""

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from transload.shared.errors import KeyTypeUnsupported, KeyUnusable
from transload.shared.signing import algorithms
from transload.shared.signing.ssh_keys import KeyMalformed, PublicKey, SigningKey, split_line
from transload.shared.signing.ssh_wire import mpint, string


def _line(blob: bytes, name: str | None = None) -> str:
    inside = blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode()
    return f"{name or inside} {base64.b64encode(blob).decode()}"


def test_a_public_key_line_round_trips(any_key: SigningKey) -> None:
    public = any_key.public_key
    parsed = PublicKey.parse_line(public.line())
    assert (parsed, parsed.comment, parsed.line()) == (public, public.comment, public.line())
    assert parsed.fingerprint.startswith("SHA256:")


def test_the_comment_is_no_part_of_a_keys_identity(key: SigningKey) -> None:
    assert PublicKey(key.public_key.key_type, key.public_key.blob, "other") == key.public_key


def test_a_signature_is_valid_for_its_data_and_key_only(any_key: SigningKey, key: SigningKey) -> None:
    signature = any_key.sign(b"data")
    assert any_key.public_key.is_signature_valid(signature, b"data")
    assert not any_key.public_key.is_signature_valid(signature, b"Data")
    other = SigningKey.generate().public_key
    if any_key is key:
        assert not other.is_signature_valid(signature, b"data")
    else:
        with pytest.raises(KeyTypeUnsupported, match="does not count for a ssh-ed25519 key"):
            other.is_signature_valid(signature, b"data")


UNSUPPORTED = {
    "certificate": (string(b"ssh-ed25519-cert-v01@openssh.com") + string(b"x"), "is a certificate"),
    "security key": (string(b"sk-ssh-ed25519@openssh.com") + string(b"x"), "is a security key"),
    "ecdsa security key": (string(b"sk-ecdsa-sha2-nistp256@openssh.com") + string(b"x"), "is a security key"),
    "security key certificate": (string(b"sk-ssh-ed25519-cert-v01@openssh.com") + string(b"x"), "is a certificate"),
    "dsa": (string(b"ssh-dss") + string(b"x"), "'ssh-dss' is not supported"),
    "p521": (string(b"ecdsa-sha2-nistp521") + string(b"nistp521"), "nistp521' is not supported"),
    "unknown": (string(b"ssh-future") + string(b"x"), "'ssh-future' is not supported"),
    "weak rsa": (string(b"ssh-rsa") + mpint(65537) + mpint((1 << 3071) - 1), "3071 bits does not count"),
    "huge rsa": (string(b"ssh-rsa") + mpint(65537) + mpint((1 << 16385) - 1), "16385 bits does not count"),
    "huge exponent": (string(b"ssh-rsa") + mpint((1 << 65) - 1) + mpint((1 << 3072) - 1), "exponent of 65 bits"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_an_unsupported_key_is_refused_by_name(case: str) -> None:
    blob, words = UNSUPPORTED[case]
    with pytest.raises(KeyTypeUnsupported, match=words):
        PublicKey.parse_line(_line(blob))


P256 = string(b"ecdsa-sha2-nistp256")
MALFORMED = {
    "short ed25519": string(b"ssh-ed25519") + string(b"x" * 31),
    "long ed25519": string(b"ssh-ed25519") + string(b"x" * 33),
    "trailing bytes": string(b"ssh-ed25519") + string(b"\1" + b"\0" * 31) + b"\0",
    "another curve's name": P256 + string(b"nistp384") + string(b"\4" + b"\1" * 64),
    "point not on the curve": P256 + string(b"nistp256") + string(b"\4" + b"\1" * 64),
    "point at infinity": P256 + string(b"nistp256") + string(b"\0"),
    "negative modulus": string(b"ssh-rsa") + mpint(65537) + string(b"\xff" * 400),
    "padded modulus": string(b"ssh-rsa") + mpint(65537) + string(b"\0\0" + b"\x7f" * 400),
    "even exponent": string(b"ssh-rsa") + mpint(65536) + mpint((1 << 3072) - 1),
    "length past the end": b"\0\0\0\x0bssh-ed25519\0\0\1\0x",
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_key_is_refused(case: str) -> None:
    with pytest.raises(KeyMalformed):
        PublicKey.parse_line(_line(MALFORMED[case]))


def test_a_compressed_point_is_refused_although_it_is_the_same_key() -> None:
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    compressed = public.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)
    with pytest.raises(KeyMalformed, match="uncompressed form"):
        PublicKey.from_blob(P256 + string(b"nistp256") + string(compressed))


@pytest.mark.parametrize(
    "text", ["", "ssh-ed25519", "ssh-ed25519 !!!", "ssh-ed25519 AAAA", "ssh-ed25519 AAA", "ssh-ed25519 é", "x y z"]
)
def test_text_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(KeyMalformed):
        PublicKey.parse_line(text)


def test_a_key_under_the_name_of_another_type_is_refused(key: SigningKey) -> None:
    with pytest.raises(KeyMalformed, match="another type inside"):
        PublicKey.parse_line(_line(key.public_key.blob, "ssh-rsa"))


def test_one_key_has_one_spelling_in_base64(key: SigningKey) -> None:
    _, encoded = _line(key.public_key.blob).split(" ")
    assert len(encoded) % 4 == 0
    with pytest.raises(KeyMalformed):
        split_line(f"ssh-ed25519 {encoded}=")


@given(st.binary(max_size=120))
def test_no_bytes_do_more_than_be_refused(raw: bytes) -> None:
    with pytest.raises((KeyMalformed, KeyTypeUnsupported)):
        PublicKey.from_blob(raw)


# --- signatures in binary form ---


def _signed(algorithm: bytes, value: bytes) -> bytes:
    return string(algorithm) + string(value)


def test_algorithms_are_not_confused(keys: dict[str, SigningKey]) -> None:
    rsa_key, p256 = keys["rsa-3072"], keys["ecdsa-p256"]
    value = rsa_key.sign(b"data")[4 + len("rsa-sha2-512") + 4 :]
    for algorithm in (b"ssh-rsa", b"ssh-rsa-cert-v01@openssh.com", b"ssh-ed25519", b"rsa-sha2-1024", b""):
        with pytest.raises(KeyTypeUnsupported, match="does not count for a ssh-rsa key"):
            rsa_key.public_key.is_signature_valid(_signed(algorithm, value), b"data")
    assert not rsa_key.public_key.is_signature_valid(_signed(b"rsa-sha2-256", value), b"data")
    with pytest.raises(KeyTypeUnsupported):
        p256.public_key.is_signature_valid(_signed(b"ecdsa-sha2-nistp384", b"x"), b"data")


def test_a_signature_value_has_one_form(keys: dict[str, SigningKey]) -> None:
    rsa_key, p256, ed = keys["rsa-3072"], keys["ecdsa-p256"], keys["ed25519"]
    value = rsa_key.sign(b"data")[-384:]
    for wrong in (b"\0" + value, value[1:], b""):
        with pytest.raises(KeyMalformed):
            rsa_key.public_key.is_signature_valid(_signed(b"rsa-sha2-512", wrong), b"data")
    good = p256.sign(b"data")
    pair = good[4 + len("ecdsa-sha2-nistp256") + 4 :]
    assert p256.public_key.is_signature_valid(_signed(b"ecdsa-sha2-nistp256", pair), b"data")
    for wrong in (pair + b"\0", pair[:-1], string(b"\0" + pair[4:37]) + pair[37:], b""):
        with pytest.raises(KeyMalformed):
            p256.public_key.is_signature_valid(_signed(b"ecdsa-sha2-nistp256", wrong), b"data")
    zeros = _signed(b"ecdsa-sha2-nistp256", mpint(0) + mpint(0))
    assert not p256.public_key.is_signature_valid(zeros, b"data")
    assert not ed.public_key.is_signature_valid(_signed(b"ssh-ed25519", b"\0" * 63), b"data")
    with pytest.raises(KeyMalformed, match="follow"):
        ed.public_key.is_signature_valid(ed.sign(b"data") + b"\0", b"data")


# --- private key files ---


@pytest.fixture
def key_file(tmp_path: Path, key: SigningKey) -> Path:
    path = tmp_path / "key"
    path.write_bytes(key.private_bytes())
    path.chmod(0o600)
    return path


def test_a_private_key_file_round_trips(key_file: Path, key: SigningKey) -> None:
    assert SigningKey.load(key_file).public_key == key.public_key


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o601])
def test_a_key_that_others_can_read_is_refused(key_file: Path, mode: int) -> None:
    key_file.chmod(mode)
    with pytest.raises(KeyUnusable, match=f"mode {mode:04o}") as caught:
        SigningKey.load(key_file)
    assert caught.value.hint == f"chmod 600 {key_file}"


def test_a_mode_of_0400_is_fine(key_file: Path) -> None:
    key_file.chmod(0o400)
    SigningKey.load(key_file)


def _encrypted(key: object, passphrase: bytes) -> bytes:
    assert isinstance(key, ed25519.Ed25519PrivateKey)
    encryption = serialization.PrivateFormat.OpenSSH.encryption_builder().kdf_rounds(1).build(passphrase)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, encryption)


def test_an_encrypted_key_asks_for_its_passphrase(tmp_path: Path) -> None:
    private = ed25519.Ed25519PrivateKey.generate()
    path = tmp_path / "key"
    path.write_bytes(_encrypted(private, b"correct horse"))
    path.chmod(0o600)
    assert SigningKey.load(path, passphrase=lambda: "correct horse").public_key == SigningKey(private).public_key
    with pytest.raises(KeyUnusable, match="does not open") as caught:
        SigningKey.load(path, passphrase=lambda: "wrong horse")
    assert "wrong horse" not in str(caught.value.as_json())
    with pytest.raises(KeyUnusable, match="none was given") as caught:
        SigningKey.load(path)
    assert "TRANSLOAD_KEY_PASSPHRASE_FILE" in caught.value.hint


def test_an_unencrypted_key_asks_for_nothing(key_file: Path) -> None:
    def never() -> str:
        raise AssertionError("asked for a passphrase")

    SigningKey.load(key_file, passphrase=never)


@pytest.mark.parametrize(
    "make", [lambda: ec.generate_private_key(ec.SECP521R1()), lambda: rsa.generate_private_key(65537, 2048)]
)
def test_a_key_that_the_importer_would_refuse_cannot_sign(
    tmp_path: Path, make: Callable[[], algorithms.PrivateHalf]
) -> None:
    path, private = tmp_path / "key", make()
    path.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
    )
    path.chmod(0o600)
    with pytest.raises(KeyUnusable, match="cannot sign bundles"):
        SigningKey.load(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "OpenSSH's format"),
        (b"-----BEGIN RSA PRIVATE KEY-----\n", "OpenSSH's format"),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n", "not a usable private key"),
        (b"x" * 70_000, "larger than"),
    ],
)
def test_a_file_that_is_no_key_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(KeyUnusable, match=words) as caught:
        SigningKey.load(path)
    assert str(path) in caught.value.message


def test_a_missing_key_and_a_pipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyUnusable, match="does not exist"):
        SigningKey.load(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(KeyUnusable, match="not a regular file"):
        SigningKey.load(tmp_path / "pipe")


def test_a_host_in_fips_mode_says_so(key: SigningKey, monkeypatch: pytest.MonkeyPatch) -> None:
    """As cryptography behaves where OpenSSL has no ed25519."""

    def refuse(*_: object) -> NoReturn:
        raise UnsupportedAlgorithm("ed25519 is not supported by this version of OpenSSL.")

    monkeypatch.setattr(ed25519.Ed25519PrivateKey, "generate", refuse)
    monkeypatch.setattr(ed25519.Ed25519PublicKey, "from_public_bytes", refuse)
    with pytest.raises(KeyUnusable) as caught:
        SigningKey.generate()
    assert "--type ecdsa-p256" in caught.value.hint
    with pytest.raises(KeyTypeUnsupported, match="does not support ssh-ed25519"):
        PublicKey.from_blob(key.public_key.blob)


@pytest.mark.parametrize(
    "modulus",
    [1 << 3071, (1 << 3072) - 1, 3**2000, (1 << 16384) - 1],
    ids=["a power of two", "all ones", "a power of three", "16384 bits"],
)
def test_odd_numbers_as_rsa_keys_validate_nothing(modulus: int) -> None:
    try:
        public = PublicKey.from_blob(string(b"ssh-rsa") + mpint(65537) + mpint(modulus))
    except KeyMalformed:
        return
    for value in (bytes((modulus.bit_length() + 7) // 8), b"\xff" * ((modulus.bit_length() + 7) // 8)):
        assert not public.is_signature_valid(_signed(b"rsa-sha2-512", value), b"data")


@pytest.mark.parametrize(("name", "expected"), [("ed25519", "ssh-ed25519"), ("ecdsa-p256", "ecdsa-sha2-nistp256")])
def test_generated_keys_are_of_the_type_asked_for(name: str, expected: str) -> None:
    made = SigningKey.generate(name, "a comment")  # type: ignore[arg-type]
    assert (made.public_key.key_type, made.public_key.comment) == (expected, "a comment")
