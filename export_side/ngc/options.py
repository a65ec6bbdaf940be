"""The options that choose images by rules, on NGC or any registry, shared by `export` and `ngc list`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import click

from transload.export_side.ngc.endpoints import NgcEndpoints
from transload.manifests.image_list import ListedNgc, ListedRepository, ListEntry
from transload.manifests.tag_rules import TagRules, rules_of
from transload.shared.errors import InvalidConfiguration
from transload.shared.option_types import WholeNumber
from transload.shared.references import Reference

DEFAULT_PROJECT = "nvidia"
_NGC = NgcEndpoints()

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Choice:
    """What the options choose.

    Args:
        projects: NGC's projects; none unless they are asked for.
        images: Which of their images; all without.
        strict: A name is the whole one.
        repositories: Repositories of any registry.
        rules: Which tags of all these.
        endpoints: Where NGC is.
    """

    projects: tuple[str, ...]
    images: tuple[str, ...]
    strict: bool
    repositories: tuple[str, ...]
    rules: TagRules
    endpoints: NgcEndpoints

    def entries(self, *, from_ngc: bool) -> list[ListEntry]:
        """The choice as entries of an image list.

        Args:
            from_ngc: NGC's catalogue is to be asked, for `nvidia` if no project is named.

        Raises:
            InvalidConfiguration: An option that has nothing to be applied to.
        """
        rules = rules_of(self.rules)
        entries: list[ListEntry] = [_repository(text, self.rules) for text in self.repositories]
        if from_ngc:
            projects = dict.fromkeys(self.projects or (DEFAULT_PROJECT,))
            entries += [ListedNgc(one, self.images, self.strict, **rules) for one in projects]  # type: ignore[arg-type]
        elif self.projects or self.images:
            raise InvalidConfiguration(
                "--project and --image choose from NGC's catalogue.", hint="Add --ngc, or name a --repository instead."
            )
        if self.rules.has_rules and not entries:
            raise InvalidConfiguration(
                "Rules about tags (--min-version, --keep-last and so on) have nothing to be applied to.",
                hint="Add --ngc for NGC's catalogue, or --repository HOST/PATH. Images that are named with a tag, and "
                "those of an image list, have their own.",
            )
        return entries


def choice_options(command: Callable[..., Result]) -> Callable[..., Result]:
    """Add the options to a click command.

    Args:
        command: Called with one more keyword argument, `choice`.
    """

    @functools.wraps(command)
    def with_choice(
        *args: object,
        project: tuple[str, ...],
        image: tuple[str, ...],
        strict_name_match: bool,
        repository: tuple[str, ...],
        min_version: str | None,
        py_version: str | None,
        keep_last: int | None,
        since_days: int | None,
        exclude: tuple[str, ...],
        ngc_api_url: str,
        ngc_auth_url: str,
        ngc_registry: str,
        **options: object,
    ) -> Result:
        rules = TagRules(
            min_version=min_version,
            py_version=py_version,
            keep_last=keep_last,
            since_days=since_days,
            exclude=exclude,
        )
        endpoints = NgcEndpoints(ngc_api_url.rstrip("/"), ngc_auth_url.rstrip("/"), ngc_registry)
        choice = Choice(project, image, strict_name_match, repository, rules, endpoints)
        return command(*args, choice=choice, **options)

    for decorate in reversed(_OPTIONS):
        with_choice = decorate(with_choice)
    return with_choice


_OPTIONS = (
    click.option("--project", multiple=True, metavar="NAME", show_default=DEFAULT_PROJECT,
                 help="Project of NGC's catalogue: ORG or ORG/TEAM; may be repeated."),
    click.option("--image", multiple=True, metavar="NAME",
                 help="Image of the project, such as pytorch or team/model; may be repeated; all without."),
    click.option("--strict-name-match/--no-strict-name-match", default=True,
                 help="Whether --image is the whole name, or a part of it is enough."),
    click.option("--repository", multiple=True, metavar="HOST/PATH",
                 help="Take the tags of this repository, of any registry, that the rules let pass; may be repeated."),
    click.option("--min-version", metavar="VERSION",
                 help="Oldest version, such as 24.01; tags that name no version stay out then."),
    click.option("--py-version", metavar="TEXT", help="Text that the tag must contain, such as py3."),
    click.option("--keep-last", metavar="N", type=WholeNumber(1, 999_999),
                 help="The newest N tags of each repository, by version."),
    click.option("--since-days", metavar="N", type=WholeNumber(1, 999_999),
                 help="Only what was updated in the last N days, by NGC's listing (with a key) or else the "
                      "image's own date."),
    click.option("--exclude", multiple=True, metavar="REGEX",
                 help="Leave tags out in which this is found; may be repeated."),
    click.option("--ngc-api-url", metavar="URL", default=_NGC.api, envvar="TRANSLOAD_NGC_API", show_envvar=True,
                 help="Where NGC's catalogue is."),
    click.option("--ngc-auth-url", metavar="URL", default=_NGC.auth, envvar="TRANSLOAD_NGC_AUTH", show_envvar=True,
                 help="Where NGC's token server is."),
    click.option("--ngc-registry", metavar="HOST", default=_NGC.registry, envvar="TRANSLOAD_NGC_REGISTRY",
                 show_envvar=True, help="NGC's registry."),
)  # fmt: skip


def _repository(text: str, rules: TagRules) -> ListedRepository:
    if "@" in text or ":" in text.rpartition("/")[2]:
        raise InvalidConfiguration(
            f"--repository {text[:300]} has a tag or digest.", hint="Name it without --repository."
        )
    return ListedRepository(Reference.parse(text), **rules_of(rules))  # type: ignore[arg-type]
