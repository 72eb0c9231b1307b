"""Side tables: ``<table>$late`` and ``<table>$rejected``, the rows that were set aside, and why.

A late row keeps its columns and their types; a rejected row is kept as JSON, since it may fit no
type at all. Both carry the reason and the time at which they were set aside.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.hot.piece import Piece, add

LATE_SUFFIX = "$late"
REJECTED_SUFFIX = "$rejected"

_TAIL = [pa.field("_reason", pa.string()), pa.field("_at", pa.timestamp("us"))]
REJECTED_SCHEMA = pa.schema([pa.field("_row", pa.json_()), *_TAIL])


def late_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *_TAIL])


def late_batch(rows: pa.RecordBatch, reason: str, at_us: int) -> pa.RecordBatch:
    count = rows.num_rows
    reasons = pa.array([reason], pa.string()).take(pa.array([0] * count))
    times = pa.array([at_us] * count, pa.int64()).view(pa.timestamp("us"))
    return pa.RecordBatch.from_arrays(
        [*rows.columns, reasons, times], schema=late_schema(rows.schema)
    )


def rejected_batch(rows: list[tuple[str, str]], at_us: int) -> pa.RecordBatch:
    """Of (row as JSON, reason) pairs."""
    texts = pa.ExtensionArray.from_storage(pa.json_(), pa.array([r[0] for r in rows], pa.string()))
    reasons = pa.array([reason for _, reason in rows], pa.string())
    times = pa.array([at_us] * len(rows), pa.int64()).view(pa.timestamp("us"))
    return pa.RecordBatch.from_arrays([texts, reasons, times], schema=REJECTED_SCHEMA)


class SideTable:
    """Rows set aside, in memory. The owner's memory bound and retention cover them too."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.nbytes = 0
        self._pieces: tuple[Piece, ...] = ()

    def add(self, batch: pa.RecordBatch, seq: int) -> None:
        """Take rows that were logged in the frame with this sequence number."""
        seqs = np.full(batch.num_rows, seq, dtype=np.int64)
        self._pieces = add(self._pieces, Piece(seq, seq, batch, seqs))
        self.nbytes = sum(int(piece.batch.nbytes) for piece in self._pieces)

    def table(self) -> pa.Table:
        return pa.Table.from_batches([piece.batch for piece in self._pieces], self.schema)

    def expire(self, before_us: int) -> None:
        """Forget pieces whose rows were all set aside before a time."""
        limit = pa.scalar(before_us, pa.int64()).cast(pa.timestamp("us"))
        kept = [
            p for p in self._pieces if not pc.less(pc.max(p.batch.column("_at")), limit).as_py()
        ]
        if len(kept) < len(self._pieces):
            self._pieces = tuple(kept)
            self.nbytes = sum(int(piece.batch.nbytes) for piece in self._pieces)

    def hold(self) -> SideTable:
        """What is there now, held still."""
        held = SideTable(self.schema)
        held._pieces = self._pieces
        return held

    def after(self, seq: int) -> pa.Table:
        """The rows of frames behind a sequence number."""
        kept = [piece.after(seq) for piece in self._pieces]
        return pa.Table.from_batches([piece.batch for piece in kept if piece], self.schema)

    def release(self, seq: int) -> None:
        """History holds the rows of frames up to this sequence number."""
        kept = [piece.after(seq) for piece in self._pieces]
        self._pieces = tuple(piece for piece in kept if piece is not None)
        self.nbytes = sum(int(piece.batch.nbytes) for piece in self._pieces)

    @property
    def first_seq(self) -> int | None:
        """The frame of the oldest row held."""
        return self._pieces[0].first_seq if self._pieces else None
