"""EVERY ROW joined with other streams: the answers do not depend on when they are computed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from warehouses import flush, open_inline, quiet

from tidemill.clock import to_us
from tidemill.engine import Database
from tidemill.errors import TidemillError
from tidemill.views import continuous
from tidemill.views.kept import every_row, sides

START = datetime(2024, 1, 1)
STREAM = (
    "CREATE STREAMING TABLE {name} (ts TIMESTAMP, k {type}, v INTEGER) WITH (clock = 'event',"
    " max_future = 'forever', partition = '1 hour')"
)
# Each with what it must answer once both streams are complete.
QUERIES = {
    "seen": (
        "SELECT a.k, a.v, b.v AS w FROM a LEFT JOIN b ON b.k = a.k",
        "SELECT a.ts, a.k, a.v, b.v FROM a LEFT JOIN b ON b.k = a.k AND b.ts <= a.ts",
    ),
    "before": (
        "SELECT a.k, sum(b.v) AS total, count(b.v) AS n FROM a LEFT JOIN b ON a.k = b.k"
        " AND b.ts < a.ts GROUP BY a.k",
        "SELECT a.ts, a.k, sum(b.v), count(b.v) FROM a LEFT JOIN b ON a.k = b.k AND b.ts < a.ts"
        " GROUP BY a.ts, a.k, a.n",
    ),
    "near": (
        "SELECT a.v, b.v AS w, c.v AS x FROM a JOIN b ON b.k = a.k AND b.ts > a.ts - INTERVAL '5'"
        " SECOND JOIN c ON a.v >= c.v AND c.ts >= a.ts - INTERVAL '3' SECOND WHERE b.v > 1",
        "SELECT a.ts, a.v, b.v, c.v FROM a JOIN b ON b.k = a.k AND b.ts > a.ts - INTERVAL '5'"
        " SECOND AND b.ts <= a.ts JOIN c ON a.v >= c.v AND c.ts >= a.ts - INTERVAL '3' SECOND"
        " AND c.ts <= a.ts WHERE b.v > 1",
    ),
    "most": (  # evaluated row by row: without a partner the aggregate answers all the same
        "SELECT max(b.v) AS w FROM a JOIN b ON b.k = a.k",
        "SELECT a.ts, max(b.v) FROM a LEFT JOIN b ON b.k = a.k AND b.ts <= a.ts GROUP BY a.ts, a.n",
    ),
    "of_self": (
        "SELECT a.v, older.v AS w FROM a JOIN a AS older ON older.k = a.k AND older.ts < a.ts",
        "SELECT a.ts, a.v, o.v FROM a JOIN a AS o ON o.k = a.k AND o.ts < a.ts",
    ),
    "named": (
        "SELECT a.v, b.v AS w, r.name FROM a JOIN b ON b.k = a.k AND b.v = a.v"
        " LEFT JOIN r ON r.k = b.k",
        "SELECT a.ts, a.v, b.v, r.name FROM a JOIN b ON b.k = a.k AND b.v = a.v AND b.ts <= a.ts"
        " LEFT JOIN r ON r.k = b.k",
    ),
}


@pytest.fixture(autouse=True)
def nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(continuous.KeptQueries, "start", continuous.KeptQueries.follow)
    with quiet():
        yield


def make(db: Database, kind: str = "INTEGER") -> None:
    for name in ("a", "b", "c"):
        db.sql(STREAM.format(name=name, type=kind))
    db.sql("CREATE INDEX ON b (k)")
    db.sql(f"CREATE TABLE r (k {kind}, name VARCHAR)")
    db.sql("INSERT INTO r VALUES (1, 'one'), (2, 'two'), (NULL, 'none')")
    for name, (query, _) in QUERIES.items():
        db.sql(f"CREATE STREAMING TABLE {name} AS {query} EVERY ROW")


def second(number: float) -> datetime:
    return START + timedelta(seconds=number)


@pytest.mark.parametrize("seed", range(8))
def test_answers_do_not_depend_on_when_they_are_computed(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    if seed % 2:
        monkeypatch.setattr(every_row, "BATCH_ROWS", 7)
        monkeypatch.setattr(sides, "KEYS_MAX", 1)
    folder = tmp_path / "w"
    db = open_inline(folder)
    make(db, draw.choice(["INTEGER", "BIGINT", "VARCHAR"]))
    clocks = dict.fromkeys("abc", 0.0)
    given: dict[str, list[tuple[Any, ...]]] = {name: [] for name in "abc"}
    try:
        for _ in range(25):
            name = draw.choice("aabbc")
            batch = []
            for _ in range(draw.randint(1, 6)):
                clocks[name] += draw.choice([0, 0, 1, 1, 2, 0.5])
                key = draw.choice([None, 1, 2, 3])
                batch.append((second(clocks[name]), key, draw.randint(0, 3)))
            kind = db.catalog.snapshot().get("a").get_column("k").type.name
            typed = [(t, k if k is None or kind != "VARCHAR" else str(k), v) for t, k, v in batch]
            db.append(name, typed)
            given[name] += typed
            what = draw.random()
            if what < 0.6:
                db._kept.catch_up()
            if what < 0.1:
                flush(db, name)
            if 0.6 < what < 0.7:
                db.close()
                db = open_inline(folder)
        for name in "abc":
            db.append(name, [(second(1_000), None, -1)])
        db._kept.catch_up()
        check(db)
    finally:
        db.close()


def check(db: Database) -> None:
    for name, (_, right) in QUERIES.items():
        until = f"ts < TIMESTAMP '{second(1_000)}'"
        numbered = right.replace("FROM a ", "FROM (SELECT *, _seq AS n FROM a) AS a ", 1)
        found = Counter(db.sql(f"SELECT * FROM {name} WHERE {until}").fetchall())
        expected = db.sql(f"SELECT * FROM ({numbered}) WHERE {until}").fetchall()
        assert found == Counter(expected), name
        assert found, name


def test_a_row_waits_for_the_other_stream(tmp_path: Path) -> None:
    with closing(open_inline(tmp_path / "w")) as db:
        make(db)
        db.append("a", [(second(5), 1, 7)])
        assert db._kept.catch_up() >= 0
        assert db.sql("SELECT * FROM seen").fetchall() == []
        db.append("b", [(second(5), 1, 1)])
        db._kept.catch_up()
        assert db.sql("SELECT * FROM seen").fetchall() == [], "more may come of that time"
        assert db.sql("SELECT k, total FROM before").fetchall() == [(1, None)], "none may here"
        db.append("b", [(second(5), 1, 2), (second(6), 1, 3)])
        db._kept.catch_up()
        assert sorted(db.sql("SELECT v, w FROM seen").fetchall()) == [(7, 1), (7, 2)]


def test_a_chain_is_complete_where_its_queries_are(tmp_path: Path) -> None:
    """A row of the minute after is answered with the minute's sums at once; without a next row."""
    with closing(open_inline(tmp_path / "w")) as db:
        make(db)
        db.sql(
            "CREATE STREAMING TABLE sums AS SELECT k, sum(v) AS total FROM TUMBLE(b, ts, INTERVAL"
            " '1' MINUTE) GROUP BY window_start, window_end, k EMIT ON WINDOW CLOSE"
        )
        db.sql(
            "CREATE STREAMING TABLE now_known AS SELECT a.k, s.total FROM a LEFT JOIN sums AS s"
            " ON s.k = a.k AND s.ts > a.ts - INTERVAL '1' MINUTE EVERY ROW"
        )
        db.append("a", [(second(61), 1, 0)])
        db._kept.catch_up()
        assert db.sql("SELECT count(*) FROM now_known").fetchall() == [(0,)]
        db.append("b", [(second(10), 1, 5), (second(30), 1, 6)])
        db._kept.catch_up()
        assert db.sql("SELECT count(*) FROM now_known").fetchall() == [(0,)]
        db.append("b", [(second(60), 1, 100)])
        db._kept.catch_up()
        assert db.sql("SELECT k, total FROM now_known").fetchall() == [(1, 11)]


def test_a_stream_without_rows_is_complete_where_its_source_is(tmp_path: Path) -> None:
    with closing(open_inline(tmp_path / "w")) as db:
        make(db)
        db.sql("CREATE STREAMING TABLE rare AS SELECT k FROM b WHERE v > 1000 EVERY ROW")
        db.sql(
            "CREATE STREAMING TABLE rare_minutes AS SELECT k, count(*) AS n FROM TUMBLE(rare, ts,"
            " INTERVAL '1' MINUTE) GROUP BY window_start, window_end, k EMIT ON WINDOW CLOSE"
        )
        db.sql(
            "CREATE STREAMING TABLE rare_now AS SELECT k, n FROM RECENT(rare_minutes, INTERVAL '1'"
            " MINUTE) EVERY INTERVAL '1' MINUTE"
        )
        db.sql(
            "CREATE STREAMING TABLE told AS SELECT a.k, m.n FROM a LEFT JOIN rare_now AS m"
            " ON m.k = a.k EVERY ROW"
        )
        db.append("b", [(second(130), 1, 1)])
        db.append("a", [(second(120), 1, 1), (second(179), 1, 1), (second(180), 1, 1)])
        db._kept.catch_up()
        assert [row[1] for row in db.sql("SELECT * FROM told").fetchall()] == [1, 1]


def test_before_the_first_window_closes_there_is_nothing_to_wait_for(tmp_path: Path) -> None:
    with closing(open_inline(tmp_path / "w")) as db:
        make(db)
        db.sql(
            "CREATE STREAMING TABLE minutes AS SELECT k, count(*) AS n FROM TUMBLE(b, ts,"
            " INTERVAL '1' MINUTE) GROUP BY window_start, window_end, k EMIT ON WINDOW CLOSE"
        )
        db.sql(
            "CREATE STREAMING TABLE recent AS SELECT k, sum(n) AS n FROM RECENT(minutes, INTERVAL"
            " '5' MINUTE) GROUP BY k EVERY INTERVAL '1' MINUTE"
        )
        db.sql(
            "CREATE STREAMING TABLE told AS SELECT a.v, m.n FROM a LEFT JOIN recent AS m"
            " ON m.k = a.k AND m.ts > a.ts - INTERVAL '1' MINUTE EVERY ROW"
        )
        for moment, told in ((10, 1), (30, 2), (59, 3), (60, 4), (61, 5)):
            db.append("b", [(second(moment), 1, 1)])
            db.append("a", [(second(moment), 1, moment)])
            db._kept.catch_up()
            assert len(db.sql("SELECT * FROM told").fetchall()) == told, moment
        found = dict(db.sql("SELECT v, n FROM told").fetchall())
        assert found == {10: None, 30: None, 59: None, 60: 3, 61: 3}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1 AS x FROM a JOIN b USING (k)", "says no ON"),
        ("SELECT 1 AS x FROM a, b", "says no ON"),
        ("SELECT 1 AS x FROM a RIGHT JOIN b ON a.k = b.k", "cannot join"),
        ("SELECT 1 AS x FROM a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts", "cannot join"),
        ("SELECT a.v, (SELECT max(v) FROM b) AS x FROM a", "cannot be told by their time"),
        ("SELECT a.v FROM a JOIN RECENT(b, INTERVAL '1' MINUTE) AS b ON a.k = b.k", "one window"),
        (
            "SELECT a.v FROM RECENT(a, rows => 2) AS a JOIN b ON a.k = b.k",
            "not joined with another stream",
        ),
        ("SELECT a.v FROM a JOIN summed ON a.k = summed.k", "is a view"),
    ],
)
def test_what_cannot_be_joined_is_refused(tmp_path: Path, query: str, message: str) -> None:
    with closing(open_inline(tmp_path / "w")) as db:
        for name in ("a", "b"):
            db.sql(STREAM.format(name=name, type="INTEGER"))
        db.sql("CREATE MATERIALIZED VIEW summed AS SELECT k, sum(v) AS total FROM b GROUP BY k")
        with pytest.raises(TidemillError, match=message) as caught:
            db.sql(f"CREATE STREAMING TABLE x AS {query} EVERY ROW")
        assert caught.value.hint


def test_rows_of_the_time_of_a_window_are_the_same_however_they_are_named(tmp_path: Path) -> None:
    """``ts = now()`` leaves rows out before the query runs, ``ts >= now()`` within it."""
    draw = random.Random(4)
    with closing(open_inline(tmp_path / "w")) as db:
        db.sql(STREAM.format(name="a", type="INTEGER"))
        window = "RECENT(a, rows => 3, partition_by => k)"
        for name, sign in (("narrow", "="), ("wide", ">=")):
            db.sql(
                f"CREATE STREAMING TABLE {name} AS SELECT k, v, PREV(v) AS w, PREV(v, 2) AS x"
                f" FROM {window} WHERE ts {sign} now() EVERY ROW"
            )
        for start in range(0, 40, 4):
            batch = [
                (second(start + draw.randint(-3, 3)), draw.choice([None, 1, 2]), draw.randint(0, 9))
                for _ in range(8)
            ]
            db.append("a", batch)
            db._kept.catch_up()
        found = [
            db.sql(f"SELECT * FROM {name} ORDER BY ALL").fetchall() for name in ("narrow", "wide")
        ]
        assert found[0] == found[1]
        assert len(found[0]) > 80, "some windows have two rows of one time"


def test_a_query_that_is_behind_is_complete_up_to_its_next_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that join its answers need not wait until it has caught up."""
    monkeypatch.setattr(every_row, "BATCH_ROWS", 2)
    with closing(open_inline(tmp_path / "w")) as db:
        for name in ("a", "b"):
            db.sql(STREAM.format(name=name, type="INTEGER"))
        db.sql("CREATE STREAMING TABLE x AS SELECT k, v FROM a EVERY ROW")
        (kept,) = db._kept._kept
        db.append("a", [(second(at), at, at) for at in range(7)])
        assert kept.step()
        told = [kept.complete_us]
        while kept.step():
            told.append(kept.complete_us)
        told = [None if us is None else us - to_us(START) for us in told]
        assert told == [2_000_000, 4_000_000, 6_000_000, 6_000_000]
        db.append("a", [(second(3), 0, 0)])  # late: it had been answered that far
        assert kept.step()
        assert kept.complete_us == to_us(second(6))


@pytest.mark.parametrize("seed", range(6))
def test_chains_answer_the_same_step_by_step(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far each query of a chain is when the next one looks at it."""
    draw = random.Random(seed)
    monkeypatch.setattr(every_row, "BATCH_ROWS", draw.choice([1, 3, 1_000]))
    with closing(open_inline(tmp_path / "w")) as db:
        for name in ("a", "b"):
            db.sql(STREAM.format(name=name, type="INTEGER"))
        db.sql("CREATE STREAMING TABLE x AS SELECT k, v FROM a WHERE v > 0 EVERY ROW")
        db.sql("CREATE STREAMING TABLE y AS SELECT x.k, x.v, b.v AS w FROM x JOIN b"
               " ON b.k = x.k AND b.ts > x.ts - INTERVAL '4' SECOND EVERY ROW")  # fmt: skip
        db.sql("CREATE STREAMING TABLE z AS SELECT b.v, count(y.v) AS n, sum(y.w) AS s FROM b"
               " LEFT JOIN y ON y.k = b.k AND y.ts < b.ts GROUP BY b.v EVERY ROW")  # fmt: skip
        clocks = dict.fromkeys("ab", 0.0)
        for number in range(60):
            name = draw.choice("ab")
            batch = []
            for _ in range(draw.randint(1, 5)):
                clocks[name] += draw.choice([0, 0, 1, 0.5])
                batch.append((second(clocks[name]), draw.choice([1, 2]), draw.randint(0, 3)))
            db.append(name, batch)
            for _ in range(draw.randint(0, 3)):
                draw.choice(db._kept._kept).step()
            if number % 20 == 19:
                flush(db, "a")
        for name in "ab":
            db.append(name, [(second(1_000), None, -1)])
        db._kept.catch_up()
        xs = "(SELECT ts, k, v FROM a WHERE v > 0)"
        ys = (
            f"(SELECT x.ts, x.k, x.v, b.v AS w FROM {xs} AS x JOIN b ON b.k = x.k"
            " AND b.ts > x.ts - INTERVAL '4' SECOND AND b.ts <= x.ts)"
        )
        zs = (
            f"SELECT b.ts, b.v, count(y.v), sum(y.w) FROM (SELECT *, _seq AS n FROM b) AS b LEFT"
            f" JOIN {ys} AS y ON y.k = b.k AND y.ts < b.ts GROUP BY b.ts, b.v, b.n"
        )
        for name, right in (("y", ys), ("z", zs)):
            until = f"ts < TIMESTAMP '{second(999)}'"
            found = Counter(db.sql(f"SELECT * FROM {name} WHERE {until}").fetchall())
            assert found == Counter(db.sql(f"SELECT * FROM ({right}) WHERE {until}").fetchall())
            assert found


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("SELECT v FROM RECENT(a, rows => 3) WHERE ts = now()", 4),
        ("SELECT v FROM RECENT(a, rows => 3) WHERE ts = now() AND v > 2", 2),
        ("SELECT v FROM RECENT(a, rows => 3) WHERE ts = now() OR v = 1", 6),
        (
            "SELECT v FROM (SELECT v, ts + INTERVAL '1' SECOND AS ts FROM RECENT(a, rows => 3)) "
            "WHERE ts = now()",
            3,
        ),
        ("SELECT v FROM RECENT(a, rows => 3) AS w JOIN r USING (k) WHERE r.ts = now()", 3),
    ],
)
def test_rows_of_other_times_are_left_out_only_if_the_query_says_so(
    tmp_path: Path, query: str, count: int
) -> None:
    """Four rows, a second apart; the window of the n-th has the last three up to it."""
    with closing(open_inline(tmp_path / "w")) as db:
        db.sql(STREAM.format(name="a", type="INTEGER"))
        db.sql("CREATE TABLE r (k INTEGER, ts TIMESTAMP)")
        db.sql("INSERT INTO r VALUES (1, ?)", [second(3)])
        db.sql(f"CREATE STREAMING TABLE kept AS {query} EVERY ROW")
        db.append("a", [(second(number), 1, number) for number in range(1, 5)])
        db._kept.catch_up()
        assert db.sql("SELECT count(*) FROM kept").fetchall() == [(count,)]
