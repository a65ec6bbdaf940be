"""Puts blobs where a registry needs them: looked for first, then mounted, and uploaded only where nothing else helps.

Every blob is one piece of work, whatever the number of repositories that want it: it is uploaded to the first and
mounted into the others, and a refused mount only costs an upload.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from transload.shared.digests import Digest
from transload.shared.errors import TargetUnreachable, TransloadError
from transload.shared.image import Descriptor
from transload.shared.progress import Stage
from transload.shared.registry.client import RegistryClient
from transload.shared.registry.push import RegistryPusher
from transload.shared.sinks.base import BlobSource
from transload.shared.sinks.target_errors import as_target_errors
from transload.shared.workers import Stop


class _SourceFailed(Exception):
    """Carries an error of the source past what translates errors of the target: a source may be a registry, too."""

    def __init__(self, error: TransloadError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True)
class BlobWork:
    """A blob and the repositories that want it.

    Args:
        descriptor: The blob.
        paths: The repositories, the first wanted first.
    """

    descriptor: Descriptor
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlobOutcome:
    """What became of it.

    Args:
        errors: Why a repository does not have it, by repository.
        bytes_sent: What was uploaded, by repository.
    """

    errors: dict[str, TransloadError] = field(default_factory=dict)
    bytes_sent: dict[str, int] = field(default_factory=dict)


class BlobPush:
    """Puts blobs into the repositories of one registry. Safe to use from several threads.

    Args:
        client: The registry, read.
        pusher: The registry, written.
        blobs: Where the blobs come from.
        stop: Ends transfers.
        stage: Shown what is done.
        is_wanted: Whether a repository still needs a blob: asked before each transfer, since the images that wanted
            it may have failed meanwhile.
    """

    def __init__(
        self,
        client: RegistryClient,
        pusher: RegistryPusher,
        blobs: BlobSource,
        *,
        stop: Stop,
        stage: Stage,
        is_wanted: Callable[[Digest, str], bool],
    ) -> None:
        self._client, self._pusher, self._blobs = client, pusher, blobs
        self._stop, self._stage, self._is_wanted = stop, stage, is_wanted
        self._lock = threading.Lock()
        self._holders: dict[Digest, list[str]] = {}
        self._unreachable: TargetUnreachable | None = None

    def note_holder(self, digest: Digest, path: str) -> None:
        """Say that a repository has a blob, so that others can mount it from there."""
        with self._lock:
            holders = self._holders.setdefault(digest, [])
            if path not in holders:
                holders.append(path)

    def place(self, work: BlobWork) -> BlobOutcome:
        """Put a blob into every repository that wants it."""
        outcome = BlobOutcome()
        for path in work.paths:
            if not self._is_wanted(work.descriptor.digest, path):
                continue
            self._stop.check()
            try:
                outcome.bytes_sent[path] = self._place(work.descriptor, path)
            except TransloadError as error:
                outcome.errors[path] = error
        return outcome

    def upload(self, descriptor: Descriptor, path: str) -> int:
        """Upload a blob without asking whether it is there; returns how many bytes went."""
        try:
            with as_target_errors(f"{self._client.host}/{path}"):
                self._pusher.upload_blob(path, descriptor, lambda: self._watched(descriptor))
        except _SourceFailed as failure:
            raise failure.error from failure
        self.note_holder(descriptor.digest, path)
        return descriptor.size_bytes

    def _place(self, descriptor: Descriptor, path: str) -> int:
        if self._unreachable is not None:  # a registry that went away: no waiting for each of a thousand blobs
            raise self._unreachable
        try:
            with as_target_errors(f"{self._client.host}/{path}"):
                if self._client.has_blob(path, descriptor) or self._mount(descriptor, path):
                    self.note_holder(descriptor.digest, path)
                    self._stage.advance(descriptor.size_bytes)
                    return 0
            return self.upload(descriptor, path)
        except TargetUnreachable as error:
            self._unreachable = error
            raise

    def _mount(self, descriptor: Descriptor, path: str) -> bool:
        with self._lock:
            holders = [holder for holder in self._holders.get(descriptor.digest, ()) if holder != path]
        return bool(holders) and self._pusher.mount_blob(path, descriptor.digest, holders[0])

    def _watched(self, descriptor: Descriptor) -> Iterator[memoryview]:
        try:
            for piece in self._blobs.open_blob(descriptor):
                self._stop.check()
                yield piece
                self._stage.advance(len(piece))
        except TransloadError as error:
            raise _SourceFailed(error) from error
