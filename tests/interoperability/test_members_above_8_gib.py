"""A blob of 8 GiB and more: beyond what the octal size field of a tar header holds. Sparse, so it costs no disk."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from doubles.engines import require
from transload.manifests.archive_layout import Literal, TarPlan, blob_path
from transload.shared.digests import Digest

pytestmark = pytest.mark.engine

GIB = 1024**3
LAST_OCTAL = 8 * GIB - 1
SIZES = [LAST_OCTAL, LAST_OCTAL + 1, 9 * GIB + 5]
TAIL = b"the last member, found only by who reads the sizes right"

GO_READER = """
package main

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
)

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	reader := tar.NewReader(file)
	for {
		header, err := reader.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(header.Size, header.Name, header.Mode, header.Uid, header.Gid, header.ModTime.Unix())
	}
}
"""


def digests() -> list[Digest]:
    return [Digest.of(str(size).encode()) for size in SIZES]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = TarPlan()
    for digest, size in zip(digests(), SIZES, strict=True):
        plan.add_blob(blob_path(digest), digest, size)
    plan.add_bytes("tail", TAIL)
    layout = plan.finish()
    path = tmp_path_factory.mktemp("huge") / "huge.tar"
    with path.open("wb") as file:
        file.truncate(layout.size_bytes)
        for piece in layout.pieces:
            if isinstance(piece, Literal):
                file.seek(piece.offset)
                file.write(piece.content)
    return path


def test_gnu_tar_reads_sizes_and_finds_what_follows(archive: Path) -> None:
    done = subprocess.run([require("tar"), "-tvf", archive], capture_output=True, text=True, check=True)
    assert [int(line.split()[2]) for line in done.stdout.splitlines()] == [*SIZES, len(TAIL)]
    assert [line.split()[-1] for line in done.stdout.splitlines()] == [*map(blob_path, digests()), "tail"]
    taken = subprocess.run([require("tar"), "-xOf", archive, "tail"], capture_output=True, check=True)
    assert taken.stdout == TAIL


def test_go_reads_them_as_docker_does(archive: Path, tmp_path: Path) -> None:
    # Docker, podman, skopeo and containerd all read tar files with Go's archive/tar.
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed; the tests with Docker, podman and skopeo cover its reader for small members")
    (tmp_path / "main.go").write_text(GO_READER)
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GO111MODULE": "off", "GOFLAGS": ""}
    done = subprocess.run(
        [go, "run", tmp_path / "main.go", archive], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    expected = [f"{size} {blob_path(digest)} 420 0 0 0" for digest, size in zip(digests(), SIZES, strict=True)]
    assert done.stdout.splitlines() == [*expected, f"{len(TAIL)} tail 420 0 0 0"]
