"""The command `transload copy`."""

from __future__ import annotations

from pathlib import Path

import click

from transload.export_side.medium import Medium
from transload.export_side.medium_copy import CopyResult, copy_bundle
from transload.shared.command_context import CommandContext, json_option, pass_command_context
from transload.shared.console import print_json, print_text, say, warn
from transload.shared.sizes import format_size


@click.command("copy")
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("medium_dir", metavar="MEDIUM-DIR", type=click.Path(path_type=Path))
@json_option
@pass_command_context
def copy(context: CommandContext, bundle: Path, medium_dir: Path, *, as_json: bool) -> None:
    """Copy a bundle to a medium, read it back and compare.

    BUNDLE is the folder that `transload export` made; the copy gets its name inside MEDIUM-DIR. Files are written in
    order, synced, and read back from the medium, not from a cache. After an interruption the same command goes on
    where it stopped; run on a finished copy, it compares it again.
    """
    result = copy_bundle(bundle, Medium.of(medium_dir), progress=context.progress, stop=context.stop)
    if result.left_out:
        warn(f"not named in SHA256SUMS and therefore not copied: {', '.join(result.left_out)}")
    if not result.reads_past_caches:
        warn(
            f"{medium_dir} is a {result.file_system} file system whose device this user may not read, so its cache"
            " could not be dropped. Pull the medium out, plug it in, and run the same command again to be certain."
        )
    if as_json:
        print_json(_as_json(result))
        return
    print_text(_summary(result))
    say("Unmount the medium before you pull it out.")


def _summary(result: CopyResult) -> str:
    size = format_size(result.size_bytes)
    if result.was_complete:
        return f"{result.folder} was already there and complete: {result.file_count} files, {size}, compared again."
    kept = f" ({format_size(result.kept_bytes)} of it from an earlier run)" if result.kept_bytes else ""
    return f"{result.folder}: {result.file_count} files, {size}{kept}, written and read back."


def _as_json(result: CopyResult) -> dict[str, object]:
    return {
        "command": "copy",
        "folder": str(result.folder),
        "files": result.file_count,
        "size_bytes": result.size_bytes,
        "written_bytes": result.written_bytes,
        "kept_bytes": result.kept_bytes,
        "was_complete": result.was_complete,
        "file_system": result.file_system,
        "read_past_caches": result.reads_past_caches,
        "left_out": list(result.left_out),
    }
