"""Random histories of rows and changes: deferred changes give what a plain list of rows gives.

Each history appends rows (late ones among them), updates and deletes some by predicates, by keys,
by expressions and by time, moves, compacts, carries changes out, restarts and reads, in any order;
the rows are kept in a Python list beside it, to which each statement is applied at once. Changes
lie deferred between the reads, so that many are carried out together.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from warehouses import ROUTES, compact, copy_warehouse, flush, open_inline, quiet

import tidemill
from tidemill.clock import FakeClock, from_us

SEEDS_DEFAULT = 60
NOW = dt.datetime(2024, 3, 1, 12)
MANNER = "clock = 'event', partition = '10 minutes', hot = '1 second', move = 'manual'"
KEY = ", PRIMARY KEY (k, ts)"
MODES = ("defer", "defer", "eager")


@dataclass
class Row:
    seq: int
    ts: dt.datetime
    k: int
    v: int | None
    w: str

    @property
    def shown(self) -> tuple[Any, ...]:
        return self.seq, self.ts, self.k, self.v, self.w


Test = Callable[[Row], bool]


@dataclass
class World:
    """A warehouse, the rows that it should have, and what was seen when."""

    path: Path
    rng: random.Random
    key: str = ""
    rows: list[Row] = field(default_factory=list)
    next_seq: int = 1
    seen: list[tuple[dt.datetime, list[tuple[Any, ...]]]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = FakeClock(NOW)
        self.db = open_inline(self.path, self.clock)
        self.db.sql(
            "CREATE STREAMING TABLE t (ts TIMESTAMP, k INT, v INT, w VARCHAR NOT NULL"
            f"{self.key}) WITH ({MANNER}, changes = '{self.rng.choice(MODES)}')"
        )
        if self.rng.random() < 0.7:
            self.db.sql("CREATE INDEX ON t (k)")
        if self.rng.random() < 0.3:
            self.db.sql("CREATE INDEX ON t (v)")

    # -- steps

    def time(self) -> dt.datetime:
        return NOW + dt.timedelta(seconds=30 * self.rng.randrange(200))

    def append(self) -> None:
        count = self.rng.choice((1, 1, 3, 8, 40))
        taken = {(row.k, row.ts) for row in self.rows}
        given: list[dict[str, Any]] = []
        for _ in range(count):
            row = {"ts": self.time(), "k": self.rng.randrange(6), "w": self.rng.choice("abc")}
            if self.key and (row["k"], row["ts"]) in taken:
                continue
            taken.add((row["k"], row["ts"]))
            row["v"] = self.rng.choice((None, *range(8)))
            given.append(row)
        if not given:
            return
        self.log.append(f"append {len(given)}")
        self.db.append("t", given[0] if len(given) == 1 else given)
        for row in given:
            self.rows.append(Row(self.next_seq, row["ts"], row["k"], row["v"], row["w"]))
            self.next_seq += 1

    def condition(self) -> tuple[str, Test, list[Any]]:
        """A condition as SQL, as a function, and its parameters."""
        rng = self.rng
        kind = rng.randrange(9)
        if kind == 0:
            k = rng.randrange(6)
            return "k = ?", lambda row: row.k == k, [k]
        if kind == 1:
            low = self.time()
            high = low + dt.timedelta(seconds=rng.choice((0, 600, 3_000)))
            sql = f"ts BETWEEN TIMESTAMP '{low}' AND TIMESTAMP '{high}'"
            return sql, lambda row: low <= row.ts <= high, []
        if kind == 2:
            v = rng.randrange(8)
            return f"v > {v}", lambda row: row.v is not None and row.v > v, []
        if kind == 3:
            k, low = rng.randrange(6), self.time()
            sql = f"k = {k} AND ts >= '{low}'"
            return sql, lambda row: row.k == k and row.ts >= low, []
        if kind == 4:
            k = rng.randrange(6)
            sql = f"(v IS NULL OR w = 'a') AND k <> {k}"
            return sql, lambda row: (row.v is None or row.w == "a") and row.k != k, []
        if kind == 5:
            return "NOT (v = 3)", lambda row: row.v is not None and row.v != 3, []
        if kind == 6:
            return "k IN (1, 4)", lambda row: row.k in (1, 4), []
        if kind == 7 and self.rows:
            row = rng.choice(self.rows)
            ts, k = row.ts, row.k
            return "k = ? AND ts = ?", lambda row: row.k == k and row.ts == ts, [k, ts]
        high = self.time()
        return f"ts < '{high}'", lambda row: row.ts < high, []

    def delete(self) -> None:
        sql, test, params = self.condition()
        if self.rng.random() < 0.4:
            sql, test = f"({sql}) AND v = 2", _both(test, lambda row: row.v == 2)
        self._sql(f"DELETE FROM t WHERE {sql}", params)
        self.rows = [row for row in self.rows if not test(row)]

    def update(self) -> None:
        sql, test, params = self.condition()
        kind = self.rng.randrange(6)
        v, w = self.rng.choice((None, 5, 6)), self.rng.choice("def")
        count = sum(row.k == 1 for row in self.rows)
        shown = "NULL" if v is None else v
        sets, change = (
            ("v = ?, w = ?", lambda row: _set(row, v, w)),
            ("v = k", lambda row: _set(row, row.k, row.w)),
            # an expression: resolved at once
            (
                "v = v + 1, w = upper(w)",
                lambda row: _set(row, None if row.v is None else row.v + 1, row.w.upper()),
            ),
            (f"v = {shown}", lambda row: _set(row, v, row.w)),
            (f"w = '{w}'", lambda row: _set(row, row.v, w)),
            (
                "v = (SELECT count(*) FROM t AS o WHERE o.k = 1)",
                lambda row: _set(row, count, row.w),
            ),
        )[kind]
        params = [v, w, *params] if kind == 0 else params
        self._sql(f"UPDATE t SET {sets} WHERE {sql}", params)
        for row in self.rows:
            if test(row):
                change(row)

    def shift(self) -> None:
        """An UPDATE of the time: old rows go, new ones come behind all others."""
        sql, test, params = self.condition()
        self._sql(f"UPDATE t SET ts = ts + INTERVAL '7' SECOND WHERE {sql}", params)
        moved = [row for row in self.rows if test(row)]
        self.rows = [row for row in self.rows if not test(row)]
        for row in sorted(moved, key=lambda row: row.seq):
            row.ts += dt.timedelta(seconds=7)
            row.seq = self.next_seq
            self.next_seq += 1
            self.rows.append(row)

    def merge(self) -> None:
        """MERGE by key and time: some go, some change, some come."""
        rng = self.rng
        source: dict[tuple[int, dt.datetime], int | None] = {}
        for _ in range(rng.choice((1, 3, 12))):
            row = rng.choice(self.rows) if self.rows and rng.random() < 0.6 else None
            key = (rng.randrange(6), self.time()) if row is None else (row.k, row.ts)
            source[key] = rng.choice((None, *range(8)))
        values = ", ".join(
            f"({k}, TIMESTAMP '{ts}', {'NULL' if v is None else v}::INT)"
            for (k, ts), v in source.items()
        )
        with_update = rng.random() < 0.8
        update = "WHEN MATCHED THEN UPDATE SET v = coalesce(s.v, t.v), w = 'm' "
        self._sql(
            f"MERGE INTO t USING (VALUES {values}) AS s(k, ts, v) ON t.k = s.k AND t.ts = s.ts "
            f"WHEN MATCHED AND s.v > 5 THEN DELETE {update if with_update else ''}"
            "WHEN NOT MATCHED AND s.k <> 5 THEN INSERT (ts, k, v, w) VALUES (s.ts, s.k, s.v, 'n')",
            [],
        )
        left = []
        for row in self.rows:
            v = source.get((row.k, row.ts), -1)
            if v == -1:
                left.append(row)
            elif v is None or v <= 5:
                if with_update:
                    _set(row, row.v if v is None else v, "m")
                left.append(row)
        met = {(row.k, row.ts) for row in self.rows}
        self.rows = left
        for (k, ts), v in source.items():
            if (k, ts) not in met and k != 5:
                self._add(ts, k, v, "n")

    def upsert(self) -> None:
        """INSERT … ON CONFLICT of some rows; without a key it is one that cannot meet any."""
        if not self.key:
            return
        rng = self.rng
        source: dict[tuple[int, dt.datetime], int] = {}
        for _ in range(rng.choice((1, 4))):
            row = rng.choice(self.rows) if self.rows and rng.random() < 0.6 else None
            key = (rng.randrange(6), self.time()) if row is None else (row.k, row.ts)
            source[key] = rng.randrange(8)
        values = ", ".join(f"('{ts}', {k}, {v}, 'u')" for (k, ts), v in source.items())
        updates = rng.random() < 0.6
        do = "UPDATE SET v = excluded.v, w = t.w WHERE v IS NOT NULL" if updates else "NOTHING"
        self._sql(f"INSERT INTO t (ts, k, v, w) VALUES {values} ON CONFLICT DO {do}", [])
        known = {(row.k, row.ts): row for row in self.rows}
        for (k, ts), v in source.items():
            row = known.get((k, ts))
            if row is None:
                self._add(ts, k, v, "u")
            elif updates and row.v is not None:
                row.v = v

    def _add(self, ts: dt.datetime, k: int, v: int | None, w: str) -> None:
        self.rows.append(Row(self.next_seq, ts, k, v, w))
        self.next_seq += 1

    def _sql(self, text: str, params: list[Any]) -> None:
        self.log.append(f"{text} {params}")
        self.db.sql(text, params or None)

    def move(self) -> None:
        self.log.append("flush")
        if self.rng.random() < 0.5:
            flush(self.db, "t")
        else:  # a move alone: files get the changes, older ones wait
            hot = self.db._hot[self.db.catalog.snapshot().get("t").table_id]
            keeping = self.db._keeping
            keeping.wait(keeping._submit_move(hot, self.rng.choice((None, self.next_seq // 2)), ""))

    def alter(self) -> None:
        mode = self.rng.choice(MODES)
        self._sql(f"ALTER TABLE t SET (changes = '{mode}')", [])

    def compact(self) -> None:
        self.log.append("compact")
        compact(self.db, "t")

    def restart(self) -> None:
        self.log.append("restart")
        self.db.close()
        self.db = open_inline(self.path, self.clock)

    def kill(self) -> None:
        """Go on with a copy of the files, as they are in the middle of everything."""
        self.log.append("kill")
        copy = self.path.with_name(f"{self.path.name}x")
        copy_warehouse(self.path, copy)
        self.db.close()
        self.path = copy
        self.db = open_inline(self.path, self.clock)

    # -- looks

    def note(self) -> None:
        self.clock.advance(1)
        moment = from_us(self.clock.now_us())
        self.seen.append((moment, [row.shown for row in sorted(self.rows, key=lambda r: r.seq)]))
        self.clock.advance(1)

    def look(self) -> None:
        wanted = [row.shown for row in sorted(self.rows, key=lambda row: row.seq)]
        route = self.rng.choice(ROUTES)
        self.db.sql(f"SET route = '{route}'")
        found = self.db.sql("SELECT _seq, ts, k, v, w FROM t ORDER BY _seq").fetchall()
        assert found == wanted, self._tell(route)
        self.ask()

    def glance(self) -> None:
        """Ask for few columns of few rows, so that changes may go on waiting."""
        route = self.rng.choice(ROUTES)
        self.db.sql(f"SET route = '{route}'")
        sql, test, params = self.condition()
        name = self.rng.choice(("ts", "k", "v", "w", "count(*)"))
        text = f"SELECT {name} FROM t WHERE {sql}"
        found = self.db.sql(text, params or None).fetchall()
        rows = [row for row in self.rows if test(row)]
        if name == "count(*)":
            assert found == [(len(rows),)], self._tell(text)
        else:
            wanted = [(getattr(row, name),) for row in rows]
            assert sorted(found, key=repr) == sorted(wanted, key=repr), self._tell(text)

    def ask(self) -> None:
        sql, test, params = self.condition()
        text = f"SELECT count(*), sum(v), count(DISTINCT w) FROM t WHERE {sql}"
        (found,) = self.db.sql(text, params or None).fetchall()
        rows = [row for row in self.rows if test(row)]
        values = [row.v for row in rows if row.v is not None]
        total = sum(values) if values else None
        assert found == (len(rows), total, len({row.w for row in rows})), self._tell(text)
        (shown,) = self.db.sql("SELECT rows FROM tidemill.tables WHERE table_name = 't'").fetchall()
        assert shown == (len(self.rows),), self._tell("tidemill.tables")

    def past(self) -> None:
        for moment, rows in self.seen[-4:]:
            clause = f"FOR SYSTEM_TIME AS OF TIMESTAMP '{moment}'"
            text = f"SELECT _seq, ts, k, v, w FROM t {clause} ORDER BY _seq"
            assert self.db.sql(text).fetchall() == rows, self._tell(f"{moment}")

    def _tell(self, what: str) -> str:
        return "\n".join([*self.log, f"-- {what}"])


def _set(row: Row, v: int | None, w: str) -> None:
    row.v, row.w = v, w


def _both(one: Test, other: Test) -> Test:
    return lambda row: one(row) and other(row)


def seeds() -> range:
    return range(int(os.environ.get("TIDEMILL_CHANGE_SEEDS", SEEDS_DEFAULT)))


@pytest.fixture(autouse=True)
def still() -> Iterator[None]:
    with quiet():
        yield


STEPS = ("append",) * 5 + ("update",) * 4 + ("delete",) * 2 + ("merge", "upsert")
REST = ("glance",) * 4 + (
    "shift",
    "move",
    "move",
    "compact",
    "alter",
    "restart",
    "kill",
    "look",
    "look",
)


@pytest.mark.parametrize("seed", seeds())
def test_changes_are_what_they_say(tmp_path: Path, small_blocks: int, seed: int) -> None:
    rng = random.Random(seed)
    world = World(tmp_path / "w", rng, rng.choice(("", KEY)))
    try:
        for _ in range(rng.choice((12, 25, 40))):
            step = rng.choice((*STEPS, *REST))
            if step == "shift" and world.key:
                step = "update"  # two rows might get one key
            getattr(world, step)()
        world.look()
    finally:
        world.db.close()


@pytest.mark.parametrize("seed", range(10))
def test_the_past_stays_as_it_was(tmp_path: Path, small_blocks: int, seed: int) -> None:
    rng = random.Random(1_000 + seed)
    world = World(tmp_path / "w", rng, rng.choice(("", KEY)))
    try:
        for _ in range(20):
            step = rng.choice((*STEPS, "shift", "move", "compact", "restart"))
            if step == "shift" and world.key:
                step = "delete"
            getattr(world, step)()
            world.note()
            if rng.random() < 0.3:
                world.past()
        world.past()
        world.look()
    finally:
        world.db.close()


def test_a_refused_change_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path / "w", random.Random(1))
    try:
        world.append()
        before = world.db.sql("SELECT * FROM t").fetchall()
        for text in (
            "UPDATE t SET w = NULL",
            "UPDATE t SET nothing = 1",
            "UPDATE t SET v = w::INT",
            "DELETE FROM t WHERE w::INT > 1",
            "UPDATE t SET v = 1, v = 2",
            "UPDATE t SET v = 99999999999",
        ):
            with pytest.raises(tidemill.TidemillError):
                world.db.sql(text)
        assert world.db.sql("SELECT * FROM t").fetchall() == before
    finally:
        world.db.close()
