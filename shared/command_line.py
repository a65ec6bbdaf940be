"""The `transload` command: finds the command asked for, runs it, and turns every end into words and an exit code.

Nothing heavy is imported before a command is chosen, so that `transload --help` and shell completion stay quick.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import select
import sys
import traceback
from pathlib import Path
from typing import NamedTuple, NoReturn

import click

from transload.shared import console
from transload.shared.command_context import CommandContext, json_option, pass_command_context
from transload.shared.console import printable
from transload.shared.errors import EXIT_BUG, EXIT_DONE, EXIT_USAGE, Interrupted, TransloadError
from transload.shared.interruption import exit_now, install_handlers
from transload.shared.standard_streams import settle_standard_streams
from transload.shared.wording import did_you_mean

__all__ = ["COMMANDS", "CommandContext", "cli", "json_option", "main", "pass_command_context"]

ENVIRONMENT_PREFIX = "TRANSLOAD"
USAGE_ERROR = "usage"
"""What a wrong command line is called where errors have names."""
VERBOSE_TRACEBACKS = 3
"""An error that was expected says all that helps in its message; so often must --verbose be given for more."""
EXIT_BROKEN_PIPE = 141
"""What a shell shows for a program that SIGPIPE ended."""


class CommandEntry(NamedTuple):
    """Where a command is.

    Attributes:
        section: Heading in `transload --help`.
        module: The module, imported when the command is chosen.
        attribute: The click command in it.
        help: The first line of the command's own help.
    """

    section: str
    module: str
    attribute: str
    help: str


_EXPORT, _IMPORT, _BOTH = "On the connected side", "On the isolated side", "On both sides"

COMMANDS = {
    "keygen": CommandEntry(
        _EXPORT, "transload.shared.signing.keygen_command", "keygen",
        "Make a key pair that signs bundles, and the line by which the other side trusts it.",
    ),
    "export": CommandEntry(
        _EXPORT, "transload.export_side.cli", "export",
        "Take images from a registry and seal them into a signed bundle.",
    ),
    "ngc": CommandEntry(
        _EXPORT, "transload.export_side.ngc.list_command", "ngc",
        "Look into NGC's catalogue.",
    ),
    "copy": CommandEntry(
        _EXPORT, "transload.export_side.copy_command", "copy",
        "Copy a bundle to a medium, read it back and compare.",
    ),
    "mark": CommandEntry(
        _EXPORT, "transload.export_side.mark_command", "mark",
        "Note that a bundle has arrived or is lost.",
    ),
    "list": CommandEntry(
        _IMPORT, "transload.import_side.cli", "list_bundle",
        "Show what is in a bundle.",
    ),
    "verify": CommandEntry(
        _IMPORT, "transload.import_side.cli", "verify",
        "Check a bundle's signature and every byte of it; name everything that is damaged.",
    ),
    "import": CommandEntry(
        _IMPORT, "transload.import_side.cli", "import_bundle",
        "Verify a bundle and deliver its images to Docker, a registry or a folder.",
    ),
    "status": CommandEntry(
        _BOTH, "transload.shared.status_command", "status",
        "Show what this side's state.yml says.",
    ),
}  # fmt: skip


class PipeBroken(Exception):
    """Carries a BrokenPipeError past click."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if the table does not know it."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return super().get_command(ctx, cmd_name)
        command = getattr(importlib.import_module(entry.module), entry.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.module}:{entry.attribute} is not a click command")
        own = {name for parameter in command.params for name in parameter.opts}
        command.params.extend(option for option in talk_options() if not own.intersection(option.opts))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed; for a mistyped one the nearest name is suggested."""
        typed = args[0]
        if typed not in COMMANDS and not typed.startswith("-"):
            ctx.fail(f"No such command {typed!r}. {did_you_mean(typed, COMMANDS)}".rstrip())
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; click itself would end the process silently at any broken pipe, a socket's too."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise PipeBroken from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help's list from the table alone."""
        del ctx
        for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
            rows = [(name, entry.help) for name, entry in COMMANDS.items() if entry.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)


def _set_quiet(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's callback
    del parameter
    found = ctx.find_object(CommandContext)
    if found is not None and value:
        found.quiet = True


def _set_verbose(ctx: click.Context, parameter: click.Parameter, value: int) -> None:
    del parameter
    found = ctx.find_object(CommandContext)
    if found is not None:
        found.verbose += value


def talk_options() -> list[click.Option]:
    """`--quiet` and `--verbose`, which may stand before or after the command's name."""
    return [
        click.Option(
            ["-q", "--quiet"], is_flag=True, expose_value=False, callback=_set_quiet, show_default=False,
            help="Show results, warnings and errors only.",
        ),
        click.Option(
            ["-v", "--verbose"], count=True, expose_value=False, callback=_set_verbose, show_default=False,
            help="Show more; the traceback of a bug; three times: that of any error.",
        ),
    ]  # fmt: skip


@click.group(
    cls=LazyGroup,
    params=talk_options(),
    context_settings={
        "auto_envvar_prefix": ENVIRONMENT_PREFIX,
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": 110,
    },
    epilog="Every option can also come from the environment: TRANSLOAD_<COMMAND>_<OPTION>, "
    "such as TRANSLOAD_EXPORT_OUTPUT_PATH. Of an option that may be repeated, blanks separate the values there.",
)
@click.version_option(package_name="transload", message="%(prog)s %(version)s")
def cli() -> None:
    """Carry container images across an air gap in signed, chunked, checksummed bundles."""


def main() -> None:
    """Entry point of the program `transload`; never returns."""
    run_program(cli, "transload")


def run_program(command: click.Command, name: str) -> NoReturn:
    """Run a command as a program of its own; never returns.

    Args:
        command: It; `CommandContext` is its object.
        name: What it is called in words for people.
    """
    settle_standard_streams()
    context = CommandContext()
    install_handlers(context.stop)
    try:
        # Not sys.exit: a worker that sits in a silent socket must not keep a finished run alive.
        exit_now(_run(command, name, context))
    except Interrupted as interruption:
        _complain("stopped by a signal; the same command goes on where this one stopped.")
        exit_now(interruption.exit_code)


def _run(command: click.Command, name: str, context: CommandContext) -> int:
    try:
        result = command.main(prog_name=name, standalone_mode=False, obj=context)
        console.flush_results()
    except TransloadError as error:
        return _report(error, context)
    except click.Abort:
        return _report_usage("the question was not answered.", context)
    except click.ClickException as error:
        error.show()
        return _report_usage(error.format_message(), context, is_shown=True)
    except (PipeBroken, BrokenPipeError) as error:
        return EXIT_BROKEN_PIPE if _nobody_reads_results() else _report_bug(error.__cause__ or error, context)
    except Exception as error:
        return _report_bug(error, context)
    return result if isinstance(result, int) else EXIT_DONE


def _nobody_reads_results() -> bool:
    """Whether standard output is a pipe whose reader has gone: `transload list BUNDLE | head`."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _report(error: TransloadError, context: CommandContext) -> int:
    _complain(error.message)
    if error.hint:
        click.echo(f"  hint: {printable(error.hint)}", err=True)
    click.echo(f"  [{error.reference}, exit code {error.exit_code}]", err=True)
    if context.verbose >= VERBOSE_TRACEBACKS:
        traceback.print_exception(error)
    if _wants_json(context):
        _print_problem(error.as_json())
    return error.exit_code


def _report_usage(message: str, context: CommandContext, *, is_shown: bool = False) -> int:
    if not is_shown:
        _complain(message)
    if _wants_json(context):
        _print_problem({"error": USAGE_ERROR, "exit_code": EXIT_USAGE, "facts": {}, "hint": "", "message": message})
    return EXIT_USAGE


def _report_bug(error: BaseException, context: CommandContext) -> int:
    # The text of a foreign exception may hold a signed URL or a password: only its type and place are shown.
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{'/'.join(Path(frames[-1].filename).parts[-2:])}:{frames[-1].lineno}" if frames else "unknown place"
    _complain(f"this is a bug in transload: {type(error).__name__} at {place}.")
    if context.verbose:
        traceback.print_exception(error)
    else:
        click.echo("  hint: --verbose shows the traceback; please report it (look for secrets in it first).", err=True)
    click.echo(f"  [{TransloadError.reference}, exit code {EXIT_BUG}]", err=True)
    if _wants_json(context):
        document: dict[str, object] = {"error": TransloadError.reference, "exit_code": EXIT_BUG, "facts": {},
                                       "hint": "", "message": f"{type(error).__name__} at {place}"}  # fmt: skip
        _print_problem(document)
    return EXIT_BUG


def _print_problem(document: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # perhaps that nobody can read results is the problem
        click.echo(json.dumps(document, indent=2, sort_keys=True, default=str))


def _wants_json(context: CommandContext) -> bool:
    """Also where the error came before the command's own `--json` was read."""
    own = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    return context.as_json or "--json" in own


def _complain(text: str) -> None:
    click.echo(f"transload: {printable(text, keep_newlines=True)}", err=True)


if __name__ == "__main__":
    main()
