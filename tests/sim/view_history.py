"""Random histories of views: rows come, move and expire, time passes, views come and go.

A history is a seed and a list of steps. What a step does depends on the seed, on its number and on
what is there, and on nothing that steps before it drew: so a history with some of its steps left
out is a history too, and ``shrunk`` finds a short one that still fails.

After every step each view must answer what a plain DuckDB answers over the rows that are in the
warehouse; where that does not know all the words, and after the last step, what its query answers
when it is run directly.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyarrow import parquet
from view_queries import (
    REFERENCE_COLUMNS,
    Stream,
    ViewQueries,
    ViewQuery,
    random_reference,
    random_rows,
    random_stream,
)
from warehouses import compact, difference, open_inline

from tidemill.clock import FakeClock, from_us
from tidemill.engine import Database
from tidemill.pipeline.compact import ExpireJob
from tidemill.types import SqlType

VIEWS_MAX = 4
WAITING_SHARE = 0.3  # of views that are back-filled some steps after they were made
SHRINKS_MAX = 40

Step = tuple[str, int]  # what it does, and its number


class Disagreement(AssertionError):
    """A view gave another answer than its query."""


def draw_steps(seed: int, count: int) -> list[Step]:
    """Two views to begin with, then anything."""
    kinds, weights = zip(*_WEIGHTS.items(), strict=True)
    drawn = random.Random(seed).choices(kinds, weights, k=count)
    return [(kind, number) for number, kind in enumerate(("view", "view", "append", *drawn))]


@dataclass
class Model:
    """The rows that are in the warehouse, in a plain DuckDB."""

    duck: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)
    ids: dict[str, set[int]] = field(default_factory=dict)

    def create(self, streams: Sequence[Stream]) -> None:
        self.duck.execute("SET TimeZone = 'UTC'; SET threads = 1")
        for stream in streams:
            columns = ", ".join(f"{name} {kind}" for name, kind in stream.kinds.items())
            self.duck.execute(f"CREATE OR REPLACE TABLE {stream.name} ({columns})")
            self.ids[stream.name] = set()
        self.duck.execute(f"CREATE OR REPLACE TABLE r ({REFERENCE_COLUMNS})")

    def follow(self, stream: Stream, there: set[int], sent: dict[int, dict[str, Any]]) -> None:
        """Take the rows that are there now, and no others."""
        held = self.ids[stream.name]
        new, gone = sorted(there - held), held - there
        if new:
            schema = pa.schema([(name, _arrow_of(kind)) for name, kind in stream.kinds.items()])
            rows = [sent[number] for number in new]
            tm_new = pa.Table.from_pylist(rows, schema)  # noqa: F841  (read by name)
            self.duck.execute(f"INSERT INTO {stream.name} SELECT * FROM tm_new")
        if gone:
            tm_gone = pa.table({"id": sorted(gone)})  # noqa: F841
            self.duck.execute(f"DELETE FROM {stream.name} WHERE id IN (SELECT id FROM tm_gone)")
        self.ids[stream.name] = set(there)

    def change(self, rows: list[tuple[Any, ...]]) -> None:
        """The reference table as it is now."""
        self.duck.execute("DELETE FROM r")
        if rows:
            self.duck.executemany("INSERT INTO r VALUES (?, ?, ?)", rows)

    def answer(self, text: str, now: datetime) -> list[tuple[Any, ...]]:
        return self.duck.execute(text.replace("now()", f"TIMESTAMPTZ '{now}+00'")).fetchall()


def _arrow_of(kind: str) -> pa.DataType:
    kind = kind.removesuffix(" NOT NULL")
    return pa.decimal128(38, 0) if kind == "HUGEINT" else SqlType.parse(kind).arrow


@dataclass
class Made:
    """A view of a history."""

    query: ViewQuery
    reads: str | None  # another view
    is_waiting: bool = False  # for its back-fill: it lacks rows meanwhile


class Warehouse:
    """A warehouse, its clock, and a model of what is in it."""

    def __init__(self, path: Path, **settings: object) -> None:
        self.path, self._settings = path, settings
        self.clock = FakeClock()
        self.model = Model()
        self.db = open_inline(path, self.clock, **settings)

    def restart(self) -> None:
        self.db.close()
        self.db = open_inline(self.path, self.clock, **self._settings)

    def close(self) -> None:
        self.db.close()
        self.model.duck.close()


class History:
    """One history in a warehouse, which it may share with those before it."""

    def __init__(self, seed: int, warehouse: Warehouse, start: datetime) -> None:
        self.seed, self.warehouse, self.start = seed, warehouse, start
        self.clock, self.model = warehouse.clock, warehouse.model
        self.clock.set(start)
        self.views: dict[str, Made] = {}
        self.next_id = 0
        self.loads = 0
        self.log: list[str] = []
        rng = random.Random(f"{seed} begin")
        self.names = rng.choice((("s",), ("s", "t")))
        self.streams = {name: random_stream(rng, name) for name in self.names}
        self.sent: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in self.names}
        self.begin(rng)

    @property
    def db(self) -> Database:
        return self.warehouse.db

    @property
    def now(self) -> datetime:
        return from_us(self.clock.now_us())

    def begin(self, rng: random.Random) -> None:
        self.model.create(tuple(self.streams.values()))
        for stream in self.streams.values():
            self.sql(stream.create)
        self.sql(f"CREATE TABLE r ({REFERENCE_COLUMNS})")
        self.db.append("r", random_reference(rng, 8))
        self.note_reference()

    def end(self) -> None:
        """Take away what this history made."""
        for name in reversed(self.views):
            self.db.sql(f'DROP MATERIALIZED VIEW "{name}" CASCADE')
        for name in (*self.names, "r"):
            self.db.sql(f"DROP TABLE {name}")

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        self.log.append(text)
        return self.db.sql(text).fetchall()

    def run(self, steps: Sequence[Step]) -> None:
        """Take the steps; after each the views must be right."""
        for at, (kind, number) in enumerate(steps, 1):
            rng = random.Random(f"{self.seed} {number}")
            self.log.append(f"-- {kind} {number}")
            try:
                _STEPS[kind](self, rng)
                if at == len(steps):
                    self.fill(rng)
                self.check(is_last=at == len(steps))
            except Exception as error:
                error.add_note(f"seed {self.seed}, step {kind} {number}")
                raise

    # -- what must hold

    def check(self, is_last: bool) -> None:
        for name, made in self.views.items():
            found = self.db.sql(f'SELECT * FROM "{name}"').fetchall()
            if made.is_waiting:
                continue
            if made.query.model is None or is_last:
                wanted = self.db.sql(made.query.query).fetchall()
                self.compare(name, made, found, wanted, "its query")
            if made.query.model is not None:
                wanted = self.model.answer(made.query.model, self.now)
                self.compare(name, made, found, wanted, "the model")

    def compare(self, name: str, made: Made, found: Any, wanted: Any, other: str) -> None:
        wrong = difference(found, wanted, made.query.is_ordered)
        if wrong is not None:
            raise Disagreement(f'view "{name}" and {other} differ\n{made.query.text}\n{wrong}')

    # -- rows

    def append(self, rng: random.Random) -> None:
        name = rng.choice(self.names)
        count = rng.choice((0, 1, 3, 10, 30, 60))
        self.store(name, self.rows(rng, name, count))

    def append_one(self, rng: random.Random) -> None:
        name = rng.choice(self.names)
        for _ in range(rng.randrange(1, 4)):
            self.store(name, self.rows(rng, name, 1))

    def append_again(self, rng: random.Random) -> None:
        """Rows that were sent before: keys that exist, or an offset that is known."""
        name = rng.choice(self.names)
        again = list(self.sent[name].values())[-5:]
        if self.streams[name].has_key and again:
            changed = [{**row, "k": 3, "g": "again"} for row in again]
            self.log.append(f"append again {len(changed)} rows to {name}")
            self.db.append(name, changed)
        rows = self.rows(rng, name, 4)
        for _ in range(2):
            self.db.append(name, rows, source="feed", offset=self.next_id)
        self.note_rows(name, rows)

    def rows(self, rng: random.Random, name: str, count: int) -> list[dict[str, Any]]:
        rows = random_rows(rng, self.streams[name], count, self.next_id, self.now)
        self.next_id += count
        return rows

    def store(self, name: str, rows: list[dict[str, Any]]) -> None:
        self.log.append(f"append {len(rows)} rows to {name}")
        self.db.append(name, rows)
        self.note_rows(name, rows)

    def note_rows(self, name: str, rows: list[dict[str, Any]]) -> None:
        self.sent[name] |= {row["id"]: row for row in rows}
        self.follow(name)

    def follow(self, name: str) -> None:
        there = {row[0] for row in self.db.sql(f"SELECT id FROM {name}").fetchall()}
        self.model.follow(self.streams[name], there, self.sent[name])

    def load(self, rng: random.Random) -> None:
        """Two files, straight to history."""
        name = rng.choice(self.names)
        stream = self.streams[name]
        rows = self.rows(rng, name, rng.choice((2, 20)))
        folder = self.warehouse.path.with_name(f"load {self.seed} {self.loads}")
        folder.mkdir(parents=True)
        self.loads += 1
        schema = pa.schema([(each, _arrow_of(kind)) for each, kind in stream.kinds.items()])
        half = len(rows) // 2
        for number, part in enumerate((rows[:half], rows[half:])):
            table = pa.Table.from_pylist(part, schema)
            parquet.write_table(table, folder / f"{number}.parquet")
        self.log.append(f"load {len(rows)} rows into {name}")
        self.db.sql(f"COPY {name} FROM '{folder}/*.parquet'")
        self.note_rows(name, rows)

    # -- history

    def flush(self, rng: random.Random) -> None:
        self.sql(f"FLUSH {rng.choice(self.names)}")

    def move(self, rng: random.Random) -> None:
        """As the mover does: up to some row."""
        name = rng.choice(self.names)
        hot = self.db._hot[self.db.catalog.snapshot().get(name).table_id]
        view = hot.view()
        upto = view.moved_seq + int(rng.random() * max(0, view.published_seq - view.moved_seq))
        self.log.append(f"move {name} up to {upto}")
        self.db._keeping.wait(self.db._keeping._submit_move(hot, upto, "a history"))

    def compact(self, rng: random.Random) -> None:
        self.log.append(f"compacted {compact(self.db, *self.names)}")

    def vacuum(self, rng: random.Random) -> None:
        self.sql("VACUUM")

    def expire(self, rng: random.Random) -> None:
        """What retention takes from memory and from files."""
        self.log.append("expire")
        for name in self.names:
            table = self.db.catalog.snapshot().get(name)
            hot = self.db._hot[table.table_id]
            hot.expire()
            retention, now_us = table.settings["retention"], hot.progress.now_us()
            if retention is not None and now_us is not None:
                bounds = now_us - retention, self.clock.now_us() - retention
                job = ExpireJob(table, self.db.catalog, *bounds)
                self.db._keeping.wait(self.db._keeping.submit(job, 0))
            self.follow(name)

    # -- time

    def advance(self, rng: random.Random) -> None:
        seconds = rng.choice((0.000001, 1, 7, 61, 300, 900, 3_600, 7_200))
        self.log.append(f"advance {seconds} s")
        self.clock.advance(seconds)
        for name in self.names:  # rows that are outside the retention now are seen no more
            self.follow(name)

    def restart(self, rng: random.Random) -> None:
        self.log.append("restart")
        self.warehouse.restart()
        for name in self.names:
            self.follow(name)

    # -- the reference table

    def refer(self, rng: random.Random) -> None:
        k, label = rng.randrange(-3, 9), rng.choice(("x", "neu", "z"))
        self.sql(
            rng.choice(
                (
                    f"UPDATE r SET label = '{label}', w = {rng.randrange(4)} WHERE k < {k}",
                    f"DELETE FROM r WHERE k = {k}",
                    f"INSERT INTO r SELECT {k}, '{label}', 1 "
                    f"WHERE NOT EXISTS (FROM r WHERE k = {k})",
                    "TRUNCATE r",
                )
            )
        )
        self.note_reference()

    def note_reference(self) -> None:
        self.model.change(self.db.sql("SELECT * FROM r").fetchall())

    # -- views

    def view(self, rng: random.Random) -> None:
        """Make one more view; whatever is in history is filled in."""
        if len(self.views) < VIEWS_MAX:
            self.make(f"v{self.next_id}_{len(self.views)}", rng, self.views, "CREATE")

    def replace(self, rng: random.Random) -> None:
        free = self.unread()
        if free:
            name = rng.choice(free)
            others = {other: made for other, made in self.views.items() if other != name}
            self.make(name, rng, others, "CREATE OR REPLACE")

    def drop(self, rng: random.Random) -> None:
        free = self.unread()
        if free:
            name = rng.choice(free)
            self.sql(f'DROP MATERIALIZED VIEW "{name}"')
            del self.views[name]

    def unread(self) -> list[str]:
        read = {made.reads for made in self.views.values()}
        return [name for name in self.views if name not in read]

    def make(self, name: str, rng: random.Random, others: dict[str, Made], head: str) -> None:
        queries = ViewQueries(rng, tuple(self.streams.values()), self.start)
        query, reads = queries.take({other: made.query for other, made in others.items()})
        is_waiting = head == "CREATE" and rng.random() < WAITING_SHARE
        if is_waiting:
            self.db._views.completing.backfill = lambda *_: None  # type: ignore[method-assign]
        self.sql(f'{head} MATERIALIZED VIEW "{name}" AS {query.text}')
        if not is_waiting:
            self.fill(rng)
            self.sql(f'REFRESH MATERIALIZED VIEW "{name}"')
        self.views.pop(name, None)
        self.views[name] = Made(query, reads, is_waiting)

    def fill(self, rng: random.Random) -> None:
        """Let back-fills run that were held back."""
        self.db._views.completing.__dict__.pop("backfill", None)
        for name, made in self.views.items():
            if made.is_waiting:
                self.sql(f'REFRESH MATERIALIZED VIEW "{name}"')
                made.is_waiting = False


_STEPS: dict[str, Callable[[History, random.Random], None]] = {
    "append": History.append,
    "append_one": History.append_one,
    "append_again": History.append_again,
    "load": History.load,
    "flush": History.flush,
    "move": History.move,
    "compact": History.compact,
    "vacuum": History.vacuum,
    "expire": History.expire,
    "advance": History.advance,
    "restart": History.restart,
    "refer": History.refer,
    "view": History.view,
    "replace": History.replace,
    "drop": History.drop,
    "fill": History.fill,
}
_WEIGHTS = {
    "append": 8,
    "append_one": 2,
    "append_again": 1,
    "load": 1,
    "flush": 2,
    "move": 1,
    "compact": 1,
    "vacuum": 0.5,
    "expire": 1,
    "advance": 4,
    "restart": 0.5,
    "refer": 1.5,
    "view": 0.7,
    "replace": 0.5,
    "drop": 0.3,
    "fill": 0.5,
}


def shrunk(steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """A shorter list of steps that still fails: first the end goes, then single steps."""
    left, tries = list(steps), 0
    size = max(1, len(left) // 2)
    while size and tries < SHRINKS_MAX:
        at = len(left) - size
        while at >= 0 and tries < SHRINKS_MAX:
            without = left[:at] + left[at + size :]
            tries += 1
            if fails(without):
                left = without
            at -= size
        size //= 2
    return left
