"""EXPLAIN of indices: what was looked up in which, and why the others were not."""

from __future__ import annotations

import pyarrow as pa
import pytest
from catalog_tables import stream

from tidemill.catalog.model import Index
from tidemill.federation.driving import JoinRead
from tidemill.federation.explain_indexes import index_lines, join_lines, ranges_text, span_text
from tidemill.federation.plan import JoinedKey
from tidemill.hot.choice import BranchWay, EitherWay, IndexWay
from tidemill.hot.picking import Use
from tidemill.hot.values import Range
from tidemill.hot.view import Selection
from tidemill.hot.wanted import Condition, Wanted

TABLE = stream(
    1,
    "s",
    {"ts": "TIMESTAMP", "k": "BIGINT", "name": "VARCHAR"},
    indexes={"k": "ordered", "name": "hash"},
)
BY_K, BY_NAME = TABLE.indexes


def point(*values: object) -> tuple[Range, ...]:
    return tuple(Range(value, True, value, True) for value in values)


def way(index: Index, *values: object) -> IndexWay:
    return IndexWay(index, (Condition(index.columns[0], point(*values)),))


def selection(*uses: Use, rows: int = 1_000, rows_read: int = 10) -> Selection:
    return Selection(pa.table({}), None, 4, 4, 4, rows, rows_read, uses)


def lines(found: Selection, *conditions: Condition, is_asked: bool = True) -> list[str]:
    return list(index_lines(TABLE, Wanted(conditions=conditions), found, is_asked))


def test_the_index_that_found_the_rows_comes_first() -> None:
    asked = Condition("k", point(7))
    found = lines(selection(Use(way(BY_K, 7), 4, 12, 4, 0)), asked)
    assert found == [
        "  value index by_k: k = 7 -> 12 rows",
        "  not used: by_name (nothing is asked of name that it can answer)",
    ]


def test_a_single_row_is_one_row() -> None:
    (first, _) = lines(selection(Use(way(BY_K, 7), 4, 1, 4, 0)), Condition("k", point(7)))
    assert first.endswith("-> 1 row")


def test_an_index_of_too_many_rows_says_so() -> None:
    conditions = Condition("k", point(7)), Condition("name", point("a"))
    other = Use(way(BY_NAME, "a"), 4, 900, 0, 0)
    assert lines(selection(other, rows_read=1_000), *conditions) == [
        "  no index helps: every row is read",
        "  not used: by_k (it answers for one list of values alone), "
        "by_name (name = 'a' has 900 of 1,000 rows: to read whole blocks is cheaper)",
    ]
    beside = lines(selection(Use(way(BY_K, 7), 4, 12, 4, 0), other), *conditions)
    assert beside[-1] == "  not used: by_name (name = 'a' has 900 rows)"


def test_lookups_that_cost_more_than_reading() -> None:
    found = lines(selection(Use(way(BY_K, 7), 0, 0, 0, 4)), Condition("k", point(7)))
    assert "k = 7: to read whole blocks is cheaper than so many lookups" in found[-1]


def test_of_a_table_that_nothing_is_asked_of_nothing_is_said() -> None:
    assert lines(selection(), is_asked=False) == []


def test_both_sides_of_an_or() -> None:
    either = EitherWay(
        (BranchWay(None, None, (way(BY_K, 1),)), BranchWay(0, 1_000_000, (way(BY_NAME, "a"),)))
    )
    found = lines(selection(Use(either, 4, 5, 4, 0)))
    assert found == [
        "  value indices by_k or by_name: k = 1 or (name = 'a' and time in "
        "[1970-01-01 00:00:00, 1970-01-01 00:00:01]) -> 5 rows"
    ]


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        (point(1), "= 1"),
        (point(1, 2), "in (1, 2)"),
        (point(*range(7)), "in (0, 1, 2, 3, 4, … 7 values)"),
        ((Range(1, True, 5, False),), ">= 1 and < 5"),
        ((Range(low=1, low_included=False),), "> 1"),
        ((Range(high="b"),), "<= 'b'"),
    ],
)
def test_ranges_as_text(ranges: tuple[Range, ...], text: str) -> None:
    assert ranges_text(ranges) == text


def test_spans_of_time_may_be_open_or_out_of_reach() -> None:
    assert span_text(None, 0) == "[…, 1970-01-01 00:00:00]"
    assert span_text(-(2**62), None) == f"[{-(2**62)} µs, …]"


def test_tables_that_were_read_first() -> None:
    lookups = (JoinedKey("tm_scan_0", "k", "vid"), JoinedKey("tm_scan_0", "name", "n"))
    read = JoinRead("cars", lookups, 1)
    late = JoinRead("roads", lookups[:1], None, "it has more than 1,000 rows")
    assert list(join_lines("tm_scan_0", [read, late])) == [
        "  join with cars: 1 row read first, k and name looked up",
        "  join with roads: not read first, it has more than 1,000 rows",
    ]
    assert list(join_lines("tm_scan_1", [read, late])) == []
