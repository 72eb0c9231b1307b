"""Literal rows of an INSERT as Arrow, in the very types that DuckDB gives VALUES."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa

from tidemill.accept.cells import Cells, accept_cells
from tidemill.accept.rows import Acceptor, Checked
from tidemill.sql import casting as kinds
from tidemill.sql.casting import Cell, IntervalParts, scale_of
from tidemill.sql.literal_rows import LiteralRows

_ARROW = {
    kinds.NULL: pa.null(),
    kinds.BOOLEAN: pa.bool_(),
    **dict.fromkeys((kinds.INTEGER, kinds.NARROW), pa.int64()),
    kinds.DOUBLE: pa.float64(),
    **dict.fromkeys((kinds.TEXT, kinds.VARCHAR, kinds.UUID), pa.string()),
    kinds.DATE: pa.date32(),
    kinds.TIME: pa.time64("us"),
    kinds.TIMESTAMP: pa.timestamp("us"),
    kinds.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
    kinds.INTERVAL: pa.month_day_nano_interval(),
}


def accept_literals(acceptor: Acceptor, rows: LiteralRows, names: Sequence[str]) -> Checked:
    """Check literal rows for a table, as columns of the given names."""
    if rows.is_by_row:
        cells = [_cells(column) for column in rows.columns]
        return accept_cells(acceptor, names, cells, len(rows.columns[0]))
    return acceptor.accept(pa.table(list(map(array_of, rows.columns)), names=list(names)))


def array_of(cells: Sequence[Cell]) -> pa.Array:
    """Cells that are NULL or of one kind, decimals of one scale."""
    kind = next((kind for kind, _ in cells if kind != kinds.NULL), kinds.NULL)
    values = [value for _, value in cells]
    if kind == kinds.INTERVAL:
        values = [_month_day_nano(span) if isinstance(span, tuple) else None for span in values]
    return pa.array(values, _decimal(values) if kind == kinds.DECIMAL else _ARROW[kind])


def _month_day_nano(span: IntervalParts) -> pa.MonthDayNano:
    months, days, us = span
    return pa.MonthDayNano([months, days, us * 1_000])


def _decimal(values: Sequence[object]) -> pa.DataType:
    numbers = [value for value in values if isinstance(value, Decimal)]
    scale = scale_of(numbers[0])
    return pa.decimal128(max(max(n.adjusted() + 1, 1) for n in numbers) + scale, scale)


def _cells(column: Sequence[Cell]) -> Cells:
    """Each value in its own type, gathered by type; NULL has one of its own."""
    found: dict[tuple[str, int], list[int]] = {}
    for row, (kind, value) in enumerate(column):
        shape = scale_of(value) if isinstance(value, Decimal) else 0
        found.setdefault((kind, shape), []).append(row)
    return Cells(
        tuple(array_of([column[row] for row in rows]) for rows in found.values()),
        tuple(np.array(rows, np.int64) for rows in found.values()),
    )
