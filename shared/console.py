"""What a person or a program reads: results on standard output, words on standard error.

Names from registries and bundles are outside text: control and formatting characters in them are shown as escapes,
so that no image can move the cursor, hide a line or colour a warning away.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import click

from transload.shared.errors import WriteFailed
from transload.shared.texts import well_formed_data

_COLUMN_GAP = "  "
_WIDEST_TABLE = 100_000
_WHOLE_DIGEST = re.compile(r"sha(?:256|512):([0-9a-f]{12})[0-9a-f]+")


def printable(text: str, *, keep_newlines: bool = False) -> str:
    """Text with everything that is not a visible character written as a backslash escape."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or (keep_newlines and char == "\n") else char.encode("unicode_escape").decode()
        for char in text
    )


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, spare: Collection[str] = ()) -> None:
    """Print a table on standard output: drawn on a terminal, aligned plain columns in a pipe or file.

    A cell is never wrapped or cut, so that references can be copied out of it. Only a digest that is a whole cell is
    shown by its first 12 digits on a terminal, as Docker does, so that a table fits there. With --verbose, and
    wherever it is not a person who reads, everything is there.

    Args:
        columns: The headings.
        rows: As many cells each as there are columns. None is an empty cell; integers are right-aligned.
        spare: Columns that tell nothing this time (the same in every row): a terminal does without them.
    """
    is_drawn = sys.stdout is not None and sys.stdout.isatty()
    if is_drawn and not _is_verbose():
        kept = [i for i, name in enumerate(columns) if name not in spare]
        columns = [columns[i] for i in kept]
        rows = [[_short(row[i]) for i in kept] for row in rows]
    cells = [[printable("" if cell is None else str(cell)) for cell in row] for row in rows]
    is_number = [
        bool(rows) and all(isinstance(row[i], int) or row[i] is None for row in rows) for i in range(len(columns))
    ]
    if is_drawn:
        _draw(columns, cells, is_number)
        return
    widths = [max(len(line[i]) for line in (columns, *cells)) for i in range(len(columns))]
    for line in (columns, *cells):
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        )
        _result(_COLUMN_GAP.join(padded).rstrip())


def print_json(value: object) -> None:
    """Print one JSON document on standard output: ASCII, sorted keys, two spaces of indentation.

    Args:
        value: Plain data, msgspec structs or dataclasses; paths, digests and the like become text.
    """
    import msgspec  # noqa: PLC0415 - `--help` need not pay for it

    plain = well_formed_data(msgspec.to_builtins(value, enc_hook=str))
    _result(json.dumps(plain, indent=2, sort_keys=True))


def print_text(text: str) -> None:
    """Print a line of the result on standard output."""
    _result(printable(text, keep_newlines=True))


def say(text: str) -> None:
    """One line for a person on standard error; silent with --quiet."""
    if not _is_quiet():
        click.echo(printable(text, keep_newlines=True), err=True)


def warn(text: str) -> None:
    """A warning on standard error, even with --quiet."""
    click.echo(f"transload: warning: {printable(text, keep_newlines=True)}", err=True)


def show_path(path: Path) -> str:
    """A path as messages show it."""
    return printable(str(path))


def flush_results() -> None:
    """Write out what is buffered of the result.

    Raises:
        WriteFailed: Standard output cannot be written (a full disk).
        BrokenPipeError: Nobody reads it any more.
    """
    if sys.stdout is not None:  # closed by whoever started us
        with _reporting_output_errors():
            sys.stdout.flush()


def _result(line: str) -> None:
    with _reporting_output_errors():
        click.echo(line)


@contextlib.contextmanager
def _reporting_output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise WriteFailed(f"The result cannot be written to standard output: {error.strerror}.") from error


def _draw(columns: Sequence[str], cells: Sequence[Sequence[str]], is_number: Sequence[bool]) -> None:
    from rich import box  # noqa: PLC0415 - 60 ms that a pipe need not pay
    from rich.console import Console  # noqa: PLC0415
    from rich.measure import Measurement  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415 - cells are text, never rich's markup

    table = Table(box=box.SIMPLE_HEAD)
    for name, right in zip(columns, is_number, strict=True):
        table.add_column(name, no_wrap=True, justify="right" if right else "left")
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))
    console = Console()
    options = console.options.update(width=_WIDEST_TABLE)
    console.width = max(console.width, Measurement.get(console, options, table).maximum)
    with _reporting_output_errors():
        console.print(table)


def _short(cell: object) -> object:
    found = None if isinstance(cell, int) else _WHOLE_DIGEST.fullmatch(str(cell))
    return found[1] if found else cell


def _is_quiet() -> bool:
    return _is_set("quiet")


def _is_verbose() -> bool:
    return _is_set("verbose")


def _is_set(option: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(getattr(context.find_root().obj, option, False))
