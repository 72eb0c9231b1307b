"""What the options of reading make of files, in every format."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from accept_kit import acceptor, make_column, make_table

from tidemill.accept.files import read_file
from tidemill.errors import SettingError, TidemillError, UnknownNameError
from tidemill.pipeline.loads.options import option_texts

TABLE = make_table(
    make_column("d", "DATE"),
    make_column("x", "DOUBLE"),
    make_column("n", "DECIMAL(10,2)"),
    make_column("s", "VARCHAR"),
    make_column("f", "VARCHAR"),
    given={"rejected": "divert"},
)
NINE = dt.datetime(2013, 1, 31, 9, 5)


def read(path: Path, form: str = "csv", **options: object) -> list[dict[str, Any]]:
    """The rows, the same when they are read as text and when a catalog kept the options."""
    answers = []
    for given in (options, option_texts(options)):
        for as_text in (False, True):
            rows = []
            for found in read_file(path, form, TABLE, None, given, as_text=as_text):
                assert not found.rejects
                checked = acceptor(TABLE).accept(found.rows)
                assert not checked.rejects, checked.rejects
                rows += [row for batch in checked.batches for row in batch.to_pylist()]
            answers.append(rows)
    assert all(rows == answers[0] for rows in answers)
    return [{k: v for k, v in row.items() if v is not None} for row in answers[0]]


def csv(tmp_path: Path, text: str, encoding: str = "utf-8") -> Path:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode(encoding))
    return path


def test_formats_of_times(tmp_path: Path) -> None:
    path = csv(tmp_path, "ts,d\n01/31/2013 9:05 AM,31.1.2013\n2013-01-31 09:05:00,\n")
    found = read(path, timestampformat="%m/%d/%Y %I:%M %p", dateformat=("%d.%m.%Y",))
    assert found == [{"ts": NINE, "d": NINE.date()}, {"ts": NINE}]
    path = csv(tmp_path, "ts\n01/31/2013 09:05\n20130131T090500\n")
    formats = ("%m/%d/%Y %H:%M", "%Y%m%dT%H%M%S")
    assert read(path, timestampformat=formats) == [{"ts": NINE}, {"ts": NINE}]
    path = csv(tmp_path, "ts\n31.01.2013 10:05 +0100\n")
    assert read(path, timestampformat="%d.%m.%Y %H:%M %z") == [{"ts": NINE}]


def test_a_bad_format(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="format"):
        read(csv(tmp_path, "ts\n1\n"), timestampformat="%Q%Q")


@pytest.mark.parametrize(
    ("unit", "factor"), [("s", 1), ("ms", 1_000), ("microseconds", 10**6), ("ns", 10**9)]
)
def test_units_since_1970(tmp_path: Path, unit: str, factor: int) -> None:
    number = 1_359_623_100 * factor
    assert read(csv(tmp_path, f"ts\n{number}\n"), timeunit=unit) == [{"ts": NINE}]
    path = tmp_path / "a.ndjson"
    path.write_text(json.dumps({"ts": number}) + "\n")
    assert read(path, "ndjson", timeunit=unit) == [{"ts": NINE}]
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"ts": [number]}), path)
    assert read(path, "parquet", timeunit=unit) == [{"ts": NINE}]


def test_fractions_of_a_second(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"ts": [1_359_623_100.25]}), path)
    wanted = NINE + dt.timedelta(milliseconds=250)
    assert read(path, "parquet", timeunit="s") == [{"ts": wanted}]


def test_a_text_among_numbers_is_rejected(tmp_path: Path) -> None:
    path = csv(tmp_path, "ts\n1359623100\nyesterday\n")
    found = list(read_file(path, "csv", TABLE, None, {"timeunit": "s"}, as_text=True))
    checked = acceptor(TABLE).accept(found[0].rows)
    assert len(checked.rejects) == 1
    assert "yesterday" in checked.rejects[0][1]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-8"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = csv(tmp_path, "ts,s\n2013-01-31 09:05,Zürich\n", encoding)
    assert read(path, encoding=encoding) == [{"ts": NINE, "s": "Zürich"}]
    path = tmp_path / "a.ndjson"
    path.write_bytes('{"ts": "2013-01-31 09:05", "s": "Zürich"}\n'.encode(encoding))
    assert read(path, "ndjson", encoding=encoding) == [{"ts": NINE, "s": "Zürich"}]


def test_a_wrong_encoding_is_an_error(tmp_path: Path) -> None:
    path = csv(tmp_path, "ts,s\n2013-01-31,Zürich\n", "latin-1")
    with pytest.raises(TidemillError):
        read(path, encoding="ascii")
    with pytest.raises(SettingError, match="not known"):
        read(path, encoding="klingon")


def test_words_for_null(tmp_path: Path) -> None:
    text = 'ts,x,s\n2013-01-31 09:05,NA,"NA"\n2013-01-31 09:05,-,-\n'
    found = read(csv(tmp_path, text), null=("NA", "-"))
    assert found == [{"ts": NINE}, {"ts": NINE}]
    path = tmp_path / "a.ndjson"
    path.write_text('{"ts": "2013-01-31 09:05", "x": "NA"}\n')
    assert read(path, "ndjson", null="NA") == [{"ts": NINE}]


def test_decimal_commas(tmp_path: Path) -> None:
    path = csv(tmp_path, "ts;x;n;s\n2013-01-31 09:05;1,5;-2,25;1,5\n")
    found = read(path, decimal_separator=",")
    assert [{**row, "n": str(row["n"])} for row in found] == [
        {"ts": NINE, "x": 1.5, "n": "-2.25", "s": "1,5"}
    ]
    point = csv(tmp_path, "ts;x\n2013-01-31 09:05;1.234\n")
    found_rows = list(
        read_file(point, "csv", TABLE, None, {"decimal_separator": ","}, as_text=True)
    )
    assert len(acceptor(TABLE).accept(found_rows[0].rows).rejects) == 1


def test_other_names_and_columns_left_out(tmp_path: Path) -> None:
    options: dict[str, object] = {
        "rename": {"When It Was": "ts", "value": "x"},
        "exclude": ("note", "id"),
        "filename": "f",
    }
    path = csv(tmp_path, "id,When It Was,VALUE,note\n1,2013-01-31 09:05,1.5,x\n")
    wanted = [{"ts": NINE, "x": 1.5, "f": str(path)}]
    assert read(path, **options) == wanted
    row = {"id": 1, "When It Was": "2013-01-31 09:05", "value": 1.5, "note": "x"}
    path = tmp_path / "a.ndjson"
    path.write_text(json.dumps(row) + "\n")
    assert read(path, "ndjson", **options) == [{**wanted[0], "f": str(path)}]
    path = tmp_path / "a.json"
    path.write_text(json.dumps([row]))
    assert read(path, "json", **options) == [{**wanted[0], "f": str(path)}]
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.Table.from_pylist([row]), path)
    assert read(path, "parquet", **options) == [{**wanted[0], "f": str(path)}]


def test_columns_that_do_not_exist(tmp_path: Path) -> None:
    path = csv(tmp_path, "ts\n2013-01-31\n")
    with pytest.raises(UnknownNameError, match="no column"):
        read(path, rename={"ts": "nothing"})
    with pytest.raises(UnknownNameError, match="for the file's name"):
        read(path, filename=True)
    with pytest.raises(SettingError, match="pairs"):
        read(path, rename="ts")
    with pytest.raises(SettingError, match="timeunit"):
        read(path, timeunit="days")


def test_null_in_quotes(tmp_path: Path) -> None:
    path = csv(tmp_path, 'ts,x,s\n2013-01-31 09:05:00,"NA","NA"\n2013-01-31 09:05:00,1.5,""\n')
    assert read(path, null="NA") == [{"ts": NINE}, {"ts": NINE, "x": 1.5, "s": ""}]
    path = csv(tmp_path, 'ts,s\n2013-01-31 09:05:00,""\n2013-01-31 09:05:00,\n')
    assert read(path) == [{"ts": NINE, "s": ""}, {"ts": NINE}]
