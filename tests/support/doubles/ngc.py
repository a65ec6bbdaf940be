"""NGC on loopback: catalogue API, token server and registry, three servers that behave as NVIDIA's do.

    with running_ngc() as ngc:
        ngc.publish(image("any/name:1", [...]), "nvidia/pytorch", "24.01-py3", description="...")
        ngc.keys["nvapi-abc"] = {"nvidia"}
        ...ngc.environment...   # the variables that lead transload here

Its quirks are NGC's: the registry's challenge names no service and may have its scope, commas and all, in the quoted
realm; a dead token is answered with another realm, where an anonymous visitor is stuck; keys are Basic passwords of
`$oauthtoken` at token servers, and those that begin with `nvapi-` Bearer tokens at the API. Faults (502 pages, 429)
are added to `api.faults`, `auth.faults` and `registry.faults`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

from doubles.http_doubles import HttpDouble, serving
from doubles.image_factory import ImageDouble
from doubles.registry_faults import Reply, Request
from doubles.scripted_registry import ScriptedRegistry

_REPOSITORY = re.compile(r"/v2/(?P<path>.+?)/(?:manifests|blobs|tags)(?:/.*)?")
_TAGS = re.compile(r"/v2/org/(?P<org>[^/]+)/(?:team/(?P<team>.+)/)?repos/(?P<name>[^/]+)/images")
_SEARCH = "/v2/search/catalog/resources/CONTAINER"


@dataclass
class Entry:
    """One repository of the catalogue.

    Attributes:
        path: `org/name` or `org/team/name`.
        is_public: Without a key it can be found and pulled.
        tags: Tag -> when it was updated, as the API writes it, and its size.
    """

    path: str
    display_name: str = ""
    description: str | None = ""
    license_url: str = ""
    is_public: bool = True
    tags: dict[str, tuple[object, object]] = field(default_factory=dict)

    def resource(self) -> dict[str, object]:
        """How the search lists it."""
        attributes = [{"key": "latestTag", "value": next(iter(self.tags), "")}]
        if self.license_url:
            attributes.append({"key": "licenseUrl", "value": self.license_url})
        return {"resourceId": self.path, "displayName": self.display_name, "description": self.description,
                "attributes": attributes}  # fmt: skip

    def repository(self) -> dict[str, object]:
        """How its organisation lists it."""
        namespace, _, name = self.path.rpartition("/")
        return {"namespace": namespace, "name": name, "description": self.description, "isPublic": self.is_public}


@dataclass
class NgcAuth(HttpDouble):
    """authn.nvidia.com."""

    ngc: NgcDouble = field(default=None, repr=False)  # type: ignore[assignment]

    def reply(self, request: Request) -> Reply:
        if request.path != "/token":
            return _json(404, {"message": "not found"})
        key = _basic_key(request)
        if key not in self.ngc.keys:
            return _json(401, {"message": "Invalid credentials"})
        query = urllib.parse.parse_qs(request.query)
        scope = query.get("scope", [""])[0]
        organisation = scope.removeprefix("group/ngc:")
        if query.get("service") == ["ngc"] and organisation and organisation not in self.ngc.keys[key]:
            return _json(403, {"message": f"no access to {organisation}"})
        return _json(200, {"token": self.ngc.new_token(key), "expires_in": 300})


@dataclass
class NgcApi(HttpDouble):
    """api.ngc.nvidia.com."""

    ngc: NgcDouble = field(default=None, repr=False)  # type: ignore[assignment]

    def reply(self, request: Request) -> Reply:
        if request.path == _SEARCH:
            return self._search(request)
        key = self.ngc.key_of(request.headers.get("authorization", ""))
        if key is None:
            return _json(401, {"requestStatus": {"statusCode": "UNAUTHORIZED"}, "message": "no or bad token"})
        if request.path == "/v2/orgs":
            return _json(200, {"organizations": [{"name": name} for name in sorted(self.ngc.keys[key])]})
        organisation = request.path.split("/")[3] if request.path.startswith("/v2/org/") else ""
        if organisation not in self.ngc.keys[key]:
            return _json(403, {"message": "Access denied"})
        if request.path == f"/v2/org/{organisation}/repos":
            return self._repositories(organisation, request)
        route = _TAGS.fullmatch(request.path)
        path = "/".join(part for part in (route["org"], route["team"], route["name"]) if part) if route else ""
        entry = self.ngc.entries.get(path)
        if entry is None:
            return _json(404, {"message": "Not found"})
        images = [{"tag": tag, "updatedDate": when, "size": size} for tag, (when, size) in entry.tags.items()]
        return _json(200, {"images": images, "requestStatus": {"statusCode": "SUCCESS"}})

    def _search(self, request: Request) -> Reply:
        query = json.loads(urllib.parse.parse_qs(request.query)["q"][0])
        organisation = query["query"].removeprefix("orgName:")
        resources = [
            entry.resource()
            for entry in self.ngc.entries.values()
            if entry.is_public and entry.path.startswith(f"{organisation}/")
        ] + list(self.ngc.odd_resources)
        page, page_count = _page(resources, query["page"], min(query["pageSize"], self.ngc.page_size))
        results = [{"groupValue": "CONTAINER", "resources": page}] if page else []
        return _json(200, {"resultPageTotal": page_count, "results": results})

    def _repositories(self, organisation: str, request: Request) -> Reply:
        number = int(urllib.parse.parse_qs(request.query).get("page-number", ["0"])[0])
        repositories = [
            entry.repository() for entry in self.ngc.entries.values() if entry.path.startswith(f"{organisation}/")
        ] + list(self.ngc.odd_repositories)
        page, page_count = _page(repositories, number, self.ngc.page_size)
        return _json(200, {"repositories": page, "paginationInfo": {"index": number, "totalPages": page_count}})


@dataclass
class NgcRegistry(ScriptedRegistry):
    """nvcr.io.

    Attributes:
        has_scope_in_realm: The challenge's quoted realm carries `?scope=repository:...:pull,push`.
    """

    ngc: NgcDouble = field(default=None, repr=False)  # type: ignore[assignment]
    has_scope_in_realm: bool = True

    def reply(self, request: Request) -> Reply:
        if request.path == "/proxy_auth":
            return self._proxy_auth(request)
        return super().reply(request)

    def _proxy_auth(self, request: Request) -> Reply:
        query = urllib.parse.parse_qs(request.query)
        if "service" in query or "Authorization" in query:
            return _json(400, {"errors": [{"code": "UNSUPPORTED", "message": "no service here"}]})
        key = _basic_key(request)
        if request.headers.get("authorization") and key not in self.ngc.keys:
            return _json(401, {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]})
        paths = [scope.split(":")[1] for text in query.get("scope", []) for scope in text.split(" ")]
        if not all(self.ngc.may_pull(key, path) for path in paths):
            return _json(401, {"errors": [{"code": "UNAUTHORIZED", "message": "access denied"}]})
        return _json(200, {"token": self.ngc.new_token(key or "", paths)})

    def _refusal(self, request: Request) -> Reply | None:
        route = _REPOSITORY.fullmatch(request.path)
        path = route["path"] if route else ""
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        grant = self.ngc.tokens.get(token)
        if grant and grant.use() and (not path or path in grant.paths):
            return None
        if token:  # the trap: another realm, where an anonymous visitor is stuck
            challenge = f'Bearer realm="{self.ngc.auth.url}/token",service="ngc",scope="repository:{path}:pull"'
        elif self.has_scope_in_realm and path:
            challenge = f'Bearer realm="{self.url}/proxy_auth?scope=repository:{path}:pull,push"'
        else:
            challenge = f'Bearer realm="{self.url}/proxy_auth"'
        body = {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}
        return _json(401, body).having(www_authenticate=challenge)


@dataclass
class Grant:
    """A token that was given out."""

    key: str
    paths: list[str]
    ends_at: float
    uses: float

    def use(self) -> bool:
        """Whether it is still good; counts."""
        self.uses -= 1
        return self.uses >= 0 and time.monotonic() < self.ends_at


@dataclass
class NgcDouble:
    """The three services together.

    Attributes:
        entries: The catalogue by path.
        keys: API key -> organisations that it belongs to.
        page_size: Entries on one page of the catalogue.
        token_seconds: How long a token is good.
        token_uses: How often a token is good.
        odd_resources: Further entries of the search, of whatever shape.
        odd_repositories: Further entries of an organisation's list, of whatever shape.
    """

    api: NgcApi = field(default_factory=NgcApi)
    auth: NgcAuth = field(default_factory=NgcAuth)
    registry: NgcRegistry = field(default_factory=NgcRegistry)
    entries: dict[str, Entry] = field(default_factory=dict)
    keys: dict[str, set[str]] = field(default_factory=dict)
    page_size: int = 100
    token_seconds: float = 300.0
    token_uses: float = float("inf")
    odd_resources: list[object] = field(default_factory=list)
    odd_repositories: list[object] = field(default_factory=list)
    tokens: dict[str, Grant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.api.ngc = self.auth.ngc = self.registry.ngc = self

    def publish(
        self, image: ImageDouble, path: str, tag: str, *, updated: object = "2024-01-15T10:00:00.000Z", **about: object
    ) -> str:
        """Put an image into the registry and the catalogue.

        Args:
            image: The image.
            path: `org/name` or `org/team/name`.
            tag: Its tag.
            updated: What the organisation's listing says of the tag.
            about: Attributes of its `Entry`.

        Returns:
            Its reference here.
        """
        entry = self.entries.setdefault(path, Entry(path))
        for name, value in about.items():
            setattr(entry, name, value)
        entry.tags[tag] = (updated, sum(len(raw) for raw in image.blobs.values()))
        return self.registry.put(image, path, tag)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead transload here."""
        return {
            "TRANSLOAD_NGC_API": self.api.url,
            "TRANSLOAD_NGC_AUTH": self.auth.url,
            "TRANSLOAD_NGC_REGISTRY": self.registry.host,
        }

    def may_pull(self, key: str | None, path: str) -> bool:
        """Whether a visitor may pull a repository."""
        entry = self.entries.get(path)
        organisations = self.keys.get(key or "", set())
        return (entry is not None and entry.is_public) or path.partition("/")[0] in organisations

    def new_token(self, key: str, paths: list[str] | None = None) -> str:
        """A token for a visitor."""
        token = f"token-{uuid.uuid4().hex}"
        self.tokens[token] = Grant(key, paths or [], time.monotonic() + self.token_seconds, self.token_uses)
        return token

    def key_of(self, authorization: str) -> str | None:
        """Whose Authorization header of the API this is."""
        bearer = authorization.removeprefix("Bearer ")
        if bearer.startswith("nvapi-"):
            return bearer if bearer in self.keys else None
        grant = self.tokens.get(bearer)
        return grant.key if grant and grant.key in self.keys and grant.use() else None


@contextlib.contextmanager
def running_ngc(**options: object) -> Iterator[NgcDouble]:
    """Run the three services in this process.

    Args:
        options: Attributes of `NgcDouble`.
    """
    ngc = NgcDouble(**options)  # type: ignore[arg-type]
    with serving(ngc.api), serving(ngc.auth), serving(ngc.registry):
        yield ngc


def _basic_key(request: Request) -> str | None:
    header = request.headers.get("authorization", "")
    if not header.startswith("Basic "):
        return None
    user, _, key = base64.b64decode(header[6:]).decode("utf-8", "replace").partition(":")
    return key if user == "$oauthtoken" else None


def _page(entries: list[object] | list[dict[str, object]], number: int, size: int) -> tuple[list[object], int]:
    return list(entries[number * size : (number + 1) * size]), -(-len(entries) // size)


def _json(status: int, value: object) -> Reply:
    return Reply(status, body=json.dumps(value).encode()).having(content_type="application/json")
