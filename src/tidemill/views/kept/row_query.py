"""What EVERY ROW runs: a query's tree as SQL over the windows of the rows that arrived.

The stream's FROM item becomes the relation ``tm_windows``, reference tables become their places in
DuckDB, and PREV becomes a window function. If the query can be tagged, one SQL answers all windows
of a batch; another one answers a single window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from tidemill.catalog.model import Snapshot, Table
from tidemill.errors import UnsupportedError
from tidemill.federation.duck import REFERENCE
from tidemill.federation.planner import unbound_tables
from tidemill.federation.references import physical_name
from tidemill.hot.gather import SEQ_FIELD
from tidemill.sql.names import position_of
from tidemill.sql.now import NOW, bind_now
from tidemill.sql.prev import rewrite_prev
from tidemill.types import Column, SqlType
from tidemill.views.kept.definition import TIME_NAME, Definition
from tidemill.views.kept.desk import Answer, Desk
from tidemill.views.kept.reads import Read, reads_of
from tidemill.views.kept.streams import moment, time_of
from tidemill.views.kept.tagging import TIME, finished, has_aggregates, hide_seq, tagged

WINDOWS = "tm_windows"
_HINT = "EVERY INTERVAL '…' reads several streams; EVERY ROW reads one, and reference tables"
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

    @property
    def rows(self) -> int | None:
        """The rows of a window; None if it is a span of time."""
        return 1 if self.read.call is None else self.read.call.rows

    def now(self, us: int) -> Mapping[str, object]:
        """The values of ``single`` at a moment."""
        return {NOW: moment(us, _ZONED)} if self.uses_now else {}


def the_read(tree: exp.Expression, snapshot: Snapshot) -> Read:
    """The one FROM item over a stream; raises for what EVERY ROW cannot do."""
    reads = reads_of(tree, snapshot)
    for read in reads[1:]:
        raise UnsupportedError(
            "EVERY ROW reads one stream once", hint=_HINT, position=read.position
        )
    (read,) = reads
    if read.table.is_view:
        raise UnsupportedError(
            f'EVERY ROW reads a stream, "{read.table.name}" is a view',
            hint="EVERY INTERVAL '…' reads views",
            position=read.position,
        )
    if read.function in ("TUMBLE", "HOP"):
        raise UnsupportedError(
            f"{read.function} is not read row by row",
            hint="end the query with EMIT ON WINDOW CLOSE",
            position=read.position,
        )
    if read.call is None:
        _check_plain(read.node)
    return read


def _check_plain(node: exp.Expr | None) -> None:
    """Refuse what would look at more than one row on the way from a FROM item to the answer."""
    while node is not None:
        if isinstance(node, exp.Select):
            is_gathering = has_aggregates(node) or node.args.get("distinct")
            is_cut = node.args.get("limit") or node.args.get("offset")
            has_windows = any(part.find(exp.Window) is not None for part in node.expressions)
            if is_gathering or is_cut or has_windows:
                raise UnsupportedError(
                    "EVERY ROW without a window sees one row at a time",
                    detail="the query groups, compares or limits rows",
                    hint="read a window: RECENT(t, rows => k, partition_by => key) or RECENT(t, "
                    "INTERVAL …); or CREATE MATERIALIZED VIEW … AS SELECT …",
                    position=position_of(node),
                )
        node = node.parent


def row_query(definition: Definition, snapshot: Snapshot, answer_time: Column | None) -> RowQuery:
    """``answer_time`` is the column of the answers that holds their time, if the query itself
    gives it."""
    tree = rewrite_prev(definition.tree(), snapshot.find)
    read = the_read(tree, snapshot)
    for node, name in list(unbound_tables(tree)):
        if node is not read.node:
            _place(node, name, snapshot)
    many = _over_windows(tree, snapshot, is_tagged=True)
    sql = None
    if many is not None:
        own = None if answer_time is None else _own_time(answer_time)
        given = TIME_NAME if answer_time is None else answer_time.name
        sql = finished(many[0], own, given).sql(dialect="duckdb")
    single = _over_windows(tree, snapshot, is_tagged=False)
    assert single is not None
    text = single[0].sql(dialect="duckdb")
    return RowQuery(read.table, read, time_of(read.table), text, sql, single[1])


def _own_time(column: Column) -> exp.Expression:
    own = exp.column(column.name, quoted=True)
    instant = exp.cast(exp.column(TIME), str(column.type), dialect="duckdb")
    return exp.Coalesce(this=own, expressions=[instant])


def _over_windows(
    tree: exp.Expression, snapshot: Snapshot, *, is_tagged: bool
) -> tuple[exp.Expression, bool] | None:
    """The query over the relation of windows, and whether it asks what now is."""
    tree = tree.copy()
    (read,) = reads_of(tree, snapshot)
    source = exp.Table(this=exp.to_identifier(WINDOWS))
    source.set("alias", exp.TableAlias(this=exp.to_identifier(read.alias, quoted=True)))
    alias = read.node.args.get("alias")
    if alias is not None and alias.this is not None:
        source.set("alias", alias.copy())
    if read.node is tree:
        return None
    read.node.replace(source)
    if is_tagged:
        found = tagged(tree, source, with_seq=True)
        return None if found is None else (found, False)
    hide_seq(source)
    return tree, bind_now(tree)


def _place(node: exp.Table, name: str, snapshot: Snapshot) -> None:
    """Put a reference table's place in DuckDB for its name."""
    table = snapshot.find(name)
    if table is None and "." in name and not name.lower().startswith("tidemill."):
        return  # a file, which DuckDB finds by itself
    if table is None and not name.lower().startswith("tidemill."):
        table = snapshot.get(name, position_of(node))
    if table is None or not table.is_reference:
        raise UnsupportedError(
            f'EVERY ROW cannot read "{name}"', hint=_HINT, position=position_of(node)
        )
    if not node.alias:
        node.set("alias", exp.TableAlias(this=node.this.copy()))
    node.set("this", exp.to_identifier(physical_name(table.table_id), quoted=True))
    node.set("db", exp.to_identifier("main"))
    node.set("catalog", exp.to_identifier(REFERENCE))


def describe_rows(definition: Definition, desk: Desk) -> Answer:
    """The columns of the answers."""
    query = row_query(definition, desk.snapshot(), None)
    if query.rows is None:
        tree = definition.tree()
        return desk.evaluate(exp.select("*").from_(exp.Subquery(this=tree)).limit(0), 0)
    empty = query.table.schema.append(SEQ_FIELD).empty_table()
    return desk.run(query.single, query.now(0), {WINDOWS: empty})
