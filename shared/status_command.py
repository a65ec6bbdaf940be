"""`transload status`: shows whichever side's state.yml there is.

This package knows no side: the file says which side's it is, and that side's report is imported by name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import click

from transload.shared import console
from transload.shared.command_context import CommandContext, json_option, pass_command_context
from transload.shared.errors import PathMissing, StateUnreadable
from transload.shared.state_file import FILE_NAME, State, default_state_path, read_side

REPORTS = {
    "export": "transload.export_side.export_status:report",
    "import": "transload.import_side.import_status:report",
    "replicator": "transload.export_side.replicator.status:report",
}
"""By side: a function of the state file's path that returns a `StatusReport`."""


@dataclass(frozen=True, slots=True)
class StatusTable:
    """One table of a report.

    Args:
        title: What it shows.
        columns: Its headings.
        rows: Its cells.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass(frozen=True, slots=True)
class StatusReport:
    """What a state file says.

    Args:
        summary: One line.
        tables: For people.
        state: For programs.
    """

    summary: str
    tables: Sequence[StatusTable]
    state: State


@click.command("status")
@click.option("--output-path", type=click.Path(path_type=Path, file_okay=False), help="An exporter's output folder.")
@click.option("--state", "state_path", type=click.Path(path_type=Path, dir_okay=False), help="A state file.")
@json_option
@pass_command_context
def status(context: CommandContext, output_path: Path | None, state_path: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """Show what this side's state.yml says.

    Without options it is the state.yml of the current folder, or else the importer's default place
    (/var/lib/transload for root, otherwise the XDG state folder).
    """
    del context
    report = load_report(_state_path(output_path, state_path))
    if as_json:
        import msgspec  # noqa: PLC0415 - `--help` need not pay for it

        console.print_json({"command": "status", **msgspec.structs.asdict(report.state)})
        return
    console.print_text(report.summary)
    for table in report.tables:
        console.print_text(f"\n{table.title}: {'' if table.rows else 'none'}".rstrip())
        if table.rows:
            console.print_table(table.columns, table.rows)


def load_report(path: Path) -> StatusReport:
    """The report on a state file, by the side that it belongs to.

    Raises:
        PathMissing: There is no such file.
        StateUnreadable: It cannot be understood.
    """
    side = read_side(path)
    if side is None:
        raise PathMissing(
            f"There is no state file {path}; nothing was exported or imported with it yet.",
            hint="Name the export's folder with --output-path DIR or the import's file with --state FILE.",
            path=str(path),
        )
    if side not in REPORTS:
        raise StateUnreadable(f"{path} has the side {side!r}; one of {', '.join(REPORTS)} is expected.", path=str(path))
    module, _, function = REPORTS[side].partition(":")
    make = cast("Callable[[Path], StatusReport]", getattr(importlib.import_module(module), function))
    return make(path)


def _state_path(output_path: Path | None, state_path: Path | None) -> Path:
    if output_path is not None and state_path is not None:
        raise click.UsageError("--output-path and --state are for different sides; give one of them.")
    if output_path is not None:
        return output_path / FILE_NAME
    if state_path is not None:
        return state_path
    here = Path(FILE_NAME)
    return here if here.exists() else default_state_path()
