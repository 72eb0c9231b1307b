"""Results: the forms in which Python sees them."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import tidemill
from tidemill import Database
from tidemill.result import Result, done


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    folder: Path = tmp_path_factory.mktemp("warehouse")
    with tidemill.open(folder, spark_master="inline") as db:
        yield db


def test_fetchone_advances(db: Database) -> None:
    result = db.sql("SELECT range AS n FROM range(25000)")
    assert [result.fetchone() for _ in range(3)] == [(0,), (1,), (2,)]
    assert result.fetchmany(2) == [(3,), (4,)]
    assert result.fetchmany() == [(5,)]
    assert len(result.fetchmany(100_000)) == 25_000 - 6
    assert result.fetchone() is None
    assert result.fetchmany(3) == []
    assert len(result.fetchall()) == len(result) == 25_000
    assert list(result)[-1] == (24_999,)


def test_a_result_shows_its_first_rows(db: Database) -> None:
    result = db.sql("SELECT range AS n, CASE WHEN range > 0 THEN '<b>' END AS s FROM range(100)")
    assert repr(result).splitlines()[:4] == ["n  │ s", "───┼─────", "0  │ NULL", "1  │ <b>"]
    assert repr(result).endswith("(100 rows, the first 20 shown)")
    html = result._repr_html_()
    assert "<th>n</th>" in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert html.count("<tr>") == 21


def test_what_is_shown_is_bounded(db: Database) -> None:
    columns = ", ".join(f"repeat('x', 10000) AS c{n}" for n in range(100))
    result = db.sql(f"SELECT {columns} FROM range(1000)")
    assert len(result._repr_html_()) < 100_000
    assert len(repr(result)) < 100_000
    assert "30 of 100 columns" in repr(result)


def test_a_statement_without_rows_shows_its_message(db: Database) -> None:
    result = db.sql("CREATE TABLE made (a INT)")
    assert repr(result) == "<CREATE TABLE>"
    assert "CREATE TABLE" in result._repr_html_()
    assert list(result) == []
    assert result.fetchone() is None
    assert len(done("")) == 0


U = "00000000-0000-0000-0000-000000000005"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("row(1, 'x')", (1, "x")),
        ("row(row(1, 2), [row('a')])", ((1, 2), [("a",)])),
        ("{'a': row(1, 2), 'b, (c': 1}", {"a": (1, 2), "b, (c": 1}),
        ("MAP {1: row(1, 2)}", [(1, (1, 2))]),
        ("[1::HUGEINT, NULL]", [1, None]),
        (f"{{'u': '{U}'::UUID}}", {"u": uuid.UUID(U)}),
        ("NULL::STRUCT(a INT)", None),
        ("INTERVAL '90' MINUTE", dt.timedelta(minutes=90)),
        ("INTERVAL '-3' DAY + INTERVAL '1' SECOND", dt.timedelta(days=-3, seconds=1)),
        ("[INTERVAL '1' HOUR]", [dt.timedelta(hours=1)]),
        ("INTERVAL '2' MONTH", pa.MonthDayNano([2, 0, 0])),
        ("DATE '20000-01-01'", "20000-01-01"),
        ("DATE '0044-03-15 (BC)'", "0044-03-15 (BC)"),
        ("DATE 'infinity'", "infinity"),
        ("DATE '-infinity'", "-infinity"),
        ("TIMESTAMP '-infinity'", "-infinity"),
        ("TIMESTAMP '20000-01-01 12:34:56.78'", "20000-01-01 12:34:56.78"),
        ("TIMESTAMP '0044-03-15 (BC) 12:00:00'", "0044-03-15 (BC) 12:00:00"),
        ("TIMESTAMPTZ '20000-01-01 12:00:00+00'", "20000-01-01 12:00:00+00"),
        ("[DATE '20000-01-01', DATE '2000-01-01']", ["20000-01-01", dt.date(2000, 1, 1)]),
        ("{'d': DATE '20000-01-01'}", {"d": "20000-01-01"}),
        ("MAP {DATE '20000-01-01': 1}", [("20000-01-01", 1)]),
    ],
)
def test_values_as_python_has_them(db: Database, expression: str, value: object) -> None:
    assert db.sql(f"SELECT {expression} AS v").fetchall() == [(value,)]


def test_one_date_out_of_range_leaves_the_others(db: Database) -> None:
    rows = db.sql("SELECT unnest([DATE '2000-01-01', DATE '20000-01-01', NULL]) AS d").fetchall()
    assert rows == [(dt.date(2000, 1, 1),), ("20000-01-01",), (None,)]
    frame = db.sql("SELECT DATE '20000-01-01' AS d").df()
    assert str(frame["d"].iloc[0]).startswith("20000-01-01")


def test_dates_are_written_as_duckdb_does() -> None:
    chance = random.Random(5)
    days = [chance.randint(-2_000_000, 100_000_000) for _ in range(3_000)]
    table = pa.table({"d": pa.array(days, pa.date32())})
    shown = [str(day) for (day,) in Result(table, ["DATE"], "").fetchall()]
    with duckdb.connect() as connection:
        texts = connection.from_arrow(table).project("CAST(d AS VARCHAR)").fetchall()
    assert shown == [text for (text,) in texts]


@pytest.mark.parametrize(
    ("value", "python"),
    [
        ("TIME '24:00:00'", None),
        ("TIMETZ '12:00:00+01'", None),
        ("union_value(a := 1)", 1),
        ("{'t': TIMESTAMP '20000-01-01 00:00:00'}", None),
        ("INTERVAL '2' HOUR", None),
        ("INTERVAL '1' MONTH", None),
        ("[INTERVAL '1' DAY]", None),
    ],
)
def test_values_that_frames_have_no_form_for(db: Database, value: str, python: object) -> None:
    result = db.sql(f"SELECT 1 AS a, {value} AS b, 'x' AS c UNION ALL SELECT 2, NULL, 'y'")
    for frame in (result.df(), result.pl()):
        assert list(frame.columns) == ["a", "b", "c"]
        assert list(frame["a"]) == [1, 2]
        assert list(frame["c"]) == ["x", "y"]
        assert python is None or next(iter(frame["b"])) == python


def test_intervals_are_durations_in_polars(db: Database) -> None:
    frame = db.sql("SELECT INTERVAL '90' MINUTE AS d UNION ALL SELECT NULL").pl()
    assert frame["d"].to_list() == [dt.timedelta(minutes=90), None]
