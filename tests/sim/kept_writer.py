"""The process that test_kept_crash kills: kept queries and views, while rows arrive.

It speaks as ``writer.py`` does. What a life does is told by where its death is to come:

- at a named point: one of the ``STEPS``, which can all be done again, and nothing happens by
  itself. The point's passes are counted when the warehouse is open.
- at random: batches of rows are appended, while the warehouse's own thread evaluates the queries
  and another one moves rows to history.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sim import writer as w

import tidemill
from tidemill.hot import crash
from tidemill.pipeline import backfill, keeping
from tidemill.views import continuous
from tidemill.views.kept import ledger

START = datetime(2024, 1, 1)
BATCHES = 60
BATCH_ROWS = 7
WRITER = 0
Row = tuple[Any, ...]

STREAM = (
    "CREATE STREAMING TABLE IF NOT EXISTS p (ts TIMESTAMP, k INTEGER, x BIGINT,"
    " WATERMARK FOR ts AS ts - INTERVAL '20' SECOND)"
    " WITH (clock = 'event', max_future = 'forever', partition = '1 minute', move = 'manual')"
)
# In the order in which they are made: some read the answers of others.
KEPT = {
    "seen": "SELECT ts, k, x FROM p WHERE x % 3 <> 0 EVERY ROW",
    "rises": "SELECT k, PREV(x) AS was, x FROM RECENT(p, rows => 3, partition_by => k)"
    " WHERE x > PREV(x) AND PREV(x) > PREV(x, 2) EVERY ROW",
    "ticks": "SELECT k, count(*) AS n, sum(x) AS total FROM RECENT(p, INTERVAL '15' SECOND)"
    " GROUP BY k EVERY INTERVAL '10' SECOND",
    "closes": "SELECT k, count(*) AS n, max(x) AS top FROM TUMBLE(p, ts, INTERVAL '10' SECOND)"
    " GROUP BY k EMIT ON WINDOW CLOSE",
    "pairs": "SELECT a.k, a.x, s.x AS y FROM p AS a JOIN seen AS s ON s.k = a.k AND s.ts BETWEEN"
    " a.ts AND a.ts + INTERVAL '5' SECOND EVERY ROW",
    "rare": "SELECT ts, k FROM p WHERE x = 100 EVERY ROW",
    "high": "SELECT k, n, total FROM ticks WHERE n > 2 EVERY ROW",
    "lately": "SELECT count(*) AS n, sum(x) AS total FROM RECENT(seen, INTERVAL '30' SECOND)"
    " EVERY INTERVAL '20' SECOND",
}
VIEWS = {
    "by_key": "SELECT k, count(*) AS n, sum(x) AS total, max(ts) AS newest FROM p GROUP BY k",
    "by_minute": "SELECT date_trunc('minute', ts) AS at_minute, list(x ORDER BY ts, x) AS xs"
    " FROM p GROUP BY 1",
    "of_ticks": "SELECT ts, sum(n) AS n, max(total) AS top FROM ticks GROUP BY ts",
}
# Joined below the grouping: each row keeps the name that its key had when it came.
NAMED = "SELECT n.name, count(*) AS n, sum(p.x) AS total FROM p JOIN names n USING (k) GROUP BY 1"
JOINED = "SELECT p.x, n.name FROM p JOIN names n USING (k) EVERY ROW"


def rows_of(batch: int) -> list[Row]:
    """Rows of a batch: their times rise, with some disorder; less than the watermark allows."""
    found = []
    for at in range(batch * BATCH_ROWS, (batch + 1) * BATCH_ROWS):
        late_s = 12 if at % 5 == 3 else 0
        x = (at * 7_919) % 101
        found.append((START + timedelta(seconds=2 * at - late_s), at % 4, x))
    return found


def open_warehouse(folder: str | Path) -> tidemill.Database:
    keeping.LOOK_EVERY_S = 1e6
    return tidemill.open(folder, threads=1, spark_master="inline", time_travel="1 second")


def append(db: tidemill.Database, batch: int) -> None:
    db.append("p", rows_of(batch), source="batches", offset=batch)


def keep(db: tidemill.Database, *names: str) -> None:
    for name in names:
        db.sql(f"CREATE STREAMING TABLE IF NOT EXISTS {name} AS {KEPT[name]}")


# -- one step after the other


def _appended(first: int, last: int) -> Callable[[tidemill.Database], None]:
    def step(db: tidemill.Database) -> None:
        for batch in range(first, last):
            append(db, batch)
        db._kept.catch_up()

    return step


def _ran(*texts: str) -> Callable[[tidemill.Database], None]:
    def step(db: tidemill.Database) -> None:
        for text in texts:
            db.sql(text)
        db._kept.catch_up()
        _settle(db)

    return step


def _made(*names: str) -> Callable[[tidemill.Database], None]:
    def step(db: tidemill.Database) -> None:
        keep(db, *names)

    return step


def _view(name: str, query: str) -> str:
    return f"CREATE MATERIALIZED VIEW IF NOT EXISTS {name} AS {query}"


def _look(db: tidemill.Database) -> None:
    db._views.look()
    _settle(db)


def _settle(db: tidemill.Database) -> None:
    """No job goes on behind a step's end."""
    for handle in db._views.completing.backfills.values():
        handle.wait()


STEPS: tuple[Callable[[tidemill.Database], None], ...] = (
    _ran(
        STREAM,
        "CREATE TABLE IF NOT EXISTS names (k INTEGER PRIMARY KEY, name VARCHAR)",
        "INSERT INTO names VALUES (0, 'a0'), (1, 'a1'), (2, 'a2') ON CONFLICT DO NOTHING",
    ),
    _made("seen", "rises", "ticks"),
    _appended(0, 2),
    _made("closes", "pairs", "rare", "high", "lately"),
    _ran(f"CREATE STREAMING TABLE IF NOT EXISTS joined AS {JOINED}", _view("named", NAMED)),
    _appended(2, 6),
    _ran("FLUSH p"),
    _appended(6, 12),
    _ran("UPDATE names SET name = 'b' || k"),  # seals
    _ran("FLUSH p", "FLUSH ticks"),
    _ran(*(_view(name, query) for name, query in VIEWS.items())),  # to be back-filled
    _appended(12, 14),
    _look,
    _ran("REFRESH MATERIALIZED VIEW by_key", "REFRESH MATERIALIZED VIEW by_minute"),
    _ran("UPDATE names SET name = 'c' || k"),
    _appended(14, 18),
    _ran(
        f"CREATE OR REPLACE MATERIALIZED VIEW by_key AS {VIEWS['by_key']} HAVING count(*) > 1",
        "REFRESH MATERIALIZED VIEW by_key",
    ),
    _ran("FLUSH"),
    _ran("DROP MATERIALIZED VIEW IF EXISTS by_key", _view("by_key", VIEWS["by_key"])),
    _ran(f"CREATE OR REPLACE STREAMING TABLE high AS {KEPT['high']}"),
    _appended(18, 22),
    _ran("REFRESH MATERIALIZED VIEW by_key"),
)


# -- all at once


def make_all(db: tidemill.Database) -> None:
    db.sql(STREAM)
    keep(db, *KEPT)
    for name, query in VIEWS.items():
        db.sql(_view(name, query))


def _live_at_once(db: tidemill.Database, first: int, say: Callable[[str], None]) -> None:
    make_all(db)

    def move() -> None:
        names = ("p", *KEPT)
        for number in range(10 * BATCHES):
            db.sql(f"FLUSH {names[number % len(names)]}")
            db._views.look()

    threading.Thread(target=move, daemon=True).start()
    for batch in range(first, BATCHES):
        append(db, batch)
        say(f"ack {WRITER} {batch}\n")
    threading.Event().wait()  # for death


def live(job: dict[str, Any]) -> None:
    threading.excepthook = w._fail
    (first,) = job["starts"].values()

    def say(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    say(f"pid {os.getpid()}\n")
    if job["crash_at"] is None:
        _live_at_once(open_warehouse(job["folder"]), first, say)
    else:
        nothing_by_itself()
        db = open_warehouse(job["folder"])
        os.environ["TIDEMILL_CRASH_AT"] = job["crash_at"]
        importlib.reload(crash)
        STEPS[first](db)


def nothing_by_itself() -> None:
    """Queries are evaluated by the steps alone; progress is noted often, back-fills are small."""
    continuous.KeptQueries.start = continuous.KeptQueries.follow  # type: ignore[method-assign]
    ledger.NOTE_EVERY_S = 0.0
    backfill.JOB_BYTES = 1


if __name__ == "__main__":
    w.live = live
    w.main()
