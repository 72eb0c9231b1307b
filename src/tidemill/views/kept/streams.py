"""The streams of a kept query: their common clock, and where their next row stands."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.model import Snapshot, Table
from tidemill.clock import DATETIME_US_MAX, DATETIME_US_MIN, from_us, to_us
from tidemill.errors import QueryError
from tidemill.hot.table import HotTable
from tidemill.sql.names import table_node
from tidemill.types import Column
from tidemill.views.defining import ViewDefinition
from tidemill.views.kept.definition import Definition
from tidemill.views.kept.environment import BEFORE_ALL_US, KeptEnvironment
from tidemill.views.kept.reads import Read

ClockOf = Callable[[Table], int | None]
"""Up to where a stream is complete: no row of an earlier time is expected any more."""


class Streams:
    def __init__(
        self, environment: KeptEnvironment, definition: Definition, clock_of: ClockOf
    ) -> None:
        self._environment = environment
        self._definition = definition
        self.clock_of = clock_of
        self._firsts: dict[int, exp.Expression] = {}

    def tables(self) -> list[Table]:
        """The streams as the catalog has them now."""
        snapshot = self._environment.snapshot()
        found = []
        for begin in self._definition.streams:
            table = snapshot.table(begin.table_id)
            if table is None:
                raise QueryError(
                    f'stream "{begin.name}" of the query was dropped or replaced',
                    hint="make the query again: CREATE OR REPLACE STREAMING TABLE … AS …",
                )
            found.append(table)
        return found

    def clock_us(self) -> int | None:
        """The streams' common clock: what all of them have passed; None while one has no clock."""
        clocks = [self.clock_of(table) for table in self.tables()]
        known = [clock for clock in clocks if clock is not None]
        return min(known) if len(known) == len(clocks) else None

    def settle(self) -> None:
        """After the clock was read: see to it that every row written by then can be read. With an
        event clock, rows are shown before it moves."""
        for table in self.tables():
            hot = self._environment.hot(table)
            if not hot.progress.is_event:
                with hot.paused():
                    pass

    def first_us(self, after_us: int | None, upto_us: int, step_us: int) -> int | None:
        """The time of the first row in ``(after_us, upto_us]``, looked for in growing steps. Rows
        that the retention hides by now are found too, while they are there."""
        if after_us is None:
            return self._first_us(DATETIME_US_MIN, upto_us)
        while after_us < upto_us:
            high = min(after_us + step_us, upto_us)
            found = self._first_us(after_us, high)
            if found is not None:
                return found
            after_us, step_us = high, 2 * step_us
        return None

    def _first_us(self, low_us: int, high_us: int) -> int | None:
        found = []
        for table in self.tables():
            column = time_of(table)
            query = self._firsts.setdefault(table.table_id, _first_query(table, column))
            bounds = {"tm_lo": moment(low_us, column), "tm_hi": moment(high_us, column)}
            answer, _ = self._environment.evaluate(query, BEFORE_ALL_US, bounds)
            value = answer.column(0)[0].as_py()
            if value is not None:
                found.append(to_us(value))
        return min(found, default=None)


def clock_of_hot(hot: HotTable) -> int | None:
    """A stream's own clock for readers: its watermark if it has one, else its now."""
    now_us = hot.progress.now_us()
    return None if now_us is None else now_us - (hot.progress.delay_us or 0)


def streams_behind(read: Read, snapshot: Snapshot) -> list[Table]:
    """The streams that a read depends on: itself, or those that a view's digests sum up."""
    if not read.table.is_view:
        return [read.table]
    digests = [snapshot.table(each) for each in ViewDefinition.of(read.table).digests]
    ids = sorted({each.source_id or 0 for each in digests if each is not None})
    return [table for table in map(snapshot.table, ids) if table is not None]


def time_of(table: Table) -> Column:
    assert table.time_column is not None
    return table.get_column(table.time_column)


def moment(us: int, column: Column) -> datetime:
    """A time as a value for a column's comparisons."""
    found = from_us(min(max(us, DATETIME_US_MIN), DATETIME_US_MAX))
    return found if column.type.name == "TIMESTAMP" else found.replace(tzinfo=UTC)


def parameter(name: str, column: Column) -> exp.Expression:
    """A named parameter of a column's type."""
    return exp.cast(exp.Placeholder(this=name), str(column.type), dialect="duckdb")


def with_time(answer: pa.Table, us: int, name: str, column: Column) -> pa.Table:
    """The answers of one instant, with its time as their first column."""
    values: Any = pa.array([us] * answer.num_rows, pa.int64()).view(column.type.arrow)
    return answer.add_column(0, pa.field(name, column.type.arrow), values)


def _first_query(table: Table, column: Column) -> exp.Expression:
    time = exp.column(column.name, quoted=True)
    return (
        exp.select(exp.Min(this=time))
        .from_(table_node(table.name))
        .where(
            exp.GT(this=time.copy(), expression=parameter("tm_lo", column)),
            exp.LTE(this=time.copy(), expression=parameter("tm_hi", column)),
        )
    )
