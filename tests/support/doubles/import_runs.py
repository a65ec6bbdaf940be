"""Imports in this process: the importer as the command calls it, with what a test does not care about filled in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from doubles.signer import Signer
from transload.import_side.import_state import ImportState
from transload.import_side.importer import ImportRequest, ImportResult, import_bundle
from transload.import_side.sinks.folders import LOCK_NAME
from transload.import_side.targets import TargetSpec, open_targets
from transload.import_side.verified_bundle import VerifiedBundle
from transload.shared.progress import SilentProgress
from transload.shared.registry.options import RegistryDirectory
from transload.shared.signing.allowed_signers import AllowedSigners
from transload.shared.state_file import read_state
from transload.shared.workers import Stop

AT = datetime(2024, 6, 1, tzinfo=timezone.utc)


def trust(*signers: Signer) -> AllowedSigners:
    """A trust file with these signers, or the default one."""
    lines = "".join(signer.trust_line() for signer in signers or (Signer(),))
    return AllowedSigners.parse(lines.encode(), "trust")


def open_bundle(folder: Path, **options: Any) -> VerifiedBundle:
    """Checks 1 to 4 with the default signer trusted."""
    return VerifiedBundle.open(folder, **{"trust": trust(), "at": AT, **options})


def run_import(
    folder: Path,
    state: Path,
    *to: str,
    policy: Any = "overwrite",
    keep_host: bool = False,
    registries: RegistryDirectory | None = None,
    warnings: list[str] | None = None,
    jobs: int = 2,
    **options: Any,
) -> ImportResult:
    """One import.

    Args:
        folder: The bundle.
        state: state.yml.
        to: `--to` values.
        policy: `--on-existing-tag`.
        keep_host: `--keep-host`.
        registries: Logins and certificates.
        warnings: Gets what the run warned of.
        jobs: Number of threads.
        options: Further fields of `ImportRequest`.
    """
    stop = Stop()
    request = ImportRequest(
        folder=folder, state_path=state, **{"trust": trust(), "at": AT, "signer": None, "jobs": jobs, **options}
    )
    with open_targets(
        [TargetSpec.parse(text) for text in to],
        registries=registries or RegistryDirectory.plain(),
        policy=policy,
        keep_host=keep_host,
        jobs=jobs,
        stop=stop,
    ) as targets:
        told = warnings if warnings is not None else []
        return import_bundle(request, targets, stop=stop, progress=SilentProgress(), warn=told.append)


def actions(result: ImportResult) -> list[str]:
    """What became of each image: the action, or the error's name."""
    found = []
    for one in result.outcomes:
        if one.error is not None:
            found.append(one.error.reference)
        elif one.delivery is not None:
            found.append(one.delivery.action)
    return found


def state_of(path: Path) -> ImportState:
    """The state that a run left."""
    state = read_state(path, ImportState)
    assert state is not None
    return state


def names(folder: Path) -> Sequence[str]:
    """What lies in a folder, hidden files too but for the lock; nothing if there is no folder."""
    return sorted({path.name for path in folder.iterdir()} - {LOCK_NAME}) if folder.exists() else []
