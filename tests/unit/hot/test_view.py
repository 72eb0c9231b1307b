"""Selections: never too few rows, in arrival order, and exactly the rows where an index can."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hot_kit import (
    HASHED_KS,
    HASHED_S,
    NOW_US,
    ORDERED_F,
    ORDERED_K,
    QUICK,
    SECOND_US,
    accepted,
    make_table,
    open_hot,
    rows_of,
)
from hypothesis import given
from hypothesis import strategies as st

from tidemill.catalog.model import Index
from tidemill.hot.intake import Accepted
from tidemill.hot.table import HotTable
from tidemill.hot.values import Range
from tidemill.hot.view import Condition, Wanted
from tidemill.types import Column, SqlType

pytestmark = pytest.mark.usefixtures("small_blocks")

Row = tuple[int, int | None, str | None, float | None]
ROWS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.none() | st.integers(-3, 3),
        st.none() | st.sampled_from(["", "a", "b", "é"]),
        st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
    ),
    max_size=120,
)
KS = st.integers(-4, 4) | st.sampled_from([2**70, -(2**70)])
POINT = KS.map(lambda k: (Range(k, True, k, True),))
OPEN = st.tuples(st.none() | KS, st.booleans(), st.none() | KS, st.booleans())
CONDITIONS_K = st.one_of(
    POINT,
    OPEN.map(lambda o: (Range(*o),)),
    st.lists(KS, max_size=3, unique=True).map(
        lambda values: tuple(Range(k, True, k, True) for k in values)
    ),
)
CONDITIONS_S = st.lists(st.sampled_from(["", "a", "é", "zz"]), max_size=2, unique=True).map(
    lambda values: tuple(Range(s, True, s, True) for s in values)
)


def fill(hot: HotTable, rows: list[Row], step: int, unit_us: int = SECOND_US) -> None:
    for at in range(0, len(rows), step):
        part = [(NOW_US + row[0] * unit_us, *row[1:]) for row in rows[at : at + step]]
        hot.append(accepted(part))


def matches(value: Any, ranges: tuple[Range, ...]) -> bool:
    if value is None:
        return False
    return any(
        (r.low is None or value > r.low or (value == r.low and r.low_included))
        and (r.high is None or value < r.high or (value == r.high and r.high_included))
        for r in ranges
    )


@QUICK
@given(
    ROWS,
    st.integers(1, 40),
    st.sampled_from([(), (ORDERED_K,), (HASHED_S,), (HASHED_KS,), (ORDERED_K, HASHED_KS)]),
    st.none() | st.integers(-1, 61),
    st.none() | st.integers(-1, 61),
    st.none() | CONDITIONS_K,
    st.none() | CONDITIONS_S,
    st.sampled_from([1, SECOND_US]),
)
def test_a_selection_has_all_that_matches_once_and_in_order(
    rows: list[Row],
    step: int,
    indexes: tuple[Any, ...],
    low: int | None,
    high: int | None,
    on_k: tuple[Range, ...] | None,
    on_s: tuple[Range, ...] | None,
    unit_us: int,
) -> None:
    low_us = None if low is None else NOW_US + low * unit_us
    high_us = None if high is None else NOW_US + high * unit_us
    conditions = tuple(
        Condition(name, ranges) for name, ranges in (("k", on_k), ("s", on_s)) if ranges is not None
    )
    with tempfile.TemporaryDirectory() as folder:
        hot = open_hot(make_table(indexes=indexes), Path(folder))
        fill(hot, rows, step, unit_us)
        view = hot.view()
        selected = view.select(Wanted(low_us, high_us, conditions, with_seq=True))
        plain = view.select(Wanted(low_us, high_us, conditions))
        hot.close()
    wanted = [
        seq
        for seq, (second, k, s, _) in enumerate(rows, 1)
        if (low is None or second >= low)
        and (high is None or second <= high)
        and (on_k is None or matches(k, on_k))
        and (on_s is None or matches(s, on_s))
    ]
    got = selected.table.column("_seq").to_pylist()
    assert got == sorted(set(got))
    assert set(wanted) <= set(got)
    assert selected.rows_read == len(got)
    assert selected.rows == len(rows)
    for (second, *rest), seq in zip(
        [(r[0], *r[1:4]) for r in rows_of(selected.table)], got, strict=True
    ):
        expected = rows[seq - 1]
        assert second == NOW_US + expected[0] * unit_us
        assert repr(rest) == repr(list(expected[1:]))
    assert repr(rows_of(plain.table)) == repr([r[:4] for r in rows_of(selected.table)])


@QUICK
@given(ROWS, st.integers(1, 30), st.integers(0, 130), st.none() | st.integers(0, 60))
def test_the_newest_rows_are_among_the_selected(
    rows: list[Row], step: int, newest: int, high: int | None
) -> None:
    high_us = None if high is None else NOW_US + high * SECOND_US
    with tempfile.TemporaryDirectory() as folder:
        hot = open_hot(make_table(), Path(folder))
        fill(hot, rows, step)
        got = hot.view().select(Wanted(high_us=high_us, with_seq=True, newest=newest))
        hot.close()
    inside = [(r[0], seq) for seq, r in enumerate(rows, 1) if high is None or r[0] <= high]
    wanted = sorted(inside)[len(inside) - min(newest, len(inside)) :]
    assert {seq for _, seq in wanted} <= set(got.table.column("_seq").to_pylist())


@pytest.mark.parametrize("index", [ORDERED_K, HASHED_S, HASHED_KS])
def test_one_key_and_a_span_touch_only_what_holds_them(tmp_path: Path, index: Any) -> None:
    hot = open_hot(make_table(indexes=(index,)), tmp_path)
    rows = [(NOW_US + n * SECOND_US, n % 10, str(n % 10), 0.5) for n in range(600)]
    for at in range(0, 600, 20):
        hot.append(accepted(rows[at : at + 20]))
    conditions = tuple(
        Condition(name, (Range(value, True, value, True),))
        for name, value in (("k", 3), ("s", "3"))
        if name in index.columns
    )
    low, high = NOW_US + 95 * SECOND_US, NOW_US + 304 * SECOND_US
    selected = hot.view().select(Wanted(low, high, conditions))
    want = [r for r in rows if low <= r[0] <= high and r[1] == 3]
    assert rows_of(selected.table) == want
    assert selected.rows_read == len(want) == 21
    assert selected.index == index.name
    assert selected.blocks_in_span < selected.blocks
    none = (Condition(conditions[0].column, ()), *conditions[1:])  # IN () of a list that was empty
    assert hot.view().select(Wanted(conditions=none)).rows_read == 0
    hot.close()


def test_spans_of_ordered_blocks_are_exact(tmp_path: Path) -> None:
    hot = open_hot(make_table(), tmp_path)
    rows = [(NOW_US + n // 3, n, "", 0.0) for n in range(90)]
    for at in range(0, 90, 18):
        hot.append(accepted(rows[at : at + 18]))
    for low in (None, *range(-1, 32)):
        for high in (None, *range(-1, 32, 3)):
            low_us = None if low is None else NOW_US + low
            high_us = None if high is None else NOW_US + high
            want = [
                row
                for row in rows
                if (low_us is None or row[0] >= low_us) and (high_us is None or row[0] <= high_us)
            ]
            assert rows_of(hot.view().select(Wanted(low_us, high_us)).table) == want
    hot.close()


@pytest.mark.parametrize("method", ["ordered", "hash"])
@pytest.mark.parametrize("value", [2**70, -(2**70), 300])
def test_constants_outside_the_type_select_nothing(tmp_path: Path, method: str, value: int) -> None:
    index = ORDERED_K if method == "ordered" else Index(9, "h", 1, ("k",), "hash")
    hot = open_hot(make_table(indexes=(index,)), tmp_path)
    hot.append(accepted([(NOW_US, k, "", 0.0) for k in range(64)]))
    point = Condition("k", (Range(value, True, value, True),))
    assert hot.view().select(Wanted(conditions=(point,))).rows_read == 0
    hot.close()


def test_nan_is_above_every_number(tmp_path: Path) -> None:
    hot = open_hot(make_table(indexes=(ORDERED_F,)), tmp_path)
    floats = [float(n) for n in range(20)] + [float("nan"), None, float("inf"), -0.0]
    hot.append(accepted([(NOW_US, 1, "", f) for f in floats]))
    above = hot.view().select(Wanted(conditions=(Condition("f", (Range(18.0, False),)),)))
    assert repr(above.table.column("f").to_pylist()) == "[19.0, nan, inf]"
    zero = hot.view().select(Wanted(conditions=(Condition("f", (Range(0.0, True, 0.0, True),)),)))
    assert zero.table.column("f").to_pylist() == [0.0, -0.0]
    hot.close()


def test_an_empty_table(tmp_path: Path) -> None:
    hot = open_hot(make_table(indexes=(ORDERED_K,)), tmp_path)
    for wanted in (
        Wanted(),
        Wanted(with_seq=True),
        Wanted(0, 1),
        Wanted(conditions=(Condition("k", (Range(1, True, 1, True),)),)),
        Wanted(newest=3),
    ):
        selected = hot.view().select(wanted)
        assert selected.table.num_rows == selected.rows_read == 0
        assert selected.table.schema.names[:4] == ["ts", "k", "s", "f"]
    hot.close()


def test_sequence_numbers_after_replacements(tmp_path: Path) -> None:
    table = make_table({"on_conflict": "replace"}, (ORDERED_K,), ("ts", "k"))
    hot = open_hot(table, tmp_path)
    for round_ in range(3):
        for at in range(0, 60, 6):
            hot.append(accepted([(NOW_US + n, n, str(round_), 0.0) for n in range(at, at + 6)]))
    hot.append(accepted([(NOW_US + 5, 5, "last", 0.0)]))
    want = {seq: (NOW_US + n, n, "2", 0.0) for n in range(60) if n != 5 for seq in (121 + n,)}
    want[181] = (NOW_US + 5, 5, "last", 0.0)
    whole = rows_of(hot.view().whole(True))
    assert {row[-1]: row[:-1] for row in whole} == want
    assert [row[-1] for row in whole] == sorted(want)
    point = Condition("k", (Range(5, True, 5, True),))
    one = hot.view().select(Wanted(conditions=(point,), with_seq=True))
    assert rows_of(one.table) == [(*want[181], 181)]
    hot.close()


def test_a_view_stands_still(tmp_path: Path) -> None:
    table = make_table({"on_conflict": "replace"}, (ORDERED_K,), ("ts", "k"))
    hot = open_hot(table, tmp_path)
    hot.append(accepted([(NOW_US + n, n, "old", 0.0) for n in range(40)]))
    view = hot.view()
    before = rows_of(view.whole(True))
    for n in range(0, 80, 4):
        hot.append(accepted([(NOW_US + n, n, "new", 0.0)]))
        hot.view()
    hot.set_table(make_table({"on_conflict": "replace"}, (), ("ts", "k")))
    assert rows_of(view.select(Wanted(with_seq=True)).table) == before
    assert rows_of(view.select(Wanted(NOW_US, NOW_US + 39, with_seq=True)).table) == before
    point = Condition("k", (Range(8, True, 8, True),))
    assert rows_of(view.select(Wanted(conditions=(point,))).table) == [(NOW_US + 8, 8, "old", 0.0)]
    assert len(rows_of(hot.view().whole(False))) == 50
    hot.close()


def test_other_types_are_gathered_too(tmp_path: Path) -> None:
    names = ["UUID", "INTERVAL", "JSON", "HUGEINT", "INTEGER[]", "STRUCT(a INTEGER)"]
    names += ["MAP(VARCHAR, INTEGER)", "BOOLEAN", "DATE", "DECIMAL(9,2)", "INTEGER[2]"]
    columns = (
        Column("ts", SqlType("TIMESTAMP"), False),
        Column("k", SqlType("BIGINT")),
        *(Column(f"c{at}", SqlType.parse(name)) for at, name in enumerate(names)),
    )
    table = make_table(indexes=(ORDERED_K,), columns=columns)
    hot = open_hot(table, tmp_path)
    for n in range(0, 90, 5):
        times = pa.array(np.arange(n, n + 5)).view(pa.timestamp("us"))
        empty = [pa.nulls(5, field.type) for field in list(table.schema)[2:]]
        batch = pa.RecordBatch.from_arrays(
            [times, pa.array(range(n, n + 5)), *empty], schema=table.schema
        )
        hot.append(Accepted((batch,)))
    point = Condition("k", tuple(Range(k, True, k, True) for k in (2, 50, 87)))
    got = hot.view().select(Wanted(conditions=(point,), with_seq=True)).table
    assert got.column("k").to_pylist() == [2, 50, 87]
    assert got.schema.field("c0").type == pa.uuid()
    hot.close()


@QUICK
@given(ROWS, st.integers(1, 40))
def test_the_oldest_row_behind_a_number(rows: list[Row], step: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        hot = open_hot(make_table(), Path(folder))
        fill(hot, rows, step)
        view = hot.view()
        found = [view.oldest_behind(seq) for seq in range(len(rows) + 1)]
        hot.close()
    times = [NOW_US + row[0] * SECOND_US for row in rows]
    assert found == [min(times[seq:], default=None) for seq in range(len(rows) + 1)]
