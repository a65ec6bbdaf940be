"""`--to`: where images are to go, and the sink that does it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, cast

from transload.import_side.target_names import registry_name, same_name
from transload.shared.errors import InvalidConfiguration, InvalidReference
from transload.shared.image import Image
from transload.shared.references import Reference
from transload.shared.registry.options import RegistryDirectory
from transload.shared.sinks.base import ExistingTagPolicy, Sink
from transload.shared.workers import Stop

Kind = Literal["docker", "registry", "archive", "oci"]
_HINT = "Write docker, docker=unix:///run/docker.sock, registry=HOST[/PREFIX], archive=DIR or oci=DIR."


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One `--to`.

    Args:
        kind: What kind of target it is.
        value: What stands behind the equals sign; empty for plain `docker`.
    """

    kind: Kind
    value: str

    @classmethod
    def parse(cls, text: str) -> TargetSpec:
        """Read `docker[=URL]`, `registry=HOST[/PREFIX]`, `archive=DIR` or `oci=DIR`.

        Raises:
            InvalidConfiguration: Text of another shape.
        """
        kind, equals, value = text.partition("=")
        if kind not in ("docker", "registry", "archive", "oci") or bool(equals) != bool(value):
            raise InvalidConfiguration(f"Not a target: {text[:200]!r}.", hint=_HINT)
        if not value and kind != "docker":
            raise InvalidConfiguration(f"--to {kind} needs a place: {text[:200]!r}.", hint=_HINT)
        if kind == "registry":
            value = value.strip("/")
            _split_registry(value)
        return cls(cast("Kind", kind), value)

    @property
    def folder(self) -> Path | None:
        """Where files are written; None for targets that are no folder."""
        return Path(self.value) if self.kind in ("archive", "oci") else None


@dataclass(frozen=True)
class Target:
    """A place to deliver to.

    Args:
        sink: What delivers there.
        name_at: What an image, given its renamed name, is called there.
    """

    sink: Sink
    name_at: Callable[[Image, Reference], str]


@contextlib.contextmanager
def open_targets(
    specs: Sequence[TargetSpec],
    *,
    registries: RegistryDirectory,
    policy: ExistingTagPolicy,
    keep_host: bool,
    jobs: int,
    stop: Stop,
) -> Iterator[list[Target]]:
    """Make the sinks of all targets, and close them at the end; nothing is contacted yet.

    Args:
        specs: Which targets.
        registries: Logins and certificates.
        policy: For names that stand for another image there.
        keep_host: Keep the source's host in names at a registry.
        jobs: How many blobs are pushed at once.
        stop: Ends transfers.

    Raises:
        InvalidConfiguration: One target is named twice.
        CredentialsUnusable: A login for one cannot be read.
    """
    with contextlib.ExitStack() as opened:
        targets: list[Target] = []
        for spec in specs:
            target = _open_target(spec, registries=registries, policy=policy, keep_host=keep_host, jobs=jobs, stop=stop)
            opened.callback(target.sink.close)
            if any(other.sink.identity == target.sink.identity for other in targets):
                raise InvalidConfiguration(f"The target {target.sink.identity} is named twice.")
            targets.append(target)
        yield targets


def _open_target(
    spec: TargetSpec,
    *,
    registries: RegistryDirectory,
    policy: ExistingTagPolicy,
    keep_host: bool,
    jobs: int,
    stop: Stop,
) -> Target:
    match spec.kind:
        case "registry":
            from transload.shared.sinks.registry_sink import RegistrySink  # noqa: PLC0415 - HTTP costs 100 ms

            host, prefix = _split_registry(spec.value)
            sink = RegistrySink(registries.settings_for(host), prefix=prefix, policy=policy, jobs=jobs, stop=stop)
            return Target(sink, partial(registry_name, host=host, prefix=prefix, keep_host=keep_host))
        case "archive":
            from transload.import_side.sinks.archive_sink import ArchiveSink  # noqa: PLC0415

            return Target(ArchiveSink(Path(spec.value), policy), same_name)
        case "oci":
            from transload.import_side.sinks.oci_sink import OciSink  # noqa: PLC0415

            return Target(OciSink(Path(spec.value), policy), same_name)
        case "docker":
            from transload.import_side.sinks.docker_sink import DockerSink  # noqa: PLC0415 - docker-py is heavy

            return Target(DockerSink(spec.value or None, on_existing_tag=policy), same_name)


def _split_registry(value: str) -> tuple[str, str]:
    host, _, prefix = value.partition("/")
    if "://" in value:
        raise InvalidConfiguration(
            f"Not a registry: {value[:200]!r}: it is a URL.",
            hint=f"Write registry={value.partition('://')[2]}; for plain http add --insecure HOST:PORT.",
        )
    try:
        parsed = Reference.parse(f"{value}/name:tag")
    except InvalidReference as error:
        raise InvalidConfiguration(f"Not a registry: {value[:200]!r}: {error.message}", hint=_HINT) from error
    if parsed.host != host:
        raise InvalidConfiguration(
            f"Not a registry: {value[:200]!r}: {host!r} could be a part of a path.",
            hint=f"A host has a dot or a port in image references: write {host}:443.",
        )
    return host, prefix
