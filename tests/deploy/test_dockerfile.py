"""deploy/Dockerfile, built for real on a base made here, and run as the old image was."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.docker_daemons import DockerDaemon
from doubles.engines import missing, require
from doubles.image_factory import image, noise_layer
from doubles.ngc import running_ngc

ROOT = Path(__file__).parents[2]
BASE_ROOT = ROOT / ".test-cache" / "engines" / "python-base"
BASE, BUILT = "transload-test/python:3", "transload-test/replicator:1"
_DEBIAN_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
CERTIFICATES = "certificates-of-this-machine.crt"
MOST_BYTES_ABOVE_BASE = 90_000_000
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")
PASSED_ON = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", *_PROXIES, *map(str.upper, _PROXIES))
"""What leads this machine to its package index leads the builder there, too."""

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.xdist_group("dockerfile")]


def base_root() -> Path:
    """A Debian root folder with Python, made once."""
    if (BASE_ROOT / "usr/bin/python3").exists():
        return BASE_ROOT
    program = require("debootstrap")
    if os.geteuid() != 0:
        missing("only root can make a base image")
    unfinished = BASE_ROOT.with_name(f"{BASE_ROOT.name}.{os.getpid()}.unfinished")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    include = "--include=python3,python3-venv,ca-certificates"
    made = subprocess.run(
        [program, "--variant=minbase", include, "bookworm", unfinished], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        missing(f"debootstrap could not make a base image: {made.stdout[-300:]}")
    unfinished.rename(BASE_ROOT)
    return BASE_ROOT


def import_base(daemon: DockerDaemon, folder: Path) -> None:
    """Bring the base into a daemon, with this machine's certificates."""
    archive = folder / "base.tar"
    exclude = [f"--exclude=./{name}" for name in ("proc/*", "sys/*", "dev/*", "var/cache/apt/archives/*.deb")]
    subprocess.run(["tar", "-C", base_root(), "--numeric-owner", *exclude, "-cf", archive, "."], check=True)
    bundle = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile or _DEBIAN_BUNDLE
    if Path(bundle).exists():
        shutil.copy(bundle, folder / CERTIFICATES)
        subprocess.run(["tar", "-C", folder, "--numeric-owner", "-rf", archive, CERTIFICATES], check=True)
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "PIP_CERT": f"/{CERTIFICATES}"}
    changes = [part for name, value in environment.items() for part in ("-c", f"ENV {name}={value}")]
    done = daemon.command_line("import", *changes, str(archive), BASE)
    archive.unlink()
    assert done.returncode == 0, done.stderr


@pytest.fixture
def builder(docker_20: DockerDaemon, tmp_path: Path) -> Iterator[DockerDaemon]:
    import_base(docker_20, tmp_path)
    built = docker_20.command_line(
        "build", "--network=host", "--build-arg", f"BASE_IMAGE={BASE}",
        "-t", BUILT, "-f", str(ROOT / "deploy" / "Dockerfile"), str(ROOT),
    )  # fmt: skip
    assert built.returncode == 0, (built.stdout + built.stderr).decode()[-3000:]
    yield docker_20
    docker_20.empty()


def test_the_image_is_small_has_no_root_and_replicates(builder: DockerDaemon, tmp_path: Path) -> None:
    client = builder.client()
    try:
        base, built = client.inspect_image(BASE), client.inspect_image(BUILT)
    finally:
        client.close()
    assert built["Size"] - base["Size"] < MOST_BYTES_ABOVE_BASE
    assert built["Config"]["User"] == "65532:65532"
    inside = ["run", "--rm", "--network=none", "--entrypoint=/bin/sh", BUILT, "-c"]
    shown = builder.command_line(
        *inside, "id -u; ls /source /opt/transload/bin/pip* 2>/dev/null; touch /output/x && echo ok"
    )
    assert shown.stdout.decode().split() == ["65532", "ok"], shown.stderr
    output = tmp_path / "output"
    output.mkdir()
    os.chown(output, 65532, 65532)
    with running_ngc(keys={"nvapi-key": {"nvidia"}}) as ngc:
        ngc.publish(image("any/name:1", [noise_layer("dockerfile")]), "nvidia/tensorflow", "24.01", is_public=False)
        variables = [part for name, value in ngc.environment.items() for part in ("-e", f"{name}={value}")]
        done = builder.command_line(
            "run", "--rm", "--network=host", "--read-only", "-v", f"{output}:/output", *variables,
            BUILT, "--project=nvidia", "--min-version=23.10", "--image=tensorflow", "--api-key=nvapi-key",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        tar = output / f"docker_image_{ngc.registry.host}%%nvidia%%tensorflow:24.01.tar"
    assert tar.stat().st_uid == 65532
    assert builder.command_line("load", "-i", str(tar)).returncode == 0
