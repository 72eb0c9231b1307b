"""Workers: woken, paused, tried again after an error, and ended with their owner."""

from __future__ import annotations

import logging
import threading

import pytest

from tidemill.workers import Worker

LOG = logging.getLogger("test")
LONG_S = 3600.0
TIMEOUT_S = 60.0


class Counting:
    """Work that lets a test wait for its n-th time."""

    def __init__(self, pause_s: float = LONG_S, failures: int = 0) -> None:
        self.seen: list[bool] = []
        self._pause_s, self._failures = pause_s, failures
        self._changed = threading.Condition()

    def __call__(self, is_woken: bool) -> float:
        with self._changed:
            self.seen.append(is_woken)
            self._changed.notify_all()
        if len(self.seen) <= self._failures:
            raise ValueError("not yet")
        return self._pause_s

    def wait(self, times: int) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: len(self.seen) >= times, TIMEOUT_S)


def test_it_works_when_woken_and_not_otherwise() -> None:
    work = Counting()
    worker = Worker("w", work, LOG)
    worker.start()
    assert work.wait(1)
    worker.wake()
    assert work.wait(2)
    worker.close()
    assert work.seen == [False, True]


def test_it_works_again_when_its_pause_is_over() -> None:
    work = Counting(pause_s=0.001)
    worker = Worker("w", work, LOG, first_s=0.001)
    worker.start()
    assert work.wait(3)
    worker.close()
    assert not any(work.seen)


def test_an_error_is_logged_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidemill.workers.RETRY_S", 0.001)
    work = Counting(failures=2)
    worker = Worker("w", work, LOG)
    worker.start()
    assert work.wait(3)
    worker.close()
    assert [record.getMessage() for record in caplog.records] == ["w: not yet"] * 2


def test_what_was_closed_does_nothing_more() -> None:
    work = Counting()
    worker = Worker("w", work, LOG, first_s=LONG_S)
    worker.start()
    worker.close()
    worker.close()
    worker.wake()
    assert worker.is_stopping
    assert work.seen == []
    never = Worker("never started", work, LOG)
    never.close()


def test_work_may_close_its_own_worker() -> None:
    workers: list[Worker] = []
    done = threading.Event()

    def work(_is_woken: bool) -> float:
        workers[0].close()
        done.set()
        return 0.0

    workers.append(Worker("w", work, LOG))
    workers[0].start()
    assert done.wait(TIMEOUT_S)
    workers[0].close()
