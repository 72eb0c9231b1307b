"""Every form of rows, and everything that can be wrong with them."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from accept_kit import accept, acceptor, make_column, make_table, stored

from tidemill.accept.rows import read
from tidemill.errors import RowsRejectedError, TidemillError, UnknownNameError

TS = dt.datetime(2024, 1, 1, 12)
TABLE = make_table(make_column("k", "INTEGER"), make_column("s", "VARCHAR", default="'none'"))
ROW = {"ts": TS, "k": 7, "s": "é"}
ROWS = [ROW, {"ts": TS, "k": None, "s": ""}]
DIVERT = {"rejected": "divert"}

FORMS: dict[str, Any] = {
    "arrow table": lambda: pa.Table.from_pylist(ROWS),
    "arrow batch": lambda: pa.RecordBatch.from_pylist(ROWS),
    "arrow reader": lambda: pa.Table.from_pylist(ROWS).to_reader(),
    "arrow batches": lambda: pa.Table.from_pylist(ROWS).to_batches(max_chunksize=1),
    "pandas": lambda: pd.DataFrame(ROWS).astype({"k": "Int64"}),
    "pandas with an index": lambda: pd.DataFrame(ROWS, index=[5, 9]).astype({"k": "Int32"}),
    "polars": lambda: pl.DataFrame(ROWS),
    "dicts": lambda: ROWS,
    "generator": lambda: (row for row in ROWS),
    "tuples": lambda: [tuple(row.values()) for row in ROWS],
    "lists": lambda: [list(row.values()) for row in ROWS],
    "other order and case": lambda: [{"S": r["s"], "TS": r["ts"], "K": r["k"]} for r in ROWS],
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    assert stored(FORMS[form](), TABLE) == ROWS


def test_one_row() -> None:
    assert stored(ROW, TABLE) == [ROW]
    assert stored((TS, 7, "é"), TABLE) == [ROW]


@pytest.mark.parametrize("rows", [[], (), iter(()), pa.table({"k": pa.array([], pa.int32())})])
def test_nothing(rows: Any) -> None:
    if rows == ():
        with pytest.raises(RowsRejectedError, match="3 columns"):
            accept(rows, TABLE)
        return
    assert stored(rows, TABLE) == []


@pytest.mark.parametrize(
    "rows",
    [
        5,
        None,
        "text",
        b"bytes",
        object(),
        [1, 2],
        [ROW, (TS, 1, "")],
        [(TS, 1)],
        (TS,),
        pd.Series([1]),
        pl.Series([1]),
        pa.chunked_array([[1]]),
        np.zeros((2, 3)),
        [pa.RecordBatch.from_pylist([{"k": 1}]), pa.RecordBatch.from_pylist([{"s": ""}])],
        [{"ts": TS, "k": object()}],
        [{"ts": TS, "s": Path("x")}],
        pd.DataFrame({"k": [1, "a", b"c"]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_rows(rows: Any) -> None:
    with pytest.raises(TidemillError) as caught:
        accept(rows, TABLE)
    assert isinstance(caught.value, RowsRejectedError)


def test_missing_columns_get_their_defaults() -> None:
    table = make_table(
        make_column("a", "INTEGER", default="40 + 2"),
        make_column("b", "DOUBLE", default="random()"),
        make_column("c", "VARCHAR"),
        make_column("d", "INTEGER", nullable=False, default="5"),
        make_column("e", "UUID", default="uuid()"),
        make_column("f", "INTEGER[]", default="[1, 2]"),
        make_column("g", "HUGEINT", default="1"),
    )
    got = stored(pa.table({"ts": [TS, TS]}), table)
    assert [row["a"] for row in got] == [42, 42]
    assert got[0]["b"] != got[1]["b"]
    assert [row["c"] for row in got] == [None, None]
    assert [row["d"] for row in got] == [5, 5]
    assert got[0]["e"] != got[1]["e"]
    assert got[0]["f"] == [1, 2]
    assert got[0]["g"] == (1).to_bytes(16, "little")
    assert stored(pa.table({"ts": [TS], "a": pa.nulls(1)}), table)[0]["a"] is None


def test_dicts_that_lack_what_others_have() -> None:
    rows = [{"ts": TS, "s": "x"}, {"ts": TS}, {"ts": TS, "s": None}]
    given = read(rows, TABLE, acceptor(TABLE).defaults)
    assert given.column("s").to_pylist() == ["x", "none", None]


def test_unknown_and_repeated_columns() -> None:
    with pytest.raises(UnknownNameError, match='no column "kk"') as caught:
        accept({"ts": TS, "kk": 1}, TABLE)
    assert caught.value.hint == 'did you mean "k"?'
    with pytest.raises(UnknownNameError) as caught:
        accept({"ts": TS, "zzzzz": 1}, TABLE)
    assert caught.value.hint == "the columns are ts, k, s"
    with pytest.raises(RowsRejectedError, match="twice"):
        accept({"ts": TS, "k": 1, "K": 2}, TABLE)
    twice = pa.Table.from_arrays([pa.array([TS])] * 2, names=["ts", "ts"])
    with pytest.raises(RowsRejectedError, match="twice"):
        accept(twice, TABLE)
    frame = pd.DataFrame([[TS, TS]], columns=["ts", "ts"])
    with pytest.raises(RowsRejectedError):
        accept(frame, TABLE)


def test_bad_rows_refuse_the_batch_or_are_set_aside() -> None:
    rows = [
        {"ts": TS, "k": 1},
        {"ts": None, "k": 2},
        {"ts": TS, "k": "x"},
        {"ts": TS, "k": 2**40},
        {"ts": "never", "k": "y"},
        {"ts": TS, "k": 6},
    ]
    with pytest.raises(RowsRejectedError, match="4 of 6 rows do not fit") as caught:
        accept(rows, TABLE)
    assert caught.value.detail is not None
    assert caught.value.detail.startswith('row 2: "ts" is NULL; row 3: ')
    assert caught.value.detail.endswith(" and 1 more")
    table = make_table(*TABLE.columns[1:], given=DIVERT)
    checked = accept(rows, table)
    assert [row["k"] for batch in checked.batches for row in batch.to_pylist()] == [1, 6]
    texts = [json.loads(text) for text, _ in checked.rejects]
    assert [text["k"] for text in texts] == ["2", "x", str(2**40), "y"]
    assert "never" in checked.rejects[3][1], "the first thing that is wrong is the reason"
    given = pa.table({"ts": [TS], "k": ["x"]})
    with pytest.raises(RowsRejectedError) as caught:
        acceptor(TABLE).accept(given, first_row=1_001)
    assert "row 1001" in str(caught.value)


def test_times_outside_the_calendar() -> None:
    table = make_table(given=DIVERT)
    first, last = -62_135_596_800_000_000, 253_402_300_799_999_999
    times = pa.array([first - 1, first, last, last + 1, 2**63 - 1], pa.int64())
    checked = accept(pa.table({"ts": times.view(pa.timestamp("us"))}), table)
    assert [batch.num_rows for batch in checked.batches] == [2]
    assert len(checked.rejects) == 3
    assert all("years 1 to 9999" in reason for _, reason in checked.rejects)
    seconds = pa.table({"ts": pa.array([2**62, 0], pa.int64()).view(pa.timestamp("s"))})
    checked = accept(seconds, table)
    assert len(checked.rejects) == 1
    json.loads(checked.rejects[0][0])
    assert len(accept([{"ts": "infinity"}, {"ts": "2020-01-01"}], table).rejects) == 1


def broken_text() -> pa.Array:
    offsets = pa.py_buffer(np.array([0, 1_000_000, 2], np.int32))
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab")])


def invalid_text() -> pa.Array:
    offsets = pa.py_buffer(np.array([0, 1, 2], np.int32))
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"\xff\xfe")])


@pytest.mark.parametrize("make", [broken_text, invalid_text])
@pytest.mark.parametrize("chunks", [1, 2])
def test_arrow_data_that_lies_is_refused(make: Any, chunks: int) -> None:
    times = pa.array([TS, TS])
    table = pa.table(
        {
            "ts": pa.chunked_array([times] * chunks),
            "s": pa.chunked_array([make()] * chunks),
        }
    )
    with pytest.raises(RowsRejectedError, match="not valid Arrow"):
        accept(table, TABLE)


def test_a_stream_that_breaks_is_refused() -> None:
    def batches() -> Any:
        yield pa.RecordBatch.from_pylist([ROW])
        raise OSError("gone")

    reader = pa.RecordBatchReader.from_batches(pa.RecordBatch.from_pylist([ROW]).schema, batches())
    with pytest.raises(RowsRejectedError, match="RecordBatchReader"):
        accept(reader, TABLE)


def test_mixed_python_values() -> None:
    table = make_table(
        make_column("i", "BIGINT"),
        make_column("d", "DECIMAL(10,2)"),
        make_column("day", "DATE"),
        make_column("h", "HUGEINT"),
    )
    rows = [
        {"ts": dt.date(2024, 1, 1), "i": 1, "d": Decimal("1.5"), "day": dt.date(2024, 1, 1)},
        {"ts": TS, "i": "2", "d": 2, "day": dt.datetime(2024, 1, 2), "h": 2**100},
        {"ts": TS.replace(tzinfo=dt.UTC), "i": 3, "d": 0.1, "day": "2024-01-03"},
        {"ts": "2024-01-01 12:00", "i": True, "d": "3.25", "day": pd.NaT},
        {"ts": pd.Timestamp(TS), "i": pd.NA, "d": np.float64(0.5), "day": None},
    ]
    with pytest.raises(RowsRejectedError) as caught:
        accept(rows, table)
    assert "True" in str(caught.value), "a boolean among numbers is a mistake"
    rows[3]["i"] = 4
    got = stored(rows, table)
    assert [row["ts"] for row in got] == [dt.datetime(2024, 1, 1), TS, TS, TS, TS]
    assert [row["i"] for row in got] == [1, 2, 3, 4, None]
    assert [str(row["d"]) for row in got] == ["1.50", "2.00", "0.10", "3.25", "0.50"]
    assert [row["day"] for row in got] == [*(dt.date(2024, 1, n) for n in (1, 2, 3)), None, None]
    assert got[1]["h"] == (2**100).to_bytes(16, "little")


def test_dates_do_not_cut_times_off() -> None:
    """Arrow alone takes a list that begins with a date for dates."""
    got = stored([{"ts": dt.date(2024, 1, 1)}, {"ts": TS}], make_table())
    assert [row["ts"] for row in got] == [dt.datetime(2024, 1, 1), TS]


def test_zones() -> None:
    table = make_table(make_column("z", "TIMESTAMPTZ"))
    two = dt.timezone(dt.timedelta(hours=2))
    rows = [{"ts": TS, "z": TS.replace(tzinfo=two)}, {"ts": TS.replace(tzinfo=two), "z": TS}]
    got = stored(rows, table)
    assert [row["z"].astimezone(dt.UTC).hour for row in got] == [10, 12]
    assert [row["ts"].hour for row in got] == [12, 10]


def test_texts_that_are_no_unicode_are_refused() -> None:
    with pytest.raises(RowsRejectedError, match="1 of 2 rows"):
        accept([{"ts": TS, "s": "ok"}, {"ts": TS, "s": "\ud800"}], TABLE)
    table = make_table(*TABLE.columns[1:], given=DIVERT)
    checked = accept([{"ts": TS, "s": "ok"}, {"ts": TS, "s": "\ud800"}], table)
    assert [batch.column("s").to_pylist() for batch in checked.batches] == [["ok"]]
    assert len(checked.rejects) == 1


def test_nested_python_values() -> None:
    table = make_table(
        make_column("m", "MAP(VARCHAR, INTEGER)"),
        make_column("j", "JSON"),
        make_column("l", "INTEGER[]"),
        make_column("o", "STRUCT(a INTEGER, b VARCHAR)"),
    )
    rows = [
        {"ts": TS, "m": {"x": 1}, "j": {"a": [1, None]}, "l": [1, 2], "o": {"a": 1}},
        {"ts": TS, "m": {"y": 2, "z": None}, "j": '{"b": 1}', "l": [], "o": {"b": "c", "a": 2}},
        {"ts": TS, "m": None, "j": [1], "l": None, "o": None},
    ]
    got = stored(rows, table)
    assert [row["m"] for row in got] == [[("x", 1)], [("y", 2), ("z", None)], None]
    assert [json.loads(row["j"]) for row in got] == [{"a": [1, None]}, {"b": 1}, [1]]
    assert [row["l"] for row in got] == [[1, 2], [], None]
    assert [row["o"] for row in got] == [{"a": 1, "b": None}, {"a": 2, "b": "c"}, None]
    with pytest.raises(RowsRejectedError):
        accept({"ts": TS, "o": {"a": 1, "unknown": 2}}, table)
    with pytest.raises(RowsRejectedError):
        accept({"ts": TS, "l": [1.5]}, table)


def test_arrow_tables_pass_without_a_copy() -> None:
    given = pa.table({"ts": pa.array([TS]), "k": pa.array([1], pa.int32()), "s": ["x"]})
    assert read(given, TABLE) is given
    [batch] = acceptor(TABLE).accept(given).batches
    assert batch.schema.equals(TABLE.schema)
    here, there = batch.column("k").buffers()[1], given.column("k").chunk(0).buffers()[1]
    assert here.address == there.address


@pytest.mark.parametrize("kind", [pa.string_view(), pa.large_string(), pa.binary_view()])
def test_bad_values_of_any_layout_are_set_aside(kind: pa.DataType) -> None:
    table = make_table(make_column("v", "BIGINT"), given={"rejected": "divert"})
    values = [b"7", b"x"] if kind == pa.binary_view() else ["7", "x"]
    times = pa.array([dt.datetime(2024, 1, 1)] * 2, pa.timestamp("us"))
    checked = accept(pa.table({"ts": times, "v": pa.array(values, kind)}), table)
    assert checked.rejects
