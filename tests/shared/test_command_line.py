"""The group itself: what it imports, what it says, how it ends. Commands of its own stand in for the real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from transload.shared.command_line import COMMANDS, CommandContext, cli

PROGRAM = """
import sys, threading, time, socket
import click
from transload.shared import command_line, errors
from transload.shared.command_line import CommandContext, json_option, pass_command_context
from transload.shared.workers import run_parallel
from transload.shared.console import say, warn, print_text

@click.command("probe")
@click.option("--how", default="fine")
@click.option("--word", multiple=True)
@json_option
@pass_command_context
def probe(context, how, word, as_json):
    match how:
        case "fine": print_text(" ".join(word) or "result"); say("said"); warn("warned"); context.progress.note("noted")
        case "partial": return errors.EXIT_PARTIAL
        case "error": raise errors.NotEnoughSpace("No room in /x.", hint="Make room.", needed=5)
        case "escape": raise errors.InvalidReference("bad \\x1b[2J name")
        case "bug": raise ValueError("secret-token-123")
        case "pipe":
            for i in range(100000): print_text(str(i))
        case "socket-pipe":
            a, b = socket.socketpair(); b.close(); a.send(b"x" * 10); a.send(b"x")
        case "busy":
            def spin(item):
                while True:
                    if item % 2: context.stop.check()
                    sum(range(1000))
            try:
                print("working", flush=True)
                for _ in run_parallel(range(4), spin, jobs=4, stop=context.stop): pass
            finally:
                print("tidied up")
        case "own-threads":
            def until_told():
                while not context.stop.is_requested: time.sleep(0.01)
            worker = threading.Thread(target=until_told)
            worker.start()
            try:
                print("working", flush=True)
                time.sleep(60)
            finally:
                worker.join()  # nobody but the signal's handler has told it
                print("tidied up")
        case "deaf":
            try:
                print("working", flush=True)
                time.sleep(60)
            finally:
                time.sleep(60)

command_line.COMMANDS["probe"] = command_line.CommandEntry("Probe", "__main__", "probe", "Probe.")
command_line.main()
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment},
    )  # fmt: skip


# --- what it imports ---

HEAVY = (
    *("requests", "urllib3", "docker", "rich", "cryptography", "yaml", "msgspec", "zstandard"),
    *("transload.export_side", "transload.import_side", "transload.manifests"),
)


@pytest.mark.parametrize("option", ["--help", "--version", "-h"])
def test_help_imports_nothing_heavy(option: str) -> None:
    script = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr))\n"
        f"from transload.shared.command_line import cli\ncli.main([{option!r}], prog_name='transload')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "transload" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert (command.help or "").partition("\n\n")[0].replace("\n", " ") == COMMANDS[name].help


def test_help_lists_every_command_by_side() -> None:
    done = run("--help")
    assert done.returncode == 0
    for name, entry in COMMANDS.items():
        assert f"  {name} " in done.stdout
        assert entry.section in done.stdout
    assert "TRANSLOAD_EXPORT_OUTPUT_PATH" in done.stdout


def test_the_version_is_the_packages() -> None:
    assert run("--version").stdout == f"transload {version('transload')}\n"


def test_without_a_command_it_shows_its_help() -> None:
    done = run()
    assert done.returncode == 2
    assert "Usage: transload" in done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [["nonsense"], ["probe", "--nonsense"], ["--nonsense"]])
def test_usage_errors_are_clicks(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "nonsense" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [["nonsense"], ["probe", "--nonsense"], ["verify", "x"]])
def test_with_json_a_usage_error_is_a_document_too(arguments: list[str]) -> None:
    done = run(*arguments, "--json")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert document.keys() == {"error", "exit_code", "facts", "hint", "message"}
    assert (document["error"], document["exit_code"]) == ("usage", 2)
    assert document["message"] in done.stderr


@pytest.mark.parametrize(("typed", "meant"), [("vrify", "verify"), ("exprot", "export"), ("lsit", "list")])
def test_a_mistyped_command_gets_a_suggestion(typed: str, meant: str) -> None:
    done = run(typed, "bundle", "--trust", "file")
    assert done.returncode == 2
    assert f"No such command {typed!r}. Did you mean {meant!r}?" in done.stderr


# --- options and environment ---


def test_results_and_words_are_apart() -> None:
    done = run("probe")
    assert (done.returncode, done.stdout) == (0, "result\n")
    assert done.stderr == "said\ntransload: warning: warned\nnoted\n"


@pytest.mark.parametrize("arguments", [["--quiet", "probe"], ["probe", "--quiet"], ["-q", "probe"], ["probe", "-q"]])
def test_quiet_leaves_results_and_warnings(arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.stdout, done.stderr) == ("result\n", "transload: warning: warned\n")


def test_every_option_comes_from_the_environment() -> None:
    assert run("probe", TRANSLOAD_PROBE_WORD="one two").stdout == "one two\n"
    assert run("probe", TRANSLOAD_PROBE_HOW="partial").returncode == 3
    assert run("probe", "--how", "fine", TRANSLOAD_PROBE_HOW="partial").returncode == 0
    assert "said" not in run("probe", TRANSLOAD_QUIET="1").stderr
    assert "Traceback" in run("probe", "--how", "bug", TRANSLOAD_VERBOSE="1").stderr
    assert json.loads(run("probe", "--how", "error", TRANSLOAD_PROBE_AS_JSON="1").stdout)["exit_code"] == 41


def test_a_command_without_the_group_gets_a_context() -> None:
    assert CommandContext().stop.is_requested is False


# --- ends ---


def test_an_error_says_what_what_to_do_and_its_code() -> None:
    done = run("probe", "--how", "error")
    assert done.returncode == 41
    assert done.stdout == ""
    assert done.stderr == "transload: No room in /x.\n  hint: Make room.\n  [not-enough-space, exit code 41]\n"


def test_with_json_the_error_is_also_a_document() -> None:
    done = run("probe", "--how", "error", "--json")
    assert done.returncode == 41
    assert json.loads(done.stdout) == {
        "error": "not-enough-space", "exit_code": 41, "facts": {"needed": 5}, "hint": "Make room.",
        "message": "No room in /x.",
    }  # fmt: skip
    assert "No room in /x." in done.stderr


def test_an_error_cannot_move_the_cursor() -> None:
    done = run("probe", "--how", "escape")
    assert "\x1b" not in done.stderr
    assert "bad \\x1b[2J name" in done.stderr


def test_a_bug_is_named_as_one_without_its_text() -> None:
    done = run("probe", "--how", "bug")
    assert done.returncode == 1
    assert "this is a bug in transload: ValueError at" in done.stderr
    assert "--verbose" in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret-token" not in done.stderr
    assert "Traceback" in run("-v", "probe", "--how", "bug").stderr
    assert json.loads(run("probe", "--how", "bug", "--json").stdout)["error"] == "internal-error"


def test_the_traceback_of_an_expected_error_is_shown_when_asked_for_three_times() -> None:
    for options in (["-v"], ["-vv"]):
        assert "Traceback" not in run(*options, "probe", "--how", "error").stderr
    for options in (["-vvv"], ["-v", "-vv"]):
        assert "Traceback" in run(*options, "probe", "--how", "error").stderr


def test_a_reader_that_leaves_early_is_no_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "probe", "--how", "pipe"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as done:
        assert done.stdout is not None
        assert done.stderr is not None
        done.stdout.readline()
        done.stdout.close()
        assert done.stderr.read() == b""
    assert done.returncode == 141


def test_a_broken_pipe_elsewhere_is_a_bug() -> None:
    done = run("probe", "--how", "socket-pipe")
    assert done.returncode == 1
    assert "BrokenPipeError" in done.stderr


def test_a_result_that_cannot_be_written_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "probe"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 43
    assert "standard output: No space left on device" in done.stderr


@pytest.mark.parametrize("how", ["busy", "own-threads"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_busy_threads_after_tidying_up(number: signal.Signals, code: int, how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "probe", "--how", how],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert running.stdout.readline() == "working\n"
        running.send_signal(number)
        rest, words = running.communicate(timeout=30)
    assert running.returncode == code
    assert rest == "tidied up\n"
    assert words == "transload: stopped by a signal; the same command goes on where this one stopped.\n"


@pytest.mark.parametrize("signals", [1, 2])
def test_a_run_that_does_not_tidy_up_in_time_ends_all_the_same(signals: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "probe", "--how", "deaf"], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "working\n"
        running.send_signal(signal.SIGINT)
        if signals == 2:
            with pytest.raises(subprocess.TimeoutExpired):
                running.wait(0.3)
            running.send_signal(signal.SIGINT)
        assert running.wait(30) == 130
