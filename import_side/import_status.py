"""What `transload status` shows of an importer's state.yml."""

from __future__ import annotations

from pathlib import Path

from transload.import_side.import_state import ImportState
from transload.shared.errors import PathMissing
from transload.shared.state_file import read_state
from transload.shared.status_command import StatusReport, StatusTable

_FAILURES = "Failures (one goes when its image is delivered there, or take it out of the file)"


def report(path: Path) -> StatusReport:
    """The bundles accepted, what each target holds of them, and what failed.

    Raises:
        PathMissing: There is no such file.
        StateUnreadable: It cannot be understood.
    """
    state = read_state(path, ImportState)
    if state is None:
        raise PathMissing(f"There is no state file {path}.", path=str(path))
    bundles = [
        (bundle, seen.sequence, exporter[:8], seen.signed_by, seen.first_seen, seen.status)
        for exporter, record in state.exporters.items()
        for bundle, seen in sorted(record.bundles.items(), key=lambda item: item[1].sequence)
    ]
    deliveries = [
        (sink, target, record.digest, record.bundle, record.when)
        for sink, targets in state.deliveries.items()
        for target, record in targets.items()
    ]
    failures = [
        (sink, target, record.bundle, record.error, record.message, record.when)
        for sink, targets in state.failures.items()
        for target, record in targets.items()
    ]
    pinned = f"destination {state.destination!r}" if state.destination else "no destination yet"
    return StatusReport(
        f"Importer for {pinned}, {path}",
        (
            StatusTable("Bundles", ("BUNDLE", "NUMBER", "EXPORTER", "SIGNED BY", "FIRST SEEN", "STATUS"), bundles),
            StatusTable("Deliveries", ("SINK", "REFERENCE", "DIGEST", "BUNDLE", "WHEN"), deliveries),
            StatusTable(_FAILURES, ("SINK", "REFERENCE", "BUNDLE", "ERROR", "MESSAGE", "WHEN"), failures),
        ),
        state,
    )
