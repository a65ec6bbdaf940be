"""NGC's catalogue: which images a project has.

Without a key the public search is asked. With one, the organisation's own listing, which has private images too; a key
that may not see the organisation still finds what is public there.
"""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from transload.export_side.ngc import answers
from transload.export_side.ngc.answers import CatalogImage, Page, TagDetails
from transload.export_side.ngc.api import NgcApi, is_closed
from transload.export_side.ngc.endpoints import NgcEndpoints
from transload.shared import limits
from transload.shared.errors import (
    InvalidConfiguration,
    NotFoundInRegistry,
    NothingSelected,
    RegistryLoginRefused,
    RegistryProtocolError,
    TransloadError,
)
from transload.shared.registry.urls import shown
from transload.shared.workers import Stop

__all__ = ["CatalogImage", "NgcCatalog"]

_PAGE_SIZE = 100
_PROJECT = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?(?:/[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?)*", re.ASCII)
_MOST_NAMED = 12
_NGC = NgcEndpoints()


class NgcCatalog:
    """The catalogue as one visitor sees it. Safe to use from several threads.

    Args:
        api_base: URL of the API.
        auth_base: URL of the token server.
        api_key: None for an anonymous visitor.
        stop: Ends waits.
        ca_cert: Certificates trusted beside the system's.

    Attributes:
        problems: Entries of the wrong shape, named by URL and field.
        notes: What else a person should know.
    """

    def __init__(
        self,
        *,
        api_base: str = _NGC.api,
        auth_base: str = _NGC.auth,
        api_key: str | None = None,
        stop: Stop,
        ca_cert: Path | None = None,
    ) -> None:
        endpoints = NgcEndpoints(api_base.rstrip("/"), auth_base.rstrip("/"))
        self.api = NgcApi(endpoints, api_key, stop=stop, ca_cert=ca_cert)
        self.problems: list[str] = []
        self.notes: list[str] = []
        self._base = endpoints.api

    def close(self) -> None:
        """Close idle connections."""
        self.api.close()

    def images(self, project: str) -> list[CatalogImage]:
        """Every image of a project, by path.

        Args:
            project: An organisation, such as `nvidia`, or `org/team` for one team of it.

        Raises:
            NothingSelected: There is none that this visitor can see.
            RegistryLoginRefused: The key is wrong or has expired.
            RegistryProtocolError: What comes is no catalogue.
            RegistryUnreachable, RegistryBusy, InvalidConfiguration: See there.
        """
        if not _PROJECT.fullmatch(project):
            raise InvalidConfiguration(
                f"Not a project of NGC: {project[:60]!r}.",
                hint="A project is the first part of an image's name: nvidia in nvcr.io/nvidia/pytorch.",
            )
        organisation = project.partition("/")[0]
        found = self._of_members(organisation) if self.api.has_key else self._public(organisation)
        named: dict[str, CatalogImage] = {}
        for image in found:
            if image.path.startswith(f"{project}/"):
                named[image.path] = _joined(named.get(image.path), image)
        if not named:
            raise self._nothing(project, found)
        return [named[path] for path in sorted(named)]

    def tag_details(self, path: str) -> dict[str, TagDetails]:
        """When the tags of a repository were updated and how large they are, as far as its organisation tells.

        Args:
            path: Such as `nvidia/pytorch`.

        Returns:
            Details by tag; nothing for an anonymous visitor, or where the listing cannot be read (then
            `problems` says why).
        """
        if not self.api.has_key:
            return {}
        organisation, *team, name = path.split("/")
        middle = f"team/{'/'.join(team)}/" if team else ""
        url = f"{self._base}/v2/org/{organisation}/{middle}repos/{name}/images"
        try:
            return answers.tag_details(self.api.of_organisation(url, organisation), shown(url), self.problems)
        except TransloadError as error:
            self.problems.append(error.message)
            return {}

    def _of_members(self, organisation: str) -> list[CatalogImage]:
        url = f"{self._base}/v2/org/{organisation}/repos?include-teams=true&include-public=true"

        def page(number: int) -> Page:
            there = f"{url}&page-number={number}" if number else url
            where = f"{shown(url)} (page {number})"
            return answers.org_page(self.api.of_organisation(there, organisation), where)

        try:
            return self._pages(page, url)
        except (RegistryLoginRefused, NotFoundInRegistry) as error:
            if not is_closed(error) and not isinstance(error, NotFoundInRegistry):
                raise
            found = self._public(organisation)
            if not found and is_closed(error):
                raise
            self.notes.append(f"The API key may not list {organisation}; its public images were looked up instead.")
            return found

    def _public(self, organisation: str) -> list[CatalogImage]:
        url = f"{self._base}/v2/search/catalog/resources/CONTAINER"

        def page(number: int) -> Page:
            query = {"query": f"orgName:{organisation}", "page": number, "pageSize": _PAGE_SIZE}
            text = json.dumps(query, separators=(",", ":"))
            where = f"{url} (page {number})"
            return answers.search_page(self.api.public(f"{url}?{urllib.parse.urlencode({'q': text})}"), where)

        return self._pages(page, url)

    def _pages(self, page: Callable[[int], Page], url: str) -> list[CatalogImage]:
        images: list[CatalogImage] = []
        number, page_count = 0, 1
        while number < page_count:
            found = page(number)
            images += found.images
            self.problems += found.problems
            number, page_count = number + 1, found.page_count
            if page_count > limits.MAX_CATALOG_PAGES:
                raise RegistryProtocolError(
                    f"{shown(url)}: {page_count:,} pages are announced; at most {limits.MAX_CATALOG_PAGES:,} are read.",
                    url=shown(url),
                )
        return images

    def _nothing(self, project: str, found: list[CatalogImage]) -> NothingSelected:
        there = sorted({image.path.rpartition("/")[0] for image in found})
        hint = "A project is the first part of an image's name: nvidia in nvcr.io/nvidia/pytorch."
        if there:
            hint = f"There is: {', '.join(there[:_MOST_NAMED])}."
        elif not self.api.has_key:
            hint += " Private ones need an API key: --login 'nvcr.io=$oauthtoken:FILE' or NGC_API_KEY."
        elif names := self._organisations():
            hint = f"The API key belongs to: {', '.join(names[:_MOST_NAMED])}."
        return NothingSelected(f"NGC has no project {project!r} with images for this visitor.", hint=hint)

    def _organisations(self) -> list[str]:
        """What the key belongs to, for a hint; nothing if that cannot be found out."""
        url = f"{self._base}/v2/orgs"
        try:
            return answers.org_names(self.api.of_organisation(url, ""), url)
        except TransloadError:
            return []


def _joined(one: CatalogImage | None, other: CatalogImage) -> CatalogImage:
    """What two entries say of one image, the first going before."""
    if one is None:
        return other
    return replace(
        one,
        display_name=one.display_name or other.display_name,
        description=one.description or other.description,
        license_url=one.license_url or other.license_url,
        latest_tag=one.latest_tag or other.latest_tag,
    )
