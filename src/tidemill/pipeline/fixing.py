"""The length of a table's partitions, chosen by the first rows that come to its history.

A table that was made without ``partition`` has the default until its first move or load is
committed. If that brought rows of a long time, few for each hour, the commit gives the table longer
partitions: six months of a few hundred rows an hour are kept by the day. Afterwards the length
stays, because views and later files are made with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.catalog.model import FILE_ROWS, NewFile
from tidemill.catalog.store import Catalog
from tidemill.catalog.transaction import Transaction
from tidemill.history.partitions import DAY_US, suitable_for_spans
from tidemill.history.writing import range_us_max
from tidemill.hot.table import HotTable

SETTING = "partition"


def fix_partition(change: Transaction, table_id: int, files: Sequence[NewFile]) -> None:
    """Choose by the files of a commit, before they are named; nothing where it is chosen."""
    snapshot = change.snapshot
    table = snapshot.table(table_id)
    rows = [file for file in files if file.kind == FILE_ROWS]
    if table is None or not rows or SETTING in table.given_settings:
        return
    if snapshot.history(table_id).files or snapshot.digests_of(table_id):
        return
    size_us = table.settings[SETTING]
    spans = [(file.time_min_us, file.time_max_us) for file in rows]
    count = sum(file.rows for file in rows)
    found_us = suitable_for_spans(spans, count, size_us, range_us_max(table))
    if found_us > size_us:
        days = found_us // DAY_US
        change.fix_partition(table_id, f"{days} day{'s' if days > 1 else ''}")


def follow_table(hot: HotTable, catalog: Catalog) -> None:
    """Let the hot tier see the length that a commit has chosen."""
    table = catalog.snapshot().table(hot.table.table_id)
    if table is not None and table.settings[SETTING] != hot.table.settings[SETTING]:
        hot.set_table(table)
