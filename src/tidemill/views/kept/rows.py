"""EVERY ROW: the query is evaluated for each row that arrives, in the order of arrival.

The query reads one stream, other streams that are joined with it (``sides``), and reference tables
as they are at that moment. What it sees of the stream when a row arrives, and the time of its
answers, is

- without a window: the row itself;
- ``RECENT(t, rows => k [, partition_by => key])``: the newest k rows (of the row's key), the row
  among them, without rows that came later or are younger;
- ``RECENT(t, INTERVAL …)``: the window that ends at the row's time, of rows that arrived before it,
  the row among them.

A stream's retention is taken as of the row's time, not as of the moment when it is answered, so
that a query which is behind answers the same.

Rows are taken in batches. Where the query allows it, the windows of a whole batch are one relation
and one evaluation (``tagging``); otherwise they are evaluated one by one. Rows that a load brings
straight into history are answered when it is committed, in steps of ``LOAD_ROWS``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidemill.catalog.model import Table
from tidemill.clock import from_us, to_us
from tidemill.hot import keys
from tidemill.hot.gather import SEQ_FIELD
from tidemill.sql.calls import SEQ
from tidemill.sql.names import table_node
from tidemill.types import Column, quote
from tidemill.views.kept.before import with_before
from tidemill.views.kept.definition import Definition
from tidemill.views.kept.desk import BEFORE_ALL_US, Desk
from tidemill.views.kept.holding import numbers
from tidemill.views.kept.ledger import Ledger
from tidemill.views.kept.newest import NewestRows, alone, like, rows_held
from tidemill.views.kept.row_query import WINDOWS, RowQuery, arrived_query, row_query
from tidemill.views.kept.sides import Sides
from tidemill.views.kept.streams import Streams, moment, parameter, with_time
from tidemill.views.kept.tagging import ROW, TIME
from tidemill.views.kept.time_windows import TimeWindows
from tidemill.views.kept.waiting import OldestWaiting

BATCH_ROWS = 65_536
WINDOW_ROWS_MAX = 1_000_000
ASKED_AT_ONCE = 256
LOAD_ROWS = 500_000
TOP_ROWS_MAX = 1_000


class Rows:
    def __init__(
        self,
        definition: Definition,
        desk: Desk,
        streams: Streams,
        ledger: Ledger,
        loads: Ledger,
        time: Column,
        own_time: bool,
    ) -> None:
        begin = definition.streams[0]  # the others are joined with it
        self._definition = definition
        self._begin_seq = begin.seq
        self._desk = desk
        self._streams = streams
        self._ledger = ledger
        self._loads = loads
        self._time = time
        self._own_time = time if own_time else None
        self._known: tuple[int, RowQuery] | None = None
        self._known_arrived: tuple[int, exp.Expression] | None = None
        self._known_sides: tuple[RowQuery, Sides] | None = None
        self._waiting: tuple[int, int] | None = None  # behind which row, and its time
        self._load_waits: tuple[int, int] | None = None
        self._oldest = OldestWaiting()
        self._newest: NewestRows | None = None
        self._trees: dict[str, exp.Expression] = {}
        self._at_us: int | None = None
        self._loads_at = -1  # the snapshot in which no load was left
        self.last_us: int | None = None
        self.notice: str | None = None

    @property
    def complete_us(self) -> int | None:
        """The stream's clock, when all rows up to it were answered."""
        return self._at_us

    @property
    def reached_seq(self) -> int:
        reached = self._ledger.reached
        return self._begin_seq if reached is None else reached

    def lag_rows(self) -> int:
        """Rows in memory that are not answered yet."""
        table = self._streams.tables()[0]
        return self._desk.feed(table).waiting_rows(self.reached_seq)

    def step(self) -> bool:
        """Answer the next batch of rows, or the next part of a load."""
        try:
            return self._step()
        except BaseException:
            self._newest = None  # it may hold rows that will come again
            raise

    def _step(self) -> bool:
        clock_us = self._streams.clock_us()
        table = self._streams.tables()[0]
        published_seq = self._desk.hot(table).published.last_seq
        low = self.reached_seq
        if published_seq <= low:
            if self._step_load(table):
                return True
            self._make_ready(table, low)
            self._at_us = clock_us
            return False
        if self._is_early(self._waiting, low):
            return self._go_on_waiting(table, low, published_seq, clock_us)
        batch = self._desk.feed(table).appended(low, BATCH_ROWS)
        if batch is None:
            return False
        ready = self._ready(batch.rows)
        if batch.rows.num_rows and not ready:
            self._waiting = (low, int(_times(batch.rows.slice(0, 1), self._query())[0]))
            return self._go_on_waiting(table, low, published_seq, clock_us)
        batch = batch.first(ready)
        self._answer_all(table, batch.rows, batch.upto_seq)
        if batch.upto_seq >= published_seq and not self._has_loads(table):
            self._at_us = clock_us  # while rows come without end, nobody sees us idle
        return True

    def _ready(self, rows: pa.Table) -> int:
        """How many of the first rows need not wait for other streams."""
        query = self._query()
        if not query.sides or not rows.num_rows:
            return int(rows.num_rows)
        return self._sides(query).upto(_times(rows, query))

    def _is_early(self, waiting: tuple[int, int] | None, low: int) -> bool:
        """Whether the row behind a number is known to wait for other streams, and still does."""
        query = self._query()
        if waiting is None or waiting[0] != low or not query.sides:
            return False
        return not self._sides(query).upto(np.array(waiting[1:]))

    def _go_on_waiting(self, table: Table, low: int, high: int, clock_us: int | None) -> bool:
        """While rows wait for younger partners, the answers are complete up to the oldest of them;
        loads need not wait behind them. True if a load had something to answer."""
        query = self._query()
        if self._sides(query).reach_us > 0 and clock_us is not None:
            self._at_us = self._oldest.until(low, high, clock_us, partial(self._least, table))
        return self._step_load(table)

    def _least(self, table: Table, low: int, high: int) -> int | None:
        """The least time of rows of a stretch of numbers."""
        time = self._query().time
        tree = self._trees.get("least")
        if tree is None:
            after = exp.GT(this=exp.column(SEQ), expression=exp.Placeholder(this="tm_lo"))
            upto = exp.LTE(this=exp.column(SEQ), expression=exp.Placeholder(this="tm_hi"))
            least = exp.select(exp.Min(this=_column(time))).from_(table_node(table.name))
            tree = self._trees["least"] = least.where(after, upto)
        answer, _ = self._desk.evaluate(tree, BEFORE_ALL_US, {"tm_lo": low, "tm_hi": high})
        value = answer.column(0)[0].as_py()
        return None if value is None else to_us(value)

    def _sides(self, query: RowQuery) -> Sides:
        if self._known_sides is None or self._known_sides[0] is not query:
            made = Sides(query.sides, self._desk, self._streams.clock_of)
            self._known_sides = (query, made)
        return self._known_sides[1]

    # -- rows

    def _has_loads(self, table: Table) -> bool:
        """Whether there were loads since the query was made; some may wait for an answer."""
        return any(self._desk.feed(table).loads(self._definition.snapshot_id))

    def _step_load(self, table: Table) -> bool:
        """Answer the next rows of a load that was committed since the query was made."""
        snapshot = self._desk.snapshot()
        if snapshot.snapshot_id == self._loads_at:
            return False
        for first_seq, last_seq in self._desk.feed(table).loads(self._definition.snapshot_id):
            low = self._loads.newest_in(first_seq, last_seq)
            if low < last_seq:
                return self._answer_load(table, low, last_seq)
        self._loads_at = snapshot.snapshot_id
        return False

    def _answer_load(self, table: Table, low: int, high: int) -> bool:
        """Its rows may be the newest of their keys from then on. False if they have to wait."""
        self._newest = None
        if self._is_early(self._load_waits, low):
            return False
        batch = self._desk.feed(table).loaded(low, high, LOAD_ROWS)
        ready = self._ready(batch.rows)
        if batch.rows.num_rows and not ready:
            self._load_waits = (low, int(_times(batch.rows.slice(0, 1), self._query())[0]))
            return False
        batch = batch.first(ready)
        rows, high = batch.rows, batch.upto_seq
        for answers, seq in self._answers(table, rows, is_loaded=True):
            is_last = seq == _last_seq(rows)
            self._loads.store(answers, high if is_last else seq)
        if not rows.num_rows:
            self._loads.store(rows, high)
        self._loads.close()
        self._newest = None
        return True

    def _tree(self, name: str, table: Table, where: exp.Expr) -> exp.Select:
        """``SELECT *, _seq FROM stream WHERE …``, the same tree with every call."""
        made = exp.select("*", exp.column(SEQ)).from_(table_node(table.name)).where(where)
        kept = self._trees.setdefault(name, made)
        assert isinstance(kept, exp.Select)
        return kept

    # -- answers

    def _query(self) -> RowQuery:
        snapshot = self._desk.snapshot()
        if self._known is None or self._known[0] != snapshot.definition_id:
            query = row_query(self._definition, snapshot, self._own_time)
            self._known = (snapshot.definition_id, query)
        return self._known[1]

    def _answer_all(self, table: Table, rows: pa.Table, high: int) -> None:
        """Answer and store a batch, in parts whose windows are not too large together."""
        for answers, seq in self._answers(table, rows, is_loaded=False):
            is_last = seq == _last_seq(rows)
            self._ledger.store(answers, high if is_last else seq)
        if not rows.num_rows:
            self._ledger.store(rows, high)

    def _answers(
        self, table: Table, rows: pa.Table, *, is_loaded: bool
    ) -> Iterator[tuple[pa.Table, int]]:
        """The answers to rows, part by part, each with the number of the last row it answers."""
        query = self._query()
        if query.rows is None:
            yield from self._by_time(table, rows, query)
            return
        step = max(WINDOW_ROWS_MAX // query.rows, 1)
        for start in range(0, rows.num_rows, step):
            part = rows.slice(start, step)
            windows = self._windows(table, part, query, is_loaded)
            yield self._answer(windows, part, query), _last_seq(part)

    def _answer(self, windows: pa.Table, rows: pa.Table, query: RowQuery) -> pa.Table:
        """The answers to some rows, whose windows are given."""
        self.last_us = int(_times(rows, query).max())
        others = self._sides(query).read(rows, _times(rows, query)) if query.sides else {}
        if query.tagged is None:
            return self._one_by_one(windows, rows, query, others)
        windows = with_before(windows, query.before)
        if query.is_narrow:
            windows = _of_their_time(windows, query.time.name)
        return self._desk.run(query.tagged, {}, {WINDOWS: windows, **others})[0]

    def _windows(self, table: Table, rows: pa.Table, query: RowQuery, is_loaded: bool) -> pa.Table:
        if query.read.call is None:
            return alone(rows, query.time.name)
        if self._newest is None and not is_loaded:
            self._make_ready(table, int(rows.column(SEQ)[0].as_py()) - 1)
        if self._newest is None:
            self._newest = self._newest_rows(table, query)
        windows = self._newest.ask(rows) if is_loaded else self._newest.windows(rows)
        return _inside(windows, query.time.name, table.settings["retention"])

    def _make_ready(self, table: Table, seq: int) -> None:
        """While there is nothing to do: have the rows before the next one at hand, which may take
        a while to find in a long history."""
        query = self._query()
        if self._newest is None and query.read.call is not None and query.rows is not None:
            newest = self._newest_rows(table, query)
            newest.begin(self._held(table, query, seq))
            self._newest = newest

    def _newest_rows(self, table: Table, query: RowQuery) -> NewestRows:
        call = query.read.call
        assert call is not None
        assert call.rows is not None
        time = query.time

        def run(sql: str, sources: Mapping[str, pa.Table]) -> pa.Table:
            return self._desk.run(sql, {}, sources, exact=True)[0]

        def older(newest_us: int, seq: int) -> pa.Table:
            upto = exp.LTE(this=exp.column(SEQ), expression=exp.Placeholder(this="tm_hi"))
            until = exp.LTE(
                this=exp.column(time.name, quoted=True), expression=parameter("tm_until", time)
            )
            select = self._tree("older", table, exp.and_(upto, until))
            values = {"tm_hi": seq, "tm_until": moment(newest_us, time)}
            answer, _ = self._desk.evaluate(select, BEFORE_ALL_US, values, exact=True)
            return like(answer, table.schema.append(SEQ_FIELD))

        key = [table.get_column(name) for name in call.partition_by]
        return NewestRows(key, time.name, call.rows, run, older)

    def _held(self, table: Table, query: RowQuery, seq: int) -> pa.Table:
        """The newest rows of each key up to a number, and more that are as old as the last."""
        tree = self._trees.get("held")
        if tree is None:
            tree = exp.maybe_parse(_held_sql(table, query), dialect="duckdb")
            self._trees["held"] = tree
        answer, _ = self._desk.evaluate(tree, BEFORE_ALL_US, {"tm_hi": seq}, exact=True)
        return like(answer, table.schema.append(SEQ_FIELD))

    def _one_by_one(
        self, windows: pa.Table, rows: pa.Table, query: RowQuery, others: Mapping[str, pa.Table]
    ) -> pa.Table:
        parts = []
        for seq, us in zip(rows.column(SEQ).to_pylist(), _times(rows, query), strict=True):
            window = windows.filter(pc.equal(windows.column(ROW), seq)).drop_columns([ROW, TIME])
            sources = {WINDOWS: window, **others}
            answer, _ = self._desk.run(query.single, query.now(int(us)), sources)
            parts.append(self._timed(answer, int(us)))
        return pa.concat_tables(parts)

    def _by_time(
        self, table: Table, rows: pa.Table, query: RowQuery
    ) -> Iterator[tuple[pa.Table, int]]:
        """Windows of time; where they are not at hand, the query itself reads each."""
        call = query.read.call
        assert call is not None
        if query.tagged is None:
            yield from self._by_asking(rows, query)
            return
        retention_us = table.settings["retention"]
        size_us = call.size_us if retention_us is None else min(call.size_us, retention_us)
        made = TimeWindows(query.time.name, size_us, partial(self._span, table, query.time))
        for part, windows in made.of(rows):
            if windows is None:
                yield from self._by_asking(part, query)
            else:
                yield self._answer(windows, part, query), _last_seq(part)

    def _by_asking(self, rows: pa.Table, query: RowQuery) -> Iterator[tuple[pa.Table, int]]:
        tree, parts, seq = self._arrived(), list[pa.Table](), 0
        for seq, us in zip(rows.column(SEQ).to_pylist(), _times(rows, query).tolist(), strict=True):
            self.last_us = us
            answer, _ = self._desk.evaluate(tree, us, {"tm_hi": seq})
            parts.append(self._timed(answer, us))
            if len(parts) == ASKED_AT_ONCE or sum(map(len, parts)) > BATCH_ROWS:
                yield pa.concat_tables(parts), seq
                parts = []
        if parts:
            yield pa.concat_tables(parts), seq

    def _arrived(self) -> exp.Expression:
        """The same tree with every call, while no definition changes."""
        definition_id = self._desk.snapshot().definition_id
        if self._known_arrived is None or self._known_arrived[0] != definition_id:
            tree = arrived_query(self._definition, self._desk.snapshot())
            self._known_arrived = (definition_id, tree)
        return self._known_arrived[1]

    def _span(
        self, table: Table, time: Column, low_us: int, high_us: int, seq: int, count: int
    ) -> pa.Table:
        """Rows of a span of time up to a number, wherever they are, and so many at most."""
        tree = self._trees.get("span")
        if tree is None:
            since = exp.GTE(this=_column(time), expression=parameter("tm_since", time))
            until = exp.LTE(this=_column(time), expression=parameter("tm_until", time))
            upto = exp.LTE(this=exp.column(SEQ), expression=exp.Placeholder(this="tm_hi"))
            select = self._tree("span", table, exp.and_(since, until, upto))
            tree = select.limit(exp.Placeholder(this="tm_count"), copy=False)
        bounds = {"tm_since": moment(low_us, time), "tm_until": moment(high_us, time)}
        values = {**bounds, "tm_hi": seq, "tm_count": count}
        answer, _ = self._desk.evaluate(tree, BEFORE_ALL_US, values, exact=True)
        return like(answer, table.schema.append(SEQ_FIELD))

    def _timed(self, answer: pa.Table, us: int) -> pa.Table:
        if self._own_time is None:
            return with_time(answer, us, self._time.name, self._time)
        at = next(
            i for i, n in enumerate(answer.column_names) if n.lower() == self._time.name.lower()
        )
        column = answer.column(at)
        instant = pa.scalar(from_us(us), pa.timestamp("us")).cast(column.type)
        return answer.set_column(at, answer.field(at), pc.fill_null(column, instant))


def _held_sql(table: Table, query: RowQuery) -> str:
    """First the time of each key's last row that is wanted, then the rows from there on: to number
    all rows of a long history would sort it."""
    call = query.read.call
    assert call is not None
    stream, time = quote(table.name), quote(query.time.name)
    names = [quote(name) for name in call.partition_by]
    parts = "".join(f"{name}, " for name in names)
    upto = f"WHERE {SEQ} <= $tm_hi"
    assert call.rows is not None
    count = rows_held(call.rows)
    if count > TOP_ROWS_MAX:
        over = f"PARTITION BY {', '.join(names)} " if names else ""
        newest = f"row_number() OVER ({over}ORDER BY {time} DESC, {SEQ} DESC)"
        return f"SELECT *, {SEQ} FROM {stream} {upto} QUALIFY {newest} <= {count}"
    grouped = f" GROUP BY {', '.join(names)}" if names else ""
    same = "".join(f"s.{name} IS NOT DISTINCT FROM m.{name} AND " for name in names)
    return (
        f"SELECT s.*, s.{SEQ} FROM {stream} AS s JOIN (SELECT {parts}"
        f"list_min(max({time}, {count})) AS tm_low FROM {stream} {upto}{grouped}) AS m"
        f" ON {same}s.{time} >= m.tm_low WHERE s.{SEQ} <= $tm_hi"
    )


def _last_seq(rows: pa.Table) -> int:
    return int(rows.column(SEQ)[-1].as_py())


def _column(time: Column) -> exp.Column:
    return exp.column(time.name, quoted=True)


def _times(rows: pa.Table, query: RowQuery) -> npt.NDArray[np.int64]:
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
