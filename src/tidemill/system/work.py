"""Work and what it costs: ``tidemill.queries``, ``tidemill.jobs``, ``tidemill.moves``,
``tidemill.costs``, ``tidemill.sources``, ``tidemill.packages``."""

from __future__ import annotations

import pyarrow as pa

from tidemill.catalog.model import SET_ASIDE, Package, Source
from tidemill.pipeline.board import COMMITTED, JobRecord
from tidemill.system.arrow import Row, make_table, make_table_of_rows
from tidemill.system.state import State

STATEMENT_CHARS_MAX = 1_000  # of a statement's text; an INSERT may have millions

# -- tidemill.views


def views(state: State) -> pa.Table:
    return make_table_of_rows("views", [dict(row) for row in state.views()])


# -- tidemill.spark


def spark(state: State) -> pa.Table:
    return make_table_of_rows("spark", [dict(row) for row in state.spark()])


# -- tidemill.queries


def queries(state: State) -> pa.Table:
    now_us = state.clock.now_us()
    rows: list[Row] = [
        {
            "query_id": each.query_id,
            "statement": each.text.strip()[:STATEMENT_CHARS_MAX],
            "state": each.state,
            "progress": each.progress,
            "started_at": each.started_at_us,
            "seconds": max(now_us - each.started_at_us, 0) / 1e6,
        }
        for each in state.queries()
    ]
    return make_table_of_rows("queries", rows)


# -- tidemill.jobs


def jobs(state: State) -> pa.Table:
    found = list(state.jobs())
    now_us = state.clock.now_us()
    return make_table(
        "jobs",
        {
            "job_id": [job.job_id for job in found],
            "kind": [job.kind for job in found],
            "table_name": [job.table_name for job in found],
            "state": [job.state for job in found],
            "tasks": [job.tasks for job in found],
            "tasks_done": [job.tasks_done for job in found],
            "progress": [progress_of(job) for job in found],
            "rows": [job.rows for job in found],
            "bytes": [job.bytes for job in found],
            "files": [job.files for job in found],
            "planned_at": [job.planned_at_us for job in found],
            "started_at": [job.started_at_us for job in found],
            "ended_at": [job.ended_at_us for job in found],
            "elapsed": [elapsed_us(job, now_us) for job in found],
            "error": [job.error for job in found],
            "detail": [job.detail for job in found],
            "ran_on": [job.ran_on for job in found],
        },
    )


def progress_of(job: JobRecord) -> float:
    """How much of a job is done, by its tasks; the commit is the last step of all."""
    if job.state == COMMITTED:
        return 1.0
    return min(job.tasks_done / job.tasks, 1.0) if job.tasks else 0.0


def elapsed_us(job: JobRecord, now_us: int) -> int | None:
    """How long a job ran, or has been running. Clocks may be set back meanwhile."""
    if job.started_at_us is None:
        return None
    end_us = now_us if job.ended_at_us is None else job.ended_at_us
    return max(end_us - job.started_at_us, 0)


# -- tidemill.moves


def moves(state: State) -> pa.Table:
    found = list(state.moves())
    return make_table(
        "moves",
        {
            "table_name": [move.table_name for move in found],
            "at": [move.at_us for move in found],
            "policy": [move.policy for move in found],
            "action": [move.action for move in found],
            "reason": [move.reason for move in found],
            "keep": [move.keep_us for move in found],
            "keep_rows": [move.keep_rows for move in found],
            "rate_bytes_s": [move.rate_bytes_s for move in found],
            "fill": [move.fill for move in found],
            "fill_max": [move.fill_max for move in found],
            "full_in": [move.full_in_us for move in found],
            "move_time": [move.move_us for move in found],
            "arrival_factor": [move.arrival_factor for move in found],
            "move_factor": [move.move_factor for move in found],
            "rows": [move.rows for move in found],
            "bytes": [move.bytes for move in found],
            "upto_seq": [move.upto_seq for move in found],
            "stays_bytes": [move.stays_bytes for move in found],
            "stays_from": [move.stays_from_us for move in found],
            "stayed_bytes": [move.stayed_bytes for move in found],
            "job_id": [move.job_id for move in found],
        },
    )


# -- tidemill.costs


def costs(state: State) -> pa.Table:
    return make_table_of_rows("costs", [dict(row) for row in state.costs()])


# -- tidemill.sources


def sources(state: State) -> pa.Table:
    snapshot = state.snapshot()
    rows = [_source(state, snapshot.sources[key]) for key in sorted(snapshot.sources)]
    return make_table_of_rows("sources", rows)


def _source(state: State, source: Source) -> Row:
    table = state.snapshot().table(source.table_id)
    status = state.sources_state().get(source.name.lower())
    name = source.name.lower()
    counts = [c for c in state.counts(source.table_id) if c.source.lower() == name]
    return {
        "source_name": source.name,
        "table_name": None if table is None else table.name,
        "pattern": source.pattern,
        "format": source.format,
        "every": source.every_us,
        "packages": sum(count.packages for count in counts),
        "set_aside": sum(count.packages for count in counts if count.state == SET_ASIDE),
        "last_look_at": None if status is None else status.looked_at_us,
        "last_error": None if status is None else status.last_error,
        "created_at": source.created_at_us,
    }


# -- tidemill.packages


def packages(state: State) -> pa.Table:
    names: list[str] = []
    found: list[Package] = []
    for table in state.tables():
        if table.is_streaming:
            held = list(state.packages(table.table_id))
            names += [table.name] * len(held)
            found += held
    return make_table(
        "packages",
        {
            "table_name": names,
            "source_name": [package.source for package in found],
            "name": [package.name for package in found],
            "size": [package.size for package in found],
            "digest": [package.digest for package in found],
            "state": [package.state for package in found],
            "reason": [package.reason for package in found],
            "rows": [package.rows for package in found],
            "rejected": [package.rejected for package in found],
            "late": [package.late for package in found],
            "loaded_at": [package.loaded_at_us for package in found],
            "job_id": [package.job_id for package in found],
        },
    )
