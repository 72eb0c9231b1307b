"""``tidemill.changes``: the updates and deletes of streams that some rows do not have yet.

A change is *new* until somebody reads rows that it may concern; then rows in memory have it, and it
is *pending* for as long as files may need it, or rows in memory, which move as they came.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemill.catalog.model import FILE_ROWS
from tidemill.changes.describing import condition_of, sets_of
from tidemill.changes.files import touching
from tidemill.changes.model import EVER_US, Change
from tidemill.hot.table import HotTable
from tidemill.system.arrow import Row, make_table_of_rows
from tidemill.system.state import State
from tidemill.types import SEQ

NEW, PENDING = "new", "pending"


def changes(state: State) -> pa.Table:
    rows: list[Row] = []
    for table in state.tables():
        hot = state.hot.get(table.table_id)
        if hot is not None:
            rows += _changes(state, hot)
    return make_table_of_rows("changes", rows)


def _changes(state: State, hot: HotTable) -> list[Row]:
    with hot.published.lock:
        known, every = hot.published.changes.pending, hot.published.every_change()
    history = state.snapshot().history(hot.table.table_id)
    files = np.zeros(len(every), dtype=np.int64)
    for file in history.files if len(every) else ():
        if file.kind == FILE_ROWS:
            files += touching(every, file)
    return [
        _change(hot, change, NEW if at >= len(known) else PENDING, int(files[at]))
        for at, change in enumerate(every)
    ]


def _change(hot: HotTable, change: Change, state: str, files: int) -> Row:
    form = change.form
    by_number = any(name == SEQ for name, _ in form.keys)
    return {
        "table_name": hot.table.name,
        "number": change.number,
        "kind": form.kind,
        "state": state,
        "form": "rows" if by_number else "keys" if form.keys else "predicate",
        "condition": condition_of(change),
        "sets": sets_of(change),
        "corrections": change.count,
        "upto_seq": change.upto_seq,
        "low": None if change.low_us == -EVER_US else change.low_us,
        "high": None if change.high_us == EVER_US else change.high_us,
        "made_at": change.at_us,
        "files": files,
    }
