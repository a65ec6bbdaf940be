"""Runs of `ngc_replicator` for tests: the real program in a process of its own, led to the NGC double."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from doubles.ngc import NgcDouble
from transload.export_side.replicator.state import ReplicaRecord, ReplicatorState
from transload.shared.state_file import read_state

KILL_SCRIPT = """
import os, signal, sys
from transload.shared.atomic_files import FaultPoints
from transload.export_side.replicator.cli import main

where, count = sys.argv.pop(1), int(sys.argv.pop(1))

def reached(name):
    global count
    count -= where in name
    if where in name and count == 0:
        os.kill(os.getpid(), signal.SIGKILL)

FaultPoints.reached = reached
main()
"""
"""`ngc_replicator`, killed at the n-th durable step whose name has some text in it."""

_PROGRAM = "from transload.export_side.replicator.cli import main; main()"


@dataclass
class ReplicatorRuns:
    """Runs into one output folder.

    Attributes:
        ngc: The services.
        output: The output folder.
        environment: Variables beside those that lead to the double.
    """

    ngc: NgcDouble
    output: Path
    environment: dict[str, str] = field(default_factory=dict)

    def start(
        self, *arguments: str, kill_at: tuple[str, int] | None = None, below: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """Start the program; its output folder comes from the environment.

        Args:
            arguments: Its own.
            kill_at: Part of the name of the durable step at which it kills itself, and at which of them.
            below: A program that starts it, such as strace.
        """
        script = [KILL_SCRIPT, kill_at[0], str(kill_at[1])] if kill_at else [_PROGRAM]
        return subprocess.Popen(
            [*below, sys.executable, "-c", *script, *arguments],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(
        self, *arguments: str, kill_at: tuple[str, int] | None = None, below: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run the program to its end."""
        process = self.start(*arguments, kill_at=kill_at, below=below)
        output, errors = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    @property
    def state_path(self) -> Path:
        return self.output / "state.yml"

    def records(self) -> Mapping[str, Mapping[str, ReplicaRecord]]:
        """What state.yml says of the images, NGC's registry left out of their names."""
        state = read_state(self.state_path, ReplicatorState)
        assert state is not None
        return {name.removeprefix(f"{self.ngc.registry.host}/"): tags for name, tags in state.images.items()}

    def tar(self, path: str, tag: str) -> Path:
        """Where the docker-save file of one of NGC's images must be."""
        return self.output / f"docker_image_{self.ngc.registry.host}%%{path.replace('/', '%%')}:{tag}.tar"

    def files(self) -> list[str]:
        """Names of all files in the output folder, state and its companions left out."""
        return sorted(file.name for file in self.output.iterdir() if not file.name.startswith("state.yml"))

    def blob_reads(self) -> int:
        """How many blobs the registry was asked for."""
        return len(self.ngc.registry.asked("GET", "/blobs/"))

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NGC_", "TRANSLOAD_"))}
        nobody = {
            "DOCKER_HOST": f"unix://{self.output}/no-docker.sock",
            "DOCKER_CONFIG": str(self.output / "no-config"),
        }
        output = {"NGC_REPLICATOR_OUTPUT_PATH": str(self.output)}
        return {**kept, **nobody, **output, **self.ngc.environment, **self.environment}
