"""Ctrl-C and SIGTERM: the run stops within a second, finishes what it has open, and can be run again."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

from transload.shared.errors import EXIT_INTERRUPTED, EXIT_TERMINATED, Interrupted
from transload.shared.workers import Stop

GRACE_SECONDS = 3.0
"""How long the main thread may take to leave its `finally` blocks. A hard end is then as safe as a power cut:
every durable write is atomic and journals are replayed."""

_EXIT_CODES = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: EXIT_TERMINATED}


def install_handlers(stop: Stop) -> None:
    """From now on a signal requests `stop` and raises `Interrupted` in the main thread; a second one ends at once.

    SIGPIPE stays ignored, as Python has it: a reader that closed the pipe shows as BrokenPipeError.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        del frame
        exit_code = _EXIT_CODES[signal.Signals(number)]
        if stop.is_requested:
            os._exit(exit_code)
        stop.request()
        end = threading.Timer(GRACE_SECONDS, os._exit, (exit_code,))
        end.daemon = True
        end.start()
        raise Interrupted(exit_code)

    for number in _EXIT_CODES:
        signal.signal(number, handle)


def exit_now(exit_code: int) -> NoReturn:
    """Leave without waiting for threads that sit in a silent socket; what is buffered is written first."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # its reader has gone, or it was closed
            if stream is not None:
                stream.flush()
    os._exit(exit_code)
