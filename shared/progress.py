"""Telling a person how far long work is: on a terminal, in a log, or not at all."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import click

from transload.shared.sizes import format_size

if TYPE_CHECKING:
    from rich.console import Console

LOG_INTERVAL_SECONDS = 5.0


class Stage(Protocol):
    """One long step with a known number of bytes. Safe to use from several threads."""

    def advance(self, size_bytes: int) -> None:
        """Say that so many more bytes are done."""
        ...


class Progress(Protocol):
    """Where the steps of a run are shown."""

    def stage(self, title: str, total_bytes: int, *, done_bytes: int = 0) -> contextlib.AbstractContextManager[Stage]:
        """Begin a step.

        Args:
            title: Such as "Fetching".
            total_bytes: What the step will move.
            done_bytes: What an earlier run has already moved.
        """
        ...

    def note(self, text: str) -> None:
        """One line for a person."""
        ...


class _SilentStage:
    def advance(self, size_bytes: int) -> None:
        pass


class SilentProgress:
    """Shows nothing (`--quiet`, and the library's default)."""

    @contextlib.contextmanager
    def stage(self, title: str, total_bytes: int, *, done_bytes: int = 0) -> Iterator[Stage]:
        """Begin a step that nobody watches."""
        del title, total_bytes, done_bytes
        yield _SilentStage()

    def note(self, text: str) -> None:
        """Say nothing."""


class _LogStage:
    def __init__(self, title: str, total_bytes: int, done_bytes: int) -> None:
        self._title, self._total, self._done, self._before = title, total_bytes, done_bytes, done_bytes
        self._lock = threading.Lock()
        self._begun = self._shown = time.monotonic()

    def advance(self, size_bytes: int) -> None:
        with self._lock:
            self._done += size_bytes
            now = time.monotonic()
            if now - self._shown < LOG_INTERVAL_SECONDS:
                return
            self._shown = now
            self._say(now)

    def _say(self, now: float) -> None:
        moved, seconds = self._done - self._before, max(now - self._begun, 1e-6)
        rate = moved / seconds
        left = f", {(self._total - self._done) / rate:.0f} s left" if rate and self._done < self._total else ""
        share = f" ({100 * self._done // self._total}%)" if self._total else ""
        click.echo(
            f"{self._title}: {format_size(self._done)} of {format_size(self._total)}{share}, "
            f"{format_size(int(rate))}/s{left}",
            err=True,
        )

    def finish(self) -> None:
        with self._lock:
            self._say(time.monotonic())


class LogProgress:
    """Plain lines on stderr every few seconds, for logs and pipes."""

    @contextlib.contextmanager
    def stage(self, title: str, total_bytes: int, *, done_bytes: int = 0) -> Iterator[Stage]:
        """Begin a step that is reported line by line."""
        stage = _LogStage(title, total_bytes, done_bytes)
        yield stage
        stage.finish()

    def note(self, text: str) -> None:
        """One line on stderr."""
        click.echo(text, err=True)


class TerminalProgress:
    """A bar with bytes, rate and time left (rich)."""

    @contextlib.contextmanager
    def stage(self, title: str, total_bytes: int, *, done_bytes: int = 0) -> Iterator[Stage]:
        """Begin a step that is drawn as a bar."""
        from rich import progress as rich_progress  # noqa: PLC0415 - 60 ms that --help need not pay

        columns = (
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.DownloadColumn(),
            rich_progress.TransferSpeedColumn(),
            rich_progress.TimeRemainingColumn(),
        )
        with rich_progress.Progress(*columns, console=_stderr_console()) as shown:
            task = shown.add_task(title, total=total_bytes, completed=done_bytes)

            class _BarStage:
                def advance(self, size_bytes: int) -> None:
                    shown.advance(task, size_bytes)

            yield _BarStage()

    def note(self, text: str) -> None:
        """One line on stderr."""
        click.echo(text, err=True)


def progress_for(*, quiet: bool) -> Progress:
    """What fits the run: nothing, a bar on a terminal, or lines."""
    if quiet:
        return SilentProgress()
    return TerminalProgress() if sys.stderr.isatty() else LogProgress()


def _stderr_console() -> Console:
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=True)
