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
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.catalog.model import FILE_ROWS, DataFile, History, Snapshot, Table
from tidemill.catalog.store import Catalog
from tidemill.errors import UnknownNameError
from tidemill.history.ranges import RangeCondition
from tidemill.history.reading import Pruned, prune, scan_sql, side_sql
from tidemill.history.storage import Storage
from tidemill.hot.view import View, Wanted


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
    )
    if not must_filter:
        return f"({text})"
    tests = " AND ".join(f"_seq NOT BETWEEN {first} AND {last}" for first, last in part.without)
    columns = "*" if with_seq else "* EXCLUDE (_seq)"
    return f"(SELECT {columns} FROM ({text}) WHERE {tests})"


def present(history: History, view: View, wanted: Wanted) -> PastScan:
    """What a scan of the newest snapshot reads of history, beside its hot rows."""
    if not history.files:
        return PastScan((), 0)
    pruned = _pruned(history, wanted)
    return PastScan((Part(pruned, tuple(sorted(view.buried))),), _row_files(history))


def past(
    catalog: Catalog,
    pins: Pins,
    table: Table,
    reached_seq: int | None,
    current: Snapshot,
    view: View,
    wanted: Wanted,
    at_us: int,
) -> tuple[PastScan, pa.Table]:
    """What a reader saw at a moment: files, and rows that are in memory still.

    ``reached_seq`` is the sequence number that memory knows the table had reached then."""
    then = catalog.snapshot_at(at_us)
    pin = pins.pin_older(then)
    _check_same(table, then)
    history = then.history(table.table_id)
    known = [seq for seq in (reached_seq, catalog.seq_at(table.table_id, at_us)) if seq is not None]
    upto_seq = max([history.moved_seq, *known])
    parts = [Part(_pruned(history, wanted))]
    total = _row_files(history)
    hot = view.whole(True).slice(0, 0)
    if upto_seq > history.moved_seq:
        later = catalog.snapshot_holding(table.table_id, upto_seq, then.snapshot_id)
        source = (later or current).history(table.table_id)
        # Rows of loads have numbers in between; those of that time are in its own files.
        if (later or current).snapshot_id > then.snapshot_id:
            without = tuple((r.first_seq, r.last_seq) for r in source.reservations)
            span = (history.moved_seq + 1, upto_seq)
            parts.append(Part(_pruned(source, wanted), (), span, without))
            total += _row_files(source)
        if later is None:
            hot = _between(view.whole(True), history.moved_seq, upto_seq)
    table_rows = hot if wanted.with_seq else hot.drop_columns(["_seq"])
    return PastScan(tuple(parts), total, pin), table_rows


def _between(rows: pa.Table, after_seq: int, upto_seq: int) -> pa.Table:
    seqs = rows.column("_seq")
    return rows.filter(pc.and_(pc.greater(seqs, after_seq), pc.less_equal(seqs, upto_seq)))


def _check_same(table: Table, then: Snapshot) -> None:
    known = then.table(table.table_id)
    if known is None:
        raise UnknownNameError(
            f'table "{table.name}" did not exist at that moment',
            hint="tidemill.tables shows when it was created",
        )


def _pruned(history: History, wanted: Wanted) -> Pruned:
    conditions = [
        RangeCondition(
            condition.column,
            tuple((r.low, r.low_included, r.high, r.high_included) for r in condition.ranges),
        )
        for condition in wanted.conditions
    ]
    return prune(history, wanted.low_us, wanted.high_us, conditions)


def _row_files(history: History) -> int:
    return sum(file.kind == FILE_ROWS for file in history.files)


def side_files_sql(
    storage: Storage, table: Table, history: History, kind: str
) -> tuple[str | None, Sequence[DataFile]]:
    """A SELECT of the rows set aside that are in files."""
    files = [file for file in history.files if file.kind == kind]
    return (f"({side_sql(storage, table, kind, files)})" if files else None), files
