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


def always() -> bool:
    return True


def never() -> bool:
    return False


def test_a_short_process_starts_none_however_long_it_takes() -> None:
    starter, watch = Starter(), Watch()
    life = Lifetime(SHORT, starter, always, watch)
    life.begin()
    watch.now += 100 * AUTO_S
    assert not life.is_long
    assert not life.allows_background()
    life.foresee()
    assert starter.starts == 0


def test_a_long_one_starts_it_at_once_and_works_when_it_runs() -> None:
    starter = Starter()
    life = Lifetime(LONG, starter, never, Watch())
    life.begin()
    assert starter.starts == 1
    assert not life.allows_background()
    starter.is_ready = True
    assert life.allows_background()


def test_what_was_not_told_is_short_for_a_while() -> None:
    starter, watch = Starter(), Watch()
    life = Lifetime(AUTO, starter, always, watch)
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
    life = Lifetime(told, starter, never, Watch())
    life.need()
    assert starter.starts == 1
    starter.is_ready = True
    life.need()
    assert starter.starts == 1
    assert life.allows_background()  # it runs, so why not


def test_a_start_that_nobody_told_of_waits_for_a_calm_moment() -> None:
    starter, watch, calm = Starter(), Watch(), [False]
    life = Lifetime(AUTO, starter, lambda: calm[0], watch)
    watch.now += AUTO_S
    assert not life.allows_background()
    assert starter.starts == 0
    calm[0] = True
    assert not life.allows_background()
    assert starter.starts == 1


def test_tidying_waits_for_a_calm_moment_and_for_spark() -> None:
    starter, calm = Starter(), [True]
    life = Lifetime(LONG, starter, lambda: calm[0], Watch())
    assert not life.allows_tidying()
    starter.is_ready = True
    assert life.allows_tidying()
    calm[0] = False
    assert not life.allows_tidying()
    assert life.allows_background()
