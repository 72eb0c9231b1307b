"""Data frames of the caller in queries, and tables made of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidemill
from tidemill import Database, TidemillError
from tidemill.errors import DuplicateNameError, RowsRejectedError, UnknownNameError

NOON = dt.datetime(2026, 11, 15, 12)
everywhere = pa.table({"a": [7, 8]})


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with tidemill.open(tmp_path / "warehouse", spark_master="inline") as db:
        db.sql("CREATE STREAMING TABLE s (ts TIMESTAMP, a BIGINT); CREATE INDEX ON s (a)")
        db.append("s", [{"ts": NOON, "a": n} for n in range(5)])
        yield db


FRAMES: dict[str, Any] = {
    "pandas": pd.DataFrame({"a": [1, 2, 9], "s": ["x", None, "z"]}),
    "polars": pl.DataFrame({"a": [1, 2, 9], "s": ["x", None, "z"]}),
    "categories": pl.DataFrame({"a": [1, 2, 9], "s": ["x", None, "z"]}).with_columns(
        pl.col("s").cast(pl.Categorical)
    ),
    "arrow": pa.table({"a": [1, 2, 9], "s": ["x", None, "z"]}),
    "batch": pa.record_batch({"a": [1, 2, 9], "s": ["x", None, "z"]}),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_query_reads_a_variable(db: Database, kind: str) -> None:
    df = FRAMES[kind]
    assert db.sql("SELECT * FROM df ORDER BY a").fetchall() == [(1, "x"), (2, None), (9, "z")]
    joined = "SELECT s.a, d.s FROM s JOIN df AS d ON s.a = d.a WHERE d.a < ? ORDER BY 1"
    assert db.sql(joined, [5]).fetchall() == [(1, "x"), (2, None)]
    assert db.sql("SELECT a FROM s WHERE a IN (SELECT a FROM df) ORDER BY a").fetchall() == [
        (1,),
        (2,),
    ]
    del df


def test_variables_of_the_module_and_of_the_moment(db: Database) -> None:
    assert db.sql("SELECT sum(a) FROM everywhere").fetchall() == [(15,)]
    query = "SELECT sum(a) FROM changing"
    for count in range(3):  # the same text, other rows
        changing = pa.table({"a": list(range(count + 1))})
        assert db.sql(query).fetchall() == [(sum(range(count + 1)),)]
        del changing


def test_a_table_of_the_catalog_wins(db: Database) -> None:
    s = pa.table({"a": [100]})
    assert db.sql("SELECT max(a) FROM s").fetchall() == [(4,)]
    del s


def test_a_result_can_be_asked_again(db: Database) -> None:
    result = db.sql("SELECT a FROM s")
    assert db.sql("SELECT sum(a) FROM result").fetchall() == [(10,)]
    assert pl.DataFrame(result).height == 5


def test_frames_are_inserted_copied_and_explained(db: Database, tmp_path: Path) -> None:
    df = pd.DataFrame({"ts": [NOON], "a": [50]})
    assert db.sql("INSERT INTO s SELECT * FROM df").message == "INSERT 1"
    db.sql("CREATE TABLE made AS SELECT a FROM df")
    assert db.sql("SELECT * FROM made").fetchall() == [(50,)]
    db.sql(f"COPY (SELECT * FROM df) TO '{tmp_path / 'out.csv'}'")
    assert "50" in (tmp_path / "out.csv").read_text()
    assert any("caller's df" in line for (line,) in db.sql("EXPLAIN SELECT * FROM df").fetchall())
    with pytest.raises(TidemillError):
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM df")
    del df


def test_a_time_index_is_a_column(db: Database) -> None:
    indexed = pd.DataFrame({"a": [1]}, index=pd.DatetimeIndex([NOON], name="ts"))
    assert db.sql("SELECT ts, a FROM indexed").fetchall() == [(NOON, 1)]
    unnamed = pd.DataFrame({"a": [1]}, index=pd.DatetimeIndex([NOON]))
    assert db.sql('SELECT "index", a FROM unnamed').fetchall() == [(NOON, 1)]
    plain = pd.DataFrame({"a": [1]})
    assert db.sql("SELECT * FROM plain").columns == ["a"]
    del indexed, unnamed, plain


def test_what_is_no_frame_is_said(db: Database) -> None:
    numbers = [1, 2]
    with pytest.raises(UnknownNameError, match="does not exist") as caught:
        db.sql("SELECT * FROM numbers")
    assert caught.value.detail == "the variable numbers is a list"
    assert "Polars" in (caught.value.hint or "")
    with pytest.raises(UnknownNameError, match='"absent" does not exist'):
        db.sql("SELECT * FROM absent")
    del numbers


def test_a_frame_with_a_name_twice_is_refused(db: Database) -> None:
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(TidemillError):
        db.sql("SELECT * FROM twice")
    del twice


def test_others_see_no_variables_of_the_owner(db: Database) -> None:
    with tidemill.connect(db.path) as client, pytest.raises(UnknownNameError):
        client.sql("SELECT * FROM everywhere")


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("where", ["owner", "client"])
def test_a_table_is_made_of_a_frame(db: Database, kind: str, where: str) -> None:
    with tidemill.connect(db.path) as client:
        asked = db if where == "owner" else client
        assert asked.create_table("Made of it", FRAMES[kind]).message == "CREATE TABLE 3"
        rows = asked.sql('SELECT * FROM "Made of it" ORDER BY a').fetchall()
        assert rows == [(1, "x"), (2, None), (9, "z")]
        with pytest.raises(DuplicateNameError):
            asked.create_table("Made of it", FRAMES[kind])
        asked.create_table("Made of it", pa.table({"b": [1]}), replace=True)
        assert asked.sql('SELECT * FROM "Made of it"').columns == ["b"]
        with pytest.raises(RowsRejectedError):
            asked.create_table("other", [1])
