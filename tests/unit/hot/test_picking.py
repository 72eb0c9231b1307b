"""Picking over blocks and the tail: alternatives, several indices, and what is told of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hot_kit import (
    HASHED_KS,
    HASHED_S,
    NOW_US,
    ORDERED_F,
    ORDERED_K,
    QUICK,
    accepted,
    make_table,
    open_hot,
    rows_of,
)
from hypothesis import given
from hypothesis import strategies as st

from tidemill.hot.values import Range
from tidemill.hot.wanted import Branch, Condition, Wanted

pytestmark = pytest.mark.usefixtures("small_blocks")

K, S, F = st.integers(-2, 4), st.sampled_from(["", "a", "é"]), st.sampled_from([0.0, 1.5, 2.0])
ROWS = st.lists(
    st.tuples(st.integers(0, 50), st.none() | K, st.none() | S, st.none() | F), max_size=120
)


def equal(column: str, *values: Any) -> Condition:
    return Condition(column, tuple(Range(value, True, value, True) for value in values))


@st.composite
def branches(draw: st.DrawFn, depth: int) -> Branch:
    conditions = [
        equal(column, *draw(st.lists(of, min_size=1, max_size=3)))
        for column, of in (("k", K), ("s", S), ("f", F))
        if draw(st.booleans())
    ]
    ends = [draw(st.none() | st.integers(0, 50).map(lambda at: NOW_US + at)) for _ in range(2)]
    inner = draw(st.lists(either(depth - 1), max_size=1)) if depth else []
    return Branch(ends[0], ends[1], tuple(conditions), tuple(inner))


def either(depth: int = 1) -> st.SearchStrategy[tuple[Branch, ...]]:
    return st.lists(branches(depth), min_size=1, max_size=3).map(tuple)


def holds(branch: Branch, row: tuple[Any, ...]) -> bool:
    if branch.low_us is not None and row[0] < branch.low_us:
        return False
    if branch.high_us is not None and row[0] > branch.high_us:
        return False
    values = {"k": row[1], "s": row[2], "f": row[3]}
    for condition in branch.conditions:
        value = values[condition.column]
        if value is None or all(value != r.low for r in condition.ranges):
            return False
    return all(any(holds(b, row) for b in some) for some in branch.alternatives)


@QUICK
@given(
    ROWS,
    st.integers(1, 40),
    st.lists(st.sampled_from([ORDERED_K, HASHED_S, HASHED_KS, ORDERED_F]), unique=True),
    branches(0),
    st.lists(either(), max_size=2),
    st.none() | st.integers(0, 50),
)
def test_no_row_that_matches_is_left_out(
    rows: list[Any],
    step: int,
    indexes: list[Any],
    top: Branch,
    some: list[Any],
    horizon: int | None,
) -> None:
    given = [(NOW_US + row[0], *row[1:]) for row in rows]
    wanted = Wanted(top.low_us, top.high_us, top.conditions, True, alternatives=tuple(some))
    wanted = wanted.within(None if horizon is None else NOW_US + horizon)
    with tempfile.TemporaryDirectory() as folder:
        hot = open_hot(make_table(indexes=tuple(indexes)), Path(folder))
        for at in range(0, len(given), step):
            hot.append(accepted(given[at : at + step]))
        selection = hot.view().select(wanted)
        estimate = hot.view().estimate(wanted)
        hot.close()
    seen = [row for row in given if horizon is None or row[0] >= NOW_US + horizon]
    branch = Branch(top.low_us, top.high_us, top.conditions, tuple(some))
    got = rows_of(selection.table)
    seqs = [row[-1] for row in got]
    assert seqs == sorted(set(seqs))
    assert {seq for seq, row in enumerate(given, 1) if row in seen and holds(branch, row)} <= {
        *seqs
    }
    assert all(row[0] >= NOW_US + horizon for row in got if horizon is not None)
    assert 0 <= estimate <= len(rows)


@QUICK
@given(ROWS, st.integers(1, 30), st.integers(1, 130), st.none() | st.integers(0, 50))
def test_no_row_of_the_newest_is_older_than_their_begin(
    rows: list[Any], step: int, newest: int, high: int | None
) -> None:
    high_us = None if high is None else NOW_US + high
    with tempfile.TemporaryDirectory() as folder:
        hot = open_hot(make_table(), Path(folder))
        for at in range(0, len(rows), step):
            hot.append(accepted([(NOW_US + r[0], *r[1:]) for r in rows[at : at + step]]))
        found = hot.view().newest_only(Wanted(high_us=high_us, newest=newest))
        hot.close()
    inside = sorted((r[0] for r in rows if high is None or r[0] <= high), reverse=True)
    if len(inside) < newest:
        assert found.low_us is None
    else:  # the very time of the last of them, so that rows of the same time are kept
        assert found.low_us == NOW_US + inside[newest - 1]


def test_what_is_told_of_each_index(tmp_path: Path) -> None:
    hot = open_hot(make_table(indexes=(ORDERED_K, HASHED_S)), tmp_path)
    for at in range(0, 640, 64):  # 64 different k, two different s
        hot.append(accepted([(NOW_US + n, n % 64, str(n % 2), 0.0) for n in range(at, at + 64)]))
    view = hot.view()
    blocks = len(view.blocks)
    assert blocks >= 10
    both = view.select(Wanted(conditions=(equal("k", 3), equal("s", "1"))))
    assert [(use.way.name, use.asked, use.rows, use.taken) for use in both.uses] == [
        ("by_k", blocks, 10, blocks),
        ("by_s", 0, 0, 0),  # the other one left few rows
    ]
    assert (both.index, both.rows_read) == ("by_k", 10)
    half = view.select(Wanted(conditions=(equal("s", "1"),)))
    assert [(use.asked, use.rows, use.taken) for use in half.uses] == [(blocks, 320, 0)]
    assert half.rows_read == 640  # half of a block: reading it all is cheaper
    many = view.select(Wanted(conditions=(equal("k", *range(20)),)))
    assert [(use.asked, use.unasked) for use in many.uses] == [(0, blocks)]
    hot.close()
