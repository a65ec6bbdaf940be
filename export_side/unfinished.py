"""Unfinished bundles: `OUTPUT/.unfinished/<bundle-id>/` with `<bundle-id>.journal` beside it.

The journal is made before the folder and removed after it, so a folder without one is a leftover.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from transload.export_side.export_state import ExportState
from transload.export_side.journal import SUFFIX, BundleIdentity, Journal
from transload.export_side.plan import ExportPlan
from transload.shared.atomic_files import fault_point, reporting_write_errors, sync_directory

FOLDER_NAME = ".unfinished"

_BUNDLE_ID = re.compile(r"(.+)-[0-9]{4,}-[0-9]{8}-[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class UnfinishedBundles:
    """The unfinished bundles below one output folder; at most one for each destination.

    Args:
        output_path: Where sealed bundles and state.yml are.
    """

    output_path: Path

    @property
    def parent(self) -> Path:
        """The folder that they are all in."""
        return self.output_path / FOLDER_NAME

    def folder(self, bundle_id: str) -> Path:
        """Where a bundle lies while it is unfinished."""
        return self.parent / bundle_id

    def journal_path(self, bundle_id: str) -> Path:
        """Where its journal is."""
        return self.parent / f"{bundle_id}{SUFFIX}"

    def ids(self) -> dict[str, str]:
        """The ids of all that have a journal, each with its destination."""
        names = sorted(path.name.removesuffix(SUFFIX) for path in self.parent.glob(f"*{SUFFIX}"))
        return {match[0]: match[1] for name in names if (match := _BUNDLE_ID.fullmatch(name))}

    def find(self, destination: str) -> str | None:
        """Id of the unfinished bundle for a destination, if there is one."""
        return next((bundle_id for bundle_id, whose in self.ids().items() if whose == destination), None)

    def is_sealed(self, bundle_id: str, destination: str, state: ExportState) -> bool:
        """Whether a bundle with a journal has its final name, or the state knows it: the run was killed after that."""
        known = state.destinations.get(destination)
        if known is not None and bundle_id in known.bundles:
            return True
        return not self.folder(bundle_id).exists() and (self.output_path / bundle_id).is_dir()

    def begin(self, fingerprint: str, identity: BundleIdentity, plan: ExportPlan) -> Journal:
        """Freeze a plan; from now on a rerun continues it.

        Raises:
            WriteFailed, NotEnoughSpace: Nothing was begun.
        """
        with reporting_write_errors(self.parent):
            self.parent.mkdir(exist_ok=True)
        self._remove_folder(identity.bundle_id)
        journal = Journal.create(self.journal_path(identity.bundle_id), fingerprint, identity, plan)
        sync_directory(self.output_path)
        return journal

    def discard(self, bundle_id: str) -> None:
        """Throw an unfinished bundle away.

        Raises:
            WriteFailed: What the operating system said.
        """
        self._remove_folder(bundle_id)
        self.forget(bundle_id)

    def forget(self, bundle_id: str) -> None:
        """Remove the journal of a bundle that is sealed or gone.

        Raises:
            WriteFailed: What the operating system said.
        """
        path = self.journal_path(bundle_id)
        with reporting_write_errors(path):
            fault_point(f"remove {path.name}")
            path.unlink(missing_ok=True)
            for leftover in self.parent.glob(f".*{SUFFIX}.*.tmp"):  # of a run that was killed while it wrote one;
                leftover.unlink()  # nobody else writes any now, because the state's lock is held
            if self.parent.exists() and not any(self.parent.iterdir()):
                self.parent.rmdir()

    def _remove_folder(self, bundle_id: str) -> None:
        folder = self.folder(bundle_id)
        with reporting_write_errors(folder):
            if folder.exists():
                fault_point(f"remove {folder.name}")
                shutil.rmtree(folder)
