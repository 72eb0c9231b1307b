"""Scopes: what a name means in a query, by DuckDB's rules, and the only place that decides it.

1. **Tables.** A name in FROM means the nearest WITH query in sight of it, else a table
   (``with_query``, ``base_table``). In sight are the WITH queries of the queries around, and of the
   same WITH those that stand before; a recursive one sees itself.
2. **Columns.** A name belongs to the source that is named before it, else to the one source of the
   nearest SELECT that has it (``candidates``, ``Scope.resolve``). Columns joined by USING or
   NATURAL belong to no source alone.
3. **Queries in queries.** A name before a column that none of a query's own sources has is one of
   a query around it (``names_outside``).

The rules lean on one fact: DuckDB accepts the query, or refuses it before anything is done by what
is found here. So when one known source has a column, no other has it, known or not. What is in
doubt is claimed by nobody. Why sqlglot's own resolution does not stand here is told in
docs/design/20261118-scopes.md.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

from sqlglot import exp

from tidemill.sql.names import table_name_of
from tidemill.types import Column


class StreamTable(Protocol):
    """What a query needs to know of a table; ``catalog.model.Table`` is one."""

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> Sequence[Column]: ...
    @property
    def time_column(self) -> str | None: ...


Tables = Callable[[str], StreamTable | None]


# -- tables and WITH queries


def with_query(node: exp.Table) -> exp.CTE | None:
    """The WITH query that a FROM item reads, if it reads one."""
    name = None if node.args.get("db") else table_name_of(node)
    return None if name is None else find_with_query(node, name)


def find_with_query(node: exp.Expr, name: str) -> exp.CTE | None:
    """The WITH query that a name means at a node, if it means one."""
    lower = name.lower()
    for cte in visible_queries(node):
        if cte.alias.lower() == lower:
            return cte
    return None


def visible_queries(node: exp.Expr) -> Iterator[exp.CTE]:
    """The WITH queries in sight of a node, the nearest first."""
    child: exp.Expr = node
    parent = node.parent
    owner: exp.Expr | None = None
    while parent is not None:
        if isinstance(parent, exp.With):
            yield from reversed(_before(parent, child))
            owner = parent.parent
        elif parent is not owner and (with_ := parent.args.get("with_")) is not None:
            yield from reversed(with_.expressions)
        child, parent = parent, parent.parent


def _before(with_: exp.With, cte: exp.Expr) -> list[exp.CTE]:
    """The WITH queries that one of them sees: the ones before it, and itself if it may recurse."""
    place = next(at for at, other in enumerate(with_.expressions) if other is cte)
    return with_.expressions[: place + bool(with_.args.get("recursive"))]


def readers(query: exp.Expr, cte: exp.CTE) -> list[exp.Table]:
    """The FROM items that read a WITH query."""
    lower = cte.alias.lower()
    named = (node for node in query.find_all(exp.Table) if node.name.lower() == lower)
    return [node for node in named if with_query(node) is cte]


def unbound_tables(tree: exp.Expression) -> Iterator[tuple[exp.Table, str]]:
    """The FROM items of a tree that read no WITH query, with the names they read."""
    for node in tree.find_all(exp.Table):
        name = table_name_of(node)
        if name is not None and with_query(node) is None:
            yield node, name


def base_table(node: exp.Table, tables: Tables) -> StreamTable | None:
    """The known table that a FROM item reads, unless a WITH query of that name hides it."""
    name = table_name_of(node)
    if name is None or (not node.args.get("db") and find_with_query(node, name) is not None):
        return None
    return tables(name)


# -- what stands in FROM


def from_items(select: exp.Select) -> Iterator[tuple[exp.Expr, exp.Join | None]]:
    """What a SELECT reads, in order, each with its JOIN if it has one."""
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this, None
    for join in select.args.get("joins") or []:
        yield join.this, join


def enclosing_select(node: exp.Expr) -> exp.Select | None:
    """The SELECT that a FROM item belongs to directly."""
    parent = node.parent
    if not isinstance(parent, (exp.From, exp.Join)):
        return None
    if parent.arg_key not in ("from_", "joins") or node.arg_key != "this":
        return None
    return parent.parent if isinstance(parent.parent, exp.Select) else None


def source_names(select: exp.Select) -> set[str]:
    """The names of a SELECT's own sources."""
    return {node.alias_or_name.lower() for node, _ in from_items(select)}


def inner_names(query: exp.Expr) -> set[str]:
    """The names of all sources within a query, at any depth."""
    return {node.alias_or_name.lower() for node in query.find_all(exp.Table, exp.Subquery)}


def names_outside(query: exp.Expr, outer: set[str]) -> Iterator[exp.Column]:
    """The columns within a query that are written with the name of a source around it."""
    seen = outer - inner_names(query) - {""}  # an unnamed subquery has no name to write
    for column in query.find_all(exp.Column) if seen else ():
        if column.table.lower() in seen:
            yield column


def given_names(query: exp.Expr) -> frozenset[str] | None:
    """The names of the columns that a query gives; None if they are not written in it."""
    if not isinstance(query, exp.Select):
        return None
    if any(item.is_star or item.find(exp.Columns) for item in query.expressions):
        return None
    return frozenset(item.alias_or_name.lower() for item in query.expressions)


# -- columns


class Named(Protocol):
    """A source as its columns are found: ``columns`` in lower case; None if they are not known."""

    @property
    def alias(self) -> str: ...
    @property
    def columns(self) -> Container[str] | None: ...


S = TypeVar("S", bound=Named)


def candidates(column: exp.Column, sources: Sequence[S]) -> list[S]:
    """The sources that a column can belong to. Without a name before it these are the ones that
    are known to have it, and the only one there is if it may have it."""
    if column.args.get("db") is not None or isinstance(column.this, exp.Star):
        return []
    name, qualifier = column.name.lower(), column.table.lower()
    named = [each for each in sources if not qualifier or each.alias.lower() == qualifier]
    if qualifier or len(sources) == 1:
        return [each for each in named if each.columns is None or name in each.columns]
    return [each for each in named if each.columns is not None and name in each.columns]


def is_named_by(column: exp.Column, *aliases: str) -> bool:
    """Whether a column stands alone, or behind one of these names."""
    table = column.table.lower()
    return not table or any(table == alias.lower() for alias in aliases)


@dataclass(frozen=True, eq=False)
class FromItem:
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
    def sources(self) -> list[FromItem]:
        return [
            FromItem(node, node.alias_or_name.lower(), self._columns(node), join)
            for node, join in from_items(self.select)
        ]

    def _columns(self, node: exp.Expr) -> frozenset[str] | None:
        alias = node.args.get("alias")
        renamed = alias is not None and bool(alias.args.get("columns"))
        if isinstance(node, exp.Values) and renamed:
            return _of_values(node)
        if not isinstance(node, exp.Table) or renamed or node.args.get("pivots"):
            return None
        table = base_table(node, self.tables)
        return None if table is None else frozenset(each.name.lower() for each in table.columns)

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

    def resolve(self, column: exp.Column) -> FromItem | None:
        """The source that surely has this column; None when in doubt."""
        is_shared = self.shared_names is None or column.name.lower() in self.shared_names
        found = [] if is_shared and not column.table else candidates(column, self.sources)
        return found[0] if len(found) == 1 else None


def _of_values(values: exp.Values) -> frozenset[str] | None:
    """The columns of a list of rows, if its alias names all of them."""
    names = [each.name.lower() for each in values.args["alias"].args["columns"]]
    widths = {len(row.expressions) or 1 for row in values.expressions}
    return frozenset(names) if widths == {len(names)} else None
