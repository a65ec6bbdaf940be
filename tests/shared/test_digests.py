from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transload.shared.digests import Digest
from transload.shared.errors import InvalidReference, UnsupportedImage

SHA256, SHA512 = "sha256:" + "ab" * 32, "sha512:" + "cd" * 64


@pytest.mark.parametrize("text", [SHA256, SHA512])
def test_digests_survive_parsing(text: str) -> None:
    assert str(Digest.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "sha256", "sha256:", ":", "ab" * 32, SHA256[:-1], SHA256 + "0", SHA256.upper(), "sha256:" + "AB" * 32,
        SHA256 + "\n", " " + SHA256, SHA256.replace("ab", "ag", 1), "sha256:../../etc/passwd", SHA512 + "00",
        "sha256:" + "\u0661" * 64, "sha256/" + "ab" * 32, f"{SHA256}@{SHA256}",
    ],
)  # fmt: skip
def test_what_is_no_digest_is_refused(text: str) -> None:
    with pytest.raises(InvalidReference):
        Digest.parse(text)


@pytest.mark.parametrize("text", ["md5:" + "0" * 32, "sha384:" + "0" * 96, "sha1:abc", "blake3+b64u:abc="])
def test_other_algorithms_are_named(text: str) -> None:
    with pytest.raises(UnsupportedImage, match=text.partition(":")[0].replace("+", r"\+")):
        Digest.parse(text)


@given(st.binary(max_size=200))
def test_of_and_matches_agree_with_hashlib(content: bytes) -> None:
    digest = Digest.of(content)
    assert digest.hex == hashlib.sha256(content).hexdigest()
    assert digest.matches(content)
    assert not digest.matches(content + b"x")
    long = Digest("sha512", hashlib.sha512(content).hexdigest())
    assert long.matches(content)
    hasher = long.hasher()
    hasher.update(content)
    assert hasher.hexdigest() == long.hex


def test_it_is_a_value() -> None:
    assert Digest.parse(SHA256) == Digest.parse(SHA256)
    assert len({Digest.parse(SHA256), Digest.parse(SHA256)}) == 1
    assert min(Digest.parse(SHA512), Digest.parse(SHA256)).algorithm == "sha256"
    assert Digest.parse(SHA256).short == "abababababab"
