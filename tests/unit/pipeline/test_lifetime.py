"""Whether a process starts Spark for work that nobody waits for."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidemill.pipeline.lifetime import AUTO, AUTO_S, LONG, SHORT, Lifetime


@dataclass
class Starter:
    is_ready: bool = False
    starts: int = 0

    def start(self) -> None:
        self.starts += 1


@dataclass
class Watch:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_short_process_starts_none_however_long_it_takes() -> None:
    starter, watch = Starter(), Watch()
    life = Lifetime(SHORT, starter, watch)
    life.begin()
    watch.now += 100 * AUTO_S
    assert not life.is_long
    assert not life.allows_background()
    life.foresee()
    assert starter.starts == 0


def test_a_long_one_starts_it_at_once_and_works_when_it_runs() -> None:
    starter = Starter()
    life = Lifetime(LONG, starter, Watch())
    life.begin()
    assert starter.starts == 1
    assert not life.allows_background()
    starter.is_ready = True
    assert life.allows_background()


def test_what_was_not_told_is_short_for_a_while() -> None:
    starter, watch = Starter(), Watch()
    life = Lifetime(AUTO, starter, watch)
    life.begin()
    watch.now += AUTO_S - 1
    assert not life.allows_background()
    assert starter.starts == 0
    watch.now += 1
    assert not life.allows_background()
    assert starter.starts == 1


@pytest.mark.parametrize("told", [SHORT, LONG, AUTO])
def test_what_somebody_waits_for_starts_it_whoever_asks(told: str) -> None:
    starter = Starter()
    life = Lifetime(told, starter, Watch())
    life.need()
    assert starter.starts == 1
    starter.is_ready = True
    life.need()
    assert starter.starts == 1
    assert life.allows_background()  # it runs, so why not
