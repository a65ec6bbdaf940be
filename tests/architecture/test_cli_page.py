"""docs/cli.md, run: every example in order, in one folder, each with the exit code that is written below it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.image_factory import LayerDouble, image, index, noise_layer
from doubles.scripted_registry import ScriptedRegistry, scripted_registry

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
EXAMPLE = re.compile(r"^```console\n(.*?)^```\nExit code: (\d+)$", re.DOTALL | re.MULTILINE)
SOURCE, TARGET = "localhost:5000", "localhost:5001"

pytestmark = pytest.mark.slow


@pytest.fixture
def registries() -> Iterator[tuple[ScriptedRegistry, ScriptedRegistry]]:
    with scripted_registry() as source, scripted_registry() as target:
        yield source, target


def fill(source: ScriptedRegistry) -> None:
    """What the page takes for granted at its source."""
    base = noise_layer("page-base", 6_000_000)
    machines = [
        image("x", [base, noise_layer("page-amd64", 100_000)]),
        image("x", [noise_layer("page-arm64", 100_000)], platform="linux/arm64"),
    ]
    source.put(image("ml/trainer:24.01", [base, noise_layer("page-trainer")]))
    source.put(image("ml/trainer:23.12", [base]))
    source.put(image("ml/other:1.0", [noise_layer("page-other")]))
    source.put(index("tools/viewer:2.3", machines))


def push_latest(source: ScriptedRegistry, layer: LayerDouble) -> None:
    source.put(image("ml/trainer:latest", [noise_layer("page-base", 6_000_000), layer]))


class Shell:
    """Runs lines of the page.

    Args:
        folder: Where.
        hosts: What the page's hosts are called here.
    """

    def __init__(self, folder: Path, hosts: dict[str, str]) -> None:
        self.folder, self.hosts = folder, hosts

    def run(self, line: str) -> int:
        for there, here in self.hosts.items():
            line = line.replace(there, here)
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env={**os.environ, "PATH": programs}, check=False,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        print(f"$ {line}\n{done.stdout}{done.stderr}[{done.returncode}]")
        return done.returncode


def test_every_example_does_what_the_page_says(
    registries: tuple[ScriptedRegistry, ScriptedRegistry], tmp_path: Path
) -> None:
    source, target = registries
    fill(source)
    shell = Shell(tmp_path, {SOURCE: source.host, TARGET: target.host})
    for folder in ("stick", "inside"):
        (tmp_path / folder).mkdir()
    list_of_images = next(block for block, _ in EXAMPLE.findall(PAGE) if "$ cat images.yml" in block)
    text = list_of_images.partition("$ cat images.yml\n")[2].partition("$ ")[0]
    (tmp_path / "images.yml").write_text(text.replace(SOURCE, source.host))
    for block, expected in EXAMPLE.findall(PAGE):
        if "ml/trainer:latest" in block and "fail" in block:
            push_latest(source, noise_layer("page-latest-1"))
            assert (
                shell.run(f"transload export {SOURCE}/ml/trainer:latest --output-path outbox --sign-key exporter.key")
                == 0
            )
            assert (
                shell.run(
                    f"transload import outbox/default-0003-* --trust exporter.key.allowed_signers "
                    f"--to registry={TARGET}/mirror --state inside/state.yml"
                )
                == 0
            )
            push_latest(source, noise_layer("page-latest-2"))
        commands = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
        codes = [shell.run(command) for command in commands]
        assert codes == [0] * (len(codes) - 1) + [int(expected)], block
    delivered = {"mirror/ml/trainer", "mirror/ml/other", "mirror/tools/viewer", "apps/tools/viewer"}
    assert set(target.repositories) == delivered


def test_the_page_has_ten_examples_and_each_states_its_exit_code() -> None:
    sections = re.split(r"^## \d+\. ", PAGE, flags=re.MULTILINE)[1:]
    assert len(sections) == 10
    assert all(EXAMPLE.search(section) for section in sections)
    assert len(EXAMPLE.findall(PAGE)) == PAGE.count("```console")
