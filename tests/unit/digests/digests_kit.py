"""Tables of awkward values, DuckDB's answers over them, and comparison of the two."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from tidemill.types import Column, SqlType

_I64 = 2**63
_TIMES = "TIMESTAMP '2024-02-29 12:00:00'"

# For each type: SQL of ordinary values over a random whole number x, and awkward values.
VALUES: dict[str, tuple[str, tuple[str, ...]]] = {
    "TINYINT": ("(x % 100)::TINYINT", ("-128", "127", "0")),
    "SMALLINT": ("(x % 1000)::SMALLINT", ("-32768", "32767")),
    "INTEGER": ("(x % 5000)::INTEGER", ("-2147483648", "2147483647")),
    "BIGINT": ("x::BIGINT", (f"-{_I64}", f"{_I64 - 1}", "0", "-1")),
    "UTINYINT": ("(abs(x) % 200)::UTINYINT", ("0", "255")),
    "UINTEGER": ("(abs(x) % 5000)::UINTEGER", ("0", "4294967295")),
    "UBIGINT": ("(abs(x) % 5000)::UBIGINT", ("0", f"{2**64 - 1}", f"{_I64}")),
    "BOOLEAN": ("x % 2 = 0", ("true",)),
    "FLOAT": ("(x % 50)::FLOAT / 4", ("'nan'", "'-inf'", "'inf'", "'-0.0'", "0.0")),
    "DOUBLE": ("(x % 50)::DOUBLE / 4", ("'nan'", "'-inf'", "1e300", "'-0.0'", "0.0", "5e-324")),
    "DATE": ("DATE '2024-01-01' + (x % 900)::INTEGER", ("'infinity'", "'0001-01-01'")),
    "TIME": ("TIME '00:00' + to_seconds(abs(x) % 86400)", ("'00:00:00'", "'23:59:59.999999'")),
    "TIMESTAMP": (
        f"{_TIMES} + to_minutes(x % 5000)",
        ("'infinity'", "'-infinity'", "'1969-12-31'"),
    ),
    "TIMESTAMP WITH TIME ZONE": (
        f"({_TIMES} + to_minutes(x % 5000))::TIMESTAMPTZ",
        ("'infinity'", "'1969-12-31 23:59:59.999999+00'"),
    ),
    "DECIMAL(4,1)": ("(x % 900)::DECIMAL(4,1)", ("-999.9", "999.9", "0.1")),
    "DECIMAL(18,2)": (
        "(x % 900)::DECIMAL(18,2)",
        ("9999999999999999.99", "-9999999999999999.99", "0.01"),
    ),
    "VARCHAR": (
        "repeat(chr((97 + abs(x) % 20)::INTEGER), (abs(x) % 12)::INTEGER)",
        ("''", "'1234567'", "'12345678'", "'a long text of some words'", "chr(0)", "'é'", "'ab🙂'"),
    ),
}
TYPES = tuple(VALUES)


def connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET arrow_lossless_conversion = true; SET timezone = 'UTC'")
    return connection


def runner(
    connection: duckdb.DuckDBPyConnection,
) -> Callable[[str, Mapping[str, pa.Table]], pa.Table]:
    def run(sql: str, sources: Mapping[str, pa.Table]) -> pa.Table:
        for name, table in sources.items():
            connection.register(name, table)
        try:
            return connection.sql(sql).to_arrow_table()
        finally:
            for name in sources:
                connection.unregister(name)

    return run


def projector(
    connection: duckdb.DuckDBPyConnection,
) -> Callable[[str, pa.Table], pa.Table]:
    run = runner(connection)
    return lambda sql, rows: run(sql, {"tm_rows": rows})


def random_rows(
    connection: duckdb.DuckDBPyConnection,
    types: Sequence[str],
    rows: int,
    seed: random.Random,
    awkward: float = 0.1,
    spread: int = 50,
) -> pa.Table:
    """Columns c0, c1, … of the types, with NULLs and awkward values among ordinary ones."""
    parts = []
    for at, kind in enumerate(types):
        plain, odd = VALUES[kind]
        cases = ""
        if awkward:
            cases = f"WHEN r{at} < {awkward / 2} THEN NULL " + " ".join(
                f"WHEN r{at} < {awkward / 2 * (1 + (place + 1) / len(odd))} THEN ({value})::{kind}"
                for place, value in enumerate(odd)
            )
        value = re.sub(r"\bx\b", f"x{at}", plain)
        parts.append(f"CASE {cases} WHEN true THEN ({value})::{kind} END AS c{at}")
    widths = [seed.choice((3, spread, spread, 40 * spread)) for _ in types]
    ranges = ", ".join(
        f"((random() - 0.3) * {width})::BIGINT AS x{at}, random() AS r{at}"
        for at, width in enumerate(widths)
    )
    connection.execute(f"SELECT setseed({seed.random()})").fetchall()
    return connection.sql(
        f"SELECT {', '.join(parts)} FROM (SELECT {ranges} FROM range({rows}))"
    ).to_arrow_table()


def columns_of(connection: duckdb.DuckDBPyConnection, sql: str, rows: pa.Table) -> list[Column]:
    connection.register("tm_rows", rows)
    relation = connection.sql(sql)
    found = [
        Column(name, SqlType.parse(str(kind)))
        for name, kind in zip(relation.columns, relation.types, strict=True)
    ]
    connection.unregister("tm_rows")
    return found


def chunks(rows: pa.Table, seed: random.Random) -> list[pa.Table]:
    """The rows in pieces of random size, some of them slices, some empty."""
    pieces, at = [], 0
    while at < rows.num_rows:
        size = seed.choice((0, 1, 7, 100, 1000))
        pieces.append(rows.slice(at, size))
        at += size
    return pieces


def answer(
    connection: duckdb.DuckDBPyConnection, sql: str, sources: Mapping[str, pa.Table]
) -> list[tuple[Any, ...]]:
    """Rows in an order of their own, with NaN, -0.0 and sums of floats made comparable."""
    for name, table in sources.items():
        connection.register(name, table)
    relation = connection.sql(sql)
    kinds = [str(kind) for kind in relation.types]
    texts = ", ".join(
        f"CASE WHEN isnan(\"{name}\") THEN 'nan' ELSE printf('%.9e', \"{name}\" + 0) END"
        if kind in ("DOUBLE", "FLOAT")
        else f'"{name}"::VARCHAR'
        for name, kind in zip(relation.columns, kinds, strict=True)
    )
    connection.register("tm_answer", relation.to_arrow_table())
    found = connection.execute(f"SELECT {texts} FROM tm_answer").fetchall()
    for name in ["tm_answer", *sources]:
        connection.unregister(name)
    return [tuple(kinds), *sorted(found, key=repr)]
