"""Queries for the first rows by some order, over a table that lies in memory and in files.

Two things keep DuckDB from answering ``WHERE … ORDER BY … LIMIT k`` over both as fast as over a
table of its own (docs/design/20261118-index-use.md):

- over a union it carries all columns of every row that passes the condition. So each part is asked
  for its own first k rows, and DuckDB fetches the other columns for these alone;
- it does not know that blocks and files follow each other in time. So with the newest first, the
  condition is tried on the youngest rows in memory: if k of them match, no older row, block or file
  matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa

from tidemill.federation.plan import Scan
from tidemill.hot import keys
from tidemill.hot.view import HotView
from tidemill.hot.wanted import Wanted
from tidemill.types import quote

TRIED_ROWS = 65_536  # the youngest rows that a condition is tried on first
TRIED_GROWTH = 8  # then on so many times as many,
TRIED_SHARE_MAX = 1 / 8  # while they are not more than this share of all
WORTH_ROWS_MIN = 4 * TRIED_ROWS  # in memory, if there are no files: fewer are read at once

FETCHED_ROWS_MAX = 50  # up to here DuckDB fetches the other columns afterwards
FETCHED_COLUMNS_MIN = 3  # with fewer other columns nothing is gained


def newest_matching(
    scan: Scan,
    view: HotView,
    wanted: Wanted,
    has_files: bool,
    ask: Callable[[str, pa.Table], pa.Table],
) -> Wanted:
    """What is wanted of a scan with the newest first, from the time on that enough rows reach.

    ``ask`` answers SQL over rows under the scan's name."""
    top = scan.top
    if top is None or not top.is_newest_first or not 0 < top.count <= TRIED_ROWS // 4:
        return wanted
    total = view.estimate(wanted)
    if total < top.count or (total < WORTH_ROWS_MIN and not has_files):
        return wanted
    assert scan.table is not None
    assert scan.table.time_column is not None
    time = quote(scan.table.time_column)
    sql = top.first_of(quote(scan.source), quote(scan.alias), time)
    tried = TRIED_ROWS
    while tried <= max(TRIED_ROWS, TRIED_SHARE_MAX * total):
        youngest = replace(view.newest_only(replace(wanted, newest=tried)), newest=None)
        found = ask(sql, view.select(youngest).table)
        if found.num_rows == top.count:
            low_us = int(keys.words(found.column(0).combine_chunks()).min())
            return replace(wanted, low_us=low_us, newest=top.count).within(wanted.horizon_us)
        tried *= TRIED_GROWTH
    return wanted


def first_of_parts(scan: Scan, files_sql: str) -> str | None:
    """The rows in files and in memory that can be among the first, as a table expression; None if
    that would not be faster than all rows."""
    top, table = scan.top, scan.table
    if top is None or table is None or top.count > FETCHED_ROWS_MAX:
        return None
    read = len(table.columns) if scan.columns is None else len(scan.columns)
    if read - len(top.columns) < FETCHED_COLUMNS_MIN:
        return None
    alias = quote(scan.alias)
    files = top.first_of(f"({files_sql})", alias)
    memory = top.first_of(quote(scan.source), alias)
    return f"(({files}) UNION ALL ({memory}))"
