"""Registry clients for tests: waits are noted and not waited."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from doubles.http_doubles import HttpDouble
from doubles.registries import RunningRegistry
from transload.shared.registry.client import RegistryClient
from transload.shared.registry.settings import RegistrySettings
from transload.shared.workers import Stop


class NotingStop(Stop):
    """A stop that sleeps no time at all and remembers how long it should have.

    Attributes:
        waits: The seconds of each wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.check()
        self.waits.append(seconds)


@contextlib.contextmanager
def client_of(
    registry: HttpDouble | RunningRegistry | str, *, stop: Stop | None = None, **settings: Any
) -> Iterator[RegistryClient]:
    """A client of a registry, closed at the end.

    Args:
        registry: A double, a real registry, or a host.
        stop: A `NotingStop` of its own when None.
        settings: Further fields of `RegistrySettings`.
    """
    host = registry if isinstance(registry, str) else registry.host
    client = RegistryClient(RegistrySettings(host, **settings), stop=stop or NotingStop())
    try:
        yield client
    finally:
        client.close()
