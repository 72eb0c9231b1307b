"""Windows of time as of each row, against a recomputation row by row."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tidemill.views.kept import time_windows
from tidemill.views.kept.tagging import ROW, TIME
from tidemill.views.kept.time_windows import TimeWindows

SIZE_US = 10


def rows_of(times: list[int], first: int = 0) -> pa.Table:
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "_seq": pa.array(range(first + 1, first + len(times) + 1), pa.int64()),
        }
    )


class Stream:
    """A stream that is asked for its rows of a time."""

    def __init__(self, times: list[int]) -> None:
        self.rows = rows_of(times)
        self.asked: list[tuple[int, int]] = []

    def read(self, low_us: int, high_us: int, seq: int, rows_max: int) -> pa.Table:
        self.asked.append((low_us, high_us))
        kept = [
            at
            for at, row in enumerate(self.rows.to_pylist())
            if row["_seq"] <= seq and low_us <= row["ts"].microsecond <= high_us
        ]
        return self.rows.take(pa.array(kept[:rows_max], pa.int64()))


def windows_of(stream: Stream, new: pa.Table) -> dict[int, list[int]]:
    """By row, the numbers of the rows in its window."""
    found: dict[int, list[int]] = {}
    for part, windows in TimeWindows("ts", SIZE_US, stream.read).of(new):
        assert windows is not None
        for seq in part.column("_seq").to_pylist():
            found[seq] = []
        for row in windows.to_pylist():
            found[row[ROW]].append(row["_seq"])
            assert row[TIME] == stream.rows.column("ts")[row[ROW] - 1].as_py()
    return found


def expected(times: list[int], seq: int) -> list[int]:
    own = times[seq - 1]
    inside = [
        (us, number) for number, us in enumerate(times[:seq], 1) if own - SIZE_US <= us <= own
    ]
    return [number for _, number in sorted(inside)]


@pytest.mark.parametrize("seed", range(8))
def test_a_window_holds_what_came_before_its_row(seed: int) -> None:
    rng = random.Random(seed)
    times = [max(0, at * 2 + rng.randrange(-12, 3)) for at in range(60)]
    stream = Stream(times)
    new = stream.rows.slice(20)
    found = windows_of(stream, new)
    assert found == {seq: expected(times, seq) for seq in range(21, 61)}


def test_a_late_row_does_not_have_everything_between_read() -> None:
    times = [1000, 1001, 5, 1002]
    stream = Stream(times)
    assert windows_of(stream, stream.rows) == {1: [1], 2: [1, 2], 3: [3], 4: [1, 2, 4]}
    assert stream.asked == [(990, 1001), (-5, 5), (992, 1002)]


def test_windows_that_are_too_large_are_left_to_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time_windows, "WINDOW_ROWS_MAX", 3)
    stream = Stream([1, 2, 3, 4, 5])
    found = list(TimeWindows("ts", SIZE_US, stream.read).of(stream.rows))
    assert [(part.num_rows, windows) for part, windows in found] == [(5, None)]


def test_rows_go_on_together_while_their_windows_are_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time_windows, "WINDOW_ROWS_MAX", 4)
    stream = Stream([1, 2, 30, 31])
    parts = [part.num_rows for part, _ in TimeWindows("ts", 5, stream.read).of(stream.rows)]
    assert sum(parts) == 4
    assert len(parts) >= 2
