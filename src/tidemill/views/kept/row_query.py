"""What EVERY ROW runs: a query's tree as SQL over the windows of the rows that arrived.

The stream's FROM item becomes the relation ``tm_windows``, other streams become relations too
(``sides``), reference tables become their places in DuckDB, and PREV becomes a window function. If
the query can be tagged, one SQL answers all windows of a batch; another one answers a single
window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from tidemill.catalog.model import Snapshot, Table
from tidemill.errors import UnsupportedError
from tidemill.federation.duck import REFERENCE
from tidemill.federation.references import physical_name
from tidemill.hot.gather import SEQ_FIELD
from tidemill.sql.calls import SEQ, show_seq, shows_seq
from tidemill.sql.hidden import pack_rows
from tidemill.sql.names import position_of
from tidemill.sql.now import NOW, bind_now, is_now
from tidemill.sql.prev import rewrite_prev
from tidemill.sql.scopes import enclosing_select, unbound_tables
from tidemill.types import Column, SqlType
from tidemill.views.kept.before import Before, take_before
from tidemill.views.kept.definition import TIME_NAME, Definition
from tidemill.views.kept.desk import Answer, Desk
from tidemill.views.kept.reads import Read, leading, reads_of, wrapped
from tidemill.views.kept.sides import SIDE, Side, take_sides
from tidemill.views.kept.streams import moment, time_of
from tidemill.views.kept.tagging import TIME, finished, has_aggregates, hide_seq, tagged

WINDOWS = "tm_windows"
_HINT = "EVERY ROW reads streams and reference tables; EVERY INTERVAL '…' reads views too"
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


def the_read(tree: exp.Expression, snapshot: Snapshot) -> Read:
    """The FROM item whose rows are answered: the stream that is not joined to another; raises for
    what EVERY ROW cannot do."""
    reads = reads_of(tree, snapshot)
    read = leading(reads)
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
    """Refuse what would look at more than one row on the way from a FROM item to the answer. With
    a join a row may have become several."""
    while node is not None and not (isinstance(node, exp.Select) and node.args.get("joins")):
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
    _pack_rows(read)
    sides = take_sides(tree, read, snapshot)
    for node, name in list(unbound_tables(tree)):
        if node is not read.node and not name.startswith(SIDE):
            _place(node, name, snapshot)
    sql, before, is_narrow = _tagged(tree, snapshot, answer_time, read.table)
    single, source = _over_windows(tree, snapshot)
    hide_seq(source)
    uses_now = bind_now(single)
    text = single.sql(dialect="duckdb")
    time = time_of(read.table)
    return RowQuery(read.table, read, time, text, sql, uses_now, before, sides, is_narrow)


def arrived_query(definition: Definition, snapshot: Snapshot) -> exp.Expression:
    """The query over a window of time, without rows whose number is above ``$tm_hi``."""
    tree = rewrite_prev(definition.tree(), snapshot.find)
    (read,) = reads_of(tree, snapshot)
    is_shown = shows_seq(read.node)  # to PREV, whose SELECT names its columns
    show_seq(read.node)
    upto = exp.LTE(this=exp.column(SEQ), expression=exp.Placeholder(this="tm_hi"))
    source = wrapped(read, upto)
    if not is_shown:
        source.this.expressions[0].set("except_", [exp.to_identifier(SEQ)])
    read.node.replace(source)
    return tree


def _pack_rows(read: Read) -> None:
    """Let the stream's row as a value have the user's columns alone."""
    select = enclosing_select(read.node)
    if select is not None:
        names = [column.name for column in read.table.columns]
        pack_rows(select, read.node.alias_or_name or read.table.name, names)


def _tagged(
    tree: exp.Expression, snapshot: Snapshot, answer_time: Column | None, table: Table
) -> tuple[str | None, tuple[Before, ...], bool]:
    """The SQL that answers all windows of a batch, the columns that they need for it, and whether
    rows of other times than the instants' can be left out."""
    many, source = _over_windows(tree, snapshot)
    before = take_before(source, table)
    is_narrow = _is_narrow(many, source, time_of(table).name)
    found = tagged(many, source, with_seq=True)
    if found is None:
        return None, (), False
    own = None if answer_time is None else _own_time(answer_time)
    given = TIME_NAME if answer_time is None else answer_time.name
    return finished(found, own, given).sql(dialect="duckdb"), before, is_narrow


def _is_narrow(tree: exp.Expression, source: exp.Expr, time: str) -> bool:
    """Whether a query that looks at each row by itself says ``ts = now()`` of the window's rows."""
    if tree.find(exp.Window) is not None:
        return False
    item, is_said = source, False
    while (select := enclosing_select(item)) is not None:
        if has_aggregates(select) or select.args.get("distinct"):
            return False
        where = select.args.get("where")
        parts = where.this.flatten() if where is not None else ()
        is_said = is_said or any(_says_now(part, time.lower()) for part in parts)
        item = select.parent if isinstance(select.parent, exp.Subquery) else tree
    return is_said


def _says_now(node: exp.Expr, time: str) -> bool:
    sides = (node.this, node.expression) if isinstance(node, exp.EQ) else ()
    is_time = any(isinstance(side, exp.Column) and side.name.lower() == time for side in sides)
    return is_time and any(map(is_now, sides))


def _own_time(column: Column) -> exp.Expression:
    own = exp.column(column.name, quoted=True)
    instant = exp.cast(exp.column(TIME), str(column.type), dialect="duckdb")
    return exp.Coalesce(this=own, expressions=[instant])


def _over_windows(tree: exp.Expression, snapshot: Snapshot) -> tuple[exp.Expression, exp.Table]:
    """A copy of the query over the relation of windows, and the FROM item of that."""
    tree = tree.copy()
    (read,) = reads_of(tree, snapshot)
    assert read.node is not tree
    source = exp.Table(this=exp.to_identifier(WINDOWS))
    source.set("alias", exp.TableAlias(this=exp.to_identifier(read.alias, quoted=True)))
    alias = read.node.args.get("alias")
    if alias is not None and alias.this is not None:
        source.set("alias", alias.copy())
    read.node.replace(source)
    return tree, source


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
    sides = {side.relation: side.table.schema.empty_table() for side in query.sides}
    return desk.run(query.single, query.now(0), {WINDOWS: empty, **sides})
