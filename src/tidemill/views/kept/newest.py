"""The newest rows of each key, remembered, so that a row's window is at hand when it arrives.

``RECENT(t, rows => k, partition_by => key)`` with EVERY ROW: the window of a row are the k newest
rows of its key that came before it and are not younger than it, the row itself among them.

1. Rows that may be in a window are held: the k newest of each key, and half as many again, for rows
   that come late (``holding``). Keys are numbered (``coding``).
2. A batch is put in the order of key and arrival, each key behind its rows so far. If that is the
   order of time as well, a row's window is the run of k rows that ends with it.
3. Keys of which a row came later than a younger one (and all keys, if windows are long) are put in
   order again; late rows of theirs are looked at one by one. If what is held may be too little for
   such a row (the key had more rows, which were dropped), the stream itself is asked. Of such a
   key as many rows are held as there may be, so an older one that comes is dropped at once.

The rows of a window stand together, the oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from tidemill.digests.arrays import NotPackable
from tidemill.hot import keys
from tidemill.types import SEQ, Column, quote
from tidemill.views.kept.coding import Codes, JoinedCodes, Run, codes_for
from tidemill.views.kept.holding import HeldRows, Mask, Numbers, numbers
from tidemill.views.kept.tagging import ROW, TIME

# Windows of more rows are not fetched step by step.
STEPS_MAX = 64


class NewestRows:
    """``run`` gives Arrow tables to DuckDB and takes exact ones back; ``older`` asks the stream for
    all rows up to a time and a sequence number."""

    def __init__(
        self,
        key: Sequence[Column],
        time: str,
        count: int,
        run: Run,
        older: Callable[[int, int], pa.Table],
    ) -> None:
        self._key = tuple(key)
        self._time = time
        self._count = count
        self._run = run
        self._older = older
        self._codes: Codes = codes_for(key, run)
        self._held = self._nothing()

    def _nothing(self) -> HeldRows:
        return HeldRows(self._time, rows_held(self._count))

    @property
    def rows(self) -> int:
        return len(self._held)

    def begin(self, held: pa.Table) -> None:
        """Start with each key's newest rows, ``rows_held`` or more, of all that came before."""
        codes = self._find(held)
        self._held = self._nothing()
        places, is_first = self._in_order(self._held.append(held, codes))
        self._held.link(places, is_first)
        counts = np.bincount(codes)
        self._held.has_lost.array[: len(counts)] = counts >= rows_held(self._count)
        self._held.trim(places, is_first)
        self._held.reserve()

    def windows(self, batch: pa.Table) -> pa.Table:
        """The windows of new rows (in order of arrival), each row with its instant's tags; the
        batch is held from now on."""
        codes = self._find(batch)
        new = self._held.append(batch, codes)
        places, is_first, is_new, slow = self._behind_their_keys(codes, new)
        self._held.link(places, is_first)
        at, of = _runs(np.flatnonzero(is_new), _starts(is_first), self._count)
        parts, unknown = [(places[at], places[of])], np.zeros(0, np.int64)
        if len(slow):
            behind, is_first_behind = self._in_order(self._of_keys(slow, codes, new))
            self._held.link(behind, is_first_behind)
            late, unknown = self._with_late(
                behind, is_first_behind, int(batch.column(SEQ)[0].as_py())
            )
            parts += late
        rows = np.concatenate([rows for rows, _ in parts])
        instants = np.concatenate([instants for _, instants in parts])
        windows = self._gather(rows, instants)
        if len(unknown):
            asked = self.ask(self._held.take(unknown))
            windows = pa.concat_tables([windows, like(asked, windows.schema)])
        self._held.trim(places, is_first)
        if len(slow):
            self._held.trim(behind, is_first_behind)
        return windows

    def _find(self, rows: pa.Table) -> Numbers:
        try:
            return self._codes.find(rows)
        except NotPackable:
            held = self._held.take(self._held.all()) if len(self._held) else None
            self._codes = JoinedCodes(self._key, self._run)
            if held is not None:
                self.begin(held)
            return self._codes.find(rows)

    # -- rows in order

    def _behind_their_keys(
        self, codes: Numbers, new: Numbers
    ) -> tuple[Numbers, Mask, Mask, Numbers]:
        """New places by key and arrival, each key behind the rows that were held, with marks at
        its first and at those that are new; and the keys that are left out, since they are not in
        the order of time."""
        distinct, key_of = np.unique(codes, return_inverse=True)
        if self._count > STEPS_MAX:
            return np.zeros(0, np.int64), np.zeros(0, np.bool_), np.zeros(0, np.bool_), distinct
        held, lengths = self._held.chain(distinct)
        counts = np.bincount(key_of, minlength=len(distinct))
        starts = np.cumsum(lengths + counts) - lengths - counts
        owners = np.repeat(np.arange(len(distinct)), lengths + counts)
        is_new = np.arange(len(owners)) >= (starts + lengths)[owners]
        places = np.empty(len(owners), np.int64)
        places[~is_new], places[is_new] = held, new[np.argsort(key_of, kind="stable")]
        is_first = _firsts(owners)
        times = self._held.times.array[places]
        is_back = (times[1:] < times[:-1]) & ~is_first[1:]
        if not is_back.any():
            return places, is_first, is_new, np.zeros(0, np.int64)
        slow = np.unique(owners[1:][is_back])
        is_kept = ~np.isin(owners, slow)
        return places[is_kept], is_first[is_kept], is_new[is_kept], distinct[slow]

    # -- keys with late rows

    def _of_keys(self, slow: Numbers, codes: Numbers, new: Numbers) -> Numbers:
        """All places of some keys, those of the batch among them."""
        if self._count > STEPS_MAX:
            return self._held.of_keys(slow)
        return np.concatenate([self._held.chain(slow)[0], new[np.isin(codes, slow)]])

    def _with_late(
        self, places: Numbers, is_first: Mask, first_seq: int
    ) -> tuple[list[tuple[Numbers, Numbers]], Numbers]:
        """The windows of keys from all that is held of them, and places whose windows it does not
        hold. Numbers of the batch begin with the one given."""
        starts, seqs = _starts(is_first), self._held.seqs.array[places]
        is_new, late = seqs >= first_seq, _late(seqs, starts)
        oldest = np.minimum.reduceat(
            np.where(is_new, len(places), np.arange(len(places))), np.flatnonzero(is_first)
        )[np.cumsum(is_first) - 1]
        has_lost = self._held.has_lost.array[self._held.codes.array[places]]
        at, of = _runs(np.flatnonzero(is_new & ~late), starts, self._count)
        parts, unknown = [(places[at], places[of])], []
        for row in np.flatnonzero(is_new & late):
            own = np.arange(starts[row], row + 1)
            window = own[seqs[own] <= seqs[row]][-self._count :]
            is_short = len(window) < self._count or window[0] < oldest[row]
            if has_lost[row] and is_short:
                unknown.append(places[row])
            else:
                parts.append((places[window], np.full(len(window), places[row])))
        return parts, np.array(unknown, np.int64)

    def _in_order(self, places: Numbers) -> tuple[Numbers, Mask]:
        """Places by key, time and arrival, and which is the first of its key."""
        held = self._held
        codes = held.codes.array[places]
        order = np.lexsort((held.seqs.array[places], held.times.array[places], codes))
        return places[order], _firsts(codes[order])

    def ask(self, rows: pa.Table) -> pa.Table:
        """The windows of some rows, from all rows of the stream; nothing is held."""
        time = quote(self._time)
        names = [quote(column.name) for column in self._key]
        same = " AND ".join(f"h.{n} IS NOT DISTINCT FROM n.{n}" for n in names) or "true"
        sql = (
            f"SELECT h.*, n.{SEQ} AS {ROW}, n.{time} AS {TIME} FROM tm_new n JOIN tm_held h"
            f" ON {same} AND h.{SEQ} <= n.{SEQ} AND h.{time} <= n.{time}"
            f" QUALIFY row_number() OVER (PARTITION BY n.{SEQ}"
            f" ORDER BY h.{time} DESC, h.{SEQ} DESC) <= {self._count}"
            f" ORDER BY {ROW}, h.{time}, h.{SEQ}"
        )
        newest = int(numbers(rows, self._time).max())
        whole = self._older(newest, int(numbers(rows, SEQ).max()))
        return like(self._run(sql, {"tm_held": whole, "tm_new": rows}), rows.schema)

    def _gather(self, rows: Numbers, instants: Numbers) -> pa.Table:
        windows = self._held.take(rows)
        time = windows.schema.field(self._time).type
        tags = (self._held.seqs.array[instants], self._held.times.array[instants])
        windows = windows.append_column(ROW, keys.array_of(tags[0], pa.int64()))
        return windows.append_column(TIME, keys.array_of(tags[1], time))


def rows_held(count: int) -> int:
    """How many rows of a key are held for windows of so many."""
    return count + (count + 1) // 2


def alone(batch: pa.Table, time: str) -> pa.Table:
    """The windows of rows that are read without one: each row by itself."""
    return batch.append_column(ROW, batch.column(SEQ)).append_column(TIME, batch.column(time))


def like(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table with the fields of a schema where it has them: DuckDB forgets what is NOT NULL."""
    fields = [
        schema.field(name) if schema.get_field_index(name) >= 0 else table.schema.field(name)
        for name in table.column_names
    ]
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(table.columns, fields, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _firsts(owners: Numbers) -> Mask:
    """Where another owner's places begin."""
    is_first = np.ones(len(owners), dtype=bool)
    is_first[1:] = owners[1:] != owners[:-1]
    return is_first


def _starts(is_first: Mask) -> Numbers:
    """Where the stretch begins that each belongs to."""
    starts: Numbers = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    return starts


def _late(seqs: Numbers, starts: Numbers) -> Mask:
    """Which places belong to a key whose order of time is not its order of arrival."""
    swapped = np.flatnonzero((seqs[1:] < seqs[:-1]) & (starts[1:] == starts[:-1]))
    return np.isin(starts, starts[swapped])


def _runs(rows: Numbers, starts: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """For each place, the places of the run of at most ``count`` that ends with it."""
    lengths = np.minimum(rows - starts[rows] + 1, count)
    of = np.repeat(rows, lengths)
    ends = np.cumsum(lengths)
    within = np.arange(len(of)) - np.repeat(ends - lengths, lengths)
    return of - np.repeat(lengths, lengths) + 1 + within, of
