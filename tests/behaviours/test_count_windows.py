"""Windows by count: the mover keeps the rows that queries count, and such a query reads no files.

Nothing looks by itself here: the tests move the clock and let the mover look.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from warehouses import ROUTES, open_inline, quiet

from tidemill.clock import FakeClock
from tidemill.engine import Database

NOW = dt.datetime(2024, 3, 1, 12)
SECOND = dt.timedelta(seconds=1)


class Stream:
    """A table, and all its rows as they came."""

    def __init__(self, path: Path, **settings: str) -> None:
        self.clock = FakeClock(NOW)
        self.db: Database = open_inline(path, self.clock, lifetime="long")
        given = {
            "clock": "event",
            "hot": "1 second",
            "move_min": "1 B",
            "move_every": "10 seconds",
            "durability": "none",
            "partition": "10 minutes",
            **settings,
        }
        written = ", ".join(f"{name} = '{value}'" for name, value in given.items())
        self.db.sql(f"CREATE STREAMING TABLE s (ts TIMESTAMP, v INT) WITH ({written})")
        self.rows: list[tuple[dt.datetime, int]] = []
        self.db._keeping.mover.look()  # the period begins

    def arrive(self, times: list[dt.datetime]) -> None:
        rows = [(ts, len(self.rows) + number) for number, ts in enumerate(times)]
        self.db.append("s", rows)
        self.rows += rows

    def tick(self, count: int) -> None:
        """Rows a second apart, after those that came before."""
        first = max((ts for ts, _ in self.rows), default=NOW - 3_600 * SECOND)
        self.arrive([first + (number + 1) * SECOND for number in range(count)])

    def look(self, seconds: float = 10) -> None:
        """Let the mover look, and a move that it began end."""
        mover = self.db._keeping.mover
        self.clock.advance(seconds)
        mover.look()
        watch = next(iter(mover._watches.values()))
        if watch.pending is not None:
            watch.pending.wait(60)  # type: ignore[attr-defined]
            self.clock.advance(0.5)
            mover.look()

    @property
    def hot_rows(self) -> int:
        return self.db._hot[1].view().rows

    def newest(self, count: int) -> list[tuple[dt.datetime, int]]:
        return sorted(self.rows, reverse=True)[:count]

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """The answer, which is the same on every route."""
        answers = []
        for route in ROUTES:
            self.db.sql(f"SET route = '{route}'")
            answers.append(self.db.sql(query).fetchall())
        self.db.sql("RESET route")
        assert answers[0] == answers[1]
        return answers[0]

    def explain(self, query: str) -> str:
        return "\n".join(row[0] for row in self.db.sql(f"EXPLAIN {query}").fetchall())

    def last_move(self) -> dict[str, Any]:
        moved = "SELECT * FROM tidemill.moves WHERE action = 'moved' ORDER BY at DESC LIMIT 1"
        (row,) = self.db.sql(moved).arrow().to_pylist()
        return dict(row)


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The mover looks when it is told to."""
    monkeypatch.setattr("tidemill.pipeline.mover.LOOK_EVERY_S", 1e6)
    with quiet():
        yield


@pytest.fixture
def stream(tmp_path: Path, still: None) -> Iterator[Stream]:
    made = Stream(tmp_path / "w")
    yield made
    made.db.close()


LAST = "SELECT * FROM RECENT(s, rows => 50)"


def test_the_rows_that_queries_count_stay_in_memory(stream: Stream) -> None:
    stream.tick(400)
    for _ in range(5):
        assert stream.ask(LAST) == stream.newest(50)
    stream.look()
    assert stream.hot_rows == 55  # a tenth more
    record = stream.last_move()
    assert (record["keep_rows"], record["rows"]) == (55, 345)
    assert "recent queries read the newest 50 rows" in record["reason"]
    assert record["stayed_bytes"] is not None
    assert stream.ask(LAST) == stream.newest(50)


def test_such_a_query_reads_no_files_while_memory_has_its_rows(stream: Stream) -> None:
    stream.tick(400)
    stream.ask(LAST)
    stream.look()
    told = stream.explain(LAST)
    assert "read_parquet" not in told
    assert "rows: 50 of 55 selected" in told
    assert "read_parquet" in stream.explain("SELECT * FROM RECENT(s, rows => 56)")
    assert stream.ask("SELECT * FROM RECENT(s, rows => 56)") == stream.newest(56)


@pytest.mark.parametrize("policy", ["periodic", "adaptive"])
def test_without_such_queries_or_with_a_periodic_mover_they_go(
    tmp_path: Path, still: None, policy: str
) -> None:
    stream = Stream(tmp_path / "w", move=policy)
    try:
        stream.tick(400)
        if policy == "periodic":
            stream.ask(LAST)
        stream.look()
        assert stream.hot_rows == 1  # of the last second
        assert stream.last_move()["keep_rows"] == 0
        assert stream.ask(LAST) == stream.newest(50)
    finally:
        stream.db.close()


def test_a_limit_in_order_of_time_is_a_window_by_count(stream: Stream) -> None:
    stream.tick(400)
    query = "SELECT v FROM s ORDER BY ts DESC LIMIT 20 OFFSET 10"
    wanted = [(v,) for _, v in stream.newest(30)[10:]]
    assert stream.ask(query) == wanted
    stream.look()
    assert stream.hot_rows == 33
    assert "read_parquet" not in stream.explain(query)
    assert stream.ask(query) == wanted


def test_the_newest_rows_of_each_key_are_no_window_by_count(stream: Stream) -> None:
    stream.tick(400)
    stream.ask("SELECT * FROM RECENT(s, rows => 50, partition_by => v)")
    stream.look()
    assert stream.hot_rows == 1


def test_late_rows_are_found_wherever_they_went(stream: Stream) -> None:
    """Rows newer than some of memory may be in files, since a move goes by arrival: they are
    read, and no answer depends on where a row lies."""
    rng = random.Random(5)
    for _ in range(12):
        newest = max((ts for ts, _ in stream.rows), default=NOW - 3_600 * SECOND)
        moments = [newest + number * SECOND for number in range(1, 40)]
        late = [newest - rng.randrange(300) * SECOND for _ in range(20)]
        both = moments + late
        rng.shuffle(both)
        stream.arrive(both)
        for count in (1, 7, 30, 59, 200):
            query = f"SELECT ts FROM RECENT(s, rows => {count})"
            assert stream.ask(query) == [(ts,) for ts, _ in stream.newest(count)]
        stream.look()
    assert stream.last_move()["keep_rows"] > 0


def test_windows_by_time_go_on_as_they_did(stream: Stream) -> None:
    stream.tick(400)
    for _ in range(3):
        stream.ask("SELECT count(*) FROM RECENT(s, INTERVAL '100' SECOND)")
    stream.look()
    assert stream.hot_rows == 110
    assert "recent queries read the last 100 s" in stream.last_move()["reason"]
