"""What a run does with the standard streams that it is given: closed ones, full ones, none at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, subprocess, sys
import click
from transload.shared import command_line, errors
from transload.shared.command_line import json_option, pass_command_context
from transload.shared.console import print_text, warn

@click.command("probe")
@click.argument("path")
@click.option("--fail", is_flag=True)
@json_option
@pass_command_context
def probe(context, path, fail, as_json):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    with context.progress.stage("Working", 10) as stage:
        stage.advance(10)
    warn("words")
    subprocess.run(["sh", "-c", "echo child; echo child >&2"], check=False)
    os.write(descriptor, b"content")
    if fail:
        raise errors.PushFailed("It failed.")
    if not as_json:
        print_text("result")

command_line.COMMANDS["probe"] = command_line.CommandEntry("Probe", "__main__", "probe", "Probe.")
command_line.main()
"""


def run_in_shell(redirections: str, path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    script = f'"$0" -c "$1" probe "$2" {" ".join(options)} {redirections}'
    return subprocess.run(
        ["/bin/sh", "-c", script, sys.executable, PROGRAM, str(path)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("closed", ["2>&-", ">&-", ">&- 2>&-", "<&- >&- 2>&-", "<&-"])
def test_a_closed_stream_ends_no_run_and_swallows_no_file(tmp_path: Path, closed: str) -> None:
    path = tmp_path / "file"
    done = run_in_shell(closed, path)
    assert done.returncode == 0
    assert path.read_bytes() == b"content"
    if ">&-" not in closed.split():
        assert "result" in done.stdout


def test_the_exit_code_is_the_same_without_streams(tmp_path: Path) -> None:
    assert run_in_shell("<&- >&- 2>&-", tmp_path / "file", "--fail").returncode == 82


def test_words_that_cannot_be_written_end_no_run(tmp_path: Path) -> None:
    done = run_in_shell("2>/dev/full", tmp_path / "file")
    assert done.returncode == 0
    assert "result" in done.stdout


def test_a_reader_of_words_that_leaves_ends_no_run(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as nobody_reads:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "probe", str(tmp_path / "file")],
            stdout=subprocess.PIPE, stderr=nobody_reads, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0
    assert "result" in done.stdout


def test_an_error_that_cannot_be_told_as_json_keeps_its_exit_code(tmp_path: Path) -> None:
    done = run_in_shell(">/dev/full", tmp_path / "file", "--fail", "--json")
    assert done.returncode == 82
    assert "It failed." in done.stderr
    assert "Traceback" not in done.stderr
