"""The past: what a reader of a table saw at an earlier moment (``FOR SYSTEM_TIME AS OF T``).

It is the files of the snapshot S of that moment, and the rows that were in memory then. Those have
sequence numbers behind S's ``moved_seq`` and up to the one that the table had reached at T; today
they are in the files of a later snapshot or still in memory. Rows that were loaded since have
numbers in between, too, but theirs were reserved, and the catalog says for which snapshot.

**With a primary key.** A row of that time may have been replaced since by a newer one with its
key. So all rows up to the number that was reached are gathered, whatever became of them, and of
each key the newest is the row that was seen. Where a replaced row is:

1. in the files of S, if it was there at T: what deleted it came later than S;
2. in a file of a later snapshot, under deletes that S does not have: those do not count, only
   those of S itself (a load had taken a row out of memory);
3. in a file of a later snapshot that a compaction took the place of, and left the row out: such
   files are kept as long as S is, and are read beside the others;
4. in a file of replaced rows, if it was replaced before it was moved: no snapshot has these;
5. in the log, if it is not moved yet (``replaced``).

**With changes** (UPDATE, DELETE). Files of S have those that were carried out by then, and get the
others of that time while they are read. Rows that were in memory are taken as they came, and get
the changes of that time: from the log, if they are still in memory; from a file of a later snapshot
otherwise, where those that changes had touched before they moved stand in a file of replaced rows
beside it, as they came.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.catalog.model import (
    FILE_DELETES,
    FILE_REPLACED,
    FILE_ROWS,
    DataFile,
    History,
    Snapshot,
    Table,
)
from tidemill.catalog.store import Catalog
from tidemill.changes.model import Change, unpack
from tidemill.changes.patching import patched
from tidemill.changes.resolving import resolve
from tidemill.errors import UnknownNameError
from tidemill.history.deletes import may_delete
from tidemill.history.reading import Pruned
from tidemill.hot.table import HotTable
from tidemill.hot.view import HotView, Wanted
from tidemill.stream.pins import Pins
from tidemill.stream.relation import FileScan, HistoryScan, SeqRange, pruned_scan, retained
from tidemill.stream.removed import Deletes, Removed
from tidemill.stream.replaced import rows_in_log
from tidemill.types import SEQ


@dataclass(frozen=True)
class PastReader:
    """Reads earlier moments."""

    catalog: Catalog
    pins: Pins
    deletes: Deletes

    def read(
        self, hot: HotTable, current: Snapshot, view: HotView, wanted: Wanted, at_us: int
    ) -> tuple[HistoryScan, pa.Table]:
        """What a reader saw at a moment: files, and rows that memory or its log still has. Of a
        table with a primary key these are all rows up to then: the newest of each key counts."""
        table, catalog = hot.table, self.catalog
        then = catalog.snapshot_at(at_us)
        pin = self.pins.pin_older(then)
        _check_same(table, then)
        history = then.history(table.table_id)
        marks = (hot.marks.seq_at(at_us), catalog.records.seq_at(table.table_id, at_us))
        upto_seq = max([history.moved_seq, *(seq for seq in marks if seq is not None)])
        changes = self._changes(hot, at_us)
        parts = [pruned_scan(history, wanted, changes=changes)]
        total = _row_files(history)
        rows = view.whole(True).slice(0, 0)
        if upto_seq > history.moved_seq:
            later = catalog.snapshot_holding(table.table_id, upto_seq, then.snapshot_id)
            span = (history.moved_seq + 1, upto_seq)
            if later is None and hot.published.changes.last:
                left = range(max(span[0], view.moved_seq + 1), span[1] + 1)
                rows = _changed(hot, rows_in_log(hot, left), changes)
            elif later is None:
                rows = _between(view.whole(True), *span)
                if table.primary_key:
                    # The log before the catalog: rows go from the one to the other, never back.
                    rows = pa.concat_tables([rows, self._replaced(hot, view, span, history)])
            source = later or current
            if hot.published.changes.last:
                parts += _since_with_changes(catalog, then, source, table, wanted, span, changes)
            elif table.primary_key:
                parts += _since_with_keys(catalog, then, source, table, wanted, span)
            elif source.snapshot_id > then.snapshot_id:
                parts.append(_since(source.history(table.table_id), wanted, span))
            if source.snapshot_id > then.snapshot_id:
                total += _row_files(source.history(table.table_id))
        table_rows = rows if wanted.with_seq else rows.drop_columns([SEQ])
        return HistoryScan(tuple(parts), total, pin), table_rows

    def _changes(self, hot: HotTable, at_us: int) -> tuple[Change, ...]:
        """The changes that were made up to a moment, as far as any row may need them."""
        if not hot.published.changes.last:
            return ()
        with hot.published.lock:
            known, new = hot.published.changes.pending, tuple(hot.published.changes.new)
        sets = self.catalog.records.changes(hot.table.table_id, is_live=False)
        every = [*(c for each in sets for c in unpack(each.body)), *known, *new]
        found = {change.number: change for change in every if change.at_us <= at_us}
        return tuple(found[number] for number in sorted(found))

    def _replaced(self, hot: HotTable, view: HotView, span: SeqRange, history: History) -> pa.Table:
        """Rows of a span that were replaced in memory since then, from the log."""
        replaced = list(view.gone.items())  # it may grow meanwhile
        seqs = {seq for seq, by in replaced if span[0] <= seq <= span[1] <= by}
        deletes = _reaching(history, span) if seqs else ()
        if deletes:
            seqs -= set(self.deletes.numbers(deletes, hot.table.name))
        return rows_in_log(hot, seqs)


def seen_from(
    scan: HistoryScan, rows: pa.Table, table: Table, horizon_us: int | None
) -> tuple[HistoryScan, pa.Table]:
    """What a reader of the past was shown of it: rows that the retention kept then."""
    if horizon_us is None or table.time_column is None:
        return scan, rows
    times = retained(table, horizon_us)
    parts = tuple(replace(part, times=times) for part in scan.parts)
    own = rows.column(table.time_column).cast(pa.int64())
    return replace(scan, parts=parts), rows.filter(pc.greater_equal(own, horizon_us))


def _since(source: History, wanted: Wanted, span: SeqRange) -> FileScan:
    """Rows of a span in the files of a later snapshot. Rows of loads have numbers in between;
    those of that time are in its own files."""
    loads = tuple((each.first_seq, each.last_seq) for each in source.reservations)
    return replace(pruned_scan(source, wanted), seq_range=span, except_ranges=loads)


def _since_with_keys(
    catalog: Catalog,
    then: Snapshot,
    source: Snapshot,
    table: Table,
    wanted: Wanted,
    span: SeqRange,
) -> Iterator[FileScan]:
    """The same for a table with a primary key: also rows that were replaced since."""
    table_id = table.table_id
    after_id, upto_id = then.snapshot_id, source.snapshot_id
    removed = Removed.of(_reaching(then.history(table_id), span))
    if upto_id > after_id:
        yield replace(_since(source.history(table_id), wanted, span), removed=removed)
    dropped = catalog.records.dropped_files(table_id, after_id, max(upto_id, after_id))
    files = tuple(
        file
        for file in (*_left_out(source.history(table_id), dropped, after_id), *_of_past(dropped))
        if file.seq_min <= span[1] and file.seq_max >= span[0] and _is_in_time(file, wanted)
    )
    if files:
        size = sum(file.bytes for file in files)
        yield FileScan(files, removed, span, pruned=Pruned(files, len(files), size, {}))


def _since_with_changes(
    catalog: Catalog,
    then: Snapshot,
    source: Snapshot,
    table: Table,
    wanted: Wanted,
    span: SeqRange,
    changes: tuple[Change, ...],
) -> Iterator[FileScan]:
    """The same for a table with changes: rows that these had touched before they moved are read as
    they came, from the files beside those of the move."""
    after_id, upto_id = then.snapshot_id, source.snapshot_id
    dropped = catalog.records.dropped_files(table.table_id, after_id, max(upto_id, after_id))
    as_they_came = tuple(
        file
        for file in _of_past(dropped)
        if file.seq_min <= span[1] and file.seq_max >= span[0] and _is_in_time(file, wanted)
    )
    if table.primary_key:
        parts = _since_with_keys(catalog, then, source, table, wanted, span)
    else:
        parts = iter([_since(source.history(table.table_id), wanted, span)])
    for part in parts:
        files = tuple(file for file in part.files if file not in as_they_came)
        removed = Removed.of((*part.removed.deletes, *as_they_came), part.removed.seqs)
        yield replace(part, files=files, removed=removed, changes=changes)
    if as_they_came:
        size = sum(file.bytes for file in as_they_came)
        pruned = Pruned(as_they_came, len(as_they_came), size, {})
        yield FileScan(as_they_came, seq_range=span, pruned=pruned, changes=changes)


def _changed(hot: HotTable, rows: pa.Table, changes: tuple[Change, ...]) -> pa.Table:
    """Rows as they came, with changes."""
    touched = resolve(hot.table, rows.sort_by(SEQ), changes)
    if not touched:
        return rows
    found = []
    for batch in rows.to_batches():
        seqs = np.asarray(batch.column(SEQ).to_numpy(), dtype=np.int64)
        kept = pa.array(~np.isin(seqs, touched.deleted))
        found.append(patched(batch, seqs, touched).filter(kept))
    return pa.Table.from_batches(found, rows.schema)


def _reaching(history: History, span: SeqRange) -> tuple[DataFile, ...]:
    """Files of deletes that name rows which were in memory then."""
    return tuple(file for file in history.deletes if file.seq_max >= span[0])


def _left_out(source: History, dropped: Sequence[DataFile], after_id: int) -> Iterator[DataFile]:
    """Files that moves wrote and compactions replaced, if rows in them were deleted meanwhile."""
    held = [file for file in source.deletes if file.created_snapshot > after_id]
    deletes = [*held, *(file for file in dropped if file.kind == FILE_DELETES)]
    for file in dropped:
        is_moved = file.kind == FILE_ROWS and file.origin == "move"
        if is_moved and any(may_delete(each, file) for each in deletes):
            yield file


def _of_past(dropped: Sequence[DataFile]) -> Iterator[DataFile]:
    return (file for file in dropped if file.kind == FILE_REPLACED)


def _is_in_time(file: DataFile, wanted: Wanted) -> bool:
    low_us, high_us = wanted.low_us, wanted.high_us
    return (low_us is None or file.time_max_us >= low_us) and (
        high_us is None or file.time_min_us <= high_us
    )


def _between(rows: pa.Table, first_seq: int, last_seq: int) -> pa.Table:
    seqs = rows.column(SEQ)
    return rows.filter(pc.and_(pc.greater_equal(seqs, first_seq), pc.less_equal(seqs, last_seq)))


def _check_same(table: Table, then: Snapshot) -> None:
    known = then.table(table.table_id)
    if known is None:
        raise UnknownNameError(
            f'table "{table.name}" did not exist at that moment',
            hint="tidemill.tables shows when it was created",
        )


def _row_files(history: History) -> int:
    return sum(file.kind == FILE_ROWS for file in history.files)
