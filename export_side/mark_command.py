"""`transload mark`: the operator says what became of a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

import click

from transload.export_side.export_state import ExportState
from transload.manifests import bundle_manifest
from transload.shared import limits
from transload.shared.atomic_files import read_bounded
from transload.shared.command_context import CommandContext, json_option, pass_command_context
from transload.shared.console import print_json, print_text
from transload.shared.errors import NotABundle, PathMissing
from transload.shared.state_file import FILE_NAME, StateFile, read_state
from transload.shared.texts import real_path


@click.command("mark")
@click.argument("bundle")
@click.argument("status", type=click.Choice(["acknowledged", "lost"]))
@click.option(
    "--output-path",
    type=click.Path(path_type=Path, file_okay=False),
    help="The export's output folder, where its state.yml is.  [default: the bundle's parent folder if it has "
    "one, else the current folder]",
)
@json_option
@pass_command_context
def mark(context: CommandContext, bundle: str, status: str, output_path: Path | None, as_json: bool) -> None:  # noqa: FBT001
    """Note that a bundle has arrived or is lost.

    BUNDLE is a bundle's id or its folder. What was only in a lost bundle is exported again by the next export.
    """
    del context
    folder = Path(bundle)
    is_folder = folder.is_dir()
    bundle_id = _id_in(folder) if is_folder else bundle
    path = _state_path(folder if is_folder else None, output_path)
    if read_state(path, ExportState) is None:
        raise PathMissing(
            f"There is no state file {path}.",
            hint="Name the export's output folder with --output-path DIR.",
            path=str(path),
        )
    with StateFile.open(path, ExportState, ExportState.fresh) as file:
        before = file.state.mark(bundle_id, cast("Literal['acknowledged', 'lost']", status))
        file.save(force=True)
    if as_json:
        print_json({"command": "mark", "bundle": bundle_id, "status": status, "previous_status": before})
    else:
        print_text(f"{bundle_id}: {status} (was {before}).")


def _id_in(folder: Path) -> str:
    """The id that a bundle folder carries inside; the folder may have been renamed."""
    try:
        raw = read_bounded(folder / bundle_manifest.FILE_NAME, limits.MAX_BUNDLE_MANIFEST_BYTES)
    except PathMissing as error:
        raise NotABundle(f"{folder} is a folder without {bundle_manifest.FILE_NAME}.", path=str(folder)) from error
    return bundle_manifest.decode(raw).bundle_id


def _state_path(folder: Path | None, output_path: Path | None) -> Path:
    if output_path is not None:
        return output_path / FILE_NAME
    beside = real_path(folder).parent / FILE_NAME if folder is not None else None
    return beside if beside is not None and beside.exists() else Path(FILE_NAME)
