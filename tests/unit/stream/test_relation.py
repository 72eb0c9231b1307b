"""Relation: the SQL that reads a table's files gives exactly the rows that count."""

from __future__ import annotations

import re

import duckdb
import pytest
from history_kit import HOUR_US, NOW_US, QUICK, make_batch, make_table, write
from hypothesis import given
from hypothesis import strategies as st

from tidemill.catalog.model import NewFile, Table
from tidemill.changes.values import Named
from tidemill.history.storage import Storage
from tidemill.history.writing import WriteSpec, write_deletes
from tidemill.stream.relation import FileScan, HistoryScan, TimeRange
from tidemill.stream.removed import INLINE_MAX, Removed

Duck = duckdb.DuckDBPyConnection


def numbers(duck: Duck, sql: str) -> list[int]:
    return [value for (value,) in duck.execute(f"SELECT k FROM ({sql}) ORDER BY k").fetchall()]


def test_row_groups_are_skipped(storage: Storage, duck: Duck) -> None:
    """Filters reach the files through the SELECT: on the key, on time, on another index."""
    table = make_table([("k", "BIGINT"), ("s", "VARCHAR"), ("h", "HUGEINT")], [("k",), ("s",)])
    rows = [(NOW_US + at, at, f"s{at * 7919 % 20_000}", at) for at in range(20_000)]
    written = tuple(write(storage, table, make_batch(table, rows), row_group_rows=2_000))
    gone = write_deletes(storage, WriteSpec.of(table), NOW_US, NOW_US + 1, [5], "d", 0, "move")
    for removed in (Removed(), Removed.of([gone])):
        scan = FileScan(written, removed).sql(storage, table)
        for test in (
            "k = 4321",
            f"ts BETWEEN make_timestamp({NOW_US + 4_100}) AND make_timestamp({NOW_US + 4_200})",
            "s = 's7919'",
        ):
            sql = f"EXPLAIN ANALYZE SELECT h FROM ({scan}) WHERE {test}"
            plan = duck.execute(sql).fetchall()[0][1]
            scanned = re.findall(r"Row Groups Scanned: (\d+) / (\d+)", plan)
            assert ("1", "10") in scanned, (test, plan)


def test_rows_that_files_of_deletes_name_are_left_out(
    storage: Storage, duck: Duck, by_k: Table, files: list[NewFile]
) -> None:
    spec = WriteSpec.of(by_k)
    gone = [
        write_deletes(storage, spec, files[at].lo_us, files[at].hi_us, seqs, "d", at, "move")
        for at, seqs in ((0, [1, 5]), (2, [30]))
    ]
    removed = Removed.of(gone)
    expected = [n for n in range(1, 31) if n not in (1, 5, 30)]
    assert numbers(duck, FileScan(tuple(files), removed).sql(storage, by_k)) == expected
    middle = FileScan((files[1],), removed).sql(storage, by_k)
    assert numbers(duck, middle) == list(range(11, 21))
    assert "ANTI" not in middle


@pytest.mark.parametrize("more", [0, INLINE_MAX])
def test_rows_of_given_numbers_are_left_out(
    storage: Storage, duck: Duck, by_k: Table, files: list[NewFile], more: int
) -> None:
    seqs = [3, 4, 12, *range(1_000, 1_000 + more)]
    scan = FileScan(tuple(files), Removed.of((), seqs))
    assert numbers(duck, scan.sql(storage, by_k)) == [n for n in range(1, 31) if n not in seqs]


def test_deletes_and_numbers_together(
    storage: Storage, duck: Duck, by_k: Table, files: list[NewFile]
) -> None:
    spec = WriteSpec.of(by_k)
    gone = [write_deletes(storage, spec, NOW_US, NOW_US + HOUR_US, [2], "d", 0, "move")]
    scan = FileScan(tuple(files), Removed.of(gone, {3}), seq_range=(1, 4))
    assert numbers(duck, scan.sql(storage, by_k)) == [1, 4]


@pytest.mark.parametrize("span", [(1, 30), (5, 14), (11, 20), (0, 0), (30, 99)])
def test_a_range_of_sequence_numbers(
    storage: Storage, duck: Duck, by_k: Table, files: list[NewFile], span: tuple[int, int]
) -> None:
    scan = FileScan(tuple(files), seq_range=span).sql(storage, by_k)
    assert numbers(duck, scan) == [n for n in range(1, 31) if span[0] <= n <= span[1]]
    rest = FileScan(tuple(files), except_ranges=(span,)).sql(storage, by_k)
    assert numbers(duck, rest) == [n for n in range(1, 31) if not span[0] <= n <= span[1]]


def test_columns_come_in_the_order_of_the_table(
    storage: Storage, duck: Duck, by_k: Table, files: list[NewFile]
) -> None:
    for held in (tuple(files), ()):
        both = duck.sql(FileScan(held).sql(storage, by_k, ["K", "ts"], with_seq=True))
        assert both.columns == ["ts", "k", "_seq"]
        assert [str(kind) for kind in both.types] == ["TIMESTAMP", "BIGINT", "BIGINT"]
        assert len(both.fetchall()) == 10 * len(held)
        count = f"SELECT count(*) FROM ({FileScan(held).sql(storage, by_k, [])})"
        assert duck.execute(count).fetchall() == [(10 * len(held),)]


@QUICK
@given(
    low=st.none() | st.integers(-1, 31),
    high=st.none() | st.integers(-1, 31),
    removed=st.sets(st.integers(1, 30), max_size=8),
    deleted=st.sets(st.integers(1, 30), max_size=8),
    span=st.none() | st.tuples(st.integers(0, 31), st.integers(0, 31)),
    without=st.lists(st.tuples(st.integers(0, 31), st.integers(0, 31)), max_size=2),
)
def test_a_scan_gives_the_rows_that_count(
    tmp_path_factory: pytest.TempPathFactory,
    low: int | None,
    high: int | None,
    removed: set[int],
    deleted: set[int],
    span: tuple[int, int] | None,
    without: list[tuple[int, int]],
) -> None:
    """Whatever is asked of it, alone or split into tasks, beside a plain filter in Python."""
    storage = Storage(str(tmp_path_factory.mktemp("scan")))
    table = make_table([("k", "BIGINT")], [("k",)])
    times = [NOW_US + (at // 10) * HOUR_US + at for at in range(30)]
    rows = [(time_us, at + 1) for at, time_us in enumerate(times)]
    files = tuple(write(storage, table, make_batch(table, rows)))
    ends = [None if at is None else times[min(max(at, 0), 29)] for at in (low, high)]
    spec = WriteSpec.of(table)
    gone = [
        write_deletes(storage, spec, NOW_US, times[-1], sorted(some), "d", 0, "move")
        for some in ([deleted] if deleted else [])
    ]
    scan = FileScan(
        files,
        Removed.of(gone, removed),
        span,
        tuple(without),
        TimeRange(table.get_column("ts"), *ends),
    )
    expected = [
        seq
        for seq, time_us in enumerate(times, start=1)
        if seq not in removed
        and seq not in deleted
        and (span is None or span[0] <= seq <= span[1])
        and not any(first <= seq <= last for first, last in without)
        and (ends[0] is None or time_us >= ends[0])
        and (ends[1] is None or time_us < ends[1])
    ]
    with storage.connect() as duck:
        assert numbers(duck, scan.sql(storage, table)) == expected
        parts = HistoryScan((scan,), len(files)).split(2)
        texts = [part.sql(storage, table, False, Named()) for part in parts]
        found = [n for text in texts if text is not None for n in numbers(duck, text)]
        assert sorted(found) == expected
