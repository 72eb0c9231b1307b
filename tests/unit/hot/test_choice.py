"""Choosing an index in a block: by how many rows it names, before any of them is touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hot_kit import HASHED_KS, HASHED_S, NOW_US, ORDERED_F, ORDERED_K, make_batch, make_table
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.catalog.model import Index, Table
from tidemill.hot import choice
from tidemill.hot.block import Block, make_block
from tidemill.hot.choice import EitherWay, IndexWay, fewest, ways_of
from tidemill.hot.values import Range
from tidemill.hot.wanted import Branch, Condition

ORDERED_S = Index(5, "by_text", 1, ("s",), "ordered")
HASHED_K = Index(6, "by_hash", 1, ("k",), "hash")
ALL = (ORDERED_K, HASHED_S, HASHED_KS, ORDERED_F, ORDERED_S)


def point(value: Any) -> Range:
    return Range(value, True, value, True)


def equal(column: str, *values: Any) -> Condition:
    return Condition(column, tuple(map(point, values)))


def block_of(rows: list[tuple[Any, ...]], indexes: tuple[Index, ...] = ALL) -> Block:
    return make_block(0, 1, make_batch(rows), indexes, "ts")


@pytest.fixture
def table() -> Table:
    return make_table(indexes=ALL)


@pytest.fixture
def block() -> Block:
    """A thousand rows: ``k`` has 10 of each of its values, ``s`` 500, ``f`` 100."""
    return block_of([(NOW_US + n, n % 100, str(n % 2), float(n % 10)) for n in range(1_000)])


def names(ways: tuple[Any, ...]) -> list[str]:
    return [way.name for way in ways]


def test_ways_are_the_indices_that_conditions_can_use(table: Table) -> None:
    assert names(ways_of(table, [])) == []
    assert names(ways_of(table, [equal("k", 1)])) == ["by_k"]
    assert names(ways_of(table, [equal("s", "1")])) == ["by_s", "by_text"]
    assert names(ways_of(table, [equal("s", "1"), equal("k", 1)])) == [
        *("by_ks", "by_k", "by_s", "by_text")
    ]
    above = Condition("s", (Range("1", False),))
    assert names(ways_of(table, [above, equal("k", 1)])) == ["by_k", "by_text"]
    lists = [equal("k", 1, 2), equal("s", "0", "1")]  # a hash takes one list
    assert "by_ks" not in names(ways_of(table, lists))


def test_the_fewest_rows_win(table: Table, block: Block) -> None:
    ways = ways_of(table, [equal("k", 3), Condition("f", (Range(3.0, True, 3.0, True),))])
    chosen = fewest(ways, block)
    assert chosen is not None
    assert (chosen[0].name, chosen[1].count) == ("by_k", 10)
    assert sorted(chosen[1].take()) == list(range(3, 1_000, 100))
    # the other way round where the other value is the rarer one
    rare = block_of([(NOW_US + n, 3, "", 1.0 if n < 700 else float(n)) for n in range(1_000)])
    ways = ways_of(table, [equal("k", 3), Condition("f", (Range(2.0, True, None, True),))])
    chosen = fewest(ways, rare)
    assert chosen is not None
    assert (chosen[0].name, chosen[1].count) == ("by_f", 300)


def test_with_few_rows_no_other_index_is_asked(table: Table, block: Block) -> None:
    asked: list[str] = []
    ways = ways_of(table, [equal("k", 3), equal("s", "1")])
    fewest(ways, block, lambda way, _: asked.append(way.name))
    assert asked == ["by_ks"]
    asked.clear()
    ways = ways_of(table, [equal("s", "1"), Condition("f", (Range(None, True, 4.0, False),))])
    fewest(ways, block, lambda way, _: asked.append(way.name))
    assert asked == ["by_s", "by_text", "by_f"]


def test_a_block_without_a_directory_has_no_way(table: Table) -> None:
    bare = block_of([(NOW_US, 1, "", 0.0)], ())
    assert fewest(ways_of(table, [equal("k", 1)]), bare) is None


@pytest.mark.parametrize("index", [ORDERED_K, HASHED_K])
def test_many_numbers_are_searched_for_in_one_go(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "KEY_ROWS", 8)
    table = make_table(indexes=(index,))
    block = block_of([(NOW_US + n, n % 500, "", 0.0) for n in range(1_000)], (index,))
    wanted = [*range(0, 90, 3), 77, 999, -1, 2**70]
    (way,) = ways_of(table, [equal("k", *wanted)])
    assert isinstance(way, IndexWay)
    assert way.words is not None
    runs = way.find(block)
    assert runs is not None
    expected = [n for n in range(1_000) if n % 500 in wanted]
    assert (sorted(runs.take()), runs.count) == (expected, len(expected))
    nothing = ways_of(table, [equal("k", *range(1_000, 1_050))])[0].find(block)
    assert nothing is not None
    assert (nothing.count, len(nothing.take())) == (0, 0)


def test_too_many_keys_are_not_looked_up(table: Table, block: Block) -> None:
    many = equal("k", *range(choice.LONE_KEYS + 1))  # too few rows for so many
    assert ways_of(table, [many])[0].find(block) is None
    texts = equal("s", *map(str, range(choice.LONE_KEYS + 1)))
    by_text = next(way for way in ways_of(table, [texts]) if way.name == "by_text")
    assert by_text.find(block) is None  # texts are searched for one by one


def test_an_or_joins_the_rows_of_its_branches(table: Table, block: Block) -> None:
    either = (Branch(conditions=(equal("k", 3),)), Branch(conditions=(equal("f", 3.0),)))
    (way,) = ways_of(table, [], [either])
    assert isinstance(way, EitherWay)
    assert way.name == "by_k or by_f"
    runs = way.find(block)
    assert runs is not None
    assert sorted(runs.take()) == [n for n in range(1_000) if n % 100 == 3 or n % 10 == 3]


def test_a_branch_that_no_index_answers_opens_the_whole_or(table: Table) -> None:
    either = (Branch(conditions=(equal("k", 3),)), Branch(conditions=(equal("ts", 3),)))
    assert ways_of(table, [], [either]) == ()
    timed = (either[0], Branch(low_us=NOW_US + 990))
    assert len(ways_of(table, [], [timed])) == 1


@pytest.mark.parametrize("is_ordered", [True, False])
def test_branches_with_spans_of_time(table: Table, is_ordered: bool) -> None:
    order = np.arange(1_000) if is_ordered else np.random.default_rng(1).permutation(1_000)
    rows = [(NOW_US + int(n), int(n) % 100, "", 0.0) for n in order]
    block = block_of(rows)
    assert block.is_ordered == is_ordered
    either = (
        Branch(low_us=NOW_US + 500, conditions=(equal("k", 3),)),
        Branch(high_us=NOW_US + 4),
        Branch(low_us=NOW_US + 5_000, conditions=(equal("k", 4),)),
    )
    (way,) = ways_of(table, [], [either])
    runs = way.find(block)
    assert runs is not None
    expected = {n for n in range(1_000) if n <= 4 or (n >= 500 and n % 100 == 3)}
    assert {int(order[row]) for row in runs.take()} == expected


VALUES = st.integers(-2, 6)


@st.composite
def branches(draw: st.DrawFn, depth: int = 2) -> Branch:
    conditions = []
    for column, of in (("k", VALUES), ("f", VALUES.map(float))):
        if draw(st.booleans()):
            given = draw(st.lists(of, min_size=1, max_size=20))
            conditions.append(equal(column, *given))
    low, high = (draw(st.none() | st.integers(0, 60)) for _ in range(2))
    inner = draw(st.lists(alternatives(depth - 1), max_size=1)) if depth else []
    ends = [None if end is None else NOW_US + end for end in (low, high)]
    return Branch(ends[0], ends[1], tuple(conditions), tuple(inner))


def alternatives(depth: int) -> st.SearchStrategy[tuple[Branch, ...]]:
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
    return all(any(holds(b, row) for b in either) for either in branch.alternatives)


@settings(max_examples=150, deadline=None, database=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.none() | VALUES, st.none() | VALUES.map(float)),
        min_size=1,
        max_size=200,
    ),
    branches(),
)
def test_no_way_misses_a_row(values: list[tuple[Any, ...]], wanted: Branch) -> None:
    rows = [(NOW_US + at, k, "x", f) for at, k, f in values]
    block = block_of(rows)
    table = make_table(indexes=ALL)
    for way in ways_of(table, wanted.conditions, wanted.alternatives):
        runs = way.find(block)
        if runs is None:
            continue
        found = runs.take()
        assert len(set(found.tolist())) == len(found) <= max(runs.count, len(found))
        missed = [n for n, row in enumerate(rows) if holds(wanted, row) and n not in found]
        assert not missed
