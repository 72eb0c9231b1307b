"""Predicates: what a query surely asks of each table it reads, for indices and partition pruning.

``find_scans`` gives, for every reference to a streaming table, conjuncts ``column op constant``
such that leaving out all rows that fail them changes no answer. The argument, in steps:

1. A conjunct of WHERE rejects NULL, so an output row needs a row of the source that satisfies it.
   Rows that fail it can only make output rows that fail it, with or without outer joins: where
   their absence turns a match into NULLs, those NULLs fail as well. (Not so when a row's partner
   depends on other rows: ASOF and POSITIONAL joins, samples. There nothing is claimed.)
2. A conjunct of ON filters the sources whose unmatched rows that join does not keep.
3. What the outer query asks of a derived table, or of a WITH query that is read once, it asks of
   the column that is projected there plainly, if that SELECT neither groups nor limits; with
   window functions, only for columns by which all of them are partitioned.

Whatever is not understood claims nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from tidemill.sql.calls import SEQ, Tables
from tidemill.sql.constants import is_constant, is_repeatable_query
from tidemill.sql.names import find_cte, table_name_of
from tidemill.sql.scopes import Scope, Source, base_table, enclosing_select


@dataclass(frozen=True)
class Conjunct:
    """``column op values``: op is one of = < <= > >= in in_query.

    ``in`` has one value for each element; ``in_query`` has one value, a query that can be run by
    itself. Values are nodes of the tree: constants, perhaps with parameters and now().
    """

    column: str
    op: str
    values: tuple[exp.Expression, ...]
    claim: Claim


@dataclass(frozen=True, eq=False)
class Claim:
    """The condition of the query that implies a conjunct.

    ``one_type`` are the lists of operands, beside the column, that DuckDB brings to one type before
    it compares: an IN compares all of its elements in the type that holds them all, a BETWEEN both
    bounds, while the parts of an OR are compared each in its own.
    """

    condition: exp.Expr
    one_type: tuple[tuple[exp.Expression, ...], ...] = ()

    def asked_of(self, column: str) -> exp.Expression | None:
        """The condition on a column of that name; None if it needs other columns too."""
        found = [_written(node) for node in self.condition.find_all(exp.Column)]
        if len(set(found)) != 1:
            return None
        new = exp.column(column, quoted=True)
        swapped = self.condition.transform(
            lambda node: new.copy() if isinstance(node, exp.Column) else node
        )
        return exp.paren(swapped, copy=False)


def _written(column: exp.Column) -> str:
    return column.sql(dialect="duckdb").lower()


@dataclass(frozen=True, eq=False)
class ScanRequest:
    """One reference to a streaming table; ``node`` may be replaced by its scan.

    ``columns`` are the columns that suffice, ``_seq`` among them if it is used; None means all of
    the table's own columns.
    """

    node: exp.Table
    table: str
    alias: str
    conjuncts: tuple[Conjunct, ...]
    columns: frozenset[str] | None


def find_scans(query: exp.Expression, tables: Tables) -> list[ScanRequest]:
    """Every reference to a streaming table that ``tables`` knows, with what is asked of it."""
    finder = _Finder(query, tables)
    requests: list[ScanRequest] = []
    for node in query.find_all(exp.Table):
        table = base_table(node, tables)
        if table is None or table.time_column is None:
            continue
        names = {column.name.lower(): column.name for column in table.columns}
        requests.append(
            ScanRequest(
                node,
                table.name,
                node.alias_or_name,
                finder.conjuncts(node, names),
                finder.columns(node, names),
            )
        )
    return requests


@dataclass(frozen=True, eq=False)
class _Fact:
    """A conjunct on a column of a SELECT, and the sources for which it may be used."""

    column: exp.Column
    op: str
    values: tuple[exp.Expression, ...]
    claim: Claim
    sources: frozenset[int] | None


class _Finder:
    def __init__(self, query: exp.Expression, tables: Tables) -> None:
        self.query = query
        self.tables = tables
        self.scopes: dict[int, Scope] = {}
        self.facts: dict[int, list[_Fact]] = {}

    def scope(self, select: exp.Select) -> Scope:
        if id(select) not in self.scopes:
            self.scopes[id(select)] = Scope(select, self.tables)
        return self.scopes[id(select)]

    def conjuncts(self, node: exp.Table, names: dict[str, str]) -> tuple[Conjunct, ...]:
        return tuple(
            Conjunct(names[fact.column.name.lower()], fact.op, fact.values, fact.claim)
            for fact in self._facts_of_source(node)
            if fact.column.name.lower() in names
        )

    def _facts_of_source(self, node: exp.Expr) -> Iterator[_Fact]:
        select = enclosing_select(node)
        if select is None or node.args.get("pivots") or node.args.get("joins"):
            return
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            return
        scope = self.scope(select)
        for fact in self._facts_of_select(select):
            owner = scope.owner(fact.column)
            if owner is None or owner.node is not node:
                continue
            if fact.sources is None or id(node) in fact.sources:
                yield fact

    def _facts_of_select(self, select: exp.Select) -> list[_Fact]:
        known = self.facts.get(id(select))
        if known is None:
            self.facts[id(select)] = []  # a recursive reference sees nothing
            known = list(self._collect(select))
            self.facts[id(select)] = known
        return known

    def _collect(self, select: exp.Select) -> Iterator[_Fact]:
        scope = self.scope(select)
        if not scope.is_orderly:
            return
        where = select.args.get("where")
        if where is not None:
            yield from self._read(where.this, None)
        for index, source in enumerate(scope.sources):
            on = source.join.args.get("on") if source.join is not None else None
            if on is not None:
                yield from self._read(on, _filtered_by(source, scope.sources[:index]))
        yield from self._inherited(select, scope)

    def _read(self, condition: exp.Expr, sources: frozenset[int] | None) -> Iterator[_Fact]:
        if sources is not None and not sources:
            return
        for part in _conjuncts(condition):
            for column, op, values, claim in _comparisons(part, self.tables):
                yield _Fact(column, op, values, claim, sources)

    def _inherited(self, select: exp.Select, scope: Scope) -> Iterator[_Fact]:
        """What the query around asks of this SELECT's columns."""
        user = self._user(select)
        shape = _Shape(select, scope)
        if user is None or not shape.is_transparent:
            return
        for fact in self._facts_of_source(user):
            column = shape.projected(fact.column.name.lower())
            if column is not None and shape.keeps_partitions(column):
                yield _Fact(column, fact.op, fact.values, fact.claim, None)

    def _user(self, select: exp.Select) -> exp.Expr | None:
        """The FROM item through which alone this SELECT is read."""
        parent = select.parent
        if isinstance(parent, exp.Subquery) and not parent.args.get("with_"):
            return parent
        if not isinstance(parent, exp.CTE) or parent.args["alias"].args.get("columns"):
            return None
        with_ = parent.parent
        if not isinstance(with_, exp.With) or with_.args.get("recursive"):
            return None
        readers = [
            node
            for node in self.query.find_all(exp.Table)
            if not node.args.get("db")
            and (name := table_name_of(node)) is not None
            and name.lower() == parent.alias.lower()
            and find_cte(node, name) is parent
        ]
        return readers[0] if len(readers) == 1 else None

    def columns(self, node: exp.Table, names: dict[str, str]) -> frozenset[str] | None:
        """The table's columns that the SELECT around can need."""
        select = enclosing_select(node)
        alias = node.args.get("alias")
        if select is None or node.args.get("pivots") or (alias and alias.args.get("columns")):
            return None
        scope = self.scope(select)
        if scope.shared_names is None:
            return None
        own = node.alias_or_name.lower()
        used: set[str] = set()
        for part in select.walk():
            if isinstance(part, exp.Identifier):
                used.add(str(part.this).lower())
            elif _may_be_all(part, select, own, names):
                return None
        needed = {names[name] for name in used if name in names}
        return frozenset(needed | {SEQ}) if SEQ in used else frozenset(needed)


def _may_be_all(part: exp.Expr, select: exp.Select, alias: str, names: dict[str, str]) -> bool:
    """Whether a node may stand for every column of the source ``alias`` of this SELECT."""
    if isinstance(part, exp.Columns):
        return True
    if isinstance(part, exp.Column):  # SELECT t FROM t: the whole row as one value
        return part.name.lower() == alias and alias not in names
    if not isinstance(part, exp.Star) or isinstance(part.parent, exp.Count):
        return False
    column = part.parent
    other = isinstance(column, exp.Column) and column.table.lower() not in ("", alias)
    return not other and part.find_ancestor(exp.Select) is select


def _filtered_by(source: Source, before: list[Source]) -> frozenset[int]:
    """The sources of which a failing ON condition removes the row, rather than keeping it."""
    join = source.join
    assert join is not None
    side, kind = join.side.upper(), join.kind.upper()
    left = frozenset(id(other.node) for other in before)
    right = frozenset({id(source.node)})
    if side == "" and kind in ("", "INNER", "SEMI", "CROSS"):
        return left | right
    if (side == "LEFT" and kind in ("", "OUTER")) or (side == "" and kind == "ANTI"):
        return right
    if side == "RIGHT" and kind in ("", "OUTER"):
        return frozenset(id(other.node) for other in _since_comma(before))
    return frozenset()


def _since_comma(sources: list[Source]) -> list[Source]:
    """The operands of the joins since the last comma, which binds less than JOIN does."""
    for index in range(len(sources) - 1, 0, -1):
        join = sources[index].join
        if join is not None and not any(value for key, value in join.args.items() if key != "this"):
            return sources[index:]
    return sources


class _Shape:
    """How a SELECT's output columns come from its sources."""

    def __init__(self, select: exp.Select, scope: Scope) -> None:
        self.select = select
        self.scope = scope

    @cached_property
    def is_transparent(self) -> bool:
        """Whether a condition on an output column may be asked of the rows below."""
        args = self.select.args
        if any(
            args.get(key) for key in ("group", "having", "limit", "offset", "sample", "laterals")
        ):
            return False
        distinct = args.get("distinct")
        if distinct is not None and distinct.args.get("on") is not None:
            return False
        if any(args.get(key) for key in ("pivots", "kind", "windows", "connect", "match")):
            return False
        return not any(_may_gather(part) for part in self.select.expressions)

    def projected(self, name: str) -> exp.Column | None:
        """The column that alone is projected under this name, without change."""
        found: list[exp.Expr] = []
        stars = 0
        for part in self.select.expressions:
            if isinstance(part, exp.Star) or isinstance(part.this, exp.Star):
                stars += 1
                if part.args.get("except_") or part.args.get("replace") or part.args.get("rename"):
                    return None
            elif part.alias_or_name.lower() == name:
                found.append(part)
        if stars:
            plain = stars == 1 and not found and len(self.scope.sources) == 1
            if not plain or isinstance(self.select.expressions[0], exp.Columns):
                return None
            return exp.Column(this=exp.to_identifier(name, quoted=True))
        column = found[0].unalias() if len(found) == 1 else None
        return column if isinstance(column, exp.Column) else None

    def keeps_partitions(self, column: exp.Column) -> bool:
        """Whether every window function is partitioned by the column."""
        return all(
            any(
                isinstance(part, exp.Column) and part.name.lower() == column.name.lower()
                for part in window.args.get("partition_by") or []
            )
            and not window.args.get("alias")
            for window in self._windows
        )

    @cached_property
    def _windows(self) -> list[exp.Window]:
        parts: list[exp.Expr] = [*self.select.expressions]
        parts += [
            self.select.args[key] for key in ("qualify", "order") if self.select.args.get(key)
        ]
        return [window for part in parts for window in part.find_all(exp.Window)]


_SCALARS = frozenset(
    {"time_bucket", "to_microseconds", "make_timestamp", "make_timestamptz", "epoch_us", "now"}
)
_SCALAR_NODES = (
    exp.Cast,
    exp.TryCast,
    exp.Case,
    exp.If,
    exp.Coalesce,
    exp.Connector,
    exp.Abs,
    exp.Lower,
    exp.Upper,
    exp.TimestampTrunc,
    exp.DateTrunc,
    exp.Extract,
    exp.Concat,
    exp.Predicate,
)


def _may_gather(part: exp.Expr) -> bool:
    """Whether a projection may make one row of many, or many of one: any function unknown here."""
    for node in part.walk():
        if isinstance(node, (exp.Query, exp.Columns)):
            return True
        if isinstance(node.parent, exp.Window) and node.arg_key == "this":
            continue
        if isinstance(node, exp.Anonymous):
            if node.name.lower() not in _SCALARS:
                return True
        elif isinstance(node, exp.Func) and not isinstance(node, _SCALAR_NODES):
            return True
    return False


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    """The parts of nested ANDs, from left to right."""
    stack = [condition]
    while stack:
        part = stack.pop()
        if isinstance(part, exp.Paren):
            stack.append(part.this)
        elif isinstance(part, exp.And):
            stack += [part.expression, part.this]
        else:
            yield part


_OPS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}

_Comparison = tuple[exp.Column, str, tuple[exp.Expression, ...], Claim]


def _comparisons(part: exp.Expr, tables: Tables) -> Iterator[_Comparison]:
    """The comparisons of a column with constants that one conjunct implies."""
    if type(part) in _OPS:
        yield from _compared(part)
    elif isinstance(part, exp.Between):
        column = _column(part.this)
        if column is not None and not part.args.get("symmetric"):
            low, high = part.args["low"], part.args["high"]
            claim = Claim(part, ((low, high),))
            for op, bound in ((">=", low), ("<=", high)):
                if is_constant(bound):
                    yield column, op, (bound,), claim
    elif isinstance(part, exp.In):
        yield from _listed(part, tables)
    elif isinstance(part, exp.Or):
        yield from _alternatives(part, tables)


def _compared(part: exp.Expr) -> Iterator[_Comparison]:
    op, flipped = _OPS[type(part)]
    left, right = part.this, part.args["expression"]
    if (column := _column(left)) is not None and is_constant(right):
        yield column, op, (right,), Claim(part)
    elif (column := _column(right)) is not None and is_constant(left):
        yield column, flipped, (left,), Claim(part)


def _listed(part: exp.In, tables: Tables) -> Iterator[_Comparison]:
    column = _column(part.this)
    if column is None:
        return
    query = part.args.get("query")
    if query is not None:
        body = query.unnest() if isinstance(query, exp.Subquery) else query
        if isinstance(body, exp.Expression) and is_repeatable_query(body, tables):
            yield column, "in_query", (body,), Claim(part)
        return
    values = part.expressions
    if values and not part.args.get("unnest") and all(map(is_constant, values)):
        yield column, "in", tuple(values), Claim(part, (tuple(values),))


def _alternatives(part: exp.Or, tables: Tables) -> Iterator[_Comparison]:
    """``a = 1 OR a IN (2, 3)`` asks for the rows of ``a`` in 1, 2 and 3."""
    values: list[exp.Expression] = []
    one_type: list[tuple[exp.Expression, ...]] = []
    column: exp.Column | None = None
    for branch in _disjuncts(part):
        found = list(_comparisons(branch, tables)) if not isinstance(branch, exp.Or) else []
        if len(found) != 1 or found[0][1] not in ("=", "in"):
            return
        if column is not None and column != found[0][0]:
            return
        column = found[0][0]
        values += found[0][2]
        one_type += found[0][3].one_type
    if column is not None:
        yield column, "in", tuple(values), Claim(part, tuple(one_type))


def _disjuncts(condition: exp.Expr) -> Iterable[exp.Expr]:
    stack = [condition]
    while stack:
        part = stack.pop()
        if isinstance(part, exp.Paren):
            stack.append(part.this)
        elif isinstance(part, exp.Or):
            stack += [part.expression, part.this]
        else:
            yield part


def _column(node: exp.Expr) -> exp.Column | None:
    while isinstance(node, exp.Paren):
        node = node.this
    return node if isinstance(node, exp.Column) else None
