"""However indices are used, the answer is that of plain DuckDB over the same rows, which has none.

Joins with small tables that drive an index, alternatives (OR) over several indices, the newest and
the first rows: random queries of these forms, over memory, files and both, on each route. The sizes
from which they pay are set so low that they are used for small tables as well.
"""

from __future__ import annotations

import datetime as dt
import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from warehouses import LAYOUTS, ROUTES, difference, fill, open_inline, quiet

import tidemill

START = dt.datetime(2024, 3, 1, 10)
ROWS = 1_200
COLUMNS = "ts TIMESTAMP NOT NULL, vid BIGINT, seg INTEGER, name VARCHAR, spd DOUBLE, id BIGINT"
INDEXES = ("(vid)", "USING hash (seg)", "(name)", "USING hash (vid, seg)", "(spd)")
NAMES = ("", "a", "b", "ab", "ä", "zz")
SMALL = (
    "CREATE TABLE involved (vid BIGINT, seg INTEGER, name VARCHAR, kind INTEGER); "
    "CREATE TABLE wide (vid DOUBLE, name VARCHAR, kind INTEGER); "
    "CREATE TABLE none (vid BIGINT, kind INTEGER)"
)
FILLED = (
    "INSERT INTO involved VALUES (3, 1, 'a', 1), (3, 2, 'b', 2), (17, 1, NULL, 1), "
    "(NULL, 3, 'zz', 3), (999, 5, 'nobody', 2), (41, NULL, 'ab', 1)",
    "INSERT INTO wide VALUES (3.0, 'a', 1), (17.5, 'b', 2), (NULL, NULL, 3)",
)
frame = pa.table(
    {"vid": [5, 17, None, 3], "seg": pa.array([1, 1, 2, 3], pa.int32()), "kind": [1, 2, 3, 1]}
)


def rows(rng: random.Random) -> list[tuple[Any, ...]]:
    """Mostly in order of time; some late, some of the same time."""

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.06 else value

    found = []
    for number in range(ROWS):
        seconds = number * 10 - (rng.randrange(3_000) if rng.random() < 0.08 else 0)
        found.append(
            (
                START + dt.timedelta(seconds=max(seconds - seconds % 30, 0)),
                maybe(rng.randrange(60)),
                maybe(rng.randrange(12)),
                maybe(rng.choice(NAMES)),
                maybe(rng.choice((0.0, -0.0, 1.5, 2.25, float("nan"), 99.0))),
                number,
            )
        )
    return found


class Writer:
    """Random queries of the forms that indices are used for."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def leaf(self, p: str = "p") -> str:
        at = START + dt.timedelta(seconds=self.random.randrange(0, ROWS * 10))
        seg = self.random.randrange(-1, 13)
        return self.pick(
            f"{p}.vid = {self.random.randrange(-1, 62)}",
            f"{p}.seg = {seg}",
            f"{p}.seg = {seg}.0",
            f"{seg} = {p}.seg",
            f"{p}.name = '{self.pick(*NAMES)}'",
            f"{p}.vid IN (3, {self.random.randrange(60)}, NULL)",
            f"{p}.vid BETWEEN 10 AND {self.random.randrange(8, 16)}",
            f"{p}.spd > 2",
            f"{p}.spd = 0",
            f"{p}.ts >= TIMESTAMP '{at}'",
            f"{p}.ts < TIMESTAMP '{at}'",
            f"{p}.vid IN (SELECT vid FROM involved WHERE kind = 1)",
            f"{p}.vid IS NULL",
            f"{p}.vid + 0 = 7",
            f"NOT {p}.seg = 3",
        )

    def condition(self, depth: int = 3, p: str = "p") -> str:
        if not depth or self.random.random() < 0.25:
            return self.leaf(p)
        word = self.pick(" OR ", " OR ", " AND ")
        parts = [self.condition(depth - 1, p) for _ in range(self.random.choice((2, 2, 3)))]
        return f"({word.join(parts)})"

    def alternatives(self) -> str:
        return f"SELECT count(*), sum(id), min(ts) FROM p WHERE {self.condition()}"

    def partner(self) -> tuple[str, str]:
        """A small source under the alias i, and its key."""
        source = self.pick(
            "involved i",
            "involved AS i",
            "frame i",
            "wide i",
            "none i",
            "(VALUES (3, 1), (17, 2), (NULL, 3), (17, 1)) i(vid, kind)",
            "(SELECT vid, kind FROM involved WHERE kind < 3) i",
            "(SELECT vid, max(kind) AS kind FROM involved GROUP BY vid) i",
            "(SELECT vid, kind FROM frame WHERE kind = 1) i",
        )
        return source, "vid"

    def join(self) -> str:
        source, key = self.partner()
        kind = self.pick(
            "JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"
        )
        stream = self.pick(
            "p",
            "p",
            "RECENT(p, INTERVAL '30' MINUTE) p",
            "(SELECT * FROM p WHERE seg < 6) p",
            "(SELECT vid, seg, id, name, spd, ts FROM p) p",
        )
        own = self.random.random() < 0.5
        left, right = (stream, source) if own else (source, stream)
        on = self.pick(f"ON p.vid = i.{key}", f"ON i.{key} = p.vid", f"USING ({key})")
        if on.startswith("ON") and self.random.random() < 0.4:
            on += self.pick(" AND i.kind = 1", " AND p.seg = 3", " AND i.kind < p.seg")
        text = f"{left} {kind} {right} {on}"
        if kind == "JOIN" and on.startswith("ON") and self.random.random() < 0.3:
            text = f"{left}, {right} WHERE {on.removeprefix('ON ')}"
        elif self.random.random() < 0.5:
            only = "p" if own else "i"
            pair = (self.leaf(), "i.kind = 2", "i.kind IS NULL", "(i.kind = 1 OR p.seg = 2)")
            where = self.pick(*pair)
            if kind in ("SEMI JOIN", "ANTI JOIN"):
                where = self.leaf() if only == "p" else "i.kind > 1"
            text += f" WHERE {where}"
        if kind in ("SEMI JOIN", "ANTI JOIN"):
            return f"SELECT count(*), {'sum(p.id)' if own else 'sum(i.kind)'} FROM {text}"
        return f"SELECT i.kind, count(*), count(p.id), sum(p.id) FROM {text} GROUP BY 1"

    def first(self) -> str:
        order = self.pick(
            "ts DESC, id", "ts DESC, id", "ts, id", "spd DESC NULLS LAST, id DESC", "id"
        )
        where = f" WHERE {self.condition(2)}" if self.random.random() < 0.8 else ""
        columns = self.pick("*", "id", "id, vid, name")
        limit = self.random.choice((1, 3, 10, 40, 200))
        offset = self.pick("", "", " OFFSET 5")
        return f"SELECT {columns} FROM p{where} ORDER BY {order} LIMIT {limit}{offset}"

    def newest(self) -> str:
        count = self.random.choice((1, 7, 60, 400, 1_300))
        return f"SELECT count(*), min(ts) FROM RECENT(p, rows => {count})"

    def query(self) -> str:
        form = self.random.choice(
            (self.alternatives, self.join, self.join, self.first, self.newest)
        )
        return form()


def as_plain(text: str, last: dt.datetime) -> str:
    """The same for DuckDB, which has no windows over streams."""
    since = last - dt.timedelta(minutes=30)
    text = text.replace(
        "RECENT(p, INTERVAL '30' MINUTE) p", f"(SELECT * FROM p WHERE ts >= TIMESTAMP '{since}') p"
    )
    if "RECENT(p, rows => " in text:
        count = text.partition("=> ")[2].rstrip(")")
        text = text.replace(
            f"RECENT(p, rows => {count})", f"(SELECT * FROM p ORDER BY ts DESC LIMIT {count})"
        )
    return text


class Pair:
    """The same rows in a warehouse and in plain DuckDB."""

    def __init__(self, db: tidemill.Database, layout: str) -> None:
        self.db, self.layout = db, layout
        given = rows(random.Random(3))
        self.last = max(row[0] for row in given)
        self.duck = duckdb.connect()
        for setting in ("threads = 1", "TimeZone = 'UTC'"):
            self.duck.execute(f"SET {setting}")
        self.duck.execute(f"CREATE TABLE p ({COLUMNS})")
        self.duck.executemany("INSERT INTO p VALUES (?, ?, ?, ?, ?, ?)", given)
        self.duck.execute(SMALL)
        db.sql(
            f"CREATE STREAMING TABLE p ({COLUMNS}) WITH (clock = 'event', durability = 'none', "
            "partition = '30 minutes', move = 'manual')"
        )
        for index in INDEXES:
            db.sql(f"CREATE INDEX ON p {index}")
        db.sql(SMALL)
        for text in FILLED:
            self.duck.execute(text)
            db.sql(text)
        self.duck.register("frame", frame)
        rng = random.Random(5)
        batches = []
        while given:
            size = rng.choice((1, 7, 50, 90))
            batches.append(given[:size])
            given = given[size:]
        fill(db, "p", batches, layout)

    def compare(self, text: str) -> None:
        expected = self.duck.execute(as_plain(text, self.last)).fetchall()
        found = self.db.sql(text).fetchall()
        told = difference(found, expected, "ORDER BY" in text)
        assert told is None, f"{text}\n{told}"


@pytest.fixture(scope="module", params=LAYOUTS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    with quiet() as patch:
        patch.setattr("tidemill.hot.published.BLOCK_ROWS", 48)
        patch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 96)
        patch.setattr("tidemill.federation.driving.STAKE_ROWS_MIN", 0)
        patch.setattr("tidemill.federation.first_rows.TRIED_ROWS", 40)
        patch.setattr("tidemill.federation.first_rows.TRIED_SHARE_MAX", 1.0)
        patch.setattr("tidemill.federation.first_rows.WORTH_ROWS_MIN", 0)
        patch.setattr("tidemill.federation.first_rows.FETCHED_COLUMNS_MIN", 0)
        with open_inline(tmp_path_factory.mktemp("index_use") / "w") as db:
            made = Pair(db, request.param)
            yield made
            made.duck.close()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("seed", range(3))
def test_answers_are_those_of_duckdb(pair: Pair, route: str, seed: int) -> None:
    pair.db.sql(f"SET route = '{route}'")
    writer = Writer(100 * seed + LAYOUTS.index(pair.layout))
    for _ in range(120 if route == "local" else 40):
        pair.compare(writer.query())
    pair.db.sql("RESET route")


def test_the_forms_are_used(pair: Pair) -> None:
    """Among the random queries, so that their answers say something."""
    writer = Writer(7)
    told: Counter[str] = Counter()
    for _ in range(150):
        lines = [line for (line,) in pair.db.sql(f"EXPLAIN {writer.query()}").fetchall()]
        told["join"] += any("read first" in line and "not read" not in line for line in lines)
        told["either"] += any("value indices" in line or "ruled out by" in line for line in lines)
        told["newest"] += any("that match suffice" in line for line in lines)
        told["parts"] += any(line.count(" LIMIT ") == 3 for line in lines)
    assert told["join"] > 15
    assert told["either"] > 0
    if pair.layout != "history":
        assert told["newest"] > 0
    if pair.layout in ("split", "compacted"):
        assert told["parts"] > 0


JOIN = "SELECT count(*), sum(p.id) FROM p JOIN involved i ON p.vid = i.vid"


def selected(db: tidemill.Database, text: str) -> int:
    """How many rows in memory were selected."""
    lines = [line for (line,) in db.sql(f"EXPLAIN {text}").fetchall()]
    (line,) = [line for line in lines if "selected" in line]
    return int(line.partition("rows: ")[2].partition(" of")[0].replace(",", ""))


def test_a_join_reads_what_a_list_of_its_keys_reads(pair: Pair) -> None:
    listed = "SELECT count(*), sum(id) FROM p WHERE vid IN (SELECT vid FROM involved)"
    assert selected(pair.db, JOIN) == selected(pair.db, listed)
    if pair.layout != "history":
        assert selected(pair.db, JOIN) < selected(pair.db, "SELECT count(*) FROM p") / 2


def test_two_indices_read_little_more_than_their_rows(pair: Pair) -> None:
    text = "SELECT count(*) FROM p WHERE vid = 17 OR (seg = 3 AND spd = 1.5)"
    pair.compare(text)
    if pair.layout == "hot":
        assert selected(pair.db, text) < ROWS / 4


def test_keys_and_join_are_of_one_moment(pair: Pair) -> None:
    """While the small table changes, a join finds a key with all of its rows, or not at all."""
    db, stop = pair.db, threading.Event()
    db.sql("CREATE TABLE moving (vid BIGINT, kind INTEGER); INSERT INTO moving VALUES (3, 0)")
    counts = dict(pair.duck.execute("SELECT vid, count(*) FROM p GROUP BY vid").fetchall())

    def change() -> None:
        vid = 3
        while not stop.is_set():
            vid = (vid + 1) % 60
            db.sql("UPDATE moving SET vid = $1, kind = $1", [vid])

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(60):
            text = "SELECT m.vid, m.kind, count(p.id) FROM moving m LEFT JOIN p USING (vid)"
            ((vid, kind, count),) = db.sql(f"{text} GROUP BY ALL").fetchall()
            assert count == counts[vid]
            assert kind in (vid, 0)
    finally:
        stop.set()
        thread.join()
        db.sql("DROP TABLE moving")


def test_a_change_of_the_small_table_is_seen(pair: Pair) -> None:
    db = pair.db
    db.sql("CREATE TABLE few (vid BIGINT); INSERT INTO few VALUES (3)")
    text = "SELECT count(*) FROM p JOIN few USING (vid)"
    for vid in (3, 17, 41):
        db.sql("UPDATE few SET vid = $1", [vid])
        expected = pair.duck.execute("SELECT count(*) FROM p WHERE vid = ?", [vid]).fetchall()
        assert db.sql(text).fetchall() == expected
    db.sql("DELETE FROM few")
    assert db.sql(text).fetchall() == [(0,)]
    db.sql("INSERT INTO few SELECT range FROM range(5000)")
    pair.duck.execute("CREATE OR REPLACE TABLE few AS SELECT range AS vid FROM range(5000)")
    assert db.sql(text).fetchall() == pair.duck.execute(text).fetchall()
    db.sql("DROP TABLE few")
