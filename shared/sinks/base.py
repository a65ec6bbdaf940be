"""The one interface of every place that images are delivered to.

A sink gets the images that are wanted of it and a source of verified blobs. It looks at its target first, so that
what is already there is not sent again, and it makes a name visible last, so that a name never stands for an
incomplete image. A blob stream that raises must break off whatever the sink is writing: a stream that merely ends
would look complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from transload.shared.digests import Digest
from transload.shared.image import Descriptor, Image
from transload.shared.progress import Progress
from transload.shared.workers import Outcome, Stop

ExistingTagPolicy = Literal["overwrite", "keep", "fail"]
"""What to do with a name at the target that stands for another image."""

Action = Literal["delivered", "already-there", "kept"]
"""`kept`: the target's name stands for another image and the policy leaves it so; nothing was sent."""


class BlobSource(Protocol):
    """Where verified blobs come from."""

    def open_blob(self, descriptor: Descriptor) -> Iterator[memoryview]:
        """A blob's bytes, each verified before it is handed on; may be opened any number of times, in any thread.

        A memoryview is valid until the next one is asked for.

        Raises:
            BlockDamaged, BlobDamaged, BundleFileWrongSize, ReadFailed: While iterating; the stream is incomplete.
        """
        ...

    def read_blob(self, descriptor: Descriptor, most_bytes: int) -> bytes:
        """A small blob as a whole.

        Args:
            descriptor: Which one.
            most_bytes: Largest size accepted.

        Raises:
            MalformedBundle: It is larger.
            BlockDamaged, BlobDamaged, BundleFileWrongSize, ReadFailed: It cannot be had intact.
        """
        ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """One image to deliver, and what it is to be called there.

    Args:
        image: The image, its documents verified.
        target: Its full reference at the target: `host/path:tag`, or `host/path@digest` where it has no tag.
    """

    image: Image
    target: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of one wanted image.

    Args:
        wanted: What was wanted.
        action: Whether it was sent.
        digest: The digest that the target's name stands for now.
        previous: What the name stood for before, if it stood for something else: its digest, at Docker an image id.
        bytes_sent: How many blob bytes went to the target for it; shared blobs count once.
        notes: Remarks for a person, such as an architecture that this host cannot run; each names the target.
        image_id: At Docker, the id of what the name stands for now.
    """

    wanted: Wanted
    action: Action
    digest: Digest
    previous: str | None = None
    bytes_sent: int = 0
    notes: tuple[str, ...] = ()
    image_id: Digest | None = None


class Sink(Protocol):
    """A place that images are delivered to."""

    @property
    def identity(self) -> str:
        """What state.yml and reports call it: `docker`, `registry=HOST/PREFIX`, `archive=DIR`, `oci=DIR`."""
        ...

    def check(self, wanted: Sequence[Wanted]) -> None:
        """Find out before the first byte whether delivery can work: reachable, login, space, names.

        Args:
            wanted: All images that this run wants of the sink.

        Raises:
            TransloadError: It cannot work, for the reason that the class says; nothing was changed.
        """
        ...

    def deliver(
        self, wanted: Sequence[Wanted], blobs: BlobSource, *, stop: Stop, progress: Progress
    ) -> Iterator[Outcome[Wanted, Delivery]]:
        """Deliver images; one that fails does not stop the others.

        Args:
            wanted: What to deliver.
            blobs: Where the blobs come from.
            stop: Checked between pieces of work.
            progress: Where to show how far it is.

        Yields:
            One outcome an image, as soon as it is final, so that the state can be saved after each.
        """
        ...

    def close(self) -> None:
        """Give up connections; nothing is half written afterwards."""
        ...
