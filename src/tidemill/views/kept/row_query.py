"""What EVERY ROW runs: a query's tree as SQL over the windows of the rows that arrived.

The stream's FROM item becomes the relation ``tm_windows``, other streams become relations too
(``sides``), reference tables become their places in DuckDB, and PREV becomes a window function
(``passes``). If the query can be tagged, one SQL answers all windows of a batch; another one
answers a single window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from tidemill.catalog.model import Snapshot, Table
from tidemill.hot.gather import SEQ_FIELD
from tidemill.sql.now import NOW
from tidemill.sql.passes import run_passes
from tidemill.types import Column, SqlType
from tidemill.views.kept.before import Before
from tidemill.views.kept.definition import TIME_NAME, Definition
from tidemill.views.kept.environment import Answer, KeptEnvironment
from tidemill.views.kept.passes import (
    ARRIVED_PASSES,
    MANY_ROWS_PASSES,
    ONE_ROW_PASSES,
    ROW_PASSES,
    KeptState,
)
from tidemill.views.kept.passes import WINDOWS as WINDOWS
from tidemill.views.kept.reads import Read
from tidemill.views.kept.sides import Side
from tidemill.views.kept.streams import moment, time_of
from tidemill.views.kept.tagging import TIME, finished

_ZONED = Column(TIME, SqlType("TIMESTAMP WITH TIME ZONE"))


@dataclass(frozen=True)
class RowQuery:
    """What runs over the windows of a batch: one SQL for all instants, if the query allows it, and
    one for a single instant."""

    table: Table
    read: Read
    time: Column
    single: str
    tagged: str | None
    uses_now: bool
    before: tuple[Before, ...] = ()  # columns of the windows that the tagged SQL reads
    sides: tuple[Side, ...] = ()
    is_narrow: bool = False  # of a window, the tagged SQL needs the rows of the instant's time only

    @property
    def rows(self) -> int | None:
        """The rows of a window; None if it is a span of time."""
        return 1 if self.read.call is None else self.read.call.rows

    def now(self, us: int) -> Mapping[str, object]:
        """The values of ``single`` at a moment."""
        return {NOW: moment(us, _ZONED)} if self.uses_now else {}


def row_query(definition: Definition, snapshot: Snapshot, answer_time: Column | None) -> RowQuery:
    """``answer_time`` is the column of the answers that holds their time, if the query itself
    gives it."""
    state = run_passes(ROW_PASSES, KeptState.of(definition.tree(), snapshot))
    one = run_passes(ONE_ROW_PASSES, state.copied())
    many = run_passes(MANY_ROWS_PASSES, state.copied())
    read = state.read
    assert read is not None
    return RowQuery(
        read.table,
        read,
        time_of(read.table),
        one.tree.sql(dialect="duckdb"),
        _in_order(many.tree, answer_time) if many.is_tagged else None,
        one.uses_now,
        many.before if many.is_tagged else (),
        state.sides,
        many.is_tagged and many.is_narrow,
    )


def arrived_query(definition: Definition, snapshot: Snapshot) -> exp.Expression:
    """The query over a window of time, without rows whose number is above ``$tm_hi``."""
    return run_passes(ARRIVED_PASSES, KeptState.of(definition.tree(), snapshot)).tree


def _in_order(tagged: exp.Expression, answer_time: Column | None) -> str:
    """The SQL that answers all windows of a batch."""
    own = None if answer_time is None else _own_time(answer_time)
    given = TIME_NAME if answer_time is None else answer_time.name
    return finished(tagged, own, given).sql(dialect="duckdb")


def _own_time(column: Column) -> exp.Expression:
    own = exp.column(column.name, quoted=True)
    instant = exp.cast(exp.column(TIME), str(column.type), dialect="duckdb")
    return exp.Coalesce(this=own, expressions=[instant])


def describe_rows(definition: Definition, environment: KeptEnvironment) -> Answer:
    """The columns of the answers."""
    query = row_query(definition, environment.snapshot(), None)
    if query.rows is None:
        tree = definition.tree()
        return environment.evaluate(exp.select("*").from_(exp.Subquery(this=tree)).limit(0), 0)
    empty = query.table.schema.append(SEQ_FIELD).empty_table()
    sides = {side.relation: side.table.schema.empty_table() for side in query.sides}
    return environment.run(query.single, query.now(0), {WINDOWS: empty, **sides})
