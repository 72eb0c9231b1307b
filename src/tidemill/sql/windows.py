"""Stream windows as plain SQL: TUMBLE, HOP, SESSION and RECENT in FROM become subqueries.

Each is a function from the call's arguments to a SELECT over the base table, which stays an
ordinary table reference for the scan planner. Windows are half-open ``[start, end)``, but RECENT
has both its ends (document 002, Def. 2: a row that is exactly the interval old belongs to it):

- TUMBLE: ``window_start`` is the time cut to a multiple of the size since 1970-01-01 UTC.
- HOP: starts are multiples of the slide; a row meets a small series of offsets, one for each
  start that may cover it, and those that do not are dropped.
- SESSION: a row opens a session unless the row before it (of its partition) is nearer than the
  gap; counting the openings numbers the sessions. Rows of one time share their number.
- RECENT: the last interval of time, the k newest rows, or the k newest rows of each key, up to an
  upper bound that the table's clock gives. Newest means the greatest ``(time, _seq)``.

What now is can be decided here (``rewrite``) or when the plan runs (``rewrite_deferred``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlglot import exp

from tidemill.clock import from_us, to_us
from tidemill.errors import QueryError, UnsupportedError
from tidemill.sql.calls import Call, Tables, read_call
from tidemill.sql.names import position_of, table_node
from tidemill.sql.params import Params
from tidemill.sql.spelling import WINDOW_FUNCTIONS
from tidemill.types import SEQ, Column

HOP_WINDOWS_MAX = 100_000
SIZE = "tidemill_size_us"  # in the meta of a window_end: how long after window_start it is
_MIN_US, _MAX_US = to_us(datetime.min), to_us(datetime.max)


@dataclass(frozen=True, slots=True)
class NowBounds:
    """A table's clock for one query: what now is, and the newest time that counts as arrived."""

    now_us: int
    upper_us: int


Now = Callable[[str], NowBounds]


@dataclass(frozen=True, slots=True)
class Bound:
    """A parameter that the rewrite left open: a table's now (or upper bound) minus an offset."""

    name: str
    table: str
    upper: bool
    before_us: int
    has_zone: bool

    def value(self, now: Now) -> datetime:
        bounds = now(self.table)
        us = (bounds.upper_us if self.upper else bounds.now_us) - self.before_us
        moment = from_us(min(max(us, _MIN_US), _MAX_US))
        return moment.replace(tzinfo=UTC) if self.has_zone else moment


@dataclass(frozen=True)
class Rewritten:
    """A query without stream windows, and the parameters to fill when it runs."""

    query: exp.Expression
    bounds: tuple[Bound, ...]


def rewrite_deferred(
    query: exp.Expression, tables: Tables, params: Params = None, *, copy: bool = True
) -> Rewritten:
    """The query with stream windows as subqueries and now as named parameters."""
    bounds: list[Bound] = []

    def parameter(bound: Bound) -> exp.Expression:
        named = Bound(
            f"tidemill_bound_{len(bounds)}",
            bound.table,
            bound.upper,
            bound.before_us,
            bound.has_zone,
        )
        bounds.append(named)
        node = exp.Placeholder(this=named.name)
        return exp.cast(node, _type_name(bound.has_zone), dialect="duckdb")

    return Rewritten(_rewrite(query, tables, params, parameter, copy), tuple(bounds))


_BoundNode = Callable[[Bound], exp.Expression]


def _rewrite(
    query: exp.Expression, tables: Tables, params: Params, bound: _BoundNode, copy: bool
) -> exp.Expression:
    if not any(window_call(node) for node in query.find_all(exp.Table)):
        return query
    tree = query.copy() if copy else query
    for node in list(tree.find_all(exp.Table)):
        function = window_call(node)
        if function is None:
            continue
        call = read_call(function, node, tables, params)
        ordered = _is_plain(node)
        select = _BUILDERS[function.name.upper()](call, bound, ordered)
        node.replace(_subquery(node, select, call))
    return tree


def recent_target(
    node: exp.Table, tables: Tables, params: Params, now: Now
) -> tuple[exp.Table, exp.Expression]:
    """The table of a RECENT call that is the target of a change, and which of its rows it means."""
    function = window_call(node)
    if function is None or function.name.upper() != "RECENT":
        raise UnsupportedError(
            "of windows RECENT alone can be changed",
            hint="name the table, and the span of time in WHERE",
            position=position_of(node),
        )
    call = read_call(function, node, tables, params)

    def moment(bound: Bound) -> exp.Expression:
        text = exp.Literal.string(str(bound.value(now)))
        return exp.cast(text, _type_name(bound.has_zone), dialect="duckdb")

    target = table_node(call.table.name)
    alias = node.args.get("alias")
    if alias is not None:
        target.set("alias", alias.copy())
    select, name = _recent(call, moment, False), target.alias_or_name
    if call.rows is None:
        condition = select.args["where"].this
        for column in condition.find_all(exp.Column):
            column.set("table", exp.to_identifier(name, quoted=True))
        return target, exp.paren(condition, copy=False)
    select.set("expressions", [_column(SEQ)])
    number = exp.column(SEQ, table=name, quoted=True)
    return target, exp.In(this=number, query=exp.Subquery(this=select))


def window_call(node: exp.Table) -> exp.Anonymous | None:
    """The window call of a FROM item; ``TABLE(f(…))`` is ``f(…)``."""
    this = node.this
    if isinstance(this, exp.Anonymous) and this.name.upper() == "TABLE" and this.expressions:
        this = this.expressions[0]
    if isinstance(this, exp.Anonymous) and this.name.upper() in WINDOW_FUNCTIONS:
        return this
    return None


def _subquery(node: exp.Table, select: exp.Select, call: Call) -> exp.Subquery:
    alias = node.args.get("alias") or exp.TableAlias()
    if alias.this is None:
        alias.set("this", exp.to_identifier(call.table.name.rpartition(".")[2], quoted=True))
    kept = {
        key: node.args[key] for key in ("joins", "pivots", "sample", "laterals") if key in node.args
    }
    return exp.Subquery(this=select, alias=alias, **kept)


def _is_plain(node: exp.Table) -> bool:
    """Whether the rows' order reaches the user: the outermost SELECT only projects and filters."""
    parent = node.parent
    select = parent.parent if isinstance(parent, exp.From) else None
    if not isinstance(select, exp.Select) or select.parent is not None:
        return False
    if any(select.args.get(key) for key in ("joins", "group", "order", "distinct", "having")):
        return False
    if any(select.args.get(key) for key in ("qualify", "laterals", "pivots", "sample")):
        return False
    return not any(part.find(exp.AggFunc, exp.Window) for part in select.expressions)


# The parts of which the selects are made.


def _column(name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def _columns(columns: Sequence[Column]) -> list[exp.Expression]:
    return [_column(column.name) for column in columns]


def _named(node: exp.Expression, name: str) -> exp.Expression:
    return exp.Alias(this=node, alias=exp.to_identifier(name, quoted=True))


def _call(name: str, *arguments: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _number(value: int) -> exp.Expression:
    return exp.Literal.number(value)


def _micros(value: int) -> exp.Expression:
    return _call("to_microseconds", _number(value))


def _type_name(has_zone: bool) -> str:
    return "TIMESTAMPTZ" if has_zone else "TIMESTAMP"


def _epoch(has_zone: bool) -> exp.Expression:
    text = "1970-01-01 00:00:00" + ("+00:00" if has_zone else "")
    return exp.cast(exp.Literal.string(text), _type_name(has_zone), dialect="duckdb")


def _bucket(call: Call, size_us: int) -> exp.Expression:
    return _call("time_bucket", _micros(size_us), _column(call.time.name), _epoch(call.has_zone))


def _select(
    columns: list[exp.Expression], source: exp.Expression, where: exp.Expression | None = None
) -> exp.Select:
    select = exp.Select(expressions=columns, from_=exp.From(this=source))
    if where is not None:
        select.set("where", exp.Where(this=where))
    return select


def _nested(select: exp.Select, alias: str) -> exp.Subquery:
    return exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(alias)))


def _not_null(call: Call) -> exp.Expression | None:
    """Rows without a time are in no window; only a table's own time column is never NULL."""
    if not call.time.nullable:
        return None
    return exp.Not(this=exp.Is(this=_column(call.time.name), expression=exp.Null()))


def _newest_first(call: Call) -> exp.Order:
    names = (call.time.name, SEQ)
    return exp.Order(
        expressions=[
            exp.Ordered(this=_column(name), desc=True, nulls_first=False) for name in names
        ]
    )


def _with_window(call: Call) -> list[exp.Expression]:
    for name in ("window_start", "window_end"):
        if any(column.name.lower() == name for column in call.table.columns):
            raise QueryError(
                f'table "{call.table.name}" has a column "{name}" of its own',
                hint="window functions add that column; rename the table's own",
            )
    return _columns(call.table.columns)


def _window_end(end: exp.Expression, call: Call) -> exp.Expression:
    """The end of a window, with its size in mind: it follows from the start."""
    named = _named(end, "window_end")
    named.meta[SIZE] = call.size_us
    return named


# One function for each window.


def _tumble(call: Call, bound: _BoundNode, ordered: bool) -> exp.Select:
    columns = _with_window(call)
    start = _bucket(call, call.size_us)
    end = exp.Add(this=start.copy(), expression=_micros(call.size_us))
    columns += [_named(start, "window_start"), _window_end(end, call)]
    return _select(columns, table_node(call.table.name), _not_null(call))


def _hop(call: Call, bound: _BoundNode, ordered: bool) -> exp.Select:
    """The latest start at or before the row, minus each multiple of the slide below the size."""
    size, slide = call.size_us, call.slide_us
    if size // slide > HOP_WINDOWS_MAX:
        raise QueryError(
            f"a row would be in {size // slide} windows",
            hint=f"at most {HOP_WINDOWS_MAX}: choose a longer slide or a shorter size",
            position=call.position,
        )
    columns = _with_window(call)
    offset = call.free_name("_offset")
    latest = _call("epoch_us", _bucket(call, slide))
    start_us = exp.Sub(this=latest, expression=_column(offset))
    make = "make_timestamptz" if call.has_zone else "make_timestamp"
    start = _call(make, start_us)
    end = _call(make, exp.Add(this=exp.Paren(this=start_us.copy()), expression=_number(size)))
    columns += [_named(start, "window_start"), _window_end(end, call)]
    where = _not_null(call)
    if size % slide:
        covers = exp.LT(this=_column(call.time.name), expression=end.copy())
        where = covers if where is None else exp.And(this=where, expression=covers)
    select = _select(columns, table_node(call.table.name), where)
    offsets = exp.Table(
        this=_call("range", _number(0), _number(size), _number(slide)),
        alias=exp.TableAlias(
            this=exp.to_identifier(call.free_name("_offsets")),
            columns=[exp.to_identifier(offset, quoted=True)],
        ),
    )
    select.set("joins", [exp.Join(this=offsets, kind="CROSS")])
    return select


def _session(call: Call, bound: _BoundNode, ordered: bool) -> exp.Select:
    return session_select(call)


def session_select(call: Call) -> exp.Select:
    """The rows of a SESSION call with the window of their session."""
    opens, session = call.free_name("_opens"), call.free_name("_session")
    time = call.time.name
    keys = [_column(name) for name in call.partition_by]

    def over(function: exp.Expression, parts: list[exp.Column], in_order: bool) -> exp.Window:
        window = exp.Window(this=function, over="OVER")
        if parts:
            window.set("partition_by", [part.copy() for part in parts])
        if in_order:
            window.set("order", exp.Order(expressions=[exp.Ordered(this=_column(time))]))
        return window

    before = over(_call("lag", _column(time)), keys, True)
    near = exp.LT(
        this=exp.Sub(this=_call("epoch_us", _column(time)), expression=_call("epoch_us", before)),
        expression=_number(call.size_us),
    )
    opening = exp.Case(ifs=[exp.If(this=near, true=_number(0))], default=_number(1))
    inner = _select(
        [*_columns(call.table.columns), _named(opening, opens)],
        table_node(call.table.name),
        _not_null(call),
    )
    number = over(_call("sum", _column(opens)), keys, True)
    middle = _select(
        [*_columns(call.table.columns), _named(number, session)], _nested(inner, "_rows")
    )
    parts = [*keys, _column(session)]
    first = over(_call("min", _column(time)), parts, False)
    last = over(_call("max", _column(time)), parts, False)
    end = exp.Add(this=last, expression=_micros(call.size_us))
    return _select(
        [*_with_window(call), _named(first, "window_start"), _named(end, "window_end")],
        _nested(middle, "_sessions"),
    )


def _recent(call: Call, bound: _BoundNode, ordered: bool) -> exp.Select:
    time, table = call.time.name, call.table.name
    newest = bound(Bound("", table, upper=True, before_us=0, has_zone=call.has_zone))
    where: exp.Expression = exp.LTE(this=_column(time), expression=newest)
    if call.rows is None:
        oldest = bound(
            Bound("", table, upper=False, before_us=call.size_us, has_zone=call.has_zone)
        )
        where = exp.And(this=exp.GTE(this=_column(time), expression=oldest), expression=where)
    select = _select(_columns(call.table.columns), table_node(table), where)
    if call.rows is not None and call.partition_by:
        rank = exp.Window(
            this=_call("row_number"),
            partition_by=[_column(name) for name in call.partition_by],
            order=_newest_first(call),
            over="OVER",
        )
        limit = exp.LTE(this=rank, expression=_number(call.rows))
        select.set("qualify", exp.Qualify(this=limit))
    elif call.rows is not None:
        select.set("limit", exp.Limit(expression=_number(call.rows)))
        ordered = True
    if ordered:
        select.set("order", _newest_first(call))
    return select


_BUILDERS: dict[str, Callable[[Call, _BoundNode, bool], exp.Select]] = {
    "TUMBLE": _tumble,
    "HOP": _hop,
    "SESSION": _session,
    "RECENT": _recent,
}
