"""Lookups: queries that the indices answer alone.

``SELECT columns FROM t WHERE column op constant AND …`` on whole numbers, times and dates asks for
nothing but rows and columns. The indices have selected the rows already; testing the conditions on
the few that are left, exactly, costs less than a tenth of what it takes DuckDB to plan the query.
Whatever is larger, or has more to it, goes to DuckDB. Both ways give the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.model import Table
from tidemill.federation.scans import Asked, condition_of
from tidemill.hot import keys
from tidemill.hot.picking import matches
from tidemill.hot.wanted import Condition
from tidemill.sql.predicates import Conjunct
from tidemill.sql.scopes import is_named_by
from tidemill.types import Column

ROWS_MAX = 20_000
_ALLOWED = {"expressions", "from_", "where", "order", "limit", "kind", "operation_modifiers"}
_COMPARISONS = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


@dataclass(frozen=True)
class Lookup:
    """The columns wanted, under their names, perhaps by time and only the first few."""

    columns: tuple[Column, ...]
    time_column: str | None = None
    is_newest_first: bool = False
    limit: int | None = None

    @property
    def types(self) -> list[str]:
        return [column.type.name for column in self.columns]


def lookup_of(tree: exp.Expression, table: Table, conjuncts: tuple[Conjunct, ...]) -> Lookup | None:
    """The lookup that a query over one streaming table is, or None if it is more than that."""
    if not isinstance(tree, exp.Select):
        return None
    if any(value for key, value in tree.args.items() if key not in _ALLOWED):
        return None
    from_ = tree.args.get("from_")
    source = from_.this if from_ is not None else None
    if not isinstance(source, exp.Table) or set(_given(source)) - {"this", "alias", "db"}:
        return None
    if source.args.get("alias") and source.args["alias"].args.get("columns"):
        return None
    columns = _columns(tree, table, source.alias_or_name)
    if columns is None or not _asks_exactly(tree, conjuncts, table):
        return None
    limit, order = tree.args.get("limit"), tree.args.get("order")
    lookup = Lookup(columns)
    if order is not None:
        newest_first = _order_by_time(order, table)
        if newest_first is None:
            return None
        lookup = Lookup(columns, table.time_column, newest_first)
    if limit is not None:
        if limit.args.get("limit_options") or not _is_count(limit.expression):
            return None
        lookup = replace(lookup, limit=int(limit.expression.name))
    return lookup


def answer(lookup: Lookup, conditions: list[Condition], rows: pa.Table) -> pa.Table:
    """The lookup's answer from rows that hold all that match."""
    parts = [_matching(batch, conditions) for batch in rows.to_batches()]
    found = pa.Table.from_batches(parts, rows.schema)
    if lookup.time_column is not None:
        times = keys.words(found.column(lookup.time_column).combine_chunks())
        order = np.argsort(-times if lookup.is_newest_first else times, kind="stable")
        found = found.take(keys.row_numbers(order))
    if lookup.limit is not None:
        found = found.slice(0, lookup.limit)
    names = [column.name for column in lookup.columns]
    return pa.Table.from_arrays([found.column(name) for name in names], names=names)


def exact_conditions(table: Table, asked: Iterable[Asked]) -> list[Condition] | None:
    """The conditions on whole numbers, times and dates; None if any other is asked."""
    found = []
    for one in asked:
        condition = condition_of(table, one)
        if condition is None or not _is_exact(table.schema.field(condition.column).type):
            return None
        found.append(condition)
    return found


def _is_exact(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _is_plain(kind: pa.DataType) -> bool:
    """Types whose Arrow form is the same in a block and in an answer of DuckDB."""
    return bool(
        keys.is_numeric(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_decimal(kind)
    ) and not (pa.types.is_timestamp(kind) and kind.tz is not None)


def _given(node: exp.Expression) -> list[str]:
    return [key for key, value in node.args.items() if value]


def _columns(tree: exp.Select, table: Table, alias: str) -> tuple[Column, ...] | None:
    columns: list[Column] = []
    for part in tree.expressions:
        if isinstance(part, exp.Star) and not _given(part):
            columns += table.columns
            continue
        if not isinstance(part, exp.Column) or isinstance(part.this, exp.Star):
            return None
        column = table.column(part.name)
        if column is None or column.name != part.name or not is_named_by(part, alias):
            return None
        columns.append(column)
    names = {column.name for column in columns}
    is_plain = all(_is_plain(column.type.arrow) for column in columns)
    return tuple(columns) if is_plain and len(names) == len(columns) else None


def _asks_exactly(tree: exp.Select, conjuncts: tuple[Conjunct, ...], table: Table) -> bool:
    """Whether the conjuncts are all that WHERE says."""
    where = tree.args.get("where")
    if where is None:
        return False
    parts = list(where.this.flatten()) if isinstance(where.this, exp.And) else [where.this]
    expected = 0
    for part in parts:
        if isinstance(part, _COMPARISONS) or (isinstance(part, exp.In) and part.expressions):
            expected += 1
        elif isinstance(part, exp.Between) and not part.args.get("symmetric"):
            expected += 2
        else:
            return False
    is_known = all(c.op != "in_query" and table.column(c.column) for c in conjuncts)
    return is_known and len(conjuncts) == expected


def _order_by_time(order: exp.Order, table: Table) -> bool | None:
    if len(order.expressions) != 1:
        return None
    first = order.expressions[0]
    is_time = isinstance(first.this, exp.Column) and first.this.name == table.time_column
    return bool(first.args.get("desc")) if is_time else None


def _is_count(node: exp.Expression) -> bool:
    return isinstance(node, exp.Literal) and node.is_int


def _matching(batch: pa.RecordBatch, conditions: list[Condition]) -> pa.RecordBatch:
    mask = np.ones(batch.num_rows, dtype=bool)
    for condition in conditions:
        column = batch.column(condition.column)
        mask &= matches(keys.words(column), condition)
        if column.null_count:
            mask &= column.is_valid().to_numpy(zero_copy_only=False)
    return batch if mask.all() else batch.take(keys.row_numbers(np.flatnonzero(mask)))
