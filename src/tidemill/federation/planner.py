"""The planner: a query's tree in, a plan out that names its scans.

1. **travel**: FOR SYSTEM_TIME AS OF leaves the tree; the moments stay with their scans;
2. **bind**: parameters get names; now() becomes one of them, so that a statement has one now;
3. **window**: TUMBLE, HOP, SESSION and RECENT become plain SQL over their tables;
4. **ask**: the predicates that surely hold for a scan are noted, for the indices, and the small
   tables it is joined with on indexed columns, which may be read first;
5. **name**: every table is found (with "did you mean" if not) and replaced: reference tables by
   their place in DuckDB, everything else by a scan.

A plan depends on the text and the catalog's snapshot alone, so it is kept and used again; values,
clocks and rows come in when it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.checks import shorten
from tidemill.catalog.model import Snapshot, Table
from tidemill.errors import UnknownNameError, UnsupportedError, did_you_mean
from tidemill.federation import system
from tidemill.federation.duck import REFERENCE
from tidemill.federation.first import find_partners, free_prefix, take_key_queries
from tidemill.federation.lookup import Lookup, lookup_of
from tidemill.federation.plan import FRAME as FRAME
from tidemill.federation.plan import HOT as HOT
from tidemill.federation.plan import LATE as LATE
from tidemill.federation.plan import REJECTED as REJECTED
from tidemill.federation.plan import SYSTEM as SYSTEM
from tidemill.federation.plan import VIEW as VIEW
from tidemill.federation.plan import FileRead as FileRead
from tidemill.federation.plan import Frames as Frames
from tidemill.federation.plan import Plan as Plan
from tidemill.federation.plan import Scan as Scan
from tidemill.federation.references import physical_name
from tidemill.federation.system import CATALOG
from tidemill.hot.side import LATE_SUFFIX, REJECTED_SUFFIX
from tidemill.sql.calls import StreamTable
from tidemill.sql.hidden import hide_seq, name_subqueries
from tidemill.sql.latest import newest_wanted
from tidemill.sql.lists import shorten_lists
from tidemill.sql.names import find_cte, position_of, table_name_of
from tidemill.sql.now import NOW as NOW
from tidemill.sql.now import bind_now
from tidemill.sql.params import Params, placeholder_key, placeholders
from tidemill.sql.permitted import FILE_FUNCTIONS, call_name
from tidemill.sql.predicates import ScanRequest, find_scans
from tidemill.sql.prev import rewrite_prev
from tidemill.sql.top import top_of
from tidemill.sql.travel import take_system_time
from tidemill.sql.windows import rewrite_deferred
from tidemill.types import Column, SqlType

SEQ = "_seq"


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

    def find_any(name: str) -> StreamTable | None:
        """The caller's frames, too."""
        is_frame = name in (frames or {}) and snapshot.find(name) is None
        return _columns_of(name, (frames or {})[name]) if is_frame else find(name)

    requests = {id(request.node): request for request in find_scans(tree, find_any)}
    tables = list(unbound_tables(tree))
    prefix = free_prefix(tree, "tm_scan_")
    names_of = {id(node): f"{prefix}{number}" for number, (node, _) in enumerate(tables)}
    # What is read first is read as it is now, so that a query of the past reads nothing first.
    wanted = () if moments else tuple(requests.values())
    plan_of = partial(make_plan, snapshot=snapshot, frames=frames)
    key_queries = take_key_queries(tree, wanted, snapshot, plan_of)
    partners = find_partners(tree, wanted, names_of, snapshot, find_any, plan_of)
    scans: list[Scan] = []
    lookup = None if moments else _lookup(tree, requests, tables, snapshot)
    files = tuple(_file_reads(tree, tables, snapshot))
    for node, name in tables:
        if node.root() is not tree:
            continue  # it went into a key query
        request = requests.get(id(node))
        conjuncts = request.conjuncts if request else ()
        newest, top = newest_wanted(node, find(name), conjuncts), top_of(node, find(name))
        with_seq = request is not None and _uses_seq(request, tree)
        if with_seq and (streaming := find(name)) is not None:
            hide_seq(node, [column.name for column in streaming.columns], find)
        source = names_of[id(node)]
        scan = _resolve(node, name, source, snapshot, with_seq, frames or {})
        moment = moments.get(id(node))
        if moment is not None and (scan is None or scan.kind != HOT):
            raise _no_past(node, name)
        if scan is not None and moment is not None:
            scans.append(_asked(replace(scan, as_of=moment), request))
        elif scan is not None:
            scans.append(_asked(replace(scan, newest=newest, top=top), request))
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
        tuple(partners),
    )


def _asked(scan: Scan, request: ScanRequest | None) -> Scan:
    """A scan with what is asked of it."""
    if request is None:
        return scan
    scan = replace(scan, columns=request.columns)
    if scan.kind != HOT:
        return scan
    return replace(scan, conjuncts=request.conjuncts, alternatives=request.alternatives)


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


@dataclass(frozen=True)
class _FrameColumns:
    """The names of a frame's columns, which is all that is asked of a table that is no stream."""

    name: str
    columns: tuple[Column, ...]
    time_column: str | None = None


def _columns_of(name: str, frame: pa.Table) -> _FrameColumns:
    return _FrameColumns(name, tuple(Column(each, _ANY) for each in frame.column_names))


_ANY = SqlType("VARCHAR")


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
        scan = Scan(source, HOT, table.name, alias, table, with_seq=with_seq)
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
