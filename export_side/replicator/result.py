"""What a run of the replicator came to."""

from __future__ import annotations

from dataclasses import dataclass, field

from transload.export_side.replicator.names import Candidate
from transload.export_side.selection import Failure
from transload.shared.errors import EXIT_DONE, EXIT_PARTIAL, raise_all
from transload.shared.image import Image


@dataclass(slots=True)
class ReplicationResult:
    """What a run came to.

    Attributes:
        planned: What was to be fetched or pushed.
        tars: Names of the files that were written.
        pushed: References that were put at the other registry, or were there.
        kept: Images that went into the local Docker.
        unchanged: Images of which nothing was missing.
        failures: What was asked for and is not there, and why.
        notes: What a person should know.
        problems: Entries of NGC's catalogue that could not be read.
    """

    planned: dict[Candidate, Image] = field(default_factory=dict)
    tars: list[str] = field(default_factory=list)
    pushed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    unchanged: list[Candidate] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0, or 3 where something of what was asked for is missing."""
        return EXIT_PARTIAL if self.failures else EXIT_DONE

    def raise_if_nothing_went_well(self) -> None:
        """Where everything failed, the reason is the program's own.

        Raises:
            TransloadError: The only one, or `Faults` of all.
        """
        if not (self.tars or self.pushed or self.kept or self.unchanged):
            raise_all([failure.error for failure in self.failures])
