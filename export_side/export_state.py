"""The exporter's state.yml: which image went where in which bundle, so that nothing is carried twice or forgotten.

An image counts as delivered to a destination if the latest *sealed* bundle for it that has something under the image's
name, and is not marked lost, has this image.
`filled` records of an unfinished bundle are there to be read by people.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from transload.manifests.bundle_manifest import (
    DESTINATION_PATTERN,
    BundleId,
    BundleManifest,
    DigestText,
    ReferenceText,
    ShortText,
)
from transload.shared.errors import InvalidConfiguration
from transload.shared.image import Image
from transload.shared.state_file import State

BundleStatus = Literal["sealed", "acknowledged", "lost"]
Destination = Annotated[str, Meta(pattern=DESTINATION_PATTERN)]
Sequence = Annotated[int, Meta(ge=0, le=999_999_999)]


class ImageRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One image as it went into one bundle. Old records stay when a tag moves.

    Attributes:
        source_digest: What the reference resolved to at the source.
        digest: What is carried and delivered.
        platform: `os/architecture[/variant]`; left out for a whole index.
        name: What the image is called at the targets; left out if that is the reference.
        destination: Whom the bundle is for.
        bundle: The bundle's id.
        when: UTC time of the record.
        status: `filled` while the bundle is unfinished, then `sealed`.
    """

    source_digest: DigestText
    digest: DigestText
    platform: ShortText = ""
    name: str = ""
    destination: Destination
    bundle: BundleId
    when: ShortText
    status: Literal["filled", "sealed"]


class BundleRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One sealed bundle.

    Attributes:
        sequence: Its number for its destination.
        created: UTC time in its bundle.json.
        images: How many images are in it.
        status: `sealed`, then `acknowledged` or `lost` as marked by the operator.
    """

    sequence: Sequence
    created: ShortText
    images: Annotated[int, Meta(ge=0)]
    status: BundleStatus


class DestinationRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What one destination was sent.

    Attributes:
        sequence: Number of the last sealed bundle; 0 before the first.
        bundles: Sealed bundles by id.
    """

    sequence: Sequence = 0
    bundles: dict[BundleId, BundleRecord] = msgspec.field(default_factory=dict)


class ExportState(State, kw_only=True):
    """The whole of an exporter's state.yml.

    Attributes:
        exporter: Random id of this exporter, 32 hexadecimal digits; importers count sequences by it.
        destinations: By name.
        references: By normalised reference, oldest record first.
    """

    SCHEMA: ClassVar[int] = 1
    SIDE: ClassVar[str] = "export"

    exporter: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
    destinations: dict[Destination, DestinationRecord] = msgspec.field(default_factory=dict)
    references: dict[ReferenceText, list[ImageRecord]] = msgspec.field(default_factory=dict)

    @classmethod
    def fresh(cls) -> ExportState:
        """The state of a new exporter."""
        return cls(schema=cls.SCHEMA, side=cls.SIDE, exporter=secrets.token_hex(16))

    def next_sequence(self, destination: str) -> int:
        """Number of the next bundle for a destination; sealing a bundle uses it up."""
        record = self.destinations.get(destination)
        return 1 + (record.sequence if record else 0)

    def previous_bundle(self, destination: str) -> str | None:
        """Id of the last sealed bundle for a destination, for bundle.json's `previous`."""
        record = self.destinations.get(destination)
        if record is None or not record.bundles:
            return None
        return max(record.bundles, key=lambda bundle: (record.bundles[bundle].sequence, bundle))

    def standing(self, destination: str) -> dict[str, ImageRecord]:
        """What a destination has under every name once all its bundles have arrived.

        Of the sealed records of a name, in bundles that are not lost, only the latest counts: an earlier bundle with
        what a tag has gone back to does not bring it again, because the importer does not move a tag back.

        Returns:
            By name at the targets. Where the latest bundles bring one and the same digest, the record is of one that
            is acknowledged, if there is one.
        """
        sent = self.destinations.get(destination)
        if sent is None:
            return {}
        by_name: dict[str, list[ImageRecord]] = {}
        for reference, records in self.references.items():
            for record in records:
                bundle = sent.bundles.get(record.bundle)
                counts = record.status == "sealed" and record.destination == destination
                if counts and bundle is not None and bundle.status != "lost":
                    by_name.setdefault(tag_name(record.name or reference), []).append(record)
        return {name: _standing(records, sent.bundles) for name, records in by_name.items()}

    def bundle_with(self, image: Image, destination: str) -> str | None:
        """The bundle that already brings exactly this image, under this name, to a destination.

        Returns:
            Its id; None if the image is in no bundle for this destination, or only in lost or unfinished ones, or a
            later one brings another under its name.
        """
        record = self.standing(destination).get(tag_name(str(image.name)))
        return record.bundle if record is not None and record.digest == str(image.digest) else None

    def is_delivered(self, image: Image, destination: str) -> bool:
        """Whether this image need not be exported again for a destination."""
        return self.bundle_with(image, destination) is not None

    def unacknowledged(self, images: Iterable[Image], destination: str) -> list[str]:
        """Bundles, not yet acknowledged, that must arrive for these images to be at the destination; by sequence."""
        sent = self.destinations.get(destination, DestinationRecord())
        relied_on = {self.bundle_with(image, destination) for image in images} - {None}
        return [
            bundle
            for bundle, record in sorted(sent.bundles.items(), key=lambda item: (item[1].sequence, item[0]))
            if bundle in relied_on and record.status == "sealed"
        ]

    def record_filled(self, image: Image, *, bundle_id: str, destination: str, when: str) -> None:
        """Note that all of an image is in an unfinished bundle."""
        self._put(
            str(image.reference),
            ImageRecord(
                source_digest=str(image.source_digest),
                digest=str(image.digest),
                platform=str(image.platform or ""),
                name="" if image.name == image.reference else str(image.name),
                destination=destination,
                bundle=bundle_id,
                when=when,
                status="filled",
            ),
        )

    def record_sealed(self, manifest: BundleManifest) -> None:
        """Note a sealed bundle; from now on its images count as delivered. Doing it twice changes nothing."""
        destination = self.destinations.setdefault(manifest.destination, DestinationRecord())
        destination.sequence = max(destination.sequence, manifest.sequence)
        destination.bundles.setdefault(
            manifest.bundle_id,
            BundleRecord(
                sequence=manifest.sequence, created=manifest.created, images=len(manifest.images), status="sealed"
            ),
        )
        self.forget_filled(manifest.bundle_id)
        for image in manifest.images:
            self._put(
                image.reference,
                ImageRecord(
                    source_digest=image.source_digest,
                    digest=image.digest,
                    platform=image.platform or "",
                    name="" if image.name == image.reference else image.name,
                    destination=manifest.destination,
                    bundle=manifest.bundle_id,
                    when=manifest.created,
                    status="sealed",
                ),
            )

    def forget_filled(self, bundle_id: str) -> None:
        """Forget the `filled` records of an unfinished bundle, because it is sealed now or was given up."""
        for reference, records in list(self.references.items()):
            kept = [record for record in records if record.bundle != bundle_id or record.status != "filled"]
            if kept:
                self.references[reference] = kept
            else:
                del self.references[reference]

    def mark(self, bundle_id: str, status: Literal["acknowledged", "lost"]) -> BundleStatus:
        """Note what became of a sealed bundle.

        Returns:
            Its status before.

        Raises:
            InvalidConfiguration: No sealed bundle has this id.
        """
        for destination in self.destinations.values():
            record = destination.bundles.get(bundle_id)
            if record is not None:
                before, record.status = record.status, status
                return before
        known = [bundle for destination in self.destinations.values() for bundle in destination.bundles]
        raise InvalidConfiguration(
            f"This exporter has sealed no bundle {bundle_id!r}.",
            hint=f"It has sealed: {', '.join(known[-5:]) or 'none yet'}. `transload status` shows all.",
            bundle=bundle_id,
        )

    def _put(self, reference: str, record: ImageRecord) -> None:
        """Add a record, in the place of one that says the same of the same bundle."""
        records = self.references.setdefault(reference, [])
        identity = (record.bundle, record.digest, record.name)
        records[:] = [other for other in records if (other.bundle, other.digest, other.name) != identity]
        records.append(record)


def tag_name(name: str) -> str:
    """What is written at a target: a name without its digest, unless it has no tag."""
    tagged = name.partition("@")[0]
    return tagged if ":" in tagged.rpartition("/")[2] else name


def _standing(records: list[ImageRecord], bundles: Mapping[str, BundleRecord]) -> ImageRecord:
    """Of one name's records the latest, or an acknowledged one of those right before it that have its digest."""
    latest_first = sorted(records, key=lambda record: (bundles[record.bundle].sequence, record.bundle), reverse=True)
    same = list(takewhile(lambda record: record.digest == latest_first[0].digest, latest_first))
    return next((record for record in same if bundles[record.bundle].status == "acknowledged"), same[0])
