"""Reading: nothing that an answer needs is pruned, and what is not needed is not read."""

from __future__ import annotations

import re
import uuid
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from history_kit import HOUR_US, NOW_US, QUICK, history_of, make_batch, make_table, some_uuid, write
from hypothesis import given
from hypothesis import strategies as st

from tidemill.catalog.model import NewFile
from tidemill.history.ranges import RangeCondition
from tidemill.history.reading import BURIED_INLINE_MAX, deleted_seqs, find_keys, prune, scan_sql
from tidemill.history.storage import Storage
from tidemill.history.writing import WriteSpec, write_deletes

Duck = duckdb.DuckDBPyConnection
KINDS = {
    "k": "BIGINT",
    "u": "UBIGINT",
    "s": "VARCHAR",
    "x": "BLOB",
    "d": "DECIMAL(10,2)",
    "f": "DOUBLE",
    "b": "BOOLEAN",
    "day": "DATE",
    "id": "UUID",
}
MIXED = make_table(list(KINDS.items()), [("k",), *((name,) for name in KINDS if name != "k")])
BY_K = make_table([("k", "BIGINT")], [("k",)])
SMALL: dict[str, st.SearchStrategy[Any]] = {
    "k": st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)]),
    "u": st.integers(0, 3) | st.sampled_from([2**64 - 1, 2**63]),
    "s": st.sampled_from(["", "a", "b", "é", "z" * 100, "z" * 64, "😀"]),
    "x": st.sampled_from([b"", b"a", b"\xff", b"\xff" * 40]),
    "d": st.integers(-300, 300).map(lambda cents: Decimal(cents) / 100),
    "f": st.sampled_from([0.0, -0.0, 1.5, -2.5, float("nan"), float("inf"), -float("inf")]),
    "b": st.booleans(),
    "day": st.integers(-3, 3),
    "id": st.integers(0, 3).map(some_uuid) | st.just(some_uuid(2**128 - 1)),
}


def constant(name: str, value: Any) -> str:
    """A value as a SQL literal of the column's type."""
    texts = {
        "x": lambda: "".join(f"\\x{byte:02X}" for byte in value),
        "id": lambda: str(uuid.UUID(bytes=value)),
    }
    if name == "day":
        return f"(DATE '1970-01-01' + {value})"
    text = texts[name]() if name in texts else str(value)
    return f"CAST('{text}' AS {KINDS[name]})"


@st.composite
def conditions(draw: st.DrawFn) -> tuple[RangeCondition, str]:
    """A condition, and the same in SQL."""
    name = draw(st.sampled_from(sorted(KINDS)))
    ends = st.none() | SMALL[name].filter(lambda value: value == value)
    interval = st.tuples(ends, st.booleans(), ends, st.booleans())
    intervals = draw(st.lists(interval, min_size=1, max_size=2))
    texts = []
    for low, low_included, high, high_included in intervals:
        parts = [f"{name} IS NOT NULL"]
        if low is not None:
            parts.append(f"{name} {'>=' if low_included else '>'} {constant(name, low)}")
        if high is not None:
            parts.append(f"{name} {'<=' if high_included else '<'} {constant(name, high)}")
        texts.append(f"({' AND '.join(parts)})")
    return RangeCondition(name, tuple(intervals)), f"({' OR '.join(texts)})"


ROW = st.tuples(
    st.integers(-2, 2).map(lambda hours: NOW_US + hours * HOUR_US // 2),
    *(st.none() | SMALL[name] for name in KINDS),
)


@QUICK
@given(
    groups=st.lists(st.lists(ROW, min_size=1, max_size=3), min_size=1, max_size=4),
    asked=st.lists(conditions(), max_size=3),
    low=st.none() | st.integers(-3, 3),
    high=st.none() | st.integers(-3, 3),
    gone=st.sets(st.integers(1, 12), max_size=4),
)
def test_pruned_and_unpruned_answers_are_the_same(
    storage: Storage, duck: Duck, groups: Any, asked: Any, low: Any, high: Any, gone: set[int]
) -> None:
    files: list[NewFile] = []
    seq = 1
    for rows in groups:
        files += write(storage, MIXED, make_batch(MIXED, rows, seq), job_id=uuid.uuid4().hex)
        seq += len(rows)
    if gone:
        spec = WriteSpec.of(MIXED)
        name = uuid.uuid4().hex
        day = NOW_US - 24 * HOUR_US
        files.append(write_deletes(storage, spec, day, day * 2, sorted(gone), name, 0, "move"))
    tests = [text for _, text in asked] or ["true"]
    low_us, high_us = (None if end is None else NOW_US + end * HOUR_US // 2 for end in (low, high))
    tests += [f"epoch_us(ts) >= {low_us}"] if low_us is not None else []
    tests += [f"epoch_us(ts) <= {high_us}"] if high_us is not None else []
    history = history_of(files)
    pruned = prune(history, low_us, high_us, [condition for condition, _ in asked])
    everything = prune(history)
    assert pruned.total_files == everything.total_files == len(everything.files)
    assert sum(pruned.reasons.values()) == len(everything.files) - len(pruned.files)
    answers = [
        duck.execute(
            f"SELECT _seq FROM ({scan_sql(storage, MIXED, p.files, p.deletes, with_seq=True)}) "
            f"WHERE {' AND '.join(tests)} ORDER BY ALL"
        ).fetchall()
        for p in (pruned, everything)
    ]
    assert answers[0] == answers[1]
    assert not gone.intersection(seq for (seq,) in answers[0])


@pytest.fixture
def files(storage: Storage) -> list[NewFile]:
    """Three hours of ten rows, whose sequence numbers and values count from 1 on."""
    rows = [(NOW_US + (at // 10) * HOUR_US + at, at + 1) for at in range(30)]
    return write(storage, BY_K, make_batch(BY_K, rows))


def numbers(duck: Duck, sql: str) -> list[int]:
    return [value for (value,) in duck.execute(f"SELECT k FROM ({sql}) ORDER BY k").fetchall()]


def test_files_are_pruned_by_time_and_by_value(files: list[NewFile]) -> None:
    history = history_of(files)
    pruned = prune(history, NOW_US + HOUR_US, None, [RangeCondition("k", ((25, True, 25, True),))])
    assert [file.path for file in pruned.files] == [files[2].path]
    assert pruned.reasons == {"time": 1, "k": 1}
    assert (pruned.total_files, pruned.total_bytes) == (3, sum(file.bytes for file in files))
    assert (pruned.rows, pruned.bytes) == (10, files[2].bytes)
    assert not prune(history, NOW_US - 2, NOW_US - 1).files
    assert (
        len(prune(history, None, None, [RangeCondition("other", ((1, True, 1, True),))]).files) == 3
    )


def test_row_groups_are_skipped(storage: Storage, duck: Duck) -> None:
    """Filters reach the files through the SELECT: on the key, on time, on another index."""
    table = make_table([("k", "BIGINT"), ("s", "VARCHAR"), ("h", "HUGEINT")], [("k",), ("s",)])
    rows = [(NOW_US + at, at, f"s{at * 7919 % 20_000}", at) for at in range(20_000)]
    written = write(storage, table, make_batch(table, rows), row_group_rows=2_000)
    gone = write_deletes(storage, WriteSpec.of(table), NOW_US, NOW_US + 1, [5], "d", 0, "move")
    for deletes in ([], [gone]):
        scan = scan_sql(storage, table, written, deletes)
        for test in (
            "k = 4321",
            f"ts BETWEEN make_timestamp({NOW_US + 4_100}) AND make_timestamp({NOW_US + 4_200})",
            "s = 's7919'",
        ):
            sql = f"EXPLAIN ANALYZE SELECT h FROM ({scan}) WHERE {test}"
            plan = duck.execute(sql).fetchall()[0][1]
            scanned = re.findall(r"Row Groups Scanned: (\d+) / (\d+)", plan)
            assert ("1", "10") in scanned, (test, plan)


def test_deleted_rows_are_left_out(storage: Storage, duck: Duck, files: list[NewFile]) -> None:
    spec = WriteSpec.of(BY_K)
    gone = [
        write_deletes(storage, spec, files[at].lo_us, files[at].hi_us, seqs, "d", at, "move")
        for at, seqs in ((0, [1, 5]), (2, [30]))
    ]
    history = history_of([*files, *gone])
    assert len(prune(history).deletes) == 2
    assert deleted_seqs(storage, duck, gone, "t") == [1, 5, 30]
    assert deleted_seqs(storage, duck, [], "t") == []
    assert not prune(history, NOW_US + HOUR_US, NOW_US + 2 * HOUR_US - 1).deletes
    expected = [n for n in range(1, 31) if n not in (1, 5, 30)]
    assert numbers(duck, scan_sql(storage, BY_K, files, gone)) == expected
    assert numbers(duck, scan_sql(storage, BY_K, [files[1]], gone)) == list(range(11, 21))
    assert "ANTI" not in scan_sql(storage, BY_K, [files[1]], gone)


@pytest.mark.parametrize("more", [0, BURIED_INLINE_MAX])
def test_buried_rows_are_left_out(
    storage: Storage, duck: Duck, files: list[NewFile], more: int
) -> None:
    buried = [3, 4, 12, *range(1_000, 1_000 + more)]
    expected = [n for n in range(1, 31) if n not in buried]
    assert numbers(duck, scan_sql(storage, BY_K, files, buried=buried)) == expected


def test_deleted_and_buried(storage: Storage, duck: Duck, files: list[NewFile]) -> None:
    spec = WriteSpec.of(BY_K)
    gone = [write_deletes(storage, spec, NOW_US, NOW_US + HOUR_US, [2], "d", 0, "move")]
    scan = scan_sql(storage, BY_K, files, gone, buried=frozenset({3}), seq_range=(1, 4))
    assert numbers(duck, scan) == [1, 4]


@pytest.mark.parametrize("span", [(1, 30), (5, 14), (11, 20), (0, 0), (30, 99)])
def test_a_range_of_sequence_numbers(
    storage: Storage, duck: Duck, files: list[NewFile], span: tuple[int, int]
) -> None:
    scan = scan_sql(storage, BY_K, files, seq_range=span)
    assert numbers(duck, scan) == [n for n in range(1, 31) if span[0] <= n <= span[1]]


def test_columns_come_in_the_order_of_the_table(
    storage: Storage, duck: Duck, files: list[NewFile]
) -> None:
    for held in (files, []):
        both = duck.sql(scan_sql(storage, BY_K, held, columns=["K", "ts"], with_seq=True))
        assert both.columns == ["ts", "k", "_seq"]
        assert [str(kind) for kind in both.types] == ["TIMESTAMP", "BIGINT", "BIGINT"]
        assert len(both.fetchall()) == 10 * len(held)
        count = f"SELECT count(*) FROM ({scan_sql(storage, BY_K, held, columns=[])})"
        assert duck.execute(count).fetchall() == [(10 * len(held),)]


def test_keys_are_found(storage: Storage, duck: Duck, files: list[NewFile]) -> None:
    keys = pa.table(
        {
            "k": pa.array([15, 16, 99, 1, 2], pa.int64()),
            "ts": pa.array(
                [NOW_US + HOUR_US + 14, NOW_US, NOW_US, NOW_US, NOW_US + 1], pa.int64()
            ).view(pa.timestamp("us")),
        }
    )
    gone = [
        write_deletes(storage, WriteSpec.of(BY_K), NOW_US, NOW_US + HOUR_US, [2], "d", 0, "move")
    ]
    found = find_keys(storage, duck, BY_K, files, gone, keys, "ts")
    assert found.schema.names == ["k", "ts", "_seq"]
    assert found.schema.types == [*keys.schema.types, pa.int64()]
    assert found.column("k").to_pylist() == [15, 1]
    assert found.column("_seq").to_pylist() == [15, 1]
    assert find_keys(storage, duck, BY_K, files, gone, keys.slice(0, 0), "ts").num_rows == 0
    assert find_keys(storage, duck, BY_K, [], gone, keys).schema.equals(found.schema)


def test_keys_of_other_times_open_no_file(
    storage: Storage, duck: Duck, files: list[NewFile]
) -> None:
    for file in files[1:]:
        storage.delete(file.path)
    keys = pa.table({"ts": pa.array([NOW_US], pa.int64()).view(pa.timestamp("us")), "k": [1]})
    assert find_keys(storage, duck, BY_K, files, [], keys, "ts").num_rows == 1


def test_keys_of_every_kind_are_exact(storage: Storage, duck: Duck) -> None:
    names = [name for name in KINDS if name != "f"]
    rows = [
        (NOW_US, 2**63 - 1, 2**64 - 1, "é", b"\xff", Decimal("1.50"), 1.5, True, -3, some_uuid(9))
    ]
    batch = make_batch(MIXED, [*rows, (NOW_US + 1, *rows[0][1:])], first_seq=4)
    written = write(storage, MIXED, batch)
    keys = pa.Table.from_batches([batch.slice(0, 1)]).select(["ts", *names])
    found = find_keys(storage, duck, MIXED, written, [], keys, "ts")
    assert found.column("_seq").to_pylist() == [4]
    assert found.drop_columns(["_seq"]).equals(keys)
