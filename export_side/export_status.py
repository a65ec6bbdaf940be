"""What `transload status` shows of an exporter's state.yml."""

from __future__ import annotations

from pathlib import Path

from transload.export_side.export_state import ExportState
from transload.shared.errors import PathMissing
from transload.shared.state_file import read_state
from transload.shared.status_command import StatusReport, StatusTable


def report(path: Path) -> StatusReport:
    """The bundles sealed for each destination, and every image's way into them.

    Raises:
        PathMissing: There is no such file.
        StateUnreadable: It cannot be understood.
    """
    state = read_state(path, ExportState)
    if state is None:
        raise PathMissing(f"There is no state file {path}.", path=str(path))
    bundles = [
        (name, record.sequence, bundle, record.created, record.images, record.status)
        for name, destination in state.destinations.items()
        for bundle, record in sorted(destination.bundles.items(), key=lambda item: item[1].sequence)
    ]
    images = [
        (reference, record.platform or "all", record.digest, record.name, record.bundle,
         _image_status(state, record.destination, record.bundle, record.status), record.when)
        for reference, records in state.references.items()
        for record in records
    ]  # fmt: skip
    return StatusReport(
        f"Exporter {state.exporter}, {path}",
        (
            StatusTable("Bundles", ("DESTINATION", "NUMBER", "BUNDLE", "CREATED", "IMAGES", "STATUS"), bundles),
            StatusTable("Images", ("REFERENCE", "PLATFORM", "DIGEST", "NAME", "BUNDLE", "STATUS", "WHEN"), images),
        ),
        state,
    )


def _image_status(state: ExportState, destination: str, bundle: str, status: str) -> str:
    """A sealed image is as far as its bundle is."""
    sent = state.destinations.get(destination)
    record = sent.bundles.get(bundle) if sent else None
    return record.status if status == "sealed" and record else status
