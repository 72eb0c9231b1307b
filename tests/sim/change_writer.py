"""A process that appends, changes and moves rows of a stream until it is killed; and what its rows
must be after so many steps. Step ``n`` of a seed is always the same."""

from __future__ import annotations

import datetime as dt
import random
import sys
from pathlib import Path

NOON = dt.datetime(2024, 3, 1, 12)
KEYS = 5
Rows = dict[int, tuple[dt.datetime, int, int]]
KINDS = ("append",) * 5 + ("update", "add", "delete", "correct", "merge") * 2 + ("flush", "look")
CREATE = (
    "CREATE STREAMING TABLE t (ts TIMESTAMP, id INT, k INT, v INT) "
    "WITH (clock = 'event', move = 'manual', partition = '10 minutes', changes = '{}')"
)


def step(seed: int, number: int, rows: Rows) -> tuple[str, object]:
    """What step ``number`` does: its text with parameters or its rows. ``rows`` become what they
    are after it."""
    rng = random.Random(f"{seed} {number}")
    kind = rng.choice(KINDS)
    k, v, moment = rng.randrange(KEYS), rng.randrange(100), _moment(rng)
    if kind == "append" or not rows:
        new = {number * 10 + at: (_moment(rng), rng.randrange(KEYS), v) for at in range(6)}
        rows.update(new)
        return "append", [
            dict(zip(("ts", "id", "k", "v"), _row(i, r), strict=True)) for i, r in new.items()
        ]
    if kind == "update":
        _change(rows, lambda r: r[1] == k and r[0] < moment, lambda r: v)
        return "UPDATE t SET v = ? WHERE k = ? AND ts < ?", [v, k, moment]
    if kind == "add":
        _change(rows, lambda r: r[1] == k, lambda r: r[2] + 1)
        return "UPDATE t SET v = v + 1 WHERE k = ?", [k]
    if kind == "delete":
        for each in [i for i, r in rows.items() if r[1] == k and r[2] > 80]:
            del rows[each]
        return "DELETE FROM t WHERE k = ? AND v > 80", [k]
    if kind == "correct":
        chosen = rng.sample(sorted(rows), min(len(rows), 4))
        for each in chosen:
            rows[each] = (*rows[each][:2], v)
        return "correct", [{"id": each, "v": v} for each in chosen]
    if kind == "merge":
        first, second = rng.sample(sorted(rows), 2) if len(rows) > 1 else (-1, -2)
        new_id = number * 10
        if first in rows:
            rows[first] = (*rows[first][:2], 1_000)
            del rows[second]
        rows[new_id] = (moment, k, v)
        text = (
            f"MERGE INTO t USING (VALUES ({first}, 1), ({second}, 2), ({new_id}, 3)) AS s(id, a) "
            "ON t.id = s.id WHEN MATCHED AND s.a = 1 THEN UPDATE SET v = 1000 "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND s.a = 3 THEN "
            f"INSERT (ts, id, k, v) VALUES (TIMESTAMP '{moment}', s.id, {k}, {v})"
        )
        return text, None
    return ("FLUSH t", None) if kind == "flush" else ("SELECT sum(v), count(*) FROM t", None)


def _moment(rng: random.Random) -> dt.datetime:
    return NOON + dt.timedelta(seconds=rng.randrange(3_600))


def _row(number: int, row: tuple[dt.datetime, int, int]) -> tuple[object, ...]:
    return row[0], number, row[1], row[2]


def _change(rows: Rows, test, change) -> None:  # type: ignore[no-untyped-def]
    for each, row in rows.items():
        if test(row):
            rows[each] = (row[0], row[1], change(row))


def main(folder: str, seed: int, mode: str) -> None:
    """Go on where the last process ended; the parent says after how many steps."""
    import tidemill
    from tidemill.pipeline import keeping

    keeping.LOOK_EVERY_S = 0.05
    done = int(sys.stdin.readline())
    rows: Rows = {}
    for number in range(done):
        step(seed, number, rows)
    with tidemill.open(Path(folder), spark_master="inline", serve_local="off") as db:
        if not db.sql("SHOW TABLES").fetchall():
            db.sql(CREATE.format(mode))
            db.sql("CREATE INDEX ON t (id)")
        print("open", flush=True)
        for number in range(done, 1_000_000):
            what, given = step(seed, number, rows)
            if what == "append":
                db.append("t", given, source="s", offset=number)
            elif what == "correct":
                db.update("t", given, key="id", source="s", offset=number)
            else:
                db.sql(what, given)  # type: ignore[arg-type]
            print(number + 1, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
