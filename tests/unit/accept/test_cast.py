"""What fits a column exactly, and what does not."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
from accept_kit import QUICK, connection, make_column
from hypothesis import given
from hypothesis import strategies as st

from tidemill.accept.cast import Caster

D = Decimal
T = dt.datetime
ID = uuid.UUID("0f2537d9-4ca6-4c35-b5e3-bca74543ca38")
DAY = dt.date(2020, 1, 1)
REFUSED = object()


def cast(array: pa.Array, kind: str) -> list[Any]:
    result = Caster(connection).cast_column(array, make_column("v", kind))
    assert result.array.type == make_column("v", kind).type.arrow
    assert len(result.array) == len(array)
    found: list[Any] = result.array.to_pylist()
    for row, reason in result.failures.items():
        assert found[row] is None
        assert reason.startswith('"v" cannot hold ')
        found[row] = REFUSED
    return found


def check(kind: str, array: pa.Array, *wanted: Any) -> None:
    got = cast(array, kind)
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        if isinstance(other, float) and math.isnan(other):
            assert math.isnan(one)
        else:
            assert one == other
            assert type(one) is type(other)


def ints(*values: int | None, kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, kind or pa.int64())


def test_integers() -> None:
    check("TINYINT", ints(-129, -128, 127, 128, None), REFUSED, -128, 127, REFUSED, None)
    check("UTINYINT", ints(-1, 0, 255, 256), REFUSED, 0, 255, REFUSED)
    check("UBIGINT", ints(-1, 2**63 - 1), REFUSED, 2**63 - 1)
    check("BIGINT", ints(2**63, 1, kind=pa.uint64()), REFUSED, 1)
    check("INTEGER", pa.array([1.0, 1.5, -0.0, 1e300, math.nan]), 1, REFUSED, 0, REFUSED, REFUSED)
    check("BIGINT", pa.array([2.0**53, 2.0**62, 2.0**63]), 2**53, 2**62, REFUSED)
    check("INTEGER", pa.array([D("1.00"), D("1.50"), None]), 1, REFUSED, None)
    check("TINYINT", pa.array([D("300"), D("-5")]), REFUSED, -5)
    check("INTEGER", pa.array([True, False]), 1, 0)
    check("INTEGER", pa.array(["7", " 8 ", "1.5", "x", "", "9999999999"]), 7, 8, *[REFUSED] * 4)


def test_huge_integers() -> None:
    def huge(value: int) -> bytes:
        return value.to_bytes(16, "little", signed=value < 0)

    texts = ["7", "-1", "1.5", "x", str(2**127 - 1), str(2**127)]
    got = cast(pa.array(texts), "HUGEINT")
    assert got == [huge(7), huge(-1), REFUSED, REFUSED, huge(2**127 - 1), REFUSED]
    assert cast(ints(2**64 - 1, kind=pa.uint64()), "HUGEINT") == [huge(2**64 - 1)]
    assert cast(pa.array([2.0, 2.5]), "HUGEINT") == [huge(2), REFUSED]
    assert cast(pa.array([D("2.00"), D("2.50")]), "HUGEINT") == [huge(2), REFUSED]


def test_floats() -> None:
    check("DOUBLE", ints(1, 2**53, 2**53 + 1), 1.0, 2.0**53, REFUSED)
    check("REAL", ints(1, 2**24 + 1), 1.0, REFUSED)
    check("DOUBLE", pa.array([0.5], pa.float32()), 0.5)
    rounded = pa.array([1.1], pa.float32())[0].as_py()
    check("REAL", pa.array([1.1, 1e300, math.inf, math.nan, None]), rounded, REFUSED, math.inf,
          math.nan, None)  # fmt: skip
    check("DOUBLE", pa.array([D("0.1"), D("2.5")]), 0.1, 2.5)
    check("DOUBLE", pa.array(["1e3", "nan", "-inf", "1e400", "x"]), 1e3, math.nan, -math.inf,
          REFUSED, REFUSED)  # fmt: skip
    check("REAL", pa.array(["1.5", "1e39", "Infinity"]), 1.5, REFUSED, math.inf)


def test_decimals() -> None:
    kind = "DECIMAL(5,2)"
    check(kind, ints(7, 999, 1000, -7), D("7.00"), D("999.00"), REFUSED, D("-7.00"))
    check(kind, pa.array([0.1, 1.005, math.nan, 1e9]), D("0.10"), REFUSED, REFUSED, REFUSED)
    check(kind, pa.array([D("1.230"), D("1.234"), D("99999")]), D("1.23"), REFUSED, REFUSED)
    check(kind, pa.array(["1.5", "1.234", "x", "1e1"]), D("1.50"), REFUSED, REFUSED, D("10.00"))
    check(kind, pa.array([True]), REFUSED)
    check("DECIMAL(38,0)", ints(2**64 - 1, kind=pa.uint64()), D(2**64 - 1))


def test_booleans() -> None:
    check("BOOLEAN", ints(0, 1, 2), False, True, REFUSED)
    check("BOOLEAN", pa.array([0.0, 1.0, 0.5]), False, True, REFUSED)
    check("BOOLEAN", pa.array(["true", "FALSE", "t", "1", "x"]), True, False, True, True, REFUSED)


def test_texts_and_blobs() -> None:
    check("VARCHAR", ints(7), "7")
    check("VARCHAR", pa.array([1.5]), "1.5")
    check("VARCHAR", pa.array([b"\xff", b"a", None]), REFUSED, "a", None)
    check("VARCHAR", pa.array([ID.bytes], pa.uuid()), str(ID))
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        check("VARCHAR", pa.array(["a", None, "é"], kind), "a", None, "é")
        check("INTEGER", pa.array(["7", None, "é"], kind), 7, None, REFUSED)
        check("TIMESTAMP", pa.array(["2020-01-01", "x"], kind), T(2020, 1, 1), REFUSED)
    for kind in (pa.large_binary(), pa.binary_view(), pa.string()):
        check("BLOB", pa.array(["a", None], kind), b"a", None)


def test_times() -> None:
    check("TIMESTAMP", ints(5), REFUSED)
    check("TIMESTAMP", pa.array([1.5]), REFUSED)
    check("DATE", ints(5, kind=pa.int32()), REFUSED)
    check("BIGINT", pa.array([T(2020, 1, 1)]), REFUSED)
    for unit, value in (("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000)):
        check("TIMESTAMP", ints(value).cast(pa.timestamp(unit)), T(1970, 1, 1, 0, 0, 1))
    assert cast(ints(1_001).cast(pa.timestamp("ns")), "TIMESTAMP") == [REFUSED]
    for seconds in (2**62, 400_000 * 365 * 86_400, -(2**62)):
        assert cast(ints(seconds).cast(pa.timestamp("s")), "TIMESTAMP") == [REFUSED]
    zoned = pa.array([T(2020, 1, 1, 2)], pa.timestamp("ms", "Europe/Berlin"))
    check("TIMESTAMP", zoned, T(2020, 1, 1, 2))
    check("DATE", pa.array([T(2020, 1, 1), T(2020, 1, 1, 5)]), DAY, REFUSED)
    check("TIMESTAMP", pa.array([DAY]), T(2020, 1, 1))
    [aware] = cast(pa.array([DAY]), "TIMESTAMPTZ")
    assert aware == T(2020, 1, 1, tzinfo=dt.UTC)
    check("TIME", pa.array(["10:00", "10:00:00.1234567", "25:00"]), dt.time(10), REFUSED, REFUSED)


def test_times_from_texts() -> None:
    texts = {
        "2020-01-01": T(2020, 1, 1),
        "2020-01-01 10:00:00.5": T(2020, 1, 1, 10, 0, 0, 500_000),
        "2020-01-01T10:00:00Z": T(2020, 1, 1, 10),
        "2020-01-01 10:00:00+02": T(2020, 1, 1, 8),
        "2020-01-01 00:00:00.123456000": T(2020, 1, 1, 0, 0, 0, 123_456),
        "2020-01-01 00:00:00.1234567": REFUSED,
        "2020-13-01": REFUSED,
        "yesterday": REFUSED,
        "": REFUSED,
    }
    check("TIMESTAMP", pa.array(list(texts)), *texts.values())
    got = cast(pa.array(["2020-01-01 10:00:00+02", "2020-01-01 10:00:00", "x"]), "TIMESTAMPTZ")
    assert got[:2] == [T(2020, 1, 1, 8, tzinfo=dt.UTC), T(2020, 1, 1, 10, tzinfo=dt.UTC)]
    assert got[2] is REFUSED
    dates = pa.array(["2020-01-01", "2020-1-1", "2020-01-01 00:00:00", "2020-01-01 10:00", "x"])
    check("DATE", dates, DAY, DAY, DAY, REFUSED, REFUSED)


def test_uuid_json_interval() -> None:
    check("UUID", pa.array([str(ID), "x", None]), ID, REFUSED, None)
    check("UUID", pa.array([ID.bytes], pa.binary(16)), ID)
    check("JSON", pa.array(['{"a": 1}', "{a", None]), '{"a": 1}', REFUSED, None)
    check("JSON", ints(5), "5")
    months = pa.MonthDayNano
    assert cast(pa.array(["1 day", "2 months", "x"]), "INTERVAL") == [
        months([0, 1, 0]),
        months([2, 0, 0]),
        REFUSED,
    ]
    length = pa.array([dt.timedelta(hours=30, microseconds=5)])
    assert cast(length, "INTERVAL") == [months([0, 0, 108_000_000_005_000])]


def test_nested() -> None:
    check("INTEGER[]", pa.array([[1, None], [], None, [2**40]]), [1, None], [], None, REFUSED)
    check("INTEGER[]", pa.array([[1.0], [1.5]]), [1], REFUSED)
    check("REAL[]", pa.array([[1.5], [1e300]]), [1.5], REFUSED)
    check("INTEGER[]", pa.array(["[1, 2]", "[1.5]", "[x]", "1"]), [1, 2], REFUSED, REFUSED, REFUSED)
    check("DECIMAL(5,2)[]", pa.array(["[1.5]", "[1.234]"]), [D("1.50")], REFUSED)
    check("INTEGER[2]", pa.array([[1, 2], [1], None]), [1, 2], REFUSED, None)
    check("STRUCT(a INTEGER)", pa.array([{"a": 1}, {"a": 2**40}]), {"a": 1}, REFUSED)
    check("STRUCT(a INTEGER)", pa.array([{"a": 1.5}, {"a": 2.0}]), REFUSED, {"a": 2})
    extra = pa.array([{"a": 1, "b": 2}, {"a": 1, "b": None}])
    check("STRUCT(a INTEGER)", extra, REFUSED, {"a": 1})
    check("STRUCT(a INTEGER, b VARCHAR)", pa.array([{"a": 1}]), {"a": 1, "b": None})
    check(
        "STRUCT(a INTEGER)", pa.array(["{'a': 1}", "{'a': 1.5}", "{"]), {"a": 1}, REFUSED, REFUSED
    )
    large = pa.array([[1]], pa.large_list(pa.int16()))
    check("BIGINT[]", large, [1])
    pairs = pa.array([[("x", 1)], [("x", 2**40)]], pa.map_(pa.string(), pa.int64()))
    check("MAP(VARCHAR, INTEGER)", pairs, [("x", 1)], REFUSED)


def test_nothing_is_always_null() -> None:
    for kind in ("INTEGER", "UUID", "JSON", "INTEGER[]", "TIMESTAMP", "DECIMAL(5,2)", "HUGEINT"):
        check(kind, pa.nulls(3), None, None, None)
        assert cast(pa.nulls(0), kind) == []


@QUICK
@given(st.lists(st.sampled_from(["1", "-5", "300", "x", None, "127"]), max_size=200))
def test_exactly_the_bad_rows_are_found(texts: list[str | None]) -> None:
    result = Caster(connection).cast_column(
        pa.array(texts, pa.string()), make_column("v", "TINYINT")
    )
    bad = [row for row, text in enumerate(texts) if text in ("300", "x")]
    assert sorted(result.failures) == bad
    good = [None if text is None or row in bad else int(text) for row, text in enumerate(texts)]
    assert result.array.to_pylist() == good


def test_reasons_are_short_and_say_why() -> None:
    column = make_column("v", "INTEGER")
    result = Caster(connection).cast_column(pa.array(["y" * 1_000]), column)
    assert len(result.failures[0]) < 150
    result = Caster(connection).cast_column(pa.array([1.5]), column)
    assert result.failures[0] == '"v" cannot hold 1.5 as INTEGER'


def test_one_bad_row_among_many_is_found_quickly() -> None:
    """By halving: as many casts as the logarithm of the rows, not as many as rows."""
    calls = []

    class Counting(Caster):
        def _cast(self, array: pa.Array, column: Any) -> pa.Array:
            calls.append(len(array))
            return super()._cast(array, column)

    texts = ["7"] * 100_000
    texts[77_777] = "x"
    result = Counting(connection).cast_column(pa.array(texts), make_column("v", "INTEGER"))
    assert list(result.failures) == [77_777]
    assert len(calls) < 50
