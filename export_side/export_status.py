"""What `transload status` shows of an exporter's state.yml."""

from __future__ import annotations

from pathlib import Path

import msgspec

from transload.export_side.export_state import ExportState
from transload.export_side.journal import Journal
from transload.export_side.unfinished import UnfinishedBundles
from transload.shared.errors import PathMissing, TransloadError
from transload.shared.sizes import format_size
from transload.shared.state_file import read_state
from transload.shared.status_command import StatusReport, StatusTable


class UnfinishedReport(msgspec.Struct, kw_only=True):
    """A bundle that a run began and did not finish.

    Attributes:
        bundle: Its id.
        destination: Whom it is for.
        references: What it was asked for.
        placed_bytes: How much is in place.
        total_bytes: Of so many.
        problem: Why its journal cannot be read; empty if it can.
    """

    bundle: str
    destination: str
    references: list[str] = msgspec.field(default_factory=list)
    placed_bytes: int = 0
    total_bytes: int = 0
    problem: str = ""

    @property
    def progress(self) -> str:
        """How far it is, for people."""
        return f"{format_size(self.placed_bytes)} of {format_size(self.total_bytes)}"


class ExportStatus(ExportState, kw_only=True):
    """state.yml, and what lies beside it.

    Attributes:
        unfinished: The bundles that the next run of the same request goes on with.
    """

    unfinished: list[UnfinishedReport]


def report(path: Path) -> StatusReport:
    """The bundles sealed for each destination, every image's way into them, and what is unfinished.

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
    unfinished = _unfinished(path.parent, state)
    begun = [
        (one.destination, one.bundle, one.problem or one.progress, reference)
        for one in unfinished
        for reference in one.references or [""]
    ]
    return StatusReport(
        f"Exporter {state.exporter}, {path}",
        (
            StatusTable("Bundles", ("DESTINATION", "NUMBER", "BUNDLE", "CREATED", "IMAGES", "STATUS"), bundles),
            StatusTable("Images", ("REFERENCE", "PLATFORM", "DIGEST", "NAME", "BUNDLE", "STATUS", "WHEN"), images),
            StatusTable("Unfinished", ("DESTINATION", "BUNDLE", "IN PLACE", "ASKED FOR"), begun),
        ),
        ExportStatus(**{name: getattr(state, name) for name in state.__struct_fields__}, unfinished=unfinished),
    )


def _unfinished(output_path: Path, state: ExportState) -> list[UnfinishedReport]:
    bundles, found = UnfinishedBundles(output_path), []
    for bundle_id, destination in bundles.ids().items():
        if bundles.is_sealed(bundle_id, destination, state):
            continue
        one = UnfinishedReport(bundle=bundle_id, destination=destination)
        found.append(one)
        try:
            journal = Journal.read(bundles.journal_path(bundle_id))
        except TransloadError as error:
            one.problem = error.message
            continue
        one.references = journal.asked_for
        one.placed_bytes, one.total_bytes = sum(journal.placed_bytes.values()), journal.plan.blob_bytes
    return found


def _image_status(state: ExportState, destination: str, bundle: str, status: str) -> str:
    """A sealed image is as far as its bundle is."""
    sent = state.destinations.get(destination)
    record = sent.bundles.get(bundle) if sent else None
    return record.status if status == "sealed" and record else status
