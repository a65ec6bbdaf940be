"""What the contenders talk to: registries and a Docker daemon, each on a port or socket of its own, stopped by id."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_LISTENING = re.compile(r"listening on (127\.0\.0\.1:[0-9]+)")
_START_SECONDS = 60
_DOCKERD = "/usr/sbin/dockerd"
DOCKER = "/usr/bin/docker"
"""Debian's own pair; a newer client elsewhere in PATH may refuse the old daemon."""


@contextlib.contextmanager
def registry(folder: Path, storage: Path) -> Iterator[str]:
    """A docker-registry on plain http.

    Args:
        folder: For its configuration and log.
        storage: Its storage folder; made if it is not there.

    Yields:
        Its host, `127.0.0.1:PORT`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    storage.mkdir(parents=True, exist_ok=True)
    configuration = {
        "version": "0.1",
        "log": {"level": "info", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(storage)}},
        "http": {"addr": "127.0.0.1:0"},
    }
    file, log = folder / "registry.yml", folder / "registry.log"
    file.write_text(json.dumps(configuration))  # JSON is YAML
    with _running(["docker-registry", "serve", str(file)], log):
        yield _wait_for(lambda: (found := _LISTENING.search(log.read_text(errors="replace"))) and found[1], log)


@contextlib.contextmanager
def docker_daemon(folder: Path) -> Iterator[str]:
    """A Docker daemon with nothing in it.

    Args:
        folder: Its data; removed at the end.

    Yields:
        Its `unix://` address.
    """
    folder.mkdir(parents=True)
    socket, log = folder / "docker.sock", folder / "log"
    command = [
        "unshare", "--mount", "--propagation", "private", _DOCKERD,
        f"--data-root={folder}/root", f"--exec-root={folder}/exec", f"--pidfile={folder}/pid",
        f"--host=unix://{socket}", "--iptables=false", "--bridge=none",
    ]  # fmt: skip
    try:
        with _running(command, log):
            _wait_for(lambda: "ready" if _answers(socket) else None, log)
            yield f"unix://{socket}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _answers(socket: Path) -> bool:
    command = [DOCKER, "--host", f"unix://{socket}", "version"]
    return socket.exists() and subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(ready: Callable[[], str | None], log: Path) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if found := ready():
            return str(found)
        time.sleep(0.1)
    raise RuntimeError(f"a service did not start:\n{log.read_text(errors='replace')[-2000:]}")
