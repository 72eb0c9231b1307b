"""Orders found by machine words are the orders of the values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from history_kit import QUICK, build
from hypothesis import given
from hypothesis import strategies as st

from tidemill.history.ordering import is_sortable, order_of, words_of
from tidemill.types import SqlType

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BIGINT": st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    "UBIGINT": st.integers(0, 2**64 - 1) | st.integers(2**64 - 3, 2**64 - 1),
    "TINYINT": st.integers(-128, 127),
    "BOOLEAN": st.booleans(),
    "DOUBLE": st.floats(allow_nan=False),
    "VARCHAR": st.text(max_size=3),
    "BLOB": st.binary(max_size=3),
    "DECIMAL(20,2)": st.decimals(-99, 99, places=2),
    "UUID": st.binary(min_size=16, max_size=16),
    "TIMESTAMP": st.integers(-5, 5) | st.integers(-(2**62), 2**62),
    "DATE": st.integers(-5, 5),
}


@QUICK
@given(st.data())
def test_rows_are_ordered_by_one_key_after_the_other(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3))
    rows = data.draw(
        st.lists(st.tuples(*(st.none() | VALUES[kind] for kind in kinds)), max_size=20)
    )
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    keys = [build(SqlType.parse(k).arrow, list(v)) for k, v in zip(kinds, columns, strict=True)]
    order = order_of(keys)
    expected = sorted(
        range(len(rows)),
        key=lambda at: [(value is None, 0 if value is None else value) for value in rows[at]],
    )
    assert (list(range(len(rows))) if order is None else order.tolist()) == expected


def test_rows_in_order_are_left_alone() -> None:
    assert order_of([pa.array([1, 1, 2]), pa.array(["a", "b", "b"])]) is None
    assert order_of([pa.array([], pa.int64())]) is None


@pytest.mark.parametrize("name", ["HUGEINT", "INTERVAL", "JSON", "INTEGER[]"])
def test_types_without_an_order(name: str) -> None:
    assert not is_sortable(SqlType.parse(name).arrow)


def test_words_of_a_slice() -> None:
    assert words_of(pa.array([1, None, 3, 4])[2:]).tolist() == [3, 4]
    assert words_of(pa.array([True, False, True])[1:]).tolist() == [0, 1]
