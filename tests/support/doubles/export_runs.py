"""Exports for tests: the real exporter, in this process or as the real command, and what came of it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from doubles.signer import Signer
from transload.export_side.export_state import ExportState
from transload.export_side.exporter import Exporter
from transload.export_side.request import ExportRequest
from transload.export_side.result import ExportResult
from transload.manifests import bundle_manifest
from transload.manifests.bundle_manifest import BundleManifest
from transload.manifests.image_list import ListedImage, ListEntry, PlatformChoice
from transload.shared.limits import BLOCK_SIZE_BYTES
from transload.shared.platforms import DEFAULT_PLATFORM
from transload.shared.progress import SilentProgress
from transload.shared.references import Reference
from transload.shared.registry.options import RegistryDirectory
from transload.shared.state_file import encode_state
from transload.shared.workers import Stop

EXPORTER_ID = "fedcba9876543210" * 2
CLOCK = datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc)

KILL_SCRIPT = """
import os, signal, sys
from transload.shared.atomic_files import FaultPoints
from transload.shared.command_line import main

counter, killer, log = 0, sys.argv.pop(1), sys.argv.pop(1)

def reached(name):
    global counter
    counter += 1
    with open(log, "a") as file:
        file.write(name + "\\n")
    if killer == str(counter) or (not killer.isdigit() and killer in name):
        os.kill(os.getpid(), signal.SIGKILL)

FaultPoints.reached = reached
main()
"""
"""`transload`, killed at its n-th durable step, or at the first one whose name has some text in it."""


@dataclass
class ExportRuns:
    """Exports into one output folder, with a fixed clock, key and exporter id.

    Attributes:
        output: The output folder.
        signer: Whose key signs.
    """

    output: Path
    signer: Signer = field(default_factory=Signer)

    def __post_init__(self) -> None:
        self.output.mkdir(parents=True, exist_ok=True)
        if not self.state_path.exists():
            fresh = ExportState(schema=ExportState.SCHEMA, side=ExportState.SIDE, exporter=EXPORTER_ID)
            self.state_path.write_bytes(encode_state(fresh))
        self.key.parent.mkdir(exist_ok=True)
        self.key.write_bytes(self.signer.private_file)
        self.key.chmod(0o600)

    @property
    def key(self) -> Path:
        """The private key's file, beside the output folder."""
        return self.output.with_name(f"{self.output.name}.keys") / "key"

    @property
    def state_path(self) -> Path:
        return self.output / "state.yml"

    def exporter(
        self,
        *wanted: str | ListEntry,
        platform: PlatformChoice = DEFAULT_PLATFORM,
        destination: str = "default",
        chunk_size_bytes: int = BLOCK_SIZE_BYTES,
        jobs: int = 3,
        again: bool = False,
        restart: bool = False,
    ) -> Exporter:
        """An exporter for these references or list entries."""
        entries = tuple(ListedImage(Reference.parse(one)) if isinstance(one, str) else one for one in wanted)
        return Exporter(
            ExportRequest(entries, platform, destination, chunk_size_bytes),
            self.output,
            RegistryDirectory(environment={}),
            self.signer.sign,
            jobs,
            again,
            restart,
            Stop(),
            SilentProgress(),
            lambda: CLOCK,
        )

    def run(self, *wanted: str | ListEntry, **options: object) -> ExportResult:
        """Export in this process."""
        return self.exporter(*wanted, **options).run()  # type: ignore[arg-type]

    def command(self, *arguments: str) -> list[str]:
        """The real command's arguments after the program's name."""
        return [
            "export", "--output-path", str(self.output), "--sign-key", str(self.key), "--chunk-size", "4MiB", *arguments
        ]  # fmt: skip

    def start(self, *arguments: str, kill_at: int | str = 0, log: Path | None = None) -> subprocess.Popen[str]:
        """Start the real command in a process of its own.

        Args:
            arguments: Beside output folder, key and chunk size.
            kill_at: At which durable step it kills itself, by number or part of its name; 0 for never.
            log: Where the names of its durable steps are written.
        """
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(int(CLOCK.timestamp()))}
        program = [sys.executable, "-c", KILL_SCRIPT, str(kill_at), str(log or os.devnull)]
        return subprocess.Popen(
            [*program, *self.command(*arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(
        self, *arguments: str, kill_at: int | str = 0, log: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the real command to its end."""
        process = self.start(*arguments, kill_at=kill_at, log=log)
        output, errors = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def bundles(self) -> list[Path]:
        """The folders that pass as bundles."""
        return sorted(path for path in self.output.iterdir() if path.is_dir() and not path.name.startswith("."))


def manifest_of(bundle: Path | None) -> BundleManifest:
    """A bundle's bundle.json, read strictly."""
    assert bundle is not None
    return bundle_manifest.decode((bundle / bundle_manifest.FILE_NAME).read_bytes())


def archive_of(bundle: Path | None) -> bytes:
    """images.tar out of its chunks."""
    assert bundle is not None
    return b"".join(path.read_bytes() for path in sorted(bundle.glob("images.tar.*")))


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder and its SHA-256, locks and previous copies left out."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in (".lock", ".previous")
    }


def blob_digests_in(bundle: Path | None) -> Sequence[str]:
    """The digest of what lies at the place of each blob, in the order of bundle.json."""
    archive = archive_of(bundle)
    return [
        f"sha256:{hashlib.sha256(archive[blob.offset : blob.offset + blob.size]).hexdigest()}"
        for blob in manifest_of(bundle).blobs
    ]
