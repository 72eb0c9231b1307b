"""EMIT ON WINDOW CLOSE: which windows close, one by one or many at once."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest
from kept_kit import KEPT, SNAPSHOT, TIME, FakeEnvironment, FakeStreams, body, counted, definition

from tidemill.clock import to_us
from tidemill.errors import UnsupportedError
from tidemill.views.kept.closes import Closes, close_query, grid_of
from tidemill.views.kept.ledger import Ledger
from tidemill.views.kept.reads import reads_of

TUMBLE = "SELECT count(*) AS n FROM TUMBLE(s, ts, INTERVAL '10' MICROSECOND) GROUP BY window_start"
HOP = "SELECT k FROM HOP(s, ts, INTERVAL '5' MICROSECOND, INTERVAL '10' MICROSECOND)"
LIMITED = "SELECT k FROM TUMBLE(s, ts, INTERVAL '10' MICROSECOND) ORDER BY k LIMIT 1"


def make(
    environment: FakeEnvironment, streams: FakeStreams, text: str = TUMBLE, clock_us: int | None = 0
) -> Closes:
    kept = definition(text, clock_us, on_close=True)
    ledger = Ledger(environment, KEPT, "kept:9")
    return Closes(kept, environment, streams, ledger, TIME, False)  # type: ignore[arg-type]


def run(closes: Closes) -> None:
    while closes.step():
        pass


class Asked(FakeEnvironment):
    """Answers one row, and notes which windows were asked for, by their starts."""

    def __init__(self) -> None:
        super().__init__(self._note)
        self.spans: list[tuple[int, int]] = []

    def _note(self, at_us: int | None, params: Mapping[str, object]) -> pa.Table:
        low, high = params["tm_lo"], params["tm_hi"]
        self.spans.append((to_us(low), to_us(high)))  # type: ignore[arg-type]
        return counted(1)


# -- the grid


@pytest.mark.parametrize(("text", "grid"), [(TUMBLE, (10, 10)), (HOP, (5, 10))])
def test_the_slide_and_the_size(text: str, grid: tuple[int, int]) -> None:
    assert grid_of(reads_of(body(text), SNAPSHOT)) == grid


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT k FROM s", '"s" has none here'),
        ("SELECT k FROM RECENT(s, INTERVAL '1' HOUR)", '"s" has none here'),
        (f"{HOP} UNION ALL SELECT k FROM TUMBLE(s, ts, INTERVAL '10' MICROSECOND)", "different"),
    ],
)
def test_windows_that_do_not_close_together_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        grid_of(reads_of(body(text), SNAPSHOT))


def test_which_queries_answer_many_windows_at_once() -> None:
    assert close_query(body(TUMBLE), SNAPSHOT, own_time=False)[1] is not None
    assert close_query(body(LIMITED), SNAPSHOT, own_time=False)[1] is None
    single, _ = close_query(body(TUMBLE), SNAPSHOT, own_time=False)
    assert all(f"$tm_{name}" in single.sql("duckdb") for name in ("lo", "hi", "end"))


# -- which windows


def test_a_window_closes_when_the_clock_reaches_its_end() -> None:
    environment, streams = Asked(), FakeStreams(9, (3,))
    closes = make(environment, streams)
    run(closes)
    assert environment.spans == []
    streams.clock = 10
    run(closes)
    assert environment.spans == [(0, 0)]
    assert (closes.last_us, closes.complete_us) == (10, 20)


def test_windows_that_closed_before_are_not_answered() -> None:
    environment = Asked()
    run(make(environment, FakeStreams(45, (3, 25)), clock_us=25))
    assert environment.spans == [(20, 30)]


def test_windows_that_close_together_are_one_evaluation_if_they_can_be() -> None:
    environment = Asked()
    run(make(environment, FakeStreams(40, (3, 13, 23))))
    assert environment.spans == [(0, 30)]
    assert environment.asked == [10]
    one_by_one = Asked()
    run(make(one_by_one, FakeStreams(40, (3, 13, 23)), LIMITED))
    assert one_by_one.spans == [(0, 0), (10, 10), (20, 20)]
    assert one_by_one.asked == [10, 20, 30]


def test_answers_of_a_single_window_have_its_end_as_their_time() -> None:
    environment = Asked()
    run(make(environment, FakeStreams(10, (3,)), LIMITED))
    ((_, rows),) = environment.stored
    assert rows.column("ts").cast(pa.int64()).to_pylist() == [10]


def test_time_without_rows_is_skipped() -> None:
    environment = Asked()
    run(make(environment, FakeStreams(100_000, (3, 99_993)), LIMITED))
    assert environment.spans == [(0, 0), (99_990, 99_990)]


def test_before_the_first_row_what_has_closed_is_complete() -> None:
    closes = make(Asked(), FakeStreams(25), clock_us=None)
    assert not closes.step()
    assert (closes.last_us, closes.complete_us) == (None, 30)


def test_without_a_clock_nothing_closes() -> None:
    assert not make(Asked(), FakeStreams(None, (3,))).step()
