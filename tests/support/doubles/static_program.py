"""A program that runs in an empty image: no compiler, no libraries, the same bytes every time."""

from __future__ import annotations

import struct

_ADDRESS = 0x400000
_HEADERS_BYTES = 64 + 56


def program(text: str) -> bytes:
    """An x86-64 Linux executable that prints a text and ends with 0.

    Args:
        text: What it prints.
    """
    message = text.encode()
    code_bytes = 5 + 5 + 7 + 5 + 2 + 5 + 2 + 2
    to_message = code_bytes - (5 + 5 + 7)  # from behind the lea to the message
    code = (
        b"\xb8\x01\x00\x00\x00"  # mov eax, 1 (write)
        b"\xbf\x01\x00\x00\x00"  # mov edi, 1 (standard output)
         b"\x48\x8d\x35" + struct.pack("<i", to_message)  # lea rsi, [rip + to_message]
        + b"\xba" + struct.pack("<I", len(message))  # mov edx, length
        + b"\x0f\x05"  # syscall
        b"\xb8\x3c\x00\x00\x00"  # mov eax, 60 (exit)
        b"\x31\xff"  # xor edi, edi
        b"\x0f\x05"  # syscall
    )  # fmt: skip
    size_bytes = _HEADERS_BYTES + len(code) + len(message)
    elf = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01", 2, 62, 1, _ADDRESS + _HEADERS_BYTES, 64, 0, 0, 64, 56, 1, 0, 0, 0,
    )  # fmt: skip
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _ADDRESS, _ADDRESS, size_bytes, size_bytes, 0x1000)
    return elf + segment + code + message
