"""The importer's state.yml: whose bundles were accepted, and what was delivered where.

What counts as delivered is (sink, target reference, digest): the same bundle may be imported again into another
sink, or after an image failed, and repeats nothing that is there.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from transload.manifests.bundle_manifest import DESTINATION_PATTERN, BundleId, BundleManifest, DigestText, ShortText
from transload.shared.errors import TransloadError
from transload.shared.state_file import State
from transload.shared.state_file import default_state_path as default_state_path  # noqa: PLC0414 - part of this API

ExporterId = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
Sequence = Annotated[int, Meta(ge=1, le=999_999_999)]
BundleStatus = Literal["accepted", "partial", "imported"]


class SeenBundle(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A bundle whose signature, documents and sequence were accepted.

    Attributes:
        sequence: Its number.
        checksums: SHA-256 of its SHA256SUMS; another bundle of the same id has another one.
        signed_by: The principal whose key signed it.
        first_seen: UTC time of its acceptance.
        status: `accepted` until an import ended, then `imported`, or `partial` if something failed.
    """

    sequence: Sequence
    checksums: DigestText
    signed_by: ShortText
    first_seen: ShortText
    status: BundleStatus = "accepted"


class ExporterRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What came from one exporter.

    Attributes:
        highest_sequence: Of all accepted bundles.
        bundles: Accepted bundles by id.
    """

    highest_sequence: Annotated[int, Meta(ge=0, le=999_999_999)] = 0
    bundles: dict[BundleId, SeenBundle] = msgspec.field(default_factory=dict)


class DeliveryRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a target reference holds since a delivery.

    Attributes:
        digest: The manifest or index delivered.
        exporter: Id of the exporter that it came from.
        sequence: Number of the bundle that it came from.
        bundle: That bundle's id.
        when: UTC time.
    """

    digest: DigestText
    exporter: ExporterId
    sequence: Sequence
    bundle: BundleId
    when: ShortText


class FailureRecord(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An image that could not be delivered; removed when it is.

    Attributes:
        digest: What was to be delivered.
        bundle: The bundle that it was in.
        error: The error's name, such as `block-damaged`.
        message: What happened.
        when: UTC time.
    """

    digest: DigestText
    bundle: BundleId
    error: ShortText
    message: str
    when: ShortText


class ImportState(State, kw_only=True):
    """The whole of an importer's state.yml.

    Attributes:
        destination: The destination name pinned by the first import; empty before.
        exporters: By exporter id.
        deliveries: By sink identity, then target reference.
        failures: Likewise.
    """

    SCHEMA: ClassVar[int] = 1
    SIDE: ClassVar[str] = "import"

    destination: Annotated[str, Meta(pattern=rf"{DESTINATION_PATTERN}|^$")] = ""
    exporters: dict[ExporterId, ExporterRecord] = msgspec.field(default_factory=dict)
    deliveries: dict[str, dict[str, DeliveryRecord]] = msgspec.field(default_factory=dict)
    failures: dict[str, dict[str, FailureRecord]] = msgspec.field(default_factory=dict)

    @classmethod
    def fresh(cls) -> ImportState:
        """The state of an importer that has seen nothing."""
        return cls(schema=cls.SCHEMA, side=cls.SIDE)

    def seen(self, exporter: str, bundle_id: str) -> SeenBundle | None:
        """The record of an accepted bundle, or None."""
        record = self.exporters.get(exporter)
        return record.bundles.get(bundle_id) if record else None

    def delivered(self, sink: str, target: str) -> DeliveryRecord | None:
        """What was last delivered to a target reference of a sink, or None."""
        return self.deliveries.get(sink, {}).get(target)

    def is_delivered(self, sink: str, target: str, digest: str) -> bool:
        """Whether the last delivery to a target reference was this digest. The target itself may say otherwise."""
        record = self.delivered(sink, target)
        return record is not None and record.digest == digest

    def record_accepted(self, manifest: BundleManifest, *, checksums_digest: str, signed_by: str, when: str) -> None:
        """Note a bundle that `acceptance.accept` has let in, and pin the destination. Again: changes nothing.

        Args:
            manifest: The bundle's verified bundle.json.
            checksums_digest: `sha256:...` of its SHA256SUMS.
            signed_by: The principal.
            when: UTC time.
        """
        self.destination = manifest.destination
        exporter = self.exporters.setdefault(manifest.exporter, ExporterRecord())
        exporter.highest_sequence = max(exporter.highest_sequence, manifest.sequence)
        exporter.bundles.setdefault(
            manifest.bundle_id,
            SeenBundle(sequence=manifest.sequence, checksums=checksums_digest, signed_by=signed_by, first_seen=when),
        )

    def record_finished(self, manifest: BundleManifest, *, is_complete: bool) -> None:
        """Note how an import of an accepted bundle ended; a complete one stays complete."""
        bundle = self.exporters[manifest.exporter].bundles[manifest.bundle_id]
        if bundle.status != "imported":
            bundle.status = "imported" if is_complete else "partial"

    def record_delivered(self, sink: str, target: str, *, digest: str, manifest: BundleManifest, when: str) -> None:
        """Note that a target reference holds a digest now; an earlier failure is forgotten."""
        known = self.delivered(sink, target)
        if known is None or (known.digest, known.bundle) != (digest, manifest.bundle_id):
            self.deliveries.setdefault(sink, {})[target] = DeliveryRecord(
                digest=digest,
                exporter=manifest.exporter,
                sequence=manifest.sequence,
                bundle=manifest.bundle_id,
                when=when,
            )
        if self.failures.get(sink, {}).pop(target, None) is not None and not self.failures[sink]:
            del self.failures[sink]

    def record_failed(
        self, sink: str, target: str, *, digest: str, manifest: BundleManifest, error: TransloadError, when: str
    ) -> None:
        """Note why a target reference did not get its image; what it held before stays on record."""
        self.failures.setdefault(sink, {})[target] = FailureRecord(
            digest=digest, bundle=manifest.bundle_id, error=error.reference, message=error.message, when=when
        )
