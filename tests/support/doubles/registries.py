"""Real registries for tests: docker-registry 2.8 plain, with TLS, with htpasswd, with token authentication.

Each runs for as long as its `with` block on a port that the system chose, and is stopped by process id. Images are
put straight into the registry's storage folder, so that no client under test is needed to fill it.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from doubles.certificates import Certificates, make_certificates
from doubles.engines import require, running
from doubles.image_factory import ImageDouble
from doubles.token_server import TokenServer, running_token_server
from transload.shared.digests import Digest
from transload.shared.image import ManifestDocument

_LISTENING = re.compile(r"listening on 127\.0\.0\.1:([0-9]+)")


@dataclass(frozen=True)
class Storage:
    """The storage folder of a docker-registry, written and read without the registry.

    Attributes:
        folder: Its `rootdirectory`.
    """

    folder: Path

    @property
    def _root(self) -> Path:
        return self.folder / "docker/registry/v2"

    def put(self, image: ImageDouble, path: str | None = None, tag: str | None = None) -> None:
        """Store an image with all its blobs.

        Args:
            image: What to store.
            path: Repository; the image's own when None.
            tag: Tag; the image's own when None.
        """
        path = path or image.image.name.path
        documents = {document.digest: document for document in image.image.documents}
        for digest, raw in image.blobs.items():
            if digest in documents:
                self.put_manifest(path, documents[digest])
            else:
                self.put_blob(path, digest, raw)
        self.tag(path, tag or image.image.name.tag or "latest", image.image.digest)

    def put_blob(self, path: str, digest: Digest, raw: bytes) -> None:
        """Store one blob and make it part of a repository."""
        self._write(self._blob(digest), raw)
        self._link(f"{path}/_layers/{digest.algorithm}/{digest.hex}", digest)

    def put_manifest(self, path: str, document: ManifestDocument) -> None:
        """Store one manifest without a tag."""
        self._write(self._blob(document.digest), document.raw)
        self._link(f"{path}/_manifests/revisions/{document.digest.algorithm}/{document.digest.hex}", document.digest)

    def tag(self, path: str, tag: str, digest: Digest) -> None:
        """Point a tag at a stored manifest."""
        self._link(f"{path}/_manifests/tags/{tag}/current", digest)
        self._link(f"{path}/_manifests/tags/{tag}/index/{digest.algorithm}/{digest.hex}", digest)

    def tagged(self, path: str, tag: str) -> str | None:
        """The digest that a tag points at, or None."""
        link = self._root / f"repositories/{path}/_manifests/tags/{tag}/current/link"
        return link.read_text() if link.exists() else None

    def blob(self, digest: Digest) -> bytes | None:
        """A blob's bytes, or None."""
        file = self._blob(digest)
        return file.read_bytes() if file.exists() else None

    def holds(self, path: str, digest: Digest) -> bool:
        """Whether a repository has a blob."""
        return (self._root / f"repositories/{path}/_layers/{digest.algorithm}/{digest.hex}/link").exists()

    def delete_blob(self, digest: Digest) -> None:
        """Lose a blob's bytes, as a broken disk does."""
        self._blob(digest).unlink()

    def unfinished_uploads(self, path: str) -> int:
        """How many upload sessions lie open."""
        return len(list((self._root / f"repositories/{path}/_uploads").glob("*")))

    def _blob(self, digest: Digest) -> Path:
        return self._root / f"blobs/{digest.algorithm}/{digest.hex[:2]}/{digest.hex}/data"

    def _link(self, name: str, digest: Digest) -> None:
        self._write(self._root / f"repositories/{name}/link", str(digest).encode())

    @staticmethod
    def _write(file: Path, content: bytes) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


@dataclass(frozen=True)
class RunningRegistry:
    """A docker-registry that runs.

    Attributes:
        host: `127.0.0.1:PORT`, as it stands in references.
        scheme: `http` or `https`.
        storage: Its storage folder.
        ca_cert: The authority that signed its certificate, when it has TLS.
        token_server: Where its tokens come from, when it wants tokens.
        log: What it printed: an access log among it.
    """

    host: str
    scheme: str
    storage: Storage
    log: Path
    ca_cert: Path | None = None
    token_server: TokenServer | None = None

    @property
    def url(self) -> str:
        """`scheme://host`."""
        return f"{self.scheme}://{self.host}"

    def put(self, image: ImageDouble, path: str | None = None, tag: str | None = None) -> str:
        """Store an image.

        Returns:
            Its reference here, `host/path:tag`.
        """
        self.storage.put(image, path, tag)
        return f"{self.host}/{path or image.image.name.path}:{tag or image.image.name.tag or 'latest'}"

    def requests(self, pattern: str) -> list[str]:
        """Lines of the access log that match a pattern, such as `"GET /v2/.*/blobs/`."""
        return [line for line in self.log.read_text(errors="replace").splitlines() if re.search(pattern, line)]


@contextlib.contextmanager
def plain_registry(folder: Path, *, storage: Path | None = None) -> Iterator[RunningRegistry]:
    """A registry on plain http without a login.

    Args:
        folder: Scratch folder for its configuration, log and storage.
        storage: Storage folder of another registry to serve as well.
    """
    with _registry(folder, storage=storage) as registry:
        yield registry


@contextlib.contextmanager
def tls_registry(
    folder: Path, *, certificates: Certificates | None = None, storage: Path | None = None
) -> Iterator[RunningRegistry]:
    """A registry on https, its certificate signed by an authority of the test."""
    with _registry(folder, certificates=certificates or make_certificates(folder), storage=storage) as registry:
        yield registry


@contextlib.contextmanager
def htpasswd_registry(
    folder: Path,
    users: Mapping[str, str],
    *,
    certificates: Certificates | None = None,
    storage: Path | None = None,
) -> Iterator[RunningRegistry]:
    """A registry that wants Basic authentication; plain http unless given certificates.

    Args:
        folder: Scratch folder.
        users: User names and passwords.
        certificates: For https.
        storage: Storage folder of another registry to serve as well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    passwords = folder / "htpasswd"
    passwords.write_bytes(b"".join(_htpasswd_line(user, password) for user, password in users.items()))
    auth = {"htpasswd": {"realm": "test", "path": str(passwords)}}
    with _registry(folder, certificates=certificates, auth=auth, storage=storage) as registry:
        yield registry


@contextlib.contextmanager
def token_registry(
    folder: Path,
    users: Mapping[str, str],
    *,
    lifetime_seconds: int = 60,
    certificates: Certificates | None = None,
    storage: Path | None = None,
) -> Iterator[RunningRegistry]:
    """A registry that wants Bearer tokens of a token server in this process; plain http unless given certificates.

    Args:
        folder: Scratch folder.
        users: User names and passwords; each may pull and push. Anybody may pull `public/*`.
        lifetime_seconds: How long a token is good for.
        certificates: For https, of the registry and of the token server.
        storage: Storage folder of another registry to serve as well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with running_token_server(folder, users, lifetime_seconds=lifetime_seconds, certificates=certificates) as server:
        auth = {"token": {"realm": server.realm, "service": server.service, "issuer": server.issuer,
                          "rootcertbundle": str(server.signing_certificate)}}  # fmt: skip
        with _registry(folder, certificates=certificates, auth=auth, storage=storage, tokens=server) as registry:
            yield registry


@contextlib.contextmanager
def _registry(
    folder: Path,
    *,
    certificates: Certificates | None = None,
    auth: Mapping[str, object] | None = None,
    storage: Path | None = None,
    tokens: TokenServer | None = None,
) -> Iterator[RunningRegistry]:
    program = require("docker-registry")
    folder.mkdir(parents=True, exist_ok=True)
    data = storage or folder / "storage"
    data.mkdir(exist_ok=True)
    http: dict[str, object] = {"addr": "127.0.0.1:0", "secret": "not-a-secret"}
    if certificates:
        http["tls"] = {"certificate": str(certificates.certificate), "key": str(certificates.key)}
    configuration = {
        "version": "0.1",
        "log": {"level": "info", "accesslog": {"disabled": False}},
        "storage": {"filesystem": {"rootdirectory": str(data)}, "delete": {"enabled": True}},
        "http": http,
        **({"auth": dict(auth)} if auth else {}),
    }
    file, log = folder / "registry.yml", folder / "registry.log"
    file.write_text(json.dumps(configuration))  # JSON is YAML

    def port() -> str | None:
        found = _LISTENING.search(log.read_text(errors="replace"))
        return found[1] if found else None

    with running([program, "serve", file], log=log, is_ready=lambda: port() is not None):
        yield RunningRegistry(
            f"127.0.0.1:{port()}",
            "https" if certificates else "http",
            Storage(data),
            log,
            certificates.ca_cert if certificates else None,
            tokens,
        )


def _htpasswd_line(user: str, password: str) -> bytes:
    command = [str(require("htpasswd")), "-niB", "-C", "4", user]
    done = subprocess.run(command, input=password.encode() + b"\n", capture_output=True, check=True)
    return done.stdout.strip() + b"\n"
