"""Other streams of an EVERY ROW query, which the rows that arrive are joined with.

A row sees of another stream the rows that are not younger than itself, and is answered once that
stream is complete up to its time. So it makes no difference when the answer is computed: a chain of
kept queries says the same in real time, in haste and after a restart. If the join itself says how
much younger partners may be (``side.ts <= row.ts + INTERVAL …``, an interval join), they are seen
up to there, and the row is answered once the stream is complete up to there.

1. ``take_sides`` puts a relation in the place of each such stream and lets its ON say what is seen.
   An ON that says ``side.ts < row.ts`` itself need not wait for rows of the very same time, and one
   that says ``side.ts > row.ts - INTERVAL …`` bounds what has to be read (``time_bounds``). So does
   the other stream's retention, as of the row's time.
2. ``Sides.upto`` says how far the rows of the stream can be answered by now.
3. ``Sides.read`` fetches what a batch can meet: rows of its span of time, and where the join
   compares columns by ``=``, those with a value of the batch. An index on such a column makes that
   cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidemill.catalog.model import Snapshot, Table
from tidemill.errors import UnsupportedError
from tidemill.sql.names import table_node
from tidemill.sql.scopes import Scope, enclosing_select
from tidemill.types import Column, quote
from tidemill.views.kept.environment import BEFORE_ALL_US, KeptEnvironment
from tidemill.views.kept.newest import like
from tidemill.views.kept.reads import Read, reads_of
from tidemill.views.kept.streams import ClockOf, moment, parameter, time_of
from tidemill.views.kept.time_bounds import time_bounds

Times = npt.NDArray[np.int64]

SIDE = "tm_side_"
KEYS_MAX = 20_000  # values of a column by which rows are looked for; more are not worth it
_HINT = "JOIN or LEFT JOIN it with ON, beside the stream whose rows are answered"


@dataclass(frozen=True)
class Side:
    """A stream that is joined; ``pairs`` are its columns and those of the rows that must equal
    them. What is seen ends ``reach_us`` behind a row's time (``is_open``: before that), and begins
    ``back_us`` before it, if the query says so."""

    table: Table
    relation: str
    pairs: tuple[tuple[str, str], ...] = ()
    reach_us: int = 0
    is_open: bool = False
    back_us: int | None = None

    @property
    def time(self) -> Column:
        return time_of(self.table)


def take_sides(tree: exp.Expression, read: Read, snapshot: Snapshot) -> tuple[Side, ...]:
    """Let a query's tree, which is changed, read relations instead of other streams than
    ``read``, the one whose rows are answered."""
    others = [each for each in reads_of(tree, snapshot) if each.node is not read.node]
    for other in others:
        _check(read, other)
    return tuple(_take(read, other, at, snapshot) for at, other in enumerate(others))


def check_retention(read: Read, sides: Sequence[Side]) -> None:
    """Refuse to wait longer for partners than rows are kept."""
    for side in sides:
        for table in (read.table, side.table):
            retention_us = table.settings["retention"]
            if retention_us is not None and retention_us <= side.reach_us:
                span = timedelta(microseconds=side.reach_us)
                raise UnsupportedError(
                    f'rows of "{table.name}" are not kept until all their partners are there',
                    detail=f'partners in "{side.table.name}" may be younger by {span}, and the '
                    f"retention is {table.settings.text('retention')}",
                    hint=f"ALTER TABLE {quote(table.name)} SET (retention = '…')",
                    position=read.position,
                )


def _take(read: Read, other: Read, number: int, snapshot: Snapshot) -> Side:
    join, select = other.node.parent, enclosing_select(other.node)
    assert isinstance(join, exp.Join)
    assert select is not None
    on = join.args["on"]
    scope = Scope(select, snapshot.find)
    pairs = (_pair(part, read, other, scope) for part in _conjuncts(on))
    found = tuple(pair for pair in pairs if pair is not None)
    bounds = time_bounds(
        _conditions(join, select),
        lambda node: _is_time_of(node, other, scope),
        lambda node: _is_time_of(node, read, scope),
    )
    if bounds.high_us is None and bounds.low_us is not None and bounds.low_us >= 0:
        raise _endless(read, other)
    if bounds.high_us is None and bounds.is_unclear:
        raise _unclear(read, other)
    reach_us = 0 if bounds.high_us is None else bounds.high_us
    back_us = None if bounds.low_us is None else -bounds.low_us
    retention_us = other.table.settings["retention"]
    is_cut = retention_us is not None and (back_us is None or back_us > retention_us)
    back_us = retention_us if is_cut else back_us
    side = Side(other.table, f"{SIDE}{number}", found, reach_us, bounds.is_open, back_us)
    if bounds.high_us is None:
        _demand(join, exp.LTE(this=_time_of(other), expression=_time_of(read)))
    if is_cut:
        since = exp.Sub(this=_time_of(read), expression=_microseconds(retention_us))
        _demand(join, exp.GTE(this=_time_of(other), expression=since))
    source = exp.Table(this=exp.to_identifier(side.relation))
    alias = exp.TableAlias(this=exp.to_identifier(other.alias, quoted=True))
    given = other.node.args.get("alias")
    source.set("alias", given.copy() if given is not None and given.this is not None else alias)
    other.node.replace(source)
    return side


def _demand(join: exp.Join, condition: exp.Expr) -> None:
    join.set("on", exp.and_(join.args["on"].copy(), condition))


def _time_of(read: Read) -> exp.Column:
    return exp.column(read.time.name, table=read.alias, quoted=True)


def _microseconds(count: int) -> exp.Func:
    return exp.func("to_microseconds", exp.Literal.number(count), dialect="duckdb")


def _conditions(join: exp.Join, select: exp.Select) -> Iterator[exp.Expr]:
    """What must hold for two rows to meet: ON, and WHERE if it is an inner join."""
    yield from _conjuncts(join.args["on"])
    where = select.args.get("where")
    if where is not None and not join.side:
        yield from _conjuncts(where.this)


def _endless(read: Read, other: Read) -> UnsupportedError:
    row, side = (f"{each.alias}.{each.time.name}" for each in (read, other))
    return UnsupportedError(
        f'rows of "{other.table.name}" that are younger than the row are joined without an end',
        detail="a row is answered once no partner of it is to come",
        hint=f"say how much younger at most: … AND {side} <= {row} + INTERVAL '1' HOUR; or begin "
        f'with "{other.table.name}" in FROM, whose rows then see older ones of '
        f'"{read.table.name}"',
        position=other.position,
    )


def _unclear(read: Read, other: Read) -> UnsupportedError:
    row, side = (f"{each.alias}.{each.time.name}" for each in (read, other))
    return UnsupportedError(
        f'the join with "{other.table.name}" does not say how much younger than the row its '
        "partners may be",
        detail="it compares the two times in a form from which that is not found",
        hint=f"say it beside: … AND {side} <= {row}, or … AND {side} <= {row} + INTERVAL '1' HOUR",
        position=other.position,
    )


def _pair(part: exp.Expr, read: Read, other: Read, scope: Scope) -> tuple[str, str] | None:
    """The columns of the two streams that a conjunct of ON compares by ``=``."""
    if not isinstance(part, exp.EQ):
        return None
    left, right = part.this, part.expression
    if not _is_of(left, other, scope):
        left, right = right, left
    if not _is_of(left, other, scope) or not _is_of(right, read, scope):
        return None
    own, given = other.table.get_column(left.name), read.table.get_column(right.name)
    if own.type != given.type or pa.types.is_nested(own.type.arrow):
        return None
    return own.name, given.name


def _is_time_of(node: exp.Expr, read: Read, scope: Scope) -> bool:
    return _is_of(node, read, scope) and node.name.lower() == read.time.name.lower()


def _is_of(node: exp.Expr, read: Read, scope: Scope) -> bool:
    found = scope.resolve(node) if isinstance(node, exp.Column) else None
    return found is not None and found.node is read.node


def _check(read: Read, other: Read) -> None:
    def refuse(message: str, hint: str = _HINT) -> UnsupportedError:
        return UnsupportedError(message, hint=hint, position=other.position)

    name = other.table.name
    if other.table.is_view:
        raise refuse(
            f'EVERY ROW reads streams, "{name}" is a view',
            "EVERY INTERVAL '…' reads views; or join the stream that the view sums up",
        )
    if other.call is not None:
        raise refuse(
            "EVERY ROW reads one window, that of the stream in FROM",
            f'join "{name}" itself, and say in ON how far back: … AND s.ts > t.ts - INTERVAL …',
        )
    if read.call is not None:
        raise refuse(
            "rows with a window are not joined with another stream",
            "keep the answers of the window as a streaming table first, and join that",
        )
    join, select = other.node.parent, enclosing_select(other.node)
    if select is None or select is not enclosing_select(read.node):
        raise refuse(f'EVERY ROW reads "{name}" where its rows cannot be told by their time')
    if not isinstance(join, exp.Join) or join.args.get("on") is None:
        raise refuse(f'the join with stream "{name}" says no ON')
    is_inner = not join.side and join.kind.upper() in ("", "INNER")
    is_left = join.side.upper() == "LEFT" and join.kind.upper() in ("", "OUTER")
    if join.method or not (is_inner or is_left):
        raise refuse(f'EVERY ROW cannot join stream "{name}" that way')


def _conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.Paren):
        yield from _conjuncts(node.this)
    elif isinstance(node, exp.And):
        yield from _conjuncts(node.left)
        yield from _conjuncts(node.right)
    else:
        yield node


class Sides:
    """The other streams of a query, as they are needed batch by batch."""

    def __init__(
        self, sides: Sequence[Side], environment: KeptEnvironment, clock_of: ClockOf
    ) -> None:
        self._sides = tuple(sides)
        self._environment = environment
        self._clock_of = clock_of
        self._trees: dict[tuple[str, tuple[str, ...]], exp.Expression] = {}

    def __bool__(self) -> bool:
        return bool(self._sides)

    def upto(self, times: Times) -> int:
        """How many of the first rows, by their times, can be answered by now."""
        count = len(times)
        for side in self._sides:
            clock_us = self._clock_of(side.table)
            if clock_us is None:
                return 0
            ends = times + side.reach_us
            waits = ends > clock_us if side.is_open else ends >= clock_us
            if waits.any():
                count = min(count, int(np.argmax(waits)))
        return count

    @property
    def reach_us(self) -> int:
        """How much younger than a row its partners may be."""
        return max((side.reach_us for side in self._sides), default=0)

    def read(self, rows: pa.Table, times: Times) -> Mapping[str, pa.Table]:
        """The relations of a batch, which is not empty."""
        span = int(times.min()), int(times.max())
        return {side.relation: self._read(side, rows, *span) for side in self._sides}

    def _read(self, side: Side, rows: pa.Table, oldest_us: int, newest_us: int) -> pa.Table:
        until_us = newest_us + side.reach_us
        values: dict[str, object] = {"tm_until": moment(until_us, side.time)}
        if side.back_us is not None:
            values["tm_since"] = moment(oldest_us - side.back_us, side.time)
        used: list[str] = []
        for own, given in side.pairs:
            distinct = pc.unique(rows.column(given).combine_chunks()).drop_null()
            if len(distinct) <= KEYS_MAX:
                values[f"tm_key_{len(used)}"] = distinct.to_pylist()
                used.append(own)
        tree = self._tree(side, tuple(used))
        answer, _ = self._environment.evaluate(tree, BEFORE_ALL_US, values, exact=True)
        return like(answer, side.table.schema)

    def _tree(self, side: Side, used: tuple[str, ...]) -> exp.Expression:
        """The same tree with every call, so that its plan is kept."""
        known = self._trees.get((side.relation, used))
        if known is not None:
            return known
        time = exp.column(side.time.name, quoted=True)
        conditions: list[exp.Expr] = [
            exp.LTE(this=time, expression=parameter("tm_until", side.time))
        ]
        if side.back_us is not None:
            since = parameter("tm_since", side.time)
            conditions.append(exp.GTE(this=time.copy(), expression=since))
        for at, name in enumerate(used):
            column = side.table.get_column(name)
            listed = exp.cast(
                exp.Placeholder(this=f"tm_key_{at}"), f"{column.type}[]", dialect="duckdb"
            )
            values = exp.select(exp.func("unnest", listed, dialect="duckdb"))
            conditions.append(
                exp.In(this=exp.column(name, quoted=True), query=exp.Subquery(this=values))
            )
        tree = exp.select("*").from_(table_node(side.table.name)).where(*conditions)
        self._trees[side.relation, used] = tree
        return tree
