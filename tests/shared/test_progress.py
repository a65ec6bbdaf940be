from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading

import pytest

from transload.shared import progress
from transload.shared.progress import LogProgress, SilentProgress, progress_for


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_quiet_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    shown = progress_for(quiet=True)
    with shown.stage("Fetching", 100) as stage:
        stage.advance(50)
    shown.note("words")
    assert isinstance(shown, SilentProgress)
    assert capsys.readouterr() == ("", "")


def test_a_log_gets_a_line_every_few_seconds_and_one_at_the_end(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = progress_for(quiet=False)
    assert isinstance(shown, LogProgress)
    with shown.stage("Fetching", 100_000_000) as stage:
        for _ in range(100):
            clock.now += 0.1
            stage.advance(1_000_000)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "Fetching: 50.00 MB of 100.00 MB (50%), 10.00 MB/s, 5 s left",
        "Fetching: 100.00 MB of 100.00 MB (100%), 10.00 MB/s",
        "Fetching: 100.00 MB of 100.00 MB (100%), 10.00 MB/s",
    ]


def test_what_an_earlier_run_moved_counts_for_the_share_but_not_for_the_rate(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with LogProgress().stage("Fetching", 100_000_000, done_bytes=90_000_000) as stage:
        clock.now += 10
        stage.advance(5_000_000)
    first = capsys.readouterr().err.splitlines()[0]
    assert first == "Fetching: 95.00 MB of 100.00 MB (95%), 500.00 kB/s, 10 s left"


def test_nothing_to_do_divides_by_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with LogProgress().stage("Fetching", 0):
        pass
    assert capsys.readouterr().err == "Fetching: 0 B of 0 B, 0 B/s\n"


def test_several_threads_lose_no_byte(capsys: pytest.CaptureFixture[str]) -> None:
    with LogProgress().stage("Fetching", 40_000) as stage:

        def advance() -> None:
            for _ in range(10_000):
                stage.advance(1)

        threads = [threading.Thread(target=advance) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert "40.00 kB of 40.00 kB (100%)" in capsys.readouterr().err


def test_a_terminal_gets_a_bar() -> None:
    script = (
        "from transload.shared.progress import progress_for, TerminalProgress\n"
        "shown = progress_for(quiet=False)\n"
        "assert isinstance(shown, TerminalProgress)\n"
        "with shown.stage('Fetching', 1000, done_bytes=500) as stage: stage.advance(500)\n"
        "shown.note('noted')\n"
    )
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen([sys.executable, "-c", script], stderr=follower, env=environment) as running:
        os.close(follower)
        shown = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # how Linux reports the end
                break
            if not piece:
                break
            shown += piece
        assert running.wait() == 0
    os.close(leader)
    assert b"Fetching" in shown
    assert b"1.0/1.0 kB" in shown
    assert b"noted" in shown
