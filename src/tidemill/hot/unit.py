"""Units: what one frame of the log adds to a table, on its way to the readers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from tidemill.changes.model import Change

ROW_BYTES_ESTIMATE = 256


@dataclass(frozen=True)
class Unit:
    """What one frame of the log adds: batches or single rows, rows set aside, rows replaced,
    changes of the rows before it."""

    first_seq: int
    batches: tuple[pa.RecordBatch, ...] = ()
    rows: tuple[tuple[object, ...], ...] = ()
    late: pa.RecordBatch | None = None
    rejected: pa.RecordBatch | None = None
    replaced: tuple[int, ...] = ()
    ticket: int = 0
    newest_us: int | None = None
    changes: tuple[Change, ...] = ()

    @property
    def row_count(self) -> int:
        if not self.batches:
            return len(self.rows)
        return sum(int(batch.num_rows) for batch in self.batches) + len(self.rows)

    @cached_property
    def nbytes(self) -> int:
        rows_bytes = len(self.rows) * ROW_BYTES_ESTIMATE
        return sum(int(batch.nbytes) for batch in self.batches) + rows_bytes
