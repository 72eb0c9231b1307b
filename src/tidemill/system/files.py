"""History as the catalog names it: ``tidemill.partitions``, ``tidemill.files``,
``tidemill.snapshots``. There may be tens of thousands of each, so they are made by column."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from tidemill.catalog.model import FILE_ROWS, History, Partition, Snapshot
from tidemill.history.deletes import counts
from tidemill.system.arrow import make_table
from tidemill.system.state import State


def _histories(snapshot: Snapshot) -> Iterator[tuple[str, History]]:
    """The tables with a history, by name."""
    for key in sorted(snapshot.tables):
        table = snapshot.tables[key]
        history = snapshot.histories.get(table.table_id)
        if history is not None:
            yield table.name, history


# -- tidemill.partitions


def partitions(state: State) -> pa.Table:
    """Ranges of time that hold rows. A file of deletes may concern several of them."""
    names: list[str] = []
    parts: list[Partition] = []
    overlapping: list[int] = []  # files of deletes, for each partition
    for name, history in _histories(state.snapshot()):
        held = [part for part in history.partitions if part.files[0].kind == FILE_ROWS]
        names += [name] * len(held)
        parts += held
        overlapping += counts(history, held).tolist()
    files = [part.files for part in parts]
    return make_table(
        "partitions",
        {
            "table_name": names,
            "lo": [part.lo_us for part in parts],
            "hi": [part.hi_us for part in parts],
            "generation": [part.generation for part in parts],
            "files": [len(each) for each in files],
            "revisions": [part.revisions for part in parts],
            "deletes": overlapping,
            "rows": [sum(file.rows for file in each) for each in files],
            "bytes": [sum(file.bytes for file in each) for each in files],
            "time_min": [min(file.time_min_us for file in each) for each in files],
            "time_max": [max(file.time_max_us for file in each) for each in files],
        },
    )


# -- tidemill.files


def files(state: State) -> pa.Table:
    histories = list(_histories(state.snapshot()))
    found = [(name, history.files) for name, history in histories]
    every = list(chain.from_iterable(held for _, held in found))
    anchors = {
        file.file_id
        for _, history in histories
        for part in history.partitions
        for file in part.files
        if part.is_anchor(file)
    }
    return make_table(
        "files",
        {
            "table_name": [name for name, held in found for _ in held],
            "file_id": [file.file_id for file in every],
            "path": [file.path for file in every],
            "kind": [file.kind for file in every],
            "origin": [file.origin for file in every],
            "lo": [file.lo_us for file in every],
            "hi": [file.hi_us for file in every],
            "generation": [file.generation for file in every],
            "is_anchor": [file.file_id in anchors for file in every],
            "rows": [file.rows for file in every],
            "bytes": [file.bytes for file in every],
            "row_groups": [file.row_groups for file in every],
            "time_min": [file.time_min_us for file in every],
            "time_max": [file.time_max_us for file in every],
            "seq_min": [file.seq_min for file in every],
            "seq_max": [file.seq_max for file in every],
            "snapshot": [file.created_snapshot for file in every],
        },
    )


# -- tidemill.snapshots


def snapshots(state: State) -> pa.Table:
    """The snapshots that are kept, newest first; the present one always."""
    current = state.snapshot()
    kept = dict(state.snapshots()) or {current.snapshot_id: current.committed_at_us}
    newest = max(kept)
    return make_table(
        "snapshots",
        {
            "snapshot_id": list(kept),
            "committed_at": list(kept.values()),
            "is_current": [snapshot_id == newest for snapshot_id in kept],
        },
    )
