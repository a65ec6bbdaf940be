"""Where the Docker daemon is, found as the docker command finds it: environment first, then the current context.

Reference: docker CLI, "Environment variables" and "Docker contexts". Read here rather than by docker-py, which looks
for contexts in the working directory when there is no config.json.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from transload.shared import limits
from transload.shared.atomic_files import read_bounded
from transload.shared.errors import EngineUnavailable, PathMissing

DEFAULT_URL = "unix:///var/run/docker.sock"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A daemon's address.

    Args:
        url: `unix://`, `tcp://` or `ssh://`.
        certificates: Folder with `ca.pem`, `cert.pem` and `key.pem`, as far as they are there; None for no TLS.
        verifies: Whether the daemon's certificate is checked.
    """

    url: str
    certificates: Path | None = None
    verifies: bool = True


def find_endpoint(url: str | None, environment: Mapping[str, str] | None = None) -> Endpoint:
    """Find the daemon.

    Args:
        url: The address that was asked for; None for the docker command's.
        environment: The process's own when None.

    Raises:
        EngineUnavailable: The current context does not exist or cannot be read.
    """
    known = os.environ if environment is None else environment
    folder = Path(known["DOCKER_CONFIG"]) if known.get("DOCKER_CONFIG") else Path.home() / ".docker"
    url = url or known.get("DOCKER_HOST") or None
    if url is not None:
        verifies = bool(known.get("DOCKER_TLS_VERIFY"))
        own = known.get("DOCKER_CERT_PATH")
        return Endpoint(url, Path(own) if own else folder if verifies else None, verifies)
    name = known.get("DOCKER_CONTEXT") or _fields(folder / "config.json").get("currentContext")
    if not isinstance(name, str) or name in ("", "default"):
        return Endpoint(DEFAULT_URL)
    identity = hashlib.sha256(name.encode()).hexdigest()
    endpoints = _fields(folder / "contexts" / "meta" / identity / "meta.json").get("Endpoints")
    found = endpoints.get("docker") if isinstance(endpoints, dict) else None
    host = found.get("Host") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(host, str) or not host:
        raise EngineUnavailable(
            f"The Docker context {name!r} does not exist in {folder}, or names no daemon.",
            hint="See `docker context ls`, or name the daemon: --to docker=unix://PATH.",
        )
    certificates = folder / "contexts" / "tls" / identity / "docker"
    return Endpoint(host, certificates if certificates.is_dir() else None, not found.get("SkipTLSVerify"))


def _fields(path: Path) -> dict[str, object]:
    """A small JSON object of docker's; empty where there is none."""
    try:
        value = msgspec.json.decode(read_bounded(path, limits.MAX_CONFIG_BYTES))
    except PathMissing:
        return {}
    except msgspec.DecodeError as error:
        raise EngineUnavailable(f"Docker's own {path} is not JSON: {error}.", path=str(path)) from error
    return value if isinstance(value, dict) else {}
