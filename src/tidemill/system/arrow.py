"""How columns and rows become a system table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.clock import DATETIME_US_MAX, DATETIME_US_MIN
from tidemill.federation.system import schema

_INT_MAX = 2**63 - 1

Row = Mapping[str, object]
"""A row of a system table, by the names of its columns."""


def make_table(name: str, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    """A system table of columns; times and lengths are microseconds."""
    made = schema(name)
    return pa.Table.from_arrays(
        [_array(columns[each.name], each.type) for each in made], schema=made
    )


def make_table_of_rows(name: str, rows: Sequence[Row]) -> pa.Table:
    """A small system table of rows; a column that a row does not name is NULL."""
    return make_table(name, {each: [row.get(each) for row in rows] for each in schema(name).names})


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return _between(values, DATETIME_US_MIN, DATETIME_US_MAX).cast(kind)
    if pa.types.is_duration(kind):
        return _between(values, -_INT_MAX, _INT_MAX).cast(kind)
    return pa.array(values, kind)


def _between(values: Sequence[int | None], low: int, high: int) -> pa.Array:
    """Numbers, or the nearest bound. A partition may begin before the year 1 or end after 9999:
    times that Python does not know, and some that DuckDB breaks down on."""
    try:
        numbers = pa.array(values, pa.int64())
    except OverflowError:
        numbers = pa.array([v if v is None else min(max(v, low), high) for v in values], pa.int64())
    raised = pc.max_element_wise(numbers, low, skip_nulls=False)
    return pc.min_element_wise(raised, high, skip_nulls=False)
