"""Real Docker daemons for tests: Debian's own 20.10, and 26.1 with either image store.

They run in private mount namespaces with their own folders and sockets, and are stopped by process id, so that nothing
is left behind: no mount, no process, no file. One of each serves all tests of a session; tests begin with it empty.
tests/conftest.py makes these fixtures known.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import docker
import docker.errors
import pytest

from doubles import engines

Store = Literal["overlay2", "containerd"]

_SUPPORT = Path(__file__).resolve().parents[1]
_DEFAULT_ROOT = _SUPPORT.parents[1] / ".test-cache" / "engines" / "trixie"
_NO_NETWORK = ("--iptables=false", "--bridge=none")
_DOCKER_20 = Path("/usr/sbin/dockerd")
_DOCKER_CLIENT = "/usr/bin/docker"  # Debian's; a newer one elsewhere in PATH may refuse old daemons


@dataclass(frozen=True)
class DockerDaemon:
    """A running daemon.

    Attributes:
        url: Its `unix://` address.
        store: Where it keeps images.
        folder: Its data, as this machine sees it.
        is_20: Whether it is the old 20.10, which cannot read zstd.
    """

    url: str
    store: Store
    folder: Path
    is_20: bool

    def client(self) -> Any:
        """docker-py's low-level client, to look at the daemon by other means than the code under test."""
        return docker.APIClient(base_url=self.url, timeout=60)

    def command_line(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run Debian's `docker` command against this daemon."""
        return subprocess.run(
            [_DOCKER_CLIENT, *arguments], input=stdin, capture_output=True, check=False,
            env={"DOCKER_HOST": self.url, "PATH": os.defpath, "HOME": str(self.folder)},
        )  # fmt: skip

    def run(self, reference: str) -> str:
        """What an image prints when it is run by its own command."""
        done = self.command_line("run", "--rm", "--network", "none", reference)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def tags(self) -> dict[str, str]:
        """Every tag and the image id that it stands for."""
        with contextlib.closing(self.client()) as client:
            return {
                tag: image["Id"] for image in client.images() for tag in image["RepoTags"] or () if "<none>" not in tag
            }

    def image_ids(self) -> set[str]:
        """Every image, untagged ones included."""
        with contextlib.closing(self.client()) as client:
            return {image["Id"] for image in client.images()}

    def containers(self) -> list[str]:
        """Every container, stopped ones included."""
        with contextlib.closing(self.client()) as client:
            return [container["Id"] for container in client.containers(all=True)]

    def empty(self) -> None:
        """Remove every container and image."""
        with contextlib.closing(self.client()) as client:
            for container in client.containers(all=True):
                client.remove_container(container["Id"], force=True, v=True)
            for image in client.images():
                with contextlib.suppress(docker.errors.NotFound):  # gone with another one
                    client.remove_image(image["Id"], force=True)


@pytest.fixture(scope="session")
def docker_20_session() -> Iterator[DockerDaemon]:
    """Debian's Docker 20.10 with overlay2."""
    engines.require(str(_DOCKER_20))
    _require_daemon_rights()
    with _folder() as folder:
        command = ["unshare", "--mount", "--propagation", "private", str(_DOCKER_20)]
        yield from _serve(command, folder, folder, "overlay2", is_20=True)


@pytest.fixture(scope="session")
def docker_26_session() -> Iterator[DockerDaemon]:
    """Docker 26.1 with overlay2."""
    yield from _docker_26("overlay2")


@pytest.fixture(scope="session")
def docker_containerd_session() -> Iterator[DockerDaemon]:
    """Docker 26.1 with the containerd image store."""
    yield from _docker_26("containerd")


@pytest.fixture
def docker_20(docker_20_session: DockerDaemon) -> DockerDaemon:
    """An empty Docker 20.10."""
    docker_20_session.empty()
    return docker_20_session


@pytest.fixture
def docker_26(docker_26_session: DockerDaemon) -> DockerDaemon:
    """An empty Docker 26.1 with overlay2."""
    docker_26_session.empty()
    return docker_26_session


@pytest.fixture
def docker_containerd(docker_containerd_session: DockerDaemon) -> DockerDaemon:
    """An empty Docker 26.1 with the containerd image store."""
    docker_containerd_session.empty()
    return docker_containerd_session


@pytest.fixture(params=["docker_20", "docker_containerd"])
def either_docker(request: pytest.FixtureRequest) -> DockerDaemon:
    """An empty daemon of each store, one after the other."""
    found: DockerDaemon = request.getfixturevalue(request.param)
    return found


def trixie_root() -> Path:
    """A Debian trixie root with Docker 26.1: from TRANSLOAD_TEST_ENGINES, else made once in `.test-cache`."""
    root = Path(os.environ.get("TRANSLOAD_TEST_ENGINES") or _DEFAULT_ROOT)
    if (root / "usr/sbin/dockerd").exists():
        return root
    _require_daemon_rights()
    engines.require("debootstrap")
    root.parent.mkdir(parents=True, exist_ok=True)
    with (root.parent / f"{root.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may want it at once
        done = subprocess.run([_SUPPORT / "setup_engines.sh", root], capture_output=True, check=False)
    if done.returncode != 0:
        engines.missing(f"Docker 26.1 could not be set up in {root}: {done.stderr.decode()[-500:]}")
    return root


def _docker_26(store: Store) -> Iterator[DockerDaemon]:
    root = trixie_root()
    _require_daemon_rights()
    with _folder() as folder:
        features = {"features": {"containerd-snapshotter": store == "containerd"}}
        (folder / "daemon.json").write_text(json.dumps(features))
        command = [str(_SUPPORT / "in_root.sh"), str(root), str(folder), "dockerd", "--config-file=/x/daemon.json"]
        yield from _serve(command, folder, Path("/x"), store, is_20=False)


def _serve(command: list[str], folder: Path, seen: Path, store: Store, *, is_20: bool) -> Iterator[DockerDaemon]:
    """Run a daemon whose data lies in `folder`, which the daemon itself sees at `seen`."""
    daemon = DockerDaemon(f"unix://{folder}/docker.sock", store, folder, is_20)
    arguments = [
        f"--data-root={seen}/root", f"--exec-root={seen}/exec", f"--pidfile={seen}/pid", f"--host=unix://{seen}/docker.sock",
        *_NO_NETWORK,
    ]  # fmt: skip

    def is_ready() -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(f"{folder}/docker.sock")
            except OSError:
                return False
        with contextlib.closing(daemon.client()) as client:  # it accepts connections early, and answers when it is up
            return bool(client.ping())

    # A test run that is killed takes its daemons with it.
    tied = ["setpriv", "--pdeathsig", "TERM"]
    with engines.running([*tied, *command, *arguments], log=folder / "log", is_ready=is_ready):
        yield daemon


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    # Not below pytest's folders: the path of a Unix socket has 107 bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="transload-docker-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _require_daemon_rights() -> None:
    if os.geteuid() != 0:
        engines.missing("a Docker daemon can only be started by root")
    engines.require("unshare")
    engines.require("setpriv")
