"""The contenders: ours, and what people use instead, each doing the same job with the same images."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus import IMAGES, unique_blobs
from measure import Measured, measure
from services import DOCKER, docker_daemon, registry

TRANSLOAD = (sys.executable, "-m", "transload.shared.command_line")
JOBS = 4


@dataclass(frozen=True)
class Bench:
    """Where everything of one run of the benchmark is.

    Attributes:
        source: The registry that holds the corpus, `127.0.0.1:PORT`.
        work: Scratch folder.
        chosen: Part of a contender's name; others are left out.
    """

    source: str
    work: Path
    chosen: str = ""

    @property
    def bundle(self) -> Path:
        """The bundle that the export made."""
        return next(path for path in (self.work / "export").iterdir() if (path / "SHA256SUMS.sig").exists())

    def fresh(self, name: str) -> Path:
        """An empty folder."""
        folder = self.work / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def take(self, name: str, command: Sequence[str | Path], watch: list[Path], **options: Any) -> Measured:
        """Measure one run, its log beside the others."""
        log = self.work / f"{name.replace(' ', '-').replace('/', '-')}.log"
        return measure(name, command, watch=watch, log=log, **options)


def out(bench: Bench) -> Iterator[Measured]:
    """Registry -> something that can be carried. The first one is what the others are compared with."""
    yield _curl(bench)
    yield _export(bench)
    yield _skopeo_out(bench)
    yield _docker_save(bench)


def back_in(bench: Bench) -> Iterator[Measured]:
    """What was carried -> registry, Docker, files."""
    for contender in (_verify, _import_registry, _skopeo_in, _import_archive, _import_docker, _docker_load):
        yield contender(bench)


def _curl(bench: Bench) -> Measured:
    folder = bench.fresh("curl")
    blobs = unique_blobs(bench.source)
    (folder / "urls").write_text("".join(f'url = "{blob.url}"\noutput = "{blob.digest}"\n' for blob in blobs))
    (folder / "sums").write_text("".join(f"{blob.digest}  {blob.digest}\n" for blob in blobs))
    script = f"curl -sS --fail --location --parallel --parallel-max {JOBS} --config urls && sha256sum --quiet -c sums"
    return bench.take("curl + sha256sum", ["sh", "-c", script], [folder], cwd=folder)


def _export(bench: Bench) -> Measured:
    folder = bench.fresh("export")
    key = bench.work / "key"
    for old in bench.work.glob("key*"):
        old.unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bench@example.org", "-f", key], check=True)
    public = key.with_name("key.pub").read_text()
    (bench.work / "trust").write_text(f'bench@example.org namespaces="transload-bundle" {public}')
    references = [f"{bench.source}/{image}" for image in IMAGES]
    options: list[str | Path] = ["--output-path", folder, "--sign-key", key, "--jobs", str(JOBS)]
    return bench.take("transload export", [*TRANSLOAD, "export", *references, *options], [folder])


def _skopeo_out(bench: Bench) -> Measured:
    folder = bench.fresh("skopeo")
    copies = [
        f"skopeo copy -q --src-tls-verify=false docker://{bench.source}/{image} {shlex.quote(f'oci:{folder}:{image}')}"
        for image in IMAGES
    ]
    return bench.take("skopeo copy to oci:", ["sh", "-ec", "\n".join(copies)], [folder])


def _docker_save(bench: Bench) -> Measured:
    saved = bench.fresh("docker-save")
    with docker_daemon(bench.work / "daemon-out") as url:
        names = " ".join(f"{bench.source}/{image}" for image in IMAGES)
        pull = f'for name in {names}; do "$0" pull -q "$name"; done'
        script = f'{pull}; "$0" save -o {shlex.quote(str(saved))}/images.tar {names}'
        watch = [saved, bench.work / "daemon-out"]
        return bench.take("docker pull + save", ["sh", "-ec", script, DOCKER], watch, environment={"DOCKER_HOST": url})


def _import(bench: Bench, name: str, target: str, watch: list[Path]) -> Measured:
    state = bench.work / f"state-{name}.yml"
    for old in bench.work.glob(f"*state-{name}.yml*"):
        old.unlink()
    options: list[str | Path] = ["--trust", bench.work / "trust", "--to", target, "--state", state]
    return bench.take(f"transload import {name}", [*TRANSLOAD, "import", bench.bundle, *options], watch)


def _verify(bench: Bench) -> Measured:
    command: list[str | Path] = [*TRANSLOAD, "verify", bench.bundle, "--trust", bench.work / "trust"]
    return bench.take("transload verify", command, [])


def _import_registry(bench: Bench) -> Measured:
    return _into_registry(bench, "import", lambda host, data: _import(bench, "registry", f"registry={host}", [data]))


def _skopeo_in(bench: Bench) -> Measured:
    def copy(host: str, data: Path) -> Measured:
        copies = [
            f"skopeo copy -q --dest-tls-verify=false oci:{shlex.quote(str(bench.work))}/skopeo:{image} docker://{host}/{image}"
            for image in IMAGES
        ]
        return bench.take("skopeo copy to registry", ["sh", "-ec", "\n".join(copies)], [data])

    return _into_registry(bench, "skopeo", copy)


def _into_registry(bench: Bench, name: str, deliver: Callable[[str, Path], Measured]) -> Measured:
    folder = bench.fresh(f"registry-{name}")
    try:
        with registry(folder, folder / "storage") as host:
            return deliver(host, folder / "storage")
    finally:
        shutil.rmtree(folder)


def _import_archive(bench: Bench) -> Measured:
    folder = bench.fresh("archives")
    try:
        return _import(bench, "archive", f"archive={folder}", [folder])
    finally:
        shutil.rmtree(folder)


def _import_docker(bench: Bench) -> Measured:
    with docker_daemon(bench.work / "daemon-import") as url:
        return _import(bench, "docker", f"docker={url}", [bench.work / "daemon-import"])


def _docker_load(bench: Bench) -> Measured:
    with docker_daemon(bench.work / "daemon-load") as url:
        command: list[str | Path] = [DOCKER, "load", "-i", bench.work / "docker-save/images.tar"]
        return bench.take("docker load", command, [bench.work / "daemon-load"], environment={"DOCKER_HOST": url})
