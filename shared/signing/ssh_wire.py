"""SSH's binary encoding (RFC 4251, section 5): strings, numbers, big numbers; read strictly, one way only."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_UINT32 = struct.Struct(">I")


class WireError(ValueError):
    """Bytes that are not what the encoding says; its callers turn it into an error for people."""


def uint32(number: int) -> bytes:
    """A 32-bit number."""
    return _UINT32.pack(number)


def string(content: bytes) -> bytes:
    """A length and as many bytes."""
    return _UINT32.pack(len(content)) + content


def mpint(number: int) -> bytes:
    """A positive big number in its shortest form."""
    return string(number.to_bytes(number.bit_length() // 8 + 1, "big") if number else b"")


@dataclass(slots=True)
class WireReader:
    """Reads fields one after the other.

    Args:
        raw: All the bytes.
        position: Where the next field begins.
    """

    raw: bytes
    position: int = 0

    def take(self, count: int, what: str) -> bytes:
        """The next `count` bytes.

        Raises:
            WireError: There are fewer.
        """
        if count > len(self.raw) - self.position:
            raise WireError(f"{what} needs {count} bytes and {len(self.raw) - self.position} are left")
        self.position += count
        return self.raw[self.position - count : self.position]

    def uint32(self, what: str) -> int:
        """The next 32-bit number.

        Raises:
            WireError: Too few bytes.
        """
        return int.from_bytes(self.take(4, what), "big")

    def string(self, what: str) -> bytes:
        """The next string.

        Raises:
            WireError: It is longer than what is left.
        """
        return self.take(self.uint32(what), what)

    def text(self, what: str) -> str:
        """The next string, of printable ASCII.

        Raises:
            WireError: It is longer than what is left, or holds other characters.
        """
        raw = self.string(what)
        if any(not 0x21 <= byte <= 0x7E for byte in raw):
            raise WireError(f"{what} is not printable ASCII")
        return raw.decode("ascii")

    def mpint(self, what: str) -> int:
        """The next big number.

        Raises:
            WireError: It is negative, or not in its shortest form (one number must have one encoding).
        """
        raw = self.string(what)
        number = int.from_bytes(raw, "big")
        if string(raw) != mpint(number):
            raise WireError(f"{what} is negative or not in its shortest form")
        return number

    def end(self) -> None:
        """Make sure that everything has been read.

        Raises:
            WireError: Bytes are left.
        """
        if self.position != len(self.raw):
            raise WireError(f"{len(self.raw) - self.position} bytes follow the last field")
