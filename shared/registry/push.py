"""Writing to a registry: mounts, blob uploads, manifests (OCI distribution-spec v1.1, "Push").

Nothing becomes visible before its time: a blob exists once the registry has its digest, a manifest is put by the
caller after its blobs. A stream that fails breaks the connection; it is never ended as if it were whole.
"""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Callable, Iterator, Mapping

import msgspec

from transload.shared import limits
from transload.shared.digests import Digest
from transload.shared.errors import ContentMismatch, RegistryProtocolError, RegistryUnreachable, TransloadError
from transload.shared.image import Descriptor, ManifestDocument
from transload.shared.registry.answer import Answer
from transload.shared.registry.authorization import Scopes
from transload.shared.registry.client import RegistryClient
from transload.shared.registry.connections import ConnectionFailed
from transload.shared.registry.upload_body import Buffer, StreamFailed, UploadBody
from transload.shared.registry.urls import origin_of, resolve, shown

_OCTETS = {"Content-Type": "application/octet-stream"}
_DONE = (201, 204)  # 204: what some registries of the schema 1 days answer


class RegistryPusher:
    """One registry, written. Safe to use from several threads.

    Args:
        client: The same registry, read; its connections and tokens are shared.
    """

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self.host = client.host

    def close(self) -> None:
        """Close idle connections, the client's too."""
        self._client.close()

    def mount_blob(self, path: str, digest: Digest, from_path: str) -> bool:
        """Ask the registry to take a blob over from another of its repositories.

        Args:
            path: Where it is wanted.
            digest: The blob.
            from_path: Where it is.

        Returns:
            Whether it is there now; False after any refusal, since a mount only saves an upload.

        Raises:
            Stopped: The run is being stopped.
        """
        query = urllib.parse.urlencode({"mount": str(digest), "from": from_path}, safe=":/")
        url = f"{self._client.url(path, 'blobs/uploads/')}?{query}"
        scopes = (*_push_scopes(path), f"repository:{from_path}:pull")
        try:
            answer = self._client.authorized.send(scopes, "POST", url, may_repeat=False)
        except TransloadError:
            return False  # whatever it was, the upload will meet it again and say so
        answer.close()
        if answer.status == 202:  # an upload has begun instead; it is not needed in this form
            self._cancel(path, answer)
        return answer.status == 201

    def upload_blob(self, path: str, descriptor: Descriptor, open_stream: Callable[[], Iterator[Buffer]]) -> None:
        """Upload a blob in one request; where a proxy limits the size of requests, in pieces.

        Args:
            path: The repository.
            descriptor: The blob.
            open_stream: Begins to read the blob's bytes; called again for each new attempt.

        Raises:
            RegistryLoginRefused, NotFoundInRegistry: The registry takes no uploads there.
            RegistryUnreachable: The connection broke in every attempt.
            RegistryProtocolError: It refuses the blob.
            TransloadError: As `RegistryClient.get_manifest`; and whatever the stream raises, at once.
        """
        sent_in_pieces = False
        for attempt in range(1, limits.MAX_UPLOAD_ATTEMPTS + 1):
            location = self._begin_upload(path)
            send = self._send_in_pieces if sent_in_pieces else self._send_whole
            wait = None
            body = UploadBody(open_stream(), descriptor.size_bytes, self._client.transport.stop)
            try:
                answer = send(path, location, descriptor, body)
            except (ConnectionFailed, StreamFailed) as error:
                body.raise_failure()
                sent_in_pieces = sent_in_pieces or attempt > 1  # what breaks twice breaks at somebody's limit
                if attempt == limits.MAX_UPLOAD_ATTEMPTS:
                    raise self._broke(path, descriptor, body, str(error), attempt) from error
            else:
                if answer.status in _DONE:
                    self._check_digest(answer, descriptor.digest, f"blob {descriptor.digest}")
                    answer.close()
                    return
                if answer.status == 413 and not sent_in_pieces:
                    answer.close()
                    sent_in_pieces = True
                    continue
                # 404: the upload is not known, as when a registry forgot it over a restart.
                is_passing = answer.status in (401, 404, 408, 429) or answer.status >= 500
                if attempt == limits.MAX_UPLOAD_ATTEMPTS or not is_passing:
                    raise self._refused_upload(path, descriptor, answer, body)
                wait = self._client.transport.asked_wait(answer)
                answer.close()
            finally:
                body.close()
            self._client.transport.wait_before_retry(attempt, wait)
        raise self._too_large(path, descriptor)

    def put_manifest(self, path: str, document: ManifestDocument, version: str) -> None:
        """Store a manifest or index under a tag or its digest.

        Args:
            path: The repository.
            document: Its bytes, sent as they are.
            version: A tag, or the document's digest.

        Raises:
            ContentMismatch: The registry made another digest of it.
            RegistryProtocolError: It refuses the manifest; the facts have `status`, `codes` and `missing_blobs`.
            TransloadError: As `RegistryClient.get_manifest`.
        """
        what = f"manifest {self.host}/{path}{'@' if ':' in version else ':'}{version}"
        url = self._client.url(path, f"manifests/{version}")
        headers = {"Content-Type": document.media_type}
        answer = self._client.authorized.send(_push_scopes(path), "PUT", url, headers=headers, body=document.raw)
        if answer.status not in (200, 201, 202):
            raise self._refused_manifest(answer, what)
        self._check_digest(answer, document.digest, what)
        answer.close()

    # --- uploads ---

    def _begin_upload(self, path: str) -> str:
        url = self._client.url(path, "blobs/uploads/")
        answer = self._client.authorized.send(_push_scopes(path), "POST", url)
        if answer.status != 202:
            raise self._client.error_for(answer, f"repository {self.host}/{path} to upload to")
        return self._location(answer)

    def _location(self, answer: Answer) -> str:
        """Where the upload goes on; opaque, and its query is kept."""
        location = answer.header("Location")
        answer.close()
        if not location:
            raise RegistryProtocolError(
                f"{shown(answer.url)} begins an upload without a Location header.",
                url=shown(answer.url), status=answer.status,
            )  # fmt: skip
        url = resolve(answer.url, location, "Location")
        self._client.transport.refuse_link_local(url, "upload location")
        return url

    def _send_whole(self, path: str, location: str, descriptor: Descriptor, body: UploadBody) -> Answer:
        headers = {**_OCTETS, "Content-Length": str(descriptor.size_bytes)}
        return self._send_body(path, "PUT", _with_digest(location, descriptor.digest), headers, body)

    def _send_in_pieces(self, path: str, location: str, descriptor: Descriptor, body: UploadBody) -> Answer:
        position = 0
        while position < descriptor.size_bytes:
            piece = body.take(min(limits.UPLOAD_PIECE_BYTES, descriptor.size_bytes - position))
            headers = {**_OCTETS, "Content-Range": f"{position}-{position + len(piece) - 1}"}
            answer = self._send_body(path, "PATCH", location, headers, piece)
            if answer.status not in (202, 204):
                return answer
            location = self._location(answer)
            position += len(piece)
        return self._send_body(path, "PUT", _with_digest(location, descriptor.digest), _OCTETS, b"")

    def _send_body(
        self, path: str, method: str, url: str, headers: Mapping[str, str], body: UploadBody | bytes
    ) -> Answer:
        """Send once. Another origin gets no login: its URL is its own permission."""
        transport, scopes = self._client.transport, _push_scopes(path)
        is_own = origin_of(url) == origin_of(transport.base_url)
        authorization = self._client.authorized.header_for(scopes) if is_own else None
        transport.stop.check()
        answer = transport.send_once(method, url, headers, authorization, body)
        answer.has_left_origin = not is_own
        if answer.status == 401 and authorization:
            self._client.authorized.forget(scopes, authorization)
        return answer

    def _cancel(self, path: str, answer: Answer) -> None:
        with contextlib.suppress(TransloadError, ConnectionFailed):  # nobody's loss: unfinished uploads are swept
            self._send_body(path, "DELETE", self._location(answer), {}, b"").close()

    # --- refusals ---

    def _check_digest(self, answer: Answer, digest: Digest, what: str) -> None:
        stored = answer.header("Docker-Content-Digest")
        if stored and stored != str(digest):
            answer.close()
            raise ContentMismatch(
                f"{self.host} stored the {what} as {stored[:150]}.",
                hint="The registry, or a proxy before it, changes what it is sent.",
                host=self.host, expected=str(digest), found=stored[:150],
            )  # fmt: skip

    def _broke(
        self, path: str, descriptor: Descriptor, body: UploadBody, why: str, attempts: int
    ) -> RegistryUnreachable:
        return RegistryUnreachable(
            f"The upload of blob {descriptor.digest} ({descriptor.size_bytes:,} bytes) to {self.host}/{path} broke "
            f"after {body.bytes_read:,} bytes: {why}; {attempts} attempts.",
            hint="A proxy before the registry may limit the size or the time of requests. Ask for the limits to be "
            "raised for this registry.",
            host=self.host, digest=str(descriptor.digest), size_bytes=descriptor.size_bytes,
            position=body.bytes_read, attempts=attempts,
        )  # fmt: skip

    def _refused_upload(self, path: str, descriptor: Descriptor, answer: Answer, body: UploadBody) -> TransloadError:
        if answer.status == 413:
            answer.close()
            return self._too_large(path, descriptor)
        if answer.status in (401, 403, 404):
            return self._client.error_for(answer, f"repository {self.host}/{path} to upload to")
        return RegistryProtocolError(
            f"{self.host} refuses blob {descriptor.digest} ({descriptor.size_bytes:,} bytes) in {path} with "
            f"{answer.status} after {body.bytes_read:,} bytes: {answer.problem()}.",
            host=self.host, status=answer.status, digest=str(descriptor.digest), size_bytes=descriptor.size_bytes,
        )  # fmt: skip

    def _too_large(self, path: str, descriptor: Descriptor) -> TransloadError:
        return RegistryProtocolError(
            f"Blob {descriptor.digest} ({descriptor.size_bytes:,} bytes) is too large for {self.host}/{path}: it "
            f"answers 413, also to pieces of {limits.UPLOAD_PIECE_BYTES:,} bytes.",
            hint="A proxy before the registry limits the size of requests (nginx: client_max_body_size 0).",
            host=self.host, status=413, digest=str(descriptor.digest), size_bytes=descriptor.size_bytes,
        )  # fmt: skip

    def _refused_manifest(self, answer: Answer, what: str) -> TransloadError:
        if answer.status in (401, 403, 404):
            return self._client.error_for(answer, what)
        codes, missing = _refusal(answer)
        return RegistryProtocolError(
            f"{self.host} refuses the {what} with {answer.status}: {answer.problem()}.",
            host=self.host, status=answer.status, url=shown(answer.url), codes=codes, missing_blobs=missing,
        )  # fmt: skip


def _push_scopes(path: str) -> Scopes:
    return (f"repository:{path}:pull,push",)


def _with_digest(location: str, digest: Digest) -> str:
    """The digest as one more parameter; what the registry put there stays untouched."""
    return f"{location}{'&' if '?' in location else '?'}digest={digest}"


def _refusal(answer: Answer) -> tuple[list[str], list[str]]:
    """Error codes, and the digests of blobs that the registry says it lacks."""
    try:
        fields = msgspec.json.decode(answer.peek(), type=dict[str, object])
    except msgspec.MsgspecError:
        return [], []
    errors = fields.get("errors")
    codes, missing = [], []
    for entry in errors if isinstance(errors, list) else []:
        if not isinstance(entry, dict):
            continue
        codes.append(str(entry.get("code"))[:60])
        detail = entry.get("detail")
        # docker-registry gives the digest alone, the specification an object.
        digest = detail.get("digest", detail.get("Digest")) if isinstance(detail, dict) else detail
        if entry.get("code") in ("MANIFEST_BLOB_UNKNOWN", "BLOB_UNKNOWN") and isinstance(digest, str):
            missing.append(digest[:200])
    return codes, missing
