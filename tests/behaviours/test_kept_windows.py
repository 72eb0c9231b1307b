"""EVERY ROW over windows: the window as of each row, in the order of arrival.

The answers are those of a plain model in Python that evaluates after each row, however rows are
batched, moved to history, or interrupted by a restart. Ticks and rows that were due before a
reference table changed are answered with the table as it was.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from warehouses import flush, open_inline, quiet

from tidemill.engine import Database
from tidemill.errors import TidemillError, UnsupportedError
from tidemill.views import continuous
from tidemill.views.kept import every_row as kept_rows
from tidemill.views.kept import time_windows

START = datetime(2024, 1, 1)
Row = tuple[Any, ...]
STREAM = (
    "CREATE STREAMING TABLE t (ts TIMESTAMP, k INTEGER, x INTEGER) WITH (clock = 'event',"
    " max_future = 'forever', partition = '1 minute')"
)
NAMES = {0: "zero", 1: "one", 2: "two"}


@pytest.fixture(autouse=True)
def nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Queries are evaluated when a test says so, and only then."""
    monkeypatch.setattr(continuous.KeptQueries, "start", continuous.KeptQueries.follow)
    with quiet():
        yield


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with closing(open_inline(tmp_path / "w")) as db:
        yield db


def second(number: float) -> datetime:
    return START + timedelta(seconds=number)


# -- the model: what a window holds when a row has arrived, by time and arrival


def of_time(given: list[Row], at: int) -> list[Row]:
    now = given[at][0]
    window = [(each[0], n) for n, each in enumerate(given[: at + 1])]
    return [given[n] for ts, n in sorted(window) if now - timedelta(seconds=7) <= ts <= now]


def newest(given: list[Row], at: int, count: int, of_key: bool) -> list[Row]:
    now, key, _ = given[at]
    window = sorted(
        (each[0], n)
        for n, each in enumerate(given[: at + 1])
        if each[0] <= now and (not of_key or each[1] == key)
    )
    return [given[n] for _, n in window[-count:]]


def totals(window: list[Row]) -> list[Row]:
    return [(len(window), sum(each[2] for each in window), max(each[0] for each in window))]


def by_key(window: list[Row]) -> list[Row]:
    return list(Counter(each[1] for each in window).items())


def rises(window: list[Row]) -> list[Row]:
    now = window[-1][0]
    pairs = zip([None, *window], window, strict=False)
    return [
        (new[2], None if old is None else old[2], new[2] if old is None else new[2] - old[2])
        for old, new in pairs
        if new[0] == now
    ]


def named(window: list[Row]) -> list[Row]:
    found = Counter(NAMES[each[1]] for each in window if each[1] in NAMES)
    return list(found.items())


Model = Callable[[list[Row], int], list[Row]]
SPAN = "RECENT(t, INTERVAL '7' SECOND)"
LAST = "RECENT(t, rows => 3)"
OF_KEY = "RECENT(t, rows => 2, partition_by => k)"
COUNT = "SELECT count(*) AS n, sum(x) AS total, max(ts) AS last"
QUERIES: dict[str, tuple[str, Model]] = {
    "span_totals": (f"{COUNT} FROM {SPAN}", lambda g, at: totals(of_time(g, at))),
    "span_keys": (
        f"SELECT k, count(*) AS n FROM {SPAN} GROUP BY k",
        lambda g, at: by_key(of_time(g, at)),
    ),
    "span_named": (
        f"SELECT name, count(*) AS n FROM {SPAN} JOIN names USING (k) GROUP BY name",
        lambda g, at: named(of_time(g, at)),
    ),
    "span_rises": (
        f"SELECT x, PREV(x) AS was, x - coalesce(PREV(x), 0) AS d FROM {SPAN} WHERE ts = now()",
        lambda g, at: rises(of_time(g, at)),
    ),
    "span_least": (
        f"SELECT x FROM {SPAN} ORDER BY x LIMIT 1",
        lambda g, at: [(min(each[2] for each in of_time(g, at)),)],
    ),
    "span_least_rise": (
        f"SELECT PREV(x) AS was, x FROM {SPAN} ORDER BY x, ts, 1 LIMIT 0",
        lambda g, at: [],
    ),
    "last_totals": (f"{COUNT} FROM {LAST}", lambda g, at: totals(newest(g, at, 3, False))),
    "key_totals": (
        f"SELECT k, count(*) AS n, sum(x) AS total FROM {OF_KEY} GROUP BY k",
        lambda g, at: [(g[at][1], *totals(newest(g, at, 2, True))[0][:2])],
    ),
}


def traffic(seed: int, count: int = 40) -> list[Row]:
    """Rows whose times stand still, go on, jump, and go back."""
    random_ = random.Random(seed)
    now, made = 0.0, []
    for _ in range(count):
        now += random_.choice((0, 0, 1, 2, 3, 30))
        late = random_.choice((0, 0, 0, 1, 2, 9, 40))
        made.append((second(now - late), random_.randrange(4), random_.randrange(100)))
    return made


def make(db: Database) -> None:
    db.sql(STREAM)
    db.sql("CREATE TABLE names (k INTEGER, name VARCHAR)")
    db.sql("INSERT INTO names VALUES " + ", ".join(map(str, NAMES.items())))
    for name, (query, _) in QUERIES.items():
        db.sql(f"CREATE STREAMING TABLE {name} AS {query} EVERY ROW")


def check(db: Database, given: list[Row]) -> None:
    for name, (_, model) in QUERIES.items():
        wanted = Counter(
            (given[at][0], *answer) for at in range(len(given)) for answer in model(given, at)
        )
        assert Counter(db.sql(f"SELECT * FROM {name}").fetchall()) == wanted, name


@pytest.mark.parametrize("rows_max", [7, 1_000_000])
@pytest.mark.parametrize("seed", range(2))
def test_any_batches_give_the_windows_of_each_row(
    seed: int, rows_max: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row at a time, some, or all at once; with moves and restarts between."""
    monkeypatch.setattr(time_windows, "WINDOW_ROWS_MAX", rows_max)
    monkeypatch.setattr(kept_rows, "BATCH_ROWS", rows_max)
    given, random_ = traffic(seed), random.Random(seed)
    for way in ("rows", "some", "all"):
        path = tmp_path / way
        db = open_inline(path)
        make(db)
        at = 0
        while at < len(given):
            size = {"rows": 1, "some": random_.randrange(1, 12), "all": len(given)}[way]
            db.append("t", given[at : at + size])
            at += size
            if way == "rows" or random_.random() < 0.5:
                db._kept.catch_up()
            if way == "some" and random_.random() < 0.2:
                flush(db, "t")
            if way == "some" and random_.random() < 0.2:
                db.close()
                db = open_inline(path)
        db._kept.catch_up()
        with closing(db):
            check(db, given)


def test_a_window_of_a_load_ends_with_each_of_its_rows(tmp_path: Path, db: Database) -> None:
    make(db)
    given = traffic(5, 30)
    path = tmp_path / "rows.csv"
    path.write_text("ts,k,x\n" + "".join(f"{ts},{k},{x}\n" for ts, k, x in given))
    db.sql(f"COPY t FROM '{path}'")
    db._kept.catch_up()
    check(db, given)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) AS n FROM RECENT(t, rows => 1, partition_by => k)",
        "SELECT x, count(*) AS n FROM RECENT(t, rows => 2, partition_by => k) GROUP BY x",
        "SELECT k, x FROM RECENT(t, rows => 2, partition_by => k) ORDER BY x LIMIT 1",
        "SELECT k, row_number() OVER (ORDER BY ts) AS n FROM RECENT(t, rows => 2, partition_by =>"
        " k)",
        "SELECT k, sum(x) OVER w AS n FROM RECENT(t, rows => 2, partition_by => k) WINDOW w AS"
        " (ORDER BY ts)",
        "SELECT max(n) AS n FROM (SELECT k, count(*) AS n FROM RECENT(t, rows => 2, partition_by"
        " => k) GROUP BY k)",
        "WITH w AS (SELECT x FROM RECENT(t, rows => 2, partition_by => k)) SELECT sum(x) AS n"
        " FROM w",
        "SELECT k, name FROM names WHERE k IN (SELECT k FROM RECENT(t, rows => 1, partition_by =>"
        " k))",
        "SELECT DISTINCT ON (x) k, x FROM RECENT(t, rows => 2, partition_by => k)",
    ],
)
def test_keys_that_are_put_together_are_refused(query: str, db: Database) -> None:
    """It would answer for the key of the row, which is not what the same SELECT says."""
    db.sql(STREAM)
    db.sql("CREATE TABLE names (k INTEGER, name VARCHAR)")
    with pytest.raises(UnsupportedError, match="puts keys together") as caught:
        db.sql(f"CREATE STREAMING TABLE s AS {query} EVERY ROW")
    assert caught.value.hint is not None
    assert "GROUP BY k" in caught.value.hint
    db.sql(f"CREATE STREAMING TABLE s AS {query} EVERY INTERVAL '1' MINUTE")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, count(*) AS n FROM {w} GROUP BY k",
        "SELECT k AS key, count(*) AS n FROM {w} GROUP BY 1",
        "SELECT k AS key, count(*) AS n FROM {w} GROUP BY key",
        "SELECT k, x, count(*) AS n FROM {w} GROUP BY ALL",
        "SELECT k, x, row_number() OVER (PARTITION BY k ORDER BY ts, x) AS n FROM {w}",
        "SELECT j, max(n) AS n FROM (SELECT k AS j, x, count(*) AS n FROM {w} GROUP BY k, x)"
        " GROUP BY j",
        "WITH w AS (SELECT * FROM {w}) SELECT w.k, sum(x) AS n FROM w GROUP BY w.k",
        "SELECT DISTINCT ON (k) k, count(*) AS n FROM {w} GROUP BY k",
        "SELECT a.k, name FROM {w} AS a JOIN names AS n ON n.k = a.k",
    ],
)
def test_keys_that_are_kept_apart_answer_as_the_select_does(query: str, db: Database) -> None:
    """Of the SELECT's answers, those of the key of the row."""
    db.sql(STREAM)
    db.sql("CREATE TABLE names (k INTEGER, name VARCHAR)")
    db.sql("INSERT INTO names VALUES " + ", ".join(map(str, NAMES.items())))
    asked = query.format(w="RECENT(t, rows => 2, partition_by => k)")
    db.sql(f"CREATE STREAMING TABLE s AS {asked} EVERY ROW")
    wanted: Counter[Row] = Counter()
    for number in range(12):
        row = (second(number), number * 7 % 3, number % 5)
        db.append("t", [row])
        found = db.sql(asked).fetchall()
        wanted.update((row[0], *answer) for answer in found if answer[0] == row[1])
    db._kept.catch_up()
    assert Counter(db.sql("SELECT * FROM s").fetchall()) == wanted


# -- reference tables


CHANGES = {
    "update": "UPDATE names SET name = 'new'",
    "delete": "DELETE FROM names",
    "insert": "INSERT INTO names VALUES (1, 'more')",
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_due_before_a_change_shows_the_value_of_then(change: str, db: Database) -> None:
    db.sql(STREAM)
    db.sql("CREATE TABLE names (k INTEGER, name VARCHAR)")
    db.sql("INSERT INTO names VALUES (1, 'old')")
    joined = "SELECT name, count(*) AS n FROM {} JOIN names USING (k) GROUP BY name"
    recent = joined.format("RECENT(p, INTERVAL '10' SECOND)")
    db.sql("CREATE STREAMING TABLE p AS SELECT k, x FROM t EVERY ROW")
    db.sql(f"CREATE STREAMING TABLE ticks AS {recent} EVERY INTERVAL '10' SECOND")
    db.sql("CREATE STREAMING TABLE named AS SELECT name FROM p JOIN names USING (k) EVERY ROW")
    closed = joined.format("TUMBLE(p, ts, INTERVAL '10' SECOND)") + ", window_end"
    db.sql(f"CREATE STREAMING TABLE closed AS {closed} EMIT ON WINDOW CLOSE")
    db.append("t", [(second(n), 1, n) for n in range(1, 26)])
    db.sql(CHANGES[change])
    tables = ("ticks", "named", "closed")
    found = {name: db.sql(f"SELECT * FROM {name}").fetchall() for name in tables}
    assert found["ticks"] == [(second(10), "old", 10), (second(20), "old", 11)]
    assert found["named"] == [(second(n), "old") for n in range(1, 26)]
    assert found["closed"] == [(second(10), "old", 9), (second(20), "old", 10)]
    db.append("t", [(second(31), 1, 1)])
    db._kept.catch_up()
    last = db.sql(f"SELECT name, n FROM ticks WHERE ts = '{second(30)}'").fetchall()
    wanted = {"update": ["new"], "delete": [], "insert": ["more", "old"]}
    assert sorted(last) == [(name, 6) for name in wanted[change]]


def test_a_tick_over_a_view_shows_the_reference_table_of_then(db: Database) -> None:
    db.sql(STREAM)
    db.sql("CREATE TABLE names (k INTEGER, name VARCHAR)")
    db.sql("INSERT INTO names VALUES (1, 'old')")
    db.sql(
        "CREATE MATERIALIZED VIEW v AS SELECT name, n FROM (SELECT k, count(*) AS n FROM t GROUP"
        " BY k) JOIN names USING (k)"
    )
    db.sql("CREATE STREAMING TABLE ticks AS SELECT name FROM v EVERY INTERVAL '10' SECOND")
    db.append("t", [(second(n), 1, n) for n in (1, 11)])
    db.sql("UPDATE names SET name = 'new'")
    assert db.sql("SELECT * FROM ticks").fetchall() == [(second(10), "old")]


def test_a_query_that_fails_does_not_hold_up_the_change(db: Database) -> None:
    db.sql(STREAM)
    db.sql("CREATE TABLE names (k INTEGER, name VARCHAR)")
    db.sql("INSERT INTO names VALUES (1, 'old')")
    db.sql(
        "CREATE STREAMING TABLE s AS SELECT CAST(name AS INTEGER) AS n FROM t JOIN names USING (k)"
        " EVERY ROW"
    )
    db.append("t", [(second(1), 1, 1)])
    with pytest.raises(TidemillError):
        db._kept.catch_up()
    db.sql("UPDATE names SET name = '7'")
    db._kept.catch_up()
    assert db.sql("SELECT n FROM s").fetchall() == [(7,)]


@pytest.mark.parametrize("batch_rows", [2, 1_000])
@pytest.mark.parametrize("seed", range(4))
def test_rows_that_are_appended_after_a_load_see_its_rows(
    db: Database, tmp_path: Path, seed: int, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if both wait to be answered; and rows that were there before it do not."""
    monkeypatch.setattr(kept_rows, "BATCH_ROWS", batch_rows)
    draw = random.Random(seed)
    db.sql(STREAM)
    for name, window in (
        ("newest", "rows => 3"),
        ("of_key", "rows => 2, partition_by => k"),
        ("recent", "INTERVAL '4' SECOND"),
    ):
        db.sql(
            f"CREATE STREAMING TABLE {name} AS SELECT list(x ORDER BY ts, x) AS xs"
            f" FROM RECENT(t, {window}) EVERY ROW"
            if name != "of_key"
            else f"CREATE STREAMING TABLE {name} AS SELECT k, list(x ORDER BY ts, x) AS xs"
            f" FROM RECENT(t, {window}) GROUP BY k EVERY ROW"
        )
    given: list[Row] = []
    for number in range(12):
        rows = [(second(len(given) + at), draw.randint(0, 2), len(given) + at) for at in range(3)]
        given += rows
        if draw.random() < 0.4:
            path = tmp_path / f"load_{number}.csv"
            path.write_text("ts,k,x\n" + "".join(f"{t},{k},{x}\n" for t, k, x in rows))
            db.sql(f"COPY t FROM '{tmp_path}/load_*.csv'")
        else:
            db.append("t", rows)
        if draw.random() < 0.3:
            db._kept.catch_up()
        if draw.random() < 0.2:
            flush(db, "t")
    db._kept.catch_up()
    for name, column in (("newest", "xs"), ("of_key", "xs"), ("recent", "xs")):
        found = [row[0] for row in db.sql(f"SELECT {column} FROM {name} ORDER BY ts").fetchall()]
        windows = {
            "newest": lambda at: newest(given, at, 3, False),
            "of_key": lambda at: newest(given, at, 2, True),
            "recent": lambda at: [
                r for r in given[: at + 1] if r[0] >= given[at][0] - timedelta(seconds=4)
            ],
        }
        assert found == [[x for _, _, x in windows[name](at)] for at in range(len(given))], name
