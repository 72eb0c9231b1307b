"""Arranging: how rows lie in a file of history. One rule for moves, loads and compactions.

A file must serve a short window of time, and one key within a window. So it is a grid:

1. rows are cut into slices of time (``slices``);
2. the rows of a slice are ordered by key, then time, then ``_seq``; without a key, by time alone;
3. slices are cut into row groups, each of a range of keys or, without a key, of time.

A partition that fills several row groups is cut by key alone if shorter slices would take more room
(``sampling``): keys are then found in fewer row groups, and a window reads the partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemill.history.ordering import Order, is_sortable, order_of, words_of
from tidemill.history.sampling import grows
from tidemill.history.slices import GROUP_ROWS_MAX, Slices, group_ends, slice_ends, spans_of


@dataclass(frozen=True)
class Arranged:
    """Rows in the order of a file, and where its row groups end."""

    rows: pa.RecordBatch
    ends: tuple[int, ...]

    def cut(self, rows_max: int, before: int = 0) -> Iterator[Arranged]:
        """Parts of at most so many rows, whole row groups each. The first part has room for
        ``before`` rows less; if no row group fits, there is no such part."""
        start = 0
        ends: list[int] = []
        for end in self.ends:
            if (ends or before) and before + end - start > rows_max:
                if ends:
                    yield self._part(start, ends)
                    start, ends = ends[-1], []
                before = 0
            ends.append(end)
        yield self._part(start, ends)

    def _part(self, start: int, ends: Sequence[int]) -> Arranged:
        rows = self.rows.slice(start, ends[-1] - start)
        return Arranged(rows, tuple(end - start for end in ends))


@dataclass
class Arranger:
    """Arranges rows of one table: by slice, then by the ``keys``, then by the ``last`` columns: the
    time column and ``_seq``. Keys whose type has no order are left out. Whether large partitions
    are cut by key alone is asked once, of the first rows that raise the question."""

    keys: tuple[str, ...]
    last: tuple[str, str]
    partition_us: int
    group_rows: int = GROUP_ROWS_MAX
    is_by_key: bool | None = None

    def arrange(self, rows: pa.RecordBatch) -> Arranged:
        """Rows as a file holds them."""
        order = order_of([rows.column(name) for name in self.last])
        times = words_of(rows.column(self.last[0]))
        keys = [rows.column(name) for name in self.keys]
        keys = [key for key in keys if is_sortable(key.type)]
        if order is not None:
            times, keys = times[order], [key.take(pa.array(order)) for key in keys]
        found = slice_ends(times, self.partition_us, self.group_rows)
        slices = self._choose(found, rows, keys, order)
        order = _by_keys(keys, order, slices)
        arranged = rows if order is None else rows.take(pa.array(order))
        return Arranged(arranged, tuple(group_ends(slices, self.group_rows)))

    def _choose(
        self, found: Slices, rows: pa.RecordBatch, keys: Sequence[pa.Array], order: Order | None
    ) -> list[int]:
        if not keys or found.longer is None:
            return found.ends
        if self.is_by_key is None:
            self.is_by_key = grows(rows, keys[0], order, found.longer, found.ends)
        return found.longer if self.is_by_key else found.ends


def _by_keys(keys: Sequence[pa.Array], order: Order | None, slices: Sequence[int]) -> Order | None:
    """An order by time, changed to be by keys within each slice; the keys are in that order."""
    if not keys:
        return order
    found = [
        (start, end, order_of([key.slice(start, end - start) for key in keys]))
        for start, end in spans_of(slices)
    ]
    if all(change is None for _, _, change in found):
        return order
    change = np.concatenate([np.arange(s, e) if c is None else c + s for s, e, c in found])
    return change if order is None else order[change]
