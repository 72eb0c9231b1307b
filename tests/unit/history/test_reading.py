"""Reading: nothing that an answer needs is pruned, and what is not needed is not read."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from history_kit import HOUR_US, NOW_US, QUICK, history_of, make_batch, make_table, some_uuid, write
from hypothesis import given
from hypothesis import strategies as st

from tidemill.catalog.model import NewFile
from tidemill.history.ranges import RangeCondition
from tidemill.history.reading import prune
from tidemill.history.storage import Storage
from tidemill.history.writing import WriteSpec, write_deletes
from tidemill.stream.relation import FileScan
from tidemill.stream.removed import Removed

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
    removed = Removed.of(history.deletes)
    scans = [FileScan(p.files, removed.concerning(p.files)) for p in (pruned, everything)]
    answers = [
        duck.execute(
            f"SELECT _seq FROM ({scan.sql(storage, MIXED, with_seq=True)}) "
            f"WHERE {' AND '.join(tests)} ORDER BY ALL"
        ).fetchall()
        for scan in scans
    ]
    assert answers[0] == answers[1]
    assert not gone.intersection(seq for (seq,) in answers[0])


@pytest.fixture
def files(storage: Storage) -> list[NewFile]:
    """Three hours of ten rows, whose sequence numbers and values count from 1 on."""
    rows = [(NOW_US + (at // 10) * HOUR_US + at, at + 1) for at in range(30)]
    return write(storage, BY_K, make_batch(BY_K, rows))


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
