"""``tidemill.connect``: the same interface as the database itself, over its socket."""

from __future__ import annotations

import datetime as dt
import inspect
import subprocess
import sys
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidemill
from tidemill import Database, RemoteDatabase, TidemillError

NOON = dt.datetime(2026, 11, 15, 12)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Database]:
    with tidemill.open(tmp_path / "warehouse", spark_master="inline") as owner:
        owner.sql(
            "CREATE STREAMING TABLE t (ts TIMESTAMP, a INT, s VARCHAR, d DECIMAL(9, 2), u UUID, "
            "l INT[], b BLOB)"
        )
        yield owner


@pytest.fixture
def client(owner: Database) -> Iterator[RemoteDatabase]:
    with tidemill.connect(owner.path) as client:
        yield client


def test_every_public_method_is_there() -> None:
    """What a program calls on the one, it can call on the other, with the same arguments."""
    for name in (
        "sql",
        "append",
        "update",
        "delete",
        "create_table",
        "cancel",
        "close",
        "__enter__",
        "__exit__",
        "sql_text",
    ):
        here = inspect.signature(getattr(Database, name)).parameters
        there = inspect.signature(getattr(RemoteDatabase, name)).parameters
        assert list(there) == [p for p in here if p != "session"], name


ROW: dict[str, Any] = {
    "ts": NOON,
    "a": 7,
    "s": "it's",
    "d": Decimal("1.50"),
    "u": uuid.UUID(int=5),
    "l": [1, None],
    "b": b"\x00\xff",
}


@pytest.mark.parametrize(
    "rows",
    [
        ROW,
        [ROW, ROW],
        tuple(ROW.values()),
        [tuple(ROW.values())],
        [],
        [{"ts": NOON}, {"ts": NOON, "a": "8"}],
        {"ts": np.datetime64(NOON), "a": np.int64(7)},
        {"ts": pd.Timestamp(NOON), "a": 7.0},
        pa.table({"ts": [NOON], "a": [7]}),
        pa.record_batch({"ts": [NOON], "a": [7]}),
        [pa.record_batch({"ts": [NOON], "a": [7]})] * 2,
        pd.DataFrame({"ts": [NOON], "a": [7], "s": pd.Categorical(["x"])}),
        pd.DataFrame({"a": [7]}, index=pd.DatetimeIndex([NOON])),
        pd.DataFrame({"a": [7]}, index=pd.DatetimeIndex([NOON], name="ts")),
        pd.DataFrame({"ts": [NOON], "a": [7]}, index=pd.Index([9], name="not a column")),
        pl.DataFrame({"ts": [NOON], "s": ["x"]}, schema_overrides={"s": pl.Categorical}),
        pl.DataFrame({"ts": [NOON], "s": ["x"]}, schema_overrides={"s": pl.Enum(["x", "y"])}),
    ],
    ids=[
        "dict", "dicts", "tuple", "tuples", "none", "different dicts", "numpy", "timestamp",
        "table", "batch", "batches", "pandas", "time index", "named index", "other index",
        "categorical", "enum",
    ],
)  # fmt: skip
def test_rows_arrive_as_they_do_in_the_owner(
    owner: Database, client: RemoteDatabase, rows: Any
) -> None:
    def stored() -> list[tuple[Any, ...]]:
        return owner.sql("SELECT * FROM t").fetchall()

    here = owner.append("t", rows)
    wanted = stored()
    there = client.append("t", rows)
    assert there == here
    assert stored()[len(wanted) :] == wanted
    assert client.sql("SELECT * FROM t").fetchall() == stored()


@pytest.mark.parametrize(
    "rows",
    [
        {"ts": NOON, "a": "seven"},
        {"ts": NOON, "absent": 1},
        [{"ts": NOON}, (1,)],
        (NOON,),
        {"ts": NOON, "a": object()},
        7,
        "text",
        {"ts": None},
    ],
    ids=["text", "column", "mixed", "short", "object", "number", "letters", "null"],
)
def test_rows_are_refused_as_in_the_owner(
    owner: Database, client: RemoteDatabase, rows: Any
) -> None:
    with pytest.raises(TidemillError) as here:
        owner.append("t", rows)
    with pytest.raises(TidemillError) as there:
        client.append("t", rows)
    assert type(there.value) is type(here.value)
    assert there.value.as_dict() == here.value.as_dict()
    assert client.sql("SELECT count(*) FROM t").fetchall() == [(0,)]


VALUES = [
    None, True, 2**62, 2**100, 1.5, "it's", b"\x00\xff", NOON, NOON.replace(tzinfo=dt.UTC),
    dt.date(2024, 2, 29), dt.time(1, 2, 3), dt.timedelta(days=1, seconds=2), Decimal("12.345"),
    uuid.UUID(int=5), [1, 2, 3], {"a": 1, "b": "x"}, np.int32(4), np.float32(0.5), np.bool_(True),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_parameters_keep_their_types(
    owner: Database, client: RemoteDatabase, value: object
) -> None:
    assert client.sql("SELECT ?", [value]).fetchall() == owner.sql("SELECT ?", [value]).fetchall()
    named = {"it": value}
    assert client.sql("SELECT $it", named).fetchall() == owner.sql("SELECT $it", named).fetchall()


@pytest.mark.parametrize("params", [None, [], {}, [1], {"a": 1}, "x"], ids=repr)
def test_wrong_parameters_are_told_as_in_the_owner(
    owner: Database, client: RemoteDatabase, params: Any
) -> None:
    with pytest.raises(TidemillError) as here:
        owner.sql("SELECT ?, ?", params)
    with pytest.raises(TidemillError) as there:
        client.sql("SELECT ?, ?", params)
    assert there.value.as_dict() == here.value.as_dict()


def test_set_is_per_connection(owner: Database, client: RemoteDatabase) -> None:
    client.sql("SET route = 'local'")
    with tidemill.connect(owner.path) as other:
        assert other.sql("SHOW route").fetchall() == [("auto",)]
    assert client.sql("SHOW route").fetchall() == [("local",)]
    assert owner.sql("SHOW route").fetchall() == [("auto",)]


def test_results_have_the_same_forms(owner: Database, client: RemoteDatabase) -> None:
    query = "SELECT 1 AS a, 'x' AS b, 170141183460469231731687303715884105727::HUGEINT AS h"
    here, there = owner.sql(query), client.sql(query)
    assert there.arrow().equals(here.arrow())
    assert there.df().equals(here.df())
    assert there.pl().equals(here.pl())
    assert (there.types, there.columns, there.message) == (here.types, here.columns, here.message)
    assert there.fetchall() == here.fetchall()


CLIENT = """
import sys
import tidemill
with tidemill.connect(sys.argv[1]) as db:
    db.append("t", [{"ts": "2026-11-15 12:00:00", "a": 1}])
    print(db.sql("SELECT a FROM t").fetchall())
engines = {"duckdb", "pyspark", "sqlalchemy", "sqlglot", "pandas", "polars"}
print(sorted(engines & {name.split(".")[0] for name in sys.modules}))
"""

SHELL = """
import sys
from tidemill.cli.main import main
main(["sql", "-w", sys.argv[1], "-c", "SELECT 42 AS a; EXPLAIN SELECT 1", "--format", "csv"])
engines = {"duckdb", "pyspark", "sqlalchemy", "sqlglot", "pandas", "polars", "pyarrow", "numpy"}
print(sorted(engines & {name.split(".")[0] for name in sys.modules}))
"""


@pytest.mark.parametrize(("program", "told"), [(CLIENT, "[(1,)]"), (SHELL, "42")])
def test_another_program_loads_no_engine(owner: Database, program: str, told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program, str(owner.path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert told in lines
    assert lines[-1] == "[]"


def test_dir_and_help_name_what_there_is() -> None:
    assert set(tidemill.__all__) <= set(dir(tidemill))
    program = "import tidemill; help(tidemill)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    for name in ("class Database", "class RemoteDatabase", "connect(path", "open(path"):
        assert name in done.stdout
