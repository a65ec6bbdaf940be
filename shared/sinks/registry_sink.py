"""Delivers images to a registry with their digests: `--to registry=HOST[/PREFIX]`.

Order, so that no name ever stands for an incomplete image: blobs (all images together, in parallel), then child
manifests, then the image's own, under its tag, last. Afterwards the tag is read back and compared byte for byte.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from transload.shared.digests import Digest
from transload.shared.errors import (
    DeliveredDigestDiffers,
    PushFailed,
    TagConflict,
    TransloadError,
)
from transload.shared.image import Descriptor
from transload.shared.progress import Progress, SilentProgress, Stage
from transload.shared.references import Reference
from transload.shared.registry.client import RegistryClient
from transload.shared.registry.push import RegistryPusher
from transload.shared.registry.settings import RegistrySettings
from transload.shared.sinks.base import BlobSource, Delivery, ExistingTagPolicy, Wanted
from transload.shared.sinks.registry_blobs import BlobOutcome, BlobPush, BlobWork
from transload.shared.sinks.target_errors import as_target_errors, tag_conflict
from transload.shared.workers import Outcome, Stop, attempt, run_parallel


@dataclass(eq=False)
class _Pending:
    """An image on its way."""

    wanted: Wanted
    path: str
    version: str
    previous: Digest | None
    missing: dict[Digest, Descriptor]
    error: TransloadError | None = None
    bytes_sent: int = 0


@dataclass
class _Plan:
    """Which images wait for which blobs in which repositories."""

    pending: list[_Pending] = field(default_factory=list)
    complete: list[_Pending] = field(default_factory=list)
    users: dict[tuple[Digest, str], list[_Pending]] = field(default_factory=dict)

    def add(self, image: _Pending) -> None:
        self.pending.append(image)
        for digest in image.missing:
            self.users.setdefault((digest, image.path), []).append(image)

    @property
    def total_bytes(self) -> int:
        return sum(images[0].missing[digest].size_bytes for (digest, _), images in self.users.items())

    def blobs(self) -> list[BlobWork]:
        """Every blob once, image after image, so that the first images are complete early; large blobs first."""
        paths: dict[Digest, list[str]] = {}
        descriptors: dict[Digest, Descriptor] = {}
        for image in self.pending:
            for descriptor in sorted(image.missing.values(), key=lambda one: -one.size_bytes):
                descriptors.setdefault(descriptor.digest, descriptor)
                wanted_by = paths.setdefault(descriptor.digest, [])
                if image.path not in wanted_by:
                    wanted_by.append(image.path)
        return [BlobWork(descriptor, tuple(paths[digest])) for digest, descriptor in descriptors.items()]

    def is_wanted(self, digest: Digest, path: str) -> bool:
        """Whether an image that has not failed still waits for a blob; asked by worker threads."""
        return any(image.error is None for image in self.users[digest, path])

    def finished_by(self, work: BlobWork, result: BlobOutcome) -> Iterator[_Pending]:
        """Note a blob's outcome; yields the images that can be finished now, well or not."""
        for path in work.paths:
            bytes_sent = result.bytes_sent.get(path, 0)
            for image in self.users[work.descriptor.digest, path]:
                del image.missing[work.descriptor.digest]
                if image.error is not None:
                    continue
                image.bytes_sent += bytes_sent
                bytes_sent = 0  # counted once: for the first image that needed it
                image.error = result.errors.get(path)
                if image.error is not None or not image.missing:
                    yield image


@dataclass(frozen=True, slots=True)
class _Look:
    """What is at a target before the delivery."""

    digest: Digest | None
    is_complete: bool


class RegistrySink:
    """One registry, or the part of it under a prefix.

    Args:
        settings: Address, login and trust.
        prefix: Path under which everything goes; only for the identity, the wanted targets have it already.
        policy: For tags that stand for another image.
        jobs: How many blobs are pushed at once.
        stop: Ends transfers.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        *,
        prefix: str = "",
        policy: ExistingTagPolicy = "overwrite",
        jobs: int = 4,
        stop: Stop,
    ) -> None:
        self.client = RegistryClient(settings, stop=stop)
        self._pusher = RegistryPusher(self.client)
        self._policy, self._jobs, self._stop = policy, jobs, stop
        self._prefix = prefix
        self._looks: dict[str, _Look] = {}

    @property
    def identity(self) -> str:
        """`registry=HOST[/PREFIX]`."""
        return f"registry={self.client.host}{'/' if self._prefix else ''}{self._prefix}"

    def check(self, wanted: Sequence[Wanted]) -> None:
        """Ask for every name that is wanted: whether the registry answers, lets us in, and what it has.

        Raises:
            TargetUnreachable, TargetLoginRefused, PushFailed: For all of them; where only some repositories refuse,
                it is told when their turn comes.
        """
        errors: list[TransloadError] = []
        for outcome in run_parallel(wanted, self._look, jobs=self._jobs, stop=self._stop):
            if outcome.result is not None:
                self._looks[outcome.item.target] = outcome.result
            elif outcome.error is not None:
                errors.append(outcome.error)
        if errors and len(errors) == len(wanted):
            raise errors[0]

    def deliver(
        self, wanted: Sequence[Wanted], blobs: BlobSource, *, stop: Stop, progress: Progress
    ) -> Iterator[Outcome[Wanted, Delivery]]:
        """Deliver everything together; see `Sink.deliver`."""
        plan = _Plan()
        for one in wanted:
            begun = attempt(one, self._begin)
            if isinstance(begun.result, _Pending):
                plan.add(begun.result)
            else:
                if begun.result is not None and begun.result.action == "already-there":
                    plan.complete.append(_pending(one, None))
                yield Outcome(one, begun.result, begun.error)
        with self._stage(progress, plan.total_bytes) as stage:
            push = BlobPush(self.client, self._pusher, blobs, stop=stop, stage=stage, is_wanted=plan.is_wanted)
            for there in plan.complete:
                for descriptor in there.missing.values():
                    push.note_holder(descriptor.digest, there.path)
            for placed in run_parallel(plan.blobs(), push.place, jobs=self._jobs, stop=stop):
                if placed.result is None:  # `place` turns every TransloadError into its outcome
                    raise RuntimeError("a blob was given up without an outcome") from placed.error
                for image in plan.finished_by(placed.item, placed.result):
                    yield self._finish(image, push)

    def _stage(self, progress: Progress, total_bytes: int) -> contextlib.AbstractContextManager[Stage]:
        return (progress if total_bytes else SilentProgress()).stage(f"Pushing to {self.client.host}", total_bytes)

    def close(self) -> None:
        """Close connections."""
        self.client.close()

    def _look(self, one: Wanted) -> _Look:
        target = Reference.parse(one.target)
        with as_target_errors(one.target):
            digest = self.client.head_manifest(target.path, target.version)
            is_complete = digest == one.image.digest and all(
                self.client.head_manifest(target.path, str(document.digest)) is not None
                for document in one.image.documents[1:]
            )
        return _Look(digest, is_complete)

    def _begin(self, one: Wanted) -> Delivery | _Pending:
        """Decide what is to be done for an image.

        Raises:
            TagConflict: The policy forbids it.
        """
        look = self._looks.pop(one.target, None) or self._look(one)
        if look.is_complete:
            return Delivery(one, "already-there", one.image.digest)
        if look.digest is not None and look.digest != one.image.digest:
            if self._policy == "keep":
                note = f"{one.target} stands for {look.digest} and was kept."
                return Delivery(one, "kept", one.image.digest, str(look.digest), notes=(note,))
            if self._policy == "fail":
                raise TagConflict(
                    f"{one.target} stands for {look.digest}, not {one.image.digest}.",
                    hint="Allow it to be moved with --on-existing-tag overwrite, or deliver under another name.",
                    target=one.target,
                    found=str(look.digest),
                    expected=str(one.image.digest),
                )
        return _pending(one, look.digest)

    def _finish(self, image: _Pending, push: BlobPush) -> Outcome[Wanted, Delivery]:
        if image.error is not None:
            return Outcome(image.wanted, None, image.error)
        return attempt(image.wanted, lambda _: self._put_image(image, push))

    def _put_image(self, image: _Pending, push: BlobPush) -> Delivery:
        one = image.wanted
        expected = one.image.digest
        moved = image.previous if image.previous != expected else None
        try:
            self._put_manifests(image)
        except PushFailed as error:
            if conflict := tag_conflict(error, one.target, str(moved) if moved else None, str(expected)):
                raise conflict from error
            if not (missing := self._lost_blobs(image, error)):
                raise
            # The registry said that it had them, and then that it does not: its cache was stale.
            image.bytes_sent += sum(push.upload(descriptor, image.path) for descriptor in missing)
            self._put_manifests(image)
        self._read_back(image)
        return Delivery(one, "delivered", expected, str(moved) if moved else None, image.bytes_sent)

    def _put_manifests(self, image: _Pending) -> None:
        root, *below = image.wanted.image.documents
        with as_target_errors(image.wanted.target):
            for document in reversed(below):  # children before the indexes that name them
                self._pusher.put_manifest(image.path, document, str(document.digest))
            self._pusher.put_manifest(image.path, root, image.version)

    @staticmethod
    def _lost_blobs(image: _Pending, error: TransloadError) -> list[Descriptor]:
        """The blobs that a refusal of a manifest names; all of the image's if it names none."""
        codes = error.facts.get("codes")
        if not isinstance(codes, (list, tuple)) or not {"MANIFEST_BLOB_UNKNOWN", "BLOB_UNKNOWN"}.intersection(codes):
            return []
        named = error.facts.get("missing_blobs")
        names = {str(digest) for digest in named} if isinstance(named, (list, tuple)) else set()
        every = list(_blobs(image.wanted))
        return [descriptor for descriptor in every if str(descriptor.digest) in names] or every

    def _read_back(self, image: _Pending) -> None:
        root = image.wanted.image.root
        with as_target_errors(image.wanted.target):
            found = self.client.get_manifest(image.path, image.version)
        if found.raw != root.raw:
            raise DeliveredDigestDiffers(
                f"{image.wanted.target} now stands for {found.digest}, not for the {root.digest} that was put there.",
                hint="Somebody else moved it at the same time, or the registry changes what it is sent. Try again.",
                target=image.wanted.target,
                expected=str(root.digest),
                found=str(found.digest),
            )


def _pending(one: Wanted, previous: Digest | None) -> _Pending:
    target = Reference.parse(one.target)
    return _Pending(one, target.path, target.version, previous, {blob.digest: blob for blob in _blobs(one)})


def _blobs(one: Wanted) -> Iterator[Descriptor]:
    """An image's configs and layers: manifests are put as manifests."""
    documents = {document.digest for document in one.image.documents}
    return (descriptor for descriptor in one.image.descriptors() if descriptor.digest not in documents)
