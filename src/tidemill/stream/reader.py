"""The reader of streams: rows of an image, or of an earlier moment, for one scan of a query.

Files are read by the SQL of a ``HistoryScan``; rows in memory come as Arrow. ``in_both`` writes the
table expression that puts the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from tidemill.catalog.model import Snapshot
from tidemill.catalog.store import Catalog
from tidemill.changes.values import Named
from tidemill.history.storage import Storage
from tidemill.hot.retention import horizon_us
from tidemill.hot.table import HotTable
from tidemill.hot.view import HotView, Selection, Wanted
from tidemill.stream.engine import Engine
from tidemill.stream.image import Image
from tidemill.stream.past import PastReader, seen_from
from tidemill.stream.pins import Pins
from tidemill.stream.relation import HistoryScan
from tidemill.stream.removed import Deletes
from tidemill.types import quote


@dataclass(frozen=True)
class Reader:
    """Reads streams for the scans of queries."""

    catalog: Catalog
    pins: Pins
    storage: Storage
    duck: Engine

    @cached_property
    def _deletes(self) -> Deletes:
        return Deletes(self.storage, self.duck)

    @cached_property
    def _past(self) -> PastReader:
        return PastReader(self.catalog, self.pins, self._deletes)

    def in_memory(self, image: Image, wanted: Wanted) -> tuple[pa.Table, Selection | None]:
        """The rows in memory that a scan can need, and how they were selected."""
        return image.in_memory(wanted, self._deletes)

    def past(
        self, hot: HotTable, current: Snapshot, view: HotView, wanted: Wanted, at_us: int
    ) -> tuple[HistoryScan, pa.Table]:
        """What a reader saw at an earlier moment: files, and rows that memory or its log has.
        Of a table with a primary key, the newest row of each key is the one that was seen
        (``in_both``): it hides those that it had replaced then."""
        found, rows = self._past.read(hot, current, view, wanted, at_us)
        horizon = self._past_horizon(hot, current, view, at_us)
        return seen_from(found, rows, hot.table, horizon)

    def _past_horizon(
        self, hot: HotTable, current: Snapshot, view: HotView, at_us: int
    ) -> int | None:
        """From when on rows were seen at a moment; an event clock said then what the rows do."""
        table = hot.table
        if table.settings["retention"] is None or not hot.progress.is_event:
            return horizon_us(table, at_us)
        found, rows = self._past.read(hot, current, view, Wanted(with_seq=True), at_us)
        time = quote(table.time_column or "")
        future = hot.progress.max_future_us
        believed = "" if future is None else f" WHERE epoch_us({time}) <= {at_us + future}"
        named = Named({"tm_past": rows})
        parts = [f"SELECT {time} FROM tm_past", found.sql(self.storage, table, True, named)]
        texts = [f"SELECT {time} FROM ({part})" for part in parts if part is not None]
        sql = f"SELECT max(epoch_us({time})) FROM ({' UNION ALL '.join(texts)}){believed}"
        newest, _ = self.duck.query(sql, {}, named, exact=True)
        return horizon_us(table, newest.column(0)[0].as_py())


def past_wanted(wanted: Wanted, keys: Sequence[str]) -> Wanted:
    """What must be read of an earlier moment for a scan: all rows of its span, and with a primary
    key their numbers, since the newest row of a key hides the others."""
    with_seq = wanted.with_seq or bool(keys)
    return replace(wanted, with_seq=with_seq, conditions=(), alternatives=())


def in_both(files_sql: str, memory: str | None) -> str:
    """Rows in files and in memory (a table's name, None if it has none), as a table expression."""
    if memory is None:
        return f"({files_sql})"
    return f"({files_sql} UNION ALL SELECT * FROM {quote(memory)})"


def newest_of_keys(files_sql: str, memory: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """The same for an earlier moment of a table with a primary key: of each key the newest row."""
    parts = f"{files_sql} UNION ALL SELECT * FROM {quote(memory)}"
    names, by = (", ".join(map(quote, each)) for each in (columns, keys))
    newest = f"row_number() OVER (PARTITION BY {by} ORDER BY _seq DESC) = 1"
    return f"(SELECT {names} FROM ({parts}) QUALIFY {newest})"
