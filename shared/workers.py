"""Running many blocking jobs on a few threads, so that a signal stops everything within a second.

`concurrent.futures` joins its threads at exit, which can hang for as long as a socket is silent; here the threads
are daemons, the main thread only waits, and a shared `Stop` tells the jobs to end.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from transload.shared.errors import TransloadError

Item = TypeVar("Item")
Result = TypeVar("Result")

_WAIT_SECONDS = 0.5
"""How long a stopped run waits for all its threads together before it goes on without them."""


class Stopped(Exception):
    """Raised inside a job after the run was told to stop."""


@dataclass(slots=True)
class Stop:
    """Tells the jobs of one run to end."""

    _event: threading.Event = field(default_factory=threading.Event)

    def request(self) -> None:
        """Ask every job to end at its next check."""
        self._event.set()

    @property
    def is_requested(self) -> bool:
        """Whether the run is being stopped."""
        return self._event.is_set()

    def check(self) -> None:
        """Called by jobs between pieces of work.

        Raises:
            Stopped: The run is being stopped.
        """
        if self._event.is_set():
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Sleep, but not through a stop.

        Raises:
            Stopped: The run was stopped meanwhile.
        """
        if self._event.wait(seconds):
            raise Stopped


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Item, Result]):
    """What became of one item: a result, or the error that a person is told.

    Args:
        item: What was worked on.
        result: What the work returned; None when it failed.
        error: Why it failed; None when it did not.
    """

    item: Item
    result: Result | None
    error: TransloadError | None


def attempt(item: Item, work: Callable[[Item], Result]) -> Outcome[Item, Result]:
    """Do the work for one item, here; a `TransloadError` becomes its outcome."""
    try:
        return Outcome(item, work(item), None)
    except TransloadError as error:
        return Outcome(item, None, error)


def run_parallel(
    items: Iterable[Item], work: Callable[[Item], Result], *, jobs: int, stop: Stop
) -> Generator[Outcome[Item, Result], None, None]:
    """Do the work for every item on up to `jobs` threads; yield outcomes in the order in which they finish.

    Args:
        items: In the order in which they are to be started.
        work: Called with one item, on a worker thread. It checks `stop` between pieces of work.
        jobs: Number of threads, at least 1.
        stop: Requested by this function when the caller stops iterating, a signal arrives or a bug appears.

    Yields:
        One outcome an item. `TransloadError`s become outcomes.

    Raises:
        BaseException: Any other exception of a job, after the others were told to stop.
    """
    waiting = list(items)
    waiting.reverse()
    take = threading.Lock()
    finished: queue.SimpleQueue[Outcome[Item, Result] | BaseException] = queue.SimpleQueue()

    def serve() -> None:
        while not stop.is_requested:
            with take:
                if not waiting:
                    return
                item = waiting.pop()
            try:
                finished.put(Outcome(item, work(item), None))
            except TransloadError as error:
                finished.put(Outcome(item, None, error))
            except Stopped:
                return
            except BaseException as error:  # handed to the main thread, which raises it
                finished.put(error)
                return

    remaining = len(waiting)
    threads = [threading.Thread(target=serve, daemon=True) for _ in range(min(max(jobs, 1), remaining))]
    for thread in threads:
        thread.start()
    try:
        while remaining:
            outcome = finished.get()
            if isinstance(outcome, BaseException):
                raise outcome
            remaining -= 1
            yield outcome
    finally:
        if remaining:
            stop.request()
        deadline = time.monotonic() + _WAIT_SECONDS
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0) if remaining else None)
