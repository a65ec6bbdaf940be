from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from transload.shared.errors import NotFoundInRegistry
from transload.shared.workers import Outcome, Stop, Stopped, run_parallel


@pytest.fixture
def stop() -> Iterator[Stop]:
    stop = Stop()
    yield stop
    stop.request()


def test_every_item_has_one_outcome(stop: Stop) -> None:
    outcomes = list(run_parallel(range(100), lambda item: item * item, jobs=7, stop=stop))
    assert sorted((outcome.item, outcome.result) for outcome in outcomes) == [(i, i * i) for i in range(100)]
    assert not stop.is_requested


def test_no_items_are_no_work(stop: Stop) -> None:
    assert list(run_parallel([], lambda item: item, jobs=3, stop=stop)) == []


def test_items_start_in_order_and_at_most_so_many_at_once(stop: Stop) -> None:
    lock, started, running, most = threading.Lock(), [], [0], [0]
    both = threading.Barrier(2, timeout=30)

    def work(item: int) -> None:
        with lock:
            started.append(item)
            running[0] += 1
            most[0] = max(most[0], running[0])
        both.wait()  # it takes two threads to get past this
        with lock:
            running[0] -= 1

    list(run_parallel(range(20), work, jobs=2, stop=stop))
    assert most[0] == 2
    assert all(abs(item - place) <= 1 for place, item in enumerate(started))


def test_one_job_is_still_one_thread(stop: Stop) -> None:
    names = {outcome.result for outcome in run_parallel(range(5), lambda _: threading.get_ident(), jobs=0, stop=stop)}
    assert len(names) == 1
    assert threading.get_ident() not in names


def test_errors_for_people_are_outcomes_and_the_others_go_on(stop: Stop) -> None:
    def work(item: int) -> int:
        if item == 3:
            raise NotFoundInRegistry("no 3")
        return item

    outcomes = {outcome.item: outcome for outcome in run_parallel(range(6), work, jobs=2, stop=stop)}
    assert len(outcomes) == 6
    assert outcomes[3].result is None
    assert isinstance(outcomes[3].error, NotFoundInRegistry)
    assert outcomes[4] == Outcome(4, 4, None)


def test_a_bug_in_a_job_is_raised_and_stops_the_others(stop: Stop) -> None:
    def work(item: int) -> None:
        if item == 0:
            raise ZeroDivisionError
        while True:
            stop.sleep(30)

    with pytest.raises(ZeroDivisionError):
        list(run_parallel(range(4), work, jobs=4, stop=stop))
    assert stop.is_requested


def test_a_caller_that_leaves_stops_the_jobs(stop: Stop) -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        if item:
            stop.sleep(30)
        return item

    for outcome in run_parallel(range(50), work, jobs=2, stop=stop):
        assert outcome.item == 0
        break
    assert stop.is_requested
    assert len(begun) <= 3


def test_threads_that_never_look_up_do_not_hold_the_run(stop: Stop, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them together get one short time: joins are counted, no clock is watched."""
    waits: list[float | None] = []
    deaf = threading.Event()
    original = threading.Thread.join

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        waits.append(timeout)
        original(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", join)

    def work(item: int) -> None:
        if item:
            deaf.wait(60)

    for _ in run_parallel(range(9), work, jobs=8, stop=stop):
        break
    deaf.set()
    assert None not in waits
    assert len(waits) == 8
    assert sum(wait or 0 for wait in waits) < 1.0


def test_stop_interrupts_sleep_and_checks(stop: Stop) -> None:
    stop.check()
    stop.sleep(0)
    stop.request()
    with pytest.raises(Stopped):
        stop.check()
    with pytest.raises(Stopped):
        stop.sleep(60)
