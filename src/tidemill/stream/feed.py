"""The feed of a stream: what appears behind a position, and what is taken back. The one place that
follows a stream; views, kept queries and whoever comes later take their rows from here.

A follower holds a ``Position``, asks for the ``next_batch`` behind it, works on the batch, and
holds the batch's position from then on. The feed itself remembers nothing of its followers.

**Signs.** A batch is a difference, as in differential dataflow: ``rows`` appear (+1 each), and
``retracted`` are taken back (-1 each), with the values that they had, because rows with their key
replaced them. Most streams never take a row back: ``retracted`` is None, there is no column for a
sign (``Batch.signed`` makes one), and rows in memory are handed out as they lie there, without a
copy. Whoever cannot subtract builds its state again. Rows that the retention hides are not taken
back: it is the follower who knows as of when it answers.

**Order.** Rows that were appended come in the order of their sequence numbers. A load gets its
numbers before its rows are there: they appear in files, all at once, when it is committed, maybe
behind rows that were appended later. So a load is followed by itself, in the order of its numbers,
when no appended row waits; its numbers are left out of the rest. What is taken back comes with, and
counts before, the rows of the batch.

**Exactly once.** All that was given up to a position, with its signs, is what an image of the
stream at ``position.seen`` shows of the rows up to the position. So a row that was replaced before
the follower came to it is not given at all, neither with +1 nor with -1; and a follower that was
told that there is nothing more (None) holds what a reader sees. Between batches a key may be
missing: its row was taken back, and the newer one is still to come.

**After a crash.** Sequence numbers, loads and snapshots are durable before a batch can show them.
A follower that stores its position together with its results goes on behind it and misses nothing,
and one that stored results without the position is given the same rows again. What was replaced is
known from the log, as far as it reaches (below). The numbers of a load are known as long as
snapshots since its commit are kept (``time_travel``): a follower that stands still for longer may
be given its rows as if they were appended, or not at all if it is past its numbers.

**Rows that have left memory** are read from files, sorted by number; a slow follower sees the same
rows, for more work (``Arrivals.have_left`` tells whether it would, for those who know a shorter
way). Rows that expired before it came to them are not given.

**A position lapses** (``Lapsed``) if it is too old for the feed to tell what was taken back: rows
that replaced others have moved to files since, or snapshots of its time are no longer kept, or
there are more than ``RETRACTED_MAX``. The follower then begins anew, from an image. Positions in
streams without a primary key never lapse, and neither does the very beginning (``Position()``).

**Bounds.** A batch has at most ``rows_max`` rows that appear and ``RETRACTED_MAX`` that are taken
back; ``Arrivals`` hand out whole blocks, and may go beyond by one. What was replaced is remembered
within the bounds of ``hot.replacements``, whoever follows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pyarrow as pa

from tidemill.catalog.model import History, Reservation
from tidemill.catalog.store import Catalog
from tidemill.changes.values import Named, registered
from tidemill.history.checking import check_files
from tidemill.history.storage import Storage
from tidemill.hot.gather import SEQ_FIELD
from tidemill.hot.table import HotTable
from tidemill.hot.view import HotView, Wanted
from tidemill.stream.engine import Lender
from tidemill.stream.image import Image, look
from tidemill.stream.position import Position, Seen
from tidemill.stream.relation import SeqRange
from tidemill.stream.removed import Deletes
from tidemill.stream.retracting import RETRACTED_MAX as RETRACTED_MAX
from tidemill.stream.retracting import Lapsed as Lapsed
from tidemill.stream.retracting import Retracting
from tidemill.types import SEQ

SIGN = "_sign"
APPEARS, RETRACTED = 1, -1


class Origin(Enum):
    """How rows came into the stream."""

    APPENDED = "appended"
    LOADED = "loaded"


@dataclass(frozen=True)
class Batch:
    """What a follower is given: ``rows`` appear, ``retracted`` are taken back (None: no row is),
    both in the order of their numbers; ``position`` is behind it. ``load`` are the numbers of the
    load that the rows belong to."""

    rows: pa.Table
    position: Position
    retracted: pa.Table | None = None
    load: SeqRange | None = None

    @property
    def upto_seq(self) -> int:
        """The number up to which rows were given, of the load or of those that were appended."""
        if self.load is None:
            return self.position.seq
        return next(last for first, last in self.position.loads if first == self.load[0])

    def signed(self) -> pa.Table:
        """All of it as one table with a column of signs, what is taken back first: for those who
        pass rows on."""
        parts = [(self.retracted, RETRACTED), (self.rows, APPEARS)]
        return pa.concat_tables(
            rows.append_column(SIGN, pa.array(np.full(rows.num_rows, sign, np.int8)))
            for rows, sign in parts
            if rows is not None
        )

    def first(self, count: int) -> Batch:
        """The first rows alone, one at least."""
        rows = self.rows.slice(0, count)
        if rows.num_rows == self.rows.num_rows:
            return self
        upto = _last_seq(rows)
        if self.load is None:
            return replace(self, rows=rows, position=replace(self.position, seq=upto))
        return replace(self, rows=rows, position=self.position.with_load(self.load[0], upto))


@dataclass(frozen=True)
class Arrivals:
    """The rows that a stream has in memory, held still: the short way of followers that keep up.
    What has moved is not here."""

    view: HotView

    def next_batch(self, position: Position, rows_max: int, with_seq: bool = True) -> Batch:
        """The next rows that were appended, as they lie in memory; beyond ``rows_max`` no further
        block is begun."""
        rows, upto = self.view.arrived_after(position.seq, with_seq, rows_max)
        return Batch(rows, Position(upto, position.begin_snapshot, position.loads, position.seen))

    def count_after(self, position: Position) -> int:
        """How many rows were appended behind a position."""
        return self.view.rows_behind(position.seq)

    def oldest_us(self, after_seq: int) -> int | None:
        """The least time of the rows that were appended behind a number; None if there is none."""
        return self.view.oldest_behind(after_seq)

    def have_left(self, position: Position, shown_rows: int) -> bool:
        """Whether rows behind a position are not in memory any more. ``shown_rows`` is how many
        rows the stream had shown at the position: numbers may also be missing because loads have
        them."""
        if self.view.moved_seq <= position.seq:
            return False
        return self.view.shown_rows - shown_rows != self.count_after(position)


@dataclass(frozen=True)
class Feed:
    """The rows of one stream, for whoever follows it. ``with_retractions`` False is for those who
    answer every row when it comes and take nothing back: they are given rows that appear."""

    hot: HotTable
    catalog: Catalog
    storage: Storage
    duck: Lender
    with_retractions: bool = True

    def position(self) -> Position:
        """Where a follower begins that knows all that a reader sees now."""
        looked = look(self.hot)
        seq, snapshot_id = looked.view.published_seq, self.catalog.snapshot().snapshot_id
        return Position(seq, snapshot_id, seen=Seen(seq, snapshot_id))

    def arrivals(self) -> Arrivals:
        """The rows in memory now."""
        return Arrivals(self.hot.view())

    def takes_back(self, position: Position) -> bool:
        """Whether rows that were appended since ``position.seen`` replaced any, or may have: for
        followers that answer it by beginning anew."""
        if not self.hot.table.primary_key:
            return False
        published = self.hot.published
        return published.replacements.between(position.seen.seq, published.last_seq) != []

    def loads(self, after_snapshot: int) -> list[Reservation]:
        """The numbers of loads that were committed behind a snapshot."""
        found = self.catalog.snapshot().history(self.hot.table.table_id).reservations
        return [load for load in found if load.created_snapshot > after_snapshot]

    def next_batch(
        self, position: Position, rows_max: int, origin: Origin | None = None
    ) -> Batch | None:
        """What comes next behind a position; None if nothing does. With an origin, only rows that
        came so appear."""
        looked = look(self.hot)
        snapshot = self.catalog.snapshot()
        image = looked.at(snapshot)
        reservations = image.history.reservations
        position = position.settled(reservations, snapshot.snapshot_id)
        seen = Seen(image.view.published_seq, snapshot.snapshot_id)
        retracted = self._retracted(image, position, seen)
        batch = None
        if origin is not Origin.LOADED:
            batch = self._appended(image, position, rows_max)
        if batch is None and origin is not Origin.APPENDED:
            batch = self._loaded(image, position, rows_max)
        if batch is None and retracted is None:
            return None
        batch = batch or Batch(_schema(image).empty_table(), position)
        return replace(batch, retracted=retracted, position=replace(batch.position, seen=seen))

    def _retracted(self, image: Image, position: Position, seen: Seen) -> pa.Table | None:
        if not self.with_retractions or not image.table.primary_key:
            return None
        found = Retracting(self.hot, self.catalog, self.storage, self.duck)
        return found.rows(image, position, seen)

    def _appended(self, image: Image, position: Position, rows_max: int) -> Batch | None:
        view = image.view
        if view.published_seq <= position.seq:
            return None
        if view.moved_seq <= position.seq:
            batch = Arrivals(view).next_batch(position, rows_max).first(rows_max)
            if not image.pending:
                return batch
            deletes = Deletes(self.storage, self.duck)
            return replace(batch, rows=deletes.filter(batch.rows, image.pending, image.table.name))
        low, high = between_loads(image.history, position.seq, view.moved_seq)
        rows, upto = self._in_files(image, low, high, rows_max)
        return Batch(rows, replace(position, seq=upto))

    def _loaded(self, image: Image, position: Position, rows_max: int) -> Batch | None:
        load = next(position.open_loads(image.history.reservations), None)
        if load is None:
            return None
        low, high = position.reached_in(load), load.last_seq
        rows, upto = self._in_files(image, low, high, rows_max)
        return Batch(rows, position.with_load(load.first_seq, upto), None, (load.first_seq, high))

    def _in_files(
        self, image: Image, after_seq: int, upto_seq: int, rows_max: int
    ) -> tuple[pa.Table, int]:
        """Rows of a stretch of numbers in files, and the number up to which they are all."""
        table, schema = image.table, _schema(image)
        scan = image.in_files(Wanted(with_seq=True), seq_range=(after_seq + 1, upto_seq))
        named = Named()
        text = scan.sql(self.storage, table, with_seq=True, named=named)
        if text is None:
            return schema.empty_table(), upto_seq
        check_files(self.storage, table.name, scan.all_files)
        with self.duck.lent(exact=True) as connection, registered(connection, named):
            found = connection.sql(f"SELECT * FROM ({text}) ORDER BY {SEQ} LIMIT {rows_max}")
            rows = found.to_arrow_table()
        rows = pa.Table.from_arrays(
            [c.cast(f.type) for c, f in zip(rows.columns, schema, strict=True)], schema=schema
        )
        return rows, upto_seq if rows.num_rows < rows_max else _last_seq(rows)


def between_loads(history: History, after_seq: int, upto_seq: int) -> SeqRange:
    """The first stretch of numbers behind one that no load was given."""
    for span in history.reservations:
        if span.first_seq <= after_seq + 1 <= span.last_seq:
            after_seq = min(span.last_seq, upto_seq)
        elif after_seq < span.first_seq <= upto_seq:
            upto_seq = span.first_seq - 1
    return after_seq, upto_seq


def _schema(image: Image) -> pa.Schema:
    return image.table.schema.append(SEQ_FIELD)


def _last_seq(rows: pa.Table) -> int:
    return int(rows.column(SEQ)[-1].as_py())
