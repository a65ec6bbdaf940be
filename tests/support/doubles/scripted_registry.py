"""A registry in pure Python: pull and push, correct by default, wrong on request (`registry_faults`).

    with scripted_registry() as registry:
        registry.put(image, "team/name", "1.0")
        registry.faults.append(Fault("GET", "/blobs/", cut_after(1000)))
        ...
        registry.requests   # everything that was asked

It holds everything in memory. `make demo` uses it, too, as a registry for machines that have none.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from doubles.certificates import Certificates
from doubles.http_doubles import HttpDouble, serving
from doubles.image_factory import ImageDouble
from doubles.registry_faults import Reply, Request

_ROUTE = re.compile(r"/v2/(?P<path>.+?)/(?P<kind>manifests|blobs/uploads|blobs|tags)/(?P<rest>.*)")


@dataclass
class Repository:
    """What one repository holds.

    Attributes:
        manifests: Digest -> media type and bytes.
        tags: Tag -> digest.
        blobs: Digest -> bytes.
    """

    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)


@dataclass
class ScriptedRegistry(HttpDouble):
    """A registry that runs.

    Attributes:
        users: User names and passwords; empty lets everybody do everything.
        wants_tokens: Bearer tokens of its own `/token` instead of Basic.
        challenges: The WWW-Authenticate headers; made from the above when empty.
        token_uses: After so many uses a token is dead; None never.
        page_size: Tags on one page; None for all.
        is_strict_about_accept: A manifest whose media type the client does not accept is not there.
        repositories: What it holds.
        tokens: Token -> uses left.
        put_order: Manifests in the order in which they came, by digest or tag.
    """

    users: Mapping[str, str] = field(default_factory=dict)
    wants_tokens: bool = False
    challenges: tuple[str, ...] = ()
    token_uses: int | None = None
    page_size: int | None = None
    is_strict_about_accept: bool = False
    repositories: dict[str, Repository] = field(default_factory=dict)
    tokens: dict[str, float] = field(default_factory=dict)
    put_order: list[str] = field(default_factory=list)
    _uploads: dict[str, bytearray] = field(default_factory=dict)

    def put(self, image: ImageDouble, path: str | None = None, tag: str | None = None) -> str:
        """Store an image with all its blobs.

        Returns:
            Its reference here, `host/path:tag`.
        """
        name = image.image.name
        path, tag = path or name.path, tag or name.tag or "latest"
        repository = self._repository(path)
        documents = {str(document.digest): document for document in image.image.documents}
        for digest, raw in image.blobs.items():
            if str(digest) not in documents:
                repository.blobs[str(digest)] = raw
        for text, document in documents.items():
            repository.manifests[text] = (document.media_type, document.raw)
        repository.tags[tag] = str(image.image.digest)
        return f"{self.host}/{path}:{tag}"

    def reply(self, request: Request) -> Reply:
        """The correct reply to a request."""
        with self.lock:
            if request.path == "/token":
                return self._token(request)
            refusal = self._refusal(request)
            if refusal:
                return refusal
            if request.path in ("/v2", "/v2/"):
                return _json(200, {})
            route = _ROUTE.fullmatch(request.path)
            if route is None:
                return _error(404, "NOT_FOUND")
            path, rest = route["path"], route["rest"]
            match route["kind"], request.method:
                case "manifests", "GET" | "HEAD":
                    return self._get_manifest(path, rest, request)
                case "manifests", "PUT":
                    return self._put_manifest(path, rest, request)
                case "blobs", "GET" | "HEAD":
                    return self._get_blob(path, rest, request)
                case "tags", "GET":
                    return self._list_tags(path, request)
                case "blobs/uploads", "POST":
                    return self._begin_upload(path, request)
                case "blobs/uploads", "PATCH" | "PUT" | "DELETE":
                    return self._continue_upload(path, rest, request)
            return _error(405, "UNSUPPORTED")

    # --- logins ---

    def _refusal(self, request: Request) -> Reply | None:
        authorization = request.headers.get("authorization", "")
        if self.wants_tokens:
            token = authorization.removeprefix("Bearer ")
            uses = self.tokens.get(token, 0)
            if uses > 0:
                self.tokens[token] = uses - 1
                return None
        elif not self.users or self._user(authorization):
            return None
        bearer = f'Bearer realm="{self.url}/token",service="scripted"'
        challenges = self.challenges or ((bearer,) if self.wants_tokens else ('Basic realm="scripted"',))
        refused = _error(401, "UNAUTHORIZED", "authentication required")
        return replace(refused, headers=(*refused.headers, *(("WWW-Authenticate", text) for text in challenges)))

    def _user(self, authorization: str) -> str | None:
        if not authorization.startswith("Basic "):
            return None
        user, _, password = base64.b64decode(authorization[6:]).decode("utf-8", "replace").partition(":")
        return user if self.users.get(user) == password else None

    def _token(self, request: Request) -> Reply:
        if self.users and not self._user(request.headers.get("authorization", "")):
            return _error(401, "UNAUTHORIZED", "wrong user or password")
        return self.new_token()

    def new_token(self) -> Reply:
        """What a token server answers to somebody who may have a token."""
        token = f"token-{uuid.uuid4().hex}"
        self.tokens[token] = float("inf") if self.token_uses is None else self.token_uses
        return _json(200, {"token": token, "expires_in": 300})

    # --- reading ---

    def _get_manifest(self, path: str, version: str, request: Request) -> Reply:
        repository = self.repositories.get(path)
        if repository is None:
            return _error(404, "NAME_UNKNOWN", "repository name not known to registry")
        digest = repository.tags.get(version, version)
        if digest not in repository.manifests:
            return _error(404, "MANIFEST_UNKNOWN", "manifest unknown")
        media_type, raw = repository.manifests[digest]
        if self.is_strict_about_accept and media_type not in request.headers.get("accept", ""):
            return _error(404, "MANIFEST_UNKNOWN", "no manifest of an accepted type")
        return Reply(200, body=raw).having(content_type=media_type, docker_content_digest=digest)

    def _get_blob(self, path: str, digest: str, request: Request) -> Reply:
        raw = self._repository(path).blobs.get(digest) if path in self.repositories else None
        if raw is None:
            return _error(404, "BLOB_UNKNOWN", "blob unknown to registry")
        headers = {"content_type": "application/octet-stream", "docker_content_digest": digest}
        wanted = re.fullmatch(r"bytes=([0-9]+)-([0-9]*)", request.headers.get("range", ""))
        if not wanted:
            return Reply(200, body=raw).having(**headers)
        first, last = int(wanted[1]), int(wanted[2] or len(raw) - 1)
        if first >= len(raw):
            return _error(416, "RANGE_INVALID").having(content_range=f"bytes */{len(raw)}")
        headers["content_range"] = f"bytes {first}-{last}/{len(raw)}"
        return Reply(206, body=raw[first : last + 1]).having(**headers)

    def _list_tags(self, path: str, request: Request) -> Reply:
        if path not in self.repositories:
            return _error(404, "NAME_UNKNOWN", "repository name not known to registry")
        tags = sorted(self.repositories[path].tags)
        cursor = urllib.parse.parse_qs(request.query).get("cursor", [""])[0]
        start = int(base64.b64decode(cursor)) if cursor else 0
        end = len(tags) if self.page_size is None else start + self.page_size
        page = _json(200, {"name": path, "tags": tags[start:end]})
        if end >= len(tags):
            return page
        cursor = urllib.parse.quote(base64.b64encode(str(end).encode()).decode(), safe="")
        return page.having(link=f'</v2/{path}/tags/list?cursor={cursor}>; rel="next"')

    # --- writing ---

    def _begin_upload(self, path: str, request: Request) -> Reply:
        query = urllib.parse.parse_qs(request.query)
        digest, source = query.get("mount", [""])[0], query.get("from", [""])[0]
        if digest and source in self.repositories and digest in self.repositories[source].blobs:
            self._repository(path).blobs[digest] = self.repositories[source].blobs[digest]
            return Reply(201).having(location=f"/v2/{path}/blobs/{digest}", docker_content_digest=digest)
        name = uuid.uuid4().hex
        self._uploads[name] = bytearray()
        return self._upload_state(path, name)

    def _continue_upload(self, path: str, name: str, request: Request) -> Reply:
        query = urllib.parse.parse_qs(request.query)
        received = self._uploads.get(name)
        if received is None or query.get("_state") != [f"a+b={len(received)}"]:
            return _error(404, "BLOB_UPLOAD_UNKNOWN", "upload or its state unknown")
        if request.method == "DELETE":
            del self._uploads[name]
            return Reply(204)
        begins = re.match(r"([0-9]+)-", request.headers.get("content-range", ""))
        if begins and int(begins[1]) != len(received):
            return _error(416, "RANGE_INVALID")
        received += request.body
        if request.method == "PATCH":
            return self._upload_state(path, name)
        raw = bytes(self._uploads.pop(name))
        digest = query.get("digest", [""])[0]
        if digest != _digest_like(digest, raw):
            return _error(400, "DIGEST_INVALID", "provided digest did not match uploaded content")
        self._repository(path).blobs[digest] = raw
        return Reply(201).having(location=f"/v2/{path}/blobs/{digest}", docker_content_digest=digest)

    def _upload_state(self, path: str, name: str) -> Reply:
        size = len(self._uploads[name])
        state = urllib.parse.quote(f"a+b={size}", safe="")
        location = f"/v2/{path}/blobs/uploads/{name}?_state={state}"
        return Reply(202).having(location=location, range=f"0-{max(size - 1, 0)}", docker_upload_uuid=name)

    def _put_manifest(self, path: str, version: str, request: Request) -> Reply:
        repository, raw = self._repository(path), request.body
        digest = _digest_like(version, raw)
        if ":" in version and version != digest:
            return _error(400, "DIGEST_INVALID", "provided digest did not match uploaded content")
        try:
            fields = json.loads(raw)
        except ValueError:
            return _error(400, "MANIFEST_INVALID", "not JSON")
        blobs = [fields["config"], *fields["layers"]] if "config" in fields else []
        missing = [one["digest"] for one in blobs if one["digest"] not in repository.blobs]
        missing += [one["digest"] for one in fields.get("manifests", []) if one["digest"] not in repository.manifests]
        if missing:
            errors = [{"code": "MANIFEST_BLOB_UNKNOWN", "message": "blob unknown to registry",
                       "detail": {"digest": text}} for text in missing]  # fmt: skip
            return _json(400, {"errors": errors})
        repository.manifests[digest] = (request.headers.get("content-type", ""), raw)
        if ":" not in version:
            repository.tags[version] = digest
        self.put_order.append(version)
        return Reply(201).having(location=f"/v2/{path}/manifests/{digest}", docker_content_digest=digest)

    def _repository(self, path: str) -> Repository:
        return self.repositories.setdefault(path, Repository())


@contextlib.contextmanager
def scripted_registry(
    *, certificates: Certificates | None = None, port: int = 0, **options: Any
) -> Iterator[ScriptedRegistry]:
    """Run a scripted registry in this process.

    Args:
        certificates: For https.
        port: 0 for a free one.
        options: Attributes of `ScriptedRegistry`.
    """
    registry = ScriptedRegistry(**options)
    with serving(registry, certificates=certificates, port=port):
        yield registry


def _digest_like(text: str, raw: bytes) -> str:
    algorithm = "sha512" if text.startswith("sha512:") else "sha256"
    return f"{algorithm}:{hashlib.new(algorithm, raw).hexdigest()}"


def _json(status: int, value: object) -> Reply:
    return Reply(status, body=json.dumps(value).encode()).having(content_type="application/json")


def _error(status: int, code: str, message: str = "") -> Reply:
    return _json(status, {"errors": [{"code": code, "message": message or code.lower().replace("_", " ")}]})
