"""What an export takes: disk, memory, and what it fetches again after it was killed inside a large blob."""

from __future__ import annotations

import hashlib
import random
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from doubles.export_runs import ExportRuns, blob_digests_in, manifest_of
from doubles.image_factory import ImageDouble, LayerDouble, image, noise_layer, tar_of
from doubles.media import exfat_stick, read_only, tmpfs
from doubles.registries import RunningRegistry, plain_registry
from transload.shared.limits import MIB

pytestmark = [pytest.mark.engine, pytest.mark.slow]

LAYER_BYTES = 136 * MIB


@dataclass(frozen=True)
class Watched:
    """A run that was watched while it went on.

    Attributes:
        returncode: How it ended.
        errors: What it said.
        memory_bytes: The most resident memory that it had.
        disk_bytes: The most that its output folder held on disk.
    """

    returncode: int
    errors: str
    memory_bytes: int
    disk_bytes: int


def large_image() -> ImageDouble:
    """An image with one layer of 136 MiB, whose pieces differ."""
    random_mib = random.Random(1).randbytes(MIB - 8)
    content = b"".join(number.to_bytes(8, "big") + random_mib for number in range(LAYER_BYTES // MIB))
    raw = tar_of({"large": content})
    return image("l/large:1", [LayerDouble(raw, "", f"sha256:{hashlib.sha256(raw).hexdigest()}")])


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with plain_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


def watch(process: subprocess.Popen[str], folder: Path) -> Watched:
    memory = disk = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            status = ""
        if found := re.search(r"VmHWM:\s+(\d+) kB", status):
            memory = max(memory, int(found[1]) * 1024)
        disk = max(disk, _disk_bytes(folder))
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
    _, errors = process.communicate()
    return Watched(process.returncode, errors, memory, disk)


def test_disk_memory_and_a_kill_inside_a_blob(registry: RunningRegistry, tmp_path: Path) -> None:
    double = large_image()
    reference, digest = registry.put(double), double.image.manifests[0].layers[0].digest
    runs = ExportRuns(tmp_path / "out")
    arguments = (reference, "--chunk-size", "64MiB")
    killed = watch(runs.start(*arguments, kill_at=f"journal {digest.short} {128 * MIB}"), runs.output)
    assert killed.returncode == -signal.SIGKILL, killed.errors
    finished = watch(runs.start(*arguments), runs.output)
    assert finished.returncode == 0, finished.errors
    # The record of 128 MiB was not written any more: the run goes on after the one of 64 MiB.
    gets = registry.requests(rf'"GET /v2/l/large/blobs/{digest} HTTP/1.1"')
    assert [int(found[1]) for line in gets if (found := re.search(r'HTTP/1.1" (\d+)', line))] == [200, 206]
    (bundle,) = runs.bundles()
    size = sum(file.stat().st_size for file in bundle.iterdir())
    for run in (killed, finished):
        assert run.disk_bytes <= size + 64 * MIB
        assert run.memory_bytes < 256 * MIB
    assert finished.disk_bytes >= LAYER_BYTES
    place = next(blob for blob in manifest_of(bundle).blobs if blob.digest == str(digest))
    hasher, position = hashlib.sha256(), 0
    for chunk in sorted(bundle.glob("images.tar.*")):
        raw = chunk.read_bytes()
        hasher.update(raw[max(place.offset - position, 0) : max(place.offset + place.size - position, 0)])
        position += len(raw)
    assert f"sha256:{hasher.hexdigest()}" == str(digest)


def test_a_disk_that_is_too_small_is_found_before_the_first_byte(registry: RunningRegistry, tmp_path: Path) -> None:
    reference = registry.put(image("l/space:1", [noise_layer("space", 12_000_000)]))
    with tmpfs(tmp_path / "disk", 10 * MIB) as disk:
        runs = ExportRuns(disk / "out")
        refused = runs.call(reference)
        assert refused.returncode == 41, refused.stderr
        assert re.search(r"needs 1[0-9],[0-9]{3},[0-9]{3} bytes .* [0-9,]+ .* are available", refused.stderr)
        blob = noise_layer("space", 12_000_000).descriptor().digest
        assert registry.requests(rf'"GET /v2/l/space/blobs/{blob}') == []
        assert runs.bundles() == []
        subprocess.run(["mount", "-o", f"remount,size={40 * MIB}", disk], check=True)
        assert runs.call(reference).returncode == 0


def test_a_read_only_output_folder_is_one_clear_error(registry: RunningRegistry, tmp_path: Path) -> None:
    reference = registry.put(image("l/read-only:1", []))
    runs = ExportRuns(tmp_path / "out")
    with read_only(tmp_path / "disk", MIB) as disk:
        done = runs.call(reference, "--output-path", str(disk / "out"))
    assert done.returncode == 43, done.stderr
    assert "read-only" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_export_straight_onto_exfat(registry: RunningRegistry, tmp_path: Path) -> None:
    doubles = [image(f"l/exfat-{name}:1", [noise_layer(f"exfat-{name}", 3_000_000)]) for name in "ab"]
    references = [registry.put(double) for double in doubles]
    key = ExportRuns(tmp_path / "local").key  # on exFAT everybody could read it, which is refused
    with exfat_stick(tmp_path / "stick") as stick:
        runs = ExportRuns(stick.folder / "out")
        arguments = (*references, "--sign-key", str(key))
        killed = runs.call(*arguments, kill_at="fsync images.tar.0002")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        done = runs.call(*arguments)
        assert done.returncode == 0, done.stderr
        (bundle,) = runs.bundles()
        assert blob_digests_in(bundle) == [blob.digest for blob in manifest_of(bundle).blobs]
    for double in doubles:
        digest = double.image.manifests[0].layers[0].digest
        assert len(registry.requests(rf'"GET /v2/l/exfat-./blobs/{digest}')) == 1


def _disk_bytes(folder: Path) -> int:
    done = subprocess.run(["du", "-s", "-B1", folder], capture_output=True, text=True, check=False)  # files may vanish
    return int(done.stdout.split()[0])
