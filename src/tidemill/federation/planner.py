"""The planner: a query's tree in, a plan out that names its scans.

1. **travel**: FOR SYSTEM_TIME AS OF leaves the tree; the moments stay with their scans;
2. **bind**: parameters get names; now() becomes one of them, so that a statement has one now;
3. **window**: TUMBLE, HOP, SESSION and RECENT become plain SQL over their tables;
4. **name**: every table is found (with "did you mean" if not) and replaced: reference tables by
   their place in DuckDB, everything else by a scan;
5. **ask**: the predicates that surely hold for a scan are noted, for the indices.

A plan depends on the text and the catalog's snapshot alone, so it is kept and used again; values,
clocks and rows come in when it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.checks import shorten
from tidemill.catalog.model import Snapshot, Table
from tidemill.errors import UnknownNameError, UnsupportedError, did_you_mean
from tidemill.federation import system
from tidemill.federation.duck import REFERENCE
from tidemill.federation.lookup import Lookup, lookup_of
from tidemill.federation.references import physical_name
from tidemill.federation.system.information import CATALOG
from tidemill.hot.side import LATE_SUFFIX, REJECTED_SUFFIX
from tidemill.sql.hidden import hide_seq, name_subqueries
from tidemill.sql.latest import newest_wanted
from tidemill.sql.lists import shorten_lists
from tidemill.sql.names import find_cte, position_of, table_name_of
from tidemill.sql.now import NOW as NOW
from tidemill.sql.now import bind_now
from tidemill.sql.params import Params, check_params, placeholder_key, placeholders, value_of
from tidemill.sql.permitted import FILE_FUNCTIONS, call_name
from tidemill.sql.predicates import Conjunct, ScanRequest, find_scans
from tidemill.sql.prev import rewrite_prev
from tidemill.sql.travel import take_system_time
from tidemill.sql.windows import Bound, rewrite_deferred

SEQ = "_seq"
HOT, LATE, REJECTED, SYSTEM, VIEW = "hot", "late", "rejected", "system", "view"
FRAME = "frame"

Frames = Mapping[str, pa.Table]
"""Tables that the caller brings along, by the names the query has for them."""


@dataclass(frozen=True)
class Scan:
    """One table a query reads, under the name that DuckDB will look up."""

    source: str
    kind: str
    name: str
    alias: str
    table: Table | None = None
    conjuncts: tuple[Conjunct, ...] = ()
    with_seq: bool = False
    newest: int | None = None
    as_of: exp.Expression | None = None
    columns: frozenset[str] | None = None  # that suffice; None means all
    frame: pa.Table | None = field(default=None, compare=False)


@dataclass(frozen=True)
class KeyQuery:
    """``column IN (SELECT …)`` on an indexed column of a scan: run first, its keys looked up.

    The outer query then reads the keys that were found from ``source``, so both see the same."""

    source: str
    scan: str
    column: str
    plan: Plan


@dataclass(frozen=True)
class FileRead:
    """A file, or several, that DuckDB reads by itself: ``path`` is their name or pattern."""

    path: exp.Expr
    function: str


@dataclass(frozen=True, eq=False)
class Plan:
    """What runs: SQL over scans, the parameters to fill, and the key queries that run before."""

    sql: str
    tree: exp.Expression
    scans: tuple[Scan, ...]
    keys: tuple[str, ...]
    names: tuple[str, ...]
    bounds: tuple[Bound, ...]
    uses_now: bool
    key_queries: tuple[KeyQuery, ...] = ()
    lookup: Lookup | None = None
    given: tuple[str, ...] = ()
    used: frozenset[str] = frozenset()
    whole_view: Table | None = None  # the query is SELECT * FROM this view, and no more
    files: tuple[FileRead, ...] = ()
    may_grow: bool = False  # the answer may have more rows than the scans
    is_one_row: bool = False  # of numbers: the answer is small whatever is read

    def values(self, params: Params) -> dict[str, object]:
        """The caller's values under the plan's names; those of windows are in the plan itself."""
        check_params(self.given, params)
        pairs = zip(self.keys, self.names, strict=True)
        return {name: value_of(key, params) for key, name in pairs}


def make_plan(
    query: exp.Expression,
    snapshot: Snapshot,
    params: Params = None,
    frames: Frames | None = None,
) -> Plan:
    """Plan a query; ``params`` are needed only where a window's size is a parameter.

    ``frames`` are read where the catalog has no table of a name."""
    tree = query.copy()
    for node in tree.find_all(exp.Summarize, exp.Describe):
        if isinstance(node.this, exp.Table):
            node.set("this", exp.select("*").from_(node.this))
    tree = _name_catalog(tree)
    name_subqueries(tree)
    whole_view = _whole_view(tree, snapshot)
    moments = {id(node): moment for node, moment in take_system_time(tree)}

    def find(name: str) -> Table | None:
        """Tables with rows of their own: a view has neither windows nor indices."""
        table = snapshot.find(name)
        return None if table is None or table.is_view or table.is_digest else table

    tree = rewrite_prev(tree, find, params, copy=False)
    rewritten = rewrite_deferred(tree, find, params, copy=False)
    tree = rewritten.query
    window_names = {bound.name for bound in rewritten.bounds}
    keys, names = _name_params(tree, window_names)
    uses_now = bind_now(tree)
    shorten_lists(tree, snapshot.find)
    requests = {id(request.node): request for request in find_scans(tree, find)}
    tables = list(unbound_tables(tree))
    prefix = _free_prefix(tree, "tm_scan_")
    names_of = {id(node): f"{prefix}{number}" for number, (node, _) in enumerate(tables)}
    # A key query reads its tables as they are now, so that a query of the past has none.
    wanted = () if moments else requests.values()
    key_queries = _take_key_queries(tree, wanted, names_of, snapshot, frames)
    scans: list[Scan] = []
    lookup = None if moments else _lookup(tree, requests, tables, snapshot)
    files = tuple(_file_reads(tree, tables, snapshot))
    for node, name in tables:
        if node.root() is not tree:
            continue  # it went into a key query
        request = requests.get(id(node))
        conjuncts = request.conjuncts if request else ()
        newest = newest_wanted(node, find(name), conjuncts)
        with_seq = request is not None and _uses_seq(request, tree)
        if with_seq and (streaming := find(name)) is not None:
            hide_seq(node, [column.name for column in streaming.columns], find)
        source = names_of[id(node)]
        scan = _resolve(node, name, source, snapshot, conjuncts, with_seq, frames or {})
        moment = moments.get(id(node))
        if moment is not None and (scan is None or scan.kind != HOT):
            raise _no_past(node, name)
        if scan is not None:
            newest = None if moment is not None else newest
            columns = request.columns if request else None
            scans.append(replace(scan, newest=newest, as_of=moment, columns=columns))
    return Plan(
        tree.sql(dialect="duckdb"),
        tree,
        tuple(scans),
        tuple(keys),
        tuple(names),
        rewritten.bounds,
        uses_now,
        tuple(key_queries),
        lookup,
        tuple(placeholders(query)),
        frozenset(placeholders(tree)),
        whole_view,
        files,
        _may_grow(tree, len(scans)),
        _is_one_row(tree),
    )


_SMALL = (exp.Count, exp.Sum, exp.Avg)


def _is_one_row(tree: exp.Expression) -> bool:
    """Whether a query does nothing but add all rows up."""
    if not isinstance(tree, exp.Select) or tree.args.get("group") is not None:
        return False
    return all(isinstance(part.unalias(), _SMALL) for part in tree.expressions)


def _may_grow(tree: exp.Expression, scans: int) -> bool:
    if tree.find(exp.Join, exp.Explode, exp.Unnest, exp.Lateral, exp.Pivot) is not None:
        return True
    names = [node for node in tree.find_all(exp.Table) if find_cte(node, node.name) is None]
    with_ = tree.find(exp.With)
    is_recursive = with_ is not None and bool(with_.args.get("recursive"))
    return len(names) > scans or is_recursive  # reference tables, functions, files


def _name_catalog(tree: exp.Expression) -> exp.Expression:
    """current_database() is what information_schema calls the warehouse, not what DuckDB does."""
    for node in list(tree.find_all(exp.CurrentDatabase, exp.CurrentCatalog)):
        name = exp.Literal.string(CATALOG)
        is_shown = node.arg_key == "expressions" and isinstance(node.parent, exp.Select)
        node.replace(exp.alias_(name, node.sql_name().lower()) if is_shown else name)
    return tree


def _whole_view(tree: exp.Expression, snapshot: Snapshot) -> Table | None:
    """The view of a query that is nothing but SELECT * FROM v."""
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1:
        return None
    if {name for name, value in tree.args.items() if value} != {"expressions", "from_"}:
        return None
    star, source = tree.expressions[0], tree.args["from_"].this
    if type(star) is not exp.Star or any(star.args.values()) or not isinstance(source, exp.Table):
        return None
    if {name for name, value in source.args.items() if value} - {"this", "alias"}:
        return None
    table = snapshot.find(table_name_of(source) or "")
    return table if table is not None and table.is_view else None


def _lookup(
    tree: exp.Expression,
    requests: dict[int, ScanRequest],
    tables: list[tuple[exp.Table, str]],
    snapshot: Snapshot,
) -> Lookup | None:
    table = snapshot.find(tables[0][1]) if len(tables) == 1 else None
    request = requests.get(id(tables[0][0])) if table is not None else None
    return lookup_of(tree, table, request.conjuncts) if table and request else None


def _take_key_queries(
    tree: exp.Expression,
    requests: Iterable[ScanRequest],
    names_of: dict[int, str],
    snapshot: Snapshot,
    frames: Frames | None,
) -> list[KeyQuery]:
    """Cut queries for indexed keys out of the tree; each leaves a table of keys in its place."""
    found: dict[int, str] = {}
    key_queries: list[KeyQuery] = []
    prefix = _free_prefix(tree, "tm_keys_")
    for request in requests:
        table = snapshot.get(request.table)
        indexed = {name for index in table.indexes for name in index.columns}
        for conjunct in request.conjuncts:
            query = conjunct.values[0]
            if conjunct.op != "in_query" or conjunct.column not in indexed:
                continue
            if id(query) not in found and query.parent is not None:
                source = f"{prefix}{len(found)}"
                plan = make_plan(query, snapshot, None, frames)
                found[id(query)] = source
                query.replace(exp.select("*").from_(exp.to_table(source)))
                scan = names_of[id(request.node)]
                key_queries.append(KeyQuery(source, scan, conjunct.column, plan))
    return key_queries


def _free_prefix(tree: exp.Expression, prefix: str) -> str:
    """How the names of scans begin: as nothing in the query does, for text replaces them later."""
    names = {str(node.this).lower() for node in tree.find_all(exp.Identifier)}
    names |= {str(node.this).lower() for node in tree.find_all(exp.Literal)}
    while any(prefix in name for name in names):
        prefix += "_"
    return prefix


def _name_params(tree: exp.Expression, ours: set[str]) -> tuple[list[str], list[str]]:
    nodes = [
        node
        for node in tree.find_all(exp.Placeholder, exp.Parameter)
        if placeholder_key(node) not in ours
    ]
    keys = list(dict.fromkeys(placeholder_key(node) for node in nodes))
    names = {key: f"tidemill_p{at}" for at, key in enumerate(keys, 1)}
    for node in nodes:
        node.replace(exp.Placeholder(this=names[placeholder_key(node)]))
    return keys, list(names.values())


def _uses_seq(request: ScanRequest, tree: exp.Expression) -> bool:
    """Whether the hidden column is asked of a scan; if stars hide that, whether it is at all."""
    if request.columns is not None:
        return SEQ in request.columns
    return any(column.name.lower() == SEQ for column in tree.find_all(exp.Column))


def _resolve(
    node: exp.Table,
    name: str,
    source: str,
    snapshot: Snapshot,
    conjuncts: tuple[Conjunct, ...],
    with_seq: bool,
    frames: Frames,
) -> Scan | None:
    """Replace a table by what DuckDB reads; None if DuckDB finds it by itself."""
    table = snapshot.find(name)
    base = name.rpartition("$")[0]
    alias = node.alias_or_name
    if table is not None and table.is_reference:
        _replace(node, physical_name(table.table_id), REFERENCE)
        return None
    if table is not None and table.is_view:
        scan = Scan(source, VIEW, table.name, alias, table)
    elif table is not None and table.is_streaming:
        scan = Scan(source, HOT, table.name, alias, table, conjuncts, with_seq)
    elif name.lower() in system.NAMES:
        scan = Scan(source, SYSTEM, name.lower().partition(".")[2], alias)
    elif name.lower() in system.INFORMATION_NAMES:
        scan = Scan(source, SYSTEM, name.lower(), alias)
    elif name.lower().endswith((LATE_SUFFIX, REJECTED_SUFFIX)) and snapshot.find(base):
        kind = LATE if name.lower().endswith(LATE_SUFFIX) else REJECTED
        owner = snapshot.get(base)
        if not owner.is_streaming:
            raise _unknown(node, name, snapshot)
        scan = Scan(source, kind, name, alias, owner)
    elif name in frames:
        scan = Scan(source, FRAME, name, alias, frame=frames[name])
    elif _is_file(name):
        return None
    else:
        raise _unknown(node, name, snapshot)
    _replace(node, source, None)
    return scan


def _replace(node: exp.Table, name: str, schema: str | None) -> None:
    if not node.alias:
        node.set("alias", exp.TableAlias(this=node.this.copy()))
    node.set("this", exp.to_identifier(name, quoted=True))
    node.set("db", exp.to_identifier("main") if schema else None)
    node.set("catalog", exp.to_identifier(schema) if schema else None)


def _file_reads(
    tree: exp.Expression, tables: list[tuple[exp.Table, str]], snapshot: Snapshot
) -> Iterator[FileRead]:
    for call in tree.find_all(exp.Func):
        function = call_name(call)
        if function in FILE_FUNCTIONS:
            is_first = isinstance(call.this, exp.Expr) and not isinstance(call, exp.Anonymous)
            given = [call.this] if is_first else call.expressions
            yield from (FileRead(path, function) for path in given[:1])
    for _, name in tables:
        if snapshot.find(name) is None and _is_file(name):
            yield FileRead(exp.Literal.string(name), "FROM")


def _is_file(name: str) -> bool:
    """DuckDB reads FROM 'file.parquet'; such a name has an ending and a file behind it."""
    return "." in name and (any(sign in name for sign in "*?[") or Path(name).exists())


def _no_past(node: exp.Table, name: str) -> UnsupportedError:
    return UnsupportedError(
        f"{shorten(name)} has no past that can be read",
        hint="FOR SYSTEM_TIME AS OF reads streaming tables",
        position=position_of(node),
    )


def _unknown(node: exp.Table, name: str, snapshot: Snapshot) -> UnknownNameError:
    known = [table.name for table in snapshot.tables.values() if not table.is_digest]
    streams = [table.name for table in snapshot.tables.values() if table.is_streaming]
    known += [s + suffix for s in streams for suffix in (LATE_SUFFIX, REJECTED_SUFFIX)]
    return UnknownNameError(
        f"table {shorten(name)} does not exist",
        hint=did_you_mean(name, [*known, *system.NAMES]) or "SHOW TABLES lists the tables",
        position=position_of(node),
    )


def unbound_tables(tree: exp.Expression) -> Iterator[tuple[exp.Table, str]]:
    """The tables of a tree that are not names of a WITH clause in their scope."""
    for node in tree.find_all(exp.Table):
        name = table_name_of(node)
        if name is not None and (node.args.get("db") is not None or find_cte(node, name) is None):
            yield node, name
