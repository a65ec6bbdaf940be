"""Delivery into a Docker daemon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from transload.import_side.sinks.docker_delivery import HeldChains, ImageDelivery, choose_manifest, require_space
from transload.shared.digests import Digest
from transload.shared.docker_endpoint import find_endpoint
from transload.shared.docker_engine import DockerEngine
from transload.shared.errors import TargetCannotHold
from transload.shared.progress import Progress
from transload.shared.sinks.base import BlobSource, Delivery, ExistingTagPolicy, Wanted
from transload.shared.workers import Outcome, Stop, run_parallel

_STANDARD_URLS = ("unix:///var/run/docker.sock", "unix:///run/docker.sock")
"""One socket: /var/run is a link to /run."""


def _is_default(url: str) -> bool:
    """Whether plain `docker` means this daemon too, so that both are one target."""
    return url in _STANDARD_URLS and find_endpoint(None).url in _STANDARD_URLS


class DockerSink:
    """Delivers into one Docker daemon, one archive an image.

    Args:
        url: Its address; None for the one that the docker command uses.
        on_existing_tag: What to do with a tag that stands for another image.
    """

    def __init__(self, url: str | None = None, *, on_existing_tag: ExistingTagPolicy = "overwrite") -> None:
        self._engine = DockerEngine(url)
        self._policy = on_existing_tag
        self._identity = "docker" if url is None or _is_default(url) else f"docker={url}"
        self._held = HeldChains(self._engine)

    @property
    def identity(self) -> str:
        """`docker` or `docker=URL`."""
        return self._identity

    def check(self, wanted: Sequence[Wanted]) -> None:
        """Find out whether the daemon answers and, where that can be known, has room for everything.

        Which layers a daemon holds already is only known image by image; where it holds any, its room is checked
        before each image instead.

        Raises:
            EngineUnavailable, EngineFailed: It does not answer as Docker.
            NotEnoughSpace: All images together certainly do not fit.
        """
        platform = self._engine.info().platform
        if self._held.all():
            return
        layers: dict[Digest, int] = {}
        largest_bytes = 0
        for one in wanted:
            try:
                chosen = choose_manifest(one.image, platform)
            except TargetCannotHold:
                continue  # told when its turn comes: it does not stop the others
            own = {layer.digest: layer.size_bytes for layer in chosen.layers}
            layers.update(own)
            largest_bytes = max(largest_bytes, sum(own.values()))
        require_space(self._engine, "This delivery", largest_bytes, sum(layers.values()))

    def deliver(
        self, wanted: Sequence[Wanted], blobs: BlobSource, *, stop: Stop, progress: Progress
    ) -> Iterator[Outcome[Wanted, Delivery]]:
        """Deliver images one after the other; the daemon unpacks one archive at a time anyway.

        Yields:
            One outcome an image.
        """

        def work(one: Wanted) -> Delivery:
            return ImageDelivery(self._engine, self._policy, self._held, one, blobs, stop, progress).run()

        # On a thread of its own: the daemon is silent for minutes, and a signal must not wait for it.
        return run_parallel(wanted, work, jobs=1, stop=stop)

    def close(self) -> None:
        """Give up the connections."""
        self._engine.close()
