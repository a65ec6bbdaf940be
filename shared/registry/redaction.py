"""Keeping secrets out of messages and logs."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable

_URL_QUERY = re.compile(r"(https?://[^\s?\"'<>]+)\?[^\s\"'<>]*")
_PATH_QUERY = re.compile(r"(/[^\s?\"'<>]*)\?[^\s\"'<>]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_MAX_QUOTE_LENGTH = 200
_SHORTEST_SECRET = 4
"""Shorter texts are part of ordinary words; hiding them would garble messages and protect nothing."""


class Redactor:
    """Hides known secrets in text that comes from a server.

    Args:
        secrets: Passwords and identity tokens known from the start.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = set(secrets)
        self._lock = threading.Lock()

    def add(self, secret: str) -> None:
        """Hide one more text from now on, such as a token."""
        with self._lock:
            self._secrets.add(secret)

    def quote(self, text: str) -> str:
        """A server's words for a message: one line, short, no secrets, no URL queries, no control characters."""
        with self._lock:
            secrets = sorted(self._secrets, key=len, reverse=True)
        for secret in secrets:
            if len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, "***")
        text = _CONTROL.sub(" ", _URL_QUERY.sub(r"\1?***", text)).strip()
        return text if len(text) <= _MAX_QUOTE_LENGTH else f"{text[:_MAX_QUOTE_LENGTH]}..."


def hide_queries_in_log(logger_name: str) -> None:
    """Let a library's logger never write a URL's query: signed URLs are secrets.

    Args:
        logger_name: The logger that writes the records itself, not a parent.
    """
    logging.getLogger(logger_name).addFilter(_without_queries)


def _without_queries(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    record.msg, record.args = _PATH_QUERY.sub(r"\1?***", _URL_QUERY.sub(r"\1?***", text)), ()
    record.exc_info = None
    return True
