"""The part of a scan that lies in history: which files, and the SQL that reads them.

A reader takes the hot view first, the catalog's snapshot second, and cuts the view at the
snapshot's ``moved_seq``. Rows go from memory to files only, and memory lets go of them only when
the snapshot names the files, so each row is seen exactly once and nobody waits for anybody.

While a statement runs it holds a *pin* on its snapshot: VACUUM leaves the files of pinned
snapshots alone.

**The past** (``FOR SYSTEM_TIME AS OF T``) is what a reader would have seen at T: the files of the
snapshot S of that moment, and the rows that were in memory then. Those have sequence numbers
behind S's ``moved_seq`` and up to the one that the table had reached at T; today they are in the
files of a later snapshot or still in memory. Rows that were loaded since have numbers in between,
too, but theirs were reserved, and the catalog says for which snapshot.

**The past of keys.** A row of that time may have given way since to a newer one with its primary
key. So all rows up to the number that was reached are gathered, whatever became of them, and of
each key the newest is the row that was seen. Where a replaced row is:

1. in the files of S, if it was there at T: what deleted it came later than S;
2. in a file of a later snapshot, under deletes that S does not have: they are not obeyed, except
   for those of S itself (a load had taken a row out of memory);
3. in a file of a later snapshot that a compaction took the place of, and left the row out: such
   files are kept as long as S is, and are read beside the others;
4. in a file of replaced rows, if it gave way before it was moved: no snapshot has these;
5. in the log, if it is not moved yet (``replaced``).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

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
from tidemill.errors import UnknownNameError
from tidemill.federation.file_ranges import alternatives_of, ranges_of
from tidemill.federation.replaced import rows_in_log
from tidemill.history.deletes import may_delete
from tidemill.history.reading import Pruned, Since, prune, scan_sql, side_sql
from tidemill.history.storage import Storage
from tidemill.hot.table import HotTable
from tidemill.hot.view import View, Wanted

Deleted = Callable[[Sequence[DataFile]], Sequence[int]]
"""The sequence numbers in files of deletes."""


class Pins:
    """The snapshots that statements are reading."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._lock = threading.Lock()
        self._held: Counter[int] = Counter()

    def pin(self) -> Pin:
        """Hold the newest snapshot; the pin lets go when it is forgotten."""
        with self._lock:
            snapshot = self._snapshot()
            self._held[snapshot.snapshot_id] += 1
        return Pin(self, snapshot)

    def pin_older(self, snapshot: Snapshot) -> Pin:
        with self._lock:
            self._held[snapshot.snapshot_id] += 1
        return Pin(self, snapshot)

    def release(self, snapshot_id: int) -> None:
        with self._lock:
            self._held[snapshot_id] -= 1
            if not self._held[snapshot_id]:
                del self._held[snapshot_id]

    def held(self) -> set[int]:
        """Snapshots in use, the newest always."""
        with self._lock:
            return {*self._held, self._snapshot().snapshot_id}


class Pin:
    """A snapshot that is held until this object goes."""

    def __init__(self, pins: Pins, snapshot: Snapshot) -> None:
        self._pins = pins
        self.snapshot = snapshot

    def __del__(self) -> None:
        self._pins.release(self.snapshot.snapshot_id)


@dataclass(frozen=True)
class Part:
    """Files of one snapshot that a scan reads, all of their rows or those of a range."""

    pruned: Pruned
    buried: tuple[int, ...] = ()
    seq_range: tuple[int, int] | None = None
    horizon_us: int | None = None  # no older row may be seen
    without: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class PastScan:
    """What a scan reads of history; ``files_total`` is what it would read without pruning."""

    parts: tuple[Part, ...]
    files_total: int
    pin: Pin | None = None

    @property
    def files(self) -> list[DataFile]:
        return [file for part in self.parts for file in part.pruned.files]

    @property
    def all_files(self) -> tuple[DataFile, ...]:
        """Files of rows and files of deletes, each once."""
        pruned = [part.pruned for part in self.parts]
        found = (file for each in pruned for file in (*each.files, *each.deletes))
        return tuple({file.file_id: file for file in found}.values())

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    def sql(self, storage: Storage, table: Table, with_seq: bool) -> str | None:
        """A SELECT of the table's columns, or None if there is nothing to read."""
        selects = [_part_sql(storage, table, part, with_seq) for part in self.parts]
        found = [text for text in selects if text is not None]
        return " UNION ALL ".join(found) if found else None


def _part_sql(storage: Storage, table: Table, part: Part, with_seq: bool) -> str | None:
    if not part.pruned.files:
        return None
    must_filter = bool(part.without)
    text = scan_sql(
        storage,
        table,
        part.pruned.files,
        part.pruned.deletes,
        with_seq=with_seq or must_filter,
        buried=part.buried,
        seq_range=part.seq_range,
        since=since_of(table, part.horizon_us),
    )
    if not must_filter:
        return f"({text})"
    tests = " AND ".join(f"_seq NOT BETWEEN {first} AND {last}" for first, last in part.without)
    columns = "*" if with_seq else "* EXCLUDE (_seq)"
    return f"(SELECT {columns} FROM ({text}) WHERE {tests})"


def since_of(table: Table, horizon_us: int | None) -> Since | None:
    """What may be seen of a table's files."""
    if horizon_us is None or table.time_column is None:
        return None
    return Since(table.get_column(table.time_column), horizon_us)


def present(history: History, view: View, wanted: Wanted) -> PastScan:
    """What a scan of the newest snapshot reads of history, beside its hot rows."""
    if not history.files:
        return PastScan((), 0)
    pruned = _pruned(history, wanted)
    part = Part(pruned, tuple(sorted(view.buried)), horizon_us=wanted.horizon_us)
    return PastScan((part,), _row_files(history))


def past(
    catalog: Catalog,
    pins: Pins,
    hot: HotTable,
    current: Snapshot,
    view: View,
    wanted: Wanted,
    at_us: int,
    deleted: Deleted,
) -> tuple[PastScan, pa.Table]:
    """What a reader saw at a moment: files, and rows that memory or its log still has. Of a table
    with a primary key these are all rows up to then: the newest of each key counts."""
    table = hot.table
    then = catalog.snapshot_at(at_us)
    pin = pins.pin_older(then)
    _check_same(table, then)
    history = then.history(table.table_id)
    marks = (hot.marks.seq_at(at_us), catalog.seq_at(table.table_id, at_us))
    upto_seq = max([history.moved_seq, *(seq for seq in marks if seq is not None)])
    parts = [Part(_pruned(history, wanted))]
    total = _row_files(history)
    rows = view.whole(True).slice(0, 0)
    if upto_seq > history.moved_seq:
        later = catalog.snapshot_holding(table.table_id, upto_seq, then.snapshot_id)
        span = (history.moved_seq + 1, upto_seq)
        if later is None:
            rows = _between(view.whole(True), *span)
            if table.primary_key:
                # The log before the catalog: rows go from the one to the other, never back.
                rows = pa.concat_tables([rows, _died(hot, view, span, history, deleted)])
        source = later or current
        if table.primary_key:
            parts += _since_with_keys(catalog, then, source, table, wanted, span)
        elif source.snapshot_id > then.snapshot_id:
            parts.append(_since(source.history(table.table_id), wanted, span))
        if source.snapshot_id > then.snapshot_id:
            total += _row_files(source.history(table.table_id))
    table_rows = rows if wanted.with_seq else rows.drop_columns(["_seq"])
    return PastScan(tuple(parts), total, pin), table_rows


def seen_from(
    scan: PastScan, rows: pa.Table, table: Table, horizon_us: int | None
) -> tuple[PastScan, pa.Table]:
    """What a reader of the past was shown of it: rows that the retention kept then."""
    if horizon_us is None or table.time_column is None:
        return scan, rows
    parts = tuple(replace(part, horizon_us=horizon_us) for part in scan.parts)
    times = rows.column(table.time_column).cast(pa.int64())
    return replace(scan, parts=parts), rows.filter(pc.greater_equal(times, horizon_us))


def _since(source: History, wanted: Wanted, span: tuple[int, int]) -> Part:
    """Rows of a span in the files of a later snapshot. Rows of loads have numbers in between;
    those of that time are in its own files."""
    without = tuple((each.first_seq, each.last_seq) for each in source.reservations)
    return Part(_pruned(source, wanted), (), span, without=without)


def _since_with_keys(
    catalog: Catalog,
    then: Snapshot,
    source: Snapshot,
    table: Table,
    wanted: Wanted,
    span: tuple[int, int],
) -> Iterator[Part]:
    """The same for a table with a primary key: also rows that were replaced since."""
    table_id = table.table_id
    after_id, upto_id = then.snapshot_id, source.snapshot_id
    obeyed = _reaching(then.history(table_id), span)
    if upto_id > after_id:
        part = _since(source.history(table_id), wanted, span)
        yield replace(part, pruned=replace(part.pruned, deletes=obeyed))
    bygone = catalog.bygone_files(table_id, after_id, max(upto_id, after_id))
    files = [
        file
        for file in (*_left_out(source.history(table_id), bygone, after_id), *_replaced(bygone))
        if file.seq_min <= span[1] and file.seq_max >= span[0] and _is_in_time(file, wanted)
    ]
    if files:
        size = sum(file.bytes for file in files)
        yield Part(Pruned(tuple(files), obeyed, len(files), size, {}), (), span)


def _reaching(history: History, span: tuple[int, int]) -> tuple[DataFile, ...]:
    """Files of deletes that name rows which were in memory then."""
    return tuple(file for file in history.deletes if file.seq_max >= span[0])


def _left_out(source: History, bygone: Sequence[DataFile], after_id: int) -> Iterator[DataFile]:
    """Files that moves wrote and compactions replaced, if rows in them were deleted meanwhile."""
    held = [file for file in source.deletes if file.created_snapshot > after_id]
    deletes = [*held, *(file for file in bygone if file.kind == FILE_DELETES)]
    for file in bygone:
        is_moved = file.kind == FILE_ROWS and file.origin == "move"
        if is_moved and any(may_delete(each, file) for each in deletes):
            yield file


def _replaced(bygone: Sequence[DataFile]) -> Iterator[DataFile]:
    return (file for file in bygone if file.kind == FILE_REPLACED)


def _is_in_time(file: DataFile, wanted: Wanted) -> bool:
    low_us, high_us = wanted.low_us, wanted.high_us
    return (low_us is None or file.time_max_us >= low_us) and (
        high_us is None or file.time_min_us <= high_us
    )


def _died(
    hot: HotTable, view: View, span: tuple[int, int], history: History, deleted: Deleted
) -> pa.Table:
    """Rows of a span that memory let go of since then, from the log."""
    dead = list(view.dead.items())  # it may grow meanwhile
    seqs = {seq for seq, by in dead if span[0] <= seq <= span[1] <= by}
    obeyed = _reaching(history, span) if seqs else ()
    if obeyed:
        seqs -= set(deleted(obeyed))
    return rows_in_log(hot, seqs)


def _between(rows: pa.Table, first_seq: int, last_seq: int) -> pa.Table:
    seqs = rows.column("_seq")
    return rows.filter(pc.and_(pc.greater_equal(seqs, first_seq), pc.less_equal(seqs, last_seq)))


def _check_same(table: Table, then: Snapshot) -> None:
    known = then.table(table.table_id)
    if known is None:
        raise UnknownNameError(
            f'table "{table.name}" did not exist at that moment',
            hint="tidemill.tables shows when it was created",
        )


def _pruned(history: History, wanted: Wanted) -> Pruned:
    return prune(
        history,
        wanted.low_us,
        wanted.high_us,
        ranges_of(wanted.conditions),
        alternatives_of(wanted.alternatives),
    )


def _row_files(history: History) -> int:
    return sum(file.kind == FILE_ROWS for file in history.files)


def side_files_sql(
    storage: Storage, table: Table, history: History, kind: str
) -> tuple[str | None, Sequence[DataFile]]:
    """A SELECT of the rows set aside that are in files."""
    files = [file for file in history.files if file.kind == kind]
    return (f"({side_sql(storage, table, kind, files)})" if files else None), files
