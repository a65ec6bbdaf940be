"""One HTTP answer: its status and headers, its body read in pieces or as a whole within bounds."""

from __future__ import annotations

import json
from typing import Any, Protocol

from transload.shared import limits
from transload.shared.errors import RegistryProtocolError
from transload.shared.registry.redaction import Redactor
from transload.shared.registry.urls import shown

_HTML_STARTS = (b"<!doctype html", b"<html", b"<head", b"<body", b"<?xml")


class BrokenOff(Exception):
    """The connection ended before the body did. Stays within this package."""


class Wire(Protocol):
    """A response on its connection, as `connections` gives it."""

    status: int

    def header_values(self, name: str) -> list[str]:
        """Every value of a header."""
        ...

    def read(self, size: int) -> bytes:
        """At most `size` bytes of the body; raises `BrokenOff`."""
        ...

    def release(self) -> None:
        """Give the connection back for the next request."""
        ...

    def close(self) -> None:
        """Close the connection unless it was given back."""
        ...


class Answer:
    """An answer whose body is still on the wire.

    Args:
        method: The request's method.
        url: The URL that answered, after redirects.
        wire: The response on its connection.
        redactor: Knows the secrets that the body must not be quoted with.

    Attributes:
        has_left_origin: Whether it comes from another origin than the one asked first.
    """

    def __init__(self, method: str, url: str, wire: Wire, redactor: Redactor) -> None:
        self.method, self.url = method, url
        self.status = wire.status
        self.has_left_origin = False
        self._wire = wire
        self._redactor = redactor
        self._beginning: bytes | None = None

    def header(self, name: str) -> str:
        """A header's value, or empty."""
        return next(iter(self._wire.header_values(name)), "").strip()

    def header_values(self, name: str) -> list[str]:
        """Every value of a header that may come several times."""
        return self._wire.header_values(name)

    @property
    def media_type(self) -> str:
        """The Content-Type without its parameters, in lower case."""
        return self.header("Content-Type").partition(";")[0].strip().lower()

    @property
    def content_length(self) -> int | None:
        """The Content-Length; None if there is none that is a number."""
        text = self.header("Content-Length")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None

    def read(self, size: int) -> bytes:
        """At most `size` bytes of the body, as they are on the wire; empty at its end.

        Raises:
            BrokenOff: The connection broke.
        """
        return self._wire.read(size)

    def read_all(self, most_bytes: int) -> bytes:
        """The whole body; the connection is free for the next request.

        Raises:
            RegistryProtocolError: It is longer than `most_bytes`.
            BrokenOff: The connection broke.
        """
        pieces: list[bytes] = []
        while (missing := most_bytes + 1 - sum(map(len, pieces))) > 0 and (piece := self.read(missing)):
            pieces.append(piece)
        raw = b"".join(pieces)
        if len(raw) > most_bytes:
            self.close()
            raise RegistryProtocolError(
                f"{shown(self.url)} answers with more than the {most_bytes:,} bytes accepted here.",
                url=shown(self.url), status=self.status,
            )  # fmt: skip
        self._wire.release()
        return raw

    def json(self, most_bytes: int) -> Any:
        """The body as JSON.

        Raises:
            RegistryProtocolError: It is something else, such as the HTML page of a portal or proxy.
            BrokenOff: The connection broke.
        """
        raw = self.read_all(most_bytes)
        try:
            return json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise self.not_json(raw) from error

    def not_json(self, raw: bytes) -> RegistryProtocolError:
        """The error for a body that should be JSON and is not."""
        what = "an HTML page" if is_html(raw, self.media_type) else "something else"
        return RegistryProtocolError(
            f"{shown(self.url)} answers {self.method} with {self.status} and {what} where JSON is expected.",
            hint="A login portal or a proxy may be answering instead of the registry.",
            url=shown(self.url), status=self.status, content_type=self.media_type[:100],
        )  # fmt: skip

    def problem(self) -> str:
        """What the body says about an error, in one line; the body is used up."""
        return self._redactor.quote(_problem_text(self.peek(), self.media_type)) or "it gives no reason"

    def peek(self) -> bytes:
        """The beginning of an error's body, as often as one likes; the rest is let go."""
        if self._beginning is None:
            try:
                self._beginning = self.read(limits.MAX_ERROR_BODY_BYTES)
            except BrokenOff:
                self._beginning = b""
            self.close()
        return self._beginning

    def close(self) -> None:
        """Let go of the body; a short rest is read so that the connection can be used again."""
        try:
            rest = self.content_length
            if self.method == "HEAD" or (rest is not None and rest <= limits.MAX_ERROR_BODY_BYTES):
                self.read(limits.MAX_ERROR_BODY_BYTES)
                self._wire.release()
        except BrokenOff:
            pass
        self._wire.close()


def is_html(raw: bytes, media_type: str) -> bool:
    """Whether a body is a page for people."""
    return media_type == "text/html" or raw[:200].lstrip().lower().startswith(_HTML_STARTS)


def _problem_text(raw: bytes, media_type: str) -> str:
    if is_html(raw, media_type):
        return "an HTML page"
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "replace") if media_type == "text/plain" else ""
    if not isinstance(fields, dict):
        return ""
    errors = fields.get("errors")
    entries = errors if isinstance(errors, list) else [fields]
    texts = []
    for entry in entries:
        if isinstance(entry, dict):
            words = (entry.get(key) for key in ("code", "message", "error", "error_description", "details"))
            texts.append(": ".join(str(word) for word in words if isinstance(word, (str, int)) and word != ""))
    return "; ".join(text for text in texts if text)
