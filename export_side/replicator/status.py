"""What `transload status` shows of a replicator's state.yml."""

from __future__ import annotations

from pathlib import Path

from transload.export_side.replicator.state import ReplicaRecord, ReplicatorState
from transload.shared.errors import PathMissing
from transload.shared.state_file import read_state
from transload.shared.status_command import StatusReport, StatusTable

_COLUMNS = ("IMAGE", "TAG", "DIGEST", "TAR", "REGISTRIES", "WHEN")


def report(path: Path) -> StatusReport:
    """Every image that the replicator has.

    Raises:
        PathMissing: There is no such file.
        StateUnreadable: It cannot be understood.
    """
    state = read_state(path, ReplicatorState)
    if state is None:
        raise PathMissing(f"There is no state file {path}.", path=str(path))
    rows = [_row(name, tag, record) for name, tags in state.images.items() for tag, record in tags.items()]
    return StatusReport(f"ngc_replicator, {path}", (StatusTable("Images", _COLUMNS, rows),), state)


def _row(name: str, tag: str, record: ReplicaRecord) -> tuple[str, ...]:
    tar = record.tar or ("by the old replicator" if record.from_old_tool else "")
    return name, tag, record.digest, tar, ", ".join(record.registries), record.when
