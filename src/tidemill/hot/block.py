"""Blocks: immutable runs of rows in arrival order, each with its time range and directories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.model import Index
from tidemill.changes.patching import Touched, patched
from tidemill.hot import keys
from tidemill.hot.piece import rows_up_to
from tidemill.hot.values import Directory, build_hash, build_ordered

# As many rows as DuckDB puts in a row group: measured best for scans (docs/design).
BLOCK_ROWS = 122_880
# A batch this large becomes blocks of its own without waiting for the tail.
BLOCK_ROWS_MAX = 2 * BLOCK_ROWS


@dataclass(frozen=True, eq=False)
class Block:
    """Rows ``first_seq`` to ``last_seq`` of a table.

    ``seqs`` is None while the rows are consecutive; once rows were replaced it names those left.
    """

    block_id: int
    first_seq: int
    last_seq: int
    batch: pa.RecordBatch
    time_column: str
    times: npt.NDArray[np.int64]
    time_min_us: int
    time_max_us: int
    is_ordered: bool
    directories: Mapping[int, Directory] = field(default_factory=dict)
    seqs: npt.NDArray[np.int64] | None = None
    _words: dict[int, npt.NDArray[Any] | None] = field(default_factory=dict)

    def words(self, at: int) -> npt.NDArray[Any] | None:
        """A column as numpy sees it without a copy, or None if it has NULLs or other types."""
        if at not in self._words:
            self._words[at] = keys.plain_words(self.batch.column(at))
        return self._words[at]

    @property
    def rows(self) -> int:
        return int(self.batch.num_rows)

    @cached_property
    def nbytes(self) -> int:
        side = 0 if self.seqs is None else self.seqs.nbytes
        return int(self.batch.nbytes) + self.index_bytes + side

    @property
    def index_bytes(self) -> int:
        return sum(directory.nbytes for directory in self.directories.values())

    def reaches(self, low_us: int | None, high_us: int | None) -> bool:
        """Whether it may have rows between two times, both included."""
        return (low_us is None or self.time_max_us >= low_us) and (
            high_us is None or self.time_min_us <= high_us
        )

    def cut(self, low_us: int | None, high_us: int | None) -> tuple[int | None, int | None]:
        """The ends of a span of time that leave some of its rows out."""
        low = None if low_us is not None and low_us <= self.time_min_us else low_us
        high = None if high_us is not None and high_us >= self.time_max_us else high_us
        return low, high

    def bounds(self, low_us: int | None, high_us: int | None) -> tuple[int, int]:
        """Where rows in order of time begin and end to lie in a span."""
        first = 0 if low_us is None else int(np.searchsorted(self.times, low_us, "left"))
        last = self.rows if high_us is None else int(np.searchsorted(self.times, high_us, "right"))
        return first, last

    def seq_column(self) -> npt.NDArray[np.int64]:
        if self.seqs is not None:
            return self.seqs
        return np.arange(self.first_seq, self.first_seq + self.rows, dtype=np.int64)

    def with_index(self, index: Index) -> Block:
        directory = build_directory(self.batch, index)
        return replace(self, directories={**self.directories, index.index_id: directory})

    def without_index(self, index_id: int) -> Block:
        kept = {key: value for key, value in self.directories.items() if key != index_id}
        return replace(self, directories=kept)

    def after(self, seq: int, indexes: tuple[Index, ...]) -> Block | None:
        """The rows behind a sequence number, or None if there are none."""
        if self.last_seq <= seq:
            return None
        skip = rows_up_to(self, seq)
        if not skip:
            return self
        if skip == self.rows:  # those behind were replaced
            return None
        seqs = None if self.seqs is None else self.seqs[skip:]
        first = self.first_seq + skip if seqs is None else int(seqs[0])
        batch = self.batch.slice(skip)
        rest = make_block(self.block_id, first, batch, indexes, self.time_column)
        return replace(rest, last_seq=self.last_seq, seqs=seqs)

    def without_rows(self, seqs: set[int], indexes: tuple[Index, ...]) -> Block | None:
        """The block without some rows, or None when nothing is left."""
        own = self.seq_column()
        kept = np.flatnonzero(~np.isin(own, np.fromiter(seqs, np.int64, len(seqs))))
        if not len(kept):
            return None
        batch = self.batch.take(pa.array(kept))
        rest = make_block(self.block_id, self.first_seq, batch, indexes, self.time_column)
        return replace(rest, last_seq=self.last_seq, seqs=own[kept])

    def patched(self, touched: Touched, indexes: tuple[Index, ...]) -> Block | None:
        """The block with what changes make of its rows; None when nothing is left. Directories of
        columns that stay as they are stay, too."""
        batch = patched(self.batch, self.seq_column(), touched)
        if len(touched.deleted):
            gone = set(touched.deleted.tolist())
            return replace(self, batch=batch).without_rows(gone, indexes)
        changed = touched.columns.keys()
        directories = {
            index.index_id: self.directories[index.index_id]
            if changed.isdisjoint(index.columns)
            else build_directory(batch, index)
            for index in indexes
        }
        return replace(self, batch=batch, directories=directories, _words={})


def make_block(
    block_id: int,
    first_seq: int,
    batch: pa.RecordBatch,
    indexes: tuple[Index, ...],
    time_column: str,
) -> Block:
    """A block of consecutive rows, with a directory for every index."""
    times = keys.words(batch.column(time_column))
    return Block(
        block_id,
        first_seq,
        first_seq + batch.num_rows - 1,
        batch,
        time_column,
        times,
        int(times.min()),
        int(times.max()),
        bool((times[1:] >= times[:-1]).all()),
        {index.index_id: build_directory(batch, index) for index in indexes},
    )


def build_directory(batch: pa.RecordBatch, index: Index) -> Directory:
    """An ordered index files rows by its first column; a hash index by all of its columns."""
    if index.method == "hash":
        return build_hash([batch.column(name) for name in index.columns])
    return build_ordered(batch.column(index.columns[0]))
