"""Scans of files, as the tests of history write them."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.catalog.model import NewFile
from tidemill.history.storage import Storage
from tidemill.history.window import Window
from tidemill.stream.relation import FileScan, HasColumns
from tidemill.stream.removed import Removed


def scan_sql(
    storage: Storage,
    table: HasColumns,
    files: Sequence[NewFile],
    deletes: Sequence[NewFile] = (),
    columns: Sequence[str] | None = None,
    with_seq: bool = False,
    window: Window | None = None,
) -> str:
    scan = FileScan(tuple(files), Removed.of(deletes), window=window)
    return scan.sql(storage, table, columns, with_seq)
