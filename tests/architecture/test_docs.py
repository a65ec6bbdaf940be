"""What the documents say exists: links, make targets, commands and options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from transload.shared.command_line import COMMANDS, cli

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for folder in (ROOT, ROOT / "docs", ROOT / "docs" / "decisions", ROOT / "manifests")
    for path in folder.glob("*.md")
)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{name_of(page)}: {target}"
        assert not anchor or anchor in anchors(linked), f"{name_of(page)}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_named_in_the_text_exist(page: Path) -> None:
    """In backquotes and with a folder: `manifests/FORMAT.md`."""
    folders = "shared|manifests|export_side|import_side|tests|docs|bench|deploy"
    for named in re.findall(rf"`((?:{folders})/[\w./-]+)`", page.read_text()):
        assert (ROOT / named).exists(), f"{name_of(page)}: {named}"


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"(?:^|[`$] ?)make ([a-z-]+)", page.read_text(), re.MULTILINE))
        assert named <= targets, name_of(page)


def command_lines(text: str) -> Iterator[str]:
    """Every `transload ...` line inside a fenced block, continuation lines joined."""
    for block in re.findall(r"^ *```[a-z]*\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        joined = re.sub(r"\\\n\s*", " ", block)
        for line in joined.splitlines():
            command = line.strip().removeprefix("$ ").partition(" #")[0]
            if re.match(r"(sudo )?transload( |$)", command):
                yield command.removeprefix("sudo ")


def check_command(line: str) -> None:
    """Raise if a command or an option does not exist."""
    words = shlex.split(line)[1:]
    while words and words[0].startswith("-"):
        assert words[0] in {name for parameter in cli.params for name in parameter.opts} | {"--help"}, line
        words.pop(0)
    if not words:
        return
    assert words[0] in COMMANDS, line
    command = cli.get_command(click.Context(cli), words[0])
    while isinstance(command, click.Group):
        words.pop(0)
        assert words, line
        command = command.get_command(click.Context(command), words[0])
    assert command is not None, line
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    used = {word.partition("=")[0] for word in words[1:] if word.startswith("-") and word != "-"}
    assert used <= options | {"--help"}, line


LINES = [(name_of(page), line) for page in PAGES for line in command_lines(page.read_text())]


@pytest.mark.parametrize(("page", "line"), LINES)
def test_commands_and_options_exist(page: str, line: str) -> None:
    del page
    check_command(line)


@pytest.mark.parametrize(
    "wrong", ["transload exprot x", "transload export --no-such x", "transload --no-such export", "transload ngc lsit"]
)
def test_a_wrong_command_would_be_seen(wrong: str) -> None:
    with pytest.raises(AssertionError):
        check_command(wrong)


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    used = {shlex.split(line)[1] for line in command_lines(page) if " " in line}
    assert used >= set(COMMANDS)


def test_decisions_are_numbered_once() -> None:
    names = [path.name for path in (ROOT / "docs" / "decisions").glob("*.md") if path.name[0].isdigit()]
    assert sorted(int(name[:4]) for name in names) == list(range(1, len(names) + 1))


def test_the_readme_names_the_first_two_commands_early() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    where = [number for number, line in enumerate(lines) if re.match(r"make (demo|test)\b", line)]
    assert len(where) == 2
    assert max(where) < 25


def test_every_module_is_on_the_map() -> None:
    """By its own name, or by that of its sub-package (`ngc/`)."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = {word for text in re.findall(r"`([^`]+)`", page) for word in re.split(r"[/.,]", text)}
    folders = set(re.findall(r"`(?:\w+/)*(\w+)/`", page))
    missing = [
        path.relative_to(ROOT).as_posix()
        for package in ("shared", "manifests", "export_side", "import_side")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.stem not in named | {"__init__"} and path.parent.name not in folders
    ]
    assert missing == []
