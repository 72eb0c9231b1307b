"""Whether rows take more room in one order than in another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemill.history.ordering import order_of
from tidemill.history.parquet import layout_of, write_parquet
from tidemill.history.sampling import GROWTH_MAX, SAMPLE_ROWS_MAX, grows

ROWS, KEYS = 120_000, 1_000
WHOLE, SHORT = [ROWS], [ROWS * at // 12 for at in range(1, 13)]


def make(kind: str) -> pa.RecordBatch:
    """Rows in order of time."""
    chance = np.random.default_rng(4)
    every = np.arange(ROWS, dtype=np.int64)
    keys = every % KEYS
    times, values = every * 1_000, every // KEYS * 5 + keys
    if kind == "random":
        keys = chance.integers(0, KEYS, ROWS)
        times = np.sort(chance.integers(0, ROWS * 1_000, ROWS))
        values = chance.integers(0, 2**40, ROWS)
    if kind == "unique":
        keys = chance.permutation(ROWS)
    if kind == "one":
        keys = keys * 0
    texts = pa.array([f"text {n}" for n in range(KEYS)]).take(pa.array(keys % KEYS))
    return pa.RecordBatch.from_arrays(
        [pa.array(times), pa.array(keys), pa.array(values), texts, pa.array(every)],
        names=["ts", "k", "v", "s", "_seq"],
    )


def size(rows: pa.RecordBatch, slices: list[int]) -> int:
    """What a file of the rows takes, ordered by key within slices."""
    numbers = np.searchsorted(np.asarray(slices), np.arange(ROWS), side="right")
    order = order_of([pa.array(numbers), rows.column("k")])
    ordered = rows if order is None else rows.take(pa.array(order))
    sink = pa.BufferOutputStream()
    write_parquet(sink, ordered, layout_of(ordered, (), WHOLE), WHOLE)
    return int(sink.tell())


@pytest.mark.parametrize(
    ("kind", "is_more"), [("steady", True), ("random", False), ("unique", True), ("one", False)]
)
def test_a_sample_tells_what_files_show(kind: str, is_more: bool) -> None:
    rows = make(kind)
    grown = size(rows, SHORT) / size(rows, WHOLE)
    assert (grown > GROWTH_MAX) == is_more, grown
    assert grows(rows, rows.column("k"), None, WHOLE, SHORT) == is_more
    assert not grows(rows, rows.column("k"), None, WHOLE, WHOLE)


def test_rows_in_another_order_tell_the_same() -> None:
    back = np.arange(ROWS)[::-1].copy()
    for kind in ("steady", "random"):
        rows = make(kind)
        told = grows(rows.take(pa.array(back)), rows.column("k"), back, WHOLE, SHORT)
        assert told == (kind == "steady")


def test_a_sample_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def noted(_sink: Any, rows: pa.RecordBatch, *_: Any) -> None:
        taken.append(rows.num_rows)

    monkeypatch.setattr("tidemill.history.sampling.write_parquet", noted)
    rows = make("steady")
    for keys in (rows.column("k"), pa.array(np.arange(ROWS) % 3 % 2 + 5)):
        grows(rows, keys, None, WHOLE, SHORT)
    assert taken
    assert max(taken) <= SAMPLE_ROWS_MAX


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), "a"),
        (pa.binary(), b"a"),
        (pa.decimal128(9, 2), 1),
        (pa.bool_(), True),
        (pa.float64(), float("nan")),
        (pa.uint64(), 2**64 - 1),
        (pa.date32(), 5),
        (pa.list_(pa.int8()), [1]),
        (pa.month_day_nano_interval(), pa.MonthDayNano((1, 2, 3))),
    ],
)
def test_any_type_can_be_sampled(kind: pa.DataType, value: Any) -> None:
    times = pa.array(np.arange(4_000))
    values = pa.array([value, None] * 2_000, kind)
    rows = pa.RecordBatch.from_arrays([times, values], names=["ts", "v"])
    for keys in (pa.array([1, 2, 3, None] * 1_000), values):
        if not pa.types.is_nested(keys.type) and keys.type != pa.month_day_nano_interval():
            assert grows(rows, keys, None, [4_000], [*range(8, 4_001, 8)]) in (True, False)
