"""Which files of rows a file of deletes concerns: one rule for scans, compaction, Delta, the past.

A file of deletes names rows by their sequence numbers. The catalog knows the least and the greatest
of them, and the span of time in which the rows lie; a file of rows outside of either loses none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidemill.catalog.model import DataFile, History, Partition
from tidemill.catalog.splicing import reaching


def may_delete(deletes: DataFile, file: DataFile) -> bool:
    """Whether rows of a file may be deleted. A file that was named later was written without
    them: a move or a load has no deleted rows, and a compaction leaves them out. One that was named
    together with it may hold them: a load takes its own rows back whose key was there."""
    return (
        file.created_snapshot <= deletes.created_snapshot
        and deletes.seq_min <= file.seq_max
        and deletes.seq_max >= file.seq_min
        and deletes.lo_us < file.hi_us
        and deletes.hi_us > file.lo_us
    )


def concerning(history: History, files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """The files of deletes that may take rows away from some files."""
    return tuple(d for d in history.deletes if any(may_delete(d, file) for file in files))


def losing_rows(history: History, files: Sequence[DataFile]) -> list[DataFile]:
    """Those of some files from which files of deletes may take rows away."""
    deletes = history.deletes
    return [f for f in files if any(may_delete(d, f) for d in deletes)] if deletes else []


def done_with(history: History, left: Sequence[DataFile]) -> list[DataFile]:
    """The files of deletes that nobody needs once no other files of rows are left. Those of rows
    that are still in the log keep them from coming back."""
    return [
        d
        for d in history.deletes
        if d.seq_max <= history.moved_seq and not any(may_delete(d, file) for file in left)
    ]


def expired(history: History, before_us: int) -> list[DataFile]:
    """The files of deletes that concern nothing but partitions which end before a moment."""
    return [
        file
        for file in history.deletes
        if file.hi_us <= before_us
        and all(p.hi_us <= before_us for p in reaching(history.partitions, file.lo_us, file.hi_us))
    ]


def counts(history: History, parts: Sequence[Partition]) -> npt.NDArray[np.int64]:
    """How many files of deletes overlap each of some partitions."""
    lows = np.array([part.lo_us for part in parts], dtype=np.int64)
    highs = np.array([part.hi_us for part in parts], dtype=np.int64)
    found = np.zeros(len(parts), dtype=np.int64)
    for file in history.deletes:
        found += (lows < file.hi_us) & (highs > file.lo_us)
    return found
