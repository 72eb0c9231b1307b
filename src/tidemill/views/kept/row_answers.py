"""Answers to rows: the query of an EVERY ROW, evaluated for rows of its stream as of their arrival.

The rows of a batch come with their windows (``newest``, ``time_windows``) and the rows of other
streams that they are joined with (``sides``). Where the query allows it, the windows of a whole
batch are one relation and one evaluation (``tagging``); otherwise they are evaluated one by one.
Answers come in parts whose windows are not too large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidemill.catalog.model import Table
from tidemill.clock import from_us
from tidemill.hot import keys
from tidemill.types import SEQ, Column
from tidemill.views.kept.before import with_before
from tidemill.views.kept.definition import Definition
from tidemill.views.kept.environment import KeptEnvironment
from tidemill.views.kept.holding import numbers
from tidemill.views.kept.newest import NewestRows, alone
from tidemill.views.kept.row_query import WINDOWS, RowQuery, arrived_query, row_query
from tidemill.views.kept.sides import Sides
from tidemill.views.kept.stream_reads import StreamReads
from tidemill.views.kept.streams import ClockOf, with_time
from tidemill.views.kept.tagging import ROW, TIME
from tidemill.views.kept.time_windows import WINDOW_ROWS_MAX, TimeWindows

ASKED_AT_ONCE = 256
ASKED_ROWS_MAX = 65_536


@dataclass(frozen=True)
class Answered:
    """Answers, and the number of the last row that they answer."""

    answers: pa.Table
    upto_seq: int


class RowAnswers:
    """``own_time`` is the column of the answers that holds their time, if the query gives it."""

    def __init__(
        self,
        definition: Definition,
        environment: KeptEnvironment,
        reads: StreamReads,
        clock_of: ClockOf,
        time: Column,
        own_time: bool,
    ) -> None:
        self._definition = definition
        self._environment = environment
        self._reads = reads
        self._clock_of = clock_of
        self._time = time
        self._own_time = time if own_time else None
        self._known: tuple[int, RowQuery] | None = None
        self._known_arrived: tuple[int, exp.Expression] | None = None
        self._known_sides: tuple[RowQuery, Sides] | None = None
        self._newest: NewestRows | None = None
        self.last_us: int | None = None

    def query(self) -> RowQuery:
        """The query as it is evaluated; the same while no definition changes."""
        snapshot = self._environment.snapshot()
        if self._known is None or self._known[0] != snapshot.definition_id:
            query = row_query(self._definition, snapshot, self._own_time)
            self._known = (snapshot.definition_id, query)
        return self._known[1]

    def sides(self, query: RowQuery) -> Sides:
        """The other streams that rows are joined with."""
        if self._known_sides is None or self._known_sides[0] is not query:
            made = Sides(query.sides, self._environment, self._clock_of)
            self._known_sides = (query, made)
        return self._known_sides[1]

    def ready(self, rows: pa.Table) -> int:
        """How many of the first rows need not wait for other streams."""
        query = self.query()
        if not query.sides or not rows.num_rows:
            return int(rows.num_rows)
        return self.sides(query).upto(times_of(rows, query))

    def forget(self) -> None:
        """What is held of the stream may not be what it has: read it again."""
        self._newest = None

    def make_ready(self, table: Table, seq: int) -> None:
        """While there is nothing to do: have the rows before the next one at hand, which may take
        a while to find in a long history."""
        query = self.query()
        if self._newest is None and query.read.call is not None and query.rows is not None:
            newest = self._newest_rows(table, query)
            newest.begin(self._reads.newest_of_keys(table, query, seq))
            self._newest = newest

    def of(self, table: Table, rows: pa.Table, *, is_loaded: bool) -> Iterator[Answered]:
        """The answers to rows, part by part."""
        query = self.query()
        if query.rows is None:
            yield from self._by_time(table, rows, query)
            return
        step = max(WINDOW_ROWS_MAX // query.rows, 1)
        for start in range(0, rows.num_rows, step):
            part = rows.slice(start, step)
            windows = self._windows(table, part, query, is_loaded)
            yield Answered(self._answer(windows, part, query), last_seq(part))

    def _answer(self, windows: pa.Table, rows: pa.Table, query: RowQuery) -> pa.Table:
        """The answers to some rows, whose windows are given."""
        self.last_us = int(times_of(rows, query).max())
        others = self.sides(query).read(rows, times_of(rows, query)) if query.sides else {}
        if query.tagged is None:
            return self._one_by_one(windows, rows, query, others)
        windows = with_before(windows, query.before)
        if query.is_narrow:
            windows = _of_their_time(windows, query.time.name)
        return self._environment.run(query.tagged, {}, {WINDOWS: windows, **others})[0]

    def _windows(self, table: Table, rows: pa.Table, query: RowQuery, is_loaded: bool) -> pa.Table:
        if query.read.call is None:
            return alone(rows, query.time.name)
        if self._newest is None and not is_loaded:
            self.make_ready(table, int(rows.column(SEQ)[0].as_py()) - 1)
        if self._newest is None:
            self._newest = self._newest_rows(table, query)
        windows = self._newest.ask(rows) if is_loaded else self._newest.windows(rows)
        return _inside(windows, query.time.name, table.settings["retention"])

    def _newest_rows(self, table: Table, query: RowQuery) -> NewestRows:
        call = query.read.call
        assert call is not None
        assert call.rows is not None

        def run(sql: str, sources: Mapping[str, pa.Table]) -> pa.Table:
            return self._environment.run(sql, {}, sources, exact=True)[0]

        key = [table.get_column(name) for name in call.partition_by]
        older = partial(self._reads.older, table, query.time)
        return NewestRows(key, query.time.name, call.rows, run, older)

    def _one_by_one(
        self, windows: pa.Table, rows: pa.Table, query: RowQuery, others: Mapping[str, pa.Table]
    ) -> pa.Table:
        parts = []
        for seq, us in zip(rows.column(SEQ).to_pylist(), times_of(rows, query), strict=True):
            window = windows.filter(pc.equal(windows.column(ROW), seq)).drop_columns([ROW, TIME])
            sources = {WINDOWS: window, **others}
            answer, _ = self._environment.run(query.single, query.now(int(us)), sources)
            parts.append(self._timed(answer, int(us)))
        return pa.concat_tables(parts)

    def _by_time(self, table: Table, rows: pa.Table, query: RowQuery) -> Iterator[Answered]:
        """Windows of time; where they are not at hand, the query itself reads each."""
        call = query.read.call
        assert call is not None
        if query.tagged is None:
            yield from self._by_asking(rows, query)
            return
        retention_us = table.settings["retention"]
        size_us = call.size_us if retention_us is None else min(call.size_us, retention_us)
        made = TimeWindows(query.time.name, size_us, partial(self._reads.span, table, query.time))
        for part, windows in made.of(rows):
            if windows is None:
                yield from self._by_asking(part, query)
            else:
                yield Answered(self._answer(windows, part, query), last_seq(part))

    def _by_asking(self, rows: pa.Table, query: RowQuery) -> Iterator[Answered]:
        tree, parts, seq = self._arrived(), list[pa.Table](), 0
        times = times_of(rows, query).tolist()
        for seq, us in zip(rows.column(SEQ).to_pylist(), times, strict=True):
            self.last_us = us
            answer, _ = self._environment.evaluate(tree, us, {"tm_hi": seq})
            parts.append(self._timed(answer, us))
            if len(parts) == ASKED_AT_ONCE or sum(map(len, parts)) > ASKED_ROWS_MAX:
                yield Answered(pa.concat_tables(parts), seq)
                parts = []
        if parts:
            yield Answered(pa.concat_tables(parts), seq)

    def _arrived(self) -> exp.Expression:
        """The same tree with every call, while no definition changes."""
        definition_id = self._environment.snapshot().definition_id
        if self._known_arrived is None or self._known_arrived[0] != definition_id:
            tree = arrived_query(self._definition, self._environment.snapshot())
            self._known_arrived = (definition_id, tree)
        return self._known_arrived[1]

    def _timed(self, answer: pa.Table, us: int) -> pa.Table:
        if self._own_time is None:
            return with_time(answer, us, self._time.name, self._time)
        at = next(
            i for i, n in enumerate(answer.column_names) if n.lower() == self._time.name.lower()
        )
        column = answer.column(at)
        instant = pa.scalar(from_us(us), pa.timestamp("us")).cast(column.type)
        return answer.set_column(at, answer.field(at), pc.fill_null(column, instant))


def last_seq(rows: pa.Table) -> int:
    return int(rows.column(SEQ)[-1].as_py())


def times_of(rows: pa.Table, query: RowQuery) -> npt.NDArray[np.int64]:
    """The times of rows, in microseconds."""
    return np.asarray(keys.words(rows.column(query.time.name).combine_chunks()), dtype=np.int64)


def _inside(windows: pa.Table, time: str, retention_us: int | None) -> pa.Table:
    """Of each window, the rows that were inside the retention at the instant's time."""
    if retention_us is None:
        return windows
    is_inside = numbers(windows, time) >= numbers(windows, TIME) - retention_us
    if is_inside.all():
        return windows
    return windows.take(keys.row_numbers(np.flatnonzero(is_inside)))


def _of_their_time(windows: pa.Table, time: str) -> pa.Table:
    """Of each window, the rows of the instant's own time."""
    is_now = numbers(windows, time) == numbers(windows, TIME)
    return windows.take(keys.row_numbers(np.flatnonzero(is_now)))
