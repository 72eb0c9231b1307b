"""Warehouses whose rows lie where a test wants them, and the same rows in plain DuckDB.

A *layout* says where rows lie when all have come: ``hot`` in memory; ``history`` in files, moved in
several steps, so that partitions have revisions; ``split`` in both, with late rows in memory and
in revisions; ``compacted`` like split, with most files compacted and one revision behind that.
Nothing moves or is compacted by itself here: ``quiet`` keeps the background from looking.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tidemill.clock import Clock
from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database

LAYOUTS = ("hot", "history", "split", "compacted")
ROUTES = ("local", "spark")
REL_TOLERANCE, ABS_TOLERANCE = 1e-9, 1e-9

# After which share of the rows a layout flushes, and when it compacts.
_FLUSHES = {
    "hot": (),
    "history": (0.2, 0.5, 0.6, 1.0),
    "split": (0.25, 0.5, 0.7),
    "compacted": (0.1, 0.3, 0.5, 0.6, 0.8),
}
_COMPACTS = {"compacted": 0.6}


def copy_warehouse(source: Path, target: Path) -> None:
    """The files of a warehouse as they are now, as if its process were killed."""
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("*.sock"))


def open_inline(path: Path, clock: Clock | None = None, **settings: object) -> Database:
    """A warehouse whose jobs and tasks run in this process."""
    given = {"threads": 1, "spark_master": "inline", **settings}
    return Database(path, Settings(DATABASE_SETTINGS, given), clock=clock)


@contextmanager
def quiet() -> Iterator[pytest.MonkeyPatch]:
    """Warehouses opened meanwhile compact, expire and move when a test says so, and only then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemill.pipeline.keeping.LOOK_EVERY_S", 1e6)
        yield patch


def flush(db: Database, *tables: str) -> int:
    """Move what is in memory; answers the rows moved."""
    messages = [db.sql(f'FLUSH "{table}"').message for table in tables]
    return sum(int(message.split()[1]) for message in messages)


def compact(db: Database, *tables: str) -> int:
    """Compact until nothing is due; answers the number of jobs."""
    jobs = 0
    for name in tables:
        table = db.catalog.snapshot().get(name)
        hot = db._hot[table.table_id]
        now_us = hot.progress.now_us()
        cold_us = None if now_us is None else now_us - table.settings["hot"]
        while (handle := db._keeping.compaction.submit(table, cold_us)) is not None:
            handle.wait()
            jobs += 1
    return jobs


def fill(db: Database, table: str, batches: Sequence[list[Any]], layout: str) -> None:
    """Append batches, and move and compact between them as the layout says."""
    total, done = sum(map(len, batches)), 0
    flushes = list(_FLUSHES[layout])
    for batch in batches:
        db.append(table, batch)
        done += len(batch)
        while flushes and done >= flushes[0] * total:
            share = flushes.pop(0)
            flush(db, table)
            if _COMPACTS.get(layout) == share:
                assert compact(db, table)


def files_of(db: Database, table: str) -> int:
    """How many files of rows a table has in history."""
    snapshot = db.catalog.snapshot()
    history = snapshot.history(snapshot.get(table).table_id)
    return sum(file.kind == "rows" for file in history.files)


def difference(
    found: Iterable[tuple[Any, ...]], wanted: Iterable[tuple[Any, ...]], is_ordered: bool = False
) -> str | None:
    """How two answers differ, or None. NaN is NaN, and the last digits of a float are its own."""
    ours, plain = [_plain(row) for row in found], [_plain(row) for row in wanted]
    if ours == plain or (not is_ordered and Counter(ours) == Counter(plain)):
        return None
    if not is_ordered:
        ours, plain = sorted(ours, key=_place), sorted(plain, key=_place)
    if len(ours) == len(plain) and all(map(_close, ours, plain)):
        return None
    missing, extra = Counter(plain) - Counter(ours), Counter(ours) - Counter(plain)
    if not missing and not extra:
        return f"the order is {ours[:5]}\ninstead of {plain[:5]}"
    return f"missing: {list(missing.elements())[:5]}\ntoo much: {list(extra.elements())[:5]}"


def _plain(value: Any) -> Any:
    """A value that can be counted; NaN equals NaN, 0.0 is -0.0, and a map is a list of pairs."""
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, dict):
        return tuple((_plain(key), _plain(item)) for key, item in value.items())
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return value


def _place(row: Any) -> str:
    """Where a row stands among others, whatever the last digits of its floats are."""
    return repr([f"{v:.6g}" if isinstance(v, float) else v for v in row])


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=REL_TOLERANCE, abs_tol=ABS_TOLERANCE)
    return bool(one == other)
