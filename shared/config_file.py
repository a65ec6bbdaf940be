"""`--config FILE.yml`: options of a command by their long names, below the command line and the environment."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import click

from transload.shared import limits
from transload.shared.atomic_files import read_bounded
from transload.shared.errors import InvalidConfiguration, PathMissing, ReadFailed, TransloadError, raise_all
from transload.shared.yaml_files import load_yaml

Command = TypeVar("Command", bound=click.Command)
_OWN_NAME = "config"
_BOOLEANS = {"true": True, "false": False}


def config_option(command: Command) -> Command:
    """Add `--config` to a finished click command; what the file says becomes the options' defaults.

    The command line goes before the environment, which goes before the file.
    """
    command.params.insert(
        0,
        click.Option(
            [f"--{_OWN_NAME}"], metavar="FILE", type=click.Path(path_type=Path), is_eager=True, expose_value=False,
            callback=_read, help="Take options from this YAML file, by their long names; those given here and in the "
            "environment go before.",
        ),
    )  # fmt: skip
    return command


def _read(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    del parameter
    if path is not None:
        try:
            raw = read_bounded(path, limits.MAX_IMAGE_LIST_BYTES)
        except (PathMissing, ReadFailed) as error:
            raise InvalidConfiguration(f"The configuration cannot be read: {error.message}") from error
        ctx.default_map = options_in(raw, str(path), ctx.command)


def options_in(raw: bytes, where: str, command: click.Command) -> dict[str, object]:
    """Read a configuration file.

    Args:
        raw: Its content.
        where: Its name, for messages.
        command: Whose options it gives.

    Returns:
        Values by the names of the command's parameters.

    Raises:
        InvalidConfiguration: Not YAML, or an option that the command does not have; every fault is named.
    """
    document = load_yaml(raw, where)
    if document is None:
        return {}
    if not isinstance(document, Mapping):
        raise InvalidConfiguration(f"{where} is no list of options.", hint="Write lines such as `keep-last: 2`.")
    known = {name: parameter for parameter in command.params for name in _names(parameter)}
    found: dict[str, object] = {}
    faults: list[TransloadError] = []
    for key, value in document.items():
        name = str(key)
        parameter = known.get(name)
        if parameter is None:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"Did you mean {near[0]}?" if near else f"Options are: {', '.join(sorted(known))}."
            faults.append(InvalidConfiguration(f"{where}: there is no option {name[:60]!r}.", hint=hint, file=where))
            continue
        try:
            found[str(parameter.name)] = _value(parameter, value, f"{where}: {name}")
        except InvalidConfiguration as error:
            faults.append(error)
    raise_all(faults)
    return found


def _names(parameter: click.Parameter) -> list[str]:
    """The long names of an option without their dashes; an argument's own name."""
    if isinstance(parameter, click.Argument):
        return [str(parameter.name)]
    names = [name.removeprefix("--") for name in parameter.opts if name.startswith("--")]
    return [name for name in names if name not in (_OWN_NAME, "help", "quiet", "verbose")]


def _value(parameter: click.Parameter, value: object, where: str) -> object:
    is_flag = isinstance(parameter, click.Option) and parameter.is_flag
    takes_several = parameter.multiple or parameter.nargs == -1
    if takes_several and isinstance(value, list) and all(isinstance(item, str) and item for item in value):
        return list(value)
    if isinstance(value, str) and value:
        if not is_flag:
            return [value] if takes_several else value
        if value in _BOOLEANS:
            return _BOOLEANS[value]
    wanted = "true or false" if is_flag else "a list of texts, or one" if takes_several else "text or a number"
    raise InvalidConfiguration(f"{where} must be {wanted}.")
