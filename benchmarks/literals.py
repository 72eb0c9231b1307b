"""Long statements: INSERT of many literals, IN with many constants; each text is seen once.

A statement that programs write is new every time, so that reading it is most of its time. The rows
have numbers, decimals, texts, times with casts, booleans, intervals and NULL; in ``mixed`` rows a
column is written in several ways, which have no common type. Tidemill's streams log every INSERT
before it is acknowledged; DuckDB works in memory.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

import tidemill
from benchmarks.harness import Options, Worker, progress, scratch
from benchmarks.report import OURS, Report

PEER = "duckdb"
INSERTS = "INSERT … VALUES of literals"
LISTS = "SELECT count(*) … WHERE x IN (constants), 200,000 rows"
ROWS = 200_000
TYPES = (
    *("BIGINT", "INTEGER", "DECIMAL(10,3)", "DOUBLE", "VARCHAR", "TIMESTAMP", "TIMESTAMP"),
    *("DATE", "VARCHAR", "BOOLEAN", "INTERVAL", "INTERVAL", "BIGINT", "DOUBLE", "DOUBLE"),
    *("DECIMAL(10,2)", "TIME", "INTEGER", "VARCHAR", "DOUBLE", "INTEGER", "DATE", "TIMESTAMPTZ"),
    *("TINYINT", "VARCHAR", "BIGINT", "INTEGER", "INTERVAL"),
)
SIMPLE = ("TIMESTAMP", "BIGINT", "INTEGER", "VARCHAR", "DOUBLE", "DOUBLE", "BOOLEAN", "BIGINT")
NOON = datetime(2026, 1, 1, 12)

Forms = Callable[[random.Random, int], tuple[str, ...]]


def _numbers(chance: random.Random, at: int) -> tuple[str, ...]:
    number = chance.randrange(1, 120)
    return (f"{number}", f"-{number}", f"{number}::BIGINT", f"'{number}'", f"{number}.0")


def _fractions(chance: random.Random, at: int) -> tuple[str, ...]:
    number = chance.randrange(1, 10_000) / 4
    return (f"{number:.2f}", f"-{number:.2f}", f"CAST({number:.2f} AS DECIMAL(10,2))", "7", "'2.5'")


def _doubles(chance: random.Random, at: int) -> tuple[str, ...]:
    number = chance.random()
    return (f"{number:.6e}", f"-{number:.6f}", f"'{number!r}'::DOUBLE", "3", f"'{number!r}'")


def _texts(chance: random.Random, at: int) -> tuple[str, ...]:
    return (f"'it''s text {at}, é'", f"'{at}'::VARCHAR", f"{at}", f"{at}.50", "TRUE")


def _moments(chance: random.Random, at: int) -> tuple[str, ...]:
    moment = NOON + timedelta(seconds=at, microseconds=chance.randrange(10**6))
    return (f"TIMESTAMP '{moment}'", f"'{moment}'::TIMESTAMP", f"'{moment}'")


def _days(chance: random.Random, at: int) -> tuple[str, ...]:
    day = (NOON + timedelta(days=at)).date()
    return (f"DATE '{day}'", f"CAST('{day}' AS DATE)", f"'{day}'")


def _lengths(chance: random.Random, at: int) -> tuple[str, ...]:
    count = chance.randrange(1, 50)
    return (f"INTERVAL '{count}' DAY", f"INTERVAL {count} MINUTE", f"'{count} hours'")


_FORMS: dict[str, Forms] = {
    **dict.fromkeys(("BIGINT", "INTEGER", "TINYINT"), _numbers),
    **dict.fromkeys(("DECIMAL(10,3)", "DECIMAL(10,2)"), _fractions),
    "DOUBLE": _doubles,
    "VARCHAR": _texts,
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ"), _moments),
    "DATE": _days,
    "TIME": lambda chance, at: (f"TIME '12:00:{at % 60:02}'", f"'12:00:{at % 60:02}'::TIME"),
    "BOOLEAN": lambda chance, at: ("TRUE", "FALSE", "'true'"),
    "INTERVAL": _lengths,
}


def insert_text(types: tuple[str, ...], rows: int, seed: int, is_mixed: bool) -> str:
    """Each column in one form, or each value in any."""
    chance = random.Random(seed)
    forms = [chance.randrange(2) for _ in types]
    time_place = types.index("TIMESTAMP")

    def value(at: int, place: int, kind: str) -> str:
        if place != time_place and chance.random() < 0.1:
            return "NULL"
        found = _FORMS[kind](chance, at)
        return chance.choice(found) if is_mixed else found[forms[place]]

    made = (", ".join(value(at, *each) for each in enumerate(types)) for at in range(rows))
    return f"INSERT INTO t VALUES {', '.join(f'({row})' for row in made)}"


def list_text(column: str, count: int, seed: int, word: str) -> str:
    chance = random.Random(seed)
    numbers = chance.sample(range(2 * max(ROWS, count)), count)
    items = {
        "k": lambda number: str(number),
        "s": lambda number: f"'text {number}'",
        "ts": lambda number: f"'{NOON + timedelta(seconds=number)}'::TIMESTAMP",
    }[column]
    return f"SELECT count(*) FROM s WHERE {column} {word} ({', '.join(map(items, numbers))})"


class System:
    """Tidemill or DuckDB, with the tables of the statements."""

    def __init__(self, name: str, folder: Path) -> None:
        self._is_ours = name == OURS
        if self._is_ours:
            self._ours = tidemill.open(folder / "warehouse")
            self._run: Callable[[str], Any] = self._ours.sql
        else:
            self._run = duckdb.connect(":memory:").execute
        source = (
            f"SELECT TIMESTAMP '{NOON}' + to_seconds(i) AS ts, i AS k, 'text ' || i AS s "
            f"FROM range({ROWS}) AS r(i)"
        )
        if self._is_ours:
            columns = "ts TIMESTAMP, k BIGINT, s VARCHAR, WATERMARK FOR ts AS ts"
            self._run(f"CREATE STREAMING TABLE s ({columns})")
            self._run(f"INSERT INTO s {source}")
        else:
            self._run(f"CREATE TABLE s AS {source}")

    def create(self, types: tuple[str, ...]) -> None:
        columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(types))
        if self._is_ours:
            time_column = f"c{types.index('TIMESTAMP')}"
            ending = f", WATERMARK FOR {time_column} AS {time_column} - INTERVAL '1' DAY"
            self._run(f"CREATE OR REPLACE STREAMING TABLE t ({columns}{ending})")
        else:
            self._run(f"CREATE OR REPLACE TABLE t ({columns})")

    def insert(self, text: str) -> float:
        began = time.perf_counter()
        self._run(text)
        return time.perf_counter() - began

    def ask(self, text: str) -> tuple[float, Any]:
        began = time.perf_counter()
        found = self._run(text).fetchall()
        return time.perf_counter() - began, found

    def close(self) -> None:
        if self._is_ours:
            self._ours.close()


def run(options: Options) -> Report:
    names = [name for name in (OURS, PEER) if options.wants(name)]
    with scratch() as folder:
        report = Report("literals", "Long statements", options, folder)
        held = {name: Worker("benchmarks.literals:System", name, folder / name) for name in names}
        try:
            with progress(None, "long statements") as advance:
                _insert(report, options, held, advance)
                _ask(report, options, held, advance)
        finally:
            for worker in held.values():
                worker.close()
    _goals(report)
    return report


def _insert(
    report: Report, options: Options, held: dict[str, Worker], advance: Callable[[str, int], None]
) -> None:
    ways = (
        ("100 rows of 28 columns", TYPES, 100, False),
        ("100 rows of 28 columns, mixed", TYPES, 100, True),
        ("10,000 rows of 8 columns", SIMPLE, options.smaller(10_000, 500), False),
    )
    for what, types, rows, is_mixed in ways:
        advance(what, 1)
        times: dict[str, list[float]] = {name: [] for name in held}
        for worker in held.values():
            worker.call("create", types)
        for seed in range(options.repeat + 1):
            text = insert_text(types, rows, seed, is_mixed)
            for name, worker in held.items():
                times[name].append(worker.call("insert", text))
        sums = [f"sum(c{at})" for at, kind in enumerate(types) if kind in ("BIGINT", "INTEGER")]
        asked = f"SELECT count(*), {', '.join(sums)}, max(c3) FROM t"
        answers = [worker.call("ask", asked)[1] for worker in held.values()]
        for name in held:
            report.add(INSERTS, what, name, "s", times[name][1:])
            report.check(name, what, all(answer == answers[0] for answer in answers))


def _ask(
    report: Report, options: Options, held: dict[str, Worker], advance: Callable[[str, int], None]
) -> None:
    for count in (1_000, options.smaller(100_000, 10_000)):
        for column in ("k", "s", "ts"):
            for word in ("IN", "NOT IN"):
                what = f"{column} {word}, {count:,} constants"
                advance(what, 1)
                times: dict[str, list[float]] = {name: [] for name in held}
                is_right = True
                turns = options.repeat if count == 1_000 else min(options.repeat, 2)
                for seed in range(turns):
                    text = list_text(column, count, seed, word)
                    answers = []
                    for name, worker in held.items():
                        taken, answer = worker.call("ask", text)
                        times[name].append(taken)
                        answers.append(answer)
                    is_right &= all(answer == answers[0] for answer in answers)
                for name in held:
                    report.add(LISTS, what, name, "s", times[name])
                    report.check(name, what, is_right)


def _goals(report: Report) -> None:
    for what in ("100 rows of 28 columns", "100 rows of 28 columns, mixed"):
        ours, theirs = (report.find(INSERTS, what, name) for name in (OURS, PEER))
        if ours is not None and theirs is not None:
            ratio = ours.summary.median / theirs.summary.median
            report.goal_at_most(f"INSERT, {what} ≤ 2 × DuckDB's time", ratio, 2, "×")
    longest = [m for m in report.measurements if m.group == LISTS and m.system == OURS]
    if longest:
        slowest = max(measured.summary.median for measured in longest)
        report.goal_at_most("any list of constants ≤ 1 s", slowest, 1, "s")


if __name__ == "__main__":
    from benchmarks.__main__ import main

    main(["literals", *sys.argv[1:]])
