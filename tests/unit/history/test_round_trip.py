"""What is written is read again: the same values, the same types, whatever the names and places."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from history_kit import (
    HOSTILE_NAMES,
    LEAVES,
    NOW_US,
    QUICK,
    differences,
    make_batch,
    make_table,
    type_names,
    values_of,
    write,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scans import scan_sql

from tidemill.history.storage import Storage
from tidemill.history.writing import WriteSpec, write_rows


def check_round_trip(
    storage: Storage,
    duck: duckdb.DuckDBPyConnection,
    names: list[str],
    types: list[str],
    rows: Any,
) -> None:
    table = make_table(list(zip(names, types, strict=True)))
    batch = make_batch(table, [(NOW_US, *row) for row in rows])
    spec, job_id = WriteSpec.of(table), uuid.uuid4().hex
    files = write_rows(storage, spec, [batch], job_id, 0, "load", duck)
    again = duck.sql(scan_sql(storage, table, files, with_seq=True)).to_arrow_table().to_batches()
    files = write_rows(storage, spec, again, job_id, 9, "compact", duck)
    scan = scan_sql(storage, table, files, with_seq=True)
    relation = duck.sql(scan)
    assert relation.columns == ["ts", *names, "_seq"]
    expected = [column.type.name for column in table.columns]
    assert [str(kind) for kind in relation.types] == [*expected, "BIGINT"]
    assert not differences(duck, scan, pa.Table.from_batches([batch]), names)


@QUICK
@given(data=st.data())
def test_values_of_nested_types(
    storage: Storage, duck: duckdb.DuckDBPyConnection, data: st.DataObject
) -> None:
    types = data.draw(st.lists(type_names(), min_size=1, max_size=4))
    rows = data.draw(st.lists(st.tuples(*map(values_of, types)), max_size=6))
    check_round_trip(storage, duck, [f"c{at}" for at in range(len(types))], types, rows)


@pytest.mark.parametrize("shape", ["{}", "{}[]", "{}[2]", "STRUCT(x {})", "MAP(VARCHAR, {})"])
@settings(QUICK, max_examples=8)
@given(data=st.data())
def test_values_of_every_type(
    storage: Storage, duck: duckdb.DuckDBPyConnection, shape: str, data: st.DataObject
) -> None:
    types = [shape.format(leaf) for leaf in LEAVES]
    rows = data.draw(st.lists(st.tuples(*map(values_of, types)), min_size=1, max_size=4))
    check_round_trip(storage, duck, [f"c{at}" for at in range(len(types))], types, rows)


def test_only_nulls(storage: Storage, duck: duckdb.DuckDBPyConnection) -> None:
    types = [*LEAVES, *(f"{leaf}[]" for leaf in LEAVES)]
    rows = [[None] * len(types)] * 3
    check_round_trip(storage, duck, [f"c{at}" for at in range(len(types))], types, rows)


def test_hostile_names(storage: Storage, duck: duckdb.DuckDBPyConnection) -> None:
    types = ["INTEGER", "HUGEINT", "INTERVAL[]"] * len(HOSTILE_NAMES)
    names = list(HOSTILE_NAMES)
    rows = [[1, 2**100, [pa.MonthDayNano((1, -2, 3_000))]] * len(names)]
    check_round_trip(storage, duck, names, types[: len(names)], [row[: len(names)] for row in rows])


@pytest.mark.parametrize("name", ["with space", "it's", 'a"b', "a*b", "[ab]", "k=1", "ü?", "a,b;"])
def test_hostile_folders(duck: duckdb.DuckDBPyConnection, name: str, tmp_path: Path) -> None:
    (tmp_path / "aXb").mkdir()
    folder = tmp_path / name / "deeper"
    folder.mkdir(parents=True)
    check_round_trip(Storage(str(folder)), duck, ["k"], ["INTEGER"], [(1,), (None,)])


@pytest.mark.parametrize("name", ["a*b", "[ab]", "a?b"])
def test_a_folder_that_looks_like_a_pattern_matches_no_other(name: str, tmp_path: Path) -> None:
    table = make_table([("k", "INTEGER")])
    for folder, value in ((name, 1), ("aXb", 2), ("a", 3)):
        (tmp_path / folder).mkdir()
        write(Storage(str(tmp_path / folder)), table, make_batch(table, [(NOW_US, value)]))
    storage = Storage(str(tmp_path / name))
    files = write(storage, table, make_batch(table, [(NOW_US, 1)]))
    with duckdb.connect() as duck:
        assert duck.execute(scan_sql(storage, table, files, columns=["k"])).fetchall() == [(1,)]
