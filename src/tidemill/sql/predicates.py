"""Predicates: what a query surely asks of each table it reads, for indices and partition pruning.

``find_scans`` gives, for every reference to a streaming table, conditions such that leaving out
all rows that fail one of them changes no answer: conjuncts ``column op constant``, alternatives
(conjuncts of which one branch or another holds), and joins ``column = other.column`` with a source
that can be read by itself, first. The argument, in steps:

1. A conjunct of WHERE rejects NULL, so an output row needs a row of the source that satisfies it.
   Rows that fail it can only make output rows that fail it, with or without outer joins: where
   their absence turns a match into NULLs, those NULLs fail as well. (Not so when a row's partner
   depends on other rows: ASOF and POSITIONAL joins, samples. There nothing is claimed.)
2. A conjunct of ON filters the sources whose unmatched rows that join does not keep.
3. What the outer query asks of a derived table, or of a WITH query that is read once, it asks of
   the column that is projected there plainly, if that SELECT neither groups nor limits; with
   window functions, only for columns by which all of them are partitioned.
4. ``a = 1 OR b = 2`` holds if one of its branches does, and a branch only if all that is read out
   of it does; so rows that fail in every branch can go, provided each branch asks something of the
   source. As every comparison rejects NULL, so does the whole.
5. ``column = other.column`` asks for a value that ``other`` has: for those rows the same is true as
   for ``column IN (list)``, whichever of the two sources comes first.

Whatever is not understood claims nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from tidemill.sql.calls import Tables
from tidemill.sql.comparisons import (
    Claim,
    column_of,
    comparisons,
    parts_of_and,
    parts_of_or,
)
from tidemill.sql.comparisons import Conjunct as Conjunct
from tidemill.sql.constants import is_repeatable
from tidemill.sql.scopes import FromItem, Scope, base_table, enclosing_select, readers
from tidemill.sql.shapes import Shape
from tidemill.types import SEQ


@dataclass(frozen=True)
class Branch:
    """One branch of an OR: all of this holds there."""

    conjuncts: tuple[Conjunct, ...]
    alternatives: tuple[Alternatives, ...] = ()

    @property
    def leaves(self) -> Iterator[Conjunct]:
        """Its conjuncts, and those of its own alternatives."""
        yield from self.conjuncts
        for inner in self.alternatives:
            yield from inner.leaves


@dataclass(frozen=True)
class Alternatives:
    """An OR: at least one branch holds."""

    branches: tuple[Branch, ...]

    @property
    def leaves(self) -> Iterator[Conjunct]:
        for branch in self.branches:
            yield from branch.leaves


@dataclass(frozen=True, eq=False)
class Join:
    """``column`` of a scan equals column ``key`` of another source of a SELECT around it.

    ``conditions`` are comparisons with constants that rows of the other source must satisfy to
    reach the answer."""

    column: str
    partner: exp.Expr
    key: str
    conditions: tuple[exp.Expr, ...]


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
    alternatives: tuple[Alternatives, ...] = ()
    joins: tuple[Join, ...] = ()

    @property
    def leaves(self) -> Iterator[Conjunct]:
        """All conjuncts, those of alternatives included."""
        yield from Branch(self.conjuncts, self.alternatives).leaves


def find_scans(query: exp.Expression, tables: Tables) -> list[ScanRequest]:
    """Every reference to a streaming table that ``tables`` knows, with what is asked of it."""
    finder = _Finder(query, tables)
    requests: list[ScanRequest] = []
    for node in query.find_all(exp.Table):
        table = base_table(node, tables)
        if table is None or table.time_column is None:
            continue
        names = {column.name.lower(): column.name for column in table.columns}
        facts = list(finder.facts_of_source(node))
        asked = finder.asked(facts, names)
        requests.append(
            ScanRequest(
                node,
                table.name,
                node.alias_or_name,
                asked.conjuncts,
                finder.columns(node, names),
                asked.alternatives,
                tuple(finder.joins(facts, names)),
            )
        )
    return requests


@dataclass(frozen=True, eq=False)
class _Fact:
    """A conjunct on a column of a SELECT, and the sources for which it may be used; with a
    ``partner``, equality with the column ``key`` of another source of a SELECT."""

    column: exp.Column
    op: str
    values: tuple[exp.Expression, ...]
    claim: Claim
    sources: frozenset[int] | None
    partner: FromItem | None = None
    key: str = ""
    conditions: tuple[exp.Expr, ...] = ()

    def mapped(self, change: Callable[[_Fact], _Fact | None]) -> _Fact | None:
        return change(self)


@dataclass(frozen=True, eq=False)
class _Either:
    """One branch of an OR, or another: in each, all facts hold."""

    branches: tuple[tuple[_Fact | _Either, ...], ...]
    sources: frozenset[int] | None

    def mapped(self, change: Callable[[_Fact], _Fact | None]) -> _Either | None:
        """The same of changed facts. A branch may lose some of its facts; if it loses all, the
        other branches say nothing either."""
        branches = []
        for branch in self.branches:
            kept = [new for fact in branch if (new := fact.mapped(change)) is not None]
            if not kept:
                return None
            branches.append(tuple(kept))
        return _Either(tuple(branches), None)


class _Finder:
    def __init__(self, query: exp.Expression, tables: Tables) -> None:
        self.query = query
        self.tables = tables
        self.scopes: dict[int, Scope] = {}
        self.facts: dict[int, list[_Fact | _Either]] = {}

    def scope(self, select: exp.Select) -> Scope:
        if id(select) not in self.scopes:
            self.scopes[id(select)] = Scope(select, self.tables)
        return self.scopes[id(select)]

    def asked(self, facts: Iterable[_Fact | _Either], names: dict[str, str]) -> Branch:
        """The conjuncts and alternatives of a scan."""
        own = [fact for fact in facts if isinstance(fact, _Either) or not fact.partner]
        return _branch(own, names) or Branch(())

    def joins(self, facts: Iterable[_Fact | _Either], names: dict[str, str]) -> Iterator[Join]:
        for fact in facts:
            if isinstance(fact, _Fact) and fact.partner and fact.column.name.lower() in names:
                column = names[fact.column.name.lower()]
                yield Join(column, fact.partner.node, fact.key, fact.conditions)

    def facts_of_source(self, node: exp.Expr) -> Iterator[_Fact | _Either]:
        select = enclosing_select(node)
        if select is None or node.args.get("pivots") or node.args.get("joins"):
            return
        alias = node.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            return
        scope = self.scope(select)

        def own(fact: _Fact) -> _Fact | None:
            owner = scope.resolve(fact.column)
            return fact if owner is not None and owner.node is node else None

        for fact in self._facts_of_select(select):
            if fact.sources is None or id(node) in fact.sources:
                found = fact.mapped(own)
                if found is not None:
                    yield found

    def _facts_of_select(self, select: exp.Select) -> list[_Fact | _Either]:
        known = self.facts.get(id(select))
        if known is None:
            self.facts[id(select)] = []  # a recursive reference sees nothing
            known = list(self._collect(select))
            self.facts[id(select)] = known
        return known

    def _collect(self, select: exp.Select) -> Iterator[_Fact | _Either]:
        scope = self.scope(select)
        if not scope.is_orderly:
            return
        where = select.args.get("where")
        if where is not None:
            yield from self._read(where.this, None, scope)
        for index, source in enumerate(scope.sources):
            if source.join is None:
                continue
            sources = _filtered_by(source, scope.sources[:index])
            on = source.join.args.get("on")
            if on is not None and sources:
                yield from self._read(on, sources, scope)
            if sources:
                yield from self._read_using(source, index, sources, scope)
        yield from self._inherited(select, scope)

    def _read(
        self, condition: exp.Expr, sources: frozenset[int] | None, scope: Scope
    ) -> Iterator[_Fact | _Either]:
        for part in parts_of_and(condition):
            found = list(self._compared(part, sources))
            yield from found
            if isinstance(part, exp.EQ) and not found:
                left, right = column_of(part.this), column_of(part.expression)
                if left is not None and right is not None:
                    yield from self._equal(left, right, part, sources, scope)

    def _compared(
        self, part: exp.Expr, sources: frozenset[int] | None
    ) -> Iterator[_Fact | _Either]:
        """What a condition says of columns and constants."""
        found = [_Fact(*told, sources) for told in comparisons(part, self.tables)]
        if found or not isinstance(part, exp.Or):
            yield from found
            return
        branches = [
            tuple(f for each in parts_of_and(branch) for f in self._compared(each, None))
            for branch in parts_of_or(part)
        ]
        if all(branches):
            yield _Either(tuple(branches), sources)

    def _equal(
        self,
        left: exp.Column,
        right: exp.Column,
        condition: exp.Expr,
        sources: frozenset[int] | None,
        scope: Scope,
    ) -> Iterator[_Fact]:
        """Two columns are equal: each has a value that the other one's source has."""
        for own, other in ((left, right), (right, left)):
            partner = scope.resolve(other)
            if partner is not None:
                conditions = tuple(self._conditions_on(partner, scope))
                claim = Claim(condition)
                yield _Fact(own, "=", (other,), claim, sources, partner, other.name, conditions)

    def _read_using(
        self, source: FromItem, index: int, sources: frozenset[int], scope: Scope
    ) -> Iterator[_Fact]:
        """USING compares a column with the one on the left that has its name, if just one may."""
        assert source.join is not None
        for name in source.join.args.get("using") or []:
            lower = name.name.lower()
            having = [
                left
                for left in scope.sources[:index]
                if left.columns is None or lower in left.columns
            ]
            if len(having) == 1 and having[0].alias and source.alias:
                left, right = (
                    exp.column(name.name, table=side.alias, quoted=True)
                    for side in (having[0], source)
                )
                yield from self._equal(left, right, source.join, sources, scope)

    def _conditions_on(self, partner: FromItem, scope: Scope) -> Iterator[exp.Expr]:
        """Comparisons of a source's columns with constants that its rows must satisfy."""
        where = scope.select.args.get("where")
        on = partner.join.args.get("on") if partner.join is not None else None
        index = scope.sources.index(partner)
        given = [] if where is None else [where.this]
        if on is not None and id(partner.node) in _filtered_by(partner, scope.sources[:index]):
            given.append(on)
        for part in (each for condition in given for each in parts_of_and(condition)):
            is_own = all(scope.resolve(column) is partner for column in part.find_all(exp.Column))
            if is_own and is_repeatable(part) and any(comparisons(part, self.tables)):
                yield part

    def _inherited(self, select: exp.Select, scope: Scope) -> Iterator[_Fact | _Either]:
        """What the query around asks of this SELECT's columns."""
        user = self._user(select)
        shape = Shape(select, scope)
        if user is None or not shape.is_transparent:
            return

        def below(fact: _Fact) -> _Fact | None:
            column = shape.projected(fact.column.name.lower())
            if column is None or not shape.keeps_partitions(column):
                return None
            return replace(fact, column=column, sources=None)

        for fact in self.facts_of_source(user):
            found = fact.mapped(below)
            if found is not None:
                yield found

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
        found = readers(self.query, parent)
        return found[0] if len(found) == 1 else None

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
    if isinstance(part, (exp.Columns, exp.PositionalColumn)):
        return True
    if isinstance(part, exp.Column):  # SELECT t FROM t: the whole row as one value
        return part.name.lower() == alias and alias not in names
    if not isinstance(part, exp.Star) or isinstance(part.parent, exp.Count):
        return False
    column = part.parent
    other = isinstance(column, exp.Column) and column.table.lower() not in ("", alias)
    return not other and part.find_ancestor(exp.Select) is select


def _filtered_by(source: FromItem, before: list[FromItem]) -> frozenset[int]:
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


def _since_comma(sources: list[FromItem]) -> list[FromItem]:
    """The operands of the joins since the last comma, which binds less than JOIN does."""
    for index in range(len(sources) - 1, 0, -1):
        join = sources[index].join
        if join is not None and not any(value for key, value in join.args.items() if key != "this"):
            return sources[index:]
    return sources


def _branch(facts: Sequence[_Fact | _Either], names: dict[str, str]) -> Branch | None:
    """Facts about a scan's own columns; None if there are none."""
    conjuncts: list[Conjunct] = []
    alternatives: list[Alternatives] = []
    for fact in facts:
        if isinstance(fact, _Either):
            branches = [_branch(branch, names) for branch in fact.branches]
            known = tuple(branch for branch in branches if branch is not None)
            if len(known) == len(branches):
                alternatives.append(Alternatives(known))
        elif fact.column.name.lower() in names:
            name = names[fact.column.name.lower()]
            conjuncts.append(Conjunct(name, fact.op, fact.values, fact.claim))
    found = Branch(tuple(conjuncts), tuple(alternatives))
    return found if conjuncts or alternatives else None
