"""The least and the greatest value of a column in a file, as the catalog keeps them.

A range is ``(low, high)``, or ``(low, high, form)`` for decimals and bytes, which JSON can hold
only as text. None means that the end is open; ``()`` means that there are only NULLs, which no
comparison finds. Ends may lie outside the values and never inside: NaN, which is greater than all
numbers, and infinities open an end, and so does text that is too long.

Times are microseconds and dates are days since 1970, as everywhere in Tidemill.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.catalog.model import Bound
from tidemill.history.ordering import words_of

TEXT_LENGTH_MAX = 64
POINTS_MIN = 8  # in a longer list the one value that a file may hold is searched for
DECIMAL, HEX = "decimal", "hex"

Interval = tuple[Any | None, bool, Any | None, bool]
"""Low, whether it is included, high, whether it is included; None is an open end."""


@dataclass(frozen=True)
class RangeCondition:
    """What a query surely asks of one column: that it lies in one of the intervals."""

    column: str
    intervals: tuple[Interval, ...]

    @cached_property
    def points(self) -> list[Any] | None:
        """The values of a long list in order, to be searched; None if it is none."""
        values = [interval[0] for interval in self.intervals if interval[0] == interval[2]]
        if len(values) < POINTS_MIN or len(values) < len(self.intervals):
            return None
        families = {_family(value) for value in values}
        return sorted(values) if len(families) == 1 and None not in families else None


@dataclass(frozen=True)
class FileBranch:
    """One branch of an OR: a span of time (both ends included), conditions, and further
    alternatives, all of which hold there."""

    low_us: int | None = None
    high_us: int | None = None
    conditions: tuple[RangeCondition, ...] = ()
    alternatives: tuple[FileAlternatives, ...] = ()

    def columns(self, time: str) -> Iterator[str]:
        """What it looks at, by name; ``time`` stands for the span."""
        if self.low_us is not None or self.high_us is not None:
            yield time
        yield from (condition.column for condition in self.conditions)
        for either in self.alternatives:
            yield from (name for branch in either for name in branch.columns(time))


FileAlternatives = tuple[FileBranch, ...]
"""An OR: a file matters if at least one of the branches may hold in it."""


class HasRanges(Protocol):
    """What the catalog knows of a file."""

    @property
    def time_min_us(self) -> int: ...
    @property
    def time_max_us(self) -> int: ...
    @property
    def ranges(self) -> Mapping[str, tuple[Bound, ...]]: ...


def may_hold_any(file: HasRanges, either: FileAlternatives) -> bool:
    """Whether a file can hold a row of one of the branches."""
    return any(_may_hold_all(file, branch) for branch in either)


def _may_hold_all(file: HasRanges, branch: FileBranch) -> bool:
    if branch.low_us is not None and file.time_max_us < branch.low_us:
        return False
    if branch.high_us is not None and file.time_min_us > branch.high_us:
        return False
    return all(may_hold_in(file, condition) for condition in branch.conditions) and all(
        may_hold_any(file, inner) for inner in branch.alternatives
    )


def may_hold_in(file: HasRanges, condition: RangeCondition) -> bool:
    """Whether a file can hold a row that satisfies a condition; of other columns than those with a
    range nothing is known."""
    found = file.ranges.get(condition.column)
    if not found or condition.points is None:
        return found is None or may_hold(found, condition.intervals)
    return _may_hold_point(*_ends(found), condition.points)


def _may_hold_point(low: Any, high: Any, points: list[Any]) -> bool:
    """Whether one of the points lies between two ends, of which one that is open or cannot be
    compared is no end."""
    family = _family(points[0])
    at = bisect_left(points, low) if _family(low) is family else 0
    return at < len(points) and (_family(high) is not family or points[at] <= high)


def range_of(column: pa.Array) -> tuple[Bound, ...] | None:
    """The range of a column, or None for types that have none here."""
    if column.null_count == len(column):
        return ()
    kind = column.type
    if pa.types.is_floating(kind):
        return _float_range(column)
    if kind == pa.uuid() or pa.types.is_binary(kind):
        return _hex_range(column.storage if kind == pa.uuid() else column)
    if pa.types.is_string(kind):
        low, high = _min_max(column)
        return low[:TEXT_LENGTH_MAX], high if len(high) <= TEXT_LENGTH_MAX else None
    if pa.types.is_decimal(kind):
        low, high = _min_max(column)
        return str(low), str(high), DECIMAL
    if pa.types.is_boolean(kind):
        low, high = _min_max(column)
        return int(low), int(high)
    if pa.types.is_integer(kind):
        return _min_max(column)
    if pa.types.is_date(kind):
        return _min_max(column.view(pa.int32()))
    if pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        return _min_max(column.view(pa.int64()))
    return None


def may_hold(found: Sequence[Bound], intervals: Sequence[Interval]) -> bool:
    """Whether a file of that range can hold a value in one of the intervals. In doubt, yes."""
    if not found:
        return False
    low, high = _ends(found)
    return any(_meets(low, high, interval) for interval in intervals)


def _ends(found: Sequence[Bound]) -> tuple[Any, Any]:
    form = found[2] if len(found) > 2 else None
    return _decoded(found[0], form), _decoded(found[1], form)


def united(one: tuple[Bound, ...], other: tuple[Bound, ...]) -> tuple[Bound, ...]:
    """The range of two columns, one after the other.

    >>> united((1, 5), (3, None)), united(("9.5", "9.5", DECIMAL), ("10", "10", DECIMAL))
    ((1, None), ('9.5', '10', 'decimal'))
    """
    if not one or not other:
        return one or other
    form = one[2] if len(one) > 2 else None
    ends = [
        None if None in (one[at], other[at]) else choose(one[at], other[at], key=_by_value(form))
        for at, choose in ((0, min), (1, max))
    ]
    return (*ends, *one[2:])


def _by_value(form: Bound) -> Callable[[Bound], Any]:
    return lambda bound: _decoded(bound, form)


def _meets(low: Any, high: Any, interval: Interval) -> bool:
    wanted_low, low_included, wanted_high, high_included = interval
    return not (
        _is_beyond(wanted_low, high, low_included) or _is_beyond(low, wanted_high, high_included)
    )


def _is_beyond(low: Any, high: Any, is_included: bool) -> bool:
    """Whether a low end surely lies above a high end, or meets it where that is excluded."""
    if low is None or high is None or _family(low) is not _family(high):
        return False
    try:
        return bool(low > high or (low == high and not is_included))
    except ArithmeticError:  # a decimal that is not a number
        return False


def _family(value: Any) -> type | None:
    """What a value can be compared with exactly."""
    if isinstance(value, int | float | Decimal):
        return Decimal
    return type(value) if isinstance(value, str | bytes) else None


def _decoded(bound: Bound, form: Bound) -> Any:
    if not isinstance(bound, str) or form is None:
        return bound
    return Decimal(bound) if form == DECIMAL else bytes.fromhex(bound)


def _min_max(column: pa.Array) -> tuple[Any, Any]:
    found = pc.min_max(column)
    return found["min"].as_py(), found["max"].as_py()


def _float_range(column: pa.Array) -> tuple[Bound, ...]:
    values = words_of(column.drop_null())
    numbers = values[~np.isnan(values)]
    if not len(numbers):
        return None, None
    low, high = float(numbers.min()), float(numbers.max())
    is_open = len(numbers) < len(values) or np.isinf(high)
    return None if np.isinf(low) else low, None if is_open else high


def _hex_range(column: pa.Array) -> tuple[Bound, ...]:
    low, high = _min_max(column.cast(pa.binary()))
    longest = TEXT_LENGTH_MAX // 2
    return low[:longest].hex(), high.hex() if len(high) <= longest else None, HEX
