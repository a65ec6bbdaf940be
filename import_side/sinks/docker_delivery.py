"""The steps that deliver one image into a Docker daemon, of either image store.

An image is loaded without a name, looked at, tried, and only then tagged. So a name never stands for a broken image,
and one that is moved points to the old image until the new one is known to be good.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from transload.import_side.sinks.docker_layers import DockerArchive, containerd_archive, layer_store_archive
from transload.shared import limits
from transload.shared.compression import Buffer
from transload.shared.digests import Digest
from transload.shared.docker_answers import HeldImage
from transload.shared.docker_engine import DockerEngine, LoadStream
from transload.shared.errors import (
    DeliveredDigestDiffers,
    LoadFailed,
    NotEnoughSpace,
    TagConflict,
    TargetCannotHold,
    TransloadError,
)
from transload.shared.image import Image, ImageConfig, ImageManifest
from transload.shared.platforms import Platform
from transload.shared.progress import Progress
from transload.shared.references import Reference
from transload.shared.sinks.base import Action, BlobSource, Delivery, ExistingTagPolicy, Wanted
from transload.shared.sizes import format_size
from transload.shared.workers import Stop


@dataclass(slots=True)
class HeldChains:
    """The stacks of layers that a daemon holds: asked once, and kept up to date with what is delivered."""

    engine: DockerEngine
    _known: set[tuple[Digest, ...]] | None = field(default=None, init=False)

    def all(self) -> set[tuple[Digest, ...]]:
        """Them all.

        Raises:
            EngineFailed: The daemon answers with an error.
        """
        if self._known is None:
            self._known = self.engine.held_chains()
        return self._known

    def add(self, diff_ids: tuple[Digest, ...]) -> None:
        """Remember an image that was just delivered."""
        if self._known is not None:
            self._known.update(diff_ids[:depth] for depth in range(1, len(diff_ids) + 1))

    def forget(self) -> None:
        """The daemon turned out not to hold what it held before: ask again."""
        self._known = None


def require_space(engine: DockerEngine, name: str, archive_bytes: int, layer_bytes: int) -> None:
    """See that the daemon has room, where that can be known from here.

    The daemon writes the whole archive to a temporary folder or its content store, and then unpacks it. Unpacked layers
    are larger than compressed ones; how much is not known before, so only what certainly fails is refused.

    Args:
        engine: The daemon.
        name: What is to be loaded, for the message.
        archive_bytes: The largest archive.
        layer_bytes: All layers together.

    Raises:
        NotEnoughSpace: It certainly does not fit.
    """
    free_bytes = engine.free_bytes()
    needed_bytes = archive_bytes + layer_bytes
    if free_bytes is not None and needed_bytes > free_bytes:
        raise NotEnoughSpace(
            f"{name} needs at least {format_size(needed_bytes)} at the Docker daemon {engine.url} (the archive "
            f"while it loads, and its layers), but {format_size(free_bytes)} is free in its data directory.",
            hint="Free some space there (docker system df, docker image prune) and run the same command again.",
            needed_bytes=needed_bytes, available_bytes=free_bytes,
        )  # fmt: skip


def choose_manifest(image: Image, platform: Platform) -> ImageManifest:
    """The one manifest of an image that a daemon can run, or the only one that there is.

    Args:
        image: Perhaps a whole index.
        platform: What the daemon runs.

    Raises:
        TargetCannotHold: An artifact that is no container image, or an index without the daemon's platform.
    """
    runnable = [manifest for manifest in image.manifests if manifest.is_runnable]
    if not runnable:
        raise TargetCannotHold(
            f"{image.reference} is no container image, so Docker cannot hold it.",
            hint="Push it to a registry (--to registry=HOST) or write it to disk (--to oci=DIR).",
        )
    if not image.is_index:
        return runnable[0]
    fitting = [one for one in runnable if one.platform is not None and one.platform.satisfies(platform)]
    if not fitting:
        there = ", ".join(sorted({str(one.platform) for one in runnable}))
        raise TargetCannotHold(
            f"{image.reference} has no image for {platform}, which this Docker daemon runs; it has: {there}.",
            hint="Push it to a registry (--to registry=HOST) instead, or export it for this platform.",
            platform=str(platform),
        )
    return next((one for one in fitting if one.platform == platform), fitting[0])


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The single-platform image that is delivered, and how the daemon will call it.

    Args:
        image: It, as an image of its own.
        manifest: Its manifest.
        config: Its config.
        image_id: What the daemon will call it.
        same_ids: Ids under which the daemon may hold the very same image.
    """

    image: Image
    manifest: ImageManifest
    config: ImageConfig
    image_id: Digest
    same_ids: frozenset[Digest]

    def is_same(self, held: HeldImage) -> bool:
        return held.image_id in self.same_ids and held.diff_ids == self.config.diff_ids


class ImageDelivery:
    """One image on its way into the daemon.

    Args:
        engine: The daemon.
        policy: What to do with a tag that stands for another image.
        held: What the daemon holds already.
        wanted: The image and its name there.
        blobs: Where its blobs come from.
        stop: Checked between pieces of work.
        progress: Where to show how far it is.
    """

    def __init__(
        self, engine: DockerEngine, policy: ExistingTagPolicy, held: HeldChains,
        wanted: Wanted, blobs: BlobSource, stop: Stop, progress: Progress,
    ) -> None:  # fmt: skip
        self._engine, self._policy, self._held = engine, policy, held
        self._wanted, self._blobs, self._stop, self._progress = wanted, blobs, stop, progress
        self._target = Reference.parse(wanted.target)
        self._sent_bytes = 0
        self._notes: list[str] = []

    def run(self) -> Delivery:
        """Deliver it.

        Raises:
            TransloadError: It was not delivered; its name stands for what it stood for before.
        """
        # 1. What is to be delivered, and what the target's name stands for now.
        self._stop.check()
        chosen = self._choose()
        existing = self._engine.inspect(str(self._target))
        if existing is not None and chosen.is_same(existing) and self._is_usable(chosen, existing.image_id):
            return self._delivery(chosen, "already-there")
        moved = existing if existing is not None and not chosen.is_same(existing) else None

        # 2. A name that stands for another image.
        if moved is not None and self._policy == "fail":
            raise TagConflict(
                f"{self._target} stands for {moved.image_id} at the Docker daemon, not for {chosen.image_id}.",
                hint="Remove or rename that image, or choose --on-existing-tag overwrite or keep.",
                target=str(self._target), existing=str(moved.image_id), wanted=str(chosen.image_id),
            )  # fmt: skip
        if moved is not None and self._policy == "keep":
            kept = self._delivery(chosen, "kept", previous=str(moved.image_id))
            return replace(kept, digest=moved.image_id, image_id=moved.image_id)

        # 3. The image, without a name, unless the daemon holds it already and it works.
        before = self._engine.inspect(str(chosen.image_id))
        is_there = before is not None and self._is_usable(chosen, chosen.image_id)
        if not is_there or self._name_in_archive(chosen) is not None:
            try:
                self._load(chosen)
                self._prove(chosen)
            except BaseException:
                if before is None:
                    self._discard(chosen)
                raise
        self._held.add(chosen.config.diff_ids)

        # 4. The name, last.
        if self._target.tag is not None:
            self._engine.tag(chosen.image_id, self._target)
            return self._delivery(chosen, "delivered", previous=str(moved.image_id) if moved else None)
        if self._engine.inspect(str(self._target)) is None:
            self._notes.append(f"Docker keeps no name without a tag here: use its id {chosen.image_id}")
        return self._delivery(chosen, "already-there" if is_there and not self._sent_bytes else "delivered")

    def _choose(self) -> _Chosen:
        info = self._engine.info()
        image = self._wanted.image
        manifest = choose_manifest(image, info.platform)
        raw_config = self._blobs.read_blob(manifest.config, limits.MAX_CONFIG_BYTES)
        config = ImageConfig.parse(raw_config, manifest.config.digest)
        if len(config.diff_ids) != len(manifest.layers):
            raise TargetCannotHold(
                f"The config of {image.reference} names {len(config.diff_ids)} diff_ids for {len(manifest.layers)} "
                "layers; Docker holds only images whose config names them all."
            )
        if image.is_index:
            self._notes.append(f"the index's image for {manifest.platform}: {manifest.document.digest}")
        if manifest.platform is not None and not manifest.platform.satisfies(info.platform):
            self._notes.append(f"for {manifest.platform}; this daemon runs {info.platform} and may not run it")
        nameless = self._target.with_digest(manifest.document.digest)
        single = replace(
            image,
            name=replace(nameless, tag=None),
            documents=(manifest.document,),
            manifests=(manifest,),
            platform=manifest.platform,
        )
        if info.store == "layers":
            image_id = manifest.config.digest
            return _Chosen(single, manifest, config, image_id, frozenset({image_id}))
        image_id = manifest.document.digest
        same_ids = frozenset({image_id, image.digest, image.source_digest})
        return _Chosen(single, manifest, config, image_id, same_ids)

    def _load(self, chosen: _Chosen) -> None:
        if self._engine.info().store == "containerd":
            self._send(containerd_archive(chosen.image, self._name_in_archive(chosen), self._blobs))
            return
        archive = self._layer_archive(chosen, self._held.all())
        try:
            self._send(archive)
        except LoadFailed:
            if not archive.layers_left_out:
                raise
            # Somebody removed an image since the daemon was asked what it holds: once more, with everything.
            self._held.forget()
            self._send(self._layer_archive(chosen, set()))

    def _layer_archive(self, chosen: _Chosen, held: set[tuple[Digest, ...]]) -> DockerArchive:
        reads_zstd = self._engine.info().reads_zstd
        return layer_store_archive(chosen.manifest, chosen.config, self._blobs, held, reads_zstd=reads_zstd)

    def _name_in_archive(self, chosen: _Chosen) -> str | None:
        """A digest cannot be given as a name later; the containerd store takes it from the archive, if it is true."""
        if self._engine.info().store != "containerd" or self._target.tag is not None:
            return None
        return str(self._target) if self._target.digest == chosen.image.digest else None

    def _send(self, archive: DockerArchive) -> None:
        name = str(self._target)
        require_space(self._engine, name, archive.size_bytes, archive.layer_bytes)
        with self._progress.stage(f"Loading {name}", archive.blob_bytes) as stage:

            def count(size_bytes: int) -> None:
                self._sent_bytes += size_bytes
                stage.advance(size_bytes)

            self._engine.load(LoadStream(archive.size_bytes, self._noted(archive, name, count)), name)

    def _noted(self, archive: DockerArchive, name: str, count: Callable[[int], None]) -> Iterator[Buffer]:
        yield from archive.pieces(self._stop, count)
        self._progress.note(f"{name}: all sent; Docker is unpacking it")

    def _prove(self, chosen: _Chosen) -> None:
        """Look at what the daemon holds now, whatever it said.

        Raises:
            LoadFailed: It does not hold the image, or cannot use it.
            DeliveredDigestDiffers: It holds something else under that id.
        """
        held = self._engine.inspect(str(chosen.image_id))
        if held is None:
            raise LoadFailed(
                f"The Docker daemon took {self._target} without complaint, but does not hold {chosen.image_id}.",
                hint="See the daemon's log (journalctl -u docker).",
            )
        if held.diff_ids != chosen.config.diff_ids:
            raise DeliveredDigestDiffers(
                f"The Docker daemon holds {chosen.image_id} with other layers than {self._target} has.",
                expected=[str(one) for one in chosen.config.diff_ids], found=[str(one) for one in held.diff_ids],
            )  # fmt: skip
        if self._runs_here(chosen):
            self._engine.probe_usable(chosen.image_id, str(self._target))

    def _is_usable(self, chosen: _Chosen, image_id: Digest) -> bool:
        """Whether an image that is there already works: the containerd store keeps some that do not."""
        if not self._runs_here(chosen):
            return True
        try:
            self._engine.probe_usable(image_id, str(self._target))
        except LoadFailed:
            return False
        return True

    def _runs_here(self, chosen: _Chosen) -> bool:
        platform = chosen.manifest.platform
        return platform is None or platform.satisfies(self._engine.info().platform)

    def _discard(self, chosen: _Chosen) -> None:
        """Leave nothing of a failed delivery behind; what somebody else has named meanwhile stays."""
        with contextlib.suppress(TransloadError):  # the failure that is being reported is the one that matters
            held = self._engine.inspect(str(chosen.image_id))
            if held is not None and not set(held.tags) - {str(self._target)}:
                self._engine.remove(str(chosen.image_id))

    def _delivery(self, chosen: _Chosen, action: Action, previous: str | None = None) -> Delivery:
        return Delivery(
            self._wanted, action, chosen.image.digest,
            previous=previous, bytes_sent=self._sent_bytes, image_id=chosen.image_id,
            notes=tuple(f"{self._target}: {note}" for note in self._notes),
        )  # fmt: skip
