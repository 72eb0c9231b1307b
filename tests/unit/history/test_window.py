"""Windows of time: which files they cut, and what they say in SQL."""

from __future__ import annotations

import dataclasses

import duckdb
import pytest
from history_kit import HOUR_US, NOW_US, make_batch, make_table, write

from tidemill.catalog.model import FILE_DELETES
from tidemill.history.storage import Storage
from tidemill.history.window import Window
from tidemill.stream.relation import FileScan, TimeRange
from tidemill.types import Column, SqlType

Duck = duckdb.DuckDBPyConnection
TIME = Column("ts", SqlType("TIMESTAMP"))


def test_which_files_are_cut(storage: Storage) -> None:
    table = make_table([("k", "BIGINT")])
    (file,) = write(storage, table, make_batch(table, [(NOW_US + at, at) for at in range(10)]))
    for low, high, is_cut in (
        (None, None, False),
        (NOW_US, NOW_US + 9, False),
        (NOW_US + 1, None, True),
        (None, NOW_US + 8, True),
        (NOW_US - 5, NOW_US + 50, False),
    ):
        assert Window(TIME, low, high).cuts(file) is is_cut
    deletes = dataclasses.replace(file, kind=FILE_DELETES)
    assert not Window(TIME, NOW_US + 1).cuts(deletes), "it has no times"


def test_ends_that_no_timestamp_reaches_are_open() -> None:
    assert Window(TIME, -(2**63), 2**63 - 1) == Window(TIME)
    assert Window(TIME, -(2**63) + 2).low_us is None
    assert Window(TIME, 0, 5).is_since(0)
    assert not Window(TIME, 0, 5).is_since(1)
    assert not Window(TIME, None, 5).is_since(-5)


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP WITH TIME ZONE"])
def test_rows_of_a_window(storage: Storage, duck: Duck, kind: str) -> None:
    table = make_table([("k", "BIGINT")], time_type=kind)
    times = [-(2**63) + 1, -5, 0, 5, NOW_US, NOW_US + HOUR_US, 2**63 - 1]
    files = write(storage, table, make_batch(table, [(time, time) for time in times]))
    column = table.columns[0]
    for low, high in ((0, 5), (NOW_US, None), (None, 0), (None, None), (-(2**63) + 1, 2**63 - 1)):
        for since in (None, TimeRange(column, -5), TimeRange(column, 5)):
            window = Window(column, low, high)
            scan = FileScan(tuple(files), times=since, window=window).sql(storage, table)
            found = [time for (time,) in duck.execute(f"SELECT k FROM ({scan})").fetchall()]
            least = max(t for t in (low, since and since.low_us, -(2**63)) if t is not None)
            assert sorted(found) == [
                t for t in times if t >= least and t <= (2**63 if high is None else high)
            ]
