"""Replay: a frame of the log taken as if it were written now, except that it is already written.

History may hold a part of its rows by now; these are counted and not taken into memory.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tidemill.changes.model import change_of
from tidemill.errors import CorruptLogError
from tidemill.hot import frame, keys
from tidemill.hot.frame import Frame
from tidemill.hot.frame_meta import AppendMeta, ChangeMeta, TableState
from tidemill.hot.message import Message
from tidemill.hot.side import REJECTED_SCHEMA
from tidemill.hot.table import HotTable
from tidemill.hot.unit import Unit


def replay(hot: HotTable, read: Frame) -> None:
    """Take a frame into a table."""
    if isinstance(read.meta, TableState):
        _replay_state(hot, read.first_seq, read.meta)
    elif isinstance(read.meta, ChangeMeta):
        _replay_change(hot, read, read.meta)
    else:
        _replay_append(hot, read, read.meta)


def _replay_state(hot: HotTable, next_seq: int, state: TableState) -> None:
    name, moved_seq = hot.table.name, hot.published.moved_seq
    if not pa.ipc.read_schema(pa.py_buffer(state.schema)).equals(hot.table.schema):
        raise CorruptLogError(
            f'the log of table "{name}" was written with other columns',
            hint="the catalog and the log folder do not belong together",
        )
    if state.moved_seq > moved_seq:
        raise CorruptLogError(
            f'the catalog is older than the log of table "{name}"',
            detail=f"rows up to {state.moved_seq} had moved to history, the catalog knows "
            f"of {moved_seq}",
            hint="restore the catalog and the warehouse folder from the same backup",
        )
    hot.restore(next_seq, state)


def _replay_change(hot: HotTable, read: Frame, meta: ChangeMeta) -> None:
    content = next(iter(read.contents(frame.CORRECTIONS)), None)
    assert not isinstance(content, Message), "frames that were read hold buffers"
    change = meta.change(read.first_seq - 1, content)
    unit = Unit(read.first_seq, changes=(change,))
    hot.changing.advance(unit, meta)
    hot.marks.add(change.at_us, change.upto_seq)
    if read.first_seq <= hot.published.moved_seq:  # history holds the rows before and behind it
        hot.published.changes.add(unit.changes)
        return
    hot.publisher.show_again(unit)


def _replay_append(hot: HotTable, read: Frame, meta: AppendMeta) -> None:
    unit = _unit_of(read, meta, hot.table.schema, hot.published.late.schema)
    held = _after(unit, hot.published.moved_seq)
    returned = _returned(hot, held)
    hot.advance(unit, meta)
    if meta.at_us is not None:
        hot.marks.add(meta.at_us, unit.first_seq + unit.row_count - 1)
    hot.progress.show(meta.newest_us)
    if held.first_seq <= hot.published.moved_seq:
        hot.published.changes.add(unit.changes)
        return  # history holds the rows
    hot.publisher.show_again(replace(held, replaced=(*held.replaced, *returned)))


def _returned(hot: HotTable, unit: Unit) -> list[int]:
    """Rows whose key a unit repeats without replacing them: retention had dropped them when
    it was written, and the log brought them back."""
    primary = hot.primary
    if primary is None:
        return []
    found: list[int] = []
    for batch in unit.batches:
        times = keys.words(batch.column(hot.table.time_column))
        blocks, gone = hot.published.blocks_between(int(times.min()), int(times.max()))
        check = primary.check(batch, primary.young(), blocks, gone, "replace", unit.first_seq)
        found += check.replaced
    return sorted(set(found) - set(unit.replaced))


def _after(unit: Unit, moved_seq: int) -> Unit:
    """What memory must hold of a unit when history holds the rows up to ``moved_seq``. What was
    set aside went with the unit's first row."""
    if unit.first_seq > moved_seq:
        return unit
    skip = moved_seq - unit.first_seq + 1
    batches = []
    for batch in unit.batches:
        if batch.num_rows > skip:
            batches.append(batch.slice(skip))
        skip = max(skip - batch.num_rows, 0)
    rows = unit.rows[moved_seq - unit.first_seq + 1 :]
    first = moved_seq + 1 if batches or rows else unit.first_seq
    return replace(
        unit, first_seq=first, batches=tuple(batches), rows=rows, late=None, rejected=None
    )


def _unit_of(read: Frame, meta: AppendMeta, schema: pa.Schema, late_schema: pa.Schema) -> Unit:
    if meta.rows:
        return Unit(read.first_seq, rows=meta.rows)
    parts: dict[str, list[pa.RecordBatch]] = {frame.STORED: [], frame.LATE: [], frame.REJECTED: []}
    schemas = {frame.STORED: schema, frame.LATE: late_schema, frame.REJECTED: REJECTED_SCHEMA}
    for section in read.sections:
        batch = pa.ipc.read_record_batch(section.content, schemas[section.name])
        parts[section.name].append(batch)
    late, rejected = parts[frame.LATE], parts[frame.REJECTED]
    return Unit(
        read.first_seq,
        tuple(parts[frame.STORED]),
        late=late[0] if late else None,
        rejected=rejected[0] if rejected else None,
        replaced=meta.replaced,
        changes=tuple(change_of(each, read.first_seq - 1) for each in meta.changes),
    )
