"""The process that test_crash kills: writers in threads, each telling what was acknowledged.

What writer w appends as its batch b is a function of (w, b) alone, so the test can compute what
must be there. Rows carry an ``id`` that counts from 0 for every writer, their ``batch`` and its
``size``, so gaps, repeats and torn batches show in the rows themselves. Some writers have COPY load
a batch, as two packages. Meanwhile one more thread moves rows to history, wholly or in part,
compacts and drops what is there, and forgets snapshots.

For every line of JSON on its standard input (folder, crash_at, for every writer the batch to go on
with, and whether writers keep pace with the work on history) it forks a child, which spares the
import, and prints ``pid <pid>``, then ``ack <writer> <batch>`` after each append that returned, and
``dead <status>`` when the child has ended.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pandas  # noqa: F401  (Arrow imports it at need: better before the fork)
import pyarrow as pa
from pyarrow import csv

import tidemill
from tidemill.hot import crash, published, tier
from tidemill.hot import row_writer as stored
from tidemill.pipeline import keeping

BLOCK_ROWS = 500
IN_PLACE_BYTES_MIN = 4_096  # some batches are larger, most are not
BATCHES_MAX = 1_000
ROUNDS_MAX = 2_000  # of tending
BATCHES_PER_ROUND = 2
START = datetime(2024, 1, 1)
KEYS = 500

_COLUMNS = "ts TIMESTAMP, writer INT, batch BIGINT, size INT, id BIGINT, word TINYINT, note VARCHAR"
TABLES = {
    "synced": _COLUMNS,
    "batched": _COLUMNS,
    "diverted": f"{_COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE",
    "sourced": _COLUMNS,
    "keyed": f"{_COLUMNS}, PRIMARY KEY (ts, writer)",
    "short": _COLUMNS,
    "loaded": _COLUMNS,
    "mixed": f"{_COLUMNS}, PRIMARY KEY (ts, writer)",
}
SETTINGS = {
    "synced": "durability = 'sync'",
    "batched": "durability = 'batch'",
    "diverted": "durability = 'batch', clock = 'event', late = 'divert', rejected = 'divert'",
    "sourced": "durability = 'sync'",
    "keyed": "durability = 'batch', on_conflict = 'replace'",
    "short": "durability = 'sync', clock = 'event', retention = '2 minutes', "
    "partition = '30 seconds'",
    "loaded": "durability = 'batch'",
    "mixed": "durability = 'batch', on_conflict = 'replace', partition = '1 minute'",
}
# Which table a writer writes. "plain" is a reference table.
WRITERS = {
    0: "synced",
    1: "synced",
    2: "batched",
    3: "batched",
    4: "diverted",
    5: "diverted",
    6: "sourced",
    7: "sourced",
    8: "keyed",
    9: "keyed",
    10: "short",
    11: "plain",
    12: "loaded",
    13: "loaded",
    14: "mixed",
}
KEYED = ("keyed", "mixed")
# Of the batches of these writers, every so many-th is loaded, the others are appended.
LOADS = {12: 1, 14: 3}

Row = dict[str, Any]
_first_ids: dict[int, list[int]] = {}


def open_warehouse(folder: str) -> tidemill.Database:
    """Open with small blocks, small segments and a quick keeper; make the tables that miss.

    History is looked after by ``_tend`` and by nobody else."""
    published.BLOCK_ROWS, published.BLOCK_ROWS_MAX = BLOCK_ROWS, 2 * BLOCK_ROWS
    stored.IN_PLACE_BYTES_MIN = IN_PLACE_BYTES_MIN
    tier.EXPIRE_EVERY_S = 0.01
    keeping.LOOK_EVERY_S = 1e6
    db = tidemill.open(
        folder,
        segment_size="1 MB",
        batch_interval="0.005 seconds",
        threads=1,
        spark_master="inline",
        time_travel="1 second",
    )
    for name, columns in TABLES.items():
        db.sql(f"CREATE STREAMING TABLE IF NOT EXISTS {name} ({columns}) WITH ({SETTINGS[name]})")
        db.sql(f"CREATE INDEX IF NOT EXISTS {name}_by_id ON {name} (id)")
        db.sql(f"CREATE INDEX IF NOT EXISTS {name}_by_batch ON {name} USING hash (batch, writer)")
    db.sql(f"CREATE TABLE IF NOT EXISTS plain ({_COLUMNS}, PRIMARY KEY (writer, id))")
    return db


def size_of(writer: int, batch: int) -> int:
    """How many rows a batch has: often one, sometimes hundreds."""
    if WRITERS[writer] == "short":
        return 100
    draw = (writer * 7_919 + batch * 104_729) % 97
    return 1 if draw < 40 else draw * 3 if draw > 90 else draw - 38


def first_id_of(writer: int, batch: int) -> int:
    known = _first_ids.setdefault(writer, [0])
    while len(known) <= batch:
        known.append(known[-1] + size_of(writer, len(known) - 1))
    return known[batch]


def offset_of(writer: int, batch: int) -> int:
    """The offsets of one source are neighbours, those of the other leave gaps."""
    return batch if writer % 2 == 0 else 10 * batch


def rows_of(writer: int, batch: int) -> list[Row]:
    table, size = WRITERS[writer], size_of(writer, batch)
    first = first_id_of(writer, batch)
    return [_row(table, writer, batch, size, first + at) for at in range(size)]


def _row(table: str, writer: int, batch: int, size: int, number: int) -> Row:
    ts = START + timedelta(seconds=number % KEYS if table in KEYED else number)
    word = number % 100
    if table == "diverted":
        if number % 7 == 3:
            ts -= timedelta(days=1)
        if number % 7 == 5:
            word = 300  # does not fit: goes to $rejected
    note = "x" * 2_500 if table == "short" else f"{writer}/{batch}"
    return {
        "ts": ts,
        "writer": writer,
        "batch": batch,
        "size": size,
        "id": number,
        "word": word,
        "note": note,
    }


def is_loaded(writer: int, batch: int) -> bool:
    """Whether a batch comes as packages."""
    return writer in LOADS and batch % LOADS[writer] == 0


def load(db: tidemill.Database, writer: int, batch: int) -> str:
    """COPY a batch from two packages beside the warehouse, which another life may have written."""
    folder = Path(db.path).with_name("packages") / f"{writer}-{batch}"
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.partial")
        partial.mkdir(parents=True, exist_ok=True)
        rows = pa.Table.from_pylist(rows_of(writer, batch))
        half = rows.num_rows // 2
        csv.write_csv(rows.slice(0, half), partial / "a.csv")
        csv.write_csv(rows.slice(half), partial / "b.csv")
        partial.rename(folder)
    return db.sql(f"COPY {WRITERS[writer]} FROM '{folder}/*.csv'").message


def send(db: tidemill.Database, writer: int, batch: int, rows: list[Row]) -> Any:
    """Append a batch in one of the forms a producer may use."""
    table = WRITERS[writer]
    if is_loaded(writer, batch):
        return load(db, writer, batch)
    if table == "sourced":
        offset = offset_of(writer, batch)
        return db.append(table, rows, source=f"source {writer}", offset=offset)
    if len(rows) == 1:
        return db.append(table, rows[0] if batch % 2 else tuple(rows[0].values()))
    if batch % 3 == 0:
        return db.append(table, pa.Table.from_pylist(rows))
    if batch % 3 == 1:
        return db.append(table, [tuple(row.values()) for row in rows])
    return db.append(table, rows)


class Pace:
    """Lets writers be no faster than the work on history, so that it is what they die of."""

    def __init__(self, is_on: bool) -> None:
        self._is_on = is_on
        self._rounds = 1
        self._changed = threading.Condition()

    def step(self) -> None:
        with self._changed:
            self._rounds += 1
            self._changed.notify_all()

    def keep(self, batches: int) -> None:
        if self._is_on:
            with self._changed:
                self._changed.wait_for(lambda: batches < BATCHES_PER_ROUND * self._rounds)


def _write(
    db: tidemill.Database, writer: int, start: int, pace: Pace, say: Callable[[str], None]
) -> None:
    for batch in range(start, start + BATCHES_MAX):
        pace.keep(batch - start)
        send(db, writer, batch, rows_of(writer, batch))
        say(f"ack {writer} {batch}\n")


def _fail(failure: threading.ExceptHookArgs) -> None:
    """A thread that fails ends the process: the test reads why."""
    threading.__excepthook__(failure)
    sys.stderr.flush()
    os._exit(1)


def _tend(db: tidemill.Database, pace: Pace) -> None:
    """Keep history in order, as the warehouse does, but at once and all the time."""
    for number, name in enumerate(islice(cycle(TABLES), ROUNDS_MAX)):
        hot = db._hot[db.catalog.snapshot().get(name).table_id]
        if number % 3 == 2:  # as the mover does
            view = hot.view()
            upto = (view.moved_seq + view.published_seq) // 2
            db._keeping.wait(db._keeping._submit_move(hot, upto, "some"))
        else:
            db.sql(f"FLUSH {name}")
        db._keeping.look()
        if number % 10 == 9:
            db._keeping.forget_snapshots()
        pace.step()


def live(job: dict[str, Any]) -> None:
    """Write with all writers at once, until killed."""
    os.environ["TIDEMILL_CRASH_AT"] = job["crash_at"] or ""
    importlib.reload(crash)
    threading.excepthook = _fail
    lock = threading.Lock()

    def say(text: str) -> None:
        with lock:
            sys.stdout.write(text)
            sys.stdout.flush()

    say(f"pid {os.getpid()}\n")
    db = open_warehouse(job["folder"])
    pace = Pace(job["paced"])
    threads = [
        threading.Thread(target=_write, args=(db, int(writer), start, pace, say), daemon=True)
        for writer, start in job["starts"].items()
    ]
    threads.append(threading.Thread(target=_tend, args=(db, pace), daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            live(json.loads(line))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print("dead", os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
