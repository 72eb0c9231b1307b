"""Rows whose values have types of their own, as Arrow batches of exactly the table's columns.

VALUES that have no common type are taken row by row: every value is cast by itself, and a row that
does not fit is refused by itself. Here that is done for many rows at once. The values of a column
are gathered by their types, each such array is cast whole, and the rows are put together again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.accept.cast import CastResult
from tidemill.accept.kinds import plain
from tidemill.accept.rows import Acceptor, Checked, rejects_of
from tidemill.types import Column


@dataclass(frozen=True)
class Cells:
    """The values of one column: arrays of one type each, and the rows that their values are of."""

    arrays: tuple[pa.Array, ...]
    rows: tuple[npt.NDArray[np.int64], ...]

    @classmethod
    def of(cls, values: Iterable[pa.Array]) -> Cells:
        """From arrays of one value each, in the order of the rows."""
        found: dict[pa.DataType, list[tuple[int, pa.Array]]] = {}
        for row, value in enumerate(values):
            array = plain(value)
            found.setdefault(array.type, []).append((row, array))
        return cls(
            tuple(pa.concat_arrays([array for _, array in group]) for group in found.values()),
            tuple(np.array([row for row, _ in group], np.int64) for group in found.values()),
        )

    def cast(self, acceptor: Acceptor, column: Column) -> CastResult:
        parts = [acceptor.caster.cast_column(array, column) for array in self.arrays]
        failures = {
            int(rows[at]): reason
            for rows, part in zip(self.rows, parts, strict=True)
            for at, reason in part.failures.items()
        }
        if len(parts) == 1:
            return CastResult(parts[0].array, failures)
        order = np.argsort(np.concatenate(self.rows))
        return CastResult(
            pa.concat_arrays([p.array for p in parts]).take(pa.array(order)), failures
        )

    def at(self, row: int) -> pa.Array:
        """The value of a row, as an array of it alone."""
        for array, rows in zip(self.arrays, self.rows, strict=True):
            place = int(np.searchsorted(rows, row))
            if place < len(rows) and rows[place] == row:
                return array.slice(place, 1)
        raise AssertionError(f"row {row} has no value")


def accept_cells(
    acceptor: Acceptor,
    names: Sequence[str],
    columns: Sequence[Cells],
    count: int,
    first_row: int = 1,
) -> Checked:
    """Check so many rows, each by itself; ``first_row`` is the number of the first in messages."""
    sources = acceptor.match(names)
    batch, failures = acceptor.check(
        count, sources, lambda at, column: columns[at].cast(acceptor, column)
    )
    if failures:
        worst = min(failures)
        acceptor.refuse_unless_diverted({worst: failures[worst]}, 1, first_row)
    rejects: list[tuple[str, str]] = []
    for row in sorted(failures):
        part = pa.RecordBatch.from_arrays([cells.at(row) for cells in columns], names=list(names))
        rejects += rejects_of(part, {0: failures[row]})
    if failures:
        kept = np.setdiff1d(np.arange(count), np.fromiter(failures, np.int64, len(failures)))
        batch = batch.take(pa.array(kept))
    stored = pa.RecordBatch.from_arrays(batch.columns, schema=acceptor.table.schema)
    return Checked((stored,), tuple(rejects))
