"""What `verify` and `import` show a person: tables and verdicts on standard output, words on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from transload.shared.console import print_table, print_text, printable, say
from transload.shared.wording import number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transload.import_side.report import ImportReport
    from transload.import_side.verification import Verification
    from transload.shared.errors import TransloadError

_MOST_SHOWN = 20


def print_verification(found: Verification, exit_code: int) -> None:
    """What was checked, what is wrong, and a last line that says what it comes to.

    Args:
        found: All of it.
        exit_code: How the run will end.
    """
    manifest = found.bundle.manifest
    signed_by = found.bundle.signed_by
    consistent = f"{found.images_consistent} of {len(manifest.images)} consistent"
    rows: list[tuple[str, object]] = [
        ("bundle", manifest.bundle_id),
        ("signed by", f"{signed_by.principal} ({signed_by.key_type} {signed_by.fingerprint})" if signed_by else ""),
        ("files", f"{len(found.bundle.checksums)} named, {number_of(len(found.bundle.file_faults), 'fault')}"),
        ("blocks", f"{found.blocks_intact} of {found.blocks_total} intact"),
        ("images", consistent if found.images_checked else "not checked"),
    ]
    if found.is_full and not found.skipped:
        rows += [
            ("chunk files", f"{found.chunks_checked} of {sum(len(one.chunks) for one in manifest.artifacts)} intact"),
            ("blobs", f"{found.blobs_checked} of {len(manifest.blobs)} intact"),
            ("layers", f"{found.layers_checked} have their diff_id"),
        ]
    print_table(("CHECK", "RESULT"), rows)
    if found.faults:
        print_table(
            ("FILE", "FAULT", "BLOCKS"),
            [
                (fault.facts.get("file", ""), fault.reference, _blocks(fault.facts.get("blocks")))
                for fault in found.faults
            ],
        )
    for text in (*found.skipped, *found.bundle.notes):
        say(text)
    if found.bundle.directory.is_unfinished_copy:
        say("The folder's name ends in .partial: it is an unfinished copy, or one that is being repaired.")
    print_text(_verdict(found, exit_code))


def _verdict(found: Verification, exit_code: int) -> str:
    total = len(found.bundle.manifest.images)
    if not found.faults:
        return f"Good: signature, files and all blocks are right, and so are {number_of(total, 'image')}. Exit code 0."
    hit = found.images_hit
    which = f"{len(hit)} of {number_of(total, 'image')} hit: {_some(hit)}" if hit else "no image is hit"
    if found.bundle.file_faults:
        rest = "Nothing is imported from it until that is repaired."
    else:
        rest = "An import delivers the others." if len(hit) < total else "Repair it before it is imported."
    return f"Damaged: {which}. {rest} Exit code {exit_code}."


def print_import(record: ImportReport) -> None:
    """What went where, which names moved, and how many deliveries failed.

    Args:
        record: The import's.
    """
    rows: list[tuple[str, ...]] = [
        (one.image, one.sink, one.target, one.action, (one.previous or "") if one.action == "kept" else one.digest)
        for one in record.deliveries
    ]
    rows += [(one.image, one.sink, one.target, one.error, one.digest) for one in record.failures]
    sinks = list(dict.fromkeys(row[1] for row in rows))
    rows.sort(key=lambda row: (sinks.index(row[1]), row[0], row[2]))
    print_table(("IMAGE", "TO", "NAME THERE", "RESULT", "DIGEST"), rows, spare=_spare_columns(rows))
    for moved in record.moved:
        say(f"Moved: {moved.target} on {moved.sink}: {moved.previous} -> {moved.image_id or moved.digest}")
    for delivery in record.deliveries:
        for note in delivery.notes:
            say(note)
    for reference in record.bundle.failed:
        say(f"The bundle does not hold {reference}, which its exporter was asked for; `transload list` says why.")


def print_import_failures(errors: Sequence[TransloadError], record: ImportReport) -> None:
    """Every reason once, and how the run ends, which is not always the code of one of them.

    Args:
        errors: Why images were not delivered.
        record: The import's.
    """
    for error in {error.message: error for error in errors}.values():
        complain(error, is_last_word=False)
    if record.failures:
        total = len(record.failures) + len(record.deliveries)
        said = f"transload: {len(record.failures)} of {total} deliveries failed; exit code {record.exit_code}"
        click.echo(said, err=True)


def complain(error: TransloadError, *, is_last_word: bool = True) -> None:
    """One error on standard error, as the command line shows one.

    Args:
        error: It.
        is_last_word: The run ends with its exit code, as far as this error goes.
    """
    click.echo(f"transload: {printable(error.message, keep_newlines=True)}", err=True)
    if error.hint:
        click.echo(f"  hint: {printable(error.hint)}", err=True)
    code = f", exit code {error.exit_code}" if is_last_word else ""
    click.echo(f"  [{error.reference}{code}]", err=True)


def _spare_columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns of an import's table that tell nothing this time."""
    spare = ["TO"] if len({to for _, to, *_ in rows}) < 2 else []
    if all(target == image for image, _, target, *_ in rows):
        spare.append("NAME THERE")
    elif all(target.endswith(f"/{image.partition('/')[2]}") for image, _, target, *_ in rows):
        spare.append("IMAGE")
    return spare


def _blocks(numbers: object) -> str:
    if not isinstance(numbers, list):
        return ""
    shown = ", ".join(str(number) for number in numbers[:_MOST_SHOWN])
    return shown if len(numbers) <= _MOST_SHOWN else f"{shown}, ... ({len(numbers)} blocks)"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return ", ".join(names[:_MOST_SHOWN]) + more
