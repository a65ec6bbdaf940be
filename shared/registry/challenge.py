"""WWW-Authenticate headers, read by their grammar (RFC 9110, 11.6.1; RFC 6750, 3).

    WWW-Authenticate = #challenge            auth-param = token BWS "=" BWS ( token / quoted-string )
    challenge = auth-scheme [ 1*SP ( token68 / #auth-param ) ]

One header may hold several challenges, and a comma separates both challenges and parameters: what follows a comma
is a parameter if an equals sign follows its first token, and the next challenge otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TOKEN68 = re.compile(r"[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$))")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SPACE = re.compile(r"[ \t]*")
_SEPARATOR = re.compile(r"[ \t]*(?:,[ \t]*)*")
_EQUALS = re.compile(r"[ \t]*=[ \t]*")


@dataclass(frozen=True, slots=True)
class Challenge:
    """One challenge.

    Args:
        scheme: Such as `bearer`, in lower case.
        parameters: Such as `realm`, `service` and `scope`; names in lower case, the first one of a name counts.
    """

    scheme: str
    parameters: Mapping[str, str] = field(default_factory=dict)


def parse_challenges(headers: Iterable[str]) -> list[Challenge]:
    """Read every challenge of an answer, in order.

    What breaks the grammar ends the header that it is in; the challenges before it stay. No answer is so broken
    that it cannot be refused in a better place than here.

    Args:
        headers: The values of all WWW-Authenticate headers.
    """
    return [challenge for header in headers for challenge in _Reader(header).challenges()]


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._position = text, 0

    def challenges(self) -> list[Challenge]:
        found = []
        self._skip(_SEPARATOR)
        while scheme := self._take(_TOKEN):
            found.append(Challenge(scheme.lower(), self._parameters()))
            self._skip(_SEPARATOR)
        return found

    def _parameters(self) -> dict[str, str]:
        parameters: dict[str, str] = {}
        self._skip(_SPACE)
        if self._take(_TOKEN68):  # Negotiate, NTLM: of no use to a registry
            return parameters
        while True:
            start = self._position
            self._skip(_SEPARATOR)
            name = self._take(_TOKEN)
            if name is None or self._take(_EQUALS) is None:
                self._position = start  # the next challenge begins here
                return parameters
            value = self._value()
            if value is None:
                self._position = len(self._text)
                return parameters
            parameters.setdefault(name.lower(), value)

    def _value(self) -> str | None:
        quoted = _QUOTED.match(self._text, self._position)
        if quoted:
            self._position = quoted.end()
            return re.sub(r"\\(.)", r"\1", quoted[1], flags=re.DOTALL)
        return self._take(_TOKEN)

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self._text, self._position)
        if match is None:
            return None
        self._position = match.end()
        return match[0]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        self._take(pattern)
