"""From results to what is shown: the import report, and the JSON documents of `verify` and `list` (docs/json.md)."""

from __future__ import annotations

from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from transload.import_side import report
from transload.import_side.importer import Delivered, ImportResult
from transload.import_side.verification import Verification
from transload.import_side.verified_bundle import VerifiedBundle
from transload.manifests.bundle_manifest import BundleManifest
from transload.shared.errors import EXIT_DONE, Faults
from transload.shared.texts import path_text


def import_report(result: ImportResult, trust_file: Path) -> report.ImportReport:
    """The record of an import.

    Args:
        result: What it did.
        trust_file: The file that admitted the signer's key.
    """
    bundle, manifest, request = result.bundle, result.bundle.manifest, result.request
    signed_by = bundle.signed_by
    if signed_by is None:
        raise RuntimeError("an import without a verified signature")
    chunks = {chunk.name for artifact in manifest.artifacts for chunk in artifact.chunks}
    verified = {str(digest) for digest in bundle.blobs_checked}
    return report.ImportReport(
        tool=f"transload {version('transload')}",
        started=moment(result.started),
        finished=moment(result.finished),
        exit_code=result.exit_code,
        is_dry_run=request.is_dry_run,
        signature=report.SignatureReport(
            principal=signed_by.principal,
            fingerprint=signed_by.fingerprint,
            key_type=signed_by.key_type,
            file=signed_by.file_name,
            trust_file=path_text(trust_file),
            valid_at=moment(request.at),
        ),
        bundle=report.BundleReport(
            folder=path_text(request.folder),
            bundle_id=manifest.bundle_id,
            exporter=manifest.exporter,
            destination=manifest.destination,
            sequence=manifest.sequence,
            created=manifest.created,
            checksums=str(bundle.checksums_digest),
            is_new=result.acceptance.is_new,
            missing_sequences=tuple(result.acceptance.missing[:100]),
            failed=tuple(entry.reference for entry in manifest.failed),
        ),
        files=tuple(
            report.FileCheck(name=name, sha256=digest, checked_by="blocks" if name in chunks else "sha256")
            for name, digest in bundle.checksums.items()
        ),
        artifacts=tuple(
            report.ArtifactCheck(name=name, blocks=reader.block_count, blocks_verified=reader.verified_count)
            for name, reader in bundle.readers.items()
        ),
        blobs=tuple(
            report.BlobCheck(digest=blob.digest, size=blob.size, verified=blob.digest in verified)
            for blob in manifest.blobs
        ),
        deliveries=tuple(_delivery(one, is_dry_run=request.is_dry_run) for one in result.outcomes if one.delivery),
        failures=tuple(_failure(one) for one in result.outcomes if one.error),
        notes=(*bundle.notes, *result.acceptance.notes),
    )


def _delivery(one: Delivered, *, is_dry_run: bool) -> report.DeliveryReport:
    delivery = one.delivery
    if delivery is None:
        raise RuntimeError("no delivery")
    return report.DeliveryReport(
        sink=one.sink,
        image=one.image_name,
        target=one.target,
        digest=str(one.digest),
        source_digest=str(one.source_digest),
        action="would-deliver" if is_dry_run and delivery.action == "delivered" else delivery.action,
        previous=delivery.previous,
        image_id=str(delivery.image_id) if delivery.image_id else None,
        bytes_sent=delivery.bytes_sent,
        notes=delivery.notes,
    )


def _failure(one: Delivered) -> report.FailureReport:
    error = one.error
    if error is None:
        raise RuntimeError("no failure")
    return report.FailureReport(
        sink=one.sink,
        image=one.image_name,
        target=one.target,
        digest=str(one.digest),
        error=error.reference,
        exit_code=error.exit_code,
        message=error.message,
        hint=error.hint,
    )


def verification_json(found: Verification) -> dict[str, object]:
    """What `transload verify --json` prints."""
    manifest = found.bundle.manifest
    checks: dict[str, object] = {
        "files": {"total": len(found.bundle.checksums), "faulty": len(found.bundle.file_faults)},
        "blocks": {"total": found.blocks_total, "intact": found.blocks_intact},
        "images": {
            "total": len(manifest.images),
            "checked": found.images_checked,
            "consistent": found.images_consistent,
        },
    }
    if found.is_full:
        checks["chunks"] = {"total": sum(len(one.chunks) for one in manifest.artifacts), "intact": found.chunks_checked}
        checks["blobs"] = {"total": len(manifest.blobs), "intact": found.blobs_checked}
        checks["layers"] = {"checked": found.layers_checked}
    return {
        "command": "verify",
        "bundle": bundle_json(found.bundle),
        "signed_by": _signed_by_json(found.bundle),
        "full": found.is_full,
        "exit_code": exit_code_of(found),
        "verdict": found.verdict,
        "images_hit": found.images_hit,
        "checks": checks,
        "faults": [fault.as_json() for fault in found.faults],
        "skipped": found.skipped,
        "notes": found.bundle.notes,
    }


def exit_code_of(found: Verification) -> int:
    """The gravest fault's code, or 0."""
    return Faults(found.faults).exit_code if found.faults else EXIT_DONE


def listing_json(bundle: VerifiedBundle) -> dict[str, object]:
    """What `transload list --json` prints."""
    manifest = bundle.manifest
    return {
        "command": "list",
        "verified": bundle.signed_by is not None,
        "bundle": bundle_json(bundle),
        "signed_by": _signed_by_json(bundle),
        "images": [
            {
                "reference": entry.reference,
                "name": entry.name,
                "digest": entry.digest,
                "source_digest": entry.source_digest,
                "media_type": entry.media_type,
                "platform": entry.platform,
                "blobs": len(entry.blobs),
                "size_bytes": size_bytes,
            }
            for entry, size_bytes in zip(manifest.images, image_sizes(manifest), strict=True)
        ],
        "artifacts": [
            {
                "name": artifact.name,
                "size_bytes": artifact.size,
                "chunks": [{"name": chunk.name, "size_bytes": chunk.size} for chunk in artifact.chunks],
            }
            for artifact in manifest.artifacts
        ],
        "failed": [
            {"reference": entry.reference, "error": entry.error, "message": entry.message} for entry in manifest.failed
        ],
        "faults": [fault.as_json() for fault in bundle.file_faults],
        "notes": bundle.notes,
    }


def bundle_json(bundle: VerifiedBundle) -> dict[str, object]:
    """The bundle itself, as every document shows it."""
    manifest = bundle.manifest
    return {
        "folder": path_text(bundle.directory.folder),
        "bundle_id": manifest.bundle_id,
        "exporter": manifest.exporter,
        "destination": manifest.destination,
        "sequence": manifest.sequence,
        "previous": manifest.previous,
        "created": manifest.created,
        "tool": manifest.tool,
        "checksums": str(bundle.checksums_digest),
    }


def _signed_by_json(bundle: VerifiedBundle) -> dict[str, str] | None:
    signed_by = bundle.signed_by
    if signed_by is None:
        return None
    return {
        "principal": signed_by.principal,
        "fingerprint": signed_by.fingerprint,
        "key_type": signed_by.key_type,
        "file": signed_by.file_name,
    }


def image_sizes(manifest: BundleManifest) -> list[int]:
    """How many bytes each image's blobs have together, shared ones included, in the order of the images."""
    sizes = {blob.digest: blob.size for blob in manifest.blobs}
    return [sum(sizes[digest] for digest in entry.blobs) for entry in manifest.images]


def moment(when: datetime) -> str:
    """A UTC time as documents write it."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")
