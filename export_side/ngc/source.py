"""NGC's catalogue as a source of an export: entries become repositories, with what is known about each."""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType

from transload.export_side.ngc.answers import CatalogImage, TagDetails
from transload.export_side.ngc.catalog import NgcCatalog
from transload.export_side.ngc.endpoints import NgcEndpoints, ngc_api_key
from transload.export_side.ngc.filters import NameFilter
from transload.export_side.tag_dates import config_dates
from transload.manifests.image_list import ListedNgc, ListedRepository
from transload.manifests.tag_rules import rules_of
from transload.shared.errors import NothingSelected
from transload.shared.references import Reference
from transload.shared.registry.client import RegistryClient
from transload.shared.registry.options import RegistryDirectory
from transload.shared.workers import Stop

_MOST_NAMED = 12
_MOST_PROBLEMS = 20


class NgcSource:
    """The catalogue, asked only if a request needs it. Safe to use from several threads.

    Args:
        registries: Logins, and certificates to trust.
        endpoints: Where NGC is.
        stop: Ends the run.

    Attributes:
        about: What the catalogue says, by repository (`nvcr.io/nvidia/pytorch`).
        notes: What a person should know.
    """

    def __init__(self, registries: RegistryDirectory, endpoints: NgcEndpoints, stop: Stop) -> None:
        self.about: dict[str, CatalogImage] = {}
        self.notes: list[str] = []
        self._registries, self._endpoints, self._stop = registries, endpoints, stop
        self._catalog: NgcCatalog | None = None
        self._lock = threading.Lock()
        self._details: dict[str, Mapping[str, TagDetails]] = {}

    def __enter__(self) -> NgcSource:  # noqa: PYI034 - Self is in typing from Python 3.11 on
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._catalog is not None:
            self._catalog.close()

    @property
    def catalog(self) -> NgcCatalog:
        """The catalogue, with the key that there is."""
        with self._lock:
            if self._catalog is None:
                key = ngc_api_key(self._registries, self._endpoints, os.environ)
                ca_cert = self._registries.settings_for(self._endpoints.registry).ca_cert
                self._catalog = NgcCatalog(
                    api_base=self._endpoints.api,
                    auth_base=self._endpoints.auth,
                    api_key=key,
                    stop=self._stop,
                    ca_cert=ca_cert,
                )
            return self._catalog

    def repositories(self, entry: ListedNgc) -> list[ListedRepository]:
        """The repositories that an entry means, with its rules.

        Raises:
            NothingSelected: The project has no image of such a name.
            TransloadError: As `NgcCatalog.images`.
        """
        images = self.catalog.images(entry.project)
        names = NameFilter(entry.images, entry.strict_name_match)
        chosen = [image for image in images if names.matches(image.path)]
        if not chosen:
            raise _no_such_image(entry, [image.path for image in images])
        repositories = []
        for image in chosen:
            reference = Reference.parse(f"{self._endpoints.registry}/{image.path}")
            self.about[reference.repository] = image
            rules = rules_of(entry)
            repositories.append(ListedRepository(reference, platform=entry.platform, **rules))  # type: ignore[arg-type]
        return repositories

    def details(self, repository: Reference) -> Mapping[str, TagDetails]:
        """What NGC's listing says of the tags of a repository; nothing of other registries' ones."""
        if repository.host != self._endpoints.registry:
            return {}
        if repository.path not in self._details:
            self._details[repository.path] = self.catalog.tag_details(repository.path)
        return self._details[repository.path]

    def dates(self, client: RegistryClient, repository: Reference, tags: Sequence[str]) -> Mapping[str, datetime]:
        """When tags were updated, as NGC's listing says; of those that it does not date, when they were created."""
        details = self.details(repository)
        known = {tag: details[tag].updated for tag in tags if tag in details}
        listed = {tag: updated for tag, updated in known.items() if updated is not None}
        rest = [tag for tag in tags if tag not in listed]
        created = config_dates(client, repository, rest, stop=self._stop) if rest else {}
        if listed:
            self.notes.append(
                f"{repository.repository}: since-days counts from NGC's updatedDate for {len(listed)} tags."
            )
        if rest:
            self.notes.append(
                f"{repository.repository}: since-days counts from the image's own `created` for {len(created)} tags"
                + (f"; {len(rest) - len(created)} have none." if len(rest) > len(created) else ".")
            )
        return {**listed, **created}

    def take_notes(self) -> list[str]:
        """Everything that a person should know so far, the catalogue's problems first; each is given once."""
        catalog = self._catalog
        problems = list(dict.fromkeys([*catalog.problems])) if catalog else []
        notes = [f"NGC's catalogue: {problem}" for problem in problems[:_MOST_PROBLEMS]]
        if len(problems) > _MOST_PROBLEMS:
            notes.append(f"NGC's catalogue: {len(problems) - _MOST_PROBLEMS} further entries of the wrong shape.")
        notes += [*(catalog.notes if catalog else []), *self.notes]
        if catalog:
            catalog.problems.clear()
            catalog.notes.clear()
        self.notes.clear()
        return notes


def _no_such_image(entry: ListedNgc, paths: Sequence[str]) -> NothingSelected:
    names = [path.partition("/")[2] for path in paths]
    near = [match for image in entry.images for match in difflib.get_close_matches(image, names, 3, 0.5)]
    near += [name for name in names if any(image.lower() in name for image in entry.images)]
    shown = list(dict.fromkeys(near)) or names
    more = f" and {len(names) - _MOST_NAMED} more" if not near and len(names) > _MOST_NAMED else ""
    return NothingSelected(
        f"NGC's project {entry.project} has no image called {' or '.join(entry.images)}.",
        hint=f"There is: {', '.join(shown[:_MOST_NAMED])}{more}. --no-strict-name-match also takes a part of a name.",
        project=entry.project,
    )
