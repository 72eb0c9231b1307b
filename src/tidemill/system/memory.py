"""What tables hold and what came in: ``tidemill.tables``, ``tidemill.blocks``, ``tidemill.ingest``.

Rows go from memory to files. To count each once, memory is looked at first and the catalog second,
as by any reader; what is counted as stored is looked at before both, so that rows which arrive
meanwhile are never taken for expired ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tidemill.catalog.model import APPENDED, LOADED, History, Table
from tidemill.hot.table import HotTable
from tidemill.stream.image import look
from tidemill.system.arrow import Row, make_table_of_rows
from tidemill.system.state import State


@dataclass(frozen=True)
class Held:
    """The rows of a streaming table at one moment."""

    hot_rows: int
    history_rows: int
    history: History


def held(state: State, hot: HotTable) -> Held:
    """Count the rows that may be seen: those in memory, those in files that nothing took away."""
    image = look(hot).at(state.snapshot())
    rows = state.live_rows(image)
    return Held(image.view.rows_since(image.horizon_us), rows, image.history)


# -- tidemill.tables


def tables(state: State) -> pa.Table:
    return make_table_of_rows("tables", [_table(state, table) for table in state.tables()])


def _table(state: State, table: Table) -> Row:
    row: Row = {
        "table_name": table.name,
        "kind": table.kind,
        "columns": len(table.columns),
        "primary_key": list(table.primary_key),
        "time_column": table.time_column,
        "watermark_delay": table.watermark_delay_us,
        "created_at": table.created_at_us,
    }
    hot = state.hot.get(table.table_id)
    if table.is_view:
        return row  # counting it would be reading it
    if hot is None:
        return {**row, "rows": state.reference_rows(table.table_id)}
    found = held(state, hot)
    return {
        **row,
        "rows": found.hot_rows + found.history_rows,
        "bytes": hot.nbytes,
        "hot_rows": found.hot_rows,
        "history_rows": found.history_rows,
        "history_bytes": found.history.bytes,
        "partitions": sum(bool(part.rows) for part in found.history.partitions),
    }


# -- tidemill.blocks


def blocks(state: State) -> pa.Table:
    rows: list[Row] = []
    for table in state.tables():
        hot = state.hot.get(table.table_id)
        if hot is not None:
            rows += _blocks(hot)
    return make_table_of_rows("blocks", rows)


def _blocks(hot: HotTable) -> list[Row]:
    view = hot.published.view()
    rows: list[Row] = [
        {
            "block_id": block.block_id,
            "state": "block",
            "first_seq": block.first_seq,
            "last_seq": block.last_seq,
            "rows": block.rows,
            "bytes": block.nbytes,
            "index_bytes": block.index_bytes,
            "time_min": block.time_min_us,
            "time_max": block.time_max_us,
            "is_ordered": block.is_ordered,
        }
        for block in view.blocks
    ]
    rows += [
        {
            "state": "tail",
            "first_seq": piece.first_seq,
            "last_seq": piece.last_seq,
            "rows": piece.rows,
            "bytes": piece.batch.nbytes,
            "index_bytes": 0,
        }
        for piece in view.tail
    ]
    return [{"table_name": hot.table.name, **row} for row in rows]


# -- tidemill.ingest


def ingest(state: State) -> pa.Table:
    rows: list[Row] = []
    for table in state.tables():
        hot = state.hot.get(table.table_id)
        if hot is not None:
            rows.append(_ingest(state, hot))
    return make_table_of_rows("ingest", rows)


def _ingest(state: State, hot: HotTable) -> Row:
    counters = hot.counters.dump()
    counts = state.counts(hot.table.table_id)
    loads = [each for each in counts if each.state == LOADED and each.source != APPENDED]
    loaded = sum(count.rows for count in loads)
    counters["stored"] += loaded
    counters["rejected"] += sum(count.rejected for count in loads)
    counters["late"] += sum(count.late for count in loads)
    counters["replaced"] += sum(count.replaced for count in loads)
    counters["rows_in"] = counters["stored"] + counters["rejected"] + counters["late"]
    waiting = hot.publisher.waiting_rows
    found = held(state, hot)
    left = waiting + found.hot_rows + found.history_rows
    progress, log = hot.progress, hot.log
    return {
        "table_name": hot.table.name,
        **counters,
        "loaded": loaded,
        "expired": max(counters["stored"] - counters["replaced"] - left, 0),
        "moved_seq": found.history.moved_seq,
        "newest": progress.newest_us,
        "watermark": progress.watermark_us(),
        "lag": progress.lag_us(),
        "memory_bytes": hot.nbytes,
        "memory_limit_bytes": hot.table.settings["memory"],
        "log_bytes": log.size_bytes(),
        "log_segments": len(log.segments),
        "accepts_rows": log.failure is None,
    }
