"""Forgetting: snapshots that nobody may ask for any more, and the rows that only they saw.

1. The oldest snapshot to stay is the one that was the newest at the given moment: whoever asks for
   a moment after it gets an answer. It is older if a reader holds an older one.
2. A versioned row that ended with that snapshot, or before, is seen by none that stays.
3. Of moves and marks, the last one at or before that snapshot stays, and all after it.
4. A load's reservation goes once its snapshot is older and all its numbers lie below what was
   the last one at that snapshot: at any moment that can still be asked for, it counts anyway.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from tidemill.catalog import schema
from tidemill.catalog.filing import Run


def forget(run: Run, before_us: int, pinned: Collection[int]) -> list[str]:
    """Forget what ended before a moment; the paths of files that nobody sees any more."""
    oldest = _oldest_to_stay(run, before_us, pinned)
    snapshots, definitions = schema.snapshots.c, schema.definitions.c
    run(sa.delete(schema.snapshots).where(snapshots.snapshot_id < oldest.snapshot_id))
    at_oldest = definitions.snapshot_id <= oldest.snapshot_id
    last = sa.select(sa.func.max(definitions.snapshot_id)).where(at_oldest).scalar_subquery()
    run(sa.delete(schema.definitions).where(definitions.snapshot_id < last))
    paths = _forget_files(run, oldest.snapshot_id)
    _forget_definitions(run, oldest.snapshot_id)
    _forget_steps(run, oldest)
    return paths


def _oldest_to_stay(run: Run, before_us: int, pinned: Collection[int]) -> sa.Row[Any]:
    snapshots = schema.snapshots
    by_id = sa.select(snapshots).order_by(snapshots.c.snapshot_id).limit(1)
    by_time = sa.select(snapshots).where(snapshots.c.committed_at_us <= before_us)
    newest_first = (snapshots.c.committed_at_us.desc(), snapshots.c.snapshot_id.desc())
    superseding = run(by_time.order_by(*newest_first).limit(1)).one_or_none()
    if superseding is None:
        return run(by_id).one()  # type: ignore[no-any-return]
    stays = min(superseding.snapshot_id, *pinned) if pinned else superseding.snapshot_id
    return run(by_id.where(snapshots.c.snapshot_id >= stays)).one()  # type: ignore[no-any-return]


def _forget_files(run: Run, oldest_id: int) -> list[str]:
    files = schema.files
    ended = files.c.dropped_snapshot <= oldest_id
    paths = [row.path for row in run(sa.select(files.c.path).where(ended))]
    if paths:
        run(sa.delete(files).where(ended))
    return paths


def _forget_definitions(run: Run, oldest_id: int) -> None:
    indexes, tables = schema.indexes, schema.tables
    ended = sa.select(indexes.c.index_id).where(indexes.c.dropped_snapshot <= oldest_id)
    run(sa.delete(schema.index_columns).where(schema.index_columns.c.index_id.in_(ended)))
    of_tables = (schema.columns, schema.constraints, schema.settings, schema.former_tables)
    for each in (*of_tables, indexes, schema.sources, schema.changes):
        run(sa.delete(each).where(each.c.dropped_snapshot <= oldest_id))
    gone = tables.c.dropped_snapshot <= oldest_id
    ids = sa.select(tables.c.table_id).where(gone)
    if run(ids).first() is None:
        return
    for each in schema.BESIDE_A_TABLE:
        run(sa.delete(each).where(each.c.table_id.in_(ids)))
    run(sa.delete(tables).where(gone))


def _forget_steps(run: Run, oldest: sa.Row[Any]) -> None:
    """Moves, marks and reservations of tables that live, table by table: each has an index."""
    table_ids = [row.table_id for row in run(sa.select(schema.tables.c.table_id))]
    for table_id in table_ids:
        reservations = schema.reservations.c
        run(
            sa.delete(schema.reservations).where(
                reservations.table_id == table_id,
                reservations.created_snapshot <= oldest.snapshot_id,
                reservations.last_seq <= _last(schema.marks.c.seq, table_id, oldest),
            )
        )
        for step in (schema.moves.c.created_snapshot, schema.marks.c.at_us):
            last = _last(step, table_id, oldest)
            run(sa.delete(step.table).where(step.table.c.table_id == table_id, step < last))


def _last(wanted: sa.Column[int], table_id: int, oldest: sa.Row[Any]) -> sa.ScalarSelect[int]:
    """A column of the last move or mark at or before the oldest snapshot that stays."""
    if wanted.table is schema.moves:
        step, bound = schema.moves.c.created_snapshot, oldest.snapshot_id
    else:
        step, bound = schema.marks.c.at_us, oldest.committed_at_us
    inner = wanted.table.alias()
    mine = sa.and_(inner.c.table_id == table_id, inner.c[step.name] <= bound)
    newest = sa.select(inner.c[wanted.name]).where(mine).order_by(inner.c[step.name].desc())
    return newest.limit(1).scalar_subquery()
