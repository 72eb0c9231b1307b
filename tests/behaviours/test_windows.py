"""Windows over a real warehouse against a recomputation in plain Python, and the examples of 002.

The rows are random, some of them late; blocks are made small, so that the rows asked for lie in
many blocks and in the tail, or in files, or in both (the layouts of ``warehouses``); everything is
asked on each route, and of a table that was opened again.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from warehouses import LAYOUTS, ROUTES, fill, open_inline, quiet

from tidemill.clock import FakeClock

US = dt.timedelta(microseconds=1)
EPOCH = dt.datetime(1970, 1, 1)
NOW = dt.datetime(2024, 3, 1, 12)


@dataclass(frozen=True)
class Row:
    """A row of the model; ``seq`` is its place in arrival order."""

    ts: dt.datetime
    vid: int | None
    spd: int
    seq: int

    @property
    def values(self) -> tuple[Any, ...]:
        return self.ts, self.vid, self.spd


@dataclass
class Model:
    """What the table holds, and windows computed from the words of docs/sql.md."""

    rows: list[Row] = field(default_factory=list)
    seq: int = 0

    def add(self, ts: dt.datetime, vid: int | None, spd: int) -> None:
        self.seq += 1
        self.rows.append(Row(ts, vid, spd, self.seq))

    def newest_first(self) -> list[Row]:
        return sorted(self.rows, key=lambda row: (row.ts, row.seq), reverse=True)

    def tumble(self, size: dt.timedelta) -> list[tuple[Any, ...]]:
        starts = [(row, row.ts - (row.ts - EPOCH) % size) for row in self.rows]
        return [(*row.values, start, start + size) for row, start in starts]

    def hop(self, slide: dt.timedelta, size: dt.timedelta) -> list[tuple[Any, ...]]:
        found = []
        for row in self.rows:
            start = row.ts - (row.ts - EPOCH) % slide
            while start + size > row.ts:
                found.append((*row.values, start, start + size))
                start -= slide
        return found

    def sessions(self, gap: dt.timedelta, by_vid: bool) -> list[tuple[Any, ...]]:
        groups: dict[Any, list[Row]] = defaultdict(list)
        for row in sorted(self.rows, key=lambda row: (row.ts, row.seq)):
            groups[row.vid if by_vid else None].append(row)
        found = []
        for rows in groups.values():
            session = [rows[0]]
            for row in rows[1:]:
                if row.ts - session[-1].ts >= gap:
                    found += _closed(session, gap)
                    session = []
                session.append(row)
            found += _closed(session, gap)
        return found

    def recent(self, low: dt.datetime, high: dt.datetime) -> list[tuple[Any, ...]]:
        return [row.values for row in self.newest_first() if low <= row.ts <= high]

    def recent_rows(self, count: int, high: dt.datetime) -> list[tuple[Any, ...]]:
        return [row.values for row in self.newest_first() if row.ts <= high][:count]

    def recent_by_vid(self, count: int, high: dt.datetime) -> list[tuple[Any, ...]]:
        seen: Counter[int | None] = Counter()
        found = []
        for row in self.newest_first():
            if row.ts <= high:
                seen[row.vid] += 1
                found += [row.values] if seen[row.vid] <= count else []
        return found


def _closed(session: list[Row], gap: dt.timedelta) -> list[tuple[Any, ...]]:
    return [(*row.values, session[0].ts, session[-1].ts + gap) for row in session]


class Stream:
    """A table and its model, filled alike."""

    def __init__(self, path: Path, settings: str, layout: str, clock: FakeClock) -> None:
        self.path = path
        self.layout = layout
        self.clock = clock
        self.db = open_inline(path, self.clock)
        self.restarted = self.db
        self.model = Model()
        self.db.sql(
            "CREATE STREAMING TABLE s (ts TIMESTAMP, vid INT, spd INT, "
            f"WATERMARK FOR ts AS ts - INTERVAL '30' SECOND) WITH ({settings})"
        )
        self.db.sql("CREATE INDEX ON s (vid)")
        self.db.sql("CREATE INDEX ON s USING hash (spd)")

    def fill(self, rng: random.Random, count: int) -> None:
        batch: list[tuple[Any, ...]] = []
        batches = [batch]
        for number in range(count):
            moment = NOW - dt.timedelta(hours=2) + dt.timedelta(seconds=12 * number)
            if rng.random() < 0.15:
                moment -= dt.timedelta(seconds=rng.randrange(900))
            if rng.random() < 0.5:
                moment += rng.randrange(1_000_000) * US
            row = (moment, rng.choice((1, 2, 3, 4, None)), rng.randrange(5))
            self.model.add(*row)
            batch.append(row)
            if rng.random() < 0.2:
                batch = []
                batches.append(batch)
        fill(self.db, "s", batches, self.layout)

    def restart(self) -> None:
        self.db.close()
        self.db = open_inline(self.path, self.clock)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """The answer, which is the same on every route."""
        if self.layout == "hot":
            return self.db.sql(query).fetchall()
        answers = []
        for route in ROUTES:
            self.db.sql(f"SET route = '{route}'")
            answers.append(self.db.sql(query).fetchall())
        assert Counter(answers[0]) == Counter(answers[1])
        if "RECENT(" in query:
            assert answers[0] == answers[1]
        return answers[0]

    @property
    def newest(self) -> dt.datetime:
        return max(row.ts for row in self.model.rows)


MANNERS = [
    *(("event", layout) for layout in LAYOUTS),
    *(("wall", layout) for layout in ("hot", "split")),
]


@contextmanager
def opened(manner: tuple[str, str], path: Path, now: FakeClock | None = None) -> Iterator[Stream]:
    """A table of a clock whose rows lie as a layout says."""
    clock, layout = manner
    with quiet() as patch:
        patch.setattr("tidemill.hot.published.BLOCK_ROWS", 40)
        patch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 60)
        settings = (
            f"clock = '{clock}', durability = 'none', partition = '30 minutes', move = 'manual'"
        )
        made = Stream(path, settings, layout, now or FakeClock(NOW))
        try:
            made.fill(random.Random(11), 560)
            blocks = dict(made.ask("SELECT state, count(*) FROM tidemill.blocks GROUP BY 1"))
            assert blocks.keys() == (set() if layout == "history" else {"block", "tail"})
            yield made
        finally:
            made.db.close()


@pytest.fixture(scope="module", params=MANNERS, ids="-".join)
def stream(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stream]:
    """One table for all tests that only ask; who changes it takes one of its own."""
    folder = tmp_path_factory.mktemp("windows")
    with (
        opened(request.param, folder / "w") as made,
        opened(request.param, folder / "again", made.clock) as again,
    ):
        again.restart()
        made.restarted = again.db
        yield made


def twice(stream: Stream, check: Callable[[], None]) -> None:
    """In the table as it was filled, and in one filled alike and opened again."""
    check()
    filled, stream.db = stream.db, stream.restarted
    try:
        check()
    finally:
        stream.db = filled


def interval(span: dt.timedelta) -> str:
    return f"INTERVAL '{span // US} microseconds'"


SIZES = [dt.timedelta(seconds=7), dt.timedelta(minutes=1), dt.timedelta(days=1), 999_983 * US]


def test_tumble(stream: Stream) -> None:
    def check() -> None:
        for size in SIZES:
            found = stream.ask(f"SELECT * FROM TUMBLE(s, ts, {interval(size)})")
            assert Counter(found) == Counter(stream.model.tumble(size))

    twice(stream, check)


def test_tumble_filtered_and_grouped(stream: Stream) -> None:
    size = dt.timedelta(minutes=5)
    low, high = NOW - dt.timedelta(minutes=70), NOW - dt.timedelta(minutes=40)
    expected: Counter[Any] = Counter()
    for ts, vid, _, start, _ in stream.model.tumble(size):
        if vid == 2 and low <= ts < high:
            expected[start] += 1
    found = stream.ask(
        f"SELECT window_start, count(*) FROM TUMBLE(s, ts, {interval(size)}) "
        f"WHERE vid = 2 AND ts >= '{low}' AND ts < '{high}' GROUP BY 1"
    )
    assert dict(found) == dict(expected)


HOPS = [(60, 300), (60, 60), (40, 60), (90, 60), (7, 100)]


def test_hop(stream: Stream) -> None:
    def check() -> None:
        for slide_s, size_s in HOPS:
            slide, size = dt.timedelta(seconds=slide_s), dt.timedelta(seconds=size_s)
            found = stream.ask(f"SELECT * FROM HOP(s, ts, {interval(slide)}, {interval(size)})")
            assert Counter(found) == Counter(stream.model.hop(slide, size))

    twice(stream, check)


@pytest.mark.parametrize("by_vid", [False, True])
def test_session(stream: Stream, by_vid: bool) -> None:
    by = ", partition_by => vid" if by_vid else ""

    def check() -> None:
        for seconds in (5, 13, 60, 3_600):
            gap = dt.timedelta(seconds=seconds)
            found = stream.ask(f"SELECT * FROM SESSION(s, ts, {interval(gap)}{by})")
            assert Counter(found) == Counter(stream.model.sessions(gap, by_vid))

    twice(stream, check)


def test_session_filtered_by_its_partition(stream: Stream) -> None:
    gap = dt.timedelta(seconds=30)
    expected = [row for row in stream.model.sessions(gap, True) if row[1] == 3]
    query = f"SELECT * FROM SESSION(s, ts, {interval(gap)}, partition_by => vid) WHERE vid = 3"
    assert Counter(stream.ask(query)) == Counter(expected)


def bounds(stream: Stream) -> tuple[dt.datetime, dt.datetime]:
    """What RECENT calls now, and the newest time it believes."""
    if stream.ask("SELECT value FROM tidemill.settings WHERE name = 'clock'") == [("event",)]:
        return stream.newest, stream.newest
    now = EPOCH + stream.clock.now_us() * US
    return now, now + dt.timedelta(hours=1)


def test_recent_interval(stream: Stream) -> None:
    def check() -> None:
        now, upper = bounds(stream)
        for seconds in (1, 12, 300, 4_000, 10**6):
            span = dt.timedelta(seconds=seconds)
            found = stream.ask(f"SELECT * FROM RECENT(s, {interval(span)})")
            assert found == stream.model.recent(now - span, upper)

    twice(stream, check)
    stream.clock.advance(-3_000)
    try:
        twice(stream, check)
    finally:
        stream.clock.advance(3_000)


def test_recent_rows(stream: Stream) -> None:
    def check() -> None:
        _, upper = bounds(stream)
        for count in (1, 2, 39, 40, 41, 250, 10_000):
            found = stream.ask(f"SELECT * FROM RECENT(s, rows => {count})")
            assert found == stream.model.recent_rows(count, upper)

    twice(stream, check)


def test_recent_rows_by_key(stream: Stream) -> None:
    def check() -> None:
        _, upper = bounds(stream)
        for count in (1, 3, 1_000):
            query = f"SELECT * FROM RECENT(s, rows => {count}, partition_by => vid)"
            assert stream.ask(query) == stream.model.recent_by_vid(count, upper)

    twice(stream, check)


def test_conditions_apply_after_recent(stream: Stream) -> None:
    _, upper = bounds(stream)
    last = stream.model.recent_by_vid(2, upper)
    by_vid = "RECENT(s, rows => 2, partition_by => vid)"
    for where, holds in (
        ("spd = 3", lambda row: row[2] == 3),
        ("vid = 2", lambda row: row[1] == 2),
        ("vid IN (1, 3) AND spd < 4", lambda row: row[1] in (1, 3) and row[2] < 4),
    ):
        wanted = [row for row in last if holds(row)]
        assert stream.ask(f"SELECT * FROM {by_vid} WHERE {where}") == wanted
        newest = [row for row in stream.model.recent_rows(50, upper) if holds(row)]
        assert stream.ask(f"SELECT * FROM RECENT(s, rows => 50) WHERE {where}") == newest


@pytest.mark.parametrize("manner", MANNERS, ids="-".join)
def test_rows_that_arrive_move_the_windows(manner: tuple[str, str], tmp_path: Path) -> None:
    with opened(manner, tmp_path / "w") as stream:
        check_arrivals(stream)


def check_arrivals(stream: Stream) -> None:
    rng = random.Random(3)
    for _ in range(40 if stream.layout == "hot" else 8):
        moment = stream.newest + dt.timedelta(seconds=rng.randrange(-60, 20))
        row = (moment, rng.randrange(4), rng.randrange(5))
        stream.db.append("s", row)
        stream.model.add(*row)
        now, upper = bounds(stream)
        span = dt.timedelta(minutes=3)
        found = stream.ask(f"SELECT * FROM RECENT(s, {interval(span)})")
        assert found == stream.model.recent(now - span, upper)
        assert stream.ask("SELECT * FROM RECENT(s, rows => 3)") == stream.model.recent_rows(
            3, upper
        )


def test_windows_before_1970_and_with_a_zone(tmp_path: Path) -> None:
    with open_inline(tmp_path / "w", FakeClock(NOW)) as db:
        db.sql("CREATE STREAMING TABLE z (ts TIMESTAMPTZ, a INT)")
        db.sql(
            "INSERT INTO z VALUES ('1969-12-31 23:59:59.999999+00', 1), ('1970-01-01 00:00+00', 2)"
        )
        tumbled = db.sql("SELECT a, window_start FROM TUMBLE(z, ts, INTERVAL '1' HOUR) ORDER BY a")
        starts = [(a, start.isoformat()) for a, start in tumbled.fetchall()]
        assert starts == [(1, "1969-12-31T23:00:00+00:00"), (2, "1970-01-01T00:00:00+00:00")]
        hopped = db.sql(
            "SELECT a, count(*) FROM HOP(z, ts, INTERVAL '20' MINUTE, INTERVAL '1' HOUR) "
            "WHERE window_start < '1970-01-01' GROUP BY a ORDER BY a"
        )
        assert hopped.fetchall() == [(1, 3), (2, 2)]


def test_window_sizes_may_be_parameters(stream: Stream) -> None:
    size = dt.timedelta(minutes=2)
    for query, params in (
        ("SELECT * FROM TUMBLE(s, ts, $1)", [size]),
        ("SELECT * FROM TUMBLE(s, ts, :size)", {"size": size}),
        ("SELECT * FROM TUMBLE(s, ts, ?)", ["2 minutes"]),
    ):
        found = stream.db.sql(query, params).fetchall()
        assert Counter(found) == Counter(stream.model.tumble(size))
    _, upper = bounds(stream)
    for count in (3, 5):
        found = stream.db.sql("SELECT * FROM RECENT(s, rows => ?)", [count]).fetchall()
        assert found == stream.model.recent_rows(count, upper)


# Document 002, Figure 1: (vid, spd, xway, lane, dir, seg, pos, time). The converted figure lost
# the speed of the row at time 1; the answers in Fig. 1(c) say that the car did not stand then.
FIGURE_1 = [
    (1, 0, 0, 0, 0, 10, 53320, 0),
    (2, 32, 0, 0, 0, 10, 53320, 1),
    (2, 0, 0, 0, 0, 11, 53320, 3),
    (4, 0, 0, 0, 0, 11, 53320, 4),
    (4, 32, 0, 0, 0, 11, 53320, 6),
]


def at(seconds: int) -> dt.datetime:
    return NOW + dt.timedelta(seconds=seconds)


class Figure:
    def __init__(self, path: Path) -> None:
        self.clock = FakeClock(NOW)
        self.db = open_inline(path, self.clock)
        self.db.sql(
            "CREATE STREAMING TABLE pos_reports (vid INT, spd INT, xway INT, lane INT, dir INT, "
            "seg INT, pos INT, t TIMESTAMP) WITH (clock = 'wall', max_future = '1 us')"
        )
        self.loaded = -1

    def load_until(self, seconds: int) -> None:
        """Let time pass up to a moment, with the rows that come until then."""
        for row in FIGURE_1:
            if self.loaded < row[-1] <= seconds:
                self.clock.set(at(row[-1]))
                self.db.append("pos_reports", (*row[:-1], at(row[-1])))
        self.loaded = seconds
        self.clock.set(at(seconds))

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self.db.sql(query).fetchall()


@pytest.fixture
def figure(tmp_path: Path) -> Iterator[Figure]:
    made = Figure(tmp_path / "w")
    yield made
    made.db.close()


EXPLICIT = "vid, spd, xway, lane, dir, seg, pos"


def test_example_1_sliding_windows_at_time_7(figure: Figure) -> None:
    figure.load_until(7)
    query = f"SELECT {EXPLICIT} FROM RECENT(pos_reports, INTERVAL '3' SECOND)"
    assert figure.ask(query) == [(4, 32, 0, 0, 0, 11, 53320), (4, 0, 0, 0, 0, 11, 53320)]
    query = f"SELECT {EXPLICIT} FROM RECENT(pos_reports, rows => 3)"
    assert figure.ask(query) == [
        (4, 32, 0, 0, 0, 11, 53320),
        (4, 0, 0, 0, 0, 11, 53320),
        (2, 0, 0, 0, 0, 11, 53320),
    ]
    query = f"SELECT {EXPLICIT} FROM RECENT(pos_reports, rows => 1, partition_by => vid)"
    assert figure.ask(query) == [
        (4, 32, 0, 0, 0, 11, 53320),
        (2, 0, 0, 0, 0, 11, 53320),
        (1, 0, 0, 0, 0, 10, 53320),
    ]


def test_example_2_stopped_cars_once(figure: Figure) -> None:
    figure.load_until(7)
    assert figure.ask("SELECT * FROM pos_reports WHERE spd = 0 ORDER BY t") == [
        (1, 0, 0, 0, 0, 10, 53320, at(0)),
        (2, 0, 0, 0, 0, 11, 53320, at(3)),
        (4, 0, 0, 0, 0, 11, 53320, at(4)),
    ]


def test_example_2_stopped_cars_continuously(figure: Figure) -> None:
    """With slide 2 the query runs at 2, 4 and 6; at 5 the answer of 4 stands, at 7 that of 6."""
    query = f"SELECT {EXPLICIT} FROM RECENT(pos_reports, INTERVAL '4' SECOND) WHERE spd = 0"
    answers = {}
    for moment in (2, 4, 6):
        figure.load_until(moment)
        answers[moment] = figure.ask(query)
    assert answers[2] == [(1, 0, 0, 0, 0, 10, 53320)]
    assert answers[4] == [
        (4, 0, 0, 0, 0, 11, 53320),
        (2, 0, 0, 0, 0, 11, 53320),
        (1, 0, 0, 0, 0, 10, 53320),
    ]
    assert answers[6] == [(4, 0, 0, 0, 0, 11, 53320), (2, 0, 0, 0, 0, 11, 53320)]
