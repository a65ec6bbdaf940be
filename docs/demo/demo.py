"""The main job of transload on this machine, narrated, with nothing installed and without the internet.

Two small registries of the project's own run on loopback: one plays the internet, one the isolated network. Every
command is a real run of `transload`. Everything lies in .demo/. It ends with 1 if anything is not as told.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".demo"
sys.path.insert(0, str(ROOT / "tests" / "support"))

from doubles.image_factory import ImageDouble, LayerDouble, image, index, layer, noise_layer  # noqa: E402
from doubles.scripted_registry import ScriptedRegistry, scripted_registry  # noqa: E402
from doubles.static_program import program  # noqa: E402

WIDTH = 110


@dataclass
class Narrator:
    """Runs commands, says what they do, and remembers whether everything was as told.

    Attributes:
        promises: What was promised and whether it was kept.
        steps: Number of headings so far.
    """

    promises: list[tuple[str, bool]] = field(default_factory=list)
    steps: int = 0

    def step(self, title: str, *lines: str) -> None:
        """A heading and a few words."""
        self.steps += 1
        print(f"\n{'-' * WIDTH}\n{self.steps}. {title}\n{'-' * WIDTH}")
        print("\n".join(lines))

    def run(self, command: str, *, exit_code: int = 0, cwd: Path = FOLDER, stdin: Path = Path(os.devnull)) -> str:
        """Run a command and show it as it would be typed.

        Args:
            command: Split like a shell does; no shell is used.
            exit_code: The one that is right here.
            cwd: Where it runs.
            stdin: What it reads.

        Returns:
            What it printed on stdout.
        """
        print(f"\n  $ {command}{'' if stdin == Path(os.devnull) else f' < {stdin.name}'}", flush=True)
        words = shlex.split(command)
        if words[0] == "transload":
            words[0] = str(Path(sys.executable).with_name("transload"))
        # Should a command forget --state: the state of this machine's own importer is nobody's to touch.
        environment = {**os.environ, "COLUMNS": "160", "TRANSLOAD_IMPORT_STATE": str(FOLDER / "inside" / "state.yml")}
        with stdin.open("rb") as given:
            done = subprocess.run(
                words, cwd=cwd, env=environment, stdin=given, capture_output=True, text=True, check=False
            )
        for line in (done.stdout + done.stderr).splitlines():
            print(f"    {line}")
        print(f"    [exit code {done.returncode}]")
        if done.returncode != exit_code:
            self.promise(f"`{command}` ends with {exit_code}", kept=False)
        return done.stdout

    def promise(self, what: str, *, kept: bool) -> None:
        """Say whether something is as it was told."""
        self.promises.append((what, kept))
        print(f"  {'ok ' if kept else 'NOT SO:'} {what}")

    def summary(self) -> int:
        """Say how it went; returns the exit code."""
        broken = [what for what, kept in self.promises if not kept]
        print(f"\n{'=' * WIDTH}")
        if broken:
            print(f"{len(broken)} of {len(self.promises)} things were not as told:")
            print("\n".join(f"  - {what}" for what in broken))
            return 1
        print(f"All {len(self.promises)} things were as told. Look around in {FOLDER.name}/, or remove it.")
        return 0


@dataclass
class Story:
    """What happens, in order.

    Attributes:
        narrator: Tells it.
        source: The registry that plays the internet.
        target: The registry on the isolated network.
    """

    narrator: Narrator
    source: ScriptedRegistry
    target: ScriptedRegistry

    def tell(self) -> None:
        """From the first key to the second month."""
        self.prepare()
        bundle = self.export()
        self.look_inside(bundle)
        self.damage(bundle)
        carried = self.carry(bundle)
        self.deliver(carried)
        self.a_month_later()
        self.narrator.step(
            "What each side remembers",
            "  Outside: which bundle carries which image. Inside: which bundles were accepted, and what went where.",
        )
        self.narrator.run("transload status --output-path outbox")
        self.narrator.run("transload status --state inside/state.yml")

    @property
    def wanted(self) -> str:
        """What is exported every time."""
        return " ".join(
            f"{self.source.host}/{name}" for name in ("ml/trainer:24.01", "ml/trainer:latest", "tools/viewer:2.3")
        )

    def prepare(self) -> None:
        """Fill the source; make a key."""
        self.narrator.step(
            "Two registries, some images, a key",
            f"  {self.source.host} plays the registry on the internet, {self.target.host} the isolated one.",
            "  trainer:24.01 and trainer:latest are one image of three layers. viewer:2.3 shares its lowest layer and",
            "  exists for two platforms. The line that keygen prints is carried over once, by a way that you trust.",
        )
        for one in release_images():
            self.source.put(one)
        self.narrator.run("transload keygen --output key --principal exporter@demo")
        shutil.copy(FOLDER / "key.allowed_signers", FOLDER / "allowed_signers")
        self.narrator.promise("the key is for nobody else's eyes", kept=(FOLDER / "key").stat().st_mode & 0o077 == 0)

    def export(self) -> Path:
        """Dry run, then the real one."""
        self.narrator.step("What would be exported?", "  Every size is known from the manifests, before a layer moves.")
        command = f"transload export {self.wanted} --output-path outbox --chunk-size 8MiB"
        told = self.narrator.run(f"{command} --dry-run")
        self.narrator.promise("a dry run writes nothing", kept=not (FOLDER / "outbox").exists())
        self.narrator.step(
            "The export", "  Blobs are fetched in parallel, straight to their place in the chunks; then all is signed."
        )
        self.narrator.run(f"{command} --sign-key key")
        bundle = newest_bundle()
        size = sum(path.stat().st_size for path in bundle.iterdir())
        self.narrator.run(f"ls -l {shown(bundle)}")
        self.narrator.promise(
            f"the bundle has exactly the {size:,} bytes of the dry run", kept=f" {size:,} bytes" in told
        )
        return bundle

    def look_inside(self, bundle: Path) -> None:
        """List and verify, also by hand."""
        self.narrator.step(
            "A look inside", "  Without the trust file nobody knows who made the bundle, and that is said."
        )
        self.narrator.run(f"transload list {shown(bundle)}")
        self.narrator.run(f"transload verify {shown(bundle)} --trust allowed_signers --full")
        if shutil.which("ssh-keygen") and shutil.which("sha256sum"):
            print(f"\n  The same by hand, in {shown(bundle)}/, with tools that are approved everywhere:")
            self.narrator.run(
                "ssh-keygen -Y verify -f ../../allowed_signers -I exporter@demo -n transload-bundle -s SHA256SUMS.sig",
                cwd=bundle,
                stdin=bundle / "SHA256SUMS",
            )
            self.narrator.run("sha256sum --check --strict SHA256SUMS", cwd=bundle)

    def damage(self, bundle: Path) -> None:
        """One bit in a chunk, then one in the signed root."""
        damaged = FOLDER / "damaged"
        shutil.copytree(bundle, damaged)
        flip(damaged / "images.tar.0002", 1_000_000)
        self.narrator.step("One flipped bit", "  In a copy of the bundle, one bit of the second chunk is turned.")
        told = self.narrator.run("transload verify damaged --trust allowed_signers", exit_code=63)
        self.narrator.promise(
            "chunk and block are named", kept=bool(re.search(r"images\.tar\.0002 .* 2$", told, re.MULTILINE))
        )
        print("\n  Now one bit of SHA256SUMS itself, which is what the signature is over:")
        flip(damaged / "SHA256SUMS", 5)
        trusting = "--trust allowed_signers"
        self.narrator.run(f"transload verify damaged {trusting}", exit_code=72)
        self.narrator.run(
            f"transload import damaged {trusting} --to registry={self.target.host} --state inside/state.yml",
            exit_code=72,
        )
        self.narrator.promise("nothing of it reached the isolated registry", kept=not self.target.repositories)

    def carry(self, bundle: Path) -> Path:
        """Onto a medium."""
        self.narrator.step(
            "Across the gap",
            "  Copied in order, synced, read back past the page cache and compared. Then somebody carries it.",
        )
        (FOLDER / "stick").mkdir()
        self.narrator.run(f"transload copy {shown(bundle)} stick")
        carried = FOLDER / "stick" / bundle.name
        self.narrator.promise("the medium holds the same bytes", kept=digests(carried) == digests(bundle))
        return carried

    def deliver(self, carried: Path) -> None:
        """Import twice."""
        self.narrator.step(
            "The import: into the isolated registry and into docker-save archives, in one go",
            "  First the signature, every document and the sizes of all files; then each block on its way in.",
            "  The state file is new: from here on this side expects bundles for this destination.",
        )
        command = (
            f"transload import {shown(carried)} --trust allowed_signers --to registry={self.target.host} "
            "--to archive=inside/tars --state inside/state.yml --report inside/report.json"
        )
        (FOLDER / "inside").mkdir(exist_ok=True)
        self.narrator.run(command)
        entries = json.loads((carried / "bundle.json").read_text())["images"]
        for entry in entries:
            path, _, tag = entry["name"].partition("/")[2].rpartition(":")
            found = tag_in(self.target, path, tag)
            self.narrator.promise(f"{self.target.host}/{path}:{tag} has its digest", kept=found == entry["digest"])
        archives = sorted((FOLDER / "inside" / "tars").glob("*.tar"))
        self.narrator.run("ls -l inside/tars")
        complete = len(archives) == len(entries) and all(map(is_docker_archive, archives))
        self.narrator.promise("each archive is one that `docker load` reads, with all that it needs", kept=complete)
        self.narrator.step("The same import again", "  What is there is left alone.")
        before = len(self.target.asked("POST|PATCH|PUT"))
        self.narrator.run(command)
        self.narrator.promise("nothing was uploaded again", kept=len(self.target.asked("POST|PATCH|PUT")) == before)

    def a_month_later(self) -> None:
        """A tag moves; only that is exported, delivered, and reported."""
        self.narrator.step("A month later", "  trainer:latest was built anew. Only that is exported.")
        self.source.put(trainer("ml/trainer:latest", "February"))
        command = f"transload export {self.wanted} --output-path outbox --chunk-size 8MiB --sign-key key"
        self.narrator.run(command)
        second = newest_bundle()
        names = [entry["name"] for entry in json.loads((second / "bundle.json").read_text())["images"]]
        self.narrator.promise(
            "the second bundle holds that image alone", kept=names == [f"{self.source.host}/ml/trainer:latest"]
        )
        trusting = "--trust allowed_signers --state inside/state.yml"
        self.narrator.run(f"transload import {shown(second)} {trusting} --to registry={self.target.host}")
        moved = tag_in(self.target, "ml/trainer", "latest") == tag_in(self.source, "ml/trainer", "latest")
        kept = tag_in(self.target, "ml/trainer", "24.01") == tag_in(self.source, "ml/trainer", "24.01")
        self.narrator.promise(
            "trainer:latest has moved on the isolated side, trainer:24.01 has not", kept=moved and kept
        )
        self.narrator.run(command)
        self.narrator.promise("without anything new no bundle is made", kept=newest_bundle() == second)


def release_images() -> list[ImageDouble]:
    """What the source has at first: real images, which run on x86-64, the same bytes every time."""
    first = trainer("ml/trainer:24.01", "January")
    machines = [
        image("viewer", [base(), greeting("viewer")], command=("/app/main",)),
        image("viewer", [noise_layer("demo-arm64", 1_000_000), greeting("viewer")], platform="linux/arm64"),
    ]
    return [first, first.renamed("ml/trainer:latest"), index("tools/viewer:2.3", machines)]


def trainer(reference: str, month: str) -> ImageDouble:
    """An image of three layers: the base, libraries, the program of that month."""
    layers = [base(), noise_layer("demo-libraries", 6_000_000), greeting(f"trainer of {month}")]
    return image(reference, layers, command=("/app/main",))


def base() -> LayerDouble:
    """The large lowest layer that the images share."""
    return noise_layer("demo-base", 9_000_000)


def greeting(text: str) -> LayerDouble:
    """A layer with a program."""
    return layer({"app/main": program(f"Hello from {text}.\n"), "etc/motd": f"{text}\n".encode()})


def newest_bundle() -> Path:
    """The bundle with the highest number in the outbox."""
    bundles = (path for path in (FOLDER / "outbox").iterdir() if re.fullmatch(r"default-\d{4}-.*", path.name))
    return max(bundles)


def shown(path: Path) -> str:
    """A path as it is typed in .demo/."""
    return str(path.relative_to(FOLDER))


def flip(path: Path, offset: int) -> None:
    """Turn one bit."""
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def digests(folder: Path) -> dict[str, str]:
    """The content of a folder of files."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def tag_in(registry: ScriptedRegistry, path: str, tag: str) -> str | None:
    """What a tag stands for in a registry."""
    repository = registry.repositories.get(path)
    return repository.tags.get(tag) if repository else None


def is_docker_archive(path: Path) -> bool:
    """Whether a tar has what `docker load` looks for, and all of it."""
    with tarfile.open(path) as archive:
        names = set(archive.getnames())
        member = archive.extractfile("manifest.json")
        entries: list[dict[str, Any]] = json.load(member) if member else []
        return bool(entries) and all({*entry["Layers"], entry["Config"]} <= names for entry in entries)


def main() -> int:
    """Tell the story from an empty folder."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    print(__doc__)
    narrator = Narrator()
    with scripted_registry() as source, scripted_registry() as target:
        Story(narrator, source, target).tell()
    return narrator.summary()


if __name__ == "__main__":
    sys.exit(main())
