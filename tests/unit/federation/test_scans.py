"""What is asked of a table in the terms of its indices and of its files."""

from __future__ import annotations

import datetime as dt

from tidemill.catalog.model import STREAMING, Index, Table
from tidemill.clock import to_us
from tidemill.federation.scans import KEYS_MAX, AskedBranch, wanted_of
from tidemill.history.ranges import FileBranch, RangeCondition
from tidemill.hot.values import Range
from tidemill.hot.wanted import Branch, Condition, Wanted
from tidemill.stream.file_ranges import alternatives_of, ranges_of
from tidemill.types import Column, SqlType

DAY = dt.datetime(2024, 1, 1)
DAY_US = to_us(DAY)
TABLE = Table(
    table_id=1,
    name="t",
    kind=STREAMING,
    columns=(
        Column("ts", SqlType("TIMESTAMP"), False),
        Column("k", SqlType("BIGINT")),
        Column("s", SqlType("VARCHAR")),
        Column("plain", SqlType("INTEGER")),
    ),
    primary_key=(),
    time_column="ts",
    watermark_delay_us=None,
    given_settings={},
    indexes=(Index(1, "by_k", 1, ("k",), "ordered"), Index(2, "by_s", 1, ("s",), "hash")),
    created_at_us=0,
)


def one(column: str, value: object, op: str = "=") -> AskedBranch:
    return AskedBranch(((column, op, (value,)),))


def point(column: str, *values: object) -> Condition:
    return Condition(column, tuple(Range(value, True, value, True) for value in values))


def test_conditions_and_a_span() -> None:
    asked = AskedBranch(
        (("k", "in", (1, 2, None)), ("ts", ">", (DAY,)), ("plain", "=", (3,)), ("s", "=", ("x",)))
    )
    assert wanted_of(TABLE, asked, True) == Wanted(
        DAY_US + 1, None, (point("k", 1, 2), point("s", "x")), True
    )


def test_alternatives_keep_their_branches() -> None:
    inner = AskedBranch((("s", "=", ("x",)),), ((one("k", 5), one("ts", DAY, "<")),))
    wanted = wanted_of(TABLE, AskedBranch((), ((one("k", 1), inner),)), False, 7)
    nested = (Branch(conditions=(point("k", 5),)), Branch(high_us=DAY_US - 1))
    assert wanted == Wanted(
        newest=7,
        alternatives=(
            (
                Branch(conditions=(point("k", 1),)),
                Branch(conditions=(point("s", "x"),), alternatives=(nested,)),
            ),
        ),
    )


def test_a_branch_of_which_nothing_can_be_used_opens_the_or() -> None:
    for other in (one("plain", 3), one("k", "text"), one("k", 1.5), AskedBranch(())):
        assert wanted_of(TABLE, AskedBranch((), ((one("k", 1), other),)), False) == Wanted()


def test_the_spans_of_all_branches_bound_the_scan() -> None:
    later = AskedBranch((("k", "=", (1,)), ("ts", ">=", (DAY + dt.timedelta(hours=2),))))
    both = wanted_of(TABLE, AskedBranch((), ((later, one("ts", DAY)),)), False)
    assert (both.low_us, both.high_us) == (DAY_US, None)
    closed = wanted_of(TABLE, AskedBranch((), ((later, one("k", 2)),)), False)
    assert (closed.low_us, closed.high_us) == (None, None)


def test_a_list_that_is_too_long_is_not_asked() -> None:
    asked = AskedBranch((("k", "in", tuple(range(KEYS_MAX + 1))),))
    assert wanted_of(TABLE, asked, False) == Wanted()


def test_the_same_for_files() -> None:
    either = (
        Branch(1, 2, (point("k", 5),)),
        Branch(alternatives=((Branch(high_us=9), Branch(conditions=(point("s", "x"),))),)),
    )
    five, text = RangeCondition("k", ((5, True, 5, True),)), (("x", True, "x", True),)
    assert ranges_of([point("k", 5)]) == (five,)
    assert alternatives_of([either]) == (
        (
            FileBranch(1, 2, (five,)),
            FileBranch(
                alternatives=(
                    (FileBranch(high_us=9), FileBranch(None, None, (RangeCondition("s", text),))),
                )
            ),
        ),
    )
