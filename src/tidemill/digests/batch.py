"""A batch of rows as columns: what digests need of it, each computed once for all of them.

Digests name what they need by SQL text. Columns of the rows are taken as they are, and plain
expressions computed here (``expressions``); all others, of all digests, are computed by one query
of DuckDB. A digest's WHERE is an expression too: it becomes a mask, and the columns that it leaves
are kept for the next one that asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.digests.arrays import Array, numbers_of, whole
from tidemill.digests.expressions import compute
from tidemill.digests.shape import ROWS

Project = Callable[[str, pa.Table], pa.Table]


class Rows:
    """Rows of a stream. Their columns are put into one piece once, for all who ask."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._columns: dict[int, pa.Array] = {}
        self._ends: dict[int, tuple[int, int]] = {}

    def column(self, at: int) -> pa.Array:
        if at not in self._columns:
            self._columns[at] = whole(self.table.column(at))
        return self._columns[at]

    def ends(self, name: str) -> tuple[int, int]:
        """The least and the greatest entry of a column of times, in microseconds."""
        at = self.table.column_names.index(name)
        if at not in self._ends:
            ends = pc.min_max(self.table.column(at))
            low, high = (ends[end].cast(pa.int64()).as_py() for end in ("min", "max"))
            self._ends[at] = low, high
        return self._ends[at]

    def since(self, name: str, time_us: int) -> Rows:
        """Those whose time is not before another."""
        times = self.table.column(name).cast(pa.int64())
        return Rows(self.table.filter(pc.greater_equal(times, time_us)))


class Batch:
    """Rows, and what was computed of them; ``need`` first, then ``compute``, then ``column``."""

    def __init__(self, rows: pa.Table | Rows, project: Project) -> None:
        self._rows = rows if isinstance(rows, Rows) else Rows(rows)
        self.rows = self._rows.table
        self.project = project
        self._names = {name.lower(): at for at, name in enumerate(self.rows.column_names)}
        self._columns: dict[tuple[str, str | None], pa.Array] = {}
        self._masks: dict[str, pa.Array] = {}
        self._wanted: dict[str, None] = {}

    def need(self, texts: Iterable[str], bare: Mapping[str, str]) -> None:
        """Note expressions; ``bare`` says which are columns, and their names."""
        for text in texts:
            at = self._names.get(bare[text].lower()) if text in bare else None
            if at is None:
                self._wanted[text] = None
            elif (text, None) not in self._columns:
                self._columns[text, None] = self._rows.column(at)

    def compute(self) -> None:
        wanted = [text for text in self._wanted if not self._is_there(text)]
        if not wanted:
            return
        items = ", ".join(f"{text} AS tm_{at}" for at, text in enumerate(wanted))
        found = self.project(f"SELECT {items} FROM {ROWS}", self.rows)
        assert found.num_rows == self.rows.num_rows
        for text, column in zip(wanted, found.columns, strict=True):
            self._columns[text, None] = whole(column)

    def _is_there(self, text: str) -> bool:
        """Whether an expression is known, or could be computed here."""
        if (text, None) not in self._columns:
            found = compute(text, self._named)
            if found is not None:
                self._columns[text, None] = found
        return (text, None) in self._columns

    def _named(self, name: str) -> pa.Array | None:
        at = self._names.get(name.lower())
        return None if at is None else self._rows.column(at)

    def column(self, text: str, where: str | None) -> pa.Array:
        """An expression, for the rows of which ``where`` is true."""
        if (text, where) not in self._columns:
            assert where is not None, text
            self._columns[text, where] = self._columns[text, None].filter(self._mask(where))
        return self._columns[text, where]

    def size(self, where: str | None) -> int:
        return self.rows.num_rows if where is None else int(self._mask(where).true_count)

    def _mask(self, where: str) -> pa.Array:
        if where not in self._masks:
            numbers = numbers_of(self._columns[where, None])
            chosen: Array = numbers.values != 0
            if numbers.valid is not None:
                chosen &= numbers.valid
            self._masks[where] = pa.array(chosen)
        return self._masks[where]
