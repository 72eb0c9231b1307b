"""Rows outside the retention are never visible: not in memory, sealed or not, not in files, not on
any route, not in views, counts or after a restart.

The model is a list of all rows that came, and one comparison: a row is inside while its time is not
before the table's now minus the retention.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from warehouses import compact, flush, open_inline, quiet

from tidemill.clock import FakeClock
from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.pipeline.spark import SparkRuntime

START = datetime(2024, 5, 1, 10)
RETENTION = timedelta(hours=1)
Row = tuple[datetime, int, float]

VIEWS = {
    "by_key": "SELECT k, count(*) AS n, sum(v) AS total, min(ts) AS low FROM s GROUP BY k",
    "whole": "SELECT count(*) AS n, max(v) AS top FROM s",
    "several": "SELECT k % 2 AS p, count(DISTINCT k) AS ks FROM s GROUP BY 1",
    "recent": "SELECT k, count(*) AS n FROM RECENT(s, INTERVAL '3' HOUR) GROUP BY k",
    "newest": "SELECT k, v FROM RECENT(s, rows => 7)",
    "tumbled": "SELECT window_start, count(*) AS n FROM TUMBLE(s, ts, INTERVAL '20' MINUTE)"
    " GROUP BY window_start",
    "sessions": "SELECT k, window_start, count(*) AS n"
    " FROM SESSION(s, ts, INTERVAL '9' MINUTE, partition_by => k) GROUP BY ALL",
    "joined": "SELECT r.name, count(*) AS n FROM (SELECT k, count(*) AS c FROM s GROUP BY k) AS g"
    " JOIN r ON r.k = g.k GROUP BY r.name",
}


@pytest.fixture(autouse=True)
def nothing_by_itself() -> Iterator[None]:
    with quiet():
        yield


class World:
    """A warehouse on disk beside the plain list of its rows."""

    def __init__(self, path: Path, clock: str, partition: str, more: str = "") -> None:
        self.path, self.is_event = path, clock == "event"
        self.clock = FakeClock(START)
        self.rows: list[Row] = []
        self.db = self.open()
        self.db.sql(
            "CREATE STREAMING TABLE s (ts TIMESTAMP, k INTEGER, v DOUBLE) WITH (move = 'manual',"
            f" retention = '1 hour', clock = '{clock}', partition = '{partition}',"
            f" max_future = '1000 days'{more})"
        )
        self.db.sql("CREATE TABLE r (k INTEGER, name VARCHAR)")
        self.db.sql("INSERT INTO r VALUES (0, 'a'), (1, 'b'), (2, 'a'), (3, 'c')")

    def open(self) -> Database:
        return open_inline(self.path, self.clock)

    def restart(self) -> None:
        self.db.close()
        self.db = self.open()

    def append(self, rows: list[Row]) -> None:
        self.rows += rows
        self.db.append("s", [{"ts": ts, "k": k, "v": v} for ts, k, v in rows])

    @property
    def now(self) -> datetime:
        if self.is_event:
            return max((row[0] for row in self.rows), default=START)
        return datetime(1970, 1, 1) + timedelta(microseconds=self.clock.now_us())

    def visible(self) -> list[Row]:
        return [row for row in self.rows if row[0] >= self.now - RETENTION]

    def check(self) -> None:
        wanted = Counter(self.visible())
        found = self.db.sql("SELECT ts, k, v FROM s").fetchall()
        assert Counter(found) == wanted
        (counted,) = self.db.sql("SELECT count(*), count(*) FILTER (k = 1) FROM s").fetchall()
        assert counted == (wanted.total(), sum(row[1] == 1 for row in wanted.elements()))
        by_key = self.db.sql("SELECT v FROM s WHERE k = 2").fetchall()
        assert Counter(v for (v,) in by_key) == Counter(
            row[2] for row in wanted.elements() if row[1] == 2
        )
        told = self.db.sql("SELECT rows FROM tidemill.tables WHERE table_name = 's'").fetchall()
        assert told == [(wanted.total(),)]

    def check_views(self) -> None:
        for name, query in VIEWS.items():
            found = Counter(self.db.sql(f"SELECT * FROM {name}").fetchall())
            assert found == Counter(self.db.sql(query).fetchall()), name

    def make_views(self) -> None:
        for name, query in VIEWS.items():
            self.db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def hours(number: float) -> datetime:
    return START + timedelta(hours=number)


@pytest.mark.parametrize("partition", ["1 hour", "1 day"])
@pytest.mark.parametrize("place", ["tail", "history", "both"])
def test_one_row_an_hour_shows_the_last_two(tmp_path: Path, partition: str, place: str) -> None:
    world = World(tmp_path / "w", "event", partition)
    world.append([(hours(n), n % 4, float(n)) for n in range(200)])
    if place != "tail":
        flush(world.db, "s")
    world.append([(hours(n), n % 4, float(n)) for n in range(200, 240)])
    if place == "history":
        flush(world.db, "s")
    assert len(world.visible()) == 2
    world.check()
    world.restart()
    world.check()
    assert world.db.sql("SELECT count(*) FROM s").fetchall() == [(2,)]
    world.db.close()


def test_time_alone_makes_rows_invisible(tmp_path: Path) -> None:
    """By the machine's clock rows go without any row coming, also from the answers of views."""
    world = World(tmp_path / "w", "wall", "1 day")
    world.make_views()
    world.append([(hours(n / 10), n % 4, float(n)) for n in range(10)])
    for _ in range(12):
        world.check()
        world.check_views()
        world.clock.advance(599.999999)
    assert not world.visible()
    world.db.close()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_only_rows_inside_are_seen(tmp_path: Path, seed: int) -> None:
    random_of = random.Random(seed)
    clock = random_of.choice(["event", "wall"])
    index = "CREATE INDEX ON s (k)" if seed % 3 == 0 else None
    world = World(tmp_path / "w", clock, random_of.choice(["10 minutes", "1 hour", "1 day"]))
    if index:
        world.db.sql(index)
    if seed % 2:
        world.make_views()
    at = START
    for _ in range(25):
        step = random_of.choice(["append", "append", "append", "flush", "restart", "seal", "late"])
        if step in ("append", "late"):
            count = random_of.choice([1, 1, 5, 60])
            spread = 7_200 if step == "late" else 600
            rows = [
                (at - timedelta(seconds=random_of.randrange(spread)), random_of.randrange(4), n)
                for n in map(float, range(count))
            ]
            at += timedelta(seconds=random_of.choice([0, 300, 1_500]))
            world.clock.set(at)
            world.append(rows)
        elif step == "flush":
            flush(world.db, "s")
            compact(world.db, "s") if random_of.random() < 0.3 else None
        elif step == "seal":
            (hot,) = world.db._hot.values()
            hot.publisher.seal()
            hot.expire()
            world.db._keeping.look() if random_of.random() < 0.5 else None
        else:
            world.restart()
        world.check()
        if seed % 2:
            world.check_views()
    world.db.close()


def test_a_shorter_retention_holds_at_once_and_a_longer_one_too(tmp_path: Path) -> None:
    world = World(tmp_path / "w", "event", "1 hour")
    world.make_views()
    world.append([(hours(n / 20), n % 4, float(n)) for n in range(30)])
    world.check_views()
    for text, visible in (("6 minutes", 3), ("30 minutes", 11), ("10 minutes", 4)):
        world.db.sql(f"ALTER TABLE s SET (retention = '{text}')")
        assert world.db.sql("SELECT count(*) FROM s").fetchall() == [(visible,)]
        world.check_views()
    world.db.close()


@pytest.mark.parametrize("clock", ["event", "wall"])
def test_the_past_shows_what_was_inside_then(tmp_path: Path, clock: str) -> None:
    world = World(tmp_path / "w", clock, "1 day")
    shown: list[tuple[datetime, list[Any]]] = []
    ordered = "SELECT k FROM s {} ORDER BY k"
    for n in range(8):
        world.clock.set(hours(n / 3))
        world.append([(hours(n / 3), n, 0.0)])
        if n in (3, 5):
            flush(world.db, "s")
        world.clock.advance(1)
        moment = datetime(1970, 1, 1) + timedelta(microseconds=world.clock.now_us())
        shown.append((moment, world.db.sql(ordered.format("")).fetchall()))
        world.clock.advance(1)
    for moment, wanted in shown:
        clause = f"FOR SYSTEM_TIME AS OF TIMESTAMP '{moment}'"
        assert world.db.sql(ordered.format(clause)).fetchall() == wanted, moment
    world.db.close()


def test_all_routes_leave_out_the_same_rows(tmp_path: Path, shared_spark: SparkRuntime) -> None:
    world = World(tmp_path / "w", "event", "1 day")
    world.append([(hours(n / 10), n % 4, float(n)) for n in range(200)])
    flush(world.db, "s")
    world.append([(hours(20 + n / 10), n % 4, float(n)) for n in range(5)])
    world.db.close()
    settings = Settings(DATABASE_SETTINGS, {"spark_master": "local[2]"})
    with closing(Database(world.path, settings, clock=world.clock)) as db:
        for query in (
            "SELECT k, count(*), sum(v) FROM s GROUP BY k ORDER BY k",
            "SELECT count(*) FROM s",
            "SELECT ts, k FROM s ORDER BY ts",
        ):
            answers = []
            for route in ("local", "spark", "spark_sql"):
                db.sql(f"SET route = '{route}'")
                answers.append(db.sql(query).fetchall())
            assert answers[0] == answers[1] == answers[2], query
        db.sql("SET route = 'local'")
        assert db.sql("SELECT count(*) FROM s").fetchall() == [(len(world.visible()),)]
