"""Sessions as intervals: a partial has the sessions of its rows, and a merge joins the near ones.

The digest of ``SESSION(t, ts, gap, partition_by => p)`` has a row for each session of some rows:
the partition keys, the time of its first and of its last row, and the states of its rows.

1. **partial**: the sessions among the rows given, by the SQL that SESSION is rewritten to;
2. **merge**: intervals of a partition, by their first time; one that begins nearer than the gap to
   the latest end so far belongs to the same session. Joining intervals is associative: two that are
   apart stay apart until one comes that reaches both;
3. **final**: ``window_start`` is the first time, ``window_end`` the last plus the gap; conditions
   on them and the query's own grouping come after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from tidemill.sql.calls import Call
from tidemill.sql.decompose import MERGE_SOURCE, Decomposition
from tidemill.sql.decompose.blocks import AGGREGATE, Block
from tidemill.sql.decompose.calls import find_aggregates
from tidemill.sql.decompose.names import output_names
from tidemill.sql.decompose.nodes import call as function
from tidemill.sql.decompose.nodes import column, filtered, named, nested
from tidemill.sql.decompose.plan import sql_of
from tidemill.sql.maintain.lifting import conjuncts_of, has_now
from tidemill.sql.maintain.plan import ROWS
from tidemill.sql.maintain.refusals import refusal
from tidemill.sql.windows import session_select

START, END = "window_start", "window_end"
FIRST, LAST = "tm_first", "tm_last"
_SESSION, _OPENS = "tm_session", "tm_opens"


@dataclass(frozen=True)
class SessionSplit:
    """The parts of a digest of sessions; ``source`` stands for ``tm_partials`` in the final."""

    partial: exp.Select
    merge: exp.Select
    keys: tuple[str, ...]
    states: tuple[str, ...]
    source: exp.Subquery


def take_conditions(block: Block, call: Call, spelling: Mapping[str, str]) -> list[exp.Expression]:
    """Take the WHERE out of a block over sessions, in place; answers what it asks of sessions.

    What it asks of rows becomes a FILTER of each aggregate, for a session has all its rows."""
    select = block.select
    if block.kind != AGGREGATE or len(block.levels) > 1 or select.args.get("joins"):
        raise refusal(
            "the rows of a SESSION are not grouped by their session at once",
            "SELECT …, window_start, window_end, count(*) FROM SESSION(…) GROUP BY ALL, "
            "and join or filter the groups outside",
            select,
        )
    where = select.args.get("where")
    found = [conjunct.copy() for conjunct in conjuncts_of(where.this)] if where is not None else []
    of_rows = [conjunct for conjunct in found if _other(conjunct, call) is not None]
    for conjunct in of_rows:
        if has_now(conjunct) or conjunct.find(exp.Query) is not None:
            raise refusal(
                "WHERE compares rows of sessions with now() or with a subquery",
                "compare window_start or window_end, or filter the groups outside",
                conjunct,
            )
    select.set("where", None)
    if of_rows:
        condition = exp.and_(*of_rows)
        assert isinstance(condition, exp.Expression)
        _filter_aggregates(select, condition, spelling)
    return [conjunct for conjunct in found if conjunct not in of_rows]


def _filter_aggregates(
    select: exp.Select, condition: exp.Expression, spelling: Mapping[str, str]
) -> None:
    """Every aggregate of a SELECT over the rows that a condition holds for; groups without any
    are left out."""
    names = output_names(select, spelling)
    if len(names) == len(select.expressions):  # a star beside aggregates is refused later on
        pairs = zip(select.expressions, names, strict=True)
        select.set("expressions", [named(item.unalias().copy(), name) for item, name in pairs])
    having = select.args.get("having")
    clauses = [having, select.args.get("qualify"), select.args.get("order")]
    parts = [*select.expressions, *(clause for clause in clauses if clause is not None)]
    for aggregate in [found for part in parts for found in find_aggregates(part)]:
        node = aggregate.node
        if isinstance(node, exp.Filter):
            node.expression.set("this", exp.and_(node.expression.this, condition))
        else:
            node.replace(filtered(node.copy(), condition))
    if select.args.get("group") is None:
        return  # without keys there is one group, of no rows if need be
    count = filtered(function("count", exp.Star()), condition)
    is_there = exp.GT(this=count, expression=exp.Literal.number(0))
    wanted = exp.and_(having.this, is_there) if having is not None else is_there
    select.set("having", exp.Having(this=wanted))


def _other(node: exp.Expression, call: Call) -> exp.Expression | None:
    """A column that is not the same for all rows of a session, or a subquery."""
    known = {START, END, *(name.lower() for name in call.partition_by)}
    for found in node.find_all(exp.Column, exp.Query):
        if not isinstance(found, exp.Column) or found.name.lower() not in known:
            assert isinstance(found, exp.Expression)
            return found
    return None


def split_sessions(
    parts: Decomposition, call: Call, conditions: list[exp.Expression], alias: str, digest: str
) -> SessionSplit:
    """The digest behind a block over sessions that was split as if its rows were a table's."""
    items = parts.partial.expressions
    keys, states = items[: len(parts.keys)], items[len(parts.keys) :]
    _check(keys, states, call)
    prefix = parts.keys[0].rstrip("0123456789") if parts.keys else "k"
    names = [f"{prefix}{at}" for at in range(len(call.partition_by))]
    partial = _partial(call, names, states, alias)
    return SessionSplit(
        partial,
        _merge(parts, call, names),
        (*names, FIRST),
        (LAST, *parts.states),
        nested(_source(parts, call, names, keys, conditions, alias, digest), "tm_sessions"),
    )


def _check(keys: list[exp.Alias], states: list[exp.Alias], call: Call) -> None:
    for key in keys:
        other = _other(key, call)
        if other is not None:
            name = sql_of(other)
            partition = ", ".join((*call.partition_by, name))
            raise refusal(
                f"sessions are grouped by {name}, which is not in their partition_by",
                f"SESSION(…, partition_by => ({partition}))",
                key.this,
            )
    for state in states:
        for found in state.find_all(exp.Column):
            if found.name.lower() in (START, END):
                raise refusal(
                    f"{found.name} of a session is not known before its last row has come",
                    "group by window_start and window_end first, and aggregate that outside",
                    found,
                )


def _partial(call: Call, names: list[str], states: list[exp.Alias], alias: str) -> exp.Select:
    rows = session_select(call)
    for table in rows.find_all(exp.Table):
        table.set("this", exp.to_identifier(ROWS))
    by = [*map(column, call.partition_by), column(START)]
    return exp.Select(
        expressions=[
            *(named(part, name) for part, name in zip(by, (*names, FIRST), strict=True)),
            named(function("max", column(call.time.name)), LAST),
            *(state.copy() for state in states),
        ],
        from_=exp.From(this=_aliased(rows, alias)),
        group=exp.Group(expressions=[exp.Literal.number(n) for n in range(1, len(by) + 1)]),
    )


def _aliased(select: exp.Select, alias: str) -> exp.Subquery:
    name = exp.to_identifier(alias, quoted=True)
    return exp.Subquery(this=select, alias=exp.TableAlias(this=name))


def _merge(parts: Decomposition, call: Call, names: list[str]) -> exp.Select:
    """The merge of the states, by partition and session in place of the query's keys."""
    merge = parts.merge.copy()
    inner = _reader(merge)
    count = len(parts.keys)
    times = [
        named(function("min", column(FIRST)), FIRST),
        named(function("max", column(LAST)), LAST),
    ]
    inner.set(
        "expressions", [*map(column, names), *times, *(e.copy() for e in inner.expressions[count:])]
    )
    inner.set("group", exp.Group(expressions=[*map(column, names), column(_SESSION)]))
    inner.set("from_", exp.From(this=nested(_islands(call, names), "tm_sessions")))
    if inner is not merge:
        rest = [item.copy() for item in merge.expressions[count:]]
        merge.set("expressions", [*map(column, (*names, FIRST, LAST)), *rest])
    return merge


def _reader(merge: exp.Select) -> exp.Select:
    """The SELECT of a merge that reads the partials: itself, or the one inside."""
    inner = merge.args["from_"].this
    return inner.this if isinstance(inner, exp.Subquery) else merge


def _islands(call: Call, names: list[str]) -> exp.Select:
    """The partials with the number of their session within the partition."""
    in_order = exp.Order(
        expressions=[exp.Ordered(this=column(name), nulls_first=False) for name in (FIRST, LAST)]
    )

    def over(node: exp.Expression, end: str) -> exp.Window:
        spec = exp.WindowSpec(
            kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end=end, end_side="PRECEDING"
        )
        if end == "CURRENT ROW":
            spec.set("end_side", None)
        window = exp.Window(this=node, order=in_order.copy(), spec=spec, over="OVER")
        if names:
            window.set("partition_by", [column(name) for name in names])
        return window

    before = over(function("max", column(LAST)), "1")
    distance = exp.Sub(
        this=function("epoch_us", column(FIRST)), expression=function("epoch_us", before)
    )
    is_near = exp.LT(this=distance, expression=exp.Literal.number(call.size_us))
    zero, one = exp.Literal.number(0), exp.Literal.number(1)
    opens = exp.Case(ifs=[exp.If(this=is_near, true=zero)], default=one)
    source = exp.From(this=exp.Table(this=exp.to_identifier(MERGE_SOURCE)))
    inner = exp.Select(expressions=[exp.Star(), named(opens, _OPENS)], from_=source)
    number = over(function("sum", column(_OPENS)), "CURRENT ROW")
    return exp.Select(
        expressions=[exp.Star(), named(number, _SESSION)],
        from_=exp.From(this=nested(inner, "tm_opened")),
    )


def _source(
    parts: Decomposition,
    call: Call,
    names: list[str],
    keys: list[exp.Alias],
    conditions: list[exp.Expression],
    alias: str,
    digest: str,
) -> exp.Select:
    """What the final reads: the states of sessions, merged by the query's own keys."""
    end = exp.Add(
        this=column(LAST),
        expression=function("to_microseconds", exp.Literal.number(call.size_us)),
    )
    partition = zip(names, call.partition_by, strict=True)
    sessions = exp.Select(
        expressions=[
            *(named(column(name), given) for name, given in partition),
            named(column(FIRST), START),
            named(end, END),
            *map(column, parts.states),
        ],
        from_=exp.From(this=exp.Table(this=exp.to_identifier(digest))),
    )
    by_keys = exp.Select(
        expressions=[*(key.copy() for key in keys), *map(column, parts.states)],
        from_=exp.From(this=_aliased(sessions, alias)),
    )
    if conditions:
        by_keys.set("where", exp.Where(this=exp.and_(*conditions)))
    if _tells_sessions(keys, call):
        return by_keys
    merge = parts.merge.copy()
    _reader(merge).set("from_", exp.From(this=nested(by_keys, "tm_keyed")))
    return merge


def _tells_sessions(keys: list[exp.Alias], call: Call) -> bool:
    """Whether each session has keys of its own, so that there is nothing to merge."""
    plain = {key.this.name.lower() for key in keys if isinstance(key.this, exp.Column)}
    return plain >= {name.lower() for name in call.partition_by} and bool(plain & {START, END})
