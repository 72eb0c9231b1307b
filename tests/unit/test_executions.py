"""Executions: what runs is listed, can be cancelled at any moment, and is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from tidemill.clock import FakeClock
from tidemill.errors import ClosedError, QueryError, TidemillError
from tidemill.executions import CANCELLING, RUNNING, Executions, cancellable, uncancellable


@pytest.fixture
def executions() -> Executions:
    return Executions("w", FakeClock(7))


def noted(calls: list[TidemillError | None]) -> Callable[[TidemillError | None], object]:
    return calls.append


def test_what_runs_is_listed_in_the_order_it_began(executions: Executions) -> None:
    assert executions.running() == []
    session = object()
    with executions.begin("SELECT 1", session) as first, executions.begin("append to t") as second:
        assert executions.running() == [first, second]
        assert (first.text, first.session, first.started_at_us) == ("SELECT 1", session, 7)
        assert first.thread == threading.get_ident()
        assert first.query_id != second.query_id
        assert (first.state, first.progress) == (RUNNING, None)
    assert executions.running() == []


def test_one_that_fails_has_ended(executions: Executions) -> None:
    with pytest.raises(ZeroDivisionError), executions.begin("SELECT 1"):
        raise ZeroDivisionError
    assert executions.running() == []


def test_cancelling_one_breaks_off_what_it_does(executions: Executions) -> None:
    calls: list[TidemillError | None] = []
    others: list[TidemillError | None] = []
    with executions.begin("SELECT 1"), cancellable(noted(others)):
        with executions.begin("SELECT 2") as execution:
            with cancellable(noted(calls)), cancellable(noted(calls)):
                assert executions.cancel(execution.query_id)
            assert execution.state == CANCELLING
        assert not executions.cancel(execution.query_id)
    assert (calls, others) == ([None, None], [])


def test_work_that_has_ended_is_left_alone(executions: Executions) -> None:
    calls: list[TidemillError | None] = []
    with executions.begin("SELECT 1") as execution:
        with cancellable(noted(calls)):
            pass
        execution.cancel()
    assert calls == []


def test_a_request_between_two_steps_is_not_lost(executions: Executions) -> None:
    calls: list[TidemillError | None] = []
    with executions.begin("SELECT 1") as execution:
        execution.cancel()
        for _ in range(2):
            with pytest.raises(QueryError, match="cancelled"), cancellable(noted(calls)):
                pytest.fail("it must not begin")
        with uncancellable(), cancellable(noted(calls)):
            pass
    with executions.begin("SELECT 2"), cancellable(noted(calls)):
        pass
    assert calls == []


def test_the_reason_goes_to_the_work(executions: Executions) -> None:
    calls: list[TidemillError | None] = []
    closed = ClosedError("closed")
    with executions.begin("FLUSH") as execution:
        with cancellable(noted(calls)):
            execution.cancel(closed)
        with pytest.raises(ClosedError), cancellable(noted(calls)):
            pytest.fail("it must not begin")
    assert calls == [closed]


def test_without_an_execution_nothing_is_cancelled(executions: Executions) -> None:
    calls: list[TidemillError | None] = []
    with cancellable(noted(calls)):
        executions.cancel_thread(None)
    assert calls == []


def test_progress_is_that_of_the_innermost_work(executions: Executions) -> None:
    with executions.begin("FLUSH") as execution:
        with cancellable(lambda _: None, lambda: 0.25):
            assert execution.progress == 0.25
            with cancellable(lambda _: None, lambda: None):
                assert execution.progress is None
        assert execution.progress is None


def test_a_helping_thread_works_for_the_same_execution(executions: Executions) -> None:
    calls: list[TidemillError | None] = []

    def work() -> None:
        with cancellable(noted(calls)):
            executions.cancel_thread(owner)

    owner = threading.get_ident()
    with ThreadPoolExecutor(1) as pool, executions.begin("SELECT 1"):
        pool.submit(copy_context().run, work).result()
        pool.submit(executions.cancel_thread, owner).result()
    assert calls == [None]


def test_a_thread_has_its_own_executions(executions: Executions) -> None:
    calls: list[TidemillError | None] = []
    has_begun, may_end = threading.Event(), threading.Event()

    def run() -> None:
        with executions.begin("SELECT 1"), cancellable(noted(calls)):
            has_begun.set()
            assert may_end.wait(30)

    thread = threading.Thread(target=run)
    thread.start()
    assert has_begun.wait(30)
    executions.cancel_thread(threading.get_ident())
    assert calls == []
    executions.cancel_thread(thread.ident)
    executions.cancel_thread(None)
    assert calls == [None, None]
    may_end.set()
    thread.join()


def test_once_closed_none_begins_and_others_are_waited_for(executions: Executions) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def run() -> None:
        with executions.begin("SELECT 1"):
            has_begun.set()
            assert may_end.wait(30)

    thread = threading.Thread(target=run)
    thread.start()
    assert has_begun.wait(30)
    with executions.begin("SELECT 2"):
        executions.close()
        assert not executions.wait(0.01)
        with pytest.raises(ClosedError, match='"w" is closed'):
            executions.begin("SELECT 3")
        may_end.set()
        assert executions.wait(30)  # its own does not count
    thread.join()
    assert executions.running() == []


def test_time_in_which_several_run_counts_once(
    executions: Executions, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("tidemill.executions.time.monotonic", lambda: now[0])
    with executions.begin("SELECT 1"):
        now[0] += 2
        with executions.begin("SELECT 2"):
            now[0] += 3
        now[0] += 1
        assert executions.busy_s() == 6
    now[0] += 50
    assert executions.busy_s() == 6
