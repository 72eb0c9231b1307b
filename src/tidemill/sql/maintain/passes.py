"""The passes of a continuous view, in their order, beside those of a query that is answered once.

A view's query is taken three ways. ``VIEW_PASSES`` make the query that is maintained: over tables
alone, and refused if no view can answer it. From copies of it, ``WHOLE_PASSES`` make the query that
DuckDB binds, for its columns and types, and ``SPLIT_PASSES`` the one that ``split`` takes apart
stream by stream.

What is not here and is in ``federation.passes``: parameters and FOR SYSTEM_TIME, which a view
cannot have, PREV, which it refuses, and scans, which its parts get when they run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from tidemill.sql.calls import Call
from tidemill.sql.decompose import free_prefixes
from tidemill.sql.decompose.plan import Refused
from tidemill.sql.maintain import checks, expand, naming
from tidemill.sql.maintain.binding import Columns, columns_of
from tidemill.sql.maintain.checks import ViewTables, check_kind
from tidemill.sql.maintain.naming import SEQ_COLUMN, SESSIONS, rename
from tidemill.sql.maintain.plan import REFERENCE, ROWS, ViewTable
from tidemill.sql.maintain.refusals import refusal
from tidemill.sql.passes import (
    Pass,
    QueryState,
    SeqTable,
    bind_now,
    expand_windows,
    hide_seq,
    shorten_lists,
)
from tidemill.sql.scopes import unbound_tables
from tidemill.types import SEQ

Definitions = Callable[[str], exp.Expression | None]
"""The query of a view, by its name."""

MARK = "tidemill_digest"  # in the meta of a table: the number of the place that it is


@dataclass(frozen=True)
class Place:
    """A place where the query reads a stream; ``call`` is that of SESSION."""

    number: int
    table: ViewTable
    call: Call | None = None

    def is_at(self, node: exp.Table) -> bool:
        return node.meta.get(MARK) == self.number if node._meta else False


@dataclass(frozen=True, kw_only=True)
class ViewState(QueryState):
    """A view's query; ``definition_of`` gives the queries of the views that it reads."""

    find: ViewTables
    definition_of: Definitions
    sessions: Mapping[int, Call] = field(default_factory=dict)
    bound_tables: Mapping[str, Columns] = field(default_factory=dict)  # that DuckDB needs to bind
    prefixes: tuple[str, str] = ("", "")  # of keys and states
    hidden_prefix: str = ""  # of keys that the final does not see
    places: tuple[Place, ...] = ()
    references: Mapping[str, ViewTable] = field(default_factory=dict)
    spelling: Mapping[str, str] = field(default_factory=dict)  # of columns, by their lower case

    def copied(self) -> ViewState:
        """The same, for passes that go another way."""
        return replace(self, tree=self.tree.copy())


# The query that is maintained.


def expand_views(state: ViewState) -> ViewState:
    """Views that the query reads become their own queries."""
    return replace(state, tree=expand.expand_views(state.tree, state.definition_of))


def check_query(state: ViewState) -> ViewState:
    """What no view can read or call is refused."""
    checks.check_query(state.tree, state.find)
    return state


# Names of tables.


def unqualify_columns(state: ViewState) -> ViewState:
    """``main.t.c`` becomes ``t.c``: tables get other names, not other aliases."""
    for column in state.tree.find_all(exp.Column):
        if column.args.get("db") is not None:
            column.set("db", None)
            column.set("catalog", None)
    return state


def find_seq(state: ViewState) -> ViewState:
    """If the query names ``_seq``, all its streams give it."""
    if not any(column.name.lower() == SEQ for column in state.tree.find_all(exp.Column)):
        return state
    tables = ((node, state.find(name)) for node, name in unbound_tables(state.tree))
    found = tuple(
        SeqTable(node, tuple(column.name for column in table.columns))
        for node, table in tables
        if table is not None and table.is_streaming
    )
    return replace(state, seq_tables=found)


def name_whole(state: ViewState) -> ViewState:
    """Tables become ``tm_table_<id>``, which are empty and have the right columns."""
    with_seq = {id(table.node) for table in state.seq_tables}
    made: dict[str, Columns] = {}
    for node, name in list(unbound_tables(state.tree)):
        table = state.find(name)
        assert table is not None
        physical = f"tm_table_{table.table_id}"
        seq = [SEQ_COLUMN] if id(node) in with_seq else []
        made[physical] = (*columns_of(table.columns), *seq)
        rename(node, physical, node.this)
    return replace(state, bound_tables=made)


# The query that is split.


def take_sessions(state: ViewState) -> ViewState:
    """SESSION calls become tables ``tm_sessions_<n>``: they are merged, not made of rows."""
    return replace(state, sessions=naming.take_sessions(state.tree, state.find))


def choose_prefixes(state: ViewState) -> ViewState:
    """Columns of digests get names that occur nowhere in the query."""
    try:
        prefixes = free_prefixes(state.tree)
    except Refused as refused:
        raise refusal(refused.reason, "rename what begins with tm_") from refused
    names = (str(node.this).lower() for node in state.tree.find_all(exp.Identifier))
    is_taken = any(re.fullmatch(r"h(\d+|_t)", name) for name in names)
    return replace(state, prefixes=prefixes, hidden_prefix="tm_h" if is_taken else "h")


def name_places(state: ViewState) -> ViewState:
    """Streams become ``tm_rows``, each place with its number, reference tables ``tm_ref_<id>``."""
    places: list[Place] = []
    references: dict[str, ViewTable] = {}
    spelling = {name: name for name in ("window_start", "window_end")}
    for node, name in list(unbound_tables(state.tree)):
        call = state.sessions[int(name[len(SESSIONS) :])] if name.startswith(SESSIONS) else None
        table = state.find(call.table.name if call is not None else name)
        assert table is not None
        check_kind(node, table)
        spelling |= {column.name.lower(): column.name for column in table.columns}
        if table.is_streaming:
            node.meta[MARK] = len(places)
            places.append(Place(len(places), table, call))
            if call is None:
                rename(node, ROWS, node.this)
        else:
            references[f"{REFERENCE}{table.table_id}"] = table
            rename(node, f"{REFERENCE}{table.table_id}", node.this)
    return replace(state, places=tuple(places), references=references, spelling=spelling)


VIEW_PASSES: tuple[Pass[ViewState], ...] = (
    expand_views,
    # After views: the type of a column is known where the table is. A query that is answered once
    # shortens lists after windows; a view checks before, on what the user wrote.
    shorten_lists,
    check_query,
)

WHOLE_PASSES: tuple[Pass[ViewState], ...] = (
    expand_windows,
    bind_now,
    unqualify_columns,
    # As in a query that is answered once: before tables get other names.
    find_seq,
    hide_seq,
    name_whole,
)

SPLIT_PASSES: tuple[Pass[ViewState], ...] = (
    # Before windows, which would make plain SQL of SESSION: rows of all times, grouped by none.
    take_sessions,
    expand_windows,
    bind_now,
    # Before tables are called tm_…, which would be taken for names of the user's.
    choose_prefixes,
    unqualify_columns,
    name_places,
    # ``_seq`` is hidden when a place is split (``split``): only those that need it have it.
)
