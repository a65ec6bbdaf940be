from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from transload.shared.console import print_json, print_table, print_text, printable, say, show_path, warn
from transload.shared.digests import Digest

LONG = "nvcr.io/nvidia/some/very/long/repository/path/that/no/terminal/shows:24.01-py3-with-a-long-tag-" + "x" * 80

TABLE = f"""
from transload.shared.console import print_table
print_table(["REFERENCE", "SIZE", "NOTE"], [["{LONG}", 12, "[bold]n[/bold]"], ["b\\x1b[31m", 3, None]])
"""


def on_a_terminal(script: str, *arguments: str, columns: int = 60) -> str:
    """What a script shows on a real terminal."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    with subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=follower, env=environment):
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
    os.close(leader)
    return shown.decode()


def test_a_piped_table_is_aligned_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["REFERENCE", "SIZE", "NOTE"], [[LONG, 12, "[bold]n[/bold]"], ["b\x1b[31m", 3, None]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{'REFERENCE':{len(LONG)}}  SIZE  NOTE"
    assert lines[1] == f"{LONG}    12  [bold]n[/bold]"
    assert lines[2] == f"{'b' + chr(92) + 'x1b[31m':{len(LONG)}}     3"


def test_a_table_without_rows_is_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["A", "B"], [])
    assert capsys.readouterr().out == "A  B\n"


def test_a_terminal_gets_whole_references_and_no_foreign_escapes() -> None:
    shown = on_a_terminal(TABLE)
    assert LONG in shown
    assert "[bold]n[/bold]" in shown
    assert "\\x1b[31m" in shown
    assert "\x1b[31m" not in shown
    assert "…" not in shown


DIGEST = f"sha256:{'0123456789abcdef' * 4}"
DIGESTS = f"""
import sys
from types import SimpleNamespace
import click
from transload.shared.console import print_table
with click.Context(click.Command("x"), obj=SimpleNamespace(verbose=int(sys.argv[1]))):
    rows = [["a@{DIGEST}", "same", "{DIGEST}", 1]]
    print_table(["REFERENCE", "SOURCE", "DIGEST", "SIZE"], rows, spare=["SOURCE"])
"""


def test_a_terminal_gets_short_digests_and_no_column_that_tells_nothing() -> None:
    shown = on_a_terminal(DIGESTS, "0")
    assert "SOURCE" not in shown
    assert f"a@{DIGEST}" in shown, "what can be pulled by it stays whole"
    assert " 0123456789ab " in shown
    assert " sha256:0" not in shown


def test_a_verbose_terminal_and_a_pipe_get_everything() -> None:
    piped = subprocess.run([sys.executable, "-c", DIGESTS, "0"], check=True, capture_output=True, text=True).stdout
    for shown in (on_a_terminal(DIGESTS, "1"), piped):
        assert "SOURCE" in shown
        assert f" {DIGEST} " in shown


@dataclass
class Plain:
    path: Path
    digest: Digest


class Record(msgspec.Struct):
    b: int
    a: str


def test_json_is_stable(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"z": [Record(1, "\x9b\u202ex")], "a": Plain(Path("/x"), Digest("sha256", "0" * 64)), "m": None})
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {
        "a": {"digest": {"algorithm": "sha256", "hex": "0" * 64}, "path": "/x"},
        "m": None,
        "z": [{"a": "\x9b\u202ex", "b": 1}],
    }
    assert out.index('"a"') < out.index('"m"') < out.index('"z"')
    assert out.startswith('{\n  "a"')


@pytest.mark.parametrize("bad", ["\x1b[2J", "\r", "\x00", "\x7f", "\x9b", "\u202e", "\u2028", "\udcff"])
def test_what_is_not_visible_is_escaped(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printable(f"a{bad}b").isprintable()
    for show in (print_text, say, warn):
        show(f"a{bad}b")
    print_table(["X"], [[f"a{bad}b"]])
    captured = capsys.readouterr()
    assert bad[0] not in captured.out + captured.err


def test_lines_stay_lines_in_text_but_not_in_cells(capsys: pytest.CaptureFixture[str]) -> None:
    print_text("a\nb")
    print_table(["X"], [["a\nb"]])
    assert capsys.readouterr().out == "a\nb\nX\na\\nb\n"


def test_visible_text_of_any_language_stays() -> None:
    assert printable("Größe 数") == "Größe 数"
    assert show_path(Path("/a\nb")) == "/a\\nb"
