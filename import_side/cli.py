"""The commands `list`, `verify` and `import`: parse, call, print."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, get_args

import click

from transload.import_side.printing import complain, print_import, print_import_failures, print_verification
from transload.shared.command_context import CommandContext, json_option, pass_command_context
from transload.shared.console import print_json, print_table, print_text, say, warn
from transload.shared.errors import EXIT_DONE, InvalidConfiguration, TransloadError, raise_all
from transload.shared.registry.options import RegistryDirectory, registry_options
from transload.shared.sinks.base import ExistingTagPolicy
from transload.shared.sizes import format_size
from transload.shared.wording import number_of

if TYPE_CHECKING:
    from transload.import_side.verified_bundle import VerifiedBundle
    from transload.shared.signing.allowed_signers import AllowedSigners

Command = TypeVar("Command", bound=Callable[..., object])

_bundle_argument = click.argument("bundle", type=click.Path(path_type=Path))


def _signer_options(*, required: bool) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in (
            click.option(
                "--verify-time", metavar="TIME",
                help="Check the key's validity at this time (ISO 8601, UTC if it names no zone) instead of now.",
            ),
            click.option("--signer", metavar="NAME", help="Only this principal of the trust file will do."),
            click.option(
                "--trust", type=click.Path(path_type=Path), required=required, metavar="FILE",
                envvar="TRANSLOAD_TRUST", show_envvar=True,
                help='Who may sign: an OpenSSH allowed_signers file whose lines say namespaces="transload-bundle".',
            ),
        ):  # fmt: skip
            command = option(command)
        return command

    return add


_jobs_option = click.option(
    "--jobs", type=click.IntRange(1, 64), metavar="N", show_default="the processors there are",
    help="Threads that read, hash and push.",
)  # fmt: skip


@click.command("list")
@_bundle_argument
@_signer_options(required=False)
@json_option
@pass_command_context
def list_bundle(
    context: CommandContext,
    *,
    bundle: Path,
    trust: Path | None,
    signer: str | None,
    verify_time: str | None,
    as_json: bool,
) -> int:
    """Show what is in a bundle.

    Without --trust nobody has checked who made it, which is said on standard error; what can be checked without a key
    (bundle.json and the small files against SHA256SUMS, the sizes of all files) is checked all the same.
    """
    from transload.import_side.reporting import listing_json  # noqa: PLC0415 - `--help` need not pay for it
    from transload.import_side.verified_bundle import VerifiedBundle  # noqa: PLC0415

    del context
    if signer and trust is None:
        raise InvalidConfiguration("--signer says who must have signed, but without --trust nothing is checked.")
    opened = VerifiedBundle.open(
        bundle, trust=_load_trust(trust), at=_time(verify_time), signer=signer, keep_file_faults=True
    )
    opened.close()
    if opened.signed_by is None:
        warn("UNVERIFIED: without --trust nobody has checked who made this bundle or whether it was changed.")
    if as_json:
        print_json(listing_json(opened))
    else:
        _print_listing(opened)
    for fault in opened.file_faults:
        complain(fault)
    return _exit_code(opened.file_faults)


@click.command("verify")
@_bundle_argument
@_signer_options(required=True)
@click.option(
    "--full", is_flag=True,
    help="Also the SHA-256 of every chunk file, the digest of every blob, the diff_id of every layer and the headers "
         "inside the archive. About three times as long.",
)  # fmt: skip
@_jobs_option
@json_option
@pass_command_context
def verify(
    context: CommandContext,
    *,
    bundle: Path,
    trust: Path,
    signer: str | None,
    verify_time: str | None,
    full: bool,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Check a bundle's signature and every byte of it; name everything that is damaged."""
    from transload.import_side.reporting import exit_code_of, verification_json  # noqa: PLC0415
    from transload.import_side.verification import default_jobs, verify_bundle  # noqa: PLC0415

    found = verify_bundle(
        bundle,
        trust=_load_trust(trust),
        at=_time(verify_time),
        signer=signer,
        is_full=full,
        jobs=jobs or default_jobs(),
        stop=context.stop,
        progress=context.progress,
    )
    if as_json:
        print_json(verification_json(found))
        return exit_code_of(found)
    print_verification(found, exit_code_of(found))
    raise_all(found.faults)
    return EXIT_DONE


@click.command("import")
@_bundle_argument
@_signer_options(required=True)
@click.option(
    "--to", "to", multiple=True, required=True, metavar="TARGET",
    help="docker[=URL], registry=HOST[/PREFIX], archive=DIR or oci=DIR; may be repeated.",
)  # fmt: skip
@click.option(
    "--image", "image", multiple=True, metavar="REFERENCE",
    help="Only this image: its full reference, or path:tag from any component on; may be repeated.",
)  # fmt: skip
@click.option(
    "--rename", multiple=True, metavar="FROM=TO",
    help="Replace the beginning of a source name, in whole path components; the longest FROM that fits is applied.",
)  # fmt: skip
@click.option("--keep-host", is_flag=True, help="Keep the source's host as the first path component at a registry.")
@click.option(
    "--on-existing-tag", type=click.Choice(get_args(ExistingTagPolicy)), default="overwrite",
    help="What to do with a name that stands for another image at the target.",
)  # fmt: skip
@click.option("--verify-first", is_flag=True, help="Check every block before the first delivery: all or nothing.")
@click.option("--allow-older", is_flag=True, help="Accept a bundle older than one accepted before, and go back to it.")
@click.option("--destination", metavar="NAME", help="The destination name that this importer accepts from now on.")
@click.option(
    "--state", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    show_default="/var/lib/transload/state.yml for root, else in ~/.local/state", help="What this importer remembers.",
)  # fmt: skip
@click.option(
    "--work-dir", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="DIR",
    help="Where temporary files of this program and its helpers go, instead of the system's folder.",
)  # fmt: skip
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write a record (JSON)."
)
@click.option(
    "--descriptions", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Write what the bundle says about its images (Markdown: description, licence) to this folder.",
)  # fmt: skip
@click.option(
    "--dry-run", is_flag=True, help="Check the bundle and say what would go where; contact and change nothing."
)
@_jobs_option
@registry_options
@json_option
@pass_command_context
def import_bundle(
    context: CommandContext,
    *,
    bundle: Path,
    trust: Path,
    signer: str | None,
    verify_time: str | None,
    to: tuple[str, ...],
    image: tuple[str, ...],
    rename: tuple[str, ...],
    keep_host: bool,
    on_existing_tag: ExistingTagPolicy,
    verify_first: bool,
    allow_older: bool,
    destination: str | None,
    state: Path | None,
    work_dir: Path | None,
    report: Path | None,
    descriptions: Path | None,
    dry_run: bool,
    jobs: int | None,
    registries: RegistryDirectory,
    as_json: bool,
) -> int:
    """Verify a bundle and deliver its images to Docker, a registry or a folder.

    Nothing is delivered unless the signature, every document and the sizes of all files are right. A block that turns
    out to be damaged costs the images that need it, and no others. What is already at a target is not sent again.
    """
    from transload.import_side.importer import ImportRequest  # noqa: PLC0415
    from transload.import_side.importer import import_bundle as run_import  # noqa: PLC0415
    from transload.import_side.report import encode  # noqa: PLC0415
    from transload.import_side.reporting import import_report  # noqa: PLC0415
    from transload.import_side.sinks.folders import make_folder, require_outside  # noqa: PLC0415
    from transload.import_side.target_names import Rename  # noqa: PLC0415
    from transload.import_side.targets import TargetSpec, open_targets  # noqa: PLC0415
    from transload.import_side.verification import default_jobs  # noqa: PLC0415
    from transload.shared.atomic_files import require_replaceable, write_atomically  # noqa: PLC0415
    from transload.shared.state_file import default_state_path  # noqa: PLC0415

    if work_dir is not None:
        os.environ["TMPDIR"] = tempfile.tempdir = str(work_dir.absolute())
    targets_asked = [TargetSpec.parse(text) for text in to]
    state_path = state or default_state_path()
    places = {"--state": state_path, "--report": report, "--descriptions": descriptions, "--work-dir": work_dir}
    folders = [(f"--to {spec.kind}", spec.folder) for spec in targets_asked]
    for option, place in (*places.items(), *folders):
        if place is not None:
            require_outside(place, bundle, option)
    if report is not None:  # before the first byte, not after the last
        if os.path.realpath(report) in (os.path.realpath(trust), os.path.realpath(state_path)):
            raise InvalidConfiguration(f"--report {report} would take the place of the trust file or of the state.")
        make_folder(report.absolute().parent)
        require_replaceable(report)
    allowed = _load_trust(trust)
    if allowed is None:
        raise RuntimeError("--trust is required")
    request = ImportRequest(
        folder=bundle,
        trust=allowed,
        at=_time(verify_time),
        signer=signer,
        state_path=state_path,
        images=image,
        renames=[Rename.parse(text) for text in rename],
        destination=destination,
        allow_older=allow_older,
        verify_first=verify_first,
        is_dry_run=dry_run,
        jobs=jobs or default_jobs(),
        descriptions=descriptions,
    )
    with open_targets(
        targets_asked,
        registries=registries,
        policy=on_existing_tag,
        keep_host=keep_host,
        jobs=jobs or max(4, default_jobs()),
        stop=context.stop,
    ) as targets:
        result = run_import(request, targets, stop=context.stop, progress=context.progress, warn=warn)
    record = import_report(result, trust)
    if report is not None:
        write_atomically(report, encode(record))
    if as_json:
        print_json(record)
    else:
        print_import(record)
    print_import_failures(result.failures, record)
    return result.exit_code


def _load_trust(path: Path | None) -> AllowedSigners | None:
    from transload.shared.signing.allowed_signers import AllowedSigners  # noqa: PLC0415 - cryptography is slow to load

    return None if path is None else AllowedSigners.load(path)


def _time(text: str | None) -> datetime:
    if text is None:
        return datetime.now(timezone.utc)
    try:
        parsed = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))  # Python 3.10 does not know the Z
    except ValueError as error:
        raise InvalidConfiguration(
            f"--verify-time: {text[:50]!r} is no time.", hint="Write it like 2024-05-01T12:00:00Z."
        ) from error
    return parsed.astimezone(timezone.utc) if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)


def _print_listing(bundle: VerifiedBundle) -> None:
    from transload.import_side.reporting import image_sizes  # noqa: PLC0415

    manifest = bundle.manifest
    trusted = f"signed by {bundle.signed_by.principal}" if bundle.signed_by else "UNVERIFIED"
    print_text(
        f"Bundle {manifest.bundle_id} ({trusted}), number {manifest.sequence} for {manifest.destination}, made "
        f"{manifest.created} by exporter {manifest.exporter[:8]}"
    )
    print_table(
        ("IMAGE", "PLATFORM", "DIGEST", "SIZE"),
        [
            (entry.name, entry.platform or "all", entry.digest, format_size(size_bytes))
            for entry, size_bytes in zip(manifest.images, image_sizes(manifest), strict=True)
        ],
    )
    chunks = sum(len(artifact.chunks) for artifact in manifest.artifacts)
    size = format_size(sum(artifact.size for artifact in manifest.artifacts))
    counts = (number_of(len(manifest.images), "image"), number_of(len(manifest.blobs), "blob"))
    print_text(f"{', '.join(counts)}, {number_of(chunks, 'chunk file')}, {size}")
    for entry in manifest.failed:
        print_text(f"Not in it: {entry.reference}: {entry.message}")
    for note in bundle.notes if bundle.signed_by else ():  # without a trust file that is all said already
        say(note)


def _exit_code(faults: tuple[TransloadError, ...]) -> int:
    from transload.shared.errors import Faults  # noqa: PLC0415

    return Faults(faults).exit_code if faults else EXIT_DONE
