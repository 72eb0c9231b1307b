"""Primary keys of streaming tables, compared over memory and files.

Memory knows its own keys (``hot.primary``). This module answers for the files: which keys of a
batch they hold, which keys the files of a load repeat, and, after a start, which rows that the log
brought back had been replaced by loaded ones. Rows that no longer count hold no key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.model import NewFile, Snapshot
from tidemill.changes.needed import Needed
from tidemill.changes.values import Named, registered
from tidemill.history.checking import check_files
from tidemill.history.storage import Storage
from tidemill.hot import keys
from tidemill.hot.primary import Key
from tidemill.hot.table import HotTable
from tidemill.hot.view import Wanted
from tidemill.stream.engine import Engine
from tidemill.stream.image import Image, look
from tidemill.stream.relation import FileScan, HasColumns
from tidemill.stream.removed import Deletes
from tidemill.types import SEQ, quote

Numbers = npt.NDArray[np.int64]
_NO_NUMBERS: Numbers = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class KeyConflicts:
    """Loaded rows whose primary key exists already: arrays of equal length.

    Row ``seqs[i]`` has the key of ``against[i]``, the row before it in the order of arrival, where
    rows that were there before the load come first; ``times_us[i]`` is the time of both. So a key
    that three loaded rows share has two conflicts, and each but the first row is in ``seqs``.
    """

    seqs: Numbers
    against: Numbers
    times_us: Numbers


@dataclass(frozen=True)
class Keys:
    """Compares primary keys with those of history."""

    snapshot: Callable[[], Snapshot]
    storage: Storage
    duck: Engine

    def in_files(self, hot: HotTable, batch: pa.RecordBatch) -> dict[Key, int]:
        """The keys of a batch that files hold, with the number of the row that has each. Most
        batches are newer than any file."""
        table = hot.table
        needed = Needed.of_keys(batch, table.primary_key, table.time_column)
        image = look(hot, needed=[needed]).at(self.snapshot())
        if not image.history.files or hot.primary is None or table.time_column is None:
            return {}
        scan = image.in_files(_span_of(batch, table.time_column), needed=needed)
        if not scan.files:
            return {}
        wanted = pa.Table.from_batches([batch]).select(list(hot.primary.columns))
        with self.duck.lent(exact=True) as connection:
            found = find_keys(self.storage, connection, table, scan.parts[0], wanted, table.name)
        held: dict[Key, int] = {}
        for part in found.to_batches():
            numbers = part.column(SEQ).to_pylist()
            held.update(zip(hot.primary.keys_of(part), numbers, strict=True))
        return held

    def repeated(self, hot: HotTable, files: Sequence[NewFile]) -> KeyConflicts:
        """Keys that files of a load repeat: of each other, of history, and of rows in memory."""
        if not files:
            return KeyConflicts(_NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS)
        image = look(hot).at(self.snapshot())
        named = Named()
        sql = self._repeated_sql(image, files, named)
        named["tm_held"] = image.view.whole(True).select([*image.table.primary_key, SEQ])
        found, _ = self.duck.query(sql, {}, named, exact=True)
        return KeyConflicts(*(_numbers(found.column(at)) for at in range(3)))

    def _repeated_sql(self, image: Image, files: Sequence[NewFile], named: Named) -> str:
        table, storage = image.table, self.storage
        names = list(table.primary_key)
        low = min(file.time_min_us for file in files)
        high = max(file.time_max_us for file in files)
        old = image.in_files(Wanted(low, high))
        check_files(storage, table.name, [*files, *old.all_files], [*names, SEQ])
        there = [
            part.sql(storage, table, names, with_seq=True, named=named)
            for part in old.parts
            if part.files
        ]
        columns = ", ".join([*map(quote, names), SEQ])
        held = [*(f"SELECT {columns} FROM ({text})" for text in there)]
        both = " UNION ALL ".join([*held, f"SELECT {columns} FROM tm_held"])
        added = FileScan(tuple(files)).sql(storage, table, names, with_seq=True)
        keys_sql, time = ", ".join(map(quote, names)), quote(table.time_column or "")
        return f"""
            WITH added AS (SELECT {columns} FROM ({added})),
            there AS ({both}),
            met AS (SELECT * FROM there SEMI JOIN added USING ({keys_sql})),
            rows AS (
                SELECT {columns}, true AS is_new FROM added
                UNION ALL SELECT {columns}, false FROM met
            )
            SELECT {SEQ}, lag({SEQ}) OVER w AS against, epoch_us({time}) AS at_us
            FROM rows
            WINDOW w AS (PARTITION BY {keys_sql} ORDER BY is_new, {SEQ})
            QUALIFY is_new AND against IS NOT NULL
        """

    def recall(self, hot: HotTable) -> None:
        """After a start: take rows out of memory that the log brought back and that loaded rows
        had replaced."""
        history = self.snapshot().history(hot.table.table_id)
        deletes = [file for file in history.deletes if file.seq_max > history.moved_seq]
        if deletes and hot.primary is not None:
            seqs = Deletes(self.storage, self.duck).numbers(deletes, hot.table.name)
            later = [seq for seq in seqs if seq > history.moved_seq]
            hot.forget(later, [file.path for file in deletes])


def find_keys(
    storage: Storage,
    connection: duckdb.DuckDBPyConnection,
    table: HasColumns,
    scan: FileScan,
    wanted: pa.Table,
    name: str = "",
) -> pa.Table:
    """The rows of a scan that hold one of the keys: the key columns, as given, and ``_seq``.
    ``name`` is the table's, for errors."""
    schema = wanted.schema.append(pa.field(SEQ, pa.int64()))
    if not scan.files or not wanted.num_rows:
        return schema.empty_table()
    names = wanted.column_names
    check_files(storage, name, [*scan.files, *scan.removed.deletes], [*names, SEQ])
    numbers = pa.array(np.arange(wanted.num_rows, dtype=np.int64))
    tm_keys = pa.table(  # noqa: F841  (DuckDB finds it by name)
        [*wanted.columns, numbers], names=[*(f"k{at}" for at in range(len(names))), "n"]
    )
    named = Named()
    rows = scan.sql(storage, table, names, with_seq=True, named=named)
    same = " AND ".join(f"k.k{at} = s.{quote(name)}" for at, name in enumerate(names))
    text = f"SELECT k.n, s.{SEQ} FROM tm_keys AS k JOIN ({rows}) AS s ON {same} ORDER BY ALL"
    with registered(connection, named):
        found = connection.sql(text).to_arrow_table()
    held = wanted.take(found.column("n"))
    return pa.Table.from_arrays([*held.columns, found.column(SEQ)], schema=schema)


def _span_of(batch: pa.RecordBatch, time_column: str) -> Wanted:
    times = keys.words(batch.column(time_column))
    return Wanted(int(times.min()), int(times.max()))


def _numbers(column: pa.ChunkedArray) -> Numbers:
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False), dtype=np.int64)
