"""The newest rows of each key, remembered, so that a row's window is at hand when it arrives.

``RECENT(t, rows => k, partition_by => key)`` with EVERY ROW: the window of a row are the k newest
rows of its key that came before it and are not younger than it, the row itself among them.

1. Rows that may be in a window are held: the k newest of each key, and whatever came since they
   were last thinned out. Nothing is held twice.
2. For a batch, the rows of its keys are fetched from what is held, numbered by key, and put in the
   order of key, time and arrival. A row's window is then the run of k rows that ends with it.
3. Keys of which a row came later than a younger one are looked at row by row. If what is held may
   be too little for such a row (the key has more rows, and they were thinned out), the stream
   itself is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.hot import keys
from tidemill.sql.calls import SEQ
from tidemill.types import quote
from tidemill.views.kept.tagging import ROW, TIME

Run = Callable[[str, Mapping[str, pa.Table]], pa.Table]
Numbers = npt.NDArray[np.int64]
THIN_ROWS_MIN = 65_536
_CODE, _AGE = "tm_code", "tm_age"
_LEFT, _SINCE, _NEW = 0, 1, 2


class NewestRows:
    """``run`` gives Arrow tables to DuckDB and takes exact ones back; ``older`` asks the stream for
    all rows up to a time and a sequence number."""

    def __init__(
        self,
        key: Sequence[str],
        time: str,
        count: int,
        run: Run,
        older: Callable[[int, int], pa.Table],
    ) -> None:
        self._key = tuple(key)
        self._time = time
        self._count = count
        self._ask = run
        self._older = older
        self._held: pa.Table | None = None
        self._left_rows = 0

    def _run(self, sql: str, sources: Mapping[str, pa.Table]) -> pa.Table:
        """The answer, its columns typed as the rows are."""
        return like(self._ask(sql, sources), next(iter(sources.values())).schema)

    @property
    def rows(self) -> int:
        return 0 if self._held is None else int(self._held.num_rows)

    def begin(self, held: pa.Table) -> None:
        """Start with the k newest rows of each key (or more) of all that came before."""
        self._held = held
        self._left_rows = held.num_rows

    def windows(self, batch: pa.Table) -> pa.Table:
        """The windows of new rows (in order of arrival), each row with its instant's tags; the
        batch is held from now on."""
        assert self._held is not None
        found = self._coded(self._held, batch)
        windows = self._windows(found)
        self._held = pa.concat_tables([self._held, batch])
        if self._held.num_rows > max(2 * self._left_rows, THIN_ROWS_MIN):
            self._thin()
        return windows

    def _same(self, one: str, other: str) -> str:
        pairs = [f"{one}.{quote(n)} IS NOT DISTINCT FROM {other}.{quote(n)}" for n in self._key]
        return " AND ".join(pairs) or "true"

    def _coded(self, held: pa.Table, batch: pa.Table) -> pa.Table:
        """The batch and all rows of its keys that are held, with a number for each key and the
        age of each row: left by the last thinning, held since, or new."""
        names = ", ".join(quote(name) for name in self._key)
        code = f"dense_rank() OVER (ORDER BY {names})" if names else "1"
        same = self._same("h", "n")
        sql = (
            f"SELECT *, ({code})::BIGINT AS {_CODE} FROM ("
            f"SELECT h.*, {_LEFT}::BIGINT AS {_AGE} FROM tm_left h SEMI JOIN tm_new n ON {same}"
            f" UNION ALL SELECT h.*, {_SINCE} FROM tm_since h SEMI JOIN tm_new n ON {same}"
            f" UNION ALL SELECT *, {_NEW} FROM tm_new)"
        )
        left, since = held.slice(0, self._left_rows), held.slice(self._left_rows)
        return self._run(sql, {"tm_left": left, "tm_since": since, "tm_new": batch})

    def _windows(self, found: pa.Table) -> pa.Table:
        found = found.combine_chunks()
        order, starts = self._order(found)
        seqs, ages = _numbers(found, SEQ)[order], _numbers(found, _AGE)[order]
        late = self._late(seqs, starts)
        at, of = _runs(np.flatnonzero((ages == _NEW) & ~late), starts, self._count)
        parts, unknown = [], []
        for row in np.flatnonzero((ages == _NEW) & late):
            places = np.arange(starts[row], row + 1)
            window = places[seqs[places] <= seqs[row]][-self._count :]
            if self._may_lack(window, np.flatnonzero((starts == starts[row]) & (ages == _LEFT))):
                unknown.append(row)
            else:
                parts.append((window, np.full(len(window), row)))
        at = np.concatenate([at, *(window for window, _ in parts)])
        of = np.concatenate([of, *(row for _, row in parts)])
        windows = self._gather(found, order[at], order[of])
        if not unknown:
            return windows
        rows = found.take(pa.array(order[unknown])).drop_columns([_CODE, _AGE])
        return pa.concat_tables([windows, self.ask(rows)])

    def _may_lack(self, window: Numbers, left: Numbers) -> bool:
        """Whether rows that were thinned out may belong to a window: the key had more than were
        left to it, and the window goes back behind those."""
        if len(left) < self._count:
            return False
        return len(window) < self._count or int(window[0]) < int(left[0])

    def _order(self, found: pa.Table) -> tuple[Numbers, Numbers]:
        """The rows by key, time and arrival; and for each place the first place of its key."""
        codes = _numbers(found, _CODE)
        order = np.lexsort((_numbers(found, SEQ), _numbers(found, self._time), codes))
        ordered = codes[order]
        is_first = np.ones(len(ordered), dtype=bool)
        is_first[1:] = ordered[1:] != ordered[:-1]
        firsts = np.flatnonzero(is_first)
        return order, firsts[np.cumsum(is_first) - 1]

    @staticmethod
    def _late(seqs: Numbers, starts: Numbers) -> npt.NDArray[np.bool_]:
        """Which places belong to a key whose order of time is not its order of arrival."""
        late = np.zeros(len(seqs), dtype=bool)
        if len(seqs) > 1:
            swapped = np.flatnonzero((seqs[1:] < seqs[:-1]) & (starts[1:] == starts[:-1]))
            if len(swapped):
                late = np.isin(starts, starts[swapped])
        return late

    def ask(self, rows: pa.Table) -> pa.Table:
        """The windows of some rows, from all rows of the stream; nothing is held."""
        time = quote(self._time)
        sql = (
            f"SELECT h.*, n.{SEQ} AS {ROW}, n.{time} AS {TIME} FROM tm_new n JOIN tm_held h"
            f" ON {self._same('h', 'n')} AND h.{SEQ} <= n.{SEQ} AND h.{time} <= n.{time}"
            f" QUALIFY row_number() OVER (PARTITION BY n.{SEQ}"
            f" ORDER BY h.{time} DESC, h.{SEQ} DESC) <= {self._count}"
        )
        newest = int(_numbers(rows, self._time).max())
        whole = self._older(newest, int(_numbers(rows, SEQ).max()))
        return self._run(sql, {"tm_held": whole, "tm_new": rows})

    def _gather(self, found: pa.Table, rows: Numbers, instants: Numbers) -> pa.Table:
        own = found.drop_columns([_CODE, _AGE])
        tags = own.select([SEQ, self._time]).take(pa.array(instants))
        windows = own.take(pa.array(rows))
        windows = windows.append_column(ROW, tags.column(0))
        return windows.append_column(TIME, tags.column(1))

    def _thin(self) -> None:
        """Keep the k newest rows of each key."""
        keys = ", ".join(quote(name) for name in self._key)
        parts = f"PARTITION BY {keys} " if keys else ""
        newest = f"row_number() OVER ({parts}ORDER BY {quote(self._time)} DESC, {SEQ} DESC)"
        sql = f"SELECT * FROM tm_held QUALIFY {newest} <= {self._count}"
        assert self._held is not None
        self.begin(self._run(sql, {"tm_held": self._held}))


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


def _numbers(table: pa.Table, name: str) -> Numbers:
    column = table.column(name)
    chunk = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return np.asarray(keys.words(chunk), dtype=np.int64)


def _runs(rows: Numbers, starts: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """For each place, the places of the run of at most ``count`` that ends with it."""
    lengths = np.minimum(rows - starts[rows] + 1, count)
    of = np.repeat(rows, lengths)
    ends = np.cumsum(lengths)
    within = np.arange(len(of)) - np.repeat(ends - lengths, lengths)
    return of - np.repeat(lengths, lengths) + 1 + within, of
