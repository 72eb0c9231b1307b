"""Rows that gave way to others while both were in memory, for whoever reads the past.

Memory lets go of such a row at once, and a move writes it to a file that only the past reads. In
between it is in the log, which keeps every frame until its rows are moved; ``rows_in_log`` finds it
there. Frames without a wanted row are hopped over.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.hot import frame
from tidemill.hot.frame_meta import AppendMeta
from tidemill.hot.gather import SEQ_FIELD
from tidemill.hot.table import HotTable
from tidemill.plain_rows import batch_of_rows

END = 2**63 - 1

Seqs = npt.NDArray[np.int64]


def rows_in_log(hot: HotTable, seqs: Collection[int]) -> pa.Table:
    """The rows of some sequence numbers that the log has, with these.

    A segment that is gone was moved meanwhile: whoever asks the catalog afterwards finds them."""
    schema = hot.table.schema.append(SEQ_FIELD)
    wanted = np.array(sorted(seqs), dtype=np.int64)
    found: list[pa.RecordBatch] = []
    segments = [(segment.path, segment.first_seq) for segment in hot.log.segments]
    for (path, first_seq), (_, end) in pairwise([*segments, (Path(), END)]):
        if len(_between(wanted, first_seq, end)):
            for read, own in _frames(path, wanted):
                found += _picked(read, own, schema)
    return pa.Table.from_batches(found, schema)


def _between(seqs: Seqs, first: int, end: int) -> Seqs:
    low, high = np.searchsorted(seqs, (first, end))
    return seqs[low:high]


def _frames(path: Path, wanted: Seqs) -> Iterator[tuple[frame.Frame, Seqs]]:
    """The frames of a segment with wanted rows. The segment may be growing: what is not whole yet
    is not looked at."""
    try:
        with path.open("rb") as file:
            buffer = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (FileNotFoundError, ValueError):  # removed, or empty
        return
    places = frame.places(memoryview(buffer))
    for (at, first_seq), (_, end) in pairwise([*places, (0, END)]):
        own = _between(wanted, first_seq, end)
        if len(own):
            yield frame.read_at(buffer, at), own


def _picked(read: frame.Frame, wanted: Seqs, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of a frame."""
    first, plain = read.first_seq, schema.remove(len(schema) - 1)
    parts = [pa.ipc.read_record_batch(part, plain) for part in read.contents(frame.STORED)]
    if isinstance(read.meta, AppendMeta) and read.meta.rows:
        parts = [batch_of_rows(read.meta.rows, plain)]
    for batch in parts:
        own = _between(wanted, first, first + batch.num_rows)
        if len(own):
            rows = batch.take(pa.array(own - first))
            yield pa.RecordBatch.from_arrays([*rows.columns, pa.array(own)], schema=schema)
        first += batch.num_rows
