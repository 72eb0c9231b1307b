"""Literal rows as Arrow: the types of VALUES, and each value in its own where they have none."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest
from accept_kit import acceptor, make_column, make_table

from tidemill.accept.literals import accept_literals, array_of
from tidemill.errors import RowsRejectedError
from tidemill.sql.literal_rows import read_literal_rows


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        ([("NULL", None)], pa.null(), [None]),
        ([("NULL", None), ("INTEGER", 5)], pa.int64(), [None, 5]),
        ([("SMALLINT", 5)], pa.int64(), [5]),
        ([("DOUBLE", 0.5)], pa.float64(), [0.5]),
        ([("DECIMAL", Decimal("1.50")), ("DECIMAL", Decimal("12.00"))], pa.decimal128(4, 2), ...),
        ([("DECIMAL", Decimal("0.05"))], pa.decimal128(3, 2), [Decimal("0.05")]),
        ([("TEXT", "a"), ("NULL", None)], pa.string(), ["a", None]),
        ([("DATE", date(2024, 1, 2))], pa.date32(), ...),
        ([("TIME", time(1, 2, 3))], pa.time64("us"), ...),
        ([("TIMESTAMP", datetime(2024, 1, 2))], pa.timestamp("us"), ...),
        (
            [("TIMESTAMP WITH TIME ZONE", datetime(2024, 1, 2, tzinfo=UTC))],
            pa.timestamp("us", tz="UTC"),
            ...,
        ),
        (
            [("INTERVAL", (1, -2, 3)), ("INTERVAL", None)],
            pa.month_day_nano_interval(),
            [pa.MonthDayNano([1, -2, 3_000]), None],
        ),
    ],
)
def test_arrays(cells: list[tuple[str, object]], kind: pa.DataType, values: object) -> None:
    found = array_of(cells)
    assert found.type == kind
    assert found.to_pylist() == ([value for _, value in cells] if values is ... else values)


def stored(values: str, kind: str) -> list[object]:
    table = make_table(make_column("v", kind))
    found = read_literal_rows(values, 0)
    assert found is not None
    checked = accept_literals(acceptor(table), found[0], ["ts", "v"])
    return [row["v"] for batch in checked.batches for row in batch.to_pylist()]


def test_one_type_a_column() -> None:
    ts = "TIMESTAMP '2024-01-01'"
    assert stored(f"({ts}, 1), ({ts}, 2.50)", "VARCHAR") == ["1.00", "2.50"]
    assert stored(f"({ts}, 0.1), ({ts}, 1e0)", "DOUBLE") == [0.1, 1.0]


def test_each_value_in_its_own_type() -> None:
    first, second = "'2024-01-01 00:00:00'", "TIMESTAMP '2024-01-01'"
    assert stored(f"({first}, 1), ({second}, 2.50)", "VARCHAR") == ["1", "2.50"]
    with pytest.raises(RowsRejectedError, match="1 of 1 rows"):
        stored(f"({first}, 1), ({second}, 2.50)", "INTEGER")
