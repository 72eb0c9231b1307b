"""Which files of rows a file of deletes concerns."""

from __future__ import annotations

from dataclasses import replace

from history_kit import HOUR_US, NOW_US

from tidemill.catalog.model import FILE_DELETES, FILE_ROWS, DataFile, History
from tidemill.history.deletes import (
    concerning,
    counts,
    done_with,
    expired,
    losing_rows,
    may_delete,
)


def a_file(number: int, hour: int, seqs: tuple[int, int], snapshot: int, kind: str) -> DataFile:
    lo = NOW_US + hour * HOUR_US
    return DataFile(
        path=f"1/{number}.parquet",
        kind=kind,
        lo_us=lo,
        hi_us=lo + HOUR_US,
        rows=10,
        bytes=100,
        row_groups=1,
        time_min_us=lo,
        time_max_us=lo + HOUR_US - 1,
        seq_min=seqs[0],
        seq_max=seqs[1],
        origin="move",
        file_id=number,
        table_id=1,
        created_snapshot=snapshot,
    )


FIRST = a_file(1, 0, (1, 10), 1, FILE_ROWS)
SECOND = a_file(2, 1, (11, 20), 2, FILE_ROWS)
DELETES = a_file(3, 0, (5, 12), 3, FILE_DELETES)
LATER = a_file(4, 0, (21, 30), 4, FILE_ROWS)
HISTORY = History(1, 30, 0, (FIRST, SECOND, DELETES, LATER))


def test_rows_are_deleted_in_the_same_time_and_numbers_and_before() -> None:
    assert may_delete(DELETES, FIRST)
    assert not may_delete(DELETES, SECOND)  # of another hour
    assert not may_delete(DELETES, replace(FIRST, seq_min=13, seq_max=20))
    assert not may_delete(DELETES, replace(FIRST, created_snapshot=4))
    assert may_delete(DELETES, replace(FIRST, created_snapshot=3))  # a load's own rows


def test_files_of_deletes_that_concern_files() -> None:
    assert concerning(HISTORY, [FIRST, SECOND]) == (DELETES,)
    assert concerning(HISTORY, [SECOND, LATER]) == ()
    assert losing_rows(HISTORY, [FIRST, SECOND, LATER]) == [FIRST]
    assert losing_rows(History(1), [FIRST]) == []


def test_files_of_deletes_are_done_with_when_no_file_needs_them() -> None:
    assert done_with(HISTORY, [SECOND, LATER]) == [DELETES]
    assert done_with(HISTORY, [FIRST]) == []
    in_log = History(1, 11, 0, HISTORY.files)
    assert done_with(in_log, [SECOND]) == [], "they keep a row of the log from coming back"


def test_files_of_deletes_expire_with_all_that_they_concern() -> None:
    assert expired(HISTORY, DELETES.hi_us) == [DELETES]
    assert expired(HISTORY, DELETES.hi_us - 1) == []


def test_partitions_count_their_files_of_deletes() -> None:
    assert counts(HISTORY, HISTORY.partitions).tolist() == [1, 0]
