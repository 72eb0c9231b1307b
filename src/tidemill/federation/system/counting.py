"""Counting the rows of history exactly, where files of deletes or newer rows take some away.

The catalog knows how many rows files hold, and how many sequence numbers files of deletes name; it
does not know which of these are still to be found: a compaction may have left some out already, a
load may have named rows that were in memory then. DuckDB counts what is left, from the sequence
numbers of the files concerned alone, and the count is kept until something changes.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from tidemill.catalog.model import FILE_ROWS, History, Table
from tidemill.federation.duck import Duck
from tidemill.federation.past import since_of
from tidemill.history.checking import check_files
from tidemill.history.reading import scan_sql
from tidemill.history.storage import Storage


class LiveRows:
    """Answers how many rows of a history nothing took away; ``buried`` are the numbers of rows
    that rows in memory replaced, ``horizon_us`` is the oldest time that may be seen."""

    def __init__(self, duck: Duck, storage: Storage) -> None:
        self._duck = duck
        self._storage = storage
        self._known: dict[int, tuple[History, AbstractSet[int], int | None, int]] = {}  # by table

    def __call__(
        self,
        table: Table,
        history: History,
        buried: AbstractSet[int],
        horizon_us: int | None = None,
    ) -> int:
        deletes = history.deletes
        rows = [f for part in history.partitions for f in part.files if f.kind == FILE_ROWS]
        if horizon_us is not None and all(file.time_min_us >= horizon_us for file in rows):
            horizon_us = None
        if not deletes and not buried and horizon_us is None:
            return history.rows
        known = self._known.get(table.table_id)
        if known is not None and known[0] is history and known[1:3] == (buried, horizon_us):
            return known[3]
        inside = 0
        if not deletes and not buried and horizon_us is not None:
            inside = sum(file.rows for file in rows if file.time_min_us >= horizon_us)
            rows = [file for file in rows if file.time_min_us < horizon_us]
        since = since_of(table, horizon_us)
        names = [table.time_column or table.columns[0].name]
        check_files(self._storage, table.name, [*rows, *deletes], [*names, "_seq"])
        scan = scan_sql(self._storage, table, rows, deletes, names, buried=buried, since=since)
        counted, _ = self._duck.query(f"SELECT count(*) FROM ({scan})", {}, {})
        count = inside + int(counted.column(0)[0].as_py())
        self._known[table.table_id] = history, buried, horizon_us, count
        return count
