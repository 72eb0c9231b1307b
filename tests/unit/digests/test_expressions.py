"""Plain expressions of columns, against DuckDB's."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest

from tidemill.digests.expressions import compute

CONNECTION = duckdb.connect()
KINDS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "UBIGINT", "FLOAT", "DOUBLE")
TEXTS = ("a + b", "a - b", "b - (a * b)", "(a * a) + b * b", '"A" + "b"')


def rows_of(kind: str, seed: random.Random, most: int) -> pa.Table:
    is_float = kind in ("FLOAT", "DOUBLE")
    special = [float("nan"), float("inf"), -0.0, 0.1] if is_float else [0, 1]

    def number() -> float | int | None:
        low = 0 if kind.startswith("U") else -most
        return seed.choice((None, *special, *(seed.randint(low, most) for _ in range(4))))

    with CONNECTION.cursor() as connection:
        values = [(number(), number()) for _ in range(50)]
        connection.execute(f"CREATE OR REPLACE TEMP TABLE t (a {kind}, b {kind})")
        connection.executemany("INSERT INTO t VALUES (?, ?)", values)
        return connection.sql("SELECT * FROM t").to_arrow_table().combine_chunks()


def named(rows: pa.Table, name: str) -> pa.Array | None:
    known = [column for column in rows.column_names if column.lower() == name.lower()]
    return rows.column(known[0]).chunk(0) if known else None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("most", [3, 2_000])
def test_as_duckdb_computes(kind: str, text: str, most: int) -> None:
    most = min(most, 120 if "TINY" in kind else most)
    rows = rows_of(kind, random.Random(most), most)
    found = compute(text, lambda name: named(rows, name))
    with CONNECTION.cursor() as connection:
        connection.register("t", rows)
        try:
            right = connection.sql(f"SELECT {text} AS x FROM t").to_arrow_table().column("x")
        except duckdb.OutOfRangeException:
            assert found is None
            return
    if found is not None:  # a wider type of DuckDB's may hold what ours does not
        assert [str(cell) for cell in found.to_pylist()] == [str(c) for c in right.to_pylist()]
    else:
        assert right.type != rows.schema.field("a").type


@pytest.mark.parametrize(
    "text",
    [
        "a / b",
        "a + 1",
        "c + a",
        "-a",
        "t.a + b",
        "a % b",
        "a",
        "sum(a)",
        "NOT a",
        "a AND b",
        "a > 0.5",
        "a > 99999999999999999999",
        "a > '1'",
        "a IS TRUE",
        "date_trunc('day', a)",
        "CASE WHEN a THEN b END",
        "CASE a WHEN 1 THEN b END",
        "CASE WHEN a > b THEN a ELSE b END",
        "CASE WHEN a > b THEN a WHEN b > 2 THEN b END",
    ],
)
def test_left_to_duckdb(text: str) -> None:
    rows = pa.table({"a": [1, 2], "b": [3, 4]})
    found = compute(text, lambda name: named(rows, name))
    assert (found is None) == (text != "a")


def test_of_one_type_only() -> None:
    rows = pa.table({"a": pa.array([1], pa.int32()), "b": pa.array([1], pa.int64())})
    assert compute("a + b", lambda name: named(rows, name)) is None
    day = pa.table({"a": pa.array([1], pa.date32())})
    assert compute("a + a", lambda name: named(day, name)) is None


CONDITIONS = (
    "a > b", "a <> b", "a = b", "a <= -2", "a < 3", "NOT (a >= b)", "a > b AND b > 0",
    "a = 1 OR NOT b = 1", "a IS NULL", "NOT a IS NULL", "CASE WHEN a > b THEN a END",
    "CASE WHEN NOT a IS NULL THEN a > b END",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["TINYINT", "INTEGER", "UBIGINT", "BOOLEAN", "DATE", "DOUBLE"])
@pytest.mark.parametrize("text", CONDITIONS)
def test_conditions_as_duckdb_has_them(kind: str, text: str) -> None:
    base = rows_of("INTEGER" if kind in ("BOOLEAN", "DATE") else kind, random.Random(1), 3)
    with CONNECTION.cursor() as connection:
        connection.register("base", base)
        made = {"BOOLEAN": "{0} > 0", "DATE": "DATE '1970-01-01' + {0}"}.get(kind, "{0}")
        given = ", ".join(f"{made.format(name)} AS {name}" for name in "ab")
        rows = connection.sql(f"SELECT {given} FROM base").to_arrow_table().combine_chunks()
        found = compute(text, lambda name: named(rows, name))
        if found is None:
            is_literal = any(character.isdecimal() for character in text)
            assert kind == "DOUBLE" or (is_literal and kind in ("BOOLEAN", "DATE", "UBIGINT"))
            return
        connection.register("t", rows)
        right = connection.sql(f"SELECT {text} AS x FROM t").to_arrow_table().column("x")
    assert found.to_pylist() == right.to_pylist()
    assert found.type == right.type


UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")


@pytest.mark.parametrize("unit", [*UNITS, "decade", "century", "millisecond", "isoyear"])
@pytest.mark.parametrize(
    "times",
    [
        ["1969-12-31 23:59:59.999999", "1970-01-01", None, "2024-02-29 12:34:56.789"],
        ["0001-01-01", "9999-12-31 23:59:59.999999", "1582-10-10", "2026-12-28 00:00:00"],
        ["2026-11-16 00:00:00", "2026-11-16 00:00:00.5"],
        ["2026-11-16 00:00:00", "2026-11-15 23:59:59.999999"],
        ["2026-11-16", None],
        [None, None],
        [],
        ["infinity", "2026-11-16"],
        ["-infinity", None],
        ["290000-01-01", "2026-11-16"],
    ],
)
def test_times_cut_as_duckdb_cuts_them(unit: str, times: list[str | None]) -> None:
    text = f"date_trunc('{unit}', ts)"
    with CONNECTION.cursor() as connection:
        connection.execute("CREATE OR REPLACE TEMP TABLE t (ts TIMESTAMP)")
        for time in times:
            connection.execute("INSERT INTO t VALUES (?::TIMESTAMP)", [time])
        rows = connection.sql("SELECT ts FROM t").to_arrow_table()
        column = pa.concat_arrays(rows.column(0).chunks) if times else pa.array([], rows[0].type)
        found = compute(text, lambda _: column)
        is_wide = any(time in ("infinity", "-infinity", "290000-01-01") for time in times)
        if unit not in UNITS or is_wide:
            assert found is None
            return
        right = connection.sql(f"SELECT {text} AS x FROM t").to_arrow_table().column("x")
    assert found is not None
    assert found.to_pylist() == right.to_pylist()
    assert found.type == right.type == pa.timestamp("us")


def test_times_of_a_zone_are_left_to_duckdb() -> None:
    times = pa.array([0], pa.timestamp("us", "UTC"))
    assert compute("date_trunc('hour', ts)", lambda _: times) is None
