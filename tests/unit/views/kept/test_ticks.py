"""EVERY INTERVAL: which ticks are due, what they are asked, and how gaps are passed over."""

from __future__ import annotations

import pyarrow as pa
import pytest
from kept_kit import KEPT, SNAPSHOT, TIME, FakeEnvironment, FakeStreams, body, counted, definition

from tidemill.views.kept import ticks as module
from tidemill.views.kept.ledger import Ledger
from tidemill.views.kept.ticks import Ticks, tick_query

EVERY_US = 10
COUNT = "SELECT count(*) AS n FROM s"
RECENT = "SELECT k FROM RECENT(s, INTERVAL '20' MICROSECOND)"


def make(
    environment: FakeEnvironment,
    streams: FakeStreams,
    text: str = COUNT,
    clock_us: int | None = None,
) -> Ticks:
    kept = definition(text, clock_us, every_us=EVERY_US)
    return Ticks(kept, environment, streams, Ledger(environment, KEPT, "kept:9"), TIME)  # type: ignore[arg-type]


def run(ticks: Ticks) -> None:
    while ticks.step():
        pass


# -- the query


def test_a_stream_is_read_up_to_the_tick() -> None:
    query, reach_us = tick_query(body(COUNT), SNAPSHOT)
    text = query.sql("duckdb")
    assert '"ts" <= CAST(CURRENT_TIMESTAMP AS TIMESTAMP)' in text
    assert reach_us is None


def test_a_window_ends_at_the_tick_by_itself() -> None:
    query, reach_us = tick_query(body(RECENT), SNAPSHOT)
    assert "CURRENT_TIMESTAMP" not in query.sql("duckdb")
    assert reach_us == 20


@pytest.mark.parametrize(
    "text", ["SELECT k FROM RECENT(s, rows => 3)", f"{RECENT} UNION ALL SELECT k FROM o"]
)
def test_windows_that_do_not_end_have_no_reach(text: str) -> None:
    assert tick_query(body(text), SNAPSHOT)[1] is None


# -- which ticks


def test_a_tick_is_due_once_the_clock_has_passed_it() -> None:
    environment, streams = FakeEnvironment(), FakeStreams(20, (5,))
    ticks = make(environment, streams, clock_us=5)
    run(ticks)
    assert environment.asked == [10]  # the clock stands at 20: rows of that time may still come
    streams.clock = 31
    run(ticks)
    assert environment.asked == [10, 20, 30]
    assert (ticks.last_us, ticks.complete_us) == (30, 40)
    assert streams.settled == 3


def test_answers_have_the_ticks_time() -> None:
    environment = FakeEnvironment()
    run(make(environment, FakeStreams(11, (5,)), clock_us=5))
    ((_, rows),) = environment.stored
    assert rows.column_names == ["ts", "n"]
    assert rows.column("ts").cast(pa.int64()).to_pylist() == [10]


def test_the_first_tick_is_behind_the_first_row_if_there_was_none() -> None:
    environment, streams = FakeEnvironment(), FakeStreams(25)
    ticks = make(environment, streams)
    assert not ticks.step()
    assert (ticks.last_us, ticks.complete_us) == (None, 30)
    streams.times, streams.clock = (31,), 51
    run(ticks)
    assert environment.asked == [40, 50]


def test_without_a_clock_nothing_is_due() -> None:
    environment = FakeEnvironment()
    assert not make(environment, FakeStreams(None, (5,)), clock_us=5).step()
    assert environment.asked == []


def test_a_restart_goes_on_behind_the_last_answer() -> None:
    environment, streams = FakeEnvironment(), FakeStreams(31, (5,))
    run(make(environment, streams, clock_us=5))
    streams.clock = 51
    run(make(environment, streams, clock_us=5))
    assert environment.asked == [10, 20, 30, 40, 50]


# -- gaps


def test_a_gap_without_answers_is_skipped() -> None:
    """Windows of 20: three ticks behind the last row they are empty."""
    environment = FakeEnvironment(lambda at_us, _: counted(1) if (at_us or 0) <= 20 else counted())
    ticks = make(environment, FakeStreams(10_001, (5, 9_995)), RECENT, clock_us=5)
    run(ticks)
    assert environment.asked[:4] == [10, 20, 30, 40]
    assert environment.asked[-1] == 10_000
    assert len(environment.asked) < 10
    assert ticks.notice is None


def test_a_query_that_answers_all_the_same_is_evaluated_so_often_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "GAP_TICKS_MAX", 50)
    environment = FakeEnvironment()
    ticks = make(environment, FakeStreams(10_001, (5, 9_995)), clock_us=5)
    run(ticks)
    assert len(environment.asked) == 52
    assert ticks.notice == "948 ticks without new rows were skipped"
