"""The passes of a query that is answered once, in their order: ``PASSES``.

``planner.make_plan`` runs them over a copy of the query's tree and puts what they found together as
a ``Plan``. Those that need nothing but SQL are shared with views and kept queries (``sql.passes``);
those here look at the catalog's snapshot and at the caller's frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.model import Snapshot, Table
from tidemill.federation import first
from tidemill.federation.first import PlanOf, free_prefix
from tidemill.federation.lookup import Lookup, lookup_of
from tidemill.federation.plan import HOT, FileRead, Frames, KeyQuery, Partner, Scan
from tidemill.federation.resolving import (
    Resolved,
    TableNode,
    check_past,
    is_file,
    put_name,
    put_reference,
    resolve,
)
from tidemill.federation.system import CATALOG
from tidemill.sql import predicates
from tidemill.sql.calls import StreamTable
from tidemill.sql.latest import newest_wanted
from tidemill.sql.names import table_name_of
from tidemill.sql.params import Params
from tidemill.sql.passes import (
    Pass,
    QueryState,
    SeqTable,
    about,
    bind_now,
    expand_prev,
    expand_windows,
    hide_seq,
    name_params,
    name_subqueries,
    select_described,
    shorten_lists,
    take_moments,
)
from tidemill.sql.permitted import FILE_FUNCTIONS, call_name
from tidemill.sql.predicates import ScanRequest
from tidemill.sql.scopes import unbound_tables
from tidemill.sql.top import top_of
from tidemill.types import SEQ, Column, SqlType

_ANY = SqlType("VARCHAR")


@dataclass(frozen=True)
class _FrameColumns:
    """The names of a frame's columns, which is all that is asked of a table that is no stream."""

    name: str
    columns: tuple[Column, ...]
    time_column: str | None = None

    @classmethod
    def of(cls, name: str, frame: pa.Table) -> _FrameColumns:
        return cls(name, tuple(Column(each, _ANY) for each in frame.column_names))


@dataclass(frozen=True, kw_only=True)
class PlanState(QueryState):
    """A query that becomes a plan; ``frames`` are read where the catalog has no table of a name."""

    snapshot: Snapshot
    plan_of: PlanOf  # plans a part of the query that runs by itself
    frames: Frames
    whole_view: Table | None = None
    requests: Mapping[int, ScanRequest] = field(default_factory=dict)  # by node
    tables: tuple[TableNode, ...] = ()
    key_queries: tuple[KeyQuery, ...] = ()
    partners: tuple[Partner, ...] = ()
    lookup: Lookup | None = None
    files: tuple[FileRead, ...] = ()
    resolved: tuple[Resolved, ...] = ()

    @classmethod
    def of(
        cls,
        tree: exp.Expression,
        snapshot: Snapshot,
        plan_of: PlanOf,
        frames: Frames,
        params: Params = None,
    ) -> PlanState:
        """The state before the first pass."""

        def find(name: str) -> Table | None:
            """Tables with rows of their own: a view has neither windows nor indices."""
            table = snapshot.find(name)
            return None if table is None or table.is_view or table.is_digest else table

        return cls(
            tree=tree, find=find, params=params, snapshot=snapshot, plan_of=plan_of, frames=frames
        )

    def find_columns(self, name: str) -> StreamTable | None:
        """Views included."""
        return self.snapshot.find(name)

    def find_any(self, name: str) -> StreamTable | None:
        """The caller's frames included."""
        if name in self.frames and self.snapshot.find(name) is None:
            return _FrameColumns.of(name, self.frames[name])
        return self.find(name)

    @property
    def read_first(self) -> tuple[ScanRequest, ...]:
        """The scans that others may be read before: none in a query of the past, for what is read
        first is read as it is now."""
        return () if self.moments else tuple(self.requests.values())


@about(exp.CurrentDatabase, exp.CurrentCatalog)
def name_catalog(state: PlanState) -> PlanState:
    """current_database() is what information_schema calls the warehouse, not what DuckDB does."""
    for node in list(state.tree.find_all(exp.CurrentDatabase, exp.CurrentCatalog)):
        name = exp.Literal.string(CATALOG)
        is_shown = node.arg_key == "expressions" and isinstance(node.parent, exp.Select)
        node.replace(exp.alias_(name, node.sql_name().lower()) if is_shown else name)
    return state


# What the query is about, and what it asks.


@about(exp.Star)
def find_whole_view(state: PlanState) -> PlanState:
    """A query that is nothing but SELECT * FROM v is answered by the view itself."""
    name = _only_table(state.tree)
    table = state.snapshot.find(name) if name is not None else None
    return replace(state, whole_view=table) if table is not None and table.is_view else state


def _only_table(tree: exp.Expression) -> str | None:
    """The name of the table that a query shows as it is."""
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1:
        return None
    if {name for name, value in tree.args.items() if value} != {"expressions", "from_"}:
        return None
    star, source = tree.expressions[0], tree.args["from_"].this
    if type(star) is not exp.Star or any(star.args.values()) or not isinstance(source, exp.Table):
        return None
    if {name for name, value in source.args.items() if value} - {"this", "alias"}:
        return None
    return table_name_of(source)


def find_requests(state: PlanState) -> PlanState:
    """What surely holds for each scan of a stream is noted, for the indices."""
    found = predicates.find_scans(state.tree, state.find_any)
    return replace(state, requests={id(request.node): request for request in found})


def find_tables(state: PlanState) -> PlanState:
    """Every table gets a name for its scan that occurs nowhere in the query."""
    prefix = free_prefix(state.tree, "tm_scan_")
    found = enumerate(unbound_tables(state.tree))
    tables = tuple(TableNode(node, name, f"{prefix}{at}") for at, (node, name) in found)
    return replace(state, tables=tables)


# What is read before the streams.


def take_key_queries(state: PlanState) -> PlanState:
    """IN (SELECT …) on an indexed column is cut out and leaves a table of keys."""
    found = first.take_key_queries(state.tree, state.read_first, state.snapshot, state.plan_of)
    return replace(state, key_queries=tuple(found)) if found else state


def find_partners(state: PlanState) -> PlanState:
    """Small tables that a stream is joined with on an indexed column may be read first."""
    names_of = {id(table.node): table.source for table in state.tables}
    found = first.find_partners(
        state.tree, state.read_first, names_of, state.snapshot, state.find_any, state.plan_of
    )
    return replace(state, partners=tuple(found)) if found else state


def find_lookup(state: PlanState) -> PlanState:
    """A query for columns and rows alone may be answered without DuckDB."""
    if state.moments or len(state.tables) != 1:
        return state
    (only,) = state.tables
    table, request = state.snapshot.find(only.name), state.requests.get(id(only.node))
    if table is None or request is None:
        return state
    lookup = lookup_of(state.tree, table, request.conjuncts)
    return replace(state, lookup=lookup) if lookup is not None else state


def find_files(state: PlanState) -> PlanState:
    """Files that the query names are noted, so that the warehouse's own can be refused."""
    found = tuple(_file_reads(state))
    return replace(state, files=found) if found else state


def _file_reads(state: PlanState) -> Iterator[FileRead]:
    for call in state.tree.find_all(exp.Func):
        function = call_name(call)
        if function in FILE_FUNCTIONS:
            is_first = isinstance(call.this, exp.Expr) and not isinstance(call, exp.Anonymous)
            given = [call.this] if is_first else call.expressions
            yield from (FileRead(path, function) for path in given[:1])
    for table in state.tables:
        if state.snapshot.find(table.name) is None and is_file(table.name):
            yield FileRead(exp.Literal.string(table.name), "FROM")


# Tables become scans.


def find_scans(state: PlanState) -> PlanState:
    """Every table is found, with what is asked of it; an unknown name is an error."""
    found = []
    for table in state.tables:
        if table.node.root() is state.tree:  # or it went into a key query
            resolved = resolve(table, state.snapshot, state.frames)
            moment = state.moments.get(id(table.node))
            if moment is not None:
                check_past(table, resolved)
            if resolved.scan is not None:
                scan = _asked(resolved.scan, table.node, moment, state)
                resolved = replace(resolved, scan=scan)
            found.append(resolved)
    return replace(state, resolved=tuple(found), seq_tables=tuple(_seq_tables(found)))


def _asked(scan: Scan, node: exp.Table, moment: exp.Expression | None, state: PlanState) -> Scan:
    """The scan of a stream with what is asked of it; of others all is read."""
    request = state.requests.get(id(node))
    if scan.kind != HOT or scan.table is None or request is None:
        return scan
    is_now = moment is None  # first rows are those of the present
    return replace(
        scan,
        as_of=moment,
        columns=request.columns,
        conjuncts=request.conjuncts,
        alternatives=request.alternatives,
        with_seq=_uses_seq(request, state.tree),
        newest=newest_wanted(node, scan.table, request.conjuncts) if is_now else None,
        top=top_of(node, scan.table) if is_now else None,
    )


def _uses_seq(request: ScanRequest, tree: exp.Expression) -> bool:
    """Whether the hidden column is asked of a scan; if stars hide that, whether it is at all."""
    if request.columns is not None:
        return SEQ in request.columns
    return any(column.name.lower() == SEQ for column in tree.find_all(exp.Column))


def _seq_tables(resolved: list[Resolved]) -> Iterator[SeqTable]:
    for each in resolved:
        if each.scan is not None and each.scan.with_seq and each.scan.table is not None:
            yield SeqTable(each.node, tuple(column.name for column in each.scan.table.columns))


def name_tables(state: PlanState) -> PlanState:
    """Scans and reference tables take the places of tables; they are called as before."""
    for each in state.resolved:
        if each.scan is not None:
            put_name(each.node, each.scan.source)
        elif each.reference is not None:
            put_reference(each.node, each.reference)
    return state


PASSES: tuple[Pass[PlanState], ...] = (
    # Before any name changes: columns are called after the query as it was written.
    select_described,
    name_catalog,
    name_subqueries,
    find_whole_view,
    # Before windows: their arguments are tables, which have no past of their own, and parameters
    # in a moment keep the caller's names, since it is read when the plan runs.
    take_moments,
    # Before windows: PREV puts RECENT into a subquery, and is told there which rows are meant.
    expand_prev,
    expand_windows,
    # After windows: their bounds have names of their own, and a size may be a parameter.
    name_params,
    bind_now,
    shorten_lists,
    # After all that puts conditions into the tree; before anything is cut out of it.
    find_requests,
    find_tables,
    take_key_queries,
    find_partners,
    # After key queries: what was cut out has scans and files of its own.
    find_lookup,
    find_files,
    # What tables are is found out for all of them before any changes its name: first rows are
    # told by text, and NATURAL JOIN by the columns of the tables on both sides.
    find_scans,
    hide_seq,
    name_tables,
)
