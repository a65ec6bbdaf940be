"""The trust file: OpenSSH's allowed_signers (ssh-keygen(1), "ALLOWED SIGNERS"), read as ssh-keygen reads it.

Stricter in three things. One line that cannot be understood makes the whole file unusable, so that a typing error
never silently trusts less or more than was meant. A line counts only if it names the namespace: without `namespaces=`
it may be somebody's git key. Lines for our namespace with a certificate authority or an unsupported type of key are
refused by name.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from transload.shared import limits
from transload.shared.atomic_files import read_bounded
from transload.shared.errors import (
    KeyTypeUnsupported,
    SignerOutOfTime,
    SignerUnknown,
    TransloadError,
    TrustFileUnusable,
)
from transload.shared.signing.patterns import matches_pattern_list
from transload.shared.signing.signer_options import OptionError, SignerOptions
from transload.shared.signing.ssh_keys import KeyMalformed, PublicKey, split_line
from transload.shared.signing.sshsig import NAMESPACE

_HINT = "See `man ssh-keygen`, ALLOWED SIGNERS; `transload keygen` prints a line that works."


@dataclass(frozen=True, slots=True)
class SignerLine:
    """One line of the trust file.

    Args:
        number: Its line number.
        principals: Comma-separated patterns of who signs with the key.
        options: What stands between principals and key.
        key_blob: The key, of any type.
        key: The key, or None if its type is not supported.
    """

    number: int
    principals: str
    options: SignerOptions
    key_blob: bytes
    key: PublicKey | None


@dataclass(frozen=True, slots=True)
class AllowedSigners:
    """Who may sign bundles.

    Args:
        where: The file's name, for messages.
        lines: Its lines, in order.
    """

    where: str
    lines: tuple[SignerLine, ...]

    @classmethod
    def load(cls, path: Path) -> AllowedSigners:
        """Read a trust file.

        Raises:
            TrustFileUnusable: It cannot be read, or a line cannot be understood.
            KeyTypeUnsupported: A line for bundles has a certificate authority or an unsupported type of key.
        """
        try:
            raw = read_bounded(path, limits.MAX_TRUST_FILE_BYTES)
        except TransloadError as error:
            raise TrustFileUnusable(f"The trust file cannot be read: {error.message}", path=str(path)) from error
        found = cls.parse(raw, str(path))
        if not found.lines:
            raise TrustFileUnusable(
                f"{path} trusts nobody: it {'holds comments alone' if raw.strip() else 'is empty'}.",
                hint=_HINT, path=str(path),
            )  # fmt: skip
        return found

    @classmethod
    def parse(cls, raw: bytes, where: str) -> AllowedSigners:
        """Read the content of a trust file.

        Args:
            raw: Its bytes.
            where: Its name, for messages.

        Raises:
            TrustFileUnusable: A line cannot be understood; file and line are named.
            KeyTypeUnsupported: A line for bundles has a certificate authority or an unsupported type of key.
        """
        if raw.startswith(codecs.BOM_UTF8):
            raise TrustFileUnusable(
                f"{where} begins with a byte order mark, which would become part of the first principal.",
                hint=f"Save it as UTF-8 without one, or: sed -i '1s/^\\xEF\\xBB\\xBF//' {where}", trust_file=where,
            )  # fmt: skip
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            number = raw.count(b"\n", 0, error.start) + 1
            raise TrustFileUnusable(f"{where}, line {number}: not UTF-8.", hint=_HINT) from error
        lines: list[SignerLine] = []
        for number, line in enumerate(text.split("\n"), start=1):
            content = line.removesuffix("\r").strip(" \t")
            if content and not content.startswith("#"):
                lines.append(_parse_line(content, number, where))
        return cls(where, tuple(lines))

    def admit(self, key: PublicKey, *, namespace: str, at: datetime, signer: str | None) -> str:
        """Decide whether a key may sign.

        Args:
            key: The key of a verified signature.
            namespace: What the signature is for.
            at: When: an aware time.
            signer: The principal that must have signed, or None for anyone in the file.

        Returns:
            The principal: `signer`, or else the principals field of the line that admits the key.

        Raises:
            SignerUnknown: No line has this key for this namespace and signer; the message says which of them it is.
            SignerOutOfTime: The line that has it is not valid at this time.
        """
        ours = [line for line in self.lines if line.key_blob == key.blob]
        if not ours:
            raise SignerUnknown(
                f"The key {key.fingerprint} ({key.key_type}) is not in {self.where}.",
                hint="If it is the exporter's new key, carry over its allowed_signers line by a way that you trust. "
                "If not, somebody else made this bundle.",
                fingerprint=key.fingerprint, trust_file=self.where,
            )  # fmt: skip
        named = [line for line in ours if line.options.admits_namespace(namespace)]
        if not named:
            raise self._namespace_missing(key, ours[0], namespace)
        meant = [line for line in named if signer is None or matches_pattern_list(signer, line.principals)]
        if not meant:
            raise SignerUnknown(
                f"The key {key.fingerprint} belongs to {named[0].principals} ({self.where}, line {named[0].number}), "
                f"not to {signer}.",
                hint="Check --signer against the first field of that line.",
                fingerprint=key.fingerprint, trust_file=self.where, expected=signer, found=named[0].principals,
            )  # fmt: skip
        late: list[str] = []
        for line in meant:
            reason = line.options.why_out_of_time(at)
            if reason is None:
                return signer if signer is not None else line.principals
            late.append(f"line {line.number}: {reason}")
        raise SignerOutOfTime(
            f"The key {key.fingerprint} is in {self.where} but not valid at {at:%Y-%m-%d %H:%M:%S %Z} "
            f"({'; '.join(late)}).",
            hint="Check this machine's clock; --verify-time judges by another time.",
            fingerprint=key.fingerprint, trust_file=self.where,
        )  # fmt: skip

    def _namespace_missing(self, key: PublicKey, line: SignerLine, namespace: str) -> SignerUnknown:
        if line.options.namespaces is None:
            what = "names no namespaces, so it may be somebody's git key and does not count for bundles"
        else:
            what = f"is for the namespaces {line.options.namespaces!r}, not {namespace!r}"
        return SignerUnknown(
            f"The key {key.fingerprint} is in {self.where}, but line {line.number} {what}.",
            hint=f'If this key is to sign bundles, write namespaces="{namespace}" between its principals and its type.',
            fingerprint=key.fingerprint, trust_file=self.where, line=line.number,
        )  # fmt: skip


_PRINCIPALS = re.compile(r'"([^"]*)"(?:[ \t]+|$)|([^ \t"]+)(?:[ \t]+|$)')


def _parse_line(content: str, number: int, where: str) -> SignerLine:
    def unusable(why: str) -> TrustFileUnusable:
        return TrustFileUnusable(f"{where}, line {number}: {why}.", hint=_HINT, trust_file=where, line=number)

    with contextlib.suppress(KeyMalformed, KeyTypeUnsupported):
        PublicKey.parse_line(content)
        raise TrustFileUnusable(
            f"{where}, line {number}: a bare public key, as in a .pub file, does not say who signs with it.",
            hint=f"Use the .allowed_signers file that keygen made beside it, or put before the key: NAME "
            f'namespaces="{NAMESPACE}"', trust_file=where, line=number,
        )  # fmt: skip
    if any(ord(character) < 0x20 and character != "\t" for character in content):
        raise unusable("it holds a control character")
    match = _PRINCIPALS.match(content)
    if match is None or not (principals := match[1] or match[2]):
        raise unusable("it does not begin with principals")
    rest = content[match.end() :]
    try:
        options, key_text = SignerOptions.take(rest)
        _, blob, _ = split_line(key_text)
    except (OptionError, KeyMalformed) as error:
        raise unusable(str(error)) from error
    is_ours = options.admits_namespace(NAMESPACE)
    try:
        key: PublicKey | None = PublicKey.from_blob(blob)
    except KeyMalformed as error:
        raise unusable(str(error)) from error
    except KeyTypeUnsupported as error:
        if is_ours:
            raise KeyTypeUnsupported(
                f"{where}, line {number}: {error.message}", trust_file=where, line=number
            ) from error
        key = None
    if is_ours and options.is_authority:
        raise KeyTypeUnsupported(
            f"{where}, line {number}: cert-authority lines do not count for bundles; only plain keys do.",
            hint="Name the signing key itself.", trust_file=where, line=number,
        )  # fmt: skip
    return SignerLine(number, principals, options, blob, key)
