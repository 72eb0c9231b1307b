"""Rows whose values have types of their own: as if each row were accepted alone."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from accept_kit import acceptor, make_column, make_table

from tidemill.accept.cells import Cells, accept_cells
from tidemill.accept.rows import Checked
from tidemill.errors import RowsRejectedError

ROWS: list[dict[str, pa.Array]] = [
    {"ts": pa.array(["2024-01-01 00:00:00"]), "v": pa.array([1])},
    {"ts": pa.array([1_704_067_200_000_000], pa.timestamp("us")), "v": pa.array(["2"])},
    {"ts": pa.array(["2024-01-01 00:00:02"]), "v": pa.array([None], pa.null())},
    {"ts": pa.array(["2024-01-01 00:00:03"]), "v": pa.array([4.0])},
]
BAD: dict[str, pa.Array] = {"ts": pa.array(["2024-01-01 00:00:04"]), "v": pa.array(["x"])}
LATE_BAD: dict[str, pa.Array] = {"ts": pa.array([None], pa.null()), "v": pa.array([9.5])}


def both(rows: list[dict[str, pa.Array]], given: dict[str, str] | None = None) -> list[Any]:
    """What is stored and set aside: of all rows at once, and of each alone."""
    table = make_table(make_column("v", "INTEGER"), given=given)
    at_once = _outcome(
        lambda: [
            accept_cells(
                acceptor(table),
                ["ts", "v"],
                [Cells.of([row[name] for row in rows]) for name in ("ts", "v")],
                len(rows),
            )
        ]
    )
    alone = _outcome(
        lambda: [
            acceptor(table).accept(pa.table(row), number) for number, row in enumerate(rows, 1)
        ]
    )
    assert at_once == alone
    return at_once


def _outcome(accept: Any) -> list[Any]:
    try:
        checked: list[Checked] = accept()
    except RowsRejectedError as error:
        return [error.message, error.detail, error.hint]
    stored = [row for part in checked for batch in part.batches for row in batch.to_pylist()]
    return [stored, [reject for part in checked for reject in part.rejects]]


def test_all_fit() -> None:
    stored, rejects = both(ROWS)
    assert [row["v"] for row in stored] == [1, 2, None, 4]
    assert rejects == []


def test_the_first_that_does_not_fit_is_refused() -> None:
    message, detail, _ = both([*ROWS, BAD, LATE_BAD])
    assert message.startswith("1 of 1 rows do not fit")
    assert detail.startswith("row 5: ")


def test_rows_that_do_not_fit_are_set_aside() -> None:
    stored, rejects = both([LATE_BAD, *ROWS, BAD], {"rejected": "divert"})
    assert len(stored) == len(ROWS)
    assert [json.loads(row) for row, _ in rejects] == [
        {"ts": None, "v": 9.5},
        {"ts": "2024-01-01 00:00:04", "v": "x"},
    ]


def test_none_fits() -> None:
    stored, rejects = both([BAD, BAD], {"rejected": "divert"})
    assert stored == []
    assert len(rejects) == 2


def test_a_value_is_found_again() -> None:
    cells = Cells.of([row["v"] for row in ROWS])
    assert [cells.at(row).to_pylist() for row in range(4)] == [[1], ["2"], [None], [4.0]]
    with pytest.raises(AssertionError):
        cells.at(4)
