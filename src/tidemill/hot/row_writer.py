"""Rows into the log, and back as batches in memory of our own: the caller may reuse theirs.

Small batches are copied once, written from the copy and kept in it. Large ones are written from the
caller's buffers and then read where they stand in the log, which a restart does with all rows
anyway (``recovery``): no copy is made, and memory holds them once instead of twice. That needs the
rows to be on the disk before anybody reads them, so it is for ``durability = 'sync'`` only.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidemill.hot import frame
from tidemill.hot.frame import Section
from tidemill.hot.frame_meta import AppendMeta
from tidemill.hot.log import Log
from tidemill.hot.message import Messages

IN_PLACE_BYTES_MIN = 256 << 10

Batches = tuple[pa.RecordBatch, ...]
Aside = Sequence[Section]


class RowWriter:
    """Writes the batches of one table; the caller holds the table's write lock."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._messages = Messages(schema) if Messages.can_write(schema) else None

    def write(
        self,
        log: Log,
        first_seq: int,
        meta: AppendMeta,
        batches: Sequence[pa.RecordBatch],
        aside: Aside,
        nbytes: int,
    ) -> tuple[int, Batches]:
        """One frame with the rows, of about so many bytes, and what is set aside; answers its
        ticket and the rows."""
        is_large = nbytes >= IN_PLACE_BYTES_MIN and bool(batches)
        if is_large and self._messages is not None and log.durability == "sync":
            written = self._write_in_place(self._messages, log, first_seq, meta, batches, aside)
            if written is not None:
                return written
        copies = [batch.serialize() for batch in batches]
        sections = [*(Section(frame.STORED, copy) for copy in copies), *aside]
        ticket = log.write(frame.encode(first_seq, meta, sections))
        return ticket, self._read(copies)

    def _write_in_place(
        self,
        messages: Messages,
        log: Log,
        first_seq: int,
        meta: AppendMeta,
        batches: Sequence[pa.RecordBatch],
        aside: Aside,
    ) -> tuple[int, Batches] | None:
        made = [messages.of(batch) for batch in batches]
        sections = [*(Section(frame.STORED, message) for message in made), *aside]
        laid = frame.lay_out(first_seq, meta, sections)
        written = log.write_in_place(laid)
        if written is None:
            return None
        ticket, whole = written
        places = laid.places[: len(made)]
        parts = [whole.slice(at, message.size) for at, message in zip(places, made, strict=True)]
        return ticket, self._read(parts)

    def _read(self, parts: Sequence[pa.Buffer]) -> Batches:
        return tuple(pa.ipc.read_record_batch(part, self._schema) for part in parts)
