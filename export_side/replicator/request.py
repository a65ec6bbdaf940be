"""What a run of the replicator was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from transload.shared.errors import InvalidConfiguration
from transload.shared.platforms import DEFAULT_PLATFORM, Platform
from transload.shared.registry.settings import Credential

DEFAULT_PROJECT = "nvidia"
DEFAULT_OUTPUT_PATH = Path("/output")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatorRequest:
    """The options, understood.

    Args:
        project: NGC's project.
        output_path: Where files and state.yml are.
        min_version: The oldest YY.MM.
        py_version: Text that a tag must have.
        images: Names, or parts of names; none for all.
        strict_name_match: Names must match as a whole.
        registry_url: `HOST[/PATH]` of the registry to push to; None for no push.
        makes_tars: A docker-save file for every image.
        makes_sifs: A SIF file for every image.
        keeps_in_docker: Every new image also goes into the local Docker.
        external_images: A file of further images.
        progress_uri: Where progress is posted.
        platform: Which image is taken out of an index.
        jobs: How many blobs at once.
    """

    project: str = DEFAULT_PROJECT
    output_path: Path = DEFAULT_OUTPUT_PATH
    min_version: str | None = None
    py_version: str | None = None
    images: tuple[str, ...] = ()
    strict_name_match: bool = False
    registry_url: str | None = None
    makes_tars: bool = True
    makes_sifs: bool = False
    keeps_in_docker: bool = False
    external_images: Path | None = None
    progress_uri: str | None = None
    platform: Platform = DEFAULT_PLATFORM
    jobs: int = 4

    @property
    def registry_host(self) -> str | None:
        """The host of the registry to push to."""
        return None if self.registry_url is None else self.registry_url.partition("/")[0]


def parse_registry_url(text: str) -> str:
    """`HOST[/PATH]` out of what a person gives, perhaps as a URL.

    Raises:
        InvalidConfiguration: Plain http, which must be allowed by name.
    """
    scheme, colon, rest = text.rpartition("://")
    if scheme.lower() not in ("", "https") or "@" in text:
        raise InvalidConfiguration(
            f"--registry-url is HOST[:PORT][/PATH], not {'a URL with a login' if '@' in text else repr(text[:100])}.",
            hint="Plain http is allowed by --insecure HOST:PORT; logins are --registry-username and "
            "--registry-password.",
        )
    return (rest if colon else text).strip("/")


def credential(username: str | None, password: str | None) -> Credential | None:
    """The login for the registry to push to; None if none was given.

    Raises:
        InvalidConfiguration: One of the two is missing.
    """
    if bool(username) != bool(password):
        raise InvalidConfiguration("--registry-username and --registry-password belong together; one is missing.")
    return Credential(username, password, source="--registry-password") if username and password else None
