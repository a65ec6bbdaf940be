"""The command `transload export`: parse, call, print."""

from __future__ import annotations

from pathlib import Path

import click

from transload.export_side.exporter import DEFAULT_JOBS, Exporter
from transload.export_side.ngc.options import Choice, choice_options
from transload.export_side.plan import image_size
from transload.export_side.request import DEFAULT_DESTINATION, ExportRequest
from transload.export_side.result import ExportResult
from transload.manifests.chunks import whole_blocks
from transload.manifests.image_list import ALL_PLATFORMS, ListedImage, ListEntry, parse, parse_platform_choice
from transload.shared import limits
from transload.shared.atomic_files import read_bounded
from transload.shared.command_context import CommandContext, json_option, pass_command_context
from transload.shared.config_file import config_option
from transload.shared.console import print_json, print_table, print_text, say, warn
from transload.shared.errors import InvalidConfiguration, InvalidImageList, PathMissing, ReadFailed
from transload.shared.option_types import WholeNumber
from transload.shared.platforms import DEFAULT_PLATFORM
from transload.shared.references import Reference
from transload.shared.registry.options import RegistryDirectory, registry_options
from transload.shared.signing.signer import signer_for
from transload.shared.sizes import format_size, parse_size
from transload.shared.wording import number_of


@config_option
@click.command("export")
@click.argument("references", metavar="[REFERENCE]...", nargs=-1)
@click.option("--ngc", "from_ngc", is_flag=True, help="Take images from NGC's catalogue, as the options below choose.")
@choice_options
@click.option("--images", "image_list", metavar="FILE", type=click.Path(path_type=Path, readable=False),
              help="Take the images from this YAML list, beside those named here.")  # fmt: skip
@click.option("--output-path", metavar="DIR", type=click.Path(path_type=Path), default=Path(),
              help="Where bundles and state.yml are.")  # fmt: skip
@click.option("--sign-key", metavar="FILE", type=click.Path(path_type=Path, readable=False),
              help="OpenSSH private key, or the .pub file of one in an agent; needed unless --dry-run. Its passphrase "
                   "is asked for, or read from the file that TRANSLOAD_KEY_PASSPHRASE_FILE names.")  # fmt: skip
@click.option("--destination", metavar="NAME", default=DEFAULT_DESTINATION,
              help="Whom the bundle is for; bundles are numbered for each.")  # fmt: skip
@click.option("--platform", metavar="OS/ARCH[/VARIANT]", default=None, show_default=str(DEFAULT_PLATFORM),
              help="Which image to take out of an index.")  # fmt: skip
@click.option("--all-platforms", is_flag=True, help="Carry every index whole.")
@click.option("--chunk-size", metavar="SIZE", default="4GB",
              help="Largest size of a file of the bundle, rounded down to whole blocks of 4 MiB.")  # fmt: skip
@click.option("--allow-large-files", is_flag=True, help="Allow chunks that FAT32 cannot hold.")
@click.option("--jobs", metavar="N", type=WholeNumber(1, 64), default=DEFAULT_JOBS,
              help="How many blobs are fetched, or chunks read, at once.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would be exported and its exact size; write nothing.")
@click.option("--again", is_flag=True, help="Export also what an earlier bundle already brings.")
@click.option("--restart", is_flag=True, help="Throw away an unfinished bundle for this destination first.")
@json_option
@registry_options
@pass_command_context
def export(
    context: CommandContext,
    *,
    references: tuple[str, ...],
    from_ngc: bool,
    choice: Choice,
    image_list: Path | None,
    output_path: Path,
    sign_key: Path | None,
    destination: str,
    platform: str | None,
    all_platforms: bool,
    chunk_size: str,
    allow_large_files: bool,
    jobs: int,
    dry_run: bool,
    again: bool,
    restart: bool,
    as_json: bool,
    registries: RegistryDirectory,
) -> int:
    """Take images from a registry and seal them into a signed bundle.

    The bundle is a folder below --output-path. A run that was stopped goes on when the same command is given again.
    Without anything new since the last bundle for this destination none is made, and the exit code is 0.
    """
    if platform is not None and all_platforms:
        raise InvalidConfiguration("--platform and --all-platforms exclude each other.")
    if sign_key is None and not dry_run:
        raise InvalidConfiguration(
            "A bundle must be signed.", hint="Name a key with --sign-key FILE; `transload keygen` makes one."
        )
    request = ExportRequest(
        _entries(references, image_list, choice.entries(from_ngc=from_ngc)),
        ALL_PLATFORMS if all_platforms else parse_platform_choice(platform or str(DEFAULT_PLATFORM)),
        destination,
        whole_blocks(parse_size(chunk_size), allow_large_files=allow_large_files),
    )
    sign = signer_for(sign_key) if sign_key is not None else None
    exporter = Exporter(
        request, output_path, registries, sign, jobs, again, restart, context.stop, context.progress,
        ngc=choice.endpoints,
    )  # fmt: skip
    result = exporter.dry_run() if dry_run else exporter.run()
    if as_json:
        print_json(result.as_json())
    else:
        _show(result)
    return result.exit_code


def _entries(references: tuple[str, ...], image_list: Path | None, chosen: list[ListEntry]) -> tuple[ListEntry, ...]:
    entries: list[ListEntry] = [ListedImage(Reference.parse(text)) for text in references]
    entries.extend(chosen)
    if image_list is not None:
        try:
            raw = read_bounded(image_list, limits.MAX_IMAGE_LIST_BYTES)
        except (PathMissing, ReadFailed) as error:
            raise InvalidImageList(f"The image list cannot be read: {error.message}") from error
        entries.extend(parse(raw, str(image_list)))
    if not entries:
        raise InvalidConfiguration(
            "No image was named.",
            hint="Name references, such as nvcr.io/nvidia/cuda:12.4.1-base, or --images FILE, --repository or --ngc.",
        )
    return tuple(entries)


def _show(result: ExportResult) -> None:
    for note in result.notes:
        say(note)
    if result.plan is not None:
        print_table(
            ("REFERENCE", "PLATFORM", "DIGEST", "SOURCE DIGEST", "BYTES"),
            [
                (
                    image.reference if image.name == image.reference else f"{image.reference} as {image.name}",
                    "all" if image.is_index else (image.platform or ""),
                    image.digest,
                    "same" if image.digest == image.source_digest else image.source_digest,
                    image_size(image),
                )
                for image in result.plan.images
            ],
            spare=["SOURCE DIGEST"] if all(one.digest == one.source_digest for one in result.plan.images) else (),
        )
    for one in result.carried:
        say(f"{one.reference}: not new; {one.bundle_id} brings it.")
    for failed in result.failed:
        warn(f"{failed.reference} is not in the bundle: {failed.message} [{failed.error}]")
    # A cron job with --quiet sends no mail about a month in which nothing came.
    (say if result.plan is None else print_text)(_summary(result))
    if result.relies_on:
        say(
            f"Not yet acknowledged, and relied on: {', '.join(result.relies_on)}. When they have arrived, tell it: "
            "transload mark BUNDLE acknowledged; if not: transload mark BUNDLE lost."
        )


def _summary(result: ExportResult) -> str:
    plan = result.plan
    if plan is None:
        return f"Nothing new for destination {result.destination}: no bundle was made."
    content = (
        f"{number_of(len(plan.images), 'image')}, {number_of(len(plan.descriptors), 'blob')}, "
        f"{plan.blob_bytes:,} bytes ({plan.shared_bytes:,} more are shared); "
        f"{number_of(plan.chunks.chunk_count, 'chunk')}; "
        f"the whole bundle has {number_of(result.file_count, 'file')} and {result.size_bytes:,} bytes "
        f"({format_size(result.size_bytes)})"
    )
    if result.is_dry_run:
        return f"Dry run: {content}. Nothing was written."
    return f"{result.path}: {content}."
