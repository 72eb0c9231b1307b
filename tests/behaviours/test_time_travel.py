"""FOR SYSTEM_TIME AS OF: every past answer can be had again, whatever happened to the rows since.

A clock that tests set ticks between all steps; after each step the rows are written down with the
moment, and in the end every moment is asked for again.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from warehouses import ROUTES, compact, flush, open_inline, quiet

import tidemill
from tidemill.clock import FakeClock, from_us

NOW = dt.datetime(2024, 3, 1, 12)
MANNER = "clock = 'event', partition = '10 minutes', hot = '1 second', move = 'manual'"


class Chronicle:
    """A warehouse, and what was seen in it when."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock(NOW)
        self.db = open_inline(path, self.clock)
        self.seen: list[tuple[dt.datetime, list[tuple[Any, ...]]]] = []

    @property
    def now(self) -> dt.datetime:
        return from_us(self.clock.now_us())

    def tick(self, seconds: float = 1.0) -> None:
        self.clock.advance(seconds)

    def restart(self) -> None:
        self.db.close()
        self.db = open_inline(self.path, self.clock)

    def rows(self, clause: str = "", route: str = "local") -> list[tuple[Any, ...]]:
        self.db.sql(f"SET route = '{route}'")
        return self.db.sql(f"SELECT _seq, ts, k, v FROM t {clause} ORDER BY _seq").fetchall()

    def note(self) -> None:
        """Write down what is there now, and let time pass."""
        self.tick()
        self.seen.append((self.now, self.rows()))
        self.tick()

    def check(self) -> None:
        for route in ROUTES:
            for moment, rows in self.seen:
                clause = f"FOR SYSTEM_TIME AS OF TIMESTAMP '{moment}'"
                assert self.rows(clause, route) == rows, f"{route}, {moment}"


@pytest.fixture
def chronicle(tmp_path: Path) -> Iterator[Chronicle]:
    with quiet():
        made = Chronicle(tmp_path / "w")
        yield made
        made.db.close()


def create(chronicle: Chronicle, more: str = "", key: str = "") -> None:
    chronicle.db.sql(
        f"CREATE STREAMING TABLE t (ts TIMESTAMP, k INT, v INT{key}) WITH ({MANNER}{more})"
    )
    chronicle.db.sql("CREATE INDEX ON t (k)")


def some_rows(rng: random.Random, number: int) -> list[tuple[Any, ...]]:
    times = [NOW + dt.timedelta(seconds=60 * number - rng.randrange(1_800)) for _ in range(4)]
    return [(ts, rng.randrange(5), number) for ts in times]


@pytest.mark.parametrize("seed", range(4))
def test_every_moment_is_remembered(chronicle: Chronicle, seed: int) -> None:
    rng = random.Random(seed)
    create(chronicle)
    chronicle.note()
    for number in range(24):
        step = rng.choice(("append", "append", "append", "flush", "compact", "restart"))
        if step == "append":
            chronicle.db.append("t", some_rows(rng, number))
        elif step == "flush":
            flush(chronicle.db, "t")
        elif step == "compact":
            compact(chronicle.db, "t")
        else:
            chronicle.restart()
        chronicle.note()
        if number % 8 == 7:
            chronicle.check()
    chronicle.restart()
    chronicle.check()


def test_rows_of_one_moment_between_flushes(chronicle: Chronicle) -> None:
    """Append, flush, append, all without the clock moving: the last state counts."""
    create(chronicle)
    chronicle.tick()
    for number in range(3):
        chronicle.db.append("t", [(NOW, number, 0)])
        flush(chronicle.db, "t")
        chronicle.db.append("t", [(NOW, number, 1)])
    chronicle.note()
    chronicle.check()
    chronicle.restart()
    chronicle.check()


@pytest.mark.parametrize("policy", ["ignore", "replace"])
def test_keys_of_the_past(chronicle: Chronicle, policy: str) -> None:
    create(chronicle, f", on_conflict = '{policy}'", ", PRIMARY KEY (k, ts)")
    for number in range(12):
        rows = [(NOW + dt.timedelta(minutes=9 * n), n, number) for n in range(number % 4, 6)]
        chronicle.db.append("t", rows)
        chronicle.note()
        if number % 3 == 1:
            flush(chronicle.db, "t")
            chronicle.note()
        if number % 5 == 4:
            compact(chronicle.db, "t")
            chronicle.note()
        if number % 6 == 5:
            chronicle.restart()
            chronicle.note()
    chronicle.check()


def test_conditions_joins_and_aggregates_in_the_past(chronicle: Chronicle) -> None:
    create(chronicle)
    moments = []
    for number in range(4):
        chronicle.db.append(
            "t", [(NOW + dt.timedelta(minutes=15 * n), n, number) for n in range(4)]
        )
        chronicle.tick()
        moments.append(chronicle.now)
        chronicle.tick()
        flush(chronicle.db, "t")
        chronicle.tick()
    for route in ROUTES:
        chronicle.db.sql(f"SET route = '{route}'")
        for number, moment in enumerate(moments, 1):
            past = f"t FOR SYSTEM_TIME AS OF TIMESTAMP '{moment}'"
            answers = {
                f"SELECT count(*), max(v) FROM {past}": [(4 * number, number - 1)],
                f"SELECT k, count(*) FROM {past} WHERE k = 2 GROUP BY k": [(2, number)],
                f"SELECT count(*) FROM {past} WHERE ts < '{NOW + dt.timedelta(minutes=20)}'": [
                    (2 * number,)
                ],
                f"SELECT count(*) FROM {past} AS a JOIN t b ON a._seq = b._seq": [(4 * number,)],
                f"SELECT (SELECT count(*) FROM t) - count(*) FROM {past} AS a": [
                    (16 - 4 * number,)
                ],
            }
            for query, wanted in answers.items():
                assert chronicle.db.sql(query).fetchall() == wanted, query
            asked = "SELECT count(*) FROM t FOR SYSTEM_TIME AS OF $1"
            assert chronicle.db.sql(asked, [moment]).fetchall() == [(4 * number,)]
            at = f"SELECT count(*) FROM t AT (TIMESTAMP => TIMESTAMP '{moment}')"
            assert chronicle.db.sql(at).fetchall() == [(4 * number,)]


def test_before_the_table_existed(chronicle: Chronicle) -> None:
    chronicle.db.sql("CREATE TABLE earlier (k INT)")
    chronicle.tick()
    before = chronicle.now
    chronicle.tick()
    create(chronicle)
    for moment in (before, before - dt.timedelta(days=400)):
        with pytest.raises(tidemill.TidemillError) as caught:
            chronicle.rows(f"FOR SYSTEM_TIME AS OF TIMESTAMP '{moment}'")
        assert caught.value.code in ("unknown_name", "query_error", "no_snapshot"), (
            caught.value.code
        )


def test_the_future_is_the_present(chronicle: Chronicle) -> None:
    create(chronicle)
    chronicle.db.append("t", [(NOW, 1, 1)])
    rows = chronicle.rows()
    later = chronicle.now + dt.timedelta(days=1)
    assert chronicle.rows(f"FOR SYSTEM_TIME AS OF TIMESTAMP '{later}'") == rows
    assert chronicle.rows("FOR SYSTEM_TIME AS OF now()") == rows


def test_forgotten_moments_are_refused(chronicle: Chronicle) -> None:
    """Past ``time_travel`` nothing can be read, and it is an error, not a wrong answer."""
    create(chronicle)
    for number in range(3):
        chronicle.db.append("t", [(NOW, number, 0)])
        chronicle.note()
        flush(chronicle.db, "t")
        chronicle.note()
    old = list(chronicle.seen)
    chronicle.tick(3 * 86_400)
    chronicle.db.append("t", [(NOW, 9, 9)])
    flush(chronicle.db, "t")
    chronicle.note()
    compact(chronicle.db, "t")
    chronicle.db.sql("VACUUM")
    for moment, rows in old:
        try:
            found = chronicle.rows(f"FOR SYSTEM_TIME AS OF TIMESTAMP '{moment}'")
        except tidemill.TidemillError:
            continue
        assert found == rows
    chronicle.seen = chronicle.seen[-1:]
    chronicle.check()
