"""What a query that is answered row by row reads of its stream besides: rows before, and windows.

Each question is one tree with parameters, made once, so that it is planned once. Rows are found
wherever they are, also those that the retention hides by now: what was outside as of an instant is
left out by whoever asks.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.model import Table
from tidemill.clock import to_us
from tidemill.hot.gather import SEQ_FIELD
from tidemill.sql.names import table_node
from tidemill.types import SEQ, Column, quote
from tidemill.views.kept.environment import BEFORE_ALL_US, KeptEnvironment
from tidemill.views.kept.newest import like, rows_held
from tidemill.views.kept.row_query import RowQuery
from tidemill.views.kept.streams import moment, parameter

TOP_ROWS_MAX = 1_000


class StreamReads:
    """Questions to one stream."""

    def __init__(self, environment: KeptEnvironment) -> None:
        self._environment = environment
        self._trees: dict[str, exp.Expression] = {}

    def least_us(self, table: Table, time: Column, after_seq: int, upto_seq: int) -> int | None:
        """The least time of rows of a stretch of numbers."""
        tree = self._trees.get("least")
        if tree is None:
            after = exp.GT(this=exp.column(SEQ), expression=exp.Placeholder(this="tm_lo"))
            least = exp.select(exp.Min(this=_column(time))).from_(table_node(table.name))
            tree = self._trees["least"] = least.where(after, _upto())
        values = {"tm_lo": after_seq, "tm_hi": upto_seq}
        answer, _ = self._environment.evaluate(tree, BEFORE_ALL_US, values)
        value = answer.column(0)[0].as_py()
        return None if value is None else to_us(value)

    def older(self, table: Table, time: Column, newest_us: int, seq: int) -> pa.Table:
        """All rows up to a time and a number."""
        until = exp.LTE(this=_column(time), expression=parameter("tm_until", time))
        select = self._tree("older", table, exp.and_(_upto(), until))
        values = {"tm_hi": seq, "tm_until": moment(newest_us, time)}
        answer, _ = self._environment.evaluate(select, BEFORE_ALL_US, values, exact=True)
        return like(answer, table.schema.append(SEQ_FIELD))

    def newest_of_keys(self, table: Table, query: RowQuery, seq: int) -> pa.Table:
        """The newest rows of each key up to a number, and more that are as old as the last."""
        tree = self._trees.get("held")
        if tree is None:
            tree = exp.maybe_parse(_held_sql(table, query), dialect="duckdb")
            self._trees["held"] = tree
        answer, _ = self._environment.evaluate(tree, BEFORE_ALL_US, {"tm_hi": seq}, exact=True)
        return like(answer, table.schema.append(SEQ_FIELD))

    def span(
        self, table: Table, time: Column, low_us: int, high_us: int, seq: int, count: int
    ) -> pa.Table:
        """Rows of a span of time up to a number, and so many at most."""
        tree = self._trees.get("span")
        if tree is None:
            since = exp.GTE(this=_column(time), expression=parameter("tm_since", time))
            until = exp.LTE(this=_column(time), expression=parameter("tm_until", time))
            select = self._tree("span", table, exp.and_(since, until, _upto()))
            tree = select.limit(exp.Placeholder(this="tm_count"), copy=False)
        bounds = {"tm_since": moment(low_us, time), "tm_until": moment(high_us, time)}
        values = {**bounds, "tm_hi": seq, "tm_count": count}
        answer, _ = self._environment.evaluate(tree, BEFORE_ALL_US, values, exact=True)
        return like(answer, table.schema.append(SEQ_FIELD))

    def _tree(self, name: str, table: Table, where: exp.Expr) -> exp.Select:
        """``SELECT *, _seq FROM stream WHERE …``, the same tree with every call."""
        made = exp.select("*", exp.column(SEQ)).from_(table_node(table.name)).where(where)
        kept = self._trees.setdefault(name, made)
        assert isinstance(kept, exp.Select)
        return kept


def _upto() -> exp.LTE:
    return exp.LTE(this=exp.column(SEQ), expression=exp.Placeholder(this="tm_hi"))


def _column(time: Column) -> exp.Column:
    return exp.column(time.name, quoted=True)


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
