"""Image references, parsed and normalised once, as Docker does it.

Grammar: github.com/distribution/reference. The same value type serves source names and target names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from transload.shared.digests import Digest
from transload.shared.errors import InvalidReference, UnsupportedImage

DEFAULT_HOST = "docker.io"
DEFAULT_TAG = "latest"
MAX_NAME_LENGTH = 255

_COMPONENT = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
    r"|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?",
    re.ASCII,
)
_LARGEST_PORT = 65_535
_HINT = "Write it like nvcr.io/nvidia/pytorch:24.01-py3 or HOST:PORT/path/name@sha256:<64 digits>."


def is_tag(text: str) -> bool:
    """Whether text is a tag by the distribution grammar (some registries list others)."""
    return _TAG.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """A normalised image reference: `host/path[:tag][@digest]`.

    Args:
        host: Registry host, with its port if there is one (`docker.io` where none was given).
        path: Repository path without the host (`library/ubuntu` for `ubuntu`).
        tag: The tag, or None for a reference by digest alone.
        digest: The digest, or None.
    """

    host: str
    path: str
    tag: str | None = None
    digest: Digest | None = None

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Read a reference as a person writes it.

        Without a host it is Docker Hub's, without a path prefix there `library/`, without tag and digest
        the tag is `latest`. A first component is a host if it has a dot or a colon, or is `localhost`.

        Args:
            text: Untrusted text.

        Raises:
            InvalidReference: Text that the grammar does not admit; the message says which part.
        """
        scheme, is_url, rest = text.partition("://")
        if is_url:
            raise InvalidReference(
                f"Not an image reference: {text[:300]!r}: it begins with {scheme[:20]}://.",
                hint=f"Leave that out: {rest[:300]}",
            )
        name, _, digest_text = text.partition("@")
        digest = _digest(digest_text, text) if "@" in text else None
        head, slash, tail = name.rpartition("/")
        last, colon, tag = tail.partition(":")
        repository = f"{head}{slash}{last}"
        if colon and not _TAG.fullmatch(tag):
            raise InvalidReference(
                f"Not an image reference: {text[:300]!r}: the tag {tag[:130]!r} is not one.", hint=_HINT
            )
        host, path = _split_host(repository)
        if not _HOST.fullmatch(host) or not _has_real_port(host):
            raise InvalidReference(f"Not an image reference: {text[:300]!r}: {host[:100]!r} is no host.", hint=_HINT)
        components = path.split("/")
        bad = next((part for part in components if not _COMPONENT.fullmatch(part)), None)
        if bad is not None:
            why = "upper-case letters are not allowed" if bad.lower() != bad else "it breaks the grammar"
            raise InvalidReference(
                f"Not an image reference: {text[:300]!r}: path component {bad[:100]!r}: {why}.", hint=_HINT
            )
        if len(host) + 1 + len(path) > MAX_NAME_LENGTH:
            raise InvalidReference(
                f"Not an image reference: {text[:80]!r}...: longer than {MAX_NAME_LENGTH} characters.",
                hint=_HINT,
            )
        if not colon and digest is None:
            tag = DEFAULT_TAG
        return cls(host, path, tag or None, digest)

    @property
    def repository(self) -> str:
        """`host/path`."""
        return f"{self.host}/{self.path}"

    @property
    def version(self) -> str:
        """What a registry is asked for: the digest if there is one, else the tag."""
        return str(self.digest) if self.digest else (self.tag or DEFAULT_TAG)

    def with_digest(self, digest: Digest | None) -> Reference:
        """The same reference with another digest, or none."""
        return replace(self, digest=digest)

    def with_tag(self, tag: str) -> Reference:
        """The same repository at a tag, without a digest."""
        return replace(self, tag=tag, digest=None)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.host}/{self.path}{tag}{digest}"


def _split_host(repository: str) -> tuple[str, str]:
    first, slash, rest = repository.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost" or first.lower() != first):
        host = DEFAULT_HOST if first == "index.docker.io" else first
        path = rest
    else:
        host, path = DEFAULT_HOST, repository
    if host == DEFAULT_HOST and "/" not in path:
        path = f"library/{path}"
    return host, path


def _has_real_port(host: str) -> bool:
    port = host.rpartition("]")[2].partition(":")[2]
    return not port or 1 <= int(port) <= _LARGEST_PORT


def _digest(digest_text: str, text: str) -> Digest:
    try:
        return Digest.parse(digest_text)
    except (InvalidReference, UnsupportedImage) as error:
        raise InvalidReference(f"Not an image reference: {text[:300]!r}: {error.message}", hint=_HINT) from error
