"""One bundle, made by the exporter from a real registry, that this folder looks at with other people's tools."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from doubles.bundle_factory import write_trust
from doubles.export_runs import ExportRuns
from doubles.image_factory import ImageDouble, LayerDouble, image, index, layer, noise_layer
from doubles.registries import plain_registry
from doubles.static_program import program


@dataclass(frozen=True)
class Carried:
    """A bundle and what is known of its content by other means.

    Attributes:
        folder: The bundle.
        images: What it was made from, under the names that they have in it.
        trust: An allowed_signers file that trusts its signer.
        joined: Its chunks in one file, as `cat images.tar.*` joins them.
    """

    folder: Path
    images: tuple[ImageDouble, ...]
    trust: Path
    joined: Path

    @property
    def tagged(self) -> tuple[ImageDouble, ...]:
        """The images whose name has a tag: the others cannot be asked for in an archive."""
        return tuple(one for one in self.images if one.image.name.tag)


def assorted_images() -> list[ImageDouble]:
    """Every kind of image that Docker 20.10 can load, sharing layers and tags; each can be run and says its name."""
    base = noise_layer("base", 5_000_000)
    plain = noise_layer("plain", 1_500_000, "")

    def runnable(name: str) -> LayerDouble:
        return layer({"say": program(f"{name}\n")})

    machines = [
        image("x", [noise_layer("arm64", 400_000)], platform="linux/arm64"),
        image("x", [noise_layer("amd64", 600_000), runnable("multi")], command=["/say"]),
    ]
    docker_machines = [
        image("x", [base, runnable("list")], command=["/say"], docker=True),
        image("x", [noise_layer("arm32", 300_000)], platform="linux/arm/v7", docker=True),
    ]
    return [
        image("registry.example/team/first:1.0", [base, noise_layer("first", 4_500_000), runnable("first")],
              command=["/say"]),
        # The tag of another repository: a bare tag in index.json would collide.
        image("registry.example/team/second:1.0", [base, plain, runnable("second")], command=["/say"], docker=True),
        # The same layer twice.
        image("registry.example/deep/er/path/repeated:v1.2_x", [plain, base, plain, runnable("repeated")],
              command=["/say"], docker=True),
        index("registry.example/team/multi:3.0", machines, attestation=True),
        index("registry.example/team/list:4.0", docker_machines, docker=True),
    ]  # fmt: skip


@pytest.fixture(scope="session")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Carried:
    base = tmp_path_factory.mktemp("carried")
    with plain_registry(base / "registry") as registry:
        images = [one.renamed(registry.put(one)) for one in assorted_images()]
        by_digest = image("registry.example/team/untagged:x", [noise_layer("untagged", 2000)])
        name = registry.put(by_digest).rpartition(":")[0] + f"@{by_digest.image.digest}"
        images.append(by_digest.renamed(name))
        runs = ExportRuns(base / "out")
        done = runs.call(*(str(one.image.reference) for one in images), "--all-platforms")
        assert done.returncode == 0, done.stderr
    (folder,) = runs.bundles()
    joined = base / "joined.tar"
    with joined.open("wb") as file:
        for chunk in sorted(folder.glob("images.tar.[0-9]*")):
            file.write(chunk.read_bytes())
    return Carried(folder, tuple(images), write_trust(base / "allowed_signers", runs.signer), joined)


@pytest.fixture
def spoilable(carried: Carried, tmp_path: Path) -> Carried:
    """A copy of the bundle that the test may change."""
    folder = shutil.copytree(carried.folder, tmp_path / "bundle")
    return Carried(folder, carried.images, carried.trust, carried.joined)
