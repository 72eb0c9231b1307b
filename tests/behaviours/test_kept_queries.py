"""Kept continuous queries: whatever happens meanwhile, each instant is answered once and rightly.

Answers are compared with a recomputation in Python. Between the rows, the warehouse is closed and
opened again, copied as a killed process would leave it, and its rows are moved to history.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from warehouses import copy_warehouse, flush, open_inline, quiet

from tidemill.clock import FakeClock
from tidemill.engine import Database
from tidemill.errors import TidemillError
from tidemill.views import continuous
from tidemill.views.kept import every_row, holding, ledger, ticks

START = datetime(2024, 1, 1)
Row = tuple[Any, ...]
POSITIONS = (
    "CREATE STREAMING TABLE p (ts TIMESTAMP, vid INTEGER, spd INTEGER, xway INTEGER, dir INTEGER,"
    " seg INTEGER, pos INTEGER{watermark}) WITH (clock = 'event', max_future = 'forever',"
    " partition = '1 hour')"
)
DELAY = ", WATERMARK FOR ts AS ts - INTERVAL '20' SECOND"

# Document 002, Table I (c) to (e).
STOPPED = (
    "CREATE STREAMING TABLE stopped AS SELECT vid, xway, dir, seg, pos"
    " FROM RECENT(p, rows => 4, partition_by => vid)"
    " WHERE spd = 0 AND PREV(spd) = 0 AND PREV(spd, 2) = 0 AND PREV(spd, 3) = 0 EVERY ROW"
)
SEG_STAT = (
    "CREATE STREAMING TABLE segstat WITH (retention = '5 minutes') AS"
    " SELECT xway, dir, seg, avg(spd) AS lav, count(DISTINCT vid) AS cars"
    " FROM RECENT(p, INTERVAL '1' MINUTE) GROUP BY xway, dir, seg EVERY INTERVAL '1' MINUTE"
)
CROSSINGS = (
    "CREATE STREAMING TABLE crossings AS SELECT vid, PREV(seg) AS was, seg"
    " FROM RECENT(p, rows => 2, partition_by => vid) WHERE seg <> PREV(seg) EVERY ROW"
)


@pytest.fixture(autouse=True)
def nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Queries are evaluated when a test says so, and only then."""
    monkeypatch.setattr(continuous.KeptQueries, "start", continuous.KeptQueries.follow)
    with quiet():
        yield


def second(number: float) -> datetime:
    return START + timedelta(seconds=number)


def drive(count: int, cars: int = 3, step_s: int = 30) -> list[Row]:
    """Position reports: car 1 stops for a while; the others cross segments."""
    made = []
    for number in range(count):
        for car in range(1, cars + 1):
            is_stopped = car == 1 and number % 12 > 5
            seg = car if is_stopped else car + number // (2 + car)
            row = (0 if is_stopped else 40 + car, 0, car % 2, seg, 100 * seg)
            made.append((second(step_s * number), car, *row))
    return made


def answers(db: Database, table: str, columns: str = "*") -> Counter[Row]:
    return Counter(db.sql(f"SELECT {columns} FROM {table}").fetchall())


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with closing(open_inline(tmp_path / "w")) as db:
        yield db


# -- what the answers are


def stops(reports: list[Row]) -> Counter[Row]:
    """In order of arrival: the last four reports of the car, this one among them, stood still."""
    found: Counter[Row] = Counter()
    for at, report in enumerate(reports):
        own = _before(reports, at, 4)
        if len(own) == 4 and all(each[2] == 0 for each in own):
            found[(report[0], report[1], *own[-1][3:])] += 1
    return found


def crossings(reports: list[Row]) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for at, report in enumerate(reports):
        own = _before(reports, at, 2)
        if len(own) == 2 and own[0][5] != own[1][5]:
            found[(report[0], report[1], own[0][5], own[1][5])] += 1
    return found


def _before(reports: list[Row], at: int, count: int) -> list[Row]:
    """The newest reports of a car that came before one of it and are not younger."""
    report = reports[at]
    own = [
        (each[0], number, each)
        for number, each in enumerate(reports[: at + 1])
        if each[1] == report[1] and each[0] <= report[0]
    ]
    return [each for _, _, each in sorted(own, key=lambda one: one[:2])[-count:]]


def statistics(reports: list[Row], until: datetime) -> Counter[Row]:
    """For each minute that is over, the segments of the reports of that minute."""
    found: Counter[Row] = Counter()
    tick = _ceil(min(each[0] for each in reports))
    while tick < until:
        groups: dict[Row, list[Row]] = {}
        for each in reports:
            if tick - timedelta(minutes=1) <= each[0] <= tick:
                groups.setdefault((each[3], each[4], each[5]), []).append(each)
        for key, group in groups.items():
            speed = sum(each[2] for each in group) / len(group)
            found[(tick, *key, speed, len({each[1] for each in group}))] += 1
        tick += timedelta(minutes=1)
    return found


def _ceil(moment: datetime) -> datetime:
    rest = (moment - START) % timedelta(minutes=1)
    return moment if not rest else moment + timedelta(minutes=1) - rest


def test_linear_road(db: Database) -> None:
    db.sql(POSITIONS.format(watermark=""))
    for text in (STOPPED, SEG_STAT, CROSSINGS):
        db.sql(text)
    reports = drive(40)
    for start in range(0, len(reports), 7):
        db.append("p", reports[start : start + 7])
        db._kept.catch_up()
    assert answers(db, "stopped") == stops(reports)
    assert answers(db, "crossings") == crossings(reports)
    found = statistics(reports, reports[-1][0])
    since = max(each[0] for each in found) - timedelta(minutes=5)  # the retention of the answers
    assert answers(db, "segstat") == Counter(each for each in found if each[0] >= since)
    assert db.sql("SELECT count(*) FROM stopped").fetchall() != [(0,)]
    settings = db.catalog.snapshot().get("segstat").settings
    assert settings.text("retention") == "5 minutes"


def test_linear_road_tolls(db: Database) -> None:
    """Table I (h): a query over the answers of another one and a reference table."""
    db.sql(POSITIONS.format(watermark=""))
    db.sql("CREATE TABLE criticalsegs (seg INTEGER)")
    db.sql("INSERT INTO criticalsegs VALUES (3), (4)")
    db.sql(SEG_STAT)
    db.sql(
        "CREATE STREAMING TABLE jams AS SELECT seg, min(lav) AS slowest FROM RECENT(segstat,"
        " INTERVAL '2' MINUTE) JOIN criticalsegs USING (seg) GROUP BY seg"
        " EVERY INTERVAL '1' MINUTE"
    )
    reports = drive(40)
    db.append("p", reports)
    db._kept.catch_up()
    stats = statistics(reports, reports[-1][0])
    wanted: Counter[Row] = Counter()
    for tick in {each[0] for each in stats}:
        near = [each for each in stats if tick - timedelta(minutes=2) <= each[0] <= tick]
        for seg in (3, 4):
            speeds = [each[4] for each in near if each[3] == seg]
            if speeds:
                wanted[(tick, seg, min(speeds))] += 1
    assert answers(db, "jams") == wanted


# -- retention, as of each instant

AS_OF = {
    "stopped": STOPPED,
    "crossings": CROSSINGS,
    "segstat": SEG_STAT.replace("WITH (retention = '5 minutes') ", ""),
    "near": "CREATE STREAMING TABLE near AS SELECT vid, count(*) AS n"
    " FROM RECENT(p, INTERVAL '10' MINUTE) GROUP BY vid EVERY ROW",
    "newest": "CREATE STREAMING TABLE newest AS SELECT vid, count(*) AS n"
    " FROM RECENT(p, rows => 12, partition_by => vid) GROUP BY vid EVERY ROW",
    "all_told": "CREATE STREAMING TABLE all_told AS SELECT count(*) AS n FROM p"
    " EVERY INTERVAL '1' MINUTE",
    "minutes": "CREATE STREAMING TABLE minutes AS SELECT seg, count(*) AS n"
    " FROM TUMBLE(p, ts, INTERVAL '1' MINUTE) GROUP BY seg EMIT ON WINDOW CLOSE",
    "long": "CREATE STREAMING TABLE long AS SELECT count(*) AS n"
    " FROM TUMBLE(p, ts, INTERVAL '5' MINUTE) EMIT ON WINDOW CLOSE",
    "met": "CREATE STREAMING TABLE met AS SELECT p.vid, q.x FROM p JOIN q ON q.vid = p.vid"
    " EVERY ROW",
}


@pytest.mark.parametrize("way", ["at once", "moved", "opened again", "moved, opened again"])
def test_a_query_that_is_behind_sees_what_was_inside_the_retention_then(
    tmp_path: Path, way: str
) -> None:
    """Rows that are outside by the time the query is evaluated were inside when they came."""
    reports = drive(40)
    partners = [(second(20 * n), n % 3 + 1, n) for n in range(70)]
    wanted: dict[str, Counter[Row]] = {}
    for is_behind in (False, True):
        db = open_inline(tmp_path / f"w{is_behind}")
        _make_as_of(db)
        db.append("q", partners)
        for start in range(0, len(reports), 7):
            db.append("p", reports[start : start + 7])
            if not is_behind:
                db._kept.catch_up()
        if is_behind and "moved" in way:
            flush(db, "p")
            flush(db, "q")
        if is_behind and "opened" in way:
            db.close()
            db = open_inline(tmp_path / f"w{is_behind}")
        with closing(db):
            db._kept.catch_up()
            for name in AS_OF:
                found = answers(db, name)
                assert found == wanted.setdefault(name, found), name
    assert wanted["near"] == _near(reports, timedelta(minutes=3))
    assert wanted["newest"] == _own(reports, timedelta(minutes=3), 12)
    assert wanted["met"] == _met(reports, partners, timedelta(minutes=2))
    assert max(each[1] for each in wanted["long"]) == 3 * 6  # at most three minutes of five


def _make_as_of(db: Database) -> None:
    db.sql(POSITIONS.format(watermark=""))
    db.sql("ALTER TABLE p SET (retention = '3 minutes')")
    db.sql(
        "CREATE STREAMING TABLE q (ts TIMESTAMP, vid INTEGER, x INTEGER)"
        " WITH (clock = 'event', max_future = 'forever', retention = '2 minutes')"
    )
    for text in AS_OF.values():
        db.sql(text)


def _near(reports: list[Row], span: timedelta) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for at, report in enumerate(reports):
        seen = [r for r in reports[: at + 1] if report[0] - span <= r[0] <= report[0]]
        for vid, n in Counter(each[1] for each in seen).items():
            found[(report[0], vid, n)] += 1
    return found


def _own(reports: list[Row], span: timedelta, count: int) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for at, report in enumerate(reports):
        own = [r for r in _before(reports, at, count) if r[0] >= report[0] - span]
        found[(report[0], report[1], len(own))] += 1
    return found


def _met(reports: list[Row], partners: list[Row], span: timedelta) -> Counter[Row]:
    return Counter(
        (report[0], report[1], partner[2])
        for report in reports
        for partner in partners
        if partner[1] == report[1] and report[0] - span <= partner[0] <= report[0]
    )


# -- exactly once, whatever happens

MIXED = (
    STOPPED,
    CROSSINGS,
    SEG_STAT.replace("WITH (retention = '5 minutes') ", ""),
    "CREATE STREAMING TABLE slow AS SELECT p.*, name FROM p JOIN cars USING (vid) WHERE spd < 42"
    " EVERY ROW",
    "CREATE STREAMING TABLE minutes AS SELECT seg, count(*) AS n FROM TUMBLE(p, ts, INTERVAL '1'"
    " MINUTE) GROUP BY seg EMIT ON WINDOW CLOSE",
)


def make_mixed(db: Database) -> None:
    db.sql(POSITIONS.format(watermark=DELAY))
    db.sql("CREATE TABLE cars (vid INTEGER, name VARCHAR)")
    db.sql("INSERT INTO cars VALUES (1, 'one'), (2, 'two')")
    for text in MIXED:
        db.sql(text)


def check_mixed(db: Database, reports: list[Row]) -> None:
    clock = max(each[0] for each in reports) - timedelta(seconds=20)
    assert answers(db, "stopped") == stops(reports)
    assert answers(db, "crossings") == crossings(reports)
    assert answers(db, "segstat") == statistics(reports, clock)
    names = {1: "one", 2: "two"}
    slow = Counter((*each, names[each[1]]) for each in reports if each[1] in names and each[2] < 42)
    assert answers(db, "slow") == slow
    minutes: Counter[Row] = Counter()
    for each in reports:
        end = _floor(each[0]) + timedelta(minutes=1)
        if end <= clock:
            minutes[(end, each[5])] += 1
    assert answers(db, "minutes") == Counter((*key, n) for key, n in minutes.items())


def _floor(moment: datetime) -> datetime:
    return moment - (moment - START) % timedelta(minutes=1)


@pytest.mark.parametrize("seed", range(6))
def test_answers_are_there_once_whatever_happens(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_ = random.Random(seed)
    monkeypatch.setattr(holding, "PIECE_ROWS", 20)
    monkeypatch.setattr(every_row, "BATCH_ROWS", random_.choice([5, 40, 1_000]))
    monkeypatch.setattr(ledger, "NOTE_EVERY_S", random_.choice([0.0, 1e6]))
    place = tmp_path / "w0"
    db = open_inline(place)
    try:
        make_mixed(db)
        reports: list[Row] = []
        ordered = drive(30)
        while ordered:
            count = random_.randrange(1, 20)
            batch, ordered = ordered[:count], ordered[count:]
            late = [
                (each[0] - timedelta(seconds=random_.randrange(15)), *each[1:]) for each in batch
            ]
            batch = late if random_.random() < 0.5 else batch
            db.append("p", batch)
            reports += batch
            event = random_.random()
            if event < 0.5:
                db._kept.catch_up()
            elif event < 0.65:
                flush(db, random_.choice(["p", "p", "stopped", "slow", "segstat", "minutes"]))
            elif event < 0.8:
                db.close()
                db = open_inline(place)
            else:  # as if it were killed now
                copy = tmp_path / f"w{len(reports)}"
                copy_warehouse(place, copy)
                db.close()
                place = copy
                db = open_inline(place)
        db._kept.catch_up()
        check_mixed(db, reports)
        assert db._kept.catch_up() == 0
    finally:
        db.close()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_death_at_the_append_of_answers(when: str, tmp_path: Path) -> None:
    """The warehouse as a killed process leaves it, before and after answers are logged."""
    place, copies = tmp_path / "w", []
    reports = drive(7)
    with closing(open_inline(place)) as db:
        make_mixed(db)
        db.append("p", reports)
        store = db._kept._environment._append

        def append(*given: Any) -> object:
            def copy() -> None:
                copies.append(tmp_path / f"copy{len(copies)}")
                copy_warehouse(place, copies[-1])

            if when == "before":
                copy()
            result = store(*given)
            if when == "after":
                copy()
            return result

        db._kept._environment._append = append
        db._kept.catch_up()
    assert len(copies) > 5
    for copy in copies[:: len(copies) // 4]:
        with closing(open_inline(copy)) as db:
            db._kept.catch_up()
            check_mixed(db, reports)


def test_progress_without_answers_is_noted(tmp_path: Path) -> None:
    place = tmp_path / "w"
    with closing(open_inline(place)) as db:
        db.sql(POSITIONS.format(watermark=""))
        db.sql("CREATE STREAMING TABLE none AS SELECT vid FROM p WHERE spd > 999 EVERY ROW")
        db.append("p", drive(10))
        db._kept.catch_up()
    with closing(open_inline(place)) as db:
        assert db._kept.catch_up() == 0
        assert db.sql("SELECT count(*) FROM none").fetchall() == [(0,)]


def test_loaded_rows_are_answered(tmp_path: Path, db: Database) -> None:
    db.sql(POSITIONS.format(watermark=""))
    reports = drive(12)
    db.append("p", reports[:9])
    file = tmp_path / "old.parquet"
    db.sql(f"COPY (SELECT * FROM p) TO '{file}'")
    db.sql("CREATE STREAMING TABLE seen AS SELECT vid, pos FROM p EVERY ROW")
    db.sql(CROSSINGS)
    for name in ("a", "b"):
        shutil.copy(file, tmp_path / f"load_{name}.parquet")
    db.sql(f"COPY p FROM '{tmp_path}/load_*.parquet' (FORMAT parquet)")
    db.append("p", reports[9:])
    db._kept.catch_up()
    arrived = [*reports[:9], *reports[:9], *reports[9:]]
    assert answers(db, "seen") == Counter((each[0], each[1], each[6]) for each in arrived)
    assert db._kept.catch_up() == 0


# -- windows and slides, one by one


def test_the_first_tick_is_behind_the_clock(db: Database) -> None:
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, x INTEGER) WITH (clock = 'event')")
    db.append("t", [(second(5), 1), (second(65), 2)])
    db.sql("CREATE STREAMING TABLE s AS SELECT count(*) AS n FROM t EVERY INTERVAL '1' MINUTE")
    db.append("t", [(second(185), 3)])
    db._kept.catch_up()
    assert db.sql("SELECT * FROM s ORDER BY ts").fetchall() == [(second(120), 2), (second(180), 2)]


def test_a_row_on_the_minute_is_in_the_windows_of_two_minutes(db: Database) -> None:
    """RECENT has both its ends (document 002, Def. 2), wherever it is read; TUMBLE has one."""
    recent = "SELECT count(*) AS n FROM RECENT(t, INTERVAL '1' MINUTE)"
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, x INTEGER) WITH (clock = 'event')")
    db.sql(f"CREATE STREAMING TABLE s AS {recent} EVERY INTERVAL '1' MINUTE")
    db.sql(f"CREATE MATERIALIZED VIEW v AS {recent}")
    db.sql(
        "CREATE STREAMING TABLE w AS SELECT count(*) AS n FROM TUMBLE(t, ts, INTERVAL '1' MINUTE) "
        "GROUP BY window_start EMIT ON WINDOW CLOSE"
    )
    db.append("t", [(second(30), 1), (second(60), 2), (second(119), 3)])
    for at in (120, 121):
        db.append("t", [(second(at), at)])
        for _ in range(2):
            for query in (recent, "SELECT * FROM v"):
                assert db.sql(query).fetchall() == [
                    (3,)
                ]  # at 120: 60, 119, 120; at 121: 119, 120, 121
            db.sql("FLUSH t")
    db._kept.catch_up()
    assert db.sql("SELECT * FROM s ORDER BY ts").fetchall() == [(second(60), 2), (second(120), 3)]
    assert db.sql("SELECT * FROM w ORDER BY ts").fetchall() == [(second(60), 1), (second(120), 2)]


def test_a_tick_is_due_when_all_streams_passed_it(db: Database) -> None:
    for name in ("a", "b"):
        db.sql(f"CREATE STREAMING TABLE {name} (ts TIMESTAMP, x INTEGER) WITH (clock = 'event')")
    db.sql(
        "CREATE STREAMING TABLE pairs AS SELECT a.x, b.x AS y FROM RECENT(a, INTERVAL '10' SECOND)"
        " AS a JOIN RECENT(b, INTERVAL '10' SECOND) AS b ON a.x = b.x EVERY INTERVAL '10' SECOND"
    )
    db.append("a", [(second(8), 1), (second(25), 2)])
    assert db._kept.catch_up() == 0
    db.append("b", [(second(9), 1), (second(10), 9)])
    assert db._kept.catch_up() == 0  # more rows of that second may come
    db.append("b", [(second(11), 2)])
    db._kept.catch_up()
    assert db.sql("SELECT * FROM pairs").fetchall() == [(second(10), 1, 1)]


def test_rows_behind_the_tick_do_not_count(db: Database) -> None:
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, x INTEGER) WITH (clock = 'event')")
    db.sql(
        "CREATE STREAMING TABLE s AS SELECT count(*) AS n, max(x) AS newest, now()::TIMESTAMP AS at"
        " FROM t EVERY INTERVAL '10' SECOND"
    )
    db.append("t", [(second(n), n) for n in (3, 10, 11, 25)])
    db._kept.catch_up()
    found = db.sql("SELECT * FROM s ORDER BY ts").fetchall()
    assert found == [(second(10), 2, 10, second(10)), (second(20), 3, 11, second(20))]


def test_streams_with_the_machines_clock(tmp_path: Path) -> None:
    clock = FakeClock(second(3))
    with closing(open_inline(tmp_path / "w", clock)) as db:
        db.sql("CREATE STREAMING TABLE t (ts TIMESTAMPTZ, x INTEGER)")
        db.sql(
            "CREATE STREAMING TABLE s AS SELECT count(*) AS n FROM RECENT(t, INTERVAL '10' SECOND)"
            " EVERY INTERVAL '10' SECOND"
        )
        db.append("t", [(second(2), 1)])
        assert db._kept.catch_up() == 0
        clock.set(second(31))
        db._kept.catch_up()
        found = db.sql("SELECT ts::TIMESTAMP, n FROM s ORDER BY ts").fetchall()
        assert found == [(second(10), 1), (second(20), 0), (second(30), 0)]


def test_gaps_are_skipped(db: Database) -> None:
    db.sql(
        "CREATE STREAMING TABLE t (ts TIMESTAMP, x INTEGER)"
        " WITH (clock = 'event', max_future = 'forever')"
    )
    db.sql(
        "CREATE STREAMING TABLE s AS SELECT x FROM RECENT(t, INTERVAL '3' SECOND)"
        " EVERY INTERVAL '1' SECOND"
    )
    day = 86_400
    db.append("t", [(second(1), 1), (second(300 * day), 2), (second(300 * day + 5), 3)])
    assert db._kept.catch_up() < 40
    found = db.sql("SELECT ts, x FROM s ORDER BY ALL").fetchall()
    first = [(second(n), 1) for n in (1, 2, 3, 4)]
    assert found == first + [(second(300 * day + n), 2) for n in (0, 1, 2, 3)]


def test_a_gap_that_has_answers_is_cut(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticks, "GAP_TICKS_MAX", 20)
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, x INTEGER) WITH (clock = 'event')")
    db.sql("CREATE STREAMING TABLE s AS SELECT count(*) AS n FROM t EVERY INTERVAL '1' SECOND")
    db.append("t", [(second(1), 1), (second(1_000_000), 2), (second(1_000_002), 3)])
    db._kept.catch_up()
    found = db.sql("SELECT * FROM s ORDER BY ts").fetchall()
    assert found[:2] == [(second(1), 1), (second(2), 1)]
    assert found[-2:] == [(second(1_000_000), 2), (second(1_000_001), 2)]
    assert len(found) < 60
    (status,) = db._kept.status()
    assert status.notice is not None
    assert "skipped" in status.notice


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMPTZ"])
def test_windows_close_once(kind: str, db: Database) -> None:
    db.sql(
        f"CREATE STREAMING TABLE t (ts {kind}, x INTEGER,"
        " WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)"
        " WITH (clock = 'event', late = 'accept')"
    )
    db.append("t", [(second(12), 1)])
    db.sql(
        "CREATE STREAMING TABLE s AS SELECT window_start, window_end AS ts, count(*) AS n"
        " FROM HOP(t, ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND)"
        " GROUP BY window_start, window_end EMIT ON WINDOW CLOSE"
    )
    db.append("t", [(second(13), 2), (second(24), 3)])
    db._kept.catch_up()
    assert db.sql("SELECT ts::TIMESTAMP, n FROM s ORDER BY ts").fetchall() == [(second(15), 2)]
    db.append("t", [(second(11), 4), (second(60), 5)])  # the first is late
    db._kept.catch_up()
    assert db.sql(
        "SELECT ts::TIMESTAMP, window_start::TIMESTAMP, n FROM s ORDER BY ts"
    ).fetchall() == [
        (second(15), second(5), 2),
        (second(20), second(10), 3),
        (second(25), second(15), 1),
        (second(30), second(20), 1),
    ]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT x, count(*) AS n FROM {w} GROUP BY x",
        "SELECT x, count(*) AS n FROM {w} GROUP BY x ORDER BY n DESC, x LIMIT 2",
        "SELECT count(*) AS n FROM {w} WHERE x > 1",
        "SELECT window_start, x FROM {w} WHERE x = 2",
        "WITH w AS (SELECT x, count(*) AS n FROM {w} GROUP BY x) SELECT max(n) AS m FROM w",
        "SELECT a.x FROM {w} AS a JOIN {w} AS b ON a.x = b.x + 1",
    ],
)
def test_closing_windows_answer_as_if_each_were_alone(query: str, db: Database) -> None:
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, x INTEGER) WITH (clock = 'event')")
    text = query.format(w="TUMBLE(t, ts, INTERVAL '10' SECOND)")
    db.sql(f"CREATE STREAMING TABLE s AS {text} EMIT ON WINDOW CLOSE")
    random_ = random.Random(7)
    given = [(second(n), random_.randrange(4)) for n in range(0, 200, 3) if not 60 < n < 120]
    for at in range(0, len(given), 9):
        db.append("t", given[at : at + 9])
        db._kept.catch_up()
    wanted: Counter[Row] = Counter()
    for end in range(10, 200, 10):
        alone = query.format(
            w="(SELECT *, TIMESTAMP '{}' AS window_start FROM t WHERE ts >= '{}'"
            " AND ts < '{}')".format(*map(second, (end - 10, end - 10, end)))
        )
        if any(second(end - 10) <= each[0] < second(end) for each in given):
            wanted.update((second(end), *each) for each in db.sql(alone).fetchall())
    assert answers(db, "s") == wanted


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ts, x * 2 AS y FROM t WHERE x > 1",
        "SELECT x, name FROM t JOIN names USING (x)",
        "SELECT name, (SELECT t.x FROM t) AS x FROM names",
        "WITH n AS (SELECT x, count(*) AS n FROM names GROUP BY x) SELECT x, n FROM t JOIN n"
        " USING (x)",
        "SELECT x FROM t WHERE x IN (SELECT DISTINCT x FROM names)",
        "SELECT x, count(*) AS n, max(ts) AS last FROM RECENT(t, rows => 3) GROUP BY x",
        "SELECT sum(x) AS total FROM RECENT(t, rows => 3)",
        "SELECT sum(x) AS total FROM RECENT(t, rows => 3) WHERE x > 1",
        "SELECT count(*) AS n, now()::TIMESTAMP AS at FROM RECENT(t, INTERVAL '7' SECOND)",
        "SELECT x FROM RECENT(t, rows => 4) ORDER BY x LIMIT 1",
    ],
)
def test_every_row_answers_as_if_it_were_the_last(query: str, db: Database) -> None:
    """One row after the other, or all at once: the answers are the same."""
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, x INTEGER) WITH (clock = 'event')")
    db.sql("CREATE TABLE names (x INTEGER, name VARCHAR)")
    db.sql("INSERT INTO names VALUES (1, 'one'), (2, 'two'), (2, 'zwei')")
    db.sql(f"CREATE STREAMING TABLE once AS {query} EVERY ROW")
    db.sql(f"CREATE STREAMING TABLE batches AS {query} EVERY ROW")
    random_ = random.Random(3)
    given = [(second(2 * n), random_.randrange(4)) for n in range(20)]
    kept = {each.table.name: each for each in db._kept._kept}
    wanted: Counter[Row] = Counter()
    for at, row in enumerate(given):
        db.append("t", [row])
        while kept["once"].step():
            pass
        if at % 7 == 6:
            while kept["batches"].step():
                pass
        if "RECENT" in query:  # what the query itself says now
            asked = query.replace("now()", f"TIMESTAMP '{row[0]}'")
            wanted.update((row[0], *each) for each in db.sql(asked).fetchall())
    db._kept.catch_up()
    assert answers(db, "once") == answers(db, "batches")
    if "RECENT" in query:
        assert answers(db, "once") == wanted
    assert answers(db, "once")


def test_answers_are_a_stream_like_any_other(db: Database) -> None:
    db.sql(POSITIONS.format(watermark=""))
    db.sql(CROSSINGS)
    db.sql("CREATE INDEX ON crossings (vid)")
    db.sql(
        "CREATE STREAMING TABLE second AS SELECT vid, seg FROM crossings WHERE vid = 2 EVERY ROW"
    )
    db.sql(
        "CREATE STREAMING TABLE third AS SELECT vid, count(*) AS n FROM RECENT(second, rows => 2,"
        " partition_by => vid) GROUP BY vid EVERY ROW"
    )
    reports = drive(20)
    db.append("p", reports)
    db._kept.catch_up()
    own = [key for key in crossings(reports) if key[1] == 2]
    assert answers(db, "second") == Counter((at, vid, seg) for at, vid, _, seg in own)
    assert answers(db, "third", "n") == Counter({(1,): 1, (2,): len(own) - 1})
    assert flush(db, "crossings") == sum(crossings(reports).values())
    assert answers(db, "crossings") == crossings(reports)


def test_views_are_read_at_ticks(db: Database) -> None:
    db.sql(POSITIONS.format(watermark=""))
    db.sql("CREATE MATERIALIZED VIEW totals AS SELECT seg, count(*) AS n FROM p GROUP BY seg")
    db.sql("CREATE STREAMING TABLE s AS SELECT seg, n FROM totals EVERY INTERVAL '1' MINUTE")
    with pytest.raises(TidemillError, match="is a view"):
        db.sql("CREATE STREAMING TABLE r AS SELECT seg, n FROM totals EVERY ROW")
    reports = drive(3, step_s=29)
    db.append("p", reports)
    db._kept.catch_up()
    first = db.sql("SELECT seg, n FROM totals").fetchall()
    db.append("p", [(second(61), 1, 0, 0, 0, 9, 0)])
    db._kept.catch_up()
    later = db.sql("SELECT seg, n FROM totals").fetchall()
    wanted = [(second(0), *each) for each in first] + [(second(60), *each) for each in later]
    assert answers(db, "s") == Counter(wanted)
    db.sql("CREATE MATERIALIZED VIEW most AS SELECT seg, max(n) AS n FROM s GROUP BY seg")
    assert answers(db, "most") == Counter(later)


def test_nobody_else_writes_answers(db: Database) -> None:
    db.sql(POSITIONS.format(watermark=""))
    db.sql(CROSSINGS)
    with pytest.raises(TidemillError):
        db.sql("INSERT INTO crossings VALUES (now(), 1, 2, 3)")
    with pytest.raises(TidemillError):
        db.append("crossings", [(START, 1, 2, 3)])


# -- what is refused

REFUSED = [
    ("SELECT 1 AS one EVERY ROW", "reads a stream"),
    ("SELECT count(*) FROM t EVERY ROW", "one row at a time"),
    ("SELECT DISTINCT x FROM t EVERY ROW", "one row at a time"),
    ("SELECT x FROM t LIMIT 3 EVERY ROW", "one row at a time"),
    ("SELECT x, PREV(x) AS y FROM t EVERY ROW", "one row at a time"),
    ("SELECT a.x FROM t AS a JOIN t AS b USING (x) EVERY ROW", "says no ON"),
    ("SELECT count(*) FROM TUMBLE(t, ts, INTERVAL '1' MINUTE) EVERY ROW", "row by row"),
    ("SELECT x FROM RECENT(t, INTERVAL '1' MINUTE) EMIT ON WINDOW CLOSE", "windows that close"),
    ("SELECT x FROM t EMIT ON WINDOW CLOSE", "windows that close"),
    (
        "SELECT a.x FROM TUMBLE(t, ts, INTERVAL '1' MINUTE) a JOIN TUMBLE(t, ts, INTERVAL '2'"
        " MINUTE) b USING (x) EMIT ON WINDOW CLOSE",
        "different times",
    ),
    (
        "SELECT window_end, count(*) AS n FROM SESSION(t, ts, INTERVAL '5' SECOND) GROUP BY"
        " window_end EMIT ON WINDOW CLOSE",
        "sessions",
    ),
    ("SELECT ts, x FROM RECENT(t, INTERVAL '1' MINUTE) EVERY INTERVAL '1' MINUTE", "the time of"),
    ("SELECT x AS ts FROM t EVERY ROW", "the time of"),
    ("SELECT y FROM t EVERY ROW", "y"),
    ("SELECT x FROM t JOIN tidemill.tables ON true EVERY ROW", "cannot read"),
    ("SELECT x FROM s EVERY ROW", "does not exist"),
]


@pytest.mark.parametrize(("query", "words"), REFUSED)
def test_what_cannot_be_kept_is_refused(query: str, words: str, db: Database) -> None:
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, x INTEGER)")
    with pytest.raises(TidemillError) as caught:
        db.sql(f"CREATE STREAMING TABLE s AS {query}")
    assert words in str(caught.value)
    assert db.catalog.snapshot().find("s") is None
    assert not db._kept.status()


# -- errors, and the thread


def test_a_failing_query_is_tried_again(db: Database) -> None:
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, x INTEGER) WITH (clock = 'event')")
    db.sql(
        "CREATE STREAMING TABLE bad AS SELECT ts, CAST('a' || x AS INTEGER) AS y FROM t EVERY ROW"
    )
    db.sql("CREATE STREAMING TABLE good AS SELECT ts, x FROM t EVERY ROW")
    db.append("t", [(second(1), 1)])
    with pytest.raises(TidemillError, match="a1"):
        db._kept.catch_up()
    bad, good = db._kept.status()
    assert bad.error is not None
    assert "a1" in bad.error
    assert (bad.rows_out, bad.lag_rows) == (0, 1)
    assert (good.error, good.rows_out, good.lag_rows) == (None, 1, 0)
    assert (good.kind, good.name, good.last_us) == ("kept", "good", 1_704_067_201_000_000)


def test_a_batch_that_failed_is_answered_as_if_it_had_not(db: Database) -> None:
    db.sql(POSITIONS.format(watermark=""))
    db.sql(STOPPED)
    reports = drive(40)
    store, failures = db._kept._environment._append, []

    def fail_at_first(*given: Any) -> object:
        if len(failures) % 2 == 0:
            failures.append(given)
            raise TidemillError("no room")
        failures.append(given)
        return store(*given)

    db._kept._environment._append = fail_at_first
    for at in range(0, len(reports), 3):
        db.append("p", reports[at : at + 3])
        with suppress(TidemillError):
            db._kept.catch_up()
        db._kept.catch_up()
    assert len(failures) > 3
    assert answers(db, "stopped") == stops(reports)


def test_a_stream_that_is_read_stays(db: Database) -> None:
    create = "CREATE OR REPLACE STREAMING TABLE t (ts TIMESTAMP, x INTEGER) WITH (clock = 'event')"
    db.sql(create)
    db.sql("CREATE STREAMING TABLE s AS SELECT x FROM t EVERY ROW")
    for text in (create, "DROP TABLE t"):
        with pytest.raises(TidemillError, match='read by "s"'):
            db.sql(text)
    db.sql("CREATE OR REPLACE STREAMING TABLE s AS SELECT x + 1 AS x FROM t EVERY ROW")
    db.append("t", [(second(1), 1)])
    db._kept.catch_up()
    assert db.sql("SELECT * FROM s").fetchall() == [(second(1), 2)]
    db.sql("DROP TABLE s")
    assert not db._kept.status()
    db.sql("DROP TABLE t")


def test_reference_tables_may_change(db: Database) -> None:
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, x INTEGER) WITH (clock = 'event')")
    db.sql("CREATE TABLE names (x INTEGER, name VARCHAR)")
    db.sql("INSERT INTO names VALUES (1, 'one')")
    db.sql("CREATE STREAMING TABLE s AS SELECT name FROM t JOIN names USING (x) EVERY ROW")
    db.append("t", [(second(1), 1)])
    db._kept.catch_up()
    db.sql("UPDATE names SET name = 'eins'")
    db.append("t", [(second(2), 1)])
    db._kept.catch_up()
    found = db.sql("SELECT name FROM s ORDER BY ts").fetchall()
    assert found == [("one",), ("eins",)]


class _Waited:
    """A hook that lets a test wait until something was stored."""

    def __init__(self, db: Database, done: Callable[[], bool]) -> None:
        self.event = threading.Event()
        store = db._kept._environment._append

        def append(*given: Any) -> object:
            result = store(*given)
            if done():
                self.event.set()
            return result

        db._kept._environment._append = append


def test_the_thread_follows_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with quiet(), closing(open_inline(tmp_path / "w")) as db:
        db.sql(POSITIONS.format(watermark=""))
        db.sql(CROSSINGS)
        db.sql("CREATE STREAMING TABLE third AS SELECT vid FROM crossings WHERE vid = 3 EVERY ROW")
        reports = drive(20)
        first = crossings(reports)
        wanted = Counter(key[:2] for key in first if key[1] == 3)
        waited = _Waited(
            db, lambda: answers(db, "third") == wanted and answers(db, "crossings") == first
        )
        for at in range(0, len(reports), 6):
            db.append("p", reports[at : at + 6])
        assert waited.event.wait(30)
    assert not any(thread.name.startswith("tidemill-kept") for thread in threading.enumerate())
