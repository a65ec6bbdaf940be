from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from transload.shared.option_types import WholeNumber


@click.command()
@click.option("--jobs", type=WholeNumber(1, 64))
def command(jobs: int) -> None:
    click.echo(jobs)


@pytest.mark.parametrize("text", ["1", "64"])
def test_numbers_within_the_bounds(text: str) -> None:
    assert CliRunner().invoke(command, ["--jobs", text]).stdout == f"{text}\n"


@pytest.mark.parametrize("text", ["0", "65", "abc", "1.5", ""])
def test_anything_else_is_refused_in_plain_words(text: str) -> None:
    done = CliRunner().invoke(command, ["--jobs", text])
    assert done.exit_code == 2
    assert f"{text!r} is no whole number from 1 to 64." in done.stderr
