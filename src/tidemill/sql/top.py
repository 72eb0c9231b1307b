"""The first rows by some order: a scan of which only as many as the LIMIT can reach the answer.

``SELECT … FROM t WHERE … ORDER BY … LIMIT k`` over one table, with nothing between the scan and the
limit, needs no more than the first k rows, in that order, of those that satisfy the condition. Of a
table in several parts it therefore needs the first k of each part. With the newest first, it needs
no row older than the k-th newest that any of the parts has.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from tidemill.sql.calls import StreamTable
from tidemill.sql.constants import is_repeatable
from tidemill.sql.latest import has_more, is_newest_first, rows_limit
from tidemill.sql.params import placeholders
from tidemill.sql.scopes import is_named_by
from tidemill.types import SEQ


@dataclass(frozen=True)
class Top:
    """The clauses of such a query, which read one table under its alias."""

    count: int
    where: str  # with WHERE, or empty
    order: str  # with ORDER BY
    columns: frozenset[str]  # that the clauses read
    params: frozenset[str]  # that they name
    is_newest_first: bool

    def first_of(self, part: str, alias: str, columns: str = "*") -> str:
        """The rows of a part that can reach the answer."""
        return f"SELECT {columns} FROM {part} AS {alias}{self.where}{self.order} LIMIT {self.count}"


def top_of(node: exp.Table, table: StreamTable | None) -> Top | None:
    """What a scan's first rows are; None when all may matter."""
    select = node.parent.parent if isinstance(node.parent, exp.From) else None
    if table is None or not isinstance(select, exp.Select) or has_more(node, select):
        return None
    count, order, where = rows_limit(select), select.args.get("order"), select.args.get("where")
    alias = node.args.get("alias")
    if count is None or order is None or (alias is not None and alias.args.get("columns")):
        return None
    names = {column.name.lower() for column in table.columns} | {SEQ}
    renamed = {part.alias.lower() for part in select.expressions if isinstance(part, exp.Alias)}
    tests = [] if where is None else [where.this]
    terms = [term.this for term in order.expressions]
    if not all(_is_of(part, node, names) for part in tests):
        return None
    if not all(_is_of(part, node, names - renamed) and part.find(exp.Column) for part in terms):
        return None
    columns = {c.name.lower() for part in (*tests, *terms) for c in part.find_all(exp.Column)}
    return Top(
        count,
        f" {where.sql(dialect='duckdb')}" if where is not None else "",
        f" {order.sql(dialect='duckdb')}",
        frozenset(columns),
        frozenset(name for part in (*tests, *terms) for name in placeholders(part)),
        is_newest_first(order, select, table),
    )


def _is_of(part: exp.Expr, node: exp.Table, names: set[str]) -> bool:
    """Whether an expression reads nothing but columns of the table, and says the same always."""
    if not is_repeatable(part):
        return False
    return all(
        column.args.get("db") is None
        and is_named_by(column, node.alias_or_name)
        and column.name.lower() in names
        for column in part.find_all(exp.Column)
    )
