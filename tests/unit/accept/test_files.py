"""Files: good ones, odd ones, broken ones, each read strictly and as text."""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from accept_kit import acceptor, make_column, make_table

from tidemill.accept.files import read_file
from tidemill.accept.found import Found
from tidemill.errors import FileFormatError, SettingError, TidemillError, UnknownNameError

TS = dt.datetime(2024, 1, 1)
TABLE = make_table(make_column("k", "INTEGER"), make_column("s", "VARCHAR"))
LENIENT = make_table(*TABLE.columns[1:], given={"rejected": "divert"})
GOOD = [{"ts": TS, "k": 1, "s": "x"}, {"ts": TS, "k": None, "s": "y"}]
BOTH = pytest.mark.parametrize("as_text", [False, True], ids=["strict", "as text"])


def found(path: Path, form: str, as_text: bool, **more: Any) -> list[Found]:
    return list(read_file(path, form, TABLE, as_text=as_text, **more))


def rows_of(path: Path, form: str, as_text: bool, **more: Any) -> list[dict[str, Any]]:
    """What a table would hold of a file."""
    rows = []
    for part in found(path, form, as_text, **more):
        assert part.rejects == []
        if part.rows.num_columns:
            for batch in acceptor(TABLE).accept(part.rows).batches:
                rows += batch.to_pylist()
    return rows


def kept(path: Path, form: str, **more: Any) -> tuple[list[Any], list[tuple[str, str]]]:
    """The keys that a table with rejected = 'divert' would hold, and what it sets aside."""
    keys: list[Any] = []
    rejects: list[tuple[str, str]] = []
    for part in read_file(path, form, LENIENT, as_text=True, **more):
        rejects += part.rejects
        if part.rows.num_columns:
            checked = acceptor(LENIENT).accept(part.rows)
            keys += [key for batch in checked.batches for key in batch.column("k").to_pylist()]
            rejects += checked.rejects
    return keys, rejects


def write(folder: Path, name: str, data: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


CSV = "ts,k,s\n2024-01-01,1,x\n2024-01-01,,y\n"
GOOD_CSV: dict[str, tuple[str | bytes, dict[str, object]]] = {
    "plain": (CSV, {}),
    "windows lines": (CSV.replace("\n", "\r\n"), {}),
    "no last newline": (CSV.rstrip(), {}),
    "byte order mark": (b"\xef\xbb\xbf" + CSV.encode(), {}),
    "semicolons": (CSV.replace(",", ";"), {}),
    "tabs": (CSV.replace(",", "\t"), {}),
    "bars": (CSV.replace(",", "|"), {}),
    "any delimiter": (CSV.replace(",", "~"), {"DELIMITER": "~"}),
    "quoted header": ('"TS", k ,"s"\n2024-01-01,1,x\n2024-01-01,,y', {}),
    "other order": ("s,k,ts\nx,1,2024-01-01\ny,,2024-01-01", {}),
    "no header": (CSV.split("\n", 1)[1], {}),
    "no header, said": (CSV.split("\n", 1)[1], {"header": "false"}),
    "null string": (CSV.replace(",,", ",NULL,"), {"null": "NULL"}),
    "skipped lines": ("written by\nsomebody\n" + CSV, {"skip": 2}),
    "empty lines": ("\n\n" + CSV + "\n\n", {}),
    "single quotes": (CSV.replace("x", "'x'"), {"quote": "'"}),
    "no quotes": (CSV, {"quote": ""}),
    "spaces around numbers": (CSV.replace(",1,", ", 1 ,"), {}),
}


@BOTH
@pytest.mark.parametrize("name", GOOD_CSV)
def test_good_csv(tmp_path: Path, name: str, as_text: bool) -> None:
    data, options = GOOD_CSV[name]
    path = write(tmp_path, "a.csv", data)
    assert rows_of(path, "csv", as_text, options=options) == GOOD
    raw = data.encode() if isinstance(data, str) else data
    packed = write(tmp_path, "a.csv.gz", gzip.compress(raw))
    assert rows_of(packed, "csv", as_text, options=options) == GOOD


@BOTH
def test_quotes_newlines_and_empty_strings(tmp_path: Path, as_text: bool) -> None:
    path = write(
        tmp_path, "a.csv", 'ts,k,s\n2024-01-01,1,"a,""b""\nc"\n2024-01-01,2,""\n2024-01-01,3,'
    )
    assert [row["s"] for row in rows_of(path, "csv", as_text)] == ['a,"b"\nc', "", None]


@BOTH
def test_named_columns(tmp_path: Path, as_text: bool) -> None:
    path = write(tmp_path, "a.csv", "5,2024-01-01\n")
    assert rows_of(path, "csv", as_text, columns=["k", "ts"]) == [{"ts": TS, "k": 5, "s": None}]


@BOTH
@pytest.mark.parametrize("data", ["", "\n", "  \n\n", "ts,k,s\n", "ts,k,s", b"\xef\xbb\xbf"])
def test_nothing_in_a_csv(tmp_path: Path, data: str | bytes, as_text: bool) -> None:
    assert rows_of(write(tmp_path, "a.csv", data), "csv", as_text) == []


BAD_CSV: dict[str, tuple[str | bytes, dict[str, object], type[TidemillError]]] = {
    "unknown column": ("ts,kk,s\n", {}, UnknownNameError),
    "too few columns": ("1,2\n", {}, FileFormatError),
    "invalid utf-8": (CSV.encode() + b"2024-01-01,1,\xff\n", {}, FileFormatError),
    "garbage": (bytes(range(256)) * 50, {}, FileFormatError),
    "zeros": (b"\0" * 5_000, {}, FileFormatError),
    "open quote": ('"' + "x" * 200_000, {}, FileFormatError),
    "unknown option": (CSV, {"heeder": 1}, SettingError),
    "long delimiter": (CSV, {"delimiter": ",,"}, SettingError),
    "odd delimiter": (CSV, {"delimiter": "é"}, SettingError),
    "newline as delimiter": (CSV, {"delimiter": "\n"}, SettingError),
    "header maybe": (CSV, {"header": "maybe"}, SettingError),
    "skip many": (CSV, {"skip": "many"}, SettingError),
    "skip less than nothing": (CSV, {"skip": -1}, SettingError),
}


@BOTH
@pytest.mark.parametrize("name", BAD_CSV)
def test_bad_csv(tmp_path: Path, name: str, as_text: bool) -> None:
    data, options, error = BAD_CSV[name]
    with pytest.raises(error):
        found(write(tmp_path, "a.csv", data), "csv", as_text, options=options)


@pytest.mark.parametrize(
    "line",
    ["2024-01-01,1.5,x", "2024-01-01,abc,x", "2024-01-01,9999999999,x", "x,1,x", "1,2", "1,2,3,4"],
)
def test_bad_lines_of_a_csv(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, "a.csv", CSV + line + "\n2024-01-01,5,z\n")
    with pytest.raises(FileFormatError) as caught:
        found(path, "csv", as_text=False)
    assert caught.value.detail
    assert caught.value.hint
    keys, rejects = kept(path, "csv")
    assert keys == [1, None, 5]
    assert len(rejects) == 1
    assert rejects[0][1]


def test_rejects_of_many_blocks_are_all_there(tmp_path: Path) -> None:
    """Arrow reads ahead: no bad line may get lost between two batches."""
    line = "2024-01-01,1," + "x" * 1_000 + "\n"
    body = "".join(line * 50 + "bad,line\n" for _ in range(400))
    path = write(tmp_path, "a.csv", "ts,k,s\n" + body)
    parts = found(path, "csv", as_text=True)
    assert len(parts) > 2
    assert sum(len(part.rejects) for part in parts) == 400
    assert sum(part.rows.num_rows for part in parts) == 20_000
    assert parts[-1].bytes_read <= path.stat().st_size


JSON = {
    "lines": b'{"ts": "2024-01-01", "k": 1, "s": "x"}\n\n{"ts": "2024-01-01", "k": null, "s": "y"}',
    "array": b'[{"ts": "2024-01-01", "k": 1, "s": "x"}, {"ts": "2024-01-01", "s": "y"}]',
    "array over lines": b'\n[\n{"ts":"2024-01-01","k":1,"s":"x"},\n{"ts":"2024-01-01","s":"y"}]\n',
    "mark": b'\xef\xbb\xbf{"ts": "2024-01-01", "k": 1, "s": "x"}\n{"ts": "2024-01-01", "s": "y"}\n',
    "case": b'{"TS": "2024-01-01", "K": 1, "s": "x"}\n{"TS": "2024-01-01", "s": "y"}\n',
}


@BOTH
@pytest.mark.parametrize("form", ["json", "ndjson"])
@pytest.mark.parametrize("name", JSON)
def test_good_json(tmp_path: Path, name: str, form: str, as_text: bool) -> None:
    assert rows_of(write(tmp_path, "a", JSON[name]), form, as_text) == GOOD
    assert rows_of(write(tmp_path, "a.gz", gzip.compress(JSON[name])), form, as_text) == GOOD


@BOTH
@pytest.mark.parametrize("data", [b"", b"\n \n", b"[]", b" [ ] "])
def test_nothing_in_a_json_file(tmp_path: Path, data: bytes, as_text: bool) -> None:
    assert rows_of(write(tmp_path, "a.json", data), "json", as_text) == []


@pytest.mark.parametrize("line", [b"5", b"{", b"null", b'"x"', b'{"k": 1}}', b"\x00\xff", b"[1]"])
def test_broken_lines_of_json(tmp_path: Path, line: bytes) -> None:
    path = write(
        tmp_path, "a.ndjson", JSON["lines"] + b"\n" + line + b'\n{"ts":"2024-01-01","k":5}'
    )
    with pytest.raises(TidemillError):
        rows_of(path, "ndjson", as_text=False)
    keys, rejects = kept(path, "ndjson")
    assert keys == [1, None, 5]
    assert len(rejects) == 1


@pytest.mark.parametrize("value", ['"x"', "1.5", "9999999999", "[1]", '{"a": 1}'])
def test_bad_values_in_json(tmp_path: Path, value: str) -> None:
    good = '{"ts": "2024-01-01", "k": 1}\n'
    path = write(tmp_path, "a.ndjson", good + good.replace("1}", value + "}") + good)
    with pytest.raises(TidemillError):
        rows_of(path, "ndjson", as_text=False)
    keys, rejects = kept(path, "ndjson")
    assert keys == [1, 1]
    assert len(rejects) == 1


def test_json_texts_that_are_no_unicode(tmp_path: Path) -> None:
    lines = b'{"ts": "2024-01-01", "k": 1, "s": "ok"}\n{"ts": "2024-01-01", "k": 2, "s": "\xff"}\n'
    path = write(tmp_path, "a.ndjson", lines)
    with pytest.raises(TidemillError):
        rows_of(path, "ndjson", as_text=False)
    keys, rejects = kept(path, "ndjson")
    assert keys == [1]
    assert len(rejects) == 1


@BOTH
def test_unknown_fields_of_json(tmp_path: Path, as_text: bool) -> None:
    path = write(tmp_path, "a.ndjson", '{"ts": "2024-01-01", "kk": 1}\n')
    with pytest.raises(UnknownNameError) as caught:
        rows_of(path, "ndjson", as_text)
    assert caught.value.hint == 'did you mean "k"?'


def test_arrays_with_other_things_in_them(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", '[{"ts": "2024-01-01", "k": 1}, 5, null]')
    with pytest.raises(FileFormatError, match="2 values that are no JSON objects"):
        found(path, "json", as_text=False)
    keys, rejects = kept(path, "json")
    assert keys == [1]
    assert [text for text, _ in rejects] == ["5", "null"]
    for data in ("[1", '[{"k": 1}', "[" * 100_000):
        with pytest.raises(FileFormatError):
            found(write(tmp_path, "b.json", data), "json", as_text=True)


def test_tables_with_other_types_read_json_too(tmp_path: Path) -> None:
    table = make_table(make_column("d", "DECIMAL(5,2)"), make_column("l", "INTEGER[]"))
    path = write(tmp_path, "a.ndjson", '{"ts": "2024-01-01", "d": 1.5, "l": [1]}\n')
    for as_text in (False, True):
        [part] = read_file(path, "ndjson", table, as_text=as_text)
        [batch] = acceptor(table).accept(part.rows).batches
        assert str(batch.column("d")[0]) == "1.50"
        assert batch.column("l").to_pylist() == [[1]]


@BOTH
def test_parquet(tmp_path: Path, as_text: bool) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(GOOD), path)
    assert rows_of(path, "parquet", as_text) == GOOD
    assert rows_of(path, "parquet", as_text, columns=["ts"])[0] == {"ts": TS, "k": None, "s": None}
    with pytest.raises(UnknownNameError, match='no column "zz"'):
        found(path, "parquet", as_text, columns=["ts", "zz"])
    pq.write_table(pa.Table.from_pylist(GOOD).slice(0, 0), path)
    assert rows_of(path, "parquet", as_text) == []


def test_broken_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": range(10_000)}), path)
    data = path.read_bytes()
    broken = [data[:size] for size in (0, 3, 8, len(data) // 2, len(data) - 1)]
    broken += [data[:20] + b"\0" * 40 + data[60:], b"not parquet at all", data[:-20] + b"\xff" * 20]
    for part in broken:
        path.write_bytes(part)
        with pytest.raises(FileFormatError):
            found(path, "parquet", as_text=False)


def test_paths(tmp_path: Path) -> None:
    write(tmp_path, "cars.csv", CSV)
    with pytest.raises(FileFormatError, match="does not exist") as caught:
        found(tmp_path / "car.csv", "csv", as_text=False)
    assert caught.value.hint == 'did you mean "cars.csv"?'
    with pytest.raises(FileFormatError, match="is a folder"):
        found(tmp_path, "csv", as_text=False)
    for path in (Path("x" * 5_000), Path("a\0b"), tmp_path / "cars.csv" / "x"):
        with pytest.raises(FileFormatError):
            found(path, "csv", as_text=False)


@BOTH
@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_a_cut_gzip(tmp_path: Path, form: str, as_text: bool) -> None:
    data = CSV.encode() * 100 if form == "csv" else JSON["lines"] * 100
    path = write(tmp_path, "a.gz", gzip.compress(data)[:-15])
    with pytest.raises(FileFormatError):
        found(path, form, as_text)
