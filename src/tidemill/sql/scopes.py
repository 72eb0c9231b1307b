"""Scopes: which sources a SELECT reads, and to which of them a column belongs.

The rules lean on one fact: in a query that DuckDB accepts, an unqualified name belongs to exactly
one source of the nearest SELECT that has it (columns joined by USING or NATURAL excepted). So
when a known table has the column and no other known source has it, the column is that table's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from tidemill.sql.calls import StreamTable, Tables
from tidemill.sql.names import find_cte, table_name_of


def base_table(node: exp.Table, tables: Tables) -> StreamTable | None:
    """The known table that a FROM item reads, unless a WITH query of that name hides it."""
    name = table_name_of(node)
    if name is None or (not node.args.get("db") and find_cte(node, name) is not None):
        return None
    return tables(name)


@dataclass(frozen=True, eq=False)
class Source:
    """A FROM item of a SELECT: its node, its alias, its columns if known, its JOIN if any."""

    node: exp.Expr
    alias: str
    columns: frozenset[str] | None
    join: exp.Join | None


@dataclass(frozen=True, eq=False)
class Scope:
    """The sources of one SELECT."""

    select: exp.Select
    tables: Tables

    @cached_property
    def sources(self) -> list[Source]:
        found: list[Source] = []
        from_ = self.select.args.get("from_")
        if from_ is not None:
            found.append(self._source(from_.this, None))
        for join in self.select.args.get("joins") or []:
            found.append(self._source(join.this, join))
        return found

    def _source(self, node: exp.Expr, join: exp.Join | None) -> Source:
        alias = node.alias_or_name.lower()
        alias_node = node.args.get("alias")
        columns: frozenset[str] | None = None
        renamed = alias_node is not None and bool(alias_node.args.get("columns"))
        if isinstance(node, exp.Table) and not renamed and not node.args.get("pivots"):
            table = base_table(node, self.tables)
            if table is not None:
                columns = frozenset(column.name.lower() for column in table.columns)
        elif isinstance(node, exp.Values) and renamed:
            columns = _named(node)
        return Source(node, alias, columns, join)

    @cached_property
    def is_orderly(self) -> bool:
        """No join in which one row's partner depends on other rows: ASOF, POSITIONAL, samples."""
        if self.select.args.get("sample") is not None:
            return False
        for source in self.sources:
            if source.node.args.get("sample") is not None:
                return False
            if source.join is not None and source.join.method.upper() in ("ASOF", "POSITIONAL"):
                return False
        return True

    @cached_property
    def shared_names(self) -> frozenset[str] | None:
        """Columns joined by USING; None with a NATURAL JOIN, whose columns are not written."""
        names: set[str] = set()
        for source in self.sources:
            if source.join is None:
                continue
            if source.join.method.upper() == "NATURAL":
                return None
            names.update(name.name.lower() for name in source.join.args.get("using") or [])
        return frozenset(names)

    def owner(self, column: exp.Column) -> Source | None:
        """The source that surely has this column; None when in doubt."""
        name = column.name.lower()
        if column.args.get("db") is not None or isinstance(column.this, exp.Star):
            return None
        qualifier = column.table.lower()
        if qualifier:
            named = [source for source in self.sources if source.alias == qualifier]
            return named[0] if len(named) == 1 and _may_have(named[0], name) else None
        if len(self.sources) == 1 and self.shared_names is not None:
            return self.sources[0] if _may_have(self.sources[0], name) else None
        if self.shared_names is None or name in self.shared_names:
            return None
        having = [source for source in self.sources if source.columns and name in source.columns]
        return having[0] if len(having) == 1 else None


def _named(values: exp.Values) -> frozenset[str] | None:
    """The columns of a list of rows, if its alias names all of them."""
    names = [each.name.lower() for each in values.args["alias"].args["columns"]]
    widths = {len(row.expressions) or 1 for row in values.expressions}
    return frozenset(names) if widths == {len(names)} else None


def _may_have(source: Source, name: str) -> bool:
    return source.columns is None or name in source.columns


def enclosing_select(node: exp.Expr) -> exp.Select | None:
    """The SELECT that a FROM item belongs to directly."""
    parent = node.parent
    if not isinstance(parent, (exp.From, exp.Join)):
        return None
    if parent.arg_key not in ("from_", "joins") or node.arg_key != "this":
        return None
    return parent.parent if isinstance(parent.parent, exp.Select) else None


def readers(query: exp.Expression, cte: exp.CTE) -> list[exp.Table]:
    """The FROM items that read a WITH query."""
    lower = cte.alias.lower()
    return [
        node
        for node in query.find_all(exp.Table)
        if not node.args.get("db")
        and (name := table_name_of(node)) is not None
        and name.lower() == lower
        and find_cte(node, name) is cte
    ]
