"""Constants as an index compares them: never a row less than DuckDB finds."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tidemill.hot import keys
from tidemill.hot.values import Range, build_hash, build_ordered, hash_key
from tidemill.types import SqlType

UTC = dt.UTC
UUIDS = [uuid.UUID(int=n) for n in (0, 1, 2**127, 2**128 - 1)]
COLUMNS: dict[str, list[Any]] = {
    "TINYINT": [-128, -1, 0, 1, 1, 127, None],
    "INTEGER": [-(2**31), -1, 0, 7, 7, 2**31 - 1, None],
    "BIGINT": [-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1, None],
    "UBIGINT": [0, 1, 2**53 + 1, 2**63, 2**64 - 1, None],
    "DOUBLE": [-math.inf, -0.0, 0.0, 0.1, 1.5, 1e300, math.inf, math.nan, None],
    "FLOAT": [0.5, 0.1, None],
    "BOOLEAN": [True, False, True, None],
    "VARCHAR": ["", "a", "A", "é", "z", "😀", "\uffff", "7", "1.5", "2020-01-01", None],
    "BLOB": [b"", b"a", b"\xff", b"\x00\x01", None],
    "DATE": [dt.date(1970, 1, 1), dt.date(2020, 1, 1), dt.date(1969, 12, 31), None],
    "TIMESTAMP": [
        dt.datetime(1970, 1, 1),
        dt.datetime(2020, 1, 1),
        dt.datetime(2020, 1, 1, 0, 0, 0, 1),
        dt.datetime(9999, 12, 31),
        None,
    ],
    "TIMESTAMP WITH TIME ZONE": [
        dt.datetime(1970, 1, 1, tzinfo=UTC),
        dt.datetime(2020, 1, 1, tzinfo=UTC),
        None,
    ],
    "DECIMAL(10,2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("1.23"), Decimal("7.00"), None],
    "UUID": [*UUIDS, None],
}
CONSTANTS: list[Any] = [
    *(0, 1, 7, -1, -129, 128, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64 - 1),
    *(True, False, 0.0, -0.0, 0.1, 1.5, 7.0, math.inf, -math.inf, math.nan, 9007199254740993.0),
    *(Decimal("7"), Decimal("7.00"), Decimal("1.23"), Decimal("1.234"), Decimal("0.1")),
    *("", "a", "7", "1.5", "é", "😀", "2020-01-01", "true", b"", b"a", b"\xff"),
    *(dt.date(2020, 1, 1), dt.date(1970, 1, 1), dt.datetime(2020, 1, 1)),
    *(dt.datetime(2020, 1, 1, tzinfo=UTC), dt.datetime(2020, 1, 1, 0, 0, 0, 1)),
    *(dt.datetime(2020, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2))), *UUIDS, None),
]
OPERATORS = ("=", "<", "<=", ">", ">=")


def bounds_of(operator: str, key: Any) -> Range:
    if operator == "=":
        return Range(key, True, key, True)
    if operator in (">", ">="):
        return Range(low=key, low_included=operator == ">=")
    return Range(high=key, high_included=operator == "<=")


@pytest.fixture(scope="module")
def duck() -> Any:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    yield connection
    connection.close()


@pytest.mark.parametrize("name", COLUMNS)
def test_a_probe_finds_every_row_that_duckdb_finds(name: str, duck: Any) -> None:
    column = pa.array(COLUMNS[name], SqlType(name).arrow)
    held = pa.table({"v": column, "row": range(len(column))})
    duck.register("held", held)
    ordered, hashed = build_ordered(column), build_hash([column])
    probed = 0
    for constant in CONSTANTS:
        key = keys.probe(column.type, constant)
        if key is None:
            continue
        for operator in OPERATORS:
            try:
                found = duck.execute(
                    f"SELECT row FROM held WHERE v {operator} ?", [constant]
                ).fetchall()
            except duckdb.Error:
                continue  # DuckDB does not compare these, so nobody will ask
            probed += 1
            want = {row for (row,) in found}
            got = ordered.between(bounds_of(operator, key)).tolist()
            assert want == set(got), (constant, operator)
            assert len(got) == len(set(got))
            if operator == "=":
                assert set(ordered.equal(key).tolist()) == want
                number = hash_key([column.type], [key])
                rows = [] if number is None else hashed.equal(number).tolist()
                assert set(rows) == want
    duck.unregister("held")
    assert probed >= 5 or name == "FLOAT"


def test_what_is_not_exact_is_not_probed() -> None:
    probe = keys.probe
    assert probe(pa.int64(), 1.5) is None
    assert probe(pa.int64(), Decimal("1.5")) is None
    assert probe(pa.int64(), Decimal("NaN")) is None
    assert probe(pa.int64(), True) is None
    assert probe(pa.float64(), math.nan) is None
    assert probe(pa.float64(), 2**53 + 1) is None
    assert probe(pa.float64(), Decimal("Infinity")) is None
    assert probe(pa.float32(), 0.1) is None
    assert probe(pa.decimal128(10, 2), Decimal("NaN")) is None
    assert probe(pa.decimal128(10, 2), Decimal("Infinity")) is None
    assert probe(pa.decimal128(10, 2), 1.5) is None
    assert probe(pa.timestamp("us"), "2020-01-01") is None
    assert probe(pa.timestamp("us", "UTC"), dt.datetime(2020, 1, 1)) is None
    assert probe(pa.timestamp("us"), dt.datetime(2020, 1, 1, tzinfo=UTC)) is None
    assert probe(pa.date32(), dt.datetime(2020, 1, 1)) is None
    assert probe(pa.uuid(), str(UUIDS[1])) is None
    assert probe(pa.binary(), "a") is None
    assert probe(pa.string(), b"a") is None
    assert probe(pa.string(), None) is None


def test_what_can_be_indexed() -> None:
    for name in COLUMNS:
        assert keys.is_indexable(SqlType.parse(name).arrow)
    for name in ("INTEGER[]", "JSON", "HUGEINT", "INTERVAL", "STRUCT(a INTEGER)"):
        assert not keys.is_indexable(SqlType.parse(name).arrow)


def test_equal_values_hash_alike_wherever_they_stand() -> None:
    for name, values in COLUMNS.items():
        kind = SqlType(name).arrow
        plain = [value for value in values if value is not None]
        whole = keys.hashes([pa.array(plain, kind)])
        longer = pa.array([None, plain[-1], *plain, None], kind)
        assert np.array_equal(keys.hashes([longer.slice(2, len(plain))]), whole), name
    assert keys.hashes([pa.array([-0.0])]) == keys.hashes([pa.array([0.0])])
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    assert len(set(keys.hashes([pa.array(odd)]).tolist())) == 1


def test_words_under_nulls_and_slices() -> None:
    column = pa.array([1, None, 3, 4], pa.int32()).slice(1)
    assert keys.words(column)[1:].tolist() == [3, 4]
    assert keys.plain_words(column) is None
    assert keys.plain_words(pa.array([True])) is None
    times = keys.plain_words(pa.array([5], pa.int64()).view(pa.timestamp("us")))
    assert times is not None
    assert times.tolist() == [5]
