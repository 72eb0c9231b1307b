"""Where a kept query reads streams: the FROM items, the tables behind them and their windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from sqlglot import exp

from tidemill.catalog.model import Snapshot, Table
from tidemill.errors import Position, QueryError, UnsupportedError
from tidemill.sql.calls import Call, read_call
from tidemill.sql.names import position_of, table_name_of
from tidemill.sql.scopes import base_table
from tidemill.sql.windows import window_call
from tidemill.types import Column
from tidemill.views.defining import ViewDefinition

KEPT_ARGS = ("joins", "pivots", "sample", "laterals")


@dataclass(frozen=True, eq=False)
class Read:
    """A FROM item over a stream or a materialized view; ``call`` is its window, if it has one."""

    node: exp.Table
    table: Table
    function: str | None = None
    call: Call | None = None

    @property
    def time(self) -> Column:
        """The column by which the read is cut in time."""
        if self.call is not None:
            return self.call.time
        assert self.table.time_column is not None
        return self.table.get_column(self.table.time_column)

    @property
    def position(self) -> Position | None:
        return position_of(self.node)

    @property
    def alias(self) -> str:
        name: str = self.node.alias or self.table.name
        return name


def reads_of(tree: exp.Expression, snapshot: Snapshot) -> list[Read]:
    """Every FROM item that reads a stream or a view, in the order of the tree."""

    def streams(name: str) -> Table | None:
        table = snapshot.find(name)
        return table if table is not None and table.is_streaming else None

    found: list[Read] = []
    for node in tree.find_all(exp.Table):
        function = window_call(node)
        if function is not None:
            call = read_call(function, node, streams)
            found.append(Read(node, snapshot.get(call.table.name), function.name.upper(), call))
            continue
        table = cast("Table | None", base_table(node, snapshot.find))
        if table is not None and (table.is_streaming or table.is_view):
            found.append(Read(node, table))
    return found


def leading(reads: list[Read]) -> Read:
    """Of the reads of an EVERY ROW query the one whose rows are answered: the first that stands in
    FROM itself, not behind a JOIN."""
    firsts = [read for read in reads if isinstance(read.node.parent, exp.From)]
    return (firsts or reads)[0]


def reads_others(tree: exp.Expression, snapshot: Snapshot) -> bool:
    """Whether a query reads anything but streams: a reference table, or a view."""
    nodes = tree.find_all(exp.Table)
    found = (cast("Table | None", base_table(node, snapshot.find)) for node in nodes)
    return any(table is not None and not table.is_streaming for table in found)


def table_names(tree: exp.Expression) -> frozenset[str]:
    """The names of tables in a query, those of WITH queries among them."""
    names = (table_name_of(node) for node in tree.find_all(exp.Table))
    return frozenset(name for name in names if name is not None)


def depends_on(table: Table, table_id: int, snapshot: Snapshot) -> bool:
    """Whether a table is the one with that number, or a view that reads it."""
    if not table.is_view:
        return table.table_id == table_id
    behind = map(snapshot.table, ViewDefinition.of(table).tables)
    return any(each is not None and depends_on(each, table_id, snapshot) for each in behind)


def check_reads(reads: list[Read]) -> None:
    """What no slide can do: read nothing, or sessions, which later rows still change."""
    if not reads:
        raise QueryError(
            "a kept query reads a stream, and this one reads none",
            hint="CREATE TABLE … AS SELECT … keeps an answer once",
        )
    for read in reads:
        if read.function == "SESSION":
            raise UnsupportedError(
                "sessions cannot be read by a kept query: rows to come may still join them",
                hint="CREATE MATERIALIZED VIEW … AS SELECT … FROM SESSION(…) GROUP BY …",
                position=read.position,
            )


def wrapped(read: Read, where: exp.Expr, *columns: exp.Expr) -> exp.Subquery:
    """The read as a subquery: all its columns, some more, and a condition. The read's node goes
    into it; the caller puts the subquery in its place."""
    node = read.node.copy()
    alias = node.args.get("alias")
    name = alias if alias is not None and alias.this is not None else None
    kept = {key: node.args[key] for key in KEPT_ARGS if node.args.get(key)}
    for key in ("alias", *kept):
        node.set(key, None)
    select = exp.select("*", *columns).from_(node).where(where)
    outer = name or exp.TableAlias(this=exp.to_identifier(read.table.name, quoted=True))
    return exp.Subquery(this=select, alias=outer, **kept)
