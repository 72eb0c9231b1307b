"""Panes: how finely the time of a sliding window is cut, and the ends of the window as SQL."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
from sqlglot import exp

from tidemill.sql.decompose.nodes import call, cast
from tidemill.sql.decompose.plan import sql_of
from tidemill.sql.maintain.binding import Binder
from tidemill.sql.maintain.lifting import End, Lifted
from tidemill.sql.maintain.plan import Pane
from tidemill.sql.maintain.refusals import refusal

PANES_PER_WINDOW = 50
_MS, _S, _M, _H = 1_000, 1_000_000, 60_000_000, 3_600_000_000
SIZES_US = (
    *(_MS, 10 * _MS, 100 * _MS),
    *(_S, 5 * _S, 10 * _S, 15 * _S, 30 * _S),
    *(_M, 5 * _M, 10 * _M, 15 * _M, 30 * _M),
    *(_H, 6 * _H, 12 * _H, 24 * _H, 7 * 24 * _H),
)
_ENDLESS_US = _H  # a window without a lower end: its panes are kept for as long as the rows are


def pane_of(key: str, lifted: Lifted, kind: str, binder: Binder) -> Pane:
    """The pane of a lifted window; ``kind`` is the type of the stream's time column."""
    low, low_open = _end(lifted.lows, "greatest", kind)
    high, high_open = _end(lifted.highs, "least", kind)
    return Pane(key, _size_us(low, high, binder), low, high, low_open, high_open)


def end_sql(ends: Sequence[End], kind: str) -> str:
    """The upper end of a window, with open ends moved to the last microsecond before them."""
    return sql_of(_nearest([_closed(end, kind) for end in ends], "least"))


def bucket(time: exp.Expression, size_us: int, kind: str) -> exp.Expression:
    """The start of the pane that a time is in."""
    has_zone = kind != "TIMESTAMP"
    epoch = exp.Literal.string("1970-01-01 00:00:00" + ("+00:00" if has_zone else ""))
    size = call("to_microseconds", exp.Literal.number(size_us))
    return call("time_bucket", size, time, cast(epoch, kind))


def _end(ends: Sequence[End], nearest: str, kind: str) -> tuple[str | None, bool]:
    """One end for several; open if any is, for then a pane at the end is read row by row."""
    if not ends:
        return None, False
    values = [cast(end.value.copy(), kind) for end in ends]
    return sql_of(_nearest(values, nearest)), any(end.is_open for end in ends)


def _nearest(values: list[exp.Expression], nearest: str) -> exp.Expression:
    return values[0] if len(values) == 1 else call(nearest, *values)


def _closed(end: End, kind: str) -> exp.Expression:
    value = cast(end.value.copy(), kind)
    if not end.is_open:
        return value
    step = call("to_microseconds", exp.Literal.number(1))
    return exp.Sub(this=value, expression=step)


def _size_us(low: str | None, high: str | None, binder: Binder) -> int:
    if low is None:
        return _ENDLESS_US
    try:
        lows = binder.moments_us(low)
        highs = binder.moments_us(high) if high is not None else binder.now_us
    except duckdb.Error as error:
        raise refusal(f"an end of the window fails: {str(error).splitlines()[0]}") from error
    length_us = 0
    for start, end in zip(lows, highs, strict=True):
        if start is None or end is None:
            raise refusal("an end of the window is NULL", "ts > now() - INTERVAL '5' MINUTE")
        length_us = max(length_us, end - start)
    fitting = [size for size in SIZES_US if size * PANES_PER_WINDOW <= length_us]
    return fitting[-1] if fitting else SIZES_US[0]
