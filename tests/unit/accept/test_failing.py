"""Bad rows are found in one pass, and are the very rows that fail one by one."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from accept_kit import QUICK, connection, make_column
from hypothesis import given
from hypothesis import strategies as st

from tidemill.accept.cast import Caster
from tidemill.rendering import shown

D = Decimal
KINDS = [
    "TINYINT",
    "UBIGINT",
    "BIGINT",
    "HUGEINT",
    "DOUBLE",
    "REAL",
    "DECIMAL(6,2)",
    "DECIMAL(38,10)",
    "BOOLEAN",
    "VARCHAR",
    "BLOB",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP WITH TIME ZONE",
    "INTERVAL",
    "UUID",
    "JSON",
    "INTEGER[]",
    "STRUCT(a INTEGER, b VARCHAR)",
]
TEXTS = [
    *("7", "+7", "-7", " 8 ", "300", "1.5", "1.50", "1.234", "1e3", "1e400", "0x1F", "1_000", ""),
    *("99999999999999999999", "1" * 60, "0" * 60 + "1", ".5", "5.", ".", "-", "inf", "-Infinity"),
    *("nan", "true", "T", "yes", "x", "NA", "10:00", "10:00:00.5", "25:00", "2024-01-31"),
    *("01/31/2024", "2024-02-30", "2024-01-31T10", "2024-01-31 10:00:00.1234567", "10:00:00+02"),
    *("2024-01-31 10:00:00+02", "3 days", "[1, 2]", "[1, x]", "{'a': 1, 'b': x}", '{"a": 1}'),
    *("0f2537d9-4ca6-4c35-b5e3-bca74543ca38", r"\xFF", r"\xZZ", "ä", "\0", "9" * 7, "-128", "-129"),
]
OTHERS = [
    pa.array([1, 300, -1, None, 2**40, 2**53 + 1, 2**63 - 1, 0]),
    pa.array([1.0, 1.5, float("nan"), float("inf"), None, 1e300, 2.0**63, -0.0, 123.45, 0.1]),
    pa.array([1.5, 3e38, None, 0.1], pa.float32()),
    pa.array([D("1.00"), D("1.50"), D("300.00"), None, D("99999999999999.99"), D("-0.01")]),
    pa.array([D("1E+30"), D("0.1"), None], pa.decimal256(76, 20)),
    pa.array([True, None, False]),
    pa.array([b"a", b"\xff", None, b"1"]),
    pa.array([dt.datetime(2024, 1, 1), None, dt.datetime(2024, 1, 1, 1)]),
    pa.array([1, 1_000, None, 1_001], pa.timestamp("ns")),
    pa.array([dt.date(2024, 1, 1), None]),
    pa.array([[1, 2], [300], None, []]),
    pa.array([{"a": 1, "b": "x"}, {"a": 2**40, "b": None}, None]),
    pa.array(["7", None, "x", "7"]).dictionary_encode(),
    pa.array(["7", "x", None], pa.string_view()),
    pa.array(["7", "x", None], pa.large_string()),
    pa.array([b"7", b"\xff", None], pa.binary_view()),
    pa.compute.run_end_encode(pa.array([7, 7, 300, None])),
]


def one_by_one(array: pa.Array, kind: str) -> tuple[list[Any], list[int]]:
    """What casting each value by itself gives, and which rows fail."""
    values, failures = [], []
    for at in range(len(array)):
        result = Caster(connection).cast_column(array[at : at + 1], make_column("v", kind))
        values.append(str(shown(result.array[0])))
        failures += [at] if result.failures else []
    return values, failures


@pytest.mark.parametrize("kind", KINDS)
def test_whole_columns_fail_as_their_values_do(kind: str) -> None:
    for array in (pa.array([*TEXTS, None]), *OTHERS):
        result = Caster(connection).cast_column(array, make_column("v", kind))
        values, failures = one_by_one(array, kind)
        assert sorted(result.failures) == failures, array.type
        assert [str(shown(value)) for value in result.array] == values, array.type


@QUICK
@given(st.lists(st.one_of(st.none(), st.text(max_size=6)), min_size=1), st.sampled_from(KINDS))
def test_any_text(texts: list[str | None], kind: str) -> None:
    array = pa.array([None if t is None else t.encode("utf-8", "replace").decode() for t in texts])
    result = Caster(connection).cast_column(array, make_column("v", kind))
    assert sorted(result.failures) == one_by_one(array, kind)[1]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("TIMESTAMP", "01/31/2013 10:00"),
        ("DATE", "01/31/2013"),
        ("BOOLEAN", "perhaps"),
        ("UUID", "none"),
        ("BIGINT", "1.5"),
        ("TINYINT", "300"),
        ("DOUBLE", "1,5"),
        ("DECIMAL(4,2)", "1.234"),
        ("JSON", "{"),
        ("INTEGER[]", "[x]"),
    ],
)
def test_nothing_but_bad_rows_takes_few_casts(
    kind: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = Caster._cast

    def counted(self: Caster, *arguments: Any) -> pa.Array:
        calls.append(1)
        return original(self, *arguments)

    monkeypatch.setattr(Caster, "_cast", counted)
    array = pa.array([text] * 10_000)
    result = Caster(connection).cast_column(array, make_column("v", kind))
    assert len(result.failures) == 10_000
    assert len(calls) <= 2
