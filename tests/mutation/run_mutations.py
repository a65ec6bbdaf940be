"""`make mutate`: breaks the source in small ways, one at a time, and sees the named test go red.

mutations.yml beside this file is the table. Nothing in this tree is touched: each worker has a copy and an
environment of its own. Ends with 1 if a mutation survives, if its old text is not found exactly once, or if a named
test is not green to begin with.

    python tests/mutation/run_mutations.py [--point N] [--match TEXT] [--jobs N]
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("mutations.yml")
POINTS = {
    1: "layout first, then fill",
    2: "any registry",
    3: "the archive is what others read",
    4: "import to Docker",
    5: "import to a registry",
    6: "verified before used",
    7: "state.yml on both sides",
    8: "killed and rerun",
    9: "offline means offline",
    10: "a person watches it",
    11: "ngc_replicator",
    12: "images by rules, from NGC or not",
    13: "repeatable runs",
    14: "descriptions travel",
}
TEST_SECONDS = 600
_NOT_COPIED = (".git", ".venv*", ".mypy_cache", ".mypy_path", ".ruff_cache", ".pytest_cache", ".hypothesis", ".demo",
               ".test-cache", "__pycache__", "build", "*.egg-info")  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """One line of the table.

    Attributes:
        point: Number of the promise that it attacks (POINTS).
        protects: What would go wrong for a person.
        file: Source file, from the root.
        old: Text that is there exactly once.
        new: What it becomes.
        tests: Node ids, of which at least one must fail.
    """

    point: int
    protects: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def fault(self) -> str:
        """What is wrong with this line, or nothing."""
        path = ROOT / self.file
        if not path.is_file():
            return f"{self.file} does not exist"
        count = path.read_text().count(self.old)
        if count != 1:
            return f"the old text is found {count} times in {self.file}: {self.old!r}"
        missing = [test for test in self.tests if not (ROOT / test.partition("::")[0]).is_file()]
        return f"no such test: {missing[0]}" if missing else ""


def load_table() -> list[Mutation]:
    """The checked-in table."""
    entries: list[dict[str, Any]] = yaml.safe_load(TABLE.read_text())
    return [Mutation(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


class Workshop:
    """A copy of the tree with an environment in which `transload` is that copy.

    Args:
        folder: Made here.
    """

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        shutil.copytree(ROOT, self.tree, ignore=shutil.ignore_patterns(*_NOT_COPIED), symlinks=True)
        if (ROOT / ".test-cache").is_dir():
            (self.tree / ".test-cache").symlink_to(ROOT / ".test-cache")
        links = folder / "path" / "transload"
        links.mkdir(parents=True)
        for package in ("export_side", "import_side", "shared", "manifests"):
            (links / package).symlink_to(self.tree / package)
        self._bin = self._environment(folder / "venv", links.parent)

    @staticmethod
    def _environment(folder: Path, links: Path) -> Path:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        packages = next((folder / "lib").glob("python3.*/site-packages"))
        ours = next((Path(sys.prefix) / "lib").glob("python3.*/site-packages"))
        # Plain lines: the .pth files over there, which would bring the original back, are not read.
        (packages / "workshop.pth").write_text(f"{links}\n{ours}\n")
        script = folder / "bin" / "transload"
        script.write_text(
            f"#!{folder / 'bin' / 'python'}\n"
            "import sys\nfrom transload.shared.command_line import main\nsys.exit(main())\n"
        )
        script.chmod(0o755)
        return folder / "bin"

    def run_tests(
        self, tests: Sequence[str], *options: str, most_seconds: float = TEST_SECONDS
    ) -> tuple[int | None, str]:
        """Run tests in the copy.

        Args:
            tests: Node ids.
            options: Further ones for pytest.
            most_seconds: After that they are stopped: a mutation may well make something wait for ever.

        Returns:
            pytest's exit code, None after too long a time; and the end of what it said.
        """
        environment = {**os.environ, "PATH": f"{self._bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
                       "PYTHONDONTWRITEBYTECODE": "1", "TRANSLOAD_REQUIRE_ENGINES": "1"}  # fmt: skip
        environment.pop("PYTHONPATH", None)
        command = [str(self._bin / "python"), "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [*command, *options, *tests], cwd=self.tree, env=environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                code: int | None = process.wait(most_seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            output.seek(0)
            return code, output.read().decode(errors="replace")[-3000:]

    def try_mutation(self, mutation: Mutation) -> tuple[str, str]:
        """Break the copy, run the tests, mend the copy.

        Returns:
            `caught`, `survived` or `broken` (the tests could not even run), and the end of pytest's output.
        """
        path = self.tree / mutation.file
        original = path.read_text()
        path.write_text(original.replace(mutation.old, mutation.new))
        try:
            code, output = self.run_tests(mutation.tests)
        finally:
            path.write_text(original)
        return {0: "survived", 1: "caught", None: "caught"}.get(code, "broken"), output


def run(mutations: Sequence[Mutation], jobs: int) -> int:
    """Try every mutation; returns the exit code."""
    waiting: queue.SimpleQueue[Mutation] = queue.SimpleQueue()
    for mutation in mutations:
        waiting.put(mutation)
    results: list[tuple[Mutation, str]] = []
    say = threading.Lock()

    def serve(workshop: Workshop) -> None:
        while True:
            try:
                mutation = waiting.get_nowait()
            except queue.Empty:
                return
            begun = time.monotonic()
            verdict, output = workshop.try_mutation(mutation)
            with say:
                results.append((mutation, verdict))
                print(f"{verdict:9}{mutation.point:>3}  {mutation.file:38} {mutation.protects}  "
                      f"[{time.monotonic() - begun:.0f} s]", flush=True)  # fmt: skip
                if verdict != "caught":
                    print(f"    {mutation.old!r}\n -> {mutation.new!r}\n{output}", flush=True)

    with tempfile.TemporaryDirectory(prefix="transload-mutate-") as temporary:
        workshops = [Workshop(Path(temporary) / str(number)) for number in range(jobs)]
        named = sorted({test for mutation in mutations for test in mutation.tests})
        print(f"{len(mutations)} mutations. First the named tests without any:", flush=True)
        code, output = workshops[0].run_tests(
            named, "-n", str(jobs), "--dist", "loadgroup", most_seconds=10 * TEST_SECONDS
        )
        if code != 0:
            print(f"{output}\nThe named tests are not green without any mutation.")
            return 1
        threads = [threading.Thread(target=serve, args=[workshop]) for workshop in workshops]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return summarise(results)


def summarise(results: Sequence[tuple[Mutation, str]]) -> int:
    """Print the figures; returns the exit code."""
    tried = Counter(mutation.point for mutation, _ in results)
    caught = Counter(mutation.point for mutation, verdict in results if verdict == "caught")
    print()
    for point, title in POINTS.items():
        if tried[point]:
            print(f"{point:>3}  {title:34} {caught[point]:>3} of {tried[point]} caught")
    print(f"{sum(caught.values())} of {len(results)} mutations caught")
    return 0 if sum(caught.values()) == len(results) else 1


def main() -> int:
    """Parse, check the table, run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--point", type=int, choices=POINTS, help="only the mutations of this point")
    parser.add_argument("--match", default="", help="only those whose file, tests or reason contain this text")
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    mutations = [
        mutation
        for mutation in load_table()
        if chosen.point in (None, mutation.point)
        and chosen.match in f"{mutation.file} {mutation.protects} {' '.join(mutation.tests)}"
    ]
    faults = [fault for mutation in mutations if (fault := mutation.fault())]
    if faults or not mutations:
        print("\n".join(faults) or "No mutation matches.")
        return 1
    return run(mutations, max(1, min(chosen.jobs, len(mutations))))


if __name__ == "__main__":
    sys.exit(main())
