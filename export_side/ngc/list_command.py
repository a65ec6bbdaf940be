"""The command `transload ngc list`: what rules choose, before anything is exported."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import click

from transload.export_side.delivered import Deliveries
from transload.export_side.export_state import ExportState
from transload.export_side.ngc.options import Choice, choice_options
from transload.export_side.ngc.source import NgcSource
from transload.export_side.request import DEFAULT_DESTINATION
from transload.export_side.resolve import SourceRegistries, resolve
from transload.export_side.selection import Failure, SelectedTags, Wanted, select_tags
from transload.manifests.image_list import ListedNgc, ListedRepository, ListEntry, parse_platform_choice
from transload.shared.command_context import CommandContext, json_option, pass_command_context
from transload.shared.command_line import talk_options
from transload.shared.console import print_json, print_table, print_text, say, warn
from transload.shared.errors import EXIT_DONE, EXIT_PARTIAL, TransloadError, raise_all
from transload.shared.platforms import DEFAULT_PLATFORM
from transload.shared.references import Reference
from transload.shared.registry.options import RegistryDirectory, registry_options
from transload.shared.sizes import format_size
from transload.shared.state_file import FILE_NAME, read_state
from transload.shared.workers import Stop, run_parallel

_JOBS = 8
_MOST_SHOWN = 8


@dataclass(slots=True)
class _Row:
    repository: ListedRepository
    selected: SelectedTags
    new: list[str] = field(default_factory=list)
    size_bytes: int | None = None

    @property
    def name(self) -> str:
        return self.repository.repository.repository

    @property
    def unparsed_out(self) -> list[str]:
        return [tag for tag in self.selected.unparsed if tag in self.selected.excluded]

    def as_json(self) -> dict[str, object]:
        return {
            "repository": self.name,
            "tags": self.selected.tags,
            "unparsed": self.selected.unparsed,
            "excluded": self.selected.excluded,
            "new": self.new,
            "size_bytes": self.size_bytes,
        }


@click.group("ngc")
def ngc() -> None:
    """Look into NGC's catalogue."""


@ngc.command("list")
@choice_options
@click.option(
    "--sizes", is_flag=True, help="Ask for the size of what is chosen: each blob once. One request and more a tag."
)
@click.option("--output-path", metavar="DIR", type=click.Path(path_type=Path), default=Path(),
              help="Where the state.yml is by which NEW is told.")  # fmt: skip
@click.option("--destination", metavar="NAME", default=DEFAULT_DESTINATION, help="Whose bundles count for NEW.")
@click.option("--platform", metavar="OS/ARCH[/VARIANT]", default=str(DEFAULT_PLATFORM),
              help="Which image of an index counts for sizes and NEW.")  # fmt: skip
@json_option
@registry_options
@pass_command_context
def list_images(
    context: CommandContext,
    *,
    choice: Choice,
    sizes: bool,
    output_path: Path,
    destination: str,
    platform: str,
    as_json: bool,
    registries: RegistryDirectory,
) -> int:
    """Show which images and tags the rules choose, and which of them no bundle has brought yet.

    Tags that name no version are listed apart; those in brackets are left out by --min-version or --keep-last.
    Without --project it is nvidia, unless a --repository is named.
    """
    entries = choice.entries(from_ngc=bool(choice.projects) or not choice.repositories)
    state = read_state(output_path / FILE_NAME, ExportState) or ExportState.fresh()
    with (
        NgcSource(registries, choice.endpoints, context.stop) as source,
        SourceRegistries(registries, context.stop) as sources,
    ):
        listing = _Listing(source, sources, context.stop)
        rows = listing.rows(entries)
        wanted = {
            row.name: [
                Wanted(reference, reference, row.repository.platform or parse_platform_choice(platform))
                for reference in (row.repository.repository.with_tag(tag) for tag in row.selected.tags)
            ]
            for row in rows
        }
        every = [one for ones in wanted.values() for one in ones]
        carried = Deliveries(state, destination).unchanged(every, sources.current_digest, jobs=_JOBS, stop=context.stop)
        for row in rows:
            row.new = [str(one.reference.tag) for one in wanted[row.name] if one not in carried]
            if sizes:
                row.size_bytes = listing.size_of(wanted[row.name])
        notes = source.take_notes()
    if not rows:
        raise_all([failure.error for failure in listing.failures])
    if as_json:
        failed = [{"reference": one.reference, **one.error.as_json()} for one in listing.failures]
        print_json({"command": "ngc list", "repositories": [row.as_json() for row in rows], "failed": failed,
                    "notes": notes})  # fmt: skip
    else:
        _show(rows, listing.failures, notes, with_sizes=sizes)
    return EXIT_PARTIAL if listing.failures else EXIT_DONE


list_images.params.extend(talk_options())


@dataclass
class _Listing:
    source: NgcSource
    sources: SourceRegistries
    stop: Stop
    failures: list[Failure] = field(default_factory=list)

    def rows(self, entries: Sequence[ListEntry]) -> list[_Row]:
        """One row a repository, by name; what cannot be listed is a failure."""
        repositories: list[ListedRepository] = []
        for entry in entries:
            if isinstance(entry, ListedRepository):
                repositories.append(entry)
            elif isinstance(entry, ListedNgc):
                try:
                    repositories += self.source.repositories(entry)
                except TransloadError as error:
                    self.failures.append(Failure(f"NGC project {entry.project}", error))
        rows = []
        with contextlib.closing(run_parallel(repositories, self._selected, jobs=_JOBS, stop=self.stop)) as outcomes:
            for outcome in outcomes:
                if outcome.error is not None:
                    self.failures.append(Failure(outcome.item.repository.repository, outcome.error))
                elif outcome.result is not None:
                    rows.append(_Row(outcome.item, outcome.result))
        return sorted(rows, key=lambda row: row.name)

    def _selected(self, repository: ListedRepository) -> SelectedTags:
        return select_tags(repository, self.sources.list_tags, self._dates)

    def _dates(self, repository: Reference, tags: Sequence[str]) -> Mapping[str, datetime]:
        return self.source.dates(self.sources.client(repository), repository, tags)

    def size_of(self, wanted: Sequence[Wanted]) -> int:
        """Size of all blobs of these images, each once; one that cannot be had is a failure."""
        resolved = resolve(wanted, self.sources, jobs=_JOBS, stop=self.stop)
        self.failures += resolved.failures
        blobs = {one.digest: one.size_bytes for image in resolved.images for one in image.descriptors()}
        return sum(blobs.values())


def _show(rows: Sequence[_Row], failures: Sequence[Failure], notes: Sequence[str], *, with_sizes: bool) -> None:
    for note in notes:
        say(note)
    columns = ("REPOSITORY", "TAGS", "WITHOUT VERSION", "NEW", *(("SIZE",) if with_sizes else ()))
    table = []
    for row in rows:
        versions = [tag for tag in row.selected.tags if tag not in row.selected.unparsed]
        unparsed = [f"[{tag}]" if tag in row.unparsed_out else tag for tag in row.selected.unparsed]
        new = "all" if len(row.new) == len(row.selected.tags) else _some(row.new)
        size = [format_size(row.size_bytes or 0)] if with_sizes else []
        table.append((row.name, _some(versions), _some(unparsed), new if row.selected.tags else "", *size))
    print_table(columns, table)
    for failure in failures:
        warn(f"{failure.reference}: {failure.error.message} [{failure.error.reference}]")
    tags, new_tags = sum(len(row.selected.tags) for row in rows), sum(len(row.new) for row in rows)
    print_text(f"{len(rows)} repositories, {tags} tags chosen, {new_tags} of them in no bundle yet.")


def _some(tags: Sequence[str]) -> str:
    more = f" and {len(tags) - _MOST_SHOWN} more" if len(tags) > _MOST_SHOWN else ""
    return ", ".join(tags[:_MOST_SHOWN]) + more
