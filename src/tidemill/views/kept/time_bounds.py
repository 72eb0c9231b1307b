"""How far in time the rows of two streams lie apart that a join brings together.

A condition like ``s.ts BETWEEN t.ts AND t.ts + INTERVAL '2' HOUR`` bounds the time of one stream by
that of the other. Each comparison of the two times, moved by constant intervals, is brought into
the form ``s.ts <= t.ts + offset`` or ``s.ts >= t.ts + offset``; other conditions say nothing here,
but if they have both times, that is told.
A month is taken as long as months get, so a bound is never narrower than what the query says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlglot import exp

from tidemill.sql.fold import constant
from tidemill.sql.intervals import interval_unit, parse_interval

_MONTH_US = 31 * 86_400_000_000
_US = timedelta(microseconds=1)
_FLIPPED: dict[Any, Any] = {
    exp.EQ: exp.EQ,
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
}
Is = Callable[[exp.Expr], bool]


@dataclass(frozen=True)
class TimeBounds:
    """What is seen of a stream beside a row: from ``row + low_us`` to ``row + high_us``, None where
    nothing is said. ``is_open``: the upper end itself is not seen. ``is_unclear``: another
    condition compares the two times, in a form that is not understood."""

    low_us: int | None = None
    high_us: int | None = None
    is_open: bool = False
    is_unclear: bool = False


@dataclass(frozen=True)
class _Length:
    us: int = 0
    months: int = 0

    def plus(self, other: _Length, sign: int) -> _Length:
        return _Length(self.us + sign * other.us, self.months + sign * other.months)


def time_bounds(conditions: Iterable[exp.Expr], is_side: Is, is_row: Is) -> TimeBounds:
    """The bounds of all conditions together; ``is_side`` and ``is_row`` know the two times."""
    low: int | None = None
    high: tuple[int, bool] | None = None  # the least; of equal ones the one that is open
    is_unclear = False
    for condition in conditions:
        compared = list(_compared(condition, is_side, is_row))
        is_unclear |= not compared and _has_both(condition, is_side, is_row)
        for op, length in compared:
            if op in (exp.GT, exp.GTE, exp.EQ):
                below = length.us + _MONTH_US * min(length.months, 0)
                low = below if low is None else max(low, below)
            if op in (exp.LT, exp.LTE, exp.EQ):
                above = (length.us + _MONTH_US * max(length.months, 0), op is not exp.LT)
                high = above if high is None else min(high, above)
    if high is None:
        return TimeBounds(low, is_unclear=is_unclear)
    return TimeBounds(low, high[0], is_open=not high[1], is_unclear=is_unclear)


def _has_both(condition: exp.Expr, is_side: Is, is_row: Is) -> bool:
    columns = list(condition.find_all(exp.Column))
    return any(map(is_side, columns)) and any(map(is_row, columns))


def _compared(node: exp.Expr, is_side: Is, is_row: Is) -> Iterator[tuple[Any, _Length]]:
    """Comparisons ``s.ts op t.ts + length`` that a condition makes."""
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        for op, bound in ((exp.GTE, node.args["low"]), (exp.LTE, node.args["high"])):
            found = _moved(node.this, bound, op, is_side, is_row)
            if found is not None:
                yield found
    elif type(node) in _FLIPPED:
        found = _moved(node.this, node.expression, type(node), is_side, is_row)
        if found is not None:
            yield found


def _moved(
    left: exp.Expr, right: exp.Expr, op: Any, is_side: Is, is_row: Is
) -> tuple[Any, _Length] | None:
    """``left op right`` with everything but the stream's time on the right."""
    terms = [(sign, node) for sign, node in _terms(left, 1)]
    terms += [(-sign, node) for sign, node in _terms(right, 1)]
    length, side, row = _Length(), 0, 0
    for sign, node in terms:
        if is_side(node):
            side += sign
        elif is_row(node):
            row += sign
        else:
            found = _length(node)
            if found is None:
                return None
            length = length.plus(found, sign)
    if (side, row) == (1, -1):
        return op, _Length().plus(length, -1)
    if (side, row) == (-1, 1):
        return _FLIPPED[op], length
    return None


def _terms(node: exp.Expr, sign: int) -> Iterator[tuple[int, exp.Expr]]:
    """The parts of a sum, each with its sign."""
    if isinstance(node, exp.Paren):
        yield from _terms(node.this, sign)
    elif isinstance(node, (exp.Add, exp.Sub)):
        yield from _terms(node.this, sign)
        yield from _terms(node.expression, sign if isinstance(node, exp.Add) else -sign)
    elif isinstance(node, exp.DateAdd) and isinstance(node.expression, exp.Interval):
        yield from _terms(node.this, sign)
        yield sign, node.expression
    else:
        yield sign, node


def _length(node: exp.Expr) -> _Length | None:
    if not isinstance(node, exp.Expression) or node.find(exp.Column) is not None:
        return None
    found = constant(node)
    if isinstance(found, timedelta):
        return _Length(found // _US)
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        span = parse_interval(f"{node.this.name} {interval_unit(node) or ''}".strip())
        return None if span is None else _Length(span.us, span.months)
    return None
