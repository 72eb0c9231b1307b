"""The order of rows in a file: slices of time, keys within them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from history_kit import HOUR_US, NOW_US, make_batch, make_table

from tidemill.catalog.model import Table
from tidemill.history.arranging import Arranged, Arranger
from tidemill.history.ordering import order_of
from tidemill.history.slices import spans_of


def arranged(table: Table, batch: pa.RecordBatch, keys: Sequence[str], rows: int) -> Arranged:
    partition_us = table.settings["partition"]
    return Arranger(tuple(keys), ("ts", "_seq"), partition_us, rows).arrange(batch)


def row_lists(found: Arranged) -> list[list[dict[str, Any]]]:
    """The rows of each row group."""
    rows = found.rows.to_pylist()
    return [rows[start:end] for start, end in spans_of(found.ends)]


@pytest.mark.parametrize("time_type", ["TIMESTAMP", "TIMESTAMP WITH TIME ZONE"])
@pytest.mark.parametrize("kind", ["BIGINT", "VARCHAR"])
def test_rows_of_a_slice_are_ordered_by_key(kind: str, time_type: str) -> None:
    table = make_table([("k", kind)], [("k",)], time_type=time_type)
    chance = np.random.default_rng(1)
    values = [None, *([1, 2, 30] if kind == "BIGINT" else ["", "a", "é"])]
    rows = [
        (NOW_US + int(time), values[int(at)])
        for time, at in zip(
            chance.integers(0, 2 * HOUR_US, 3_000), chance.integers(0, 4, 3_000), strict=True
        )
    ]
    found = arranged(table, make_batch(table, rows), ["k"], 50)
    assert len(found.ends) >= 60
    groups = row_lists(found)
    place = {value: (value is None, at) for at, value in enumerate(values)}
    slices = [groups[0]]
    for group in groups[1:]:
        if max(row["ts"] for row in slices[-1]) < min(row["ts"] for row in group):
            slices.append(group)  # a new slice is later than all before it
        else:
            slices[-1] = slices[-1] + group
    assert len(slices) == 12
    for part in slices:
        keys = [(*place[row["k"]], row["ts"], row["_seq"]) for row in part]
        assert keys == sorted(keys)
    assert sorted(row["_seq"] for group in groups for row in group) == list(range(1, 3_001))


def test_without_a_key_rows_are_in_order_of_time() -> None:
    table = make_table([("k", "INTEGER[]")])
    rows = [(NOW_US + at * 7919 % 1_000, [at]) for at in range(1_000)]
    for keys in ([], ["k"]):  # a list has no order
        found = arranged(table, make_batch(table, rows), keys, 100)
        times = [row["ts"] for group in row_lists(found) for row in group]
        assert times == sorted(times)
        assert len(found.ends) == 10


def test_rows_in_order_are_not_copied() -> None:
    table = make_table([("k", "BIGINT")])
    batch = make_batch(table, [(NOW_US + at, at) for at in range(10)])
    assert arranged(table, batch, ["k"], 4).rows is batch


def test_parts_for_files() -> None:
    batch = pa.RecordBatch.from_pydict({"a": list(range(10))})
    whole = Arranged(batch, (3, 5, 8, 10))

    def parts(rows_max: int, before: int = 0) -> list[tuple[int, tuple[int, ...]]]:
        return [(p.rows.column(0)[0].as_py(), p.ends) for p in whole.cut(rows_max, before)]

    assert parts(10) == [(0, (3, 5, 8, 10))]
    assert parts(5) == [(0, (3, 5)), (5, (3, 5))]
    assert parts(5, 2) == [(0, (3,)), (3, (2, 5)), (8, (2,))]
    assert parts(5, 4) == [(0, (3, 5)), (5, (3, 5))], "none fits beside what is there"
    assert parts(1) == [(0, (3,)), (3, (2,)), (5, (3,)), (8, (2,))]


def of_cars(cars: int, is_steady: bool) -> pa.RecordBatch:
    """An hour of cars that report every thirty seconds, or at any time."""
    chance = np.random.default_rng(2)
    count = 120 * cars
    steps = np.repeat(np.arange(120, dtype=np.int64), cars) * 30_000_000
    phases = np.tile(np.sort(chance.integers(0, 30_000_000, cars)), 120)
    times = steps + phases if is_steady else np.sort(chance.integers(0, HOUR_US, count))
    keys = np.tile(chance.permutation(cars), 120)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(NOW_US + times).cast(pa.timestamp("us")),
            pa.array(keys if is_steady else chance.integers(0, cars, count)),
            pa.array(np.arange(count)),
        ],
        names=["ts", "k", "_seq"],
    )


@pytest.mark.parametrize("is_steady", [False, True])
def test_large_partitions_are_cut_by_time_unless_that_takes_room(is_steady: bool) -> None:
    batch = of_cars(2_000, is_steady)
    arranger = Arranger(("k",), ("ts", "_seq"), HOUR_US)
    assert len(arranger.arrange(batch).ends) == (2 if is_steady else 6)
    assert arranger.is_by_key is is_steady
    assert len(arranger.arrange(of_cars(2_000, not is_steady)).ends) == (2 if is_steady else 6)
    one = Arranger(("k",), ("ts", "_seq"), HOUR_US, 10**6)
    assert len(one.arrange(batch).ends) == 6, "in one row group no order of keys helps"
    assert one.is_by_key is None


def test_what_null_slots_hold_does_not_order_rows() -> None:
    """Arrow leaves it open; readers of files leave behind whatever was there."""
    values = pa.array([7, 5, 9, 1], pa.int64())
    is_valid = pa.array([False, False, True, False]).buffers()[1]
    keys = pa.Array.from_buffers(pa.int64(), 4, [is_valid, values.buffers()[1]])
    assert keys.to_pylist() == [None, None, 9, None]
    order = order_of([keys])
    assert order is not None
    assert order.tolist() == [2, 0, 1, 3]
