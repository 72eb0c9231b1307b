"""Streams, and a place for answers, of which a test says everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from catalog_tables import reference, snapshot_of, stream
from sqlglot import exp

from tidemill.catalog.model import Snapshot, Table
from tidemill.hot.offsets import Offsets
from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Query, Slide
from tidemill.types import Column, SqlType
from tidemill.views.kept.definition import Definition, StreamBegin

COLUMNS = {"ts": "TIMESTAMP", "k": "INTEGER", "v": "DOUBLE"}
S = stream(1, "s", COLUMNS)
OTHER = stream(2, "o", {"ts": "TIMESTAMP", "k": "INTEGER", "w": "DOUBLE"})
KEPT = stream(9, "kept", {"ts": "TIMESTAMP", "n": "BIGINT"})
TIME = Column("ts", SqlType("TIMESTAMP"), False)
SNAPSHOT = snapshot_of(S, OTHER, KEPT, reference(3, "cars", {"k": "INTEGER", "label": "VARCHAR"}))


def body(text: str) -> exp.Expression:
    statement = parse_one(text)
    assert isinstance(statement, Query)
    return statement.body


def definition(text: str, clock_us: int | None = None, **slide: Any) -> Definition:
    return Definition(text, Slide(**slide), (StreamBegin(1, "s", 0),), ("s",), clock_us)


def counted(*numbers: int) -> pa.Table:
    """An answer with one column."""
    return pa.table({"n": pa.array(numbers, pa.int64())})


class FakeEnvironment:
    """Answers what the test says, and notes what is asked, stored and noted."""

    def __init__(
        self,
        answer: Callable[[int | None, Mapping[str, object]], pa.Table] | None = None,
        snapshot: Snapshot = SNAPSHOT,
    ) -> None:
        self._answer = answer or (lambda at_us, params: counted(1))
        self._snapshot = snapshot
        self.offsets = Offsets()
        self.asked: list[int | None] = []
        self.texts: list[str] = []
        self.stored: list[tuple[int, pa.Table]] = []
        self.noted: list[int] = []

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def hot(self, table: Table) -> Any:
        return SimpleNamespace(offsets=self.offsets, table=table)

    def evaluate(
        self,
        query: exp.Expression,
        at_us: int | None = None,
        params: Mapping[str, object] | None = None,
        *,
        exact: bool = False,
    ) -> tuple[pa.Table, list[str]]:
        self.asked.append(at_us)
        self.texts.append(query.sql("duckdb"))
        return self._answer(at_us, params or {}), ["BIGINT"]

    def append(self, table: Table, rows: pa.Table, source: str, offset: int) -> None:
        self.stored.append((offset, rows))
        self.offsets.add(source, offset)

    def note(self, table: Table, source: str, offset: int) -> None:
        self.noted.append(offset)
        self.offsets.add(source, offset)


class FakeStreams:
    """Streams by their clock and by the times of their rows."""

    def __init__(self, clock_us: int | None = None, times: tuple[int, ...] = ()) -> None:
        self.clock = clock_us
        self.times = times
        self.settled = 0

    def tables(self) -> list[Table]:
        return [S]

    def clock_us(self) -> int | None:
        return self.clock

    def settle(self) -> None:
        self.settled += 1

    def first_us(self, after_us: int | None, upto_us: int, step_us: int) -> int | None:
        found = [us for us in self.times if (after_us is None or us > after_us) and us <= upto_us]
        return min(found, default=None)
