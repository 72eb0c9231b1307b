"""Reference tables that are joined below a grouping: group first, join when the view is read.

A view is its query, so it must follow a reference table whose rows change after the stream's rows
came. ``SELECT r.region, sum(s.v) FROM s JOIN r USING (k) GROUP BY r.region`` becomes

    SELECT region, sum(total) FROM
      (SELECT k, sum(v) AS total FROM s GROUP BY k) AS s JOIN r USING (k) GROUP BY r.region

1. The split of the query (partial, merge, final) says which keys and states the partial has.
2. **inner**: the stream alone, with the WHERE conjuncts that ask of the stream alone, grouped by
   all that joins, keys and other conditions need of its rows: columns, or the largest expressions
   over its columns (``date_trunc('day', ts)``); with the states of the partial.
3. **joined**: the inner groups in the place of the stream, joined and filtered as written, which
   are partials again: one for each group and combination of its partners.
4. The merge of the split over these, and its final as it is.

The rewritten query is split as any other: its grouping is the inner one, and the reference tables
are above it. What cannot be grouped first (an aggregate over columns of both sides, the first k
rows of a join) is ``JoinedBelow``: such a view is answered by its query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from sqlglot import exp

from tidemill.sql.decompose import MERGE_SOURCE, Decomposition
from tidemill.sql.decompose.blocks import AGGREGATE, DISTINCT
from tidemill.sql.decompose.nodes import named, nested
from tidemill.sql.decompose.plan import FOLD, sql_of
from tidemill.sql.maintain.lifting import conjuncts_of
from tidemill.sql.maintain.plan import REFERENCE
from tidemill.sql.scopes import candidates, from_items, inner_names, names_outside, readers

KEY = "tm_j"
_JOINED = "tm_joined"
Columns = tuple[tuple[str, str], ...]


class JoinedBelow(Exception):
    """Why the rows of a stream cannot be grouped before they are joined."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Item:
    """A FROM item: its node, the name that the query calls it by, its columns with their types."""

    node: exp.Expr
    alias: str
    typed: Columns

    @cached_property
    def columns(self) -> frozenset[str]:
        return frozenset(name.lower() for name, _ in self.typed)


def reads_references(node: exp.Expr) -> bool:
    return any(table.name.startswith(REFERENCE) for table in node.find_all(exp.Table))


def group_first(
    parts: Decomposition,
    is_stream: Callable[[exp.Table], bool],
    columns_of: Callable[[exp.Expr], Columns],
) -> exp.Expression:
    """The query whose split is ``parts``, with the stream grouped before it is joined.

    ``columns_of`` gives the columns of a FROM item."""
    if parts.kind not in (AGGREGATE, DISTINCT):
        raise JoinedBelow("the first rows of a join are wanted")
    partial = parts.partial.copy()
    items = [Item(node, node.alias_or_name, columns_of(node)) for node, _ in from_items(partial)]
    streams = [item for item in items if any(map(is_stream, item.node.find_all(exp.Table)))]
    if len(streams) != 1:
        raise JoinedBelow("the stream is read by a WITH query")
    (stream,) = streams
    if reads_references(stream.node):
        raise JoinedBelow("a subquery joins the stream, and what it gives is grouped")
    if not stream.alias:
        raise JoinedBelow("the subquery over the stream has no name")
    others = [item for item in items if item is not stream]
    return _Rewrite(parts, partial, stream, others).tree()


def with_inlined(partial: exp.Select, is_stream: Callable[[exp.Table], bool]) -> exp.Select:
    """The partial with WITH queries over the stream, each of which is read once, where they are
    read."""
    made = partial.copy()
    while True:
        with_ = made.args.get("with_")
        held = [
            cte
            for cte in (with_.expressions if with_ is not None else ())
            if any(map(is_stream, cte.this.find_all(exp.Table)))
        ]
        if with_ is None or not held:
            return made
        cte = held[-1]  # nothing before it reads it
        uses = readers(made, cte)
        if len(uses) != 1 or cte.args["alias"].args.get("columns"):
            raise JoinedBelow("the stream is read by a WITH query")
        alias = uses[0].args.get("alias") or exp.TableAlias(this=exp.to_identifier(cte.alias))
        uses[0].replace(exp.Subquery(this=cte.this.copy(), alias=alias.copy()))
        rest = [other for other in with_.expressions if other is not cte]
        with_.set("expressions", rest)
        if not rest:
            made.set("with_", None)


@dataclass
class _Rewrite:
    """``given`` are the expressions over the stream that are needed of its groups, by name."""

    parts: Decomposition
    partial: exp.Select
    stream: Item
    others: list[Item]
    given: dict[str, exp.Expression] = field(default_factory=dict)
    _known: dict[str, str] = field(default_factory=dict)

    def tree(self) -> exp.Expression:
        count = len(self.parts.keys)
        keys, states = self.partial.expressions[:count], self.partial.expressions[count:]
        for state in states:
            self._check_state(state)
        inner_where = self._take_conditions()
        for join in self.partial.args.get("joins") or []:
            self._need_join(join)
        keys = [named(self._outside(_bare(key)), key.alias_or_name) for key in keys]
        joined = self.partial
        joined.set("expressions", [*keys, *(self._state_column(state) for state in states)])
        joined.set("group", None)
        source = self.stream.node
        inner = self._inner(states, inner_where)  # holds a copy of the source
        name = exp.to_identifier(self.stream.alias, quoted=True)
        source.replace(exp.Subquery(this=inner, alias=exp.TableAlias(this=name)))
        return self._above(joined, states)

    # -- what is needed of the stream

    def _check_state(self, state: exp.Expression) -> None:
        if state.find(exp.Query) is not None or not self._is_of_stream(state):
            raise JoinedBelow(f"{sql_of(_bare(state))} is not of the stream alone")

    def _take_conditions(self) -> list[exp.Expression]:
        """Take the conjuncts of WHERE that ask of the stream alone; the others stay."""
        where = self.partial.args.get("where")
        inside: list[exp.Expression] = []
        outside: list[exp.Expression] = []
        for conjunct in conjuncts_of(where.this) if where is not None else ():
            if conjunct.find(exp.Query) is None and self._is_of_stream(conjunct):
                inside.append(conjunct.copy())
            else:
                outside.append(self._outside(conjunct))
        self.partial.set("where", None)
        if outside:
            self.partial.set("where", exp.Where(this=exp.and_(*outside)))
        return inside

    def _need_join(self, join: exp.Join) -> None:
        if join.method.upper() == "NATURAL":
            raise JoinedBelow("a NATURAL JOIN names no columns")
        for name in join.args.get("using") or []:
            if name.name.lower() in self.stream.columns:
                self._give(exp.column(name.name, quoted=True), name.name)
        if join.args.get("on") is not None:
            join.set("on", self._outside(join.args["on"]))
        self._check_lateral(join)

    def _check_lateral(self, join: exp.Join) -> None:
        if join.this is self.stream.node:
            return
        if join.find(exp.Lateral, exp.Unnest) is not None:
            raise JoinedBelow("a lateral join sees single rows")
        if any(names_outside(join.this, {self.stream.alias.lower()})):
            raise JoinedBelow("a lateral join sees single rows")

    def _outside(self, node: exp.Expression) -> exp.Expression:
        """An expression over the groups: its largest parts over the stream are columns there."""
        if node.find(exp.Column) is None:
            return node.copy()
        if node.find(exp.Query) is None and self._is_of_stream(node):
            bare = node.unnest()
            is_column = isinstance(bare, exp.Column)
            name = self._give(bare, bare.name if is_column else None)
            return exp.column(name, table=self.stream.alias, quoted=True)
        if isinstance(node, exp.Query):
            self._need_of_query(node)
            return node.copy()
        if isinstance(node, exp.Column):
            self._note_shared(node)
            return node.copy()
        made = node.copy()
        pairs = zip(list(node.iter_expressions()), list(made.iter_expressions()), strict=True)
        for old, new in pairs:
            if isinstance(old, exp.Expression):
                new.replace(self._outside(old))
        return made

    def _note_shared(self, node: exp.Column) -> None:
        """A column of another table, or one that USING made of both."""
        if not node.table and node.name.lower() in self.stream.columns:
            self._give(exp.column(node.name, quoted=True), node.name)

    def _need_of_query(self, query: exp.Query) -> None:
        """The columns of the stream that a subquery of an expression may name."""
        inner = inner_names(query)
        others = {name for i in self.others if i.alias.lower() in inner for name in i.columns}
        around = {id(found) for found in names_outside(query, {self.stream.alias.lower()})}
        for found in query.find_all(exp.Column):
            name = found.name.lower()
            is_ours = id(found) in around if found.table else name not in others
            if is_ours and name in self.stream.columns:
                self._give(exp.column(found.name, quoted=True), found.name)

    def _give(self, node: exp.Expr, name: str | None) -> str:
        """The name under which the groups give an expression."""
        assert isinstance(node, exp.Expression)
        form = f"column {name.lower()}" if name is not None else sql_of(node)
        if form not in self._known:
            made = f"{KEY}{len(self._known)}" if name is None else self._spelled(name)
            self._known[form] = made
            self.given[made] = node.copy()
        return self._known[form]

    def _spelled(self, name: str) -> str:
        return next(found for found, _ in self.stream.typed if found.lower() == name.lower())

    def _is_of_stream(self, node: exp.Expression) -> bool:
        """Whether all columns are the stream's, and nothing else in it might be."""
        if node.find(exp.Lambda) is not None:
            raise JoinedBelow("a lambda has names of its own")
        return all(self._is_own(found) for found in node.find_all(exp.Column))

    def _is_own(self, found: exp.Column) -> bool:
        owners = candidates(found, (self.stream, *self.others))
        if not owners and not found.table:
            raise JoinedBelow(f"{sql_of(found)} is no column of a table")
        # If several have it, USING made one of them, which is that of the left side.
        return self.stream in owners and (len(owners) == 1 or self._is_left)

    @property
    def _is_left(self) -> bool:
        return self.partial.args["from_"].this is self.stream.node

    # -- the three levels

    def _inner(self, states: list[exp.Expression], where: list[exp.Expression]) -> exp.Select:
        given = [named(node.copy(), name) for name, node in self.given.items()]
        if not given:
            given = [named(exp.Literal.number(1), f"{KEY}_all")]
        own = {item.lower() for item in self.given} & {state.alias.lower() for state in states}
        if own:
            raise JoinedBelow("a column has the name of a state")
        inner = exp.Select(
            expressions=[*given, *(self._kept_state(state) for state in states)],
            from_=exp.From(this=self.stream.node.copy()),
        )
        if where:
            inner.set("where", exp.Where(this=exp.and_(*where)))
        places = [exp.Literal.number(at) for at in range(1, len(given) + 1)]
        if states or self.parts.kind == AGGREGATE:
            inner.set("group", exp.Group(expressions=places))
        else:
            inner.set("distinct", exp.Distinct())
        return inner

    def _kept_state(self, state: exp.Expression) -> exp.Expression:
        """A state that the split of the inner grouping keeps as it is."""
        made = _bare(state).copy()
        made.meta[FOLD] = self.parts.folds[state.alias]
        return named(made, state.alias)

    def _state_column(self, state: exp.Expression) -> exp.Expression:
        column_ = exp.column(state.alias, table=self.stream.alias, quoted=True)
        return named(column_, state.alias)

    def _above(self, joined: exp.Select, states: list[exp.Expression]) -> exp.Expression:
        tree, source = self.parts.final.copy(), nested(joined, _JOINED)
        if self.parts.kind == AGGREGATE:
            rows: exp.Expression = joined
            if not self.parts.keys:
                rows = exp.union(joined, self._of_no_rows(states), distinct=False)
            merge = self.parts.merge.copy()
            (read,) = _readers(merge)
            read.replace(
                exp.Subquery(this=rows, alias=exp.TableAlias(this=exp.to_identifier(_JOINED)))
            )
            source = nested(merge, "tm_merged")
        for table in _readers(tree):
            made = source.copy()
            if table.alias:
                made.set("alias", table.args["alias"].copy())
            table.replace(made)
        return tree

    def _of_no_rows(self, states: list[exp.Expression]) -> exp.Select:
        """The states of no rows at all: a query without keys has one group in any case."""
        nothing = [
            named(exp.cast(exp.Null(), kind, dialect="duckdb"), name)
            for name, kind in self.stream.typed
        ]
        name = exp.to_identifier(self.stream.alias, quoted=True)
        rows = exp.Subquery(this=exp.Select(expressions=nothing), alias=exp.TableAlias(this=name))
        return exp.Select(
            expressions=[state.copy() for state in states],
            from_=exp.From(this=rows),
            where=exp.Where(this=exp.false()),
        )


def _bare(item: exp.Expression) -> exp.Expression:
    bare = item.unalias()
    assert isinstance(bare, exp.Expression)
    return bare


def _readers(tree: exp.Expression) -> list[exp.Table]:
    return [table for table in tree.find_all(exp.Table) if table.name == MERGE_SOURCE]
