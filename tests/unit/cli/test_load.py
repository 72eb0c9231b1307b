"""``tidemill load`` and ``tidemill status`` over a real warehouse."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

import tidemill
from tidemill.cli.loading import format_of
from tidemill.cli.main import main
from tidemill.errors import FileFormatError
from tidemill.pipeline.packages import file_source

CREATE = (
    "CREATE STREAMING TABLE cars (ts TIMESTAMP, vid BIGINT NOT NULL, spd INT) "
    "WITH (rejected = '{}')"
)
ROW = "2024-01-01 00:00:{:02},{},55\n"


@pytest.fixture(autouse=True)
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "warehouse"
    monkeypatch.setenv("TIDEMILL_WAREHOUSE", str(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def make_table(warehouse: Path, rejected: str = "error") -> None:
    with tidemill.open(warehouse) as database:
        database.sql(CREATE.format(rejected))


def ask(warehouse: Path, query: str) -> list[tuple[object, ...]]:
    with tidemill.open(warehouse) as database:
        return database.sql(query).fetchall()


def write_csv(name: str, first: int = 0, count: int = 10) -> str:
    rows = (ROW.format(number % 60, number) for number in range(first, first + count))
    Path(name).write_text("ts,vid,spd\n" + "".join(rows))
    return name


def test_files_are_loaded(warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_table(warehouse)
    files = [write_csv("a.csv"), write_csv("b.csv", first=10, count=5)]
    assert main(["load", *files, "--table", "cars"]) == 0
    out = capsys.readouterr().out
    assert "15 rows read for cars" in out
    assert "15 stored, 0 late, 0 rejected" in out
    assert ask(warehouse, "SELECT count(*), sum(vid) FROM cars") == [(15, 105)]


def test_a_load_can_be_repeated(warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_table(warehouse)
    name = write_csv("a.csv", count=50)
    for _ in range(2):
        assert main(["load", name, "--table", "cars", "--batch-rows", "7"]) == 0
    assert "0 stored, 0 late, 0 rejected, 50 there already" in capsys.readouterr().out
    assert ask(warehouse, "SELECT count(*) FROM cars") == [(50,)]
    assert main(["load", name, "--table", "cars", "--again"]) == 0
    assert ask(warehouse, "SELECT count(*) FROM cars") == [(100,)]


def test_a_file_that_grew_is_another_source(warehouse: Path) -> None:
    first = file_source(Path(write_csv("a.csv", count=10)))
    assert file_source(Path(write_csv("a.csv", count=11))) != first
    assert file_source(Path(write_csv("a.csv", count=10))) == first


def test_a_load_that_broke_off_goes_on(warehouse: Path) -> None:
    make_table(warehouse)
    name = write_csv("a.csv", count=40)
    rows = pa.table({"ts": ["2024-01-01 00:00:00"] * 10, "vid": range(10), "spd": [55] * 10})
    with tidemill.open(warehouse) as database:  # the first batch of an earlier load
        database.append("cars", rows, source=file_source(Path(name)), offset=0)
    assert main(["load", name, "--table", "cars", "--batch-rows", "10"]) == 0
    assert ask(warehouse, "SELECT count(*), count(DISTINCT vid) FROM cars") == [(40, 40)]


def test_bad_values_fail_their_batch(warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_table(warehouse)
    Path("bad.csv").write_text("ts,vid,spd\n" + ROW.format(1, 1) + "2024-01-01,2,fast\n")
    assert main(["load", "bad.csv", "--table", "cars"]) == 1
    told = capsys.readouterr()
    assert "error: " in told.err
    assert "0 stored" in told.out
    assert ask(warehouse, "SELECT count(*) FROM cars") == [(0,)]


def test_bad_values_are_diverted(warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_table(warehouse, "divert")
    Path("bad.csv").write_text("ts,vid,spd\n" + ROW.format(1, 1) + "2024-01-01,2,fast\n")
    assert main(["load", "bad.csv", "--table", "cars"]) == 0
    out = capsys.readouterr().out
    assert "1 stored, 0 late, 1 rejected" in out
    assert "1 × " in out
    assert "fast" in out


def test_lines_that_are_no_rows_are_diverted(
    warehouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_table(warehouse, "divert")
    Path("bad.csv").write_text("ts,vid,spd\n" + ROW.format(1, 1) + "one,two\n" + ROW.format(2, 2))
    for _ in range(2):
        assert main(["load", "bad.csv", "--table", "cars"]) == 0
    assert "2 stored, 0 late, 1 rejected" in capsys.readouterr().out
    assert ask(warehouse, "SELECT count(*) FROM cars$rejected") == [(1,)]
    assert ask(warehouse, "SELECT count(*) FROM cars") == [(2,)]


def test_a_file_that_turns_bad_is_read_once(warehouse: Path) -> None:
    make_table(warehouse, "divert")
    good = "".join(ROW.format(number % 60, number) for number in range(250_000))
    Path("big.csv").write_text("ts,vid,spd\n" + good + "2024-01-01,1,fast\n" + ROW.format(1, 7))
    assert main(["load", "big.csv", "--table", "cars"]) == 0
    assert ask(warehouse, "SELECT count(*), count(DISTINCT vid) FROM cars") == [(250_001, 250_000)]
    assert ask(warehouse, "SELECT count(*) FROM cars$rejected") == [(1,)]


@pytest.mark.parametrize("name", ["a.parquet", "a.ndjson", "a.json", "a.csv.gz"])
def test_formats(warehouse: Path, name: str) -> None:
    make_table(warehouse)
    with tidemill.open(warehouse) as database:
        query = "SELECT TIMESTAMP '2024-01-01' AS ts, 7 AS vid, 50 AS spd"
        options = "(FORMAT csv, COMPRESSION gzip)" if name.endswith("gz") else ""
        database.sql(f"COPY ({query}) TO '{name}' {options}")
    assert main(["load", name, "--table", "cars"]) == 0
    assert ask(warehouse, "SELECT vid, spd FROM cars") == [(7, 50)]


def test_a_table_is_made_from_a_file(warehouse: Path) -> None:
    name = write_csv("a.csv")
    for _ in range(2):
        assert main(["load", name, "--table", "cars", "--create"]) == 0
    columns = "SELECT column_name, type, is_time FROM tidemill.columns ORDER BY position"
    assert ask(warehouse, columns) == [
        ("ts", "TIMESTAMP", True),
        ("vid", "BIGINT", False),
        ("spd", "BIGINT", False),
    ]
    assert ask(warehouse, "SELECT count(*) FROM cars") == [(10,)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["absent.csv", "--table", "cars"], "cannot be read"),
        (["a.csv", "--table", "card"], 'table "card" does not exist'),
        (["a.txt", "--table", "cars"], "cannot be told from its name"),
        (["no_time.csv", "--table", "new", "--create", "--with", "late=divert"], "no column of"),
        (["a.csv", "--table", "places"], "do not fit"),
    ],
)
def test_what_cannot_be_loaded_is_told(
    warehouse: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_table(warehouse)
    with tidemill.open(warehouse) as database:
        database.sql("CREATE TABLE places (a INT)")
    write_csv("a.csv")
    Path("a.txt").touch()
    Path("no_time.csv").write_text("a,b\n1,2\n")
    assert main(["load", *words]) == 1
    assert message in capsys.readouterr().err


def test_a_missing_file_makes_no_warehouse(warehouse: Path) -> None:
    assert main(["load", "nofile.csv", "--table", "cars"]) == 1
    assert not warehouse.exists()


def test_the_owner_of_a_warehouse_takes_the_rows(
    warehouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write_csv("a.csv")
    with tidemill.open(warehouse) as database:
        database.sql(CREATE.format("error"))
        assert main(["load", name, "--table", "CARS"]) == 0
        assert database.sql("SELECT count(*) FROM cars").fetchall() == [(10,)]
    assert "connected to process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "form"), [("a.CSV", "csv"), ("a.b.tsv", "csv"), ("x.jsonl.gz", "ndjson")]
)
def test_names_tell_formats(name: str, form: str) -> None:
    assert format_of(Path(name)) == form
    assert format_of(Path("x"), "json") == "json"
    with pytest.raises(FileFormatError):
        format_of(Path("x"))


def test_status(warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_table(warehouse)
    main(["load", write_csv("a.csv"), "--table", "cars"])
    capsys.readouterr()
    assert main(["status"]) == 0
    out = capsys.readouterr().out
    assert "owner     nobody else" in out
    (line,) = [line.split() for line in out.splitlines() if "cars" in line]
    assert line[:3] == ["cars", "streaming", "10"]


def test_status_of_an_owned_warehouse(warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tidemill.open(warehouse):
        assert main(["status"]) == 0
    out = capsys.readouterr().out
    assert "owner     process " in out
    assert "no tables" in out


def test_status_makes_no_warehouse(warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 1
    assert "there is no warehouse" in capsys.readouterr().err
    assert not warehouse.exists()


# -- files as they come


def tables(warehouse: Path) -> list[tuple[object, ...]]:
    return ask(warehouse, "SELECT table_name, kind FROM tidemill.tables ORDER BY 1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("day,n\n2013-01-31,1\n", []),
        ("n,at\n1,1359590400\n", ["--time", "at", "--time-unit", "s"]),
        ("n,at\n1,1359590400000\n", ["--time", "at", "--time-unit", "ms"]),
        ("n,at\n1,01/31/2013 00:00\n", ["--time", "at", "--time-format", "%m/%d/%Y %H:%M"]),
        ("n;at\n1;2013-01-31 00:00:00\n", ["--delimiter", ";"]),
        ("n,When it was\n1,2013-01-31 00:00:00\n", ["--rename", "When it was=at"]),
        ("n,at,x\n1,2013-01-31 00:00:00,a\n", ["--exclude", "x", "--null", "NA"]),
    ],
)
def test_a_table_from_any_file(
    warehouse: Path, text: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.csv").write_text(text)
    assert main(["load", "a.csv", "-t", "t", "--create", "--with", "late=accept", *words]) == 0
    assert "CREATE STREAMING TABLE" in capsys.readouterr().out
    column = "day" if "day" in text else "at"
    found = ask(warehouse, f'SELECT n, "{column}" FROM t')
    assert found == [(1, dt.datetime(2013, 1, 31))]
    given = ask(warehouse, "SELECT value FROM tidemill.settings WHERE is_given AND name = 'late'")
    assert given == [("accept",)]


def test_other_encodings_and_spellings(warehouse: Path) -> None:
    text = "at;ort;wert\n2013-01-31;Zürich;1,5\n2013-02-01;NA;NA\n"
    Path("a.csv").write_bytes(text.encode("latin-1"))
    words = ["--encoding", "latin-1", "--decimal-separator", ",", "--null", "NA"]
    words += ["--filename", "datei", "--delimiter", ";"]
    assert main(["load", "a.csv", "-t", "t", "--create", *words]) == 0
    found = ask(warehouse, "SELECT ort, wert, datei FROM t ORDER BY at")
    assert found == [("Zürich", 1.5, "a.csv"), (None, None, "a.csv")]


def test_a_file_without_times_becomes_a_reference_table(
    warehouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("a.csv").write_text("code,name\n1,one\n2,two\n")
    assert main(["load", "a.csv", "-t", "places", "--create"]) == 0
    out = capsys.readouterr().out
    assert 'CREATE TABLE "places" ("code" BIGINT, "name" VARCHAR)' in out
    assert "COPY 2" in out
    assert ask(warehouse, "SELECT count(*) FROM places") == [(2,)]


def test_the_partition_suits_the_span(warehouse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    days = [dt.date(2013, 1, 1) + dt.timedelta(days=at) for at in range(180)]
    Path("a.csv").write_text("day,n\n" + "".join(f"{day},1\n" for day in days))
    assert main(["load", "a.csv", "-t", "t", "--create"]) == 0
    assert "partition = '1 day'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("", [], "cannot read"),
        ("n,at\n1,1359590400\n", ["--time", "at"], "--time-unit"),
        ("n,at\n1,yesterday\n", ["--time", "at"], "--time-format"),
        ("n,at\n1,2013-01-31\n", ["--time", "time"], "no column"),
        ("n,at\n1,2013-01-31\n", ["--with", "partition=never"], "partition"),
        ("n,at\n1,2013-01-31\n", ["--time-unit", "weeks"], "timeunit"),
    ],
)
def test_a_load_that_fails_leaves_no_table(
    warehouse: Path, text: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    body = "".join(f"2013-01-31,{n}\n" for n in range(100_000))  # more than DuckDB looks at
    Path("a.csv").write_text(text if words else f"at,n\n{body}2013-01-31,x\n")
    assert main(["load", "a.csv", "-t", "t", "--create", *words]) == 1
    assert message in capsys.readouterr().err
    assert tables(warehouse) == []
