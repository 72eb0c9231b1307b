"""The feed of a stream: what came behind a position, in the order of arrival.

A follower remembers how far it has come by sequence numbers. Rows that were appended come in the
order of their numbers, from memory or, when the follower was so slow that they moved, from files.
A load gets its numbers before its rows are there: they appear in files, all at once, when it is
committed, maybe behind rows that were appended later. So a load is followed by itself, span by
span, and the numbers of loads are left out of the rest.

Rows that were removed before the follower came to them are not given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from tidemill.catalog.model import History, Snapshot
from tidemill.history.checking import check_files
from tidemill.history.storage import Storage
from tidemill.history.writing import SEQ
from tidemill.hot.gather import SEQ_FIELD
from tidemill.hot.table import HotTable
from tidemill.hot.view import Wanted
from tidemill.stream.engine import Lender
from tidemill.stream.image import Image, look
from tidemill.stream.relation import SeqRange


@dataclass(frozen=True)
class Batch:
    """Rows with their sequence numbers, in order, and the number up to which there are no others
    behind the position that was asked for."""

    rows: pa.Table
    upto_seq: int

    def first(self, count: int) -> Batch:
        """The first rows alone, one at least."""
        rows = self.rows.slice(0, count)
        return self if rows.num_rows == self.rows.num_rows else Batch(rows, _last_seq(rows))


@dataclass(frozen=True)
class Feed:
    """The rows of one stream, for whoever follows it."""

    hot: HotTable
    snapshot: Callable[[], Snapshot]
    storage: Storage
    duck: Lender

    def appended(self, after_seq: int, rows_max: int) -> Batch | None:
        """The next rows that were appended; None if there are no new numbers."""
        image = look(self.hot).at(self.snapshot())
        view = image.view
        if view.published_seq <= after_seq:
            return None
        if view.moved_seq <= after_seq:
            rows, upto = view.since(after_seq, with_seq=True, rows_max=rows_max)
            return Batch(rows, upto).first(rows_max)
        low, high = between_loads(image.history, after_seq, view.moved_seq)
        return self._in_files(image, low, high, rows_max)

    def loads(self, after_snapshot: int) -> Iterator[SeqRange]:
        """The numbers of loads that were committed behind a snapshot."""
        for span in self.snapshot().history(self.hot.table.table_id).reservations:
            if span.created_snapshot > after_snapshot:
                yield span.first_seq, span.last_seq

    def loaded(self, after_seq: int, last_seq: int, rows_max: int) -> Batch:
        """The next rows of a load, whose last number is given."""
        return self._in_files(look(self.hot).at(self.snapshot()), after_seq, last_seq, rows_max)

    def waiting_rows(self, after_seq: int) -> int:
        """Rows in memory that come behind a position."""
        return self.hot.view().rows_behind(after_seq)

    def _in_files(self, image: Image, after_seq: int, upto_seq: int, rows_max: int) -> Batch:
        table = image.table
        schema = table.schema.append(SEQ_FIELD)
        scan = image.in_files(Wanted(with_seq=True), seq_range=(after_seq + 1, upto_seq))
        text = scan.sql(self.storage, table, with_seq=True)
        if text is None:
            return Batch(schema.empty_table(), upto_seq)
        check_files(self.storage, table.name, scan.all_files)
        with self.duck.lent(exact=True) as connection:
            found = connection.sql(f"SELECT * FROM ({text}) ORDER BY {SEQ} LIMIT {rows_max}")
            rows = found.to_arrow_table()
        rows = pa.Table.from_arrays(
            [c.cast(f.type) for c, f in zip(rows.columns, schema, strict=True)], schema=schema
        )
        return Batch(rows, upto_seq if rows.num_rows < rows_max else _last_seq(rows))


def between_loads(history: History, after_seq: int, upto_seq: int) -> SeqRange:
    """The first stretch of numbers behind one that no load was given."""
    for span in history.reservations:
        if span.first_seq <= after_seq + 1 <= span.last_seq:
            after_seq = min(span.last_seq, upto_seq)
        elif after_seq < span.first_seq <= upto_seq:
            upto_seq = span.first_seq - 1
    return after_seq, upto_seq


def _last_seq(rows: pa.Table) -> int:
    return int(rows.column(SEQ)[-1].as_py())
