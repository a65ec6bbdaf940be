"""The Docker daemon through docker-py: what it holds, loading into it, tagging, and a proof that an image is usable.

Reference: Docker Engine API v1.41 and later. The daemon is asked by its low-level interface, because
the high-level one hides failed loads and gives every call a timeout that a long, silent load exceeds.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transload.shared import limits
from transload.shared.compression import Buffer
from transload.shared.digests import Digest
from transload.shared.docker_answers import (
    EngineInfo,
    HeldImage,
    engine_info,
    failure_in,
    held_image,
    message_of,
    short,
)
from transload.shared.docker_endpoint import DEFAULT_URL, Endpoint, find_endpoint
from transload.shared.errors import EngineFailed, EngineUnavailable, LoadFailed, NotEnoughSpace
from transload.shared.references import Reference

if TYPE_CHECKING:
    from docker import APIClient
    from docker.tls import TLSConfig

_OLDEST_API = "1.41"
"""Docker 20.10's. Only for the first question, what the daemon speaks."""

_CALL_TIMEOUT_SECONDS = 60
"""For calls that a healthy daemon answers at once, even while it is busy unpacking."""

_ODD_ANSWERS = (OSError, ValueError, TypeError, KeyError)
"""What docker-py lets through when the other side is no Docker daemon, or the address is no address."""

_NO_SPACE = "no space left on device"
_HINT_UNAVAILABLE = (
    "Start Docker, name it with --to docker=unix://PATH or tcp://HOST:PORT, or run as a user who may use its socket. "
    "Without Docker: --to registry=HOST for an internal registry, or --to archive=DIR for files that "
    "`podman load` and `nerdctl load` read."
)
_HINT_SSH = (
    "Install the Python package paramiko beside transload, or forward the socket: "
    "ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock HOST, then --to docker=unix:///tmp/docker.sock."
)


class LoadStream:
    """An archive of known size on its way to the daemon.

    It is sent with a Content-Length, so that whatever breaks it off leaves a request that cannot look complete.

    Args:
        size_bytes: What the pieces add up to.
        pieces: The archive; an exception that it raises breaks the connection and passes through unchanged.
    """

    def __init__(self, size_bytes: int, pieces: Iterable[Buffer]) -> None:
        self._size_bytes = size_bytes
        self._pieces = pieces

    def __len__(self) -> int:
        return self._size_bytes

    def __iter__(self) -> Iterator[Buffer]:
        given_bytes = 0
        for piece in self._pieces:
            given_bytes += len(piece)
            yield piece
        if given_bytes != self._size_bytes:  # the daemon would wait for the rest for ever
            raise RuntimeError(f"an archive of {self._size_bytes:,} bytes gave {given_bytes:,}")


class DockerEngine:
    """One Docker daemon. Connects at the first call.

    Args:
        url: `unix://`, `tcp://` or `ssh://`; None for what the docker command uses: DOCKER_HOST, else the current
            context, else the local socket.
    """

    def __init__(self, url: str | None = None) -> None:
        self._asked_url = url
        self._known_client: APIClient | None = None
        self._known_info: EngineInfo | None = None
        self.url = url or DEFAULT_URL

    def info(self) -> EngineInfo:
        """What kind of daemon it is; asked once.

        Raises:
            EngineUnavailable: Nobody answers at its address, or it is not Docker.
            EngineFailed: It answers with an error.
        """
        if self._known_info is None:
            with self._translating("say what it is"):
                version, info = self._client.version(), self._client.info()
            self._known_info = engine_info(version, info)
        return self._known_info

    def inspect(self, name: str) -> HeldImage | None:
        """An image that the daemon holds, or None.

        Args:
            name: A reference, or an image id such as `sha256:...`.

        Raises:
            EngineFailed: The daemon answers with an error.
        """
        import docker.errors  # noqa: PLC0415

        with self._translating(f"look up {name}"):
            try:
                fields = self._client.inspect_image(name)  # type: ignore[no-untyped-call]
            except docker.errors.NotFound:
                return None
        return held_image(fields)

    def held_chains(self) -> set[tuple[Digest, ...]]:
        """The stacks of layers that the daemon holds: every image's diff_ids, and every beginning of them.

        A daemon with its own layer store takes an archive without a layer if it holds the stack up to it.

        Raises:
            EngineFailed: The daemon answers with an error.
        """
        with self._translating("list its images"):
            names = sorted({str(image["Id"]) for image in self._client.images(all=True)})
        chains: set[tuple[Digest, ...]] = set()
        for name in names:
            held = self.inspect(name)  # None: removed meanwhile
            if held is not None:
                chains.update(held.diff_ids[:depth] for depth in range(1, len(held.diff_ids) + 1))
        return chains

    def load(self, archive: LoadStream, name: str) -> None:
        """Send an archive (docker load) and wait, however long it takes, for the daemon to unpack it.

        A 200 proves nothing: failures are told inside the stream of messages, and the containerd store reports some
        failures as success. Look with `inspect` and `probe_usable` afterwards.

        Args:
            archive: What to load.
            name: What it is, for messages.

        Raises:
            LoadFailed: The daemon refuses the archive.
            NotEnoughSpace: The daemon's disk is full.
            EngineFailed: The daemon broke off.
        """
        with self._translating(f"load {name}"):
            # No timeout: the daemon is silent while it unpacks, which takes minutes for a large image.
            client: Any = self._client  # load_image has no way to lift the timeout, so below it
            response = client._post(
                client._url("/images/load"),
                data=archive, params={"quiet": "1"}, stream=True, timeout=None,
                headers={"Content-Type": "application/x-tar"},
            )  # fmt: skip
            with contextlib.closing(response):
                if response.status_code >= 400:
                    raise self._load_error(name, message_of(response.content))
                failure = failure_in(response.iter_lines(chunk_size=4096))
        if failure is not None:
            raise self._load_error(name, failure)

    def tag(self, image_id: Digest, target: Reference) -> None:
        """Give an image a name; a name that stood for another image is moved.

        Args:
            image_id: The image.
            target: The name, with a tag.

        Raises:
            EngineFailed: The daemon refuses.
        """
        with self._translating(f"tag {target}"):
            self._client.tag(str(image_id), target.repository, target.tag)

    def remove(self, name: str) -> None:
        """Take a name away, and its image if that was its last; for an id, the image with all its names.

        Args:
            name: A reference or image id; one that is not there is fine.

        Raises:
            EngineFailed: The daemon refuses, for instance because a container uses the image.
        """
        import docker.errors  # noqa: PLC0415

        with self._translating(f"remove {name}"), contextlib.suppress(docker.errors.NotFound):
            self._client.remove_image(name, force=name.startswith("sha256:"))

    def probe_usable(self, image_id: Digest, name: str) -> None:
        """Prove that a container can be made of an image: one is created, never started, and removed.

        Args:
            image_id: The image.
            name: What it is, for messages.

        Raises:
            LoadFailed: No container can be made of it, for the reason that the daemon gives.
        """
        import docker.errors  # noqa: PLC0415

        with self._translating(f"try {name}"):
            try:
                created = self._client.create_container(
                    str(image_id),
                    command=["transload-probe"],  # some images name no command, and are refused without one
                    network_disabled=True,
                    labels={"transload": "probe"},
                )
            except docker.errors.APIError as error:
                reason = error.explanation or str(error)
                raise self._load_error(name, f"it was taken, but no container can be made of it: {reason}") from error
            self._client.remove_container(created["Id"], v=True, force=True)

    def free_bytes(self) -> int | None:
        """Free space where the daemon keeps images; None when that cannot be seen from here.

        Raises:
            EngineUnavailable, EngineFailed: The daemon cannot be asked.
        """
        info = self.info()
        if not self.url.startswith("unix://"):
            return None
        # The containerd store lies elsewhere if containerd is the system's own and not the daemon's child.
        folder = info.root / "containerd" / "daemon" if info.store == "containerd" else info.root
        try:
            found = os.statvfs(folder)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    def close(self) -> None:
        """Give up the connections."""
        if self._known_client is not None:
            self._known_client.close()
            self._known_client = None

    @property
    def _client(self) -> APIClient:
        if self._known_client is None:
            self._known_client = self._connect()
        return self._known_client

    def _connect(self) -> APIClient:
        import docker  # noqa: PLC0415 - 200 ms that --help need not pay
        import requests.exceptions  # noqa: PLC0415 - docker-py's own transport, whose errors it lets through

        try:
            endpoint = find_endpoint(self._asked_url)
            self.url = endpoint.url
            _try_socket(self.url)
            with contextlib.closing(_client(endpoint, _OLDEST_API)) as unversioned:
                newest = unversioned.version(api_version=False)["ApiVersion"]
            return _client(endpoint, str(newest))
        except (docker.errors.DockerException, requests.exceptions.RequestException, *_ODD_ANSWERS) as error:
            hint = _HINT_SSH if "paramiko" in str(error) else _HINT_UNAVAILABLE
            raise EngineUnavailable(
                f"No Docker daemon answers at {self.url}: {short(error)}.", hint=hint, url=self.url
            ) from error

    @contextlib.contextmanager
    def _translating(self, what: str) -> Iterator[None]:
        """Turn what docker-py and requests raise into errors of our own.

        Raises:
            EngineUnavailable: The daemon cannot be reached.
            EngineFailed: It answered with an error, or broke off.
        """
        _ = self._client  # connects, so that only later failures are called failures of the daemon
        import docker.errors  # noqa: PLC0415
        import requests.exceptions  # noqa: PLC0415

        try:
            yield
        except docker.errors.APIError as error:
            raise EngineFailed(
                f"The Docker daemon at {self.url} could not {what}: {short(error.explanation or error)}.", url=self.url
            ) from error
        except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
            raise EngineFailed(
                f"The Docker daemon at {self.url} broke off when asked to {what}: {short(error)}.",
                hint="See the daemon's log (journalctl -u docker), then run the same command again.",
                url=self.url,
            ) from error

    def _load_error(self, name: str, reason: str) -> LoadFailed | NotEnoughSpace:
        facts = {"image": name, "url": self.url, "reason": reason[:2000]}
        if _NO_SPACE in reason:
            return NotEnoughSpace(
                f"The disk of the Docker daemon at {self.url} is full; {name} was not loaded: {short(reason)}.",
                hint="Free some space there (docker system df, docker image prune) and run the same command again.",
                **facts,
            )
        return LoadFailed(f"The Docker daemon at {self.url} did not load {name}: {short(reason)}.", **facts)


def _client(endpoint: Endpoint, version: str) -> APIClient:
    import docker  # noqa: PLC0415

    tls = _tls(endpoint.certificates, verifies=endpoint.verifies) if endpoint.certificates is not None else False
    client = docker.APIClient(base_url=endpoint.url, tls=tls, timeout=_CALL_TIMEOUT_SECONDS, version=version)
    client.trust_env = False  # no proxy stands between this host and the daemon that the operator names
    return client


def _tls(folder: Path, *, verifies: bool) -> TLSConfig:
    from docker.tls import TLSConfig  # noqa: PLC0415

    ca, certificate, key = (str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem"))
    return TLSConfig(
        client_cert=(certificate, key) if (folder / "key.pem").exists() else None,
        ca_cert=ca if (folder / "ca.pem").exists() else None,
        verify=verifies,
    )


def _try_socket(url: str) -> None:
    """See whether somebody listens at a `unix://` address: the reason is clearer here, and docker-py leaks the socket.

    Raises:
        OSError: Nobody does, or this user may not connect.
    """
    scheme, _, path = url.partition("://")
    if scheme == "unix":
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(limits.CONNECT_TIMEOUT_SECONDS)
            probe.connect(path)
