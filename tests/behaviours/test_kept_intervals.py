"""EVERY ROW with partners that come later: an interval join is answered when they all are there.

Whatever the batches, moves and restarts, the answers are those of the same SELECT over all rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from sqlglot import exp
from warehouses import flush, open_inline, quiet

from tidemill.engine import Database
from tidemill.errors import UnsupportedError
from tidemill.views import continuous
from tidemill.views.kept import every_row as kept_rows
from tidemill.views.kept.time_bounds import TimeBounds, time_bounds
from tidemill.views.kept.waiting import STRETCHES_MAX, OldestWaiting

START = datetime(2024, 1, 1)
Row = tuple[Any, ...]
STREAM = (
    "CREATE STREAMING TABLE {} (ts TIMESTAMP, k INTEGER, x INTEGER, WATERMARK FOR ts AS ts -"
    " INTERVAL '5' SECOND) WITH (clock = 'event', max_future = 'forever', partition = '1 minute')"
)
LATER = "a.ts BETWEEN d.ts AND d.ts + INTERVAL '20' SECOND"
QUERIES = {
    "later": f"SELECT d.x, a.x AS y FROM d JOIN a ON a.k = d.k AND {LATER}",
    "in_where": f"SELECT d.x, a.x AS y FROM d JOIN a ON a.k = d.k WHERE {LATER}",
    "turned": "SELECT d.x, a.x AS y FROM d JOIN a ON a.k = d.k AND d.ts <= a.ts AND d.ts >= a.ts -"
    " INTERVAL '20' SECOND",
    "apart": "SELECT d.x, a.x AS y FROM d JOIN a ON a.k = d.k AND a.ts > d.ts AND a.ts - d.ts <"
    " INTERVAL '20' SECOND",
    "around": "SELECT d.x, a.x AS y FROM d JOIN a ON a.k = d.k AND a.ts BETWEEN d.ts - INTERVAL"
    " '10' SECOND AND d.ts + INTERVAL '10' SECOND",
    "long_ago": "SELECT d.x, a.x AS y FROM d JOIN a ON a.k = d.k AND a.ts < d.ts - INTERVAL '10'"
    " SECOND",
    "perhaps": f"SELECT d.x, a.x AS y FROM d LEFT JOIN a ON a.k = d.k AND {LATER}",
    "counted": "SELECT d.x, count(a.x) AS n, sum(a.x) AS total FROM d LEFT JOIN a ON a.k = d.k"
    f" AND {LATER} GROUP BY d.x",
    "three": f"SELECT d.x, a.x AS y, b.x AS z FROM d JOIN a ON a.k = d.k AND {LATER}"
    " LEFT JOIN b ON b.k = d.k AND b.ts > d.ts - INTERVAL '5' SECOND AND b.ts <= d.ts",
}


@pytest.fixture(autouse=True)
def nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(continuous.KeptQueries, "start", continuous.KeptQueries.follow)
    with quiet():
        yield


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with closing(open_inline(tmp_path / "w")) as db:
        yield db


def second(number: float) -> datetime:
    return START + timedelta(seconds=number)


def make(db: Database) -> None:
    for name in "adb":
        db.sql(STREAM.format(name))
    for name, query in QUERIES.items():
        db.sql(f"CREATE STREAMING TABLE {name} AS {query} EVERY ROW")
    db.sql(
        "CREATE STREAMING TABLE ticks AS SELECT count(*) AS n FROM RECENT(later, INTERVAL '10'"
        " SECOND) EVERY INTERVAL '10' SECOND"
    )


def check(db: Database) -> None:
    for name, query in QUERIES.items():
        found = db.sql(f"SELECT * EXCLUDE ts FROM {name} WHERE x >= 0").fetchall()
        wanted = db.sql(f"SELECT * FROM ({query}) WHERE x >= 0").fetchall()
        assert Counter(found) == Counter(wanted), name
        assert found, name
    given = [ts for (ts,) in db.sql("SELECT ts FROM later").fetchall()]
    for tick, n in db.sql("SELECT * FROM ticks").fetchall():
        assert n == sum(tick - timedelta(seconds=10) <= ts <= tick for ts in given), tick
    assert db.sql("SELECT max(n) AS n FROM ticks").fetchall()[0][0] > 1


@pytest.mark.parametrize("seed", range(2))
def test_the_answers_are_those_of_the_select(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    if seed % 2:
        monkeypatch.setattr(kept_rows, "BATCH_ROWS", 5)
    folder = tmp_path / "w"
    db = open_inline(folder)
    make(db)
    clocks = dict.fromkeys("adb", 0)
    number = 0
    for _ in range(18):
        name = draw.choice("aadddb")
        batch = []
        for _ in range(draw.randint(1, 6)):
            clocks[name] += draw.choice((0, 1, 1, 2, 3))
            number += 1
            at = clocks[name] - draw.choice((0, 0, 2, 4))  # not behind the watermark
            batch.append((second(at), draw.randrange(3), number))
        db.append(name, batch)
        what = draw.random()
        if what < 0.6:
            db._kept.catch_up()
        if what < 0.1:
            flush(db, "a", "d")
        if 0.6 < what < 0.75:
            db.close()
            db = open_inline(folder)
    for name in "adb":  # the time of all partners has passed
        db.append(name, [(second(max(clocks.values()) + 40), -1, -1)])
    db._kept.catch_up()
    with closing(db):
        check(db)


def test_a_row_waits_until_its_last_partner_can_have_come(db: Database) -> None:
    for name in "ad":
        db.sql(STREAM.format(name))
    db.sql(f"CREATE STREAMING TABLE s AS {QUERIES['perhaps']} EVERY ROW")

    def answers() -> list[Row]:
        db._kept.catch_up()
        return sorted(db.sql("SELECT * FROM s").fetchall())

    db.append("d", [(second(0), 1, 10), (second(7), 2, 20)])
    db.append("a", [(second(0), 1, 1), (second(20), 1, 2), (second(25), 2, 3)])
    assert answers() == []  # up to second 20 is complete, and 20 itself is not
    db.append("a", [(second(26), 1, 4)])
    first = [(second(0), 10, 1), (second(0), 10, 2)]
    assert answers() == first
    db.append("a", [(second(40), 2, 5)])
    assert answers() == [*first, (second(7), 20, 3)]


def test_loaded_rows_wait_as_well(tmp_path: Path, db: Database) -> None:
    for name in "ad":
        db.sql(STREAM.format(name))
    db.sql(f"CREATE STREAMING TABLE s AS {QUERIES['later']} EVERY ROW")
    path = tmp_path / "d.csv"
    path.write_text("ts,k,x\n" + "".join(f"{second(n)},1,{n}\n" for n in range(0, 60, 2)))
    db.sql(f"COPY d FROM '{path}'")
    db.append("a", [(second(n), 1, n) for n in range(0, 40, 3)])
    db._kept.catch_up()
    assert 0 < db.sql("SELECT count(DISTINCT x) FROM s").fetchall()[0][0] < 10
    db.append("a", [(second(n), 1, n) for n in (*range(40, 100, 3), 200)])
    db.append("d", [(second(200), 1, 200)])
    db._kept.catch_up()
    wanted = db.sql(f"SELECT * FROM ({QUERIES['later']}) WHERE x < 200").fetchall()
    assert Counter(db.sql("SELECT x, y FROM s").fetchall()) == Counter(wanted)


@pytest.mark.parametrize(
    "on",
    ["a.ts >= d.ts", "d.ts < a.ts", "a.ts > d.ts + INTERVAL '1' HOUR", "a.ts - d.ts > to_hours(1)"],
)
def test_a_join_that_would_wait_for_ever_is_refused(on: str, db: Database) -> None:
    for name in "ad":
        db.sql(STREAM.format(name))
    with pytest.raises(UnsupportedError, match="joined without an end") as caught:
        db.sql(
            f"CREATE STREAMING TABLE s AS SELECT d.x FROM d JOIN a ON a.k = d.k AND {on} EVERY ROW"
        )
    assert caught.value.hint is not None
    assert "a.ts <= d.ts + INTERVAL" in caught.value.hint
    db.sql(f"CREATE STREAMING TABLE s AS SELECT d.x FROM a JOIN d ON a.k = d.k AND {on} EVERY ROW")


def test_rows_must_be_kept_as_long_as_they_wait(db: Database) -> None:
    db.sql(STREAM.format("a"))
    short = STREAM.format("d").replace("WITH (", "WITH (retention = '10 seconds', ")
    db.sql(short)
    with pytest.raises(UnsupportedError, match='rows of "d" are not kept until'):
        db.sql(f"CREATE STREAMING TABLE s AS {QUERIES['later']} EVERY ROW")


DAY = 86_400_000_000
HOUR = DAY // 24


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("s.ts <= t.ts", TimeBounds(None, 0)),
        ("s.ts < t.ts", TimeBounds(None, 0, True)),
        ("t.ts > s.ts", TimeBounds(None, 0, True)),
        ("s.ts = t.ts", TimeBounds(0, 0)),
        ("s.ts <= t.ts + INTERVAL '2' HOUR", TimeBounds(None, 2 * HOUR)),
        ("s.ts - INTERVAL '2' HOUR < t.ts", TimeBounds(None, 2 * HOUR, True)),
        ("t.ts BETWEEN s.ts - INTERVAL '2' HOUR AND s.ts", TimeBounds(0, 2 * HOUR)),
        ("t.ts - s.ts <= to_hours(3)", TimeBounds(-3 * HOUR)),
        ("s.ts > t.ts - INTERVAL '1' MONTH", TimeBounds(-31 * DAY)),
        ("s.ts > t.ts + INTERVAL '1' MONTH", TimeBounds(0)),
        ("s.ts < t.ts + INTERVAL '1' MONTH", TimeBounds(None, 31 * DAY, True)),
        ("s.ts < t.ts - INTERVAL '1' MONTH", TimeBounds(None, 0, True)),
        ("s.ts <= date_add(t.ts, INTERVAL '1' HOUR)", TimeBounds(None, HOUR)),
        ("s.ts <= t.ts + s.x", TimeBounds()),
        ("s.ts <= t.ts AND s.ts < t.ts + INTERVAL 1 HOUR", TimeBounds(None, 0)),
        ("s.ts < t.ts AND s.ts <= t.ts", TimeBounds(None, 0, True)),
        ("s.ts + t.ts < s.ts", TimeBounds()),
    ],
)
def test_bounds_of_time(condition: str, wanted: TimeBounds) -> None:
    tree = sqlglot.parse_one(condition, dialect="duckdb")
    parts = list(tree.flatten()) if isinstance(tree, exp.And) else [tree]

    def is_time(table: str, node: exp.Expr) -> bool:
        return isinstance(node, exp.Column) and node.table == table and node.name == "ts"

    found = time_bounds(parts, lambda node: is_time("s", node), lambda node: is_time("t", node))
    assert replace(found, is_unclear=False) == wanted


def test_the_oldest_that_waits_is_known_with_few_notes() -> None:
    draw = random.Random(1)
    times = [draw.randrange(1_000) + n for n in range(5_000)]
    oldest, low, last = OldestWaiting(), -1, -(10**9)

    def least(after: int, upto: int) -> int | None:
        return min(times[after + 1 : upto + 1], default=None)

    for high in range(0, len(times), 3):
        low = max(low, high - draw.randrange(2_000))
        until = oldest.until(low, high, high + 500, least)
        assert until <= max(last, min([high + 500, *times[low + 1 : high + 1]]))
        assert len(oldest._stretches) <= STRETCHES_MAX
        last = until
    assert oldest.until(len(times) - 1, len(times) - 1, 7_000, least) == 7_000


@pytest.mark.parametrize(
    "condition",
    [
        "epoch(a.ts) > epoch(d.ts)",
        "NOT (a.ts < d.ts)",
        "date_diff('hour', d.ts, a.ts) BETWEEN 0 AND 2",
        "(a.ts > d.ts OR a.x = 3)",
    ],
)
def test_a_join_whose_times_are_not_understood_is_refused(db: Database, condition: str) -> None:
    """It would be accepted and miss the rows that come later."""
    for name in "ad":
        db.sql(STREAM.format(name))
    query = f"SELECT d.k FROM d JOIN a ON a.k = d.k AND {condition}"
    with pytest.raises(UnsupportedError, match="how much younger") as caught:
        db.sql(f"CREATE STREAMING TABLE x AS {query} EVERY ROW")
    assert "a.ts <= d.ts" in (caught.value.hint or "")
    db.sql(f"CREATE STREAMING TABLE x AS {query} AND a.ts <= d.ts EVERY ROW")
