"""What every command gets from the `transload` group: how much to say, where progress goes, and the stop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeVar

import click

from transload.shared.progress import Progress, progress_for
from transload.shared.workers import Stop

Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")
Command = TypeVar("Command", bound=Callable[..., object])

JSON_PARAMETER = "as_json"


@dataclass(slots=True)
class CommandContext:
    """One run of the program.

    Args:
        quiet: Only results, warnings and errors are shown.
        verbose: How often --verbose was given.
        stop: Requested when a signal arrives; workers and long loops check it.
        as_json: Errors are also reported as JSON on standard output.
    """

    quiet: bool = False
    verbose: int = 0
    stop: Stop = field(default_factory=Stop)
    as_json: bool = False

    @property
    def progress(self) -> Progress:
        """Where long steps are shown: a bar, log lines, or nothing with --quiet."""
        return progress_for(quiet=self.quiet)


def pass_command_context(
    command: Callable[Concatenate[CommandContext, Arguments], Returned],
) -> Callable[Arguments, Returned]:
    """Give a command function the run's `CommandContext` as its first argument.

    A command that is invoked without the group (in a test) gets a fresh one.
    """

    @functools.wraps(command)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        found = click.get_current_context().find_object(CommandContext) or CommandContext()
        found.as_json = found.as_json or bool(kwargs.get(JSON_PARAMETER))
        return command(found, *args, **kwargs)

    return call


def json_option(command: Command) -> Command:
    """Add `--json`; the command function gets it as `as_json`."""
    return click.option(
        "--json", JSON_PARAMETER, is_flag=True, help="Print the result, or the error, as JSON on standard output."
    )(command)
