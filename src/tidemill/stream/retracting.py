"""Rows that are taken back: what a follower was given and no reader sees any more.

Since the moment up to which the follower was told (``Position.seen``), a row may have been replaced

1. by one that was appended: memory notes which, until that one has moved (``hot.replacements``);
2. by a load: its files of deletes name it. A compaction may have done with such a file meanwhile;
   the catalog knows it as long as it keeps snapshots of before.

Of these, the rows that the follower holds are taken back, with the values that they had: from the
log if they were in memory, else from the files that hold them under the deletes, or held them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidemill.catalog.model import FILE_REPLACED, FILE_ROWS, DataFile
from tidemill.catalog.store import Catalog
from tidemill.history.checking import check_files
from tidemill.history.storage import Storage
from tidemill.hot.gather import SEQ_FIELD
from tidemill.hot.table import HotTable
from tidemill.stream.engine import Lender
from tidemill.stream.image import Image
from tidemill.stream.position import Position, Seen
from tidemill.stream.relation import FileScan, row_files
from tidemill.stream.removed import Deletes
from tidemill.stream.replaced import rows_in_log
from tidemill.types import SEQ

RETRACTED_MAX = 1_000_000
LOAD = "load"


class Lapsed(Exception):
    """A position is too old: what was taken back since is not known any more. The follower begins
    anew, from an image."""


@dataclass(frozen=True)
class Retracting:
    """Finds the rows of one stream that are taken back."""

    hot: HotTable
    catalog: Catalog
    storage: Storage
    duck: Lender

    def rows(self, image: Image, position: Position, upto: Seen) -> pa.Table | None:
        """The rows up to a position that are taken back as of an image, which was taken at
        ``upto``, in the order of their numbers; None if there are none."""
        if position.is_start:
            return None
        seqs = {*self._replaced(position.seen, upto), *self._deleted(image, position.seen, upto)}
        held = position.held(sorted(seqs), image.history.reservations)
        if not held:
            return None
        if len(held) > RETRACTED_MAX:
            raise Lapsed
        return self._values(image, held, upto)

    def _replaced(self, seen: Seen, upto: Seen) -> list[int]:
        """What rows replaced that were appended since."""
        found = self.hot.published.replacements.between(seen.seq, upto.seq)
        if found is None:
            raise Lapsed
        return found

    def _deleted(self, image: Image, seen: Seen, upto: Seen) -> list[int]:
        """What loads replaced that were committed since."""
        if seen.snapshot_id >= upto.snapshot_id:
            return []
        if seen.snapshot_id < min(number for number, _ in self.catalog.snapshots()):
            raise Lapsed
        table = image.table
        dropped = self.catalog.records.dropped_files(
            table.table_id, seen.snapshot_id, upto.snapshot_id
        )
        files = [
            file
            for file in (*image.history.deletes, *dropped)
            if file.is_deletes and file.origin == LOAD and file.created_snapshot > seen.snapshot_id
        ]
        return Deletes(self.storage, self.duck).numbers(files, table.name)

    def _values(self, image: Image, seqs: list[int], upto: Seen) -> pa.Table:
        """The rows as they were, wherever they can be found."""
        found = rows_in_log(self.hot, seqs)
        if found.num_rows < len(seqs):
            found = self._with(found, image, seqs, row_files(image.history))
        if found.num_rows < len(seqs):
            dropped = self.catalog.records.dropped_files(image.table.table_id, -1, upto.snapshot_id)
            held = [file for file in dropped if file.kind in (FILE_ROWS, FILE_REPLACED)]
            found = self._with(found, image, seqs, held)
        if found.num_rows != len(seqs):
            raise Lapsed
        return found.sort_by(SEQ)

    def _with(
        self, found: pa.Table, image: Image, seqs: Sequence[int], files: Sequence[DataFile]
    ) -> pa.Table:
        """What was found, and more from files, whether the rows count there or not."""
        known = set(found.column(SEQ).to_pylist())
        left = [seq for seq in seqs if seq not in known]
        first, last = left[0], left[-1]
        own = tuple(file for file in files if file.seq_min <= last and file.seq_max >= first)
        if not own:
            return found
        table, schema = image.table, image.table.schema.append(SEQ_FIELD)
        check_files(self.storage, table.name, own)
        text = FileScan(own, seq_range=(first, last)).sql(self.storage, table, with_seq=True)
        tm_seqs = pa.table({SEQ: pa.array(left, pa.int64())})  # noqa: F841  (found by name)
        sql = f"SELECT DISTINCT ON ({SEQ}) * FROM ({text}) SEMI JOIN tm_seqs USING ({SEQ})"
        with self.duck.lent(exact=True) as connection:
            rows = connection.sql(sql).to_arrow_table()
        columns = [rows.column(field.name).cast(field.type) for field in schema]
        return pa.concat_tables([found, pa.Table.from_arrays(columns, schema=schema)])
