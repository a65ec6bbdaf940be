"""Parts of the replicator on their own: names, rules for tags, files that are written in parallel."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.image_factory import ImageDouble, image, noise_layer
from transload.export_side.replicator.names import Candidate, description_name
from transload.export_side.replicator.request import ReplicatorRequest, parse_registry_url
from transload.export_side.replicator.selection import is_wanted, wanted_tags
from transload.export_side.replicator.tar_file import TarWriter
from transload.shared.errors import ContentMismatch, InvalidConfiguration, NotFoundInRegistry
from transload.shared.image import Descriptor
from transload.shared.progress import SilentProgress
from transload.shared.references import Reference
from transload.shared.workers import Stop


def test_old_names_are_kept() -> None:
    one = Candidate("nvidia/tensorflow", "19.06-py3", Reference.parse("nvcr.io/nvidia/tensorflow:19.06-py3"))
    assert one.tar_name == "docker_image_nvcr.io%%nvidia%%tensorflow:19.06-py3.tar"
    assert one.sif_name == "nvcr.io_nvidia_tensorflow:19.06-py3.sif"
    assert one.target("registry.local:5000") == "registry.local:5000/nvidia/tensorflow:19.06-py3"
    assert description_name(one.name) == "description_nvidia%%tensorflow.md"
    other = Candidate("alpine", "3.10", Reference.parse("alpine:3.10"), is_external=True)
    assert other.tar_name == "docker_image_alpine:3.10.tar"
    assert other.target("registry.local:5000/mirror") == "registry.local:5000/mirror/alpine:3.10"


TAGS = ["19.07-py3", "19.10-py3", "20.11-tensorflow-py3", "r32.4.2-pth1.2-py3", "29Oct2020", "v0.9.2", "v0.20.1",
        "latest", "12.4.1-base", "9.06", "20.1", f"sha256-{'a' * 64}.sig"]  # fmt: skip


def test_min_version_judges_tags_that_begin_with_a_calendar_version() -> None:
    wanted, unjudged = wanted_tags(TAGS, ReplicatorRequest(min_version="19.9"))
    assert set(unjudged) <= set(wanted)
    assert set(wanted) - set(unjudged) == {"19.10-py3", "20.11-tensorflow-py3"}
    assert set(unjudged) == {"r32.4.2-pth1.2-py3", "29Oct2020", "v0.9.2", "v0.20.1", "latest", "12.4.1-base", "9.06",
                             "20.1"}  # fmt: skip


def test_without_a_version_everything_but_signatures_is_wanted() -> None:
    wanted, unjudged = wanted_tags(TAGS, ReplicatorRequest())
    assert set(wanted) == set(TAGS[:-1])
    assert unjudged == []


@pytest.mark.parametrize(
    ("path", "names", "strict", "expected"),
    [
        ("nvidia/l4t-pytorch", ["pytorch"], False, True),
        ("nvidia/l4t-pytorch", ["pytorch"], True, False),
        ("nvidia/pytorch", ["pytorch"], True, True),
        ("nvidia/team/model", ["model"], True, True),
        ("nvidia/team/model", ["team/model"], True, True),
        ("nvidia/team/model", ["nvidia/model"], True, False),
        ("nvidia/tensorflow", ["nvidia/tensor"], False, True),
        ("nvidia/caffe", ["pytorch", "caffe "], True, True),
        ("nvidia/caffe", [], True, True),
    ],
)
def test_names(path: str, names: list[str], strict: bool, expected: bool) -> None:
    assert is_wanted(path, names, strict=strict) is expected


def test_registry_urls() -> None:
    assert parse_registry_url("https://registry.local:5000/mirror/") == "registry.local:5000/mirror"
    for bad in ("http://registry.local", "https://user:password@registry.local"):
        with pytest.raises(InvalidConfiguration) as caught:
            parse_registry_url(bad)
        assert "password@" not in caught.value.message


BUILT = image(
    "nvcr.io/nvidia/x:1", [noise_layer("tar-a", 3_000_000), noise_layer("tar-b", 100), noise_layer("tar-b", 100)]
)


class Fetcher:
    """Gives blobs in pieces, wrong as often as it is told."""

    def __init__(self, built: ImageDouble, *, wrong: int = 0) -> None:
        self.built, self.wrong, self.asked = built, wrong, 0

    def __call__(self, descriptor: Descriptor) -> Iterator[bytes]:
        self.asked += 1
        raw = self.built.blobs[descriptor.digest]
        if descriptor.size_bytes > 1_000_000 and self.wrong:
            self.wrong -= 1
            raw = raw[:-1] + bytes([raw[-1] ^ 1])
        for start in range(0, len(raw), 70_000):
            yield raw[start : start + 70_000]


def write(folder: Path, fetch: object) -> Path:
    documents = {one.digest: one.raw for one in BUILT.image.documents}
    with SilentProgress().stage("", 0) as stage:
        return TarWriter(folder, 3, Stop()).write("docker_image_x.tar", BUILT.image, documents, fetch, stage)  # type: ignore[arg-type]


def test_a_file_is_a_tar_of_every_blob_once(tmp_path: Path) -> None:
    path = write(tmp_path, Fetcher(BUILT))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with tarfile.open(path) as archive:
        blobs = {one.name: archive.extractfile(one).read() for one in archive if "sha256/" in one.name and one.isfile()}  # type: ignore[union-attr]
    assert blobs == {f"blobs/sha256/{digest.hex}": raw for digest, raw in BUILT.blobs.items()}


def test_wrong_bytes_are_fetched_once_more_and_then_fail_the_image_alone(tmp_path: Path) -> None:
    good = write(tmp_path, Fetcher(BUILT)).read_bytes()
    assert write(tmp_path, Fetcher(BUILT, wrong=1)).read_bytes() == good
    stop = Stop()
    with pytest.raises(ContentMismatch), SilentProgress().stage("", 0) as stage:
        TarWriter(tmp_path, 1, stop).write("docker_image_y.tar", BUILT.image, {}, Fetcher(BUILT, wrong=2), stage)
    assert [file.name for file in tmp_path.iterdir()] == ["docker_image_x.tar"]
    assert not stop.is_requested  # the other images go on


def test_a_blob_that_is_gone_ends_the_image_at_once(tmp_path: Path) -> None:
    fetch = Fetcher(BUILT)

    def gone(descriptor: Descriptor) -> Iterator[bytes]:
        list(fetch(descriptor))
        raise NotFoundInRegistry("gone")

    with pytest.raises(NotFoundInRegistry), SilentProgress().stage("", 0) as stage:
        TarWriter(tmp_path, 1, Stop()).write("docker_image_x.tar", BUILT.image, {}, gone, stage)
    assert fetch.asked == 1
    assert list(tmp_path.iterdir()) == []
