"""Counting the rows of history that count, where files of deletes or newer rows take some away.

The catalog knows how many rows files hold, and how many sequence numbers files of deletes name; it
does not know which of these are still to be found: a compaction may have left some out already, a
load may have named rows that were in memory then. DuckDB counts what is left, from the sequence
numbers of the files concerned alone, and the count is kept until something changes.
"""

from __future__ import annotations

import numpy as np

from tidemill.catalog.model import History
from tidemill.changes.values import Named
from tidemill.history.checking import check_files
from tidemill.history.storage import Storage
from tidemill.stream.engine import Engine
from tidemill.stream.image import Image
from tidemill.stream.relation import FileScan, retained, row_files
from tidemill.stream.removed import Removed
from tidemill.types import SEQ

_State = tuple[Removed, int | None, int]
"""What is removed, the retention's horizon, the last change."""


class LiveRows:
    """Answers how many rows of a table's files count in an image."""

    def __init__(self, duck: Engine, storage: Storage) -> None:
        self._duck = duck
        self._storage = storage
        self._known: dict[int, tuple[History, _State, int]] = {}  # by table

    def __call__(self, image: Image) -> int:
        table, history = image.table, image.history
        removed, horizon_us = image.removed, image.horizon_us
        files = row_files(history)
        changes = image.changes_in_files()
        if horizon_us is not None and all(file.time_min_us >= horizon_us for file in files):
            horizon_us = None
        if not removed and horizon_us is None and not changes:
            return history.rows
        known = self._known.get(table.table_id)
        state = removed, horizon_us, image.view.last_change
        if known is not None and known[0] is history and known[1] == state:
            return known[2]
        inside = 0
        if not removed and not changes and horizon_us is not None:
            inside = sum(file.rows for file in files if file.time_min_us >= horizon_us)
            files = [file for file in files if file.time_min_us < horizon_us]
        names = [table.time_column or table.columns[0].name]
        read = [*files, *removed.deletes]
        check_files(self._storage, table.name, read, [*names, SEQ])
        times = retained(table, horizon_us)
        scan = FileScan(tuple(files), removed, times=times, changes=tuple(changes))
        named = Named()
        text = scan.sql(self._storage, table, names, named=named)
        counted, _ = self._duck.query(f"SELECT count(*) FROM ({text})", {}, named)
        count = inside + int(counted.column(0)[0].as_py())
        self._known[table.table_id] = history, state, count
        return count


def estimated_rows(image: Image) -> int:
    """What the catalog alone can say; ``LiveRows`` is exact."""
    history = image.history
    return max(history.rows - deleted_rows(history) - len(image.removed.seqs), 0)


def deleted_rows(history: History) -> int:
    """Rows of files that files of deletes take away. One that a compaction has partly carried
    out counts as a whole until it is done with."""
    deletes = history.deletes
    if not deletes:
        return 0
    rows = row_files(history)
    born = np.array([file.created_snapshot for file in rows], dtype=np.int64)
    seqs = np.array([(file.seq_min, file.seq_max) for file in rows], dtype=np.int64).reshape(-1, 2)
    times = np.array([(file.lo_us, file.hi_us) for file in rows], dtype=np.int64).reshape(-1, 2)
    gone = 0
    for each in deletes:
        is_hit = (born < each.created_snapshot) & (times[:, 0] < each.hi_us)
        is_hit &= (seqs[:, 0] <= each.seq_max) & (seqs[:, 1] >= each.seq_min)
        gone += each.rows if bool(np.any(is_hit & (times[:, 1] > each.lo_us))) else 0
    return gone
