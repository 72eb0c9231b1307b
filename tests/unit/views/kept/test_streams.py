"""The common clock of a query's streams, and where their next row stands."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from catalog_tables import snapshot_of
from kept_kit import OTHER, TIME, FakeEnvironment, S, definition

from tidemill.clock import DATETIME_US_MAX, from_us, to_us
from tidemill.errors import QueryError
from tidemill.sql.statements import Slide
from tidemill.types import Column, SqlType
from tidemill.views.kept.definition import Definition, StreamBegin
from tidemill.views.kept.streams import Streams, moment, parameter, with_time

BOTH = Definition(
    "SELECT 1 FROM s, o",
    Slide(every_us=1),
    (StreamBegin(1, "s", 0), StreamBegin(2, "o", 0)),
    ("s", "o"),
    None,
)
ZONED = Column("ts", SqlType("TIMESTAMP WITH TIME ZONE"))


def clock_us(*clocks: int | None) -> int | None:
    known = dict(zip((1, 2), clocks, strict=True))
    return Streams(FakeEnvironment(), BOTH, lambda table: known[table.table_id]).clock_us()


def test_the_clock_is_what_all_have_passed() -> None:
    assert clock_us(30, 20) == 20
    assert clock_us(30, None) is None


def test_a_stream_that_was_dropped_is_an_error() -> None:
    environment = FakeEnvironment(snapshot=snapshot_of(S))
    assert Streams(environment, definition("SELECT 1 FROM s"), lambda _: 1).tables() == [S]
    with pytest.raises(QueryError, match='stream "o" of the query was dropped'):
        Streams(environment, BOTH, lambda _: 1).tables()


class Rows(FakeEnvironment):
    """A stream that is asked for its first row of a span."""

    def __init__(self, *times: int) -> None:
        super().__init__(self._first)
        self.times = times
        self.spans: list[tuple[int, int]] = []

    def _first(self, at_us: int | None, params: Mapping[str, Any]) -> pa.Table:
        low, high = to_us(params["tm_lo"]), to_us(params["tm_hi"])
        self.spans.append((low, high))
        found = [us for us in self.times if low < us <= high]
        value = None if not found else from_us(min(found))
        return pa.table({"min": pa.array([value], pa.timestamp("us"))})


def test_the_first_row_is_looked_for_in_growing_steps() -> None:
    environment = Rows(500)
    streams = Streams(environment, definition("SELECT 1 FROM s"), lambda _: 1)
    assert streams.first_us(100, 10_000, 50) == 500
    assert environment.spans == [(100, 150), (150, 250), (250, 450), (450, 850)]


def test_and_not_behind_the_end() -> None:
    environment = Rows(500)
    streams = Streams(environment, definition("SELECT 1 FROM s"), lambda _: 1)
    assert streams.first_us(100, 400, 200) is None
    assert environment.spans == [(100, 300), (300, 400)]
    assert streams.first_us(500, 500, 200) is None


def test_without_a_beginning_all_is_looked_at_once() -> None:
    environment = Rows(500, 300)
    streams = Streams(environment, definition("SELECT 1 FROM s"), lambda _: 1)
    assert streams.first_us(None, 10_000, 50) == 300
    assert len(environment.spans) == 1


def test_times_as_values_of_a_column() -> None:
    assert moment(0, TIME) == datetime(1970, 1, 1)
    assert moment(0, ZONED) == datetime(1970, 1, 1, tzinfo=UTC)
    assert moment(2**62, TIME) == from_us(DATETIME_US_MAX)
    assert parameter("tm_lo", OTHER.columns[1]).sql("duckdb") == "CAST($tm_lo AS INT)"


def test_answers_get_the_time_of_their_instant() -> None:
    made = with_time(pa.table({"n": [1, 2]}), 7, "ts", TIME)
    assert made.column_names == ["ts", "n"]
    assert made.column("ts").cast(pa.int64()).to_pylist() == [7, 7]
