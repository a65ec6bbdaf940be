"""What other people's tools read out of the joined chunks: Docker 20.10, skopeo, podman, GNU tar."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doubles.docker_daemons import DockerDaemon
from doubles.engines import missing, require
from doubles.image_factory import ImageDouble
from doubles.registries import plain_registry
from transload.manifests.archive_layout import docker_manifest
from transload.shared.digests import Digest
from transload.shared.image import DOCKER_LIST, OCI_INDEX, Descriptor

pytestmark = pytest.mark.engine


def run(*command: object, **options: Any) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)


def config_digest(double: ImageDouble) -> str:
    """What Docker calls the image: the config of linux/amd64."""
    manifest = docker_manifest(double.image)
    assert manifest is not None
    return str(manifest.config.digest)


def diff_ids(double: ImageDouble) -> list[str]:
    manifest = docker_manifest(double.image)
    assert manifest is not None
    return list(json.loads(double.blobs[manifest.config.digest])["rootfs"]["diff_ids"])


def test_docker_20_loads_the_chunks_by_hand(carried: Any, docker_20: DockerDaemon) -> None:
    load = f"cat images.tar.* | {require('/usr/bin/docker')} load"
    run("sh", "-c", load, cwd=carried.folder, env={"DOCKER_HOST": docker_20.url, "PATH": "/usr/bin:/bin"})
    tags = {tag: name for tag, name in docker_20.tags().items() if tag != "<none>:<none>"}
    assert tags == {str(one.image.name): config_digest(one) for one in carried.tagged}
    assert docker_20.image_ids() == {config_digest(one) for one in carried.images}
    client = docker_20.client()
    for one in carried.images:
        assert client.inspect_image(config_digest(one))["RootFS"].get("Layers", []) == diff_ids(one)
    client.close()
    for one in carried.tagged:
        name = one.image.name.path.rpartition("/")[2]
        assert docker_20.run(str(one.image.name)) == f"{name}\n"


def test_docker_with_the_containerd_store_loads_them_with_their_digests(
    carried: Any, docker_containerd: DockerDaemon
) -> None:
    load = f"cat images.tar.* | {require('/usr/bin/docker')} load"
    run("sh", "-c", load, cwd=carried.folder, env={"DOCKER_HOST": docker_containerd.url, "PATH": "/usr/bin:/bin"})
    # this store calls an image by the digest of its manifest or index
    assert docker_containerd.tags() == {str(one.image.name): str(one.image.digest) for one in carried.tagged}
    for one in carried.tagged:
        assert docker_containerd.run(str(one.image.name)) == f"{one.image.name.path.rpartition('/')[2]}\n"


def test_skopeo_reads_each_image_out_of_the_oci_archive_with_its_digest(carried: Any, tmp_path: Path) -> None:
    for number, one in enumerate(carried.tagged):
        source = f"oci-archive:{carried.joined}:{one.image.name}"
        target = tmp_path / str(number)
        if one.image.root.media_type == OCI_INDEX:
            run(require("skopeo"), "copy", "--all", source, f"dir:{target}")
            documents = {one.image.digest: "manifest.json"}
            documents |= {d.digest: f"{d.digest.hex}.manifest.json" for d in one.image.documents[1:]}
            expected = one.image.digest
        else:  # a single manifest; of a Docker manifest list skopeo takes this machine's
            run(require("skopeo"), "copy", "--override-arch", "amd64", source, f"dir:{target}")
            manifest = docker_manifest(one.image)
            assert manifest is not None
            expected = manifest.document.digest
            documents = {expected: "manifest.json"}
        assert Digest.of((target / "manifest.json").read_bytes()) == expected
        # every other blob came along, and is what it is called
        for descriptor in blobs_below(one, expected):
            file = target / documents.get(descriptor.digest, descriptor.digest.hex)
            assert Digest.of(file.read_bytes()) == descriptor.digest


def blobs_below(double: ImageDouble, document: Digest) -> list[Descriptor]:
    if document == double.image.digest:
        return list(double.image.descriptors())
    manifest = docker_manifest(double.image)
    assert manifest is not None
    return [manifest.config, *manifest.layers]


def test_skopeo_pushes_single_images_out_of_the_archive_with_their_digests(carried: Any, tmp_path: Path) -> None:
    # What somebody without transload does on the isolated side: Docker's kind of manifest, as most of NGC's, included.
    with plain_registry(tmp_path / "registry") as inside:
        for one in carried.tagged:
            if one.image.root.media_type == DOCKER_LIST:
                continue  # comes out as its door: the same manifests under another index
            source = f"oci-archive:{carried.joined}:{one.image.name}"
            whole = ["--all"] if one.image.is_index else []
            target = f"docker://{inside.host}/{one.image.name.path}:{one.image.name.tag}"
            options = [*whole, "--preserve-digests", "--dest-tls-verify=false"]  # else plain layers would be compressed
            run(require("skopeo"), "copy", *options, source, target)
            assert inside.storage.tagged(one.image.name.path, one.image.name.tag or "") == str(one.image.digest)


def test_skopeo_reads_each_image_out_of_the_docker_archive_with_its_config(carried: Any, tmp_path: Path) -> None:
    for number, one in enumerate(carried.tagged):
        target = tmp_path / str(number)
        run(require("skopeo"), "copy", f"docker-archive:{carried.joined}:{one.image.name}", f"dir:{target}")
        manifest = json.loads((target / "manifest.json").read_text())
        assert manifest["config"]["digest"] == config_digest(one)
        assert [layer["digest"] for layer in manifest["layers"]] == diff_ids(one)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """podman refuses a runroot of more than 50 characters."""
    with tempfile.TemporaryDirectory(prefix="podman-") as folder:
        yield Path(folder)


def test_podman_loads_the_joined_chunks(carried: Any, tmp_path: Path, short_folder: Path) -> None:
    podman = [require("podman"), "--root", tmp_path / "root", "--runroot", short_folder, "--storage-driver", "vfs"]
    tried = subprocess.run([str(part) for part in (*podman, "info")], capture_output=True, text=True, check=False)
    if tried.returncode:
        missing(f"podman does not run here: {tried.stderr.strip()[-200:]}")
    run(*podman, "load", "-i", carried.joined)
    listed = json.loads(run(*podman, "images", "--no-trunc", "--format", "json"))
    found = {name: image["Id"] for image in listed for name in image.get("Names") or ()}
    assert found == {str(one.image.name): config_digest(one).removeprefix("sha256:") for one in carried.tagged}
    for one in carried.tagged:
        inspected = json.loads(run(*podman, "image", "inspect", str(one.image.name)))[0]
        assert inspected["RootFS"]["Layers"] == diff_ids(one)


def test_gnu_tar_lists_and_unpacks_an_oci_layout(carried: Any, tmp_path: Path) -> None:
    listing = run(require("tar"), "-tvf", carried.joined, "--numeric-owner", env={"TZ": "UTC", "PATH": "/usr/bin:/bin"})
    members = [line.split() for line in listing.splitlines()]
    assert [member[-1] for member in members[:5]] == [
        "oci-layout", "index.json", "manifest.json", "blobs/", "blobs/sha256/",
    ]  # fmt: skip
    assert {(member[0], member[1], member[3]) for member in members} == {
        ("-rw-r--r--", "0/0", "1970-01-01"), ("drwxr-xr-x", "0/0", "1970-01-01"),
    }  # fmt: skip
    assert len({member[-1] for member in members}) == len(members)
    run("sh", "-c", "cat images.tar.* | tar -xf - -C " + str(tmp_path), cwd=carried.folder)
    for one in carried.images:
        for digest, raw in one.blobs.items():
            assert (tmp_path / "blobs/sha256" / digest.hex).read_bytes() == raw
        if one.image.name.tag:
            run(require("skopeo"), "inspect", "--raw", f"oci:{tmp_path}:{one.image.name}")
