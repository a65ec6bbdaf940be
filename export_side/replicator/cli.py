"""The program `ngc_replicator`: the options of NVIDIA's NGC Container Replicator, and what has become of them."""

from __future__ import annotations

import os
from pathlib import Path

import click

from transload.export_side.ngc.endpoints import NGC_USER, NgcEndpoints, ngc_api_key
from transload.export_side.replicator.replicator import Replicator
from transload.export_side.replicator.request import (
    DEFAULT_OUTPUT_PATH,
    DEFAULT_PROJECT,
    ReplicatorRequest,
    credential,
    parse_registry_url,
)
from transload.export_side.replicator.result import ReplicationResult
from transload.export_side.replicator.tar_file import blob_bytes
from transload.manifests.tag_rules import TagRules
from transload.shared.command_context import CommandContext, pass_command_context
from transload.shared.command_line import run_program, talk_options
from transload.shared.console import print_text, say, warn
from transload.shared.errors import InvalidConfiguration
from transload.shared.option_types import WholeNumber
from transload.shared.platforms import DEFAULT_PLATFORM, Platform
from transload.shared.registry.options import RegistryDirectory, registry_options
from transload.shared.registry.settings import Credential
from transload.shared.sizes import format_size

ENVIRONMENT_PREFIX = "NGC_REPLICATOR"


@click.command(
    "ngc_replicator",
    context_settings={
        "auto_envvar_prefix": ENVIRONMENT_PREFIX,
        "help_option_names": ["-h", "--help"],
        "show_default": True,
        "max_content_width": 110,
    },
    epilog="Every option can also come from the environment: NGC_REPLICATOR_<OPTION>, such as NGC_REPLICATOR_API_KEY.",
)
@click.option("--api-key", metavar="KEY", help="NGC API key; not needed for public images. Better in the environment "
              "than on a command line, which other users of this host can see.")  # fmt: skip
@click.option("--project", metavar="NAME", default=DEFAULT_PROJECT, help="NGC's project, or project/team.")
@click.option("--output-path", metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
              default=DEFAULT_OUTPUT_PATH, help="Where files and state.yml are.")  # fmt: skip
@click.option("--min-version", metavar="YY.MM", help="The oldest version. Tags that do not begin with YY.MM are not "
              "judged by it.")  # fmt: skip
@click.option("--py-version", metavar="TEXT", help="Only tags with this text, such as py3.")
@click.option("--image", "images", metavar="NAME", multiple=True, envvar="NGC_REPLICATOR_IMAGE",
              help="Only images with this text in their names; repeatable.")  # fmt: skip
@click.option("--strict-name-match/--no-strict-name-match", default=False, help="--image is the whole name.")
@click.option("--registry-url", metavar="HOST[:PORT][/PATH]", help="Push every image there, as HOST/PATH/IMAGE:TAG.")
@click.option("--registry-username", metavar="USER", help="Login for that registry; else what `docker login` stored.")
@click.option("--registry-password", metavar="PASSWORD", help="Better in the environment, like --api-key.")
@click.option("--dry-run", is_flag=True, help="Show what would be fetched; write nothing.")
@click.option("--no-remove", is_flag=True, help="New images also go into this host's Docker, if there is one.")
@click.option("--exporter/--no-exporter", default=True, help="Write a docker-save file for every image.")
@click.option("--singularity/--no-singularity", default=False, help="Write a SIF file for every image: cannot be done "
              "by this version, which says so and ends with exit code 3.")  # fmt: skip
@click.option("--templater/--no-templater", default=False, help="Did nothing and does nothing.")
@click.option("--external-images", metavar="FILE", type=click.Path(path_type=Path),
              help="YAML list of images of other registries: images: [{name, tag}].")  # fmt: skip
@click.option("--progress-uri", metavar="URL", help="Post the progress there as JSON.")
@click.option("--service", is_flag=True, help="Refused: the service was given up by the old replicator, too.")
@click.option("--platform", metavar="OS/ARCH[/VARIANT]", default=str(DEFAULT_PLATFORM),
              help="Which image to take of those for several platforms.")  # fmt: skip
@click.option("--jobs", metavar="N", type=WholeNumber(1, 64), default=4, help="How many blobs are moved at once.")
@click.version_option(package_name="transload", message="ngc_replicator (transload %(version)s)")
@registry_options
@pass_command_context
def replicate(
    context: CommandContext,
    *,
    api_key: str | None,
    project: str,
    output_path: Path,
    min_version: str | None,
    py_version: str | None,
    images: tuple[str, ...],
    strict_name_match: bool,
    registry_url: str | None,
    registry_username: str | None,
    registry_password: str | None,
    dry_run: bool,
    no_remove: bool,
    exporter: bool,
    singularity: bool,
    templater: bool,
    external_images: Path | None,
    progress_uri: str | None,
    service: bool,
    platform: str,
    jobs: int,
    registries: RegistryDirectory,
) -> int:
    """Replicate images of NVIDIA's registry (NGC) into a folder and to another registry.

    What state.yml in the output folder lists is not fetched again, unless its tag has moved. A run that was stopped
    goes on when the same command is given again. An image that fails does not stop the others: the exit code is 3.
    """
    if service:
        raise InvalidConfiguration(
            "--service: there is no gRPC service; the old replicator had given it up, too.",
            hint="Run ngc_replicator from cron, a systemd timer or a Kubernetes CronJob.",
        )
    if templater:
        say("--templater does nothing, as before.")
    request = ReplicatorRequest(
        project=project,
        output_path=output_path,
        min_version=TagRules(min_version=min_version).min_version,
        py_version=py_version,
        images=images,
        strict_name_match=strict_name_match,
        registry_url=_registry_url(registry_url),
        makes_tars=exporter,
        makes_sifs=singularity,
        keeps_in_docker=no_remove,
        external_images=external_images,
        progress_uri=progress_uri,
        platform=Platform.parse(platform),
        jobs=jobs,
    )
    endpoints = NgcEndpoints.from_environment(os.environ)
    api_key = (api_key or "").strip()  # a key out of a file often brings its line end
    if api_key:
        registries.log_in(endpoints.registry, Credential(NGC_USER, api_key, source="--api-key"))
    login = credential(registry_username, registry_password)
    if login is not None and request.registry_host is not None:
        registries.log_in(request.registry_host, login)
    key = api_key or ngc_api_key(registries, endpoints, os.environ)
    replicator = Replicator(request, registries, endpoints, key, context.stop, context.progress)
    result = replicator.dry_run() if dry_run else replicator.run()
    _show(result, is_dry_run=dry_run)
    return result.exit_code


def _registry_url(text: str | None) -> str | None:
    return parse_registry_url(text) if text else None


def _show(result: ReplicationResult, *, is_dry_run: bool) -> None:
    for note in result.notes:
        say(note)
    for problem in result.problems:
        warn(problem)
    for failure in result.failures:
        warn(f"{failure.reference}: {failure.error.message} [{failure.error.reference}]")
        if failure.error.hint:
            say(f"  hint: {failure.error.hint}")
    if is_dry_run:
        for one, image in result.planned.items():
            print_text(f"[dry-run] clone_image({one.name}, {one.tag}, {image.source_digest})")
        blobs = {blob.digest: blob.size_bytes for image in result.planned.values() for blob in image.descriptors()}
        each = sum(blob_bytes(image) for image in result.planned.values())
        say(
            f"{len(result.planned)} images to fetch, {each:,} bytes ({format_size(each)}); "
            f"{sum(blobs.values()):,} bytes without what they share. {len(result.unchanged)} are there already. "
            "Nothing was written."
        )
        return
    for name in result.tars:
        print_text(f"saved {name}")
    for target in result.pushed:
        print_text(f"pushed {target}")
    for url in result.kept:
        print_text(f"kept in Docker {url}")
    failed = f"; {len(result.failures)} failed" if result.failures else ""
    print_text(
        f"{len(result.tars)} saved, {len(result.pushed)} pushed, {len(result.unchanged)} were there already{failed}."
    )


def main() -> None:
    """Entry point of the program `ngc_replicator`; never returns."""
    run_program(replicate, "ngc_replicator")


replicate.params.extend(talk_options())
