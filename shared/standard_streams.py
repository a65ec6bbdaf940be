"""Standard input, output and error as a run can rely on them, whatever it was started with.

A stream that was closed (`2>&-`, some cron and init scripts) leaves its number to the next file that is opened, and
what a library or a child then writes to "standard error" lands in a chunk or in a state. And words for people are no
part of the job: a log on a full disk, or a terminal that has gone, ends no run.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

_STANDARD_ERROR = 2


class _Words(io.FileIO):
    """A file whose writes always succeed."""

    def write(self, data: Any, /) -> int:
        size_bytes = memoryview(data).nbytes
        try:
            written = super().write(data)
        except OSError:
            return size_bytes
        return size_bytes if written is None else written  # None: nobody reads it fast enough, and we do not wait


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def settle_standard_streams() -> None:
    """Open what is closed, to nowhere; let words fail silently; show what an encoding lacks as escapes."""
    for number in (0, 1, _STANDARD_ERROR):  # ascending: the lowest free number is given out
        if not _is_open(number):
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # children need it, too
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show ends no run
    encoding = sys.stderr.encoding if sys.stderr is not None else "utf-8"
    raw = _Words(_STANDARD_ERROR, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding, errors="backslashreplace", line_buffering=True
    )
