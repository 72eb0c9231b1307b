"""PREV: the row before, in a stream or a window of its newest rows, as plain SQL.

``PREV(x)`` is ``x`` of the row that came before, in the order of ``(time, _seq)``; ``PREV(x, n)``
that of n rows before. Where RECENT has ``partition_by``, it is the row before of the same key. The
first rows of a window have none: NULL. It is computed before WHERE, so that it may stand there:

1. ``SELECT items FROM w WHERE condition`` becomes ``SELECT items FROM (SELECT columns, lag(…) OVER
   (…) AS tm_prev_0 FROM w) WHERE condition``, with PREV replaced by the names of such columns.
2. Stars leave these columns out; a column that had no name gets the one that it would have had.

To be called before stream windows are rewritten (``sql/windows.py``), which then find RECENT in
the inner SELECT. Document 002, Table I.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlglot import exp

from tidemill.errors import Position, QueryError, UnknownNameError, did_you_mean
from tidemill.sql.calls import StreamTable, Tables, read_call, show_seq
from tidemill.sql.fold import NOT_CONSTANT, constant
from tidemill.sql.hidden import keep_name, leave_out, pack_rows
from tidemill.sql.names import position_of, table_name_of
from tidemill.sql.params import Params
from tidemill.sql.scopes import base_table
from tidemill.sql.spelling import WINDOW_FUNCTIONS
from tidemill.types import SEQ

PREV = "PREV"
MADE = "tidemill_prev"  # in the meta of a window function: it was PREV
_EXAMPLE = "SELECT … FROM RECENT(t, rows => 2, partition_by => vid) WHERE seg <> PREV(seg)"
_LAG_HINT = "elsewhere write lag(x) OVER (PARTITION BY … ORDER BY ts)"
_PLACES = ("expressions", "where", "group", "having", "qualify", "order", "distinct", "windows")
_SHAPING = ("group", "order", "distinct", "having", "qualify", "laterals", "pivots", "sample")
_ROW_ONLY = (exp.AggFunc, exp.Window, exp.Query, exp.Star)


def rewrite_prev(
    query: exp.Expression, tables: Tables, params: Params = None, *, copy: bool = True
) -> exp.Expression:
    """The query without PREV; nodes of tables stay the same ones unless it is copied."""
    if not any(_calls(query)):
        return query
    tree = query.copy() if copy else query
    selects: dict[int, exp.Select] = {}
    for call in _calls(tree):
        select = _select_of(call)
        selects[id(select)] = select
    for select in selects.values():
        _rewrite_select(select, _read_source(select, tables, params), params)
    return tree


def _calls(tree: exp.Expression) -> Iterable[exp.Anonymous]:
    return (node for node in tree.find_all(exp.Anonymous) if node.name.upper() == PREV)


def _place(node: exp.Anonymous) -> Position | None:
    meta = node.meta if node._meta else {}
    if "line" not in meta:
        return position_of(node)
    length = int(meta["end"]) - int(meta["start"])
    return Position(int(meta["line"]), max(int(meta["col"]) - length, 1), node.name)


def _fail(call: exp.Anonymous, message: str, hint: str = _EXAMPLE) -> QueryError:
    return QueryError(message, hint=hint, position=_place(call))


# Where PREV may stand.


def _select_of(call: exp.Anonymous) -> exp.Select:
    """The SELECT whose rows a call means."""
    child: exp.Expr = call
    while child.parent is not None and not isinstance(child.parent, exp.Query):
        child = child.parent
    select = child.parent
    if not isinstance(select, exp.Select) or child.arg_key not in _PLACES:
        raise _fail(call, "PREV stands in SELECT, WHERE and what follows them")
    if isinstance(call.parent, exp.Window) and call.arg_key == "this":
        raise _fail(call, "PREV has no OVER", f"its order is that of the stream; {_LAG_HINT}")
    return select


@dataclass
class _Source:
    """What a SELECT with PREV reads: the item of its FROM, and the order of its rows."""

    node: exp.Table
    table: StreamTable
    alias: str
    keys: tuple[str, ...] = ()
    is_recent: bool = False
    names: dict[str, str] = field(default_factory=dict)  # SQL of lag(…): its column

    @property
    def time(self) -> str:
        assert self.table.time_column is not None
        return self.table.time_column

    def column(self, name: str) -> exp.Column:
        return exp.column(name, table=self.alias, quoted=True)


def _read_source(select: exp.Select, tables: Tables, params: Params) -> _Source:
    call = next(iter(_calls(select)))
    from_ = select.args.get("from_")
    node = from_.this if from_ is not None else None
    if not isinstance(node, exp.Table) or _has_company(select, node):
        raise _fail(call, "PREV needs a SELECT from one stream", f"{_EXAMPLE}; {_LAG_HINT}")
    function = node.this if isinstance(node.this, exp.Anonymous) else None
    if function is not None and function.name.upper() == "RECENT":
        window = read_call(function, node, tables, params)
        alias = node.alias or window.table.name.rpartition(".")[2]
        show_seq(node)
        return _Source(node, window.table, alias, window.partition_by, is_recent=True)
    table = base_table(node, tables) if table_name_of(node) is not None else None
    if table is None or table.time_column is None:
        of = "a window of RECENT" if _is_window(function) else "a streaming table, or of RECENT"
        raise _fail(call, f"PREV is of {of}", f"{_EXAMPLE}; {_LAG_HINT}")
    return _Source(node, table, node.alias_or_name)


def _is_window(function: exp.Anonymous | None) -> bool:
    return function is not None and function.name.upper() in WINDOW_FUNCTIONS


def _has_company(select: exp.Select, node: exp.Table) -> bool:
    alias = node.args.get("alias")
    renamed = alias is not None and bool(alias.args.get("columns"))
    beside = any(select.args.get(key) for key in ("joins", "laterals", "sample", "pivots"))
    return renamed or beside or any(node.args.get(key) for key in ("joins", "pivots", "sample"))


# One SELECT.


def _rewrite_select(select: exp.Select, source: _Source, params: Params) -> None:
    _keep_names(select)
    pack_rows(select, source.alias, [column.name for column in source.table.columns])
    is_plain = source.is_recent and _is_plain(select)
    prefix = _free_prefix(select, source)
    source.node.pop()  # its own names are not the SELECT's
    lags: list[exp.Expression] = []
    for call in [call for call in _calls(select) if _owner(call) is select]:
        lag = _lag(call, source, params)
        key = lag.sql("duckdb")
        if key not in source.names:
            source.names[key] = f"{prefix}{len(source.names)}"
            lags.append(_named(lag, source.names[key]))
        call.replace(source.column(source.names[key]))
    columns: list[exp.Expression] = [_own(name) for name in _needed(select, source)]
    hidden = list(source.names.values())
    if _mentions_seq(select) and not source.is_recent:
        columns.append(_own(SEQ))
        hidden.append(SEQ)
    if is_plain:
        hidden.append(f"{prefix}seq")
        lags.append(_named(_own(SEQ), hidden[-1]))
        ordered = [source.column(source.time), source.column(hidden[-1])]
        select.set("order", _newest_first(ordered))
        if not any(column.name == source.time for column in columns):
            columns.append(_own(source.time))
    leave_out(select, source.alias, hidden)
    _wrap(select, source, [*columns, *lags])


def _owner(call: exp.Anonymous) -> exp.Expr | None:
    return call.find_ancestor(exp.Query)


def _wrap(select: exp.Select, source: _Source, columns: list[exp.Expression]) -> None:
    from_ = select.args["from_"]
    inner = exp.Select(expressions=columns, from_=exp.From(this=source.node))
    alias = exp.TableAlias(this=exp.to_identifier(source.alias, quoted=True))
    from_.set("this", exp.Subquery(this=inner, alias=alias))


def _lag(call: exp.Anonymous, source: _Source, params: Params) -> exp.Window:
    arguments = call.expressions
    if len(arguments) not in (1, 2):
        raise _fail(call, "PREV takes an expression, and how many rows before", "PREV(x, 2)")
    value, *offset = arguments
    _check_value(call, value, source)
    if offset:
        _check_offset(call, offset[0], params)
    order = [exp.Ordered(this=_own(name)) for name in (source.time, SEQ)]
    window = exp.Window(
        this=exp.Anonymous(this="lag", expressions=[part.copy() for part in arguments]),
        order=exp.Order(expressions=order),
        over="OVER",
    )
    window.meta[MADE] = True
    if source.keys:
        window.set("partition_by", [_own(name) for name in source.keys])
    return window


def _check_value(call: exp.Anonymous, value: exp.Expression, source: _Source) -> None:
    if any(_calls(value)):
        raise _fail(call, "PREV cannot stand in PREV", "PREV(x, 2) is that of two rows before")
    if value.find(*_ROW_ONLY) is not None:
        raise _fail(call, "PREV takes an expression of the row's columns", "sum(PREV(x)) is one")
    known = {column.name.lower(): column.name for column in source.table.columns}
    seen = {*known, source.alias.lower(), *([] if source.is_recent else [SEQ])}
    for column in value.find_all(exp.Column):
        if column.table or column.name.lower() in seen:
            continue
        raise UnknownNameError(
            f'column "{column.name}" does not exist in "{source.table.name}"',
            hint=did_you_mean(column.name, known.values())
            or f"the columns are {', '.join(list(known.values())[:20])}",
            position=position_of(column) or _place(call),
        )


def _check_offset(call: exp.Anonymous, offset: exp.Expression, params: Params) -> None:
    value = constant(offset, params)
    is_open = value is NOT_CONSTANT and isinstance(offset, (exp.Placeholder, exp.Parameter))
    if is_open or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return
    raise _fail(call, "the second argument of PREV must be a whole number above zero", "PREV(x, 2)")


# Names.


def _own(name: str) -> exp.Column:
    return exp.column(name, quoted=True)


def _named(node: exp.Expression, name: str) -> exp.Alias:
    return exp.Alias(this=node, alias=exp.to_identifier(name, quoted=True))


def _keep_names(select: exp.Select) -> None:
    """Give columns that have no name, and PREV in them, the one that they would have had."""
    for part in list(select.expressions):
        if not isinstance(part, (exp.Alias, exp.Dot)) and any(_calls(part)):
            keep_name(part)


def _free_prefix(select: exp.Select, source: _Source) -> str:
    taken = _identifiers(select) | {column.name.lower() for column in source.table.columns}
    prefix = "tm_prev_"
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"
    return prefix


def _identifiers(tree: exp.Expression) -> set[str]:
    return {str(node.this).lower() for node in tree.find_all(exp.Identifier)}


def _needed(select: exp.Select, source: _Source) -> list[str]:
    """The table's columns that the SELECT may read: those that it names, or all with a star."""
    names = [column.name for column in source.table.columns]
    stars = (star for star in select.find_all(exp.Star) if not isinstance(star.parent, exp.Count))
    if any(stars) or select.find(exp.Columns) is not None:
        return names
    mentioned = _identifiers(select)
    return [name for name in names if name.lower() in mentioned]


def _mentions_seq(select: exp.Select) -> bool:
    return any(column.name.lower() == SEQ for column in select.find_all(exp.Column))


def _is_plain(select: exp.Select) -> bool:
    """Whether the order of RECENT, newest first, reaches the user; as ``windows`` has it."""
    if select.parent is not None or any(select.args.get(key) for key in _SHAPING):
        return False
    return not any(part.find(exp.AggFunc, exp.Window) for part in select.expressions)


def _newest_first(columns: list[exp.Column]) -> exp.Order:
    return exp.Order(
        expressions=[exp.Ordered(this=column, desc=True, nulls_first=False) for column in columns]
    )
