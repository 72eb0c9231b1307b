"""The process that test_views_crash kills: the writers of ``writer.py``, with views attached.

One more thread changes a reference table, makes a view anew, so that it is being back-filled when
death comes, and reads them in turn.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sim import writer as w

import tidemill
from tidemill.hot import tier

STREAMS = ("synced", "diverted", "short", "loaded")
VIEWS = {
    **{
        f"{name}_counts": "SELECT writer, count(*) AS n, sum(id) AS ids, max(batch) AS batch "
        f"FROM {name} GROUP BY writer"
        for name in STREAMS
    },
    "synced_minutes": "SELECT date_trunc('minute', ts) AS at_minute, arg_max(note, id) AS newest, "
    "count(DISTINCT word) AS words FROM synced GROUP BY 1",
    "short_recent": "SELECT count(*) AS n, sum(id) AS ids FROM RECENT(short, INTERVAL '45' SECOND)",
    "loaded_best": "SELECT id, batch FROM loaded ORDER BY id DESC, writer LIMIT 5",
    "paired": "SELECT x.writer, x.n, y.m FROM synced_counts x FULL JOIN (SELECT writer % 2 AS w, "
    "count(*) AS m FROM loaded GROUP BY 1) y ON x.writer = y.w",
}
# Joined below the grouping: each row keeps the version that was there when it came.
VERSIONED = {
    f"{name}_versions": "SELECT v.version, count(*) AS n, sum(s.id) AS ids "
    f"FROM {name} s, versions v GROUP BY 1"
    for name in ("batched", "loaded", "short")
}
CHANGED = "SELECT writer, count(*) AS n FROM batched WHERE id % {} = 0 GROUP BY writer"
ROUNDS_MAX = 500
_open = w.open_warehouse


def open_warehouse(folder: str) -> tidemill.Database:
    """With the views that miss."""
    db = _open(folder)
    db.sql("CREATE TABLE IF NOT EXISTS versions (version INT)")
    if not db.sql("SELECT * FROM versions").rowcount:
        db.sql("INSERT INTO versions VALUES (0)")
    for name, query in {**VIEWS, **VERSIONED}.items():
        db.sql(f"CREATE MATERIALIZED VIEW IF NOT EXISTS {name} AS {query}")
    return db


def _disturb(db: tidemill.Database) -> None:
    """Change what rows are joined with, replace a view, read the views in turn."""
    names = (*VIEWS, *VERSIONED)
    for number in range(ROUNDS_MAX):
        if number % 3 == 0:
            db.sql("UPDATE versions SET version = version + 1")
        elif number % 3 == 1:
            text = CHANGED.format(number % 5 + 1)
            db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW changed AS {text}")
        else:
            db._views.look()
        db.sql(f"SELECT * FROM {names[number % len(names)]}")


def _tend_and_disturb(db: tidemill.Database, pace: w.Pace) -> None:
    look = db._keeping.look

    def expire_and_look() -> None:
        for hot in db._hot.values():
            hot.expire()
        look()

    # Retention takes its turn with the moves: one of them fails when a segment goes that it reads.
    tier.EXPIRE_EVERY_S = 1e9
    db._keeping.look = expire_and_look  # type: ignore[method-assign]
    threading.Thread(target=_disturb, args=(db,), daemon=True).start()
    _tend(db, pace)


_tend = w._tend

if __name__ == "__main__":
    w.open_warehouse, w._tend = open_warehouse, _tend_and_disturb
    w.main()
