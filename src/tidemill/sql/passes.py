"""Passes: the steps by which a query becomes plain SQL, each a function from a state to a state.

The idea is that of sqlglot's optimizer with its ``RULES``: what happens to a query is a tuple of
functions, and the tuple is the place to read in which order, and why. A pass does one thing. It may
change the tree of the state that it is given, which is the caller's own copy; what it finds goes
into the state that it returns.

Here are the passes that need nothing but SQL. Who uses which, in which order:

- ``federation.passes``: queries that are answered once;
- ``sql.maintain.passes``: continuous views;
- ``views.kept.passes``: kept queries.

``tests/fixtures/passes`` has pairs of SQL for every pass: a statement, and what the pass makes of
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from sqlglot import exp

from tidemill.sql import hidden, lists, now, prev, travel, windows
from tidemill.sql.calls import StreamTable, Tables
from tidemill.sql.params import Params, placeholder_key
from tidemill.sql.windows import Bound


@dataclass(frozen=True, eq=False)
class SeqTable:
    """A table that gives ``_seq`` beside its own columns, since the query asks for it."""

    node: exp.Table
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class QueryState:
    """A query between two passes: its tree, who knows its tables, and what was found so far."""

    tree: exp.Expression
    find: Tables  # tables with rows of their own, by name
    params: Params = None  # values, where they are known already
    moments: Mapping[int, exp.Expression] = field(default_factory=dict)  # by node: AS OF
    bounds: tuple[Bound, ...] = ()  # parameters of windows
    keys: tuple[str, ...] = ()  # the caller's parameters, and
    names: tuple[str, ...] = ()  # what they are called in the tree
    uses_now: bool = False
    seq_tables: tuple[SeqTable, ...] = ()

    def find_columns(self, name: str) -> StreamTable | None:
        """A table whose columns have known types."""
        return self.find(name)


State = TypeVar("State", bound=QueryState)
Pass = Callable[[State], State]
Kind = type[exp.Expr]


def about(*kinds: Kind) -> Callable[[Pass[State]], Pass[State]]:
    """Declares that a pass does nothing where a tree has no node of these kinds below the query
    itself: it is left out there. Most queries have none of what most passes are about."""

    def declared(function: Pass[State]) -> Pass[State]:
        _ABOUT[function] = frozenset(kinds)
        return function

    return declared


_ABOUT: dict[Callable[..., object], frozenset[Kind]] = {}


def run_passes(passes: Iterable[Pass[State]], state: State) -> State:
    """The state after all passes, in their order."""
    kinds: frozenset[Kind] | None = None  # of the tree, as long as no pass has changed it
    for each in passes:
        wanted = _ABOUT.get(each)
        if wanted is not None:
            kinds = _kinds_of(state.tree) if kinds is None else kinds
            if kinds.isdisjoint(wanted):
                continue
        state, kinds = each(state), None
    return state


def _kinds_of(tree: exp.Expression) -> frozenset[Kind]:
    """The kinds of a tree's nodes, and what these are kinds of; a query is not in itself."""
    found = {type(node) for node in tree.walk() if node is not tree or not _is_query(tree)}
    return frozenset(base for kind in found for base in _bases_of(kind))


def _is_query(tree: exp.Expression) -> bool:
    return isinstance(tree, exp.Query)


def _bases_of(kind: Kind) -> frozenset[Kind]:
    known = _BASES.get(kind)
    if known is None:  # there are as many as sqlglot has classes
        known = _BASES[kind] = frozenset(kind.__mro__)
    return known


_BASES: dict[Kind, frozenset[Kind]] = {}


@about(exp.Summarize, exp.Describe)
def select_described(state: State) -> State:
    """SUMMARIZE t and DESCRIBE t are over SELECT * FROM t."""
    for node in state.tree.find_all(exp.Summarize, exp.Describe):
        if isinstance(node.this, exp.Table):
            node.set("this", exp.select("*").from_(node.this))
    return state


@about(exp.Query)
def name_subqueries(state: State) -> State:
    """Columns that hold a query get the name that the query as written gives them."""
    hidden.name_subqueries(state.tree)
    return state


@about(exp.Version, exp.HistoricalData)
def take_moments(state: State) -> State:
    """FOR SYSTEM_TIME AS OF leaves the tree; the moments stay with their tables."""
    found = travel.take_system_time(state.tree)
    return replace(state, moments={id(node): at for node, at in found}) if found else state


@about(exp.Anonymous)
def expand_prev(state: State) -> State:
    """PREV(x) becomes lag(x) in a subquery."""
    tree = prev.rewrite_prev(state.tree, state.find, state.params, copy=False)
    return state if tree is state.tree else replace(state, tree=tree)


@about(exp.Anonymous)
def expand_windows(state: State) -> State:
    """TUMBLE, HOP, SESSION and RECENT become subqueries over their tables."""
    found = windows.rewrite_deferred(state.tree, state.find, state.params, copy=False)
    if found.query is state.tree and not found.bounds:
        return state
    return replace(state, tree=found.query, bounds=found.bounds)


@about(exp.Placeholder, exp.Parameter)
def name_params(state: State) -> State:
    """The caller's parameters get names that cannot be those of windows."""
    ours = {bound.name for bound in state.bounds}
    nodes = [
        node
        for node in state.tree.find_all(exp.Placeholder, exp.Parameter)
        if placeholder_key(node) not in ours
    ]
    if not nodes:
        return state
    keys = dict.fromkeys(placeholder_key(node) for node in nodes)
    names = {key: f"tidemill_p{at}" for at, key in enumerate(keys, 1)}
    for node in nodes:
        node.replace(exp.Placeholder(this=names[placeholder_key(node)]))
    return replace(state, keys=tuple(names), names=tuple(names.values()))


@about(*now.KINDS)
def bind_now(state: State) -> State:
    """Every now() becomes one parameter: a statement has one now."""
    return replace(state, uses_now=True) if now.bind_now(state.tree) else state


@about(exp.In)
def shorten_lists(state: State) -> State:
    """A list of a thousand constants or more becomes one text that DuckDB reads fast."""
    lists.shorten_lists(state.tree, state.find_columns)
    return state


def hide_seq(state: State) -> State:
    """``_seq`` is left out of stars, of rows as values and of NATURAL JOIN."""
    for table in state.seq_tables:
        hidden.hide_seq(table.node, table.names, state.find)
    return state
