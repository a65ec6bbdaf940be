"""Digests: an algorithm and a value, parsed strictly so that they can never be a path or a pattern."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transload.shared.errors import InvalidReference, UnsupportedImage

if TYPE_CHECKING:
    from hashlib import _Hash

_HEX_LENGTHS = {"sha256": 64, "sha512": 128}
_GRAMMAR = re.compile(r"[a-z0-9]+(?:[+._-][a-z0-9]+)*:[a-zA-Z0-9=_-]+", re.ASCII)
"""OCI image-spec, descriptor.md, "Digests"."""


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """A content digest such as `sha256:9f86d0...`.

    Args:
        algorithm: `sha256` or `sha512`.
        hex: Lower-case hexadecimal of the algorithm's length.
    """

    algorithm: str
    hex: str

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Read `algorithm:hex`.

        Args:
            text: Untrusted text from a registry, a bundle or a person.

        Raises:
            UnsupportedImage: A well-formed digest of an algorithm that is not supported.
            InvalidReference: Anything else that is not a digest.
        """
        if not _GRAMMAR.fullmatch(text):
            raise InvalidReference(f"Not a digest: {text[:100]!r}. Expected sha256: and 64 hexadecimal digits.")
        algorithm, _, value = text.partition(":")
        length = _HEX_LENGTHS.get(algorithm)
        if length is None:
            raise UnsupportedImage(
                f"Digest algorithm {algorithm!r} is not supported (sha256 and sha512 are).", digest=text[:200]
            )
        if len(value) != length or not re.fullmatch(r"[0-9a-f]+", value, re.ASCII):
            raise InvalidReference(
                f"Not a {algorithm} digest: {text[:200]!r}. Expected {length} lower-case hexadecimal digits."
            )
        return cls(algorithm, value)

    @classmethod
    def of(cls, content: bytes) -> Digest:
        """The sha256 digest of bytes in memory."""
        return cls("sha256", hashlib.sha256(content).hexdigest())

    def hasher(self) -> _Hash:
        """A fresh hash object of this digest's algorithm."""
        return hashlib.new(self.algorithm)

    def matches(self, content: bytes) -> bool:
        """Whether bytes in memory have this digest."""
        return hashlib.new(self.algorithm, content).hexdigest() == self.hex

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.hex}"

    @property
    def short(self) -> str:
        """Twelve hexadecimal digits, for tables."""
        return self.hex[:12]
