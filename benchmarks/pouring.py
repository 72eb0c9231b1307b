"""The workers of the ingest benchmark: each pours rows into one system and takes the time.

Everything that is not the system's own work happens before the clock starts: rows are made,
batches prepared, texts written.
"""

from __future__ import annotations

import gc
import importlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

import tidemill
from benchmarks.data import BASE_US, COLUMNS, batches
from benchmarks.systems import SYSTEMS
from benchmarks.systems.base import TABLE, Row, System, to_time
from benchmarks.systems.tide import create_table

_TYPES = ("TIMESTAMP", "BIGINT", *("INTEGER",) * 6)


def open_system(name: str, folder: Path, is_read: bool, **relaxed: str) -> System:
    """A system by its name, in a folder that exists from now on."""
    folder.mkdir(parents=True)
    module, kind = SYSTEMS[name].split(":")
    made: System = getattr(importlib.import_module(module), kind)(folder, is_read, **relaxed)
    return made


@contextmanager
def quiet() -> Iterator[None]:
    """Set our own lists aside from the collector, so that it does not walk them while we measure;
    it stays on for what the system itself makes."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Pour:
    """Batches into one system, one durable insert after the other."""

    def __init__(self, name: str, folder: Path, relaxed: dict[str, str]) -> None:
        self.system = open_system(name, folder, is_read=False, **relaxed)

    def settings(self) -> dict[str, str]:
        return self.system.settings()

    def batches(self, rows: int) -> list[float]:
        """Answers the seconds of each insert; there is nothing between them."""
        prepared = [self.system.prepare(batch) for batch in batches(rows)]
        insert, taken = self.system.insert, []
        with quiet():
            last = time.perf_counter()
            for batch in prepared:
                insert(batch)
                now = time.perf_counter()
                taken.append(now - last)
                last = now
        return taken

    def statements(self, count: int) -> float:
        """Single-row INSERT statements, every text different; answers the time."""
        texts = [self._insert_text(row) for row in _plain_rows(count)]
        execute = self.system.execute
        with quiet():
            began = time.perf_counter()
            for text in texts:
                execute(text)
            return time.perf_counter() - began

    def _insert_text(self, row: Row) -> str:
        rest = ", ".join(str(value) for value in row[1:])
        return f"INSERT INTO {TABLE} VALUES ({self.system.time_literal(row[0])}, {rest})"

    def answers(self, vid: int) -> tuple[Row, list[Row]]:
        return self.system.totals(), self.system.lookup(vid)

    def close(self) -> None:
        self.system.close()


class PourTide:
    """Tidemill alone, in more ways: durabilities, writer threads, single rows, files."""

    def __init__(self, folder: Path) -> None:
        self.db = tidemill.open(folder)
        self._tables = 0

    def _table(self, durability: str) -> str:
        self._tables += 1
        name = f"t{self._tables}"
        create_table(self.db, name, durability)
        return name

    def batches(self, rows: int, durability: str, threads: int) -> float:
        """Batches shared among threads; the time until the last one is stored."""
        name, made = self._table(durability), list(batches(rows))
        shares: list[list[Any]] = [made[at::threads] for at in range(threads)]
        return self._pour(name, shares, rows)

    def dicts(self, count: int, durability: str, threads: int) -> float:
        """One dict an append."""
        name = self._table(durability)
        rows = [
            dict(zip(COLUMNS, (to_time(r[0]), *r[1:]), strict=True)) for r in _plain_rows(count)
        ]
        return self._pour(name, [rows[at::threads] for at in range(threads)], count)

    def _pour(self, name: str, shares: list[list[Any]], expected_rows: int) -> float:
        append = self.db.append

        def pour(share: list[Any]) -> None:
            for rows in share:
                append(name, rows)

        writers = [threading.Thread(target=pour, args=(share,)) for share in shares[1:]]
        with quiet():
            began = time.perf_counter()
            for writer in writers:
                writer.start()
            pour(shares[0])
            for writer in writers:
                writer.join()
            taken = time.perf_counter() - began
        found = self.db.sql(f"SELECT count(*) FROM {name}").fetchall()[0][0]
        if found != expected_rows:
            raise AssertionError(f"{found} rows are there, {expected_rows} were poured")
        self.db.sql(f"DROP TABLE {name}")
        return taken

    def file(self, path: Path) -> tuple[float, Row]:
        """``COPY t FROM`` a file; answers the time and the sums."""
        name = self._table("sync")
        began = time.perf_counter()
        self.db.sql(f"COPY {name} FROM '{path}'")
        taken = time.perf_counter() - began
        totals = self.db.sql(f"SELECT {_totals_sql()} FROM {name}").fetchall()[0]
        self.db.sql(f"DROP TABLE {name}")
        return taken, tuple(int(value) for value in totals)

    def close(self) -> None:
        self.db.close()


class ReadWithDuck:
    """DuckDB's own reading of the same file."""

    def __init__(self) -> None:
        self.connection = duckdb.connect(":memory:")

    def file(self, path: Path, is_kept: bool) -> tuple[float, Row]:
        """Into a table in memory with the same columns, or (not ``is_kept``) only summed up."""
        types = ", ".join(f"'{n}': '{t}'" for n, t in zip(COLUMNS, _TYPES, strict=True))
        source = f"read_csv('{path}', header = true, columns = {{{types}}})"
        ask = self.connection.execute
        began = time.perf_counter()
        if is_kept:
            ask(f"CREATE TABLE kept AS SELECT * FROM {source}")
            source = "kept"
            taken = time.perf_counter() - began
        totals = ask(f"SELECT {_totals_sql()} FROM {source}").fetchall()[0]
        if is_kept:
            ask("DROP TABLE kept")
        else:
            taken = time.perf_counter() - began
        return taken, tuple(int(value) for value in totals)

    def close(self) -> None:
        self.connection.close()


def _plain_rows(count: int) -> list[Row]:
    """Reports as tuples of whole numbers, the time in microseconds."""
    found: list[Row] = []
    for batch in batches(count):
        columns = [batch.column(0).view("int64"), *batch.columns[1:]]
        found += zip(*(column.to_pylist() for column in columns), strict=True)
    return found


def _totals_sql() -> str:
    sums = (f"sum(epoch_us({c}) - {BASE_US})" if c == "ts" else f"sum({c})" for c in COLUMNS)
    return f"count(*), {', '.join(sums)}"
