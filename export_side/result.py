"""What an export came to, for people and for `--json` (docs/json.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transload.export_side.delivered import Carried
from transload.export_side.journal import BundleIdentity
from transload.export_side.plan import ExportPlan, image_size
from transload.export_side.selection import Failure
from transload.manifests.bundle_manifest import FailedEntry
from transload.shared.digests import Digest
from transload.shared.errors import EXIT_DONE, EXIT_PARTIAL
from transload.shared.image import Image


@dataclass(slots=True)
class ExportResult:
    """The outcome of one export.

    Attributes:
        destination: Whom the export was for.
        is_dry_run: Nothing was written.
        identity: Of the bundle; None when there is nothing new.
        path: Where the sealed bundle is.
        plan: What is in it.
        size_bytes: Exact size of all its files.
        file_count: How many files it has.
        was_resumed: An earlier run had begun it.
        carried: Images that earlier bundles bring.
        failed: What was asked for and is in no bundle.
        moved: References of a resumed plan that name something else by now.
        notes: What a person should know.
    """

    destination: str
    is_dry_run: bool = False
    identity: BundleIdentity | None = None
    path: Path | None = None
    plan: ExportPlan | None = None
    size_bytes: int = 0
    file_count: int = 0
    was_resumed: bool = False
    carried: list[Carried] = field(default_factory=list)
    failed: list[FailedEntry] = field(default_factory=list)
    moved: list[tuple[Image, Digest | None]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def nothing_new(self) -> bool:
        """Whether there was nothing to export."""
        return self.plan is None

    @property
    def relies_on(self) -> list[str]:
        """Bundles that are not yet acknowledged and bring what was asked for and is not in this one."""
        return sorted({one.bundle_id for one in self.carried if not one.is_acknowledged})

    @property
    def exit_code(self) -> int:
        """Done, or partly done."""
        return EXIT_PARTIAL if self.failed else EXIT_DONE

    def as_json(self) -> dict[str, object]:
        """The document that `--json` prints."""
        plan, identity = self.plan, self.identity
        return {
            "command": "export",
            "destination": self.destination,
            "dry_run": self.is_dry_run,
            "nothing_new": self.nothing_new,
            "resumed": self.was_resumed,
            "bundle_id": identity.bundle_id if identity else None,
            "sequence": identity.sequence if identity else None,
            "created": identity.created if identity else None,
            "path": str(self.path) if self.path else None,
            "bundle_bytes": self.size_bytes,
            "files": self.file_count,
            "chunks": plan.chunks.chunk_count if plan else 0,
            "chunk_size_bytes": plan.chunk_size_bytes if plan else None,
            "blobs": len(plan.descriptors) if plan else 0,
            "blob_bytes": plan.blob_bytes if plan else 0,
            "shared_bytes": plan.shared_bytes if plan else 0,
            "images": [_image(image) for image in (plan.images if plan else ())],
            "already_carried": [
                {
                    "reference": one.reference,
                    "digest": one.digest,
                    "bundle_id": one.bundle_id,
                    "acknowledged": one.is_acknowledged,
                }
                for one in sorted(self.carried, key=lambda one: one.reference)
            ],
            "relies_on": self.relies_on,
            "failed": [{"reference": one.reference, "error": one.error, "message": one.message} for one in self.failed],
            "moved": [
                {
                    "reference": str(image.reference),
                    "in_bundle": str(image.source_digest),
                    "now": str(now) if now else None,
                }
                for image, now in self.moved
            ],
            "notes": list(self.notes),
        }


def failed_entries(failures: Sequence[Failure]) -> list[FailedEntry]:
    """Failures as bundle.json lists them."""
    return [
        FailedEntry(reference=one.reference[:600], error=one.error.reference, message=one.error.message[:1000])
        for one in failures
    ]


def _image(image: Image) -> dict[str, object]:
    return {
        "reference": str(image.reference),
        "name": str(image.name),
        "source_digest": str(image.source_digest),
        "digest": str(image.digest),
        "media_type": image.root.media_type,
        "platform": None if image.is_index or image.platform is None else str(image.platform),
        "size_bytes": image_size(image),
    }
