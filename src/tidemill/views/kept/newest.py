"""The newest rows of each key, remembered, so that a row's window is at hand when it arrives.

``RECENT(t, rows => k, partition_by => key)`` with EVERY ROW: the window of a row are the k newest
rows of its key that came before it and are not younger than it, the row itself among them.

1. Rows that may be in a window are held: the k newest of each key, and whatever came since they
   were last thinned out (``holding``). Keys are numbered (``coding``).
2. A batch is put in the order of key and arrival, each key behind its k - 1 newest rows so far. If
   that is the order of time as well, a row's window is the run of k rows that ends with it.
3. Keys of which a row came later than a younger one (and all keys, if windows are long) are put in
   order with all of their rows that are held; late rows of theirs are looked at one by one. If what
   is held may be too little for such a row (the key has more rows, and they were thinned out), the
   stream itself is asked.

The rows of a window stand together, the oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.digests.arrays import NotPackable
from tidemill.hot import keys
from tidemill.sql.calls import SEQ
from tidemill.types import Column, quote
from tidemill.views.kept.coding import Codes, JoinedCodes, Run, codes_for
from tidemill.views.kept.holding import HeldRows, Numbers, numbers
from tidemill.views.kept.tagging import ROW, TIME

THIN_ROWS_MIN = 65_536
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
        self._held = HeldRows(time)

    @property
    def rows(self) -> int:
        return len(self._held)

    def begin(self, held: pa.Table) -> None:
        """Start with the k newest rows of each key (or more) of all that came before."""
        codes = self._find(held)
        self._held = HeldRows(self._time)
        self._held.append(held, codes)
        self._held.left = held.num_rows
        places, is_first = self._in_order(np.arange(held.num_rows))
        self._held.link(places, is_first)

    def windows(self, batch: pa.Table) -> pa.Table:
        """The windows of new rows (in order of arrival), each row with its instant's tags; the
        batch is held from now on."""
        codes = self._find(batch)
        new = len(self._held)
        self._held.append(batch, codes)
        places, is_first, slow = self._behind_their_keys(codes, new)
        self._held.link(places, is_first)
        at, of = self._runs(places, is_first, new)
        parts, unknown = [(places[at], places[of])], np.zeros(0, np.int64)
        if len(slow):
            late, unknown = self._with_late(slow, new)
            parts += late
        rows = np.concatenate([rows for rows, _ in parts])
        instants = np.concatenate([instants for _, instants in parts])
        windows = self._gather(rows, instants)
        if len(unknown):
            asked = self.ask(self._held.take(unknown))
            windows = pa.concat_tables([windows, like(asked, windows.schema)])
        if len(self._held) > max(2 * self._held.left, THIN_ROWS_MIN):
            self._held.thin(self._count)
        return windows

    def _find(self, rows: pa.Table) -> Numbers:
        try:
            return self._codes.find(rows)
        except NotPackable:
            before = self._held.take(np.arange(len(self._held))) if len(self._held) else None
            left = self._held.left
            self._codes = JoinedCodes(self._key, self._run)
            if before is not None:
                self.begin(before)
                self._held.left = left
            return self._codes.find(rows)

    # -- rows in order

    def _behind_their_keys(
        self, codes: Numbers, new: int
    ) -> tuple[Numbers, npt.NDArray[np.bool_], Numbers]:
        """New places by key and arrival, each key behind the newest that were held, with a mark at
        its first; and the keys that are left out, since they are not in the order of time."""
        distinct, key_of = np.unique(codes, return_inverse=True)
        if self._count > STEPS_MAX:
            return np.zeros(0, np.int64), np.zeros(0, np.bool_), distinct
        held, lengths = self._held.chain(distinct, self._count - 1)
        owners = np.concatenate([np.repeat(np.arange(len(distinct)), lengths), key_of])
        places = np.concatenate([held, new + np.arange(len(codes))])
        order = np.argsort(owners, kind="stable")
        places, owners = places[order], owners[order]
        is_first = _firsts(owners)
        times = self._held.times.array[places]
        is_back = (times[1:] < times[:-1]) & ~is_first[1:]
        if not is_back.any():
            return places, is_first, np.zeros(0, np.int64)
        slow = np.unique(owners[1:][is_back])
        is_kept = ~np.isin(owners, slow)
        return places[is_kept], is_first[is_kept], distinct[slow]

    def _runs(
        self, places: Numbers, is_first: npt.NDArray[np.bool_], new: int
    ) -> tuple[Numbers, Numbers]:
        """For each new place, the run of at most k that ends with it."""
        starts = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
        return _runs(np.flatnonzero(places >= new), starts, self._count)

    # -- keys with late rows

    def _with_late(self, codes: Numbers, new: int) -> tuple[list[tuple[Numbers, Numbers]], Numbers]:
        """The windows of keys from all that is held of them, and places whose windows it does not
        hold."""
        held = self._held
        places, is_first = self._in_order(np.flatnonzero(np.isin(held.codes.array, codes)))
        held.link(places, is_first)
        starts = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
        seqs = held.seqs.array[places]
        is_new, late = places >= new, _late(seqs, starts)
        at, of = _runs(np.flatnonzero(is_new & ~late), starts, self._count)
        parts, unknown = [(places[at], places[of])], []
        for row in np.flatnonzero(is_new & late):
            own = np.arange(starts[row], row + 1)
            window = own[seqs[own] <= seqs[row]][-self._count :]
            left = np.flatnonzero((starts == starts[row]) & (places < held.left))
            if self._may_lack(window, left):
                unknown.append(places[row])
            else:
                parts.append((places[window], np.full(len(window), places[row])))
        return parts, np.array(unknown, np.int64)

    def _in_order(self, places: Numbers) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Places by key, time and arrival, and which is the first of its key."""
        held = self._held
        codes = held.codes.array[places]
        order = np.lexsort((held.seqs.array[places], held.times.array[places], codes))
        return places[order], _firsts(codes[order])

    def _may_lack(self, window: Numbers, left: Numbers) -> bool:
        """Whether rows that were thinned out may belong to a window: the key had more than were
        left to it, and the window goes back behind those."""
        if len(left) < self._count:
            return False
        return len(window) < self._count or int(window[0]) < int(left[0])

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


def _firsts(owners: Numbers) -> npt.NDArray[np.bool_]:
    """Where another owner's places begin."""
    is_first = np.ones(len(owners), dtype=bool)
    is_first[1:] = owners[1:] != owners[:-1]
    return is_first


def _late(seqs: Numbers, starts: Numbers) -> npt.NDArray[np.bool_]:
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
