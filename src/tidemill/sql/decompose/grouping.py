"""Splitting an aggregate block: keys and states below, everything over them above.

1. The keys are the expressions of GROUP BY: written out, by position, by alias, or ALL.
2. In the select list, HAVING, QUALIFY and ORDER BY, each aggregate becomes its value over merged
   states and each expression that is a key becomes the key's column; no other column may be left.
3. partial: the block's FROM and WHERE, with keys and states as its select list;
   merge: the merged states by key; final: the rewritten select list, with HAVING as WHERE.

A name can be a column or an alias, and without the tables' columns that is not always known.
DuckDB takes the column first in WHERE, GROUP BY and HAVING; where both readings would make a valid
query, it is not split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from sqlglot import exp

from tidemill.sql.decompose.calls import aggregate_at, find_aggregates
from tidemill.sql.decompose.names import is_star, output_names
from tidemill.sql.decompose.nodes import call, column, named, nested, own_nodes, source
from tidemill.sql.decompose.plan import FOLD, Fold, Refused, sql_of
from tidemill.sql.decompose.rules import split_aggregate
from tidemill.sql.decompose.states import States
from tidemill.sql.scopes import names_outside, source_names


@dataclass(frozen=True)
class Split:
    """A block as three SELECTs; ``final`` stands in the block's place."""

    partial: exp.Select
    merge: exp.Select
    final: exp.Select
    keys: tuple[str, ...]
    states: tuple[str, ...]
    growing: tuple[str, ...] = ()
    hidden: Mapping[str, str] = field(default_factory=dict)
    folds: Mapping[str, Fold] = field(default_factory=dict)


def split_grouping(
    block: exp.Select,
    key_prefix: str,
    state_prefix: str,
    spelling: Mapping[str, str],
    hidden: Mapping[str, exp.Expression],
) -> Split:
    above = _Above(block, key_prefix, state_prefix, spelling, hidden)
    final = above.select()
    if not above.keys and not above.states.all:
        above.states.add(call("count", exp.Star()), lambda state: call("sum", state))
    places = above.hide()
    return Split(
        _partial(block, above),
        _merge(above),
        final,
        tuple(above.keys),
        tuple(state.name for state in above.states.all),
        tuple(above.states.growing),
        places,
        {state.name: state.fold for state in above.states.all},
    )


def _partial(block: exp.Select, above: _Above) -> exp.Select:
    select = exp.Select(
        expressions=[
            *(named(key.copy(), name) for name, key in above.keys.items()),
            *(named(state.partial, state.name) for state in above.states.all),
        ],
        **{
            name: block.args[name].copy()
            for name in ("from_", "where")
            if block.args.get(name) is not None
        },
    )
    if block.args.get("joins"):
        select.set("joins", [join.copy() for join in block.args["joins"]])
    if above.keys:
        places = [exp.Literal.number(at) for at in range(1, len(above.keys) + 1)]
        select.set("group", exp.Group(expressions=places))
    return select


def _merge(above: _Above) -> exp.Select:
    states = above.states.all
    select = exp.Select(
        expressions=[
            *(column(name) for name in above.keys),
            *(named(state.merge(column(state.name)), state.name) for state in states),
        ],
        from_=source(),
    )
    if above.keys:
        select.set("group", exp.Group(expressions=[column(name) for name in above.keys]))
    if not any(state.tidy for state in states):
        return select
    tidied = [
        named(state.tidy(column(state.name)), state.name) if state.tidy else column(state.name)
        for state in states
    ]
    return exp.Select(
        expressions=[*(column(name) for name in above.keys), *tidied],
        from_=exp.From(this=nested(select)),
    )


@dataclass
class _Above:
    """The part of a block above its grouping, as it is rewritten; notes the states it needs."""

    block: exp.Select
    key_prefix: str
    state_prefix: str
    spelling: Mapping[str, str]
    hidden: Mapping[str, exp.Expression]
    keys: dict[str, exp.Expression] = field(default_factory=dict)
    _forms: dict[str, str] = field(default_factory=dict)
    _open: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.states = States(self.state_prefix)
        self.items: list[exp.Expression] = self.block.expressions
        if any(is_star(item) or item.find(exp.Columns) for item in self.items):
            raise Refused("a star beside aggregates hides which columns are grouped")
        self.names = output_names(self.block, self.spelling)
        self.aliases = {
            item.alias.lower(): at
            for at, item in reversed(list(enumerate(self.items)))
            if isinstance(item, exp.Alias)
        }
        self._form = _forms_of(self.block, *self.hidden.values())
        if self.block.args.get("where") is not None:
            self._check_names(self.block.args["where"], "WHERE")
        for key in self._group_keys():
            self._check_names(key, "GROUP BY")
            form = self._form(key)
            if form not in self._forms:
                name = f"{self.key_prefix}{len(self.keys)}"
                self.keys[name] = key
                self._forms[form] = name
        self._key_types = {type(key) for key in self.keys.values()} - {exp.Literal}

    def select(self) -> exp.Select:
        """The select list and all that follows grouping, over the merged states."""
        parts = [self._rewritten(_bare(item)) for item in self.items]
        select = exp.Select(
            expressions=[named(part, name) for part, name in zip(parts, self.names, strict=True)],
            from_=source(),
        )
        args = self.block.args
        if args.get("having") is not None:
            select.set("where", exp.Where(this=self._rewritten(args["having"].this)))
        if args.get("qualify") is not None:
            select.set("qualify", exp.Qualify(this=self._rewritten(args["qualify"].this)))
        if args.get("windows"):
            select.set("windows", [self._rewritten(window) for window in args["windows"]])
        if args.get("distinct") is not None:
            if args["distinct"].args.get("on"):
                raise Refused("DISTINCT ON takes one of several rows as they come")
            select.set("distinct", exp.Distinct())
        if args.get("order") is not None:
            order = [self._ordered(part) for part in args["order"].expressions]
            select.set("order", exp.Order(expressions=order))
        for name in ("limit", "offset"):
            if args.get(name) is not None:
                select.set(name, args[name].copy())
        return select

    # Keys.

    def hide(self) -> dict[str, str]:
        """Add the keys that the final does not see; answers the column of each."""
        places = {}
        for name, key in self.hidden.items():
            form = self._form(key)
            if form not in self._forms:
                self.keys[name] = key
                self._forms[form] = name
            places[name] = self._forms[form]
        return places

    def _group_keys(self) -> list[exp.Expression]:
        group = self.block.args.get("group")
        if group is None:
            return []
        if group.args.get("all"):
            return [_bare(item) for item in self.items if not _has_aggregate(item)]
        return [self._group_key(part) for part in group.expressions]

    def _group_key(self, part: exp.Expression) -> exp.Expression:
        part = _bare(part)
        if isinstance(part, exp.Tuple):
            raise Refused("GROUP BY with lists of columns is not split")
        if isinstance(part, exp.Literal) and part.is_int:
            at = int(part.name) - 1
            if not 0 <= at < len(self.items):
                raise Refused(f"GROUP BY {part.name} is out of range")
            return _bare(self.items[at])
        at_alias = self._alias_of(part)
        if at_alias is None:
            return part
        item = _bare(self.items[at_alias])
        if _has_aggregate(item) or _uses(item, part.name):
            return part  # an alias of this cannot be meant
        others = [
            self._form(_bare(other))
            for other in self.block.args["group"].expressions
            if other is not part
        ]
        found = [node for node in own_nodes(item) if isinstance(node, exp.Column)]
        if all(self._form(node) in others for node in found) and self._form(item) not in others:
            raise Refused(f'"{part.name}" in GROUP BY may be a column or an alias')
        return item

    def _alias_of(self, node: exp.Expression) -> int | None:
        """The select item that a bare name may stand for."""
        if not isinstance(node, exp.Column) or node.table:
            return None
        return self.aliases.get(node.name.lower())

    def _check_names(self, node: exp.Expression, place: str) -> None:
        """Below the grouping there are no aliases: a name that may be one cannot be kept."""
        for found in own_nodes(node):
            at = self._alias_of(found) if isinstance(found, exp.Column) else None
            if at is not None and not _uses(self.items[at], found.name):
                raise Refused(f'"{found.name}" in {place} may be a column or an alias')

    # What is above.

    def _ordered(self, part: exp.Expression) -> exp.Expression:
        """ORDER BY takes a bare name as an alias first."""
        value = part.this
        again = part.copy()
        at = self._alias_of(value)
        if at is not None:
            if [_alias(item) for item in self.items].count(value.name.lower()) > 1:
                raise Refused(f'"{value.name}" is the alias of several columns')
            again.set("this", exp.Literal.number(at + 1))
        elif not isinstance(value, (exp.Literal, exp.Var)):  # neither a place nor ALL
            again.set("this", self._rewritten(value))
        return again

    def _rewritten(self, node: exp.Expression) -> exp.Expression:
        """Aggregates as values of states, keys as their columns, aliases as what they name."""
        return node.copy().transform(self._replaced, copy=False)

    def _replaced(self, node: exp.Expression) -> exp.Expression:
        fold = node.meta.get(FOLD) if node._meta else None
        if fold is not None:
            return self.states.add(node.copy(), fold.merge, fold.tidy, fold.grows)
        aggregate = aggregate_at(node)
        if aggregate is not None:
            if any(next(find_aggregates(part), None) for part in aggregate.arguments):
                raise Refused("an aggregate of an aggregate is no valid query")
            self._check_names(aggregate.node, aggregate.name)
            return split_aggregate(aggregate, self.states)
        if type(node) in self._key_types and (name := self._forms.get(self._form(node))):
            return column(name)
        if isinstance(node, exp.Query):
            self._check_closed(node)
            return node.copy()
        if isinstance(node, exp.Column):
            return self._named_by_alias(node)
        return node

    def _named_by_alias(self, node: exp.Column) -> exp.Expression:
        at = self._alias_of(node)
        if at is None or at in self._open:
            raise Refused(f"column {sql_of(node)} is neither grouped nor aggregated")
        self._open.add(at)
        try:
            value = self._rewritten(_bare(self.items[at]))
        finally:
            self._open.discard(at)
        return exp.Paren(this=value)

    def _check_closed(self, query: exp.Query) -> None:
        """A subquery above the grouping may not name the block's own tables."""
        for node in names_outside(query, source_names(self.block)):
            raise Refused(f"a subquery beside aggregates uses {sql_of(node)}")


def _bare(item: exp.Expression) -> exp.Expression:
    """A select item without its alias and its outer parentheses."""
    bare = item.this if isinstance(item, exp.Alias) else item
    while isinstance(bare, exp.Paren):  # those of a subquery are its own
        bare = bare.this
    assert isinstance(bare, exp.Expression)
    return bare


def _alias(item: exp.Expression) -> str:
    return item.alias.lower() if isinstance(item, exp.Alias) else ""


def _has_aggregate(node: exp.Expression) -> bool:
    return next(find_aggregates(node), None) is not None


def _uses(node: exp.Expression, name: str) -> bool:
    return any(found.name.lower() == name.lower() for found in node.find_all(exp.Column))


def _forms_of(*parts: exp.Expression) -> Callable[[exp.Expression], str]:
    """How expressions are compared: as text, without case, and without the tables' names where
    a column's name alone says which one is meant."""
    tables: dict[str, set[str]] = {}
    for node in chain.from_iterable(part.find_all(exp.Column) for part in parts):
        if node.table:
            tables.setdefault(node.name.lower(), set()).add(node.table.lower())
    clear = {name for name, found in tables.items() if len(found) == 1}

    def form(node: exp.Expression) -> str:
        again = node.copy()
        for found in again.find_all(exp.Column):
            if found.name.lower() in clear:
                for part in ("table", "db", "catalog"):
                    found.set(part, None)
        for identifier in again.find_all(exp.Identifier):
            identifier.set("this", str(identifier.this).lower())
            identifier.set("quoted", False)
        return sql_of(again)

    return form
