"""The rows that a commit of files writes: files, partitions, moves, reservations, packages, marks.

``transaction`` checks a commit in memory and calls these; each is one statement, whatever the
number of files in the table. Only rows of the commit's own are touched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from tidemill.catalog import schema
from tidemill.catalog.commits import ChangeSet, Mark
from tidemill.catalog.frozen import FrozenMap
from tidemill.catalog.model import (
    Bound,
    DataFile,
    Generation,
    NewFile,
    Package,
    Ranged,
    Reservation,
    overlapping,
)
from tidemill.catalog.prepared import InsertOf, Prepared

Run = Callable[..., Any]
"""Runs a statement of the transaction, with rows if it has any; a fault ends the transaction."""

IDS_MAX = 500
"""How many ids one statement names; both databases bound their parameters."""

REASON_CHARS_MAX = 10_000
"""How much of the reason is kept for which a package was set aside."""


def named(new: NewFile, file_id: int, table_id: int, generation: int, snapshot_id: int) -> DataFile:
    """The file as the catalog will know it."""
    return DataFile(
        path=new.path,
        kind=new.kind,
        lo_us=new.lo_us,
        hi_us=new.hi_us,
        rows=new.rows,
        bytes=new.bytes,
        row_groups=new.row_groups,
        time_min_us=new.time_min_us,
        time_max_us=new.time_max_us,
        seq_min=new.seq_min,
        seq_max=new.seq_max,
        origin=new.origin,
        ranges=frozen_ranges(new.ranges),
        checksums=new.checksums,
        changed=new.changed,
        file_id=file_id,
        table_id=table_id,
        generation=generation,
        created_snapshot=snapshot_id,
    )


def file_row(file: DataFile) -> dict[str, object]:
    return {
        "file_id": file.file_id,
        "table_id": file.table_id,
        "path": file.path,
        "kind": file.kind,
        "lo_us": file.lo_us,
        "hi_us": file.hi_us,
        "row_count": file.rows,
        "byte_count": file.bytes,
        "row_groups": file.row_groups,
        "time_min_us": file.time_min_us,
        "time_max_us": file.time_max_us,
        "seq_min": file.seq_min,
        "seq_max": file.seq_max,
        "origin": file.origin,
        "ranges": json.dumps(dict(file.ranges)) if file.ranges else None,
        "checksums": file.checksums,
        "changed": file.changed,
        "generation": file.generation,
        "created_snapshot": file.created_snapshot,
    }


def file_of(row: Sequence[Any]) -> DataFile:
    """A file from a row of ``FILE_COLUMNS``, which are in the order of its fields."""
    facts = list(row)
    ranges = facts[_RANGES]
    facts[_RANGES] = frozen_ranges(json.loads(ranges)) if ranges else _NO_RANGES
    return DataFile(*facts)


_NO_RANGES: FrozenMap[str, tuple[Bound, ...]] = FrozenMap()
_C = schema.files.c
FILE_COLUMNS = (
    *(_C.path, _C.kind, _C.lo_us, _C.hi_us, _C.row_count, _C.byte_count, _C.row_groups),
    *(_C.time_min_us, _C.time_max_us, _C.seq_min, _C.seq_max, _C.origin, _C.ranges, _C.checksums),
    *(_C.changed, _C.file_id, _C.table_id, _C.generation, _C.created_snapshot),
)
_RANGES = FILE_COLUMNS.index(_C.ranges)


def frozen_ranges(ranges: Mapping[str, Sequence[Bound]]) -> FrozenMap[str, tuple[Bound, ...]]:
    return FrozenMap({name: tuple(bounds) for name, bounds in ranges.items()})


def find_whereabouts(run: Run, file_ids: Sequence[int]) -> dict[int, tuple[int, int, int]]:
    """The time range and the generation of files, by id."""
    found: dict[int, tuple[int, int, int]] = {}
    for start in range(0, len(file_ids), IDS_MAX):
        part = file_ids[start : start + IDS_MAX]
        query = sa.select(_C.file_id, _C.lo_us, _C.hi_us, _C.generation)
        rows = run(query.where(_C.file_id.in_(part)))
        found.update({file_id: (lo, hi, generation) for file_id, lo, hi, generation in rows})
    return found


def drop_files(run: Run, file_ids: Sequence[int], snapshot_id: int) -> None:
    for start in range(0, len(file_ids), IDS_MAX):
        part = file_ids[start : start + IDS_MAX]
        run(
            sa.update(schema.files).where(_C.file_id.in_(part)).values(dropped_snapshot=snapshot_id)
        )


def raise_generations(run: Run, table_id: int, places: Iterable[Ranged]) -> list[Generation]:
    """The next generations of the spans of time that places touch, the oldest first; a span
    begins with 1.

    Spans do not overlap. Those that a place reaches into become one with it, and go on from the
    highest of their generations: that of a moment never goes back, whatever is merged.
    """
    raised: list[Generation] = []
    for group in overlapping(places):
        lo_us, hi_us = min(each.lo_us for each in group), max(each.hi_us for each in group)
        made = _raise_span(run, table_id, lo_us, hi_us)
        while raised and raised[-1].lo_us >= made.lo_us:  # the oldest come first
            raised.pop()
        raised.append(made)
    return raised


def _raise_span(run: Run, table_id: int, lo_us: int, hi_us: int) -> Generation:
    where = {"of_table": table_id, "from_us": lo_us, "to_us": hi_us}
    spans = [Generation(*row) for row in run(_RAISE_GENERATIONS, where)]
    if len(spans) == 1 and spans[0].lo_us <= lo_us and spans[0].hi_us >= hi_us:
        return spans[0]
    made = Generation(
        min([lo_us, *(span.lo_us for span in spans)]),
        max([hi_us, *(span.hi_us for span in spans)]),
        max((span.number for span in spans), default=1),
    )
    c = schema.partitions.c
    if spans:
        inside = c.lo_us.between(made.lo_us, made.hi_us - 1)
        run(sa.delete(schema.partitions).where(c.table_id == table_id, inside))
    values = {"table_id": table_id, "lo_us": made.lo_us, "hi_us": made.hi_us}
    run(_INSERT_GENERATION, {**values, "generation": made.number})
    return made


def next_file_id(run: Run, count: int) -> int:
    """The first of as many ids that were never given out."""
    return int(run(_NEXT_FILE_ID, {"count": count}).scalar_one()) - count


def insert_files(run: Run, files: Sequence[DataFile]) -> None:
    run(_INSERT_FILE, [file_row(file) for file in files])


def put_move(run: Run, table_id: int, snapshot_id: int, moved_seq: int) -> None:
    """How far rows are in files from this snapshot on."""
    row = {"table_id": table_id, "created_snapshot": snapshot_id, "moved_seq": moved_seq}
    run(_PUT_MOVE, row)


def add_reservations(run: Run, table_id: int, reservations: Sequence[Reservation]) -> None:
    rows = [
        {
            "table_id": table_id,
            "first_seq": each.first_seq,
            "last_seq": each.last_seq,
            "created_snapshot": each.created_snapshot,
        }
        for each in reservations
    ]
    run(sa.insert(schema.reservations), rows)


def put_reserved(run: Run, table_id: int, reserved_seq: int) -> None:
    run(_PUT_RESERVED, {"table_id": table_id, "reserved_seq": reserved_seq})


def put_progress(run: Run, table_id: int, progress: str) -> None:
    run(_PUT_PROGRESS, {"table_id": table_id, "reserved_seq": 0, "progress": progress})


def put_marks(run: Run, table_id: int, marks: Iterable[Mark]) -> None:
    """Neither moments nor sequence numbers go back, though people set clocks back."""
    last = run(_LAST_MARK, {"table_id": table_id}).one_or_none()
    at_us, seq = last or (None, 0)
    kept: dict[int, int] = {}
    for mark_us, mark_seq in sorted(marks):
        at_us = mark_us if at_us is None else max(at_us, mark_us)
        seq = max(seq, mark_seq)
        kept[at_us] = seq
    run(_PUT_MARK, [{"table_id": table_id, "at_us": at, "seq": seq} for at, seq in kept.items()])


def add_changes(run: Run, table_id: int, sets: Iterable[ChangeSet], snapshot_id: int) -> None:
    rows = [
        {
            "table_id": table_id,
            "first_number": each.first_number,
            "last_number": each.last_number,
            "body": each.body,
            "created_snapshot": snapshot_id,
        }
        for each in sets
    ]
    run(sa.insert(schema.changes), rows)


def end_changes(run: Run, table_id: int, numbers: Sequence[int], snapshot_id: int) -> None:
    """Nothing needs these sets from a snapshot on."""
    c = schema.changes.c
    for start in range(0, len(numbers), IDS_MAX):
        part = c.first_number.in_(numbers[start : start + IDS_MAX])
        live = sa.and_(c.table_id == table_id, part, c.dropped_snapshot.is_(None))
        run(sa.update(schema.changes).where(live).values(dropped_snapshot=snapshot_id))


def put_packages(run: Run, table_id: int, packages: Iterable[Package]) -> None:
    """Record packages; one that is known by name, size and digest is replaced."""
    rows = [
        {
            "table_id": table_id,
            "name_hash": schema.text_hash(each.name),
            "size": each.size,
            "digest": each.digest,
            "name": each.name,
            "state": each.state,
            "reason": None if each.reason is None else _storable(each.reason),
            "row_count": each.rows,
            "rejected": each.rejected,
            "late": each.late,
            "loaded_at_us": each.loaded_at_us,
            "source": each.source,
            "job_id": each.job_id,
            "replaced": each.replaced,
        }
        for each in packages
    ]
    run(_PUT_PACKAGE, rows)


def _storable(reason: str) -> str:
    """A reason quotes what may be the very bytes that no database can hold."""
    text = reason[:REASON_CHARS_MAX].replace("\0", "\ufffd")
    return text.encode(errors="replace").decode()


def _put(table: sa.Table, *names: str) -> Prepared:
    """An INSERT of whole rows; of a row that is there, the named columns are replaced."""

    def build(insert: InsertOf) -> sa.ClauseElement:
        statement = insert(table)
        taken = {name: statement.excluded[name] for name in names}
        keys = list(table.primary_key)
        return statement.on_conflict_do_update(index_elements=keys, set_=taken)

    return Prepared(build)


def _raise_generations(_: InsertOf) -> sa.ClauseElement:
    """One more for the spans that reach into a range, of which at most one begins before it."""
    spans, earlier = schema.partitions.c, schema.partitions.alias().c
    table_id: sa.BindParameter[int] = sa.bindparam("of_table")
    from_us: sa.BindParameter[int] = sa.bindparam("from_us")
    to_us: sa.BindParameter[int] = sa.bindparam("to_us")
    nearest = sa.select(sa.func.max(earlier.lo_us)).where(
        earlier.table_id == table_id, earlier.lo_us <= from_us
    )
    reached = sa.and_(
        spans.table_id == table_id,
        spans.lo_us >= sa.func.coalesce(nearest.scalar_subquery(), from_us),
        spans.lo_us < to_us,
        spans.hi_us > from_us,
    )
    raised = sa.update(schema.partitions).values(generation=spans.generation + 1).where(reached)
    return raised.returning(spans.lo_us, spans.hi_us, spans.generation)


def _next_file_id(_: InsertOf) -> sa.ClauseElement:
    counter = schema.catalog.c.next_file_id
    raised = counter + sa.bindparam("count")
    return sa.update(schema.catalog).values({counter: raised}).returning(counter)


def _last_mark(_: InsertOf) -> sa.ClauseElement:
    marks = schema.marks.c
    mine = sa.select(marks.at_us, marks.seq).where(marks.table_id == sa.bindparam("table_id"))
    return mine.order_by(marks.at_us.desc()).limit(1)


_RAISE_GENERATIONS = Prepared(_raise_generations)
_INSERT_GENERATION = Prepared(lambda insert: insert(schema.partitions))
_NEXT_FILE_ID = Prepared(_next_file_id)
_LAST_MARK = Prepared(_last_mark)
_INSERT_FILE = Prepared(lambda insert: insert(schema.files))
_PUT_MOVE = _put(schema.moves, "moved_seq")
_PUT_RESERVED = _put(schema.histories, "reserved_seq")
_PUT_PROGRESS = _put(schema.histories, "progress")
_PUT_MARK = _put(schema.marks, "seq")
_PUT_PACKAGE = _put(
    schema.packages, *(each.name for each in schema.packages.columns if not each.primary_key)
)


def package_of(row: sa.Row[Any]) -> Package:
    return Package(
        name=row.name,
        size=row.size,
        digest=row.digest,
        state=row.state,
        reason=row.reason,
        rows=row.row_count,
        rejected=row.rejected,
        late=row.late,
        loaded_at_us=row.loaded_at_us,
        source=row.source,
        job_id=row.job_id,
        replaced=row.replaced,
    )
