"""A warehouse with every kind of file, and what becomes of it when one bit of one file is another.

``build`` makes the warehouse and answers what it says; a copy of its folder taken while it is
open is what a killed process leaves. ``judge`` flips a bit in a copy, opens it, asks everything
again and says how that ended: ``right`` (all answers are those of before), ``refused`` (some were
refused with an error of ours, the others are right), ``wrong`` (an answer is another) or ``raw``
(an exception that is not ours).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from warehouses import copy_warehouse

from tidemill.clock import FakeClock, to_us
from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.errors import TidemillError

START = datetime(2026, 3, 1)
AFTER_US = to_us(START + timedelta(days=2))
PAST = "2026-03-03 00:00:10"

QUERIES = (
    "SELECT count(*) FROM t",
    "SELECT * FROM t ORDER BY id",
    "SELECT name, count(*), sum(x), min(ts), max(ts) FROM t GROUP BY name ORDER BY name",
    "SELECT * FROM t WHERE id BETWEEN 40 AND 44 ORDER BY id",
    "SELECT count(*) FROM t WHERE ts >= TIMESTAMP '2026-03-01 02:00:00'",
    f"SELECT count(*), sum(x) FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '{PAST}'",
    "SELECT * FROM k ORDER BY id",
    f"SELECT * FROM k FOR SYSTEM_TIME AS OF TIMESTAMP '{PAST}' ORDER BY id",
    "SELECT _reason, id, x FROM t$late ORDER BY id",
    "SELECT _row, _reason FROM t$rejected ORDER BY _row",
    "SELECT * FROM cars ORDER BY name",
    "SELECT c.owner, sum(t.x) FROM t JOIN cars c ON c.name = t.name GROUP BY ALL ORDER BY ALL",
    "SELECT * FROM by_hour ORDER BY ALL",
    "SELECT * FROM recently ORDER BY ALL",
    "SELECT table_name, kind, rows FROM tidemill.tables ORDER BY table_name",
    "SELECT table_name, min(lo), max(hi) FROM tidemill.files GROUP BY ALL ORDER BY ALL",
)

Answers = dict[tuple[str, str], list[Any]]


@dataclass(frozen=True)
class Outcome:
    kind: str
    file: str
    bit: int
    how: str
    detail: str = ""


def open_database(path: Path, at_us: int = AFTER_US) -> Database:
    settings = Settings(DATABASE_SETTINGS, {"spark_master": "inline", "time_travel": "1000 days"})
    return Database(path, settings, FakeClock(at_us))


def build(path: Path, killed: Path) -> Answers:
    """Make the warehouse; ``killed`` becomes what it would be if its process had been killed."""
    with open_database(path, AFTER_US) as db:
        _define(db)
        _rows(db, 0, 60)
        db.sql("FLUSH t; FLUSH k")
        _clock(db).advance(20)
        db.sql("UPDATE cars SET owner = 'new ' || owner WHERE name = 'n1'")
        _rows(db, 60, 120)
        _replace(db, range(0, 50, 7))
        db.sql("FLUSH t; FLUSH k")
        _rows(db, 120, 130)
        _replace(db, range(3, 9))
        db.sql("INSERT INTO cars VALUES ('n9', 'late owner')")
        for view in ("by_hour", "recently"):
            db.sql(f"REFRESH MATERIALIZED VIEW {view}")
    with open_database(path) as db:
        _rows(db, 130, 140)
        db.sql("INSERT INTO cars VALUES ('n8', 'another owner')")
        answers = ask(db)
        assert not [found for found in answers.values() if isinstance(found, TidemillError)]
        copy_warehouse(path, killed)
    return answers


def _define(db: Database) -> None:
    db.sql(
        "CREATE STREAMING TABLE t (ts TIMESTAMP, id BIGINT, name VARCHAR, x DOUBLE, "
        "tags VARCHAR[], WATERMARK FOR ts AS ts - INTERVAL '1' DAY) "
        "WITH (late = 'divert', rejected = 'divert', clock = 'event', hot = '1 hour')"
    )
    db.sql("CREATE INDEX t_id ON t (id); CREATE INDEX t_name ON t (name)")
    db.sql(
        "CREATE STREAMING TABLE k (ts TIMESTAMP, id BIGINT, x DECIMAL(9, 2), "
        "PRIMARY KEY (id, ts), WATERMARK FOR ts AS ts - INTERVAL '1' DAY) "
        "WITH (on_conflict = 'replace', clock = 'event', hot = '1 hour')"
    )
    db.sql("CREATE TABLE cars (name VARCHAR PRIMARY KEY, owner VARCHAR)")
    db.append("cars", [{"name": f"n{n}", "owner": f"owner {n}"} for n in range(5)])
    db.sql(
        "CREATE MATERIALIZED VIEW by_hour AS SELECT window_start, name, count(*) AS n, sum(x) AS s "
        "FROM TUMBLE(t, ts, INTERVAL '1' HOUR) GROUP BY ALL"
    )
    db.sql(
        "CREATE MATERIALIZED VIEW recently AS SELECT c.owner, count(*) AS n, max(t.x) AS x "
        "FROM RECENT(t, INTERVAL '4' HOUR) AS t JOIN cars AS c ON c.name = t.name GROUP BY c.owner"
    )


def _rows(db: Database, first: int, end: int) -> None:
    when = [START + timedelta(minutes=3 * n) for n in range(first, end)]
    db.append(
        "t",
        [
            {"ts": ts, "id": n, "name": f"n{n % 5}", "x": n / 8, "tags": [str(n), "a"]}
            for ts, n in zip(when, range(first, end), strict=True)
        ],
    )
    late = {"ts": START - timedelta(days=9), "id": -first, "name": "late", "x": 0.5, "tags": []}
    bad = {"ts": when[-1], "id": "no number", "name": "bad", "x": 0.5, "tags": []}
    db.append("t", [late])
    db.append("t", [bad])
    db.append("k", [{"ts": ts, "id": n, "x": n} for n, ts in enumerate(when, first)])


def _replace(db: Database, ids: Sequence[int]) -> None:
    db.append("k", [{"ts": START + timedelta(minutes=3 * n), "id": n, "x": n + 0.25} for n in ids])


def _clock(db: Database) -> FakeClock:
    clock = db._clock
    assert isinstance(clock, FakeClock)
    return clock


def ask(db: Database) -> Answers:
    """Everything, on both routes that this process has; an error of ours is an answer."""
    found: Answers = {}
    for route in ("local", "spark"):
        db.sql(f"SET route = '{route}'")
        for query in QUERIES:
            try:
                found[route, query] = db.sql(query).fetchall()
            except TidemillError as error:
                found[route, query] = error  # type: ignore[assignment]
    return found


def kind_of(path: str) -> str:
    """What a file of a warehouse is, by its place."""
    first, _, rest = path.partition("/")
    if first == "log":
        return "log end" if rest.endswith("/end") else "log segment"
    if first == "data":
        return "history"
    return first


def files_by_kind(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.stat().st_size:
            name = path.relative_to(folder).as_posix()
            found.setdefault(kind_of(name), []).append(name)
    return found


def judge(template: Path, work: Path, wanted: Answers, rng: random.Random) -> Outcome:
    """Flip one bit in a copy of the warehouse, and see."""
    kinds = files_by_kind(template)
    kind = rng.choice(sorted(kinds))
    name = rng.choice(kinds[kind])
    shutil.rmtree(work, ignore_errors=True)
    copy_warehouse(template, work)
    bit = rng.randrange(8 * (work / name).stat().st_size)
    with open(work / name, "r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ (1 << bit % 8)]))
    how, detail = _outcome(work, wanted)
    return Outcome(kind, name, bit, how, detail)


def _outcome(work: Path, wanted: Answers) -> tuple[str, str]:
    refused: list[str] = []
    try:
        with open_database(work) as db:
            for key, answer in ask(db).items():
                if isinstance(answer, TidemillError):
                    refused.append(str(answer))
                elif answer != wanted[key]:
                    return "wrong", f"{key}: {answer} and not {wanted[key]}"
            for statement in ("VACUUM", "FLUSH t"):
                _try(lambda text=statement: db.sql(text), refused)  # type: ignore[misc]
    except TidemillError as error:
        refused.append(str(error))
    except BaseException as error:
        return "raw", f"{type(error).__name__}: {error}"
    return ("refused", refused[0]) if refused else ("right", "")


def _try(call: Callable[[], object], refused: list[str]) -> None:
    try:
        call()
    except TidemillError as error:
        refused.append(str(error))
