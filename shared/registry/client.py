"""Reading from a registry: manifests, blobs, tags (OCI distribution-spec v1.1)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import (
    ContentMismatch,
    InvalidReference,
    NotFoundInRegistry,
    RegistryProtocolError,
    RegistryUnreachable,
    TransloadError,
)
from transload.shared.image import ACCEPTED_TYPES, SCHEMA_1_TYPES, Descriptor, ManifestDocument, parse_document
from transload.shared.registry.answer import Answer, BrokenOff, is_html
from transload.shared.registry.authorization import AuthorizedTransport, Scopes
from transload.shared.registry.blob_reading import BlobReading
from transload.shared.registry.settings import RegistrySettings
from transload.shared.registry.tag_pages import next_page, tags_of
from transload.shared.registry.transport import Transport
from transload.shared.registry.urls import shown
from transload.shared.workers import Stop

_ACCEPT = ", ".join((*ACCEPTED_TYPES, *(f"{kind};q=0.1" for kind in SCHEMA_1_TYPES)))
"""Schema 1 too, so that an old image is recognised as one and not taken for a missing one."""

_UNTYPED = ("", "application/json", "text/plain", "application/octet-stream")
Read = TypeVar("Read")


class RegistryClient:
    """One registry, read. Safe to use from several threads.

    Args:
        settings: The registry.
        stop: Ends waits and transfers.
    """

    def __init__(self, settings: RegistrySettings, *, stop: Stop) -> None:
        self.host = settings.host
        self.transport = Transport(settings, stop)
        self.authorized = AuthorizedTransport(self.transport)

    @property
    def requests_made(self) -> int:
        """How many HTTP requests went out, to this registry and to where it points."""
        return self.transport.requests_made

    def close(self) -> None:
        """Close idle connections."""
        self.transport.close()

    def url(self, path: str, rest: str) -> str:
        """The URL of something in a repository.

        Args:
            path: The repository.
            rest: Such as `manifests/latest`.
        """
        return f"{self.transport.base_url}/v2/{path}/{rest}"

    def get_manifest(self, path: str, version: str) -> ManifestDocument:
        """Fetch a manifest or index and compare it with its digest.

        Args:
            path: The repository.
            version: A tag, or a digest's text.

        Raises:
            NotFoundInRegistry: No such repository, tag or digest.
            ContentMismatch: The bytes have another digest than the one asked for or promised.
            UnsupportedImage: Schema 1.
            RegistryLoginRefused, RegistryUnreachable, RegistryBusy, RegistryProtocolError, InsecureRefused: See there.
        """
        what = f"{self.host}/{path}{_separator(version)}{version}"
        answer, raw = self._get_whole(
            path, self.url(path, f"manifests/{version}"), what, limits.MAX_MANIFEST_BYTES, {"Accept": _ACCEPT}
        )
        media_type = self._media_type(answer, raw)
        if media_type in SCHEMA_1_TYPES:  # its digest is not that of the bytes as served
            parse_document(ManifestDocument(raw, media_type, Digest.of(raw)))
        digest = self._manifest_digest(answer, raw, version, what)
        return ManifestDocument(raw, media_type, digest)

    def head_manifest(self, path: str, version: str) -> Digest | None:
        """The digest of a manifest, without fetching it where the registry tells it.

        Args:
            path: The repository.
            version: A tag, or a digest's text.

        Returns:
            The digest; None if there is no such manifest.

        Raises:
            TransloadError: As `get_manifest`.
        """
        url = self.url(path, f"manifests/{version}")
        answer = self.authorized.send(pull_scopes(path), "HEAD", url, headers={"Accept": _ACCEPT})
        answer.close()
        if answer.status == 404:
            return None
        if answer.status == 200 and (promised := self._promised_digest(answer)):
            return promised
        try:  # no digest in the header, or HEAD is not for this registry: ask in full
            return self.get_manifest(path, version).digest
        except NotFoundInRegistry:
            return None

    def get_small_blob(self, path: str, descriptor: Descriptor, most_bytes: int) -> bytes:
        """Fetch a blob into memory and compare it with its digest.

        Args:
            path: The repository.
            descriptor: The blob.
            most_bytes: Largest size accepted.

        Raises:
            ContentMismatch: The bytes have another digest or size.
            RegistryProtocolError: It is larger than `most_bytes`.
            TransloadError: As `get_manifest`.
        """
        if descriptor.size_bytes > most_bytes:
            raise RegistryProtocolError(
                f"Blob {descriptor.digest} of {self.host}/{path} has {descriptor.size_bytes:,} bytes; "
                f"at most {most_bytes:,} are accepted for {descriptor.media_type[:100]}."
            )
        raw = b"".join(self.blob_pieces(path, descriptor))
        if not descriptor.digest.matches(raw):
            raise ContentMismatch(
                f"Blob {descriptor.digest} of {self.host}/{path} has another digest: {Digest.of(raw)}.",
                digest=str(descriptor.digest), host=self.host,
            )  # fmt: skip
        return raw

    def blob_pieces(self, path: str, descriptor: Descriptor, start: int = 0) -> Iterator[bytes]:
        """A blob's bytes as they are at the registry, not hashed; broken connections are resumed.

        Args:
            path: The repository.
            descriptor: The blob.
            start: Where to begin.

        Yields:
            Pieces of at most 1 MiB, from `start` to exactly the blob's size.

        Raises:
            ContentMismatch: The registry's blob has another size.
            TransloadError: As `get_manifest`.
        """

        def begin(headers: Mapping[str, str]) -> Answer:
            return self.get_blob(path, descriptor.digest, headers)

        return BlobReading(self.transport, begin, f"{self.host}/{path}", descriptor, start).pieces()

    def get_blob(self, path: str, digest: Digest, headers: Mapping[str, str]) -> Answer:
        """Begin to read a blob; 200, 206 and 416 are answers, everything else is an error."""
        answer = self.authorized.send(pull_scopes(path), "GET", self.url(path, f"blobs/{digest}"), headers=headers)
        if answer.status in (200, 206, 416):
            return answer
        raise self.error_for(answer, f"blob {digest} of {self.host}/{path}")

    def has_blob(self, path: str, descriptor: Descriptor) -> bool:
        """Whether the repository has a blob of this digest and size.

        Args:
            path: The repository.
            descriptor: The blob.

        Raises:
            TransloadError: As `get_manifest`.
        """
        url = self.url(path, f"blobs/{descriptor.digest}")
        answer = self.authorized.send(pull_scopes(path), "HEAD", url)
        answer.close()
        if answer.status == 200:
            return answer.content_length in (None, descriptor.size_bytes)
        if answer.status == 404 or answer.has_left_origin:  # a URL signed for GET refuses HEAD: not known to be there
            return False
        raise self.error_for(answer, f"blob {descriptor.digest} of {self.host}/{path}")

    def list_tags(self, path: str) -> list[str]:
        """All tags of a repository, in the registry's order, each once.

        Args:
            path: The repository.

        Raises:
            NotFoundInRegistry: No such repository.
            RegistryProtocolError: Pages that go in a circle or never end, or are not a list of tags.
            TransloadError: As `get_manifest`.
        """
        what = f"the tags of {self.host}/{path}"
        tags: dict[str, None] = {}
        url: str | None = self.url(path, "tags/list")
        seen: set[str] = set()
        while url:
            if url in seen or len(seen) >= limits.MAX_TAG_PAGES or len(tags) > limits.MAX_TAGS:
                why = "go in a circle" if url in seen else "do not end"
                raise RegistryProtocolError(f"The pages with {what} {why}.", url=shown(url))
            seen.add(url)
            answer, raw = self._get_whole(path, url, what, limits.MAX_TAG_PAGE_BYTES, {})
            tags.update(dict.fromkeys(tags_of(answer, raw)))
            url = next_page(answer, self.transport.base_url)
        return list(tags)

    def error_for(self, answer: Answer, what: str) -> TransloadError:
        """The error that stands for an answer nobody wanted.

        Args:
            answer: The answer; its body is used up.
            what: What was asked for.
        """
        facts: dict[str, Any] = {"host": self.host, "status": answer.status, "url": shown(answer.url)}
        if answer.status in (401, 403) and not answer.has_left_origin:
            return self.authorized.refused(answer)
        if answer.status in (404, 410):
            return NotFoundInRegistry(
                f"The registry does not have {what}: {answer.problem()}.",
                hint="Check the name. Some registries answer so, too, when a login is missing.",
                **facts,
            )
        return RegistryProtocolError(
            f"{shown(answer.url)} answers {answer.method} for {what} with {answer.status}: {answer.problem()}.", **facts
        )

    # --- parts ---

    def _get_whole(
        self, path: str, url: str, what: str, most_bytes: int, headers: Mapping[str, str]
    ) -> tuple[Answer, bytes]:
        def read() -> tuple[Answer, bytes]:
            answer = self.authorized.send(pull_scopes(path), "GET", url, headers=headers)
            if answer.status != 200:
                raise self.error_for(answer, what)
            raw = answer.read_all(most_bytes)
            if is_html(raw, answer.media_type):
                raise answer.not_json(raw)
            return answer, raw

        return self._repeated(read, what)

    def _repeated(self, read: Callable[[], Read], what: str) -> Read:
        for attempt in range(1, limits.MAX_REQUEST_ATTEMPTS + 1):
            with contextlib.suppress(BrokenOff):
                return read()
            if attempt < limits.MAX_REQUEST_ATTEMPTS:
                self.transport.wait_before_retry(attempt)
        raise RegistryUnreachable(f"{self.host} breaks off its answer for {what} every time.", host=self.host)

    def _media_type(self, answer: Answer, raw: bytes) -> str:
        if answer.media_type not in _UNTYPED:
            return answer.media_type
        try:
            fields = msgspec.json.decode(raw, type=dict[str, object])
        except msgspec.MsgspecError as error:
            raise answer.not_json(raw) from error
        return str(fields.get("mediaType") or answer.media_type)[:200]

    def _promised_digest(self, answer: Answer) -> Digest | None:
        text = answer.header("Docker-Content-Digest")
        try:
            return Digest.parse(text) if text else None
        except InvalidReference as error:
            raise RegistryProtocolError(
                f"{shown(answer.url)} answers with a Docker-Content-Digest that is no digest.", url=shown(answer.url)
            ) from error

    def _manifest_digest(self, answer: Answer, raw: bytes, version: str, what: str) -> Digest:
        promised = self._promised_digest(answer)
        asked = Digest.parse(version) if ":" in version else None
        for expected in (asked, promised):
            if expected and not expected.matches(raw):
                raise ContentMismatch(
                    f"The manifest of {what} should have the digest {expected}; what came has {Digest.of(raw)}.",
                    hint="The registry or a proxy before it serves damaged or changed content.",
                    host=self.host, expected=str(expected), found=str(Digest.of(raw)),
                )  # fmt: skip
        return asked or promised or Digest.of(raw)


def pull_scopes(path: str) -> Scopes:
    """What a token must allow to read a repository."""
    return (f"repository:{path}:pull",)


def _separator(version: str) -> str:
    return "@" if ":" in version else ":"
