"""What a compaction makes of real files: the same rows, in the order of files, within memory."""

from __future__ import annotations

import datetime as dt
import itertools
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemill.catalog.model import DataFile, Index, NewFile, Table
from tidemill.history import writing
from tidemill.history.storage import Storage
from tidemill.history.writing import WriteSpec, write_deletes, write_rows
from tidemill.pipeline import rewriting
from tidemill.pipeline.rewriting import RewriteTask, rewrite_files
from tidemill.stream.relation import FileScan
from tidemill.stream.removed import Removed
from tidemill.types import Column, SqlType

HOUR_US = 3_600_000_000
START_US = 1_700_000_000_000_000 // HOUR_US * HOUR_US
EPOCH = dt.datetime(1970, 1, 1)
SPEC_OF = WriteSpec.of
Row = tuple[int, int | None, str | None]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def make_table(time_type: str, is_indexed: bool) -> Table:
    columns = (
        Column("ts", SqlType(time_type), nullable=False),
        Column("k", SqlType("BIGINT")),
        Column("s", SqlType("VARCHAR")),
    )
    indexes = (Index(1, "i", 1, ("k",), "hash"),) if is_indexed else ()
    return Table(1, "t", "streaming", columns, (), "ts", None, {}, indexes, 0)


def write(
    storage: Storage, table: Table, rows: list[Row], first_seq: int, job: str
) -> list[NewFile]:
    spec = WriteSpec.of(table)
    columns = list(zip(*rows, strict=True))
    arrays = [
        pa.array(columns[0], pa.int64()).cast(spec.schema.types[0]),
        pa.array(columns[1], pa.int64()),
        pa.array(columns[2], pa.string()),
        pa.array(range(first_seq, first_seq + len(rows))),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=spec.schema)
    return write_rows(storage, spec, [batch], job, 0, "move")


def named(files: list[NewFile]) -> tuple[DataFile, ...]:
    return tuple(
        DataFile(**{each.name: getattr(file, each.name) for each in fields(NewFile)})
        for file in files
    )


def task_of(
    storage: Storage, table: Table, files: list[NewFile], deletes: list[NewFile]
) -> RewriteTask:
    low, high = min(file.lo_us for file in files), max(file.hi_us for file in files)
    scan = FileScan(named(files), Removed.of(named(deletes)))
    return RewriteTask("job", 0, table, storage, low, high, scan)


def groups_of(storage: Storage, file: NewFile) -> list[list[dict[str, Any]]]:
    """The rows of each row group."""
    opened = pq.ParquetFile(storage.place(file.path))
    return [opened.read_row_group(at).to_pylist() for at in range(opened.num_row_groups)]


def _us(time: dt.datetime) -> int:
    return (time.replace(tzinfo=None) - EPOCH) // dt.timedelta(microseconds=1)


def check_order(groups: list[list[dict[str, Any]]], table: Table) -> None:
    """Row groups that share no time are in order of time; those that do are one slice, and in
    order of key. Without an index, rows are in order of time."""
    runs = [list(groups[0])]
    for group in groups[1:]:
        if table.indexes and min(row["ts"] for row in group) <= max(r["ts"] for r in runs[-1]):
            runs[-1] += group
        else:
            runs.append(list(group))
    for run, later in itertools.pairwise(runs):
        assert max(row["ts"] for row in run) <= min(row["ts"] for row in later)
    for run in runs:
        keys = [(r["k"] is None, r["k"] or 0) if table.indexes else () for r in run]
        order = [(*key, row["ts"], row["_seq"]) for key, row in zip(keys, run, strict=True)]
        assert order == sorted(order)


_ROWS = st.lists(
    st.tuples(
        st.integers(0, 5 * HOUR_US) | st.sampled_from([0, HOUR_US - 1, HOUR_US]),
        st.none() | st.integers(-3, 3),
        st.none() | st.sampled_from(["", "a", "same"]),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(_ROWS, min_size=1, max_size=4),
    st.sets(st.integers(1, 60)),
    st.sampled_from(["TIMESTAMP", "TIMESTAMP WITH TIME ZONE"]),
    st.booleans(),
    st.sampled_from([10**9, 900, 200]),
)
def test_a_compaction_changes_no_row_and_keeps_the_order(
    tmp_path_factory: pytest.TempPathFactory,
    moves: list[list[Row]],
    gone: set[int],
    time_type: str,
    is_indexed: bool,
    memory: int,
) -> None:
    """Moves of any times; rows deleted of them; memory for all, for some, for hardly any."""
    storage = Storage(str(tmp_path_factory.mktemp("w")))
    table = make_table(time_type, is_indexed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WriteSpec, "of", lambda table: replace(SPEC_OF(table), row_group_rows=8))
        patch.setattr(rewriting, "held_bytes", lambda most: min(most, memory))
        seq, files, wanted = 1, [], {}
        for number, rows in enumerate(moves):
            placed = [(START_US + time, k, s) for time, k, s in rows]
            files += write(storage, table, placed, seq, f"m{number}")
            wanted.update({seq + at: row for at, row in enumerate(placed)})
            seq += len(rows)
        spec = WriteSpec.of(table)
        deletes = (
            [write_deletes(storage, spec, 0, 2**62, sorted(gone), "d", 0, "x")] if gone else []
        )
        made = rewrite_files(task_of(storage, table, files, deletes))
        groups = [group for file in made for group in groups_of(storage, file)]
    found = {row["_seq"]: (_us(row["ts"]), row["k"], row["s"]) for group in groups for row in group}
    assert found == {seq: row for seq, row in wanted.items() if seq not in gone}
    assert sum(file.rows for file in made) == len(found)
    for file in made:
        check_order(groups_of(storage, file), table)


def test_more_rows_than_memory_holds_become_one_file(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table("TIMESTAMP", True)
    rows: list[Row] = [(START_US + at * 10**6, at % 50, "text " * 20) for at in range(6_000)]
    files = [
        f
        for at in range(0, 6_000, 500)
        for f in write(storage, table, rows[at : at + 500], at + 1, f"m{at}")
    ]
    held: list[int] = []
    add = writing._Writer.add

    def noted(
        self: Any, lo_us: int, hi_us: int, rows: pa.RecordBatch, *more: Any, **named: Any
    ) -> None:
        held.append(rows.nbytes)
        add(self, lo_us, hi_us, rows, *more, **named)

    monkeypatch.setattr(writing._Writer, "add", noted)
    monkeypatch.setattr(rewriting, "held_bytes", lambda most: 100_000)
    (made,) = rewrite_files(task_of(storage, table, files, []))
    assert (made.rows, made.seq_min, made.seq_max) == (6_000, 1, 6_000)
    assert len(held) > 5
    assert max(held) < 200_000
    check_order(groups_of(storage, made), table)


def test_rows_of_one_time_are_one_portion(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table("TIMESTAMP", True)
    monkeypatch.setattr(rewriting, "held_bytes", lambda most: 10)
    files = [
        f
        for at in range(3)
        for f in write(storage, table, [(START_US, at, None)] * 9, 9 * at + 1, f"{at}")
    ]
    (made,) = rewrite_files(task_of(storage, table, files, []))
    assert made.rows == 27
    gone = write_deletes(storage, WriteSpec.of(table), 0, 2**62, list(range(1, 28)), "d", 0, "x")
    assert rewrite_files(task_of(storage, table, files, [gone])) == ()
