"""SHA256SUMS: the signed root of a bundle (FORMAT.md, "SHA256SUMS").

One form only, so that two readers never see two things: sorted by name, lower-case digits, two spaces, one line each,
and `sha256sum -c` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from transload.manifests.bundle_manifest import FILE_NAME_PATTERN
from transload.shared import limits
from transload.shared.errors import MalformedBundle

FILE_NAME: Final = "SHA256SUMS"
SIGNATURE_SUFFIX: Final = ".sig"

_NAME = re.compile(FILE_NAME_PATTERN, re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SIGNATURE_NAME = re.compile(re.escape(FILE_NAME) + r"(\.[A-Za-z0-9_-]{1,64})?" + re.escape(SIGNATURE_SUFFIX), re.ASCII)


def is_signature_name(name: str) -> bool:
    """Whether a file name is one of a signature: SHA256SUMS.sig or SHA256SUMS.<name>.sig."""
    return _SIGNATURE_NAME.fullmatch(name) is not None


def encode(entries: Mapping[str, str]) -> bytes:
    """The bytes of SHA256SUMS.

    Args:
        entries: File name, relative to the bundle, to the 64 hexadecimal digits of its SHA-256.

    Raises:
        MalformedBundle: A name or digest that the format does not admit.
    """
    for name, digest in entries.items():
        _check_entry(name, digest)
    return "".join(f"{entries[name]}  {name}\n" for name in sorted(entries)).encode("ascii")


def decode(raw: bytes) -> dict[str, str]:
    """Read SHA256SUMS strictly.

    Args:
        raw: Bytes whose signature has been verified.

    Returns:
        File name to digest, sorted by name.

    Raises:
        MalformedBundle: Anything but what `encode` writes; the message names the line.
    """
    if len(raw) > limits.MAX_CHECKSUMS_BYTES:
        raise MalformedBundle(
            f"{FILE_NAME} has {len(raw):,} bytes; at most {limits.MAX_CHECKSUMS_BYTES:,} are accepted."
        )
    try:
        text = raw.decode("ascii")
    except UnicodeDecodeError as error:
        raise MalformedBundle(f"{FILE_NAME} holds a byte that is not ASCII, at {error.start:,}.") from error
    if not text.endswith("\n"):
        raise MalformedBundle(f"{FILE_NAME} is empty or its last line does not end.")
    entries: dict[str, str] = {}
    previous = ""
    for number, line in enumerate(text[:-1].split("\n"), start=1):
        digest, separator, name = line[:64], line[64:66], line[66:]
        if separator != "  ":
            raise MalformedBundle(
                f"{FILE_NAME}, line {number}: expected 64 digits, two spaces, a name: {line[:120]!r}."
            )
        _check_entry(name, digest, f", line {number}")
        if name <= previous:
            raise MalformedBundle(f"{FILE_NAME}, line {number}: {name!r} comes twice or is not in sorted order.")
        entries[name] = digest
        previous = name
    return entries


def _check_entry(name: str, digest: str, where: str = "") -> None:
    if not _DIGEST.fullmatch(digest):
        raise MalformedBundle(f"{FILE_NAME}{where}: not 64 lower-case hexadecimal digits: {digest[:70]!r}.")
    if not _NAME.fullmatch(name):
        raise MalformedBundle(f"{FILE_NAME}{where}: not a name that a bundle's file can have: {name[:220]!r}.")
    if name.casefold().startswith(FILE_NAME.casefold()):  # on a medium without case they would be one file
        raise MalformedBundle(f"{FILE_NAME}{where}: {name!r} cannot vouch for itself or for a signature.")
