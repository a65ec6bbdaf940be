"""Offline means offline: the isolated side runs in a network namespace where only loopback exists.

strace watches every connection; proxies of the environment and credential helpers for other hosts lie in wait.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from doubles.bundle_factory import BundleDraft, small_images, write_trust
from doubles.engines import missing, require

pytestmark = pytest.mark.engine

SUPPORT = Path(__file__).parents[1] / "support"
INSIDE = """
import json, subprocess, sys
sys.path.insert(0, sys.argv[1])
from doubles.scripted_registry import scripted_registry

with scripted_registry() as registry:
    results = []
    for number, words in enumerate(json.loads(sys.argv[2])):
        command = [word.replace("@REGISTRY@", registry.host) for word in words]
        watched = ["strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o", f"trace-{number}"]
        done = subprocess.run([*watched, *command], capture_output=True, text=True)
        results.append([done.returncode, done.stdout + done.stderr])
    tags = {path: repository.tags for path, repository in registry.repositories.items()}
print(json.dumps({"results": results, "tags": tags, "host": registry.host}))
"""


@dataclass(frozen=True)
class EmptyNetwork:
    """A namespace with loopback alone, and what is needed to import there.

    Attributes:
        folder: Where the commands run; `bundle` and `trust` are in it.
    """

    folder: Path

    def run(self, *commands: list[str]) -> dict[str, Any]:
        """Run commands; `@REGISTRY@` in them is a registry on loopback that exists for that long."""
        program = str(Path(sys.executable).with_name("transload"))
        words = json.dumps([[program, *command] for command in commands])
        helper = self.folder / "bin" / "docker-credential-tattle"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            "PATH": f"{helper.parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.folder),
            "http_proxy": "http://192.0.2.1:3128",
            "https_proxy": "http://192.0.2.1:3128",
            "all_proxy": "http://192.0.2.1:3128",
        }
        done = subprocess.run(
            ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", sys.executable, "-c", INSIDE,
             str(SUPPORT), words],
            cwd=self.folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def contacted(self, number: int) -> set[str]:
        """Where the n-th command connected or sent to: `address:port`; Unix sockets by their path."""
        trace = (self.folder / f"trace-{number}").read_text()
        addresses = re.findall(r'sin6?_port=htons\((\d+)\).*?"([0-9a-fA-F.:]+)"', trace)
        return {f"{address}:{port}" for port, address in addresses} | set(re.findall(r'sun_path="([^"]*)"', trace))


@pytest.fixture
def network(tmp_path: Path) -> EmptyNetwork:
    for program in ("unshare", "strace", "ip"):
        require(program)
    if subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True).returncode:
        missing("this user may not make network namespaces")
    BundleDraft(small_images()).seal(tmp_path / "bundle")
    write_trust(tmp_path / "trust")
    helper = tmp_path / "bin" / "docker-credential-tattle"
    helper.parent.mkdir()
    helper.write_text(f"#!/bin/sh\ncat >> {tmp_path}/helper-was-asked\nexit 1\n")
    helper.chmod(0o755)
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text(json.dumps({"credHelpers": {"registry.example": "tattle"}}))
    return EmptyNetwork(tmp_path)


def test_verify_and_list_contact_nobody(network: EmptyNetwork) -> None:
    answer = network.run(
        ["verify", "bundle", "--trust", "trust", "--full"],
        ["list", "bundle", "--trust", "trust"],
    )
    assert [code for code, _ in answer["results"]] == [0, 0], answer["results"]
    assert network.contacted(0) == network.contacted(1) == set()


def test_an_import_contacts_its_target_and_nobody_else(network: EmptyNetwork) -> None:
    target = ["--to", "registry=@REGISTRY@/mirror", "--to", "archive=tars", "--to", "oci=layouts"]
    answer = network.run(["import", "bundle", "--trust", "trust", "--state", "state/state.yml", *target])
    assert [code for code, _ in answer["results"]] == [0], answer["results"]
    assert sorted(answer["tags"]) == ["mirror/team/first", "mirror/team/multi", "mirror/team/second"]
    assert network.contacted(0) == {answer["host"]}
    assert not (network.folder / "helper-was-asked").exists()


def test_the_watch_sees_what_it_is_for(network: EmptyNetwork) -> None:
    """The same watch over a run that wants to go outside."""
    answer = network.run(
        ["import", "bundle", "--trust", "trust", "--to", "registry=198.51.100.7/x", "--state", "s.yml"]
    )
    assert [code for code, _ in answer["results"]] == [81], answer["results"]
    assert any("192.0.2.1:3128" in one or "198.51.100.7" in one for one in network.contacted(0))
