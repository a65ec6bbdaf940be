"""The options field of an allowed_signers line (ssh-keygen(1), "ALLOWED SIGNERS")."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone

from transload.shared.signing.patterns import matches_pattern_list

_KEY_TYPE = re.compile(r"(?:sk-)?(?:ssh|ecdsa|rsa)-[A-Za-z0-9@.-]+[ \t]")
"""What begins like a key type is no option."""
_FLAG = re.compile(r"cert-authority", re.IGNORECASE)
_VALUED = re.compile(r'(namespaces|valid-after|valid-before)="((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_TIME = re.compile(r"([0-9]{8}|[0-9]{12}|[0-9]{14})(Z|z)?", re.ASCII)


class OptionError(ValueError):
    """An options field that cannot be understood."""


@dataclass(frozen=True, slots=True)
class SignerOptions:
    """What a line says about its key.

    Args:
        namespaces: Pattern list of what the key may sign, or None where the line does not say.
        valid_after: First moment at which the key counts; aware.
        valid_before: Last moment at which the key counts; aware.
        is_authority: The key certifies other keys.
    """

    namespaces: str | None = None
    valid_after: datetime | None = None
    valid_before: datetime | None = None
    is_authority: bool = False

    @classmethod
    def take(cls, text: str) -> tuple[SignerOptions, str]:
        """Read the options at the beginning of `text`.

        Args:
            text: A line without its principals.

        Returns:
            The options, and the text that follows them.

        Raises:
            OptionError: An unknown, repeated or ill-formed option.
        """
        if not text:
            raise OptionError("no key follows the principals")
        if _KEY_TYPE.match(text):
            return cls(), text
        values: dict[str, str] = {}
        position = 0
        while True:
            name, value, position = _take_one(text, position)
            if name in values:
                raise OptionError(f"the option {name} is given twice")
            values[name] = value
            if text[position : position + 1] != ",":
                break
            position += 1
        if text[position : position + 1] not in (" ", "\t"):
            raise OptionError(f"a space and a key were expected after the options, not {text[position:][:40]!r}")
        after = _time("valid-after", values)
        before = _time("valid-before", values)
        if after and before and before <= after:
            raise OptionError("valid-before is not later than valid-after")
        options = cls(values.get("namespaces"), after, before, "cert-authority" in values)
        return options, text[position:].lstrip(" \t")

    def admits_namespace(self, namespace: str) -> bool:
        """Whether the line names this namespace. Without any it does not."""
        return self.namespaces is not None and matches_pattern_list(namespace, self.namespaces)

    def why_out_of_time(self, at: datetime) -> str | None:
        """Why the line does not count at an aware time, or None if it does."""
        if self.valid_after and at < self.valid_after:
            return f"valid from {_readable(self.valid_after)}"
        if self.valid_before and at > self.valid_before:
            return f"valid until {_readable(self.valid_before)}"
        return None


def _take_one(text: str, position: int) -> tuple[str, str, int]:
    if match := _FLAG.match(text, position):
        return "cert-authority", "", match.end()
    if match := _VALUED.match(text, position):
        return match[1].lower(), re.sub(r'\\(")', r"\1", match[2]), match.end()
    if not text[position:].strip(" \t"):
        raise OptionError("an option was expected after the comma")
    unknown = re.split(r"[=, \t]", text[position:], maxsplit=1)[0]
    if unknown.lower() in ("namespaces", "valid-after", "valid-before"):
        raise OptionError(f"the value of {unknown} must stand in double quotes")
    raise OptionError(f"an option or a key type was expected, not {unknown[:60]!r}")


def _time(name: str, values: dict[str, str]) -> datetime | None:
    text = values.get(name)
    if text is None:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise OptionError(f"{name} must be YYYYMMDD or YYYYMMDDHHMM[SS], with Z for UTC, not {text[:40]!r}")
    try:
        moment = datetime.strptime(match[1].ljust(14, "0"), "%Y%m%d%H%M%S")  # noqa: DTZ007 - made aware below
        return moment.replace(tzinfo=timezone.utc) if match[2] else moment.astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise OptionError(f"{name}: there is no such time as {text}") from error


def _readable(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
