"""Linear Road in an open warehouse: make the application, feed it, read its answers.

The application is ``application.sql``; this is what stands around it:

1. ``create`` makes its tables, fills the tolls of the past and starts its kept queries;
2. ``feed`` takes rows of the benchmark's input (15 columns, see ``docs/linear-road.md``), splits
   them by type and appends them, second 0 being ``START``;
3. ``Answers.read`` gives the answers that were not read yet, each once, in the order in which they
   were given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.engine import Database

SQL = Path(__file__).with_name("application.sql")
START = datetime(2026, 1, 1)
START_S = int(START.replace(tzinfo=UTC).timestamp())
_IS_INDEX = re.compile(r"^CREATE INDEX ", re.MULTILINE)
_IS_KEPT = re.compile(r"^(EVERY|EMIT) ", re.MULTILINE)


@dataclass(frozen=True)
class Stream:
    """A table that is fed: the rows of the input that go there, and what is taken of them."""

    table: str
    type: int
    columns: tuple[str, ...]


# Reports first: a request sees what its vehicle has reported in the same second.
STREAMS = (
    Stream("reports", 0, ("vid", "spd", "xway", "lane", "dir", "seg", "pos")),
    Stream("balance_requests", 2, ("vid", "qid")),
    Stream("expenditure_requests", 3, ("vid", "xway", "qid", "day")),
)

_TIME = f"CAST(epoch(ts) - {START_S} AS INTEGER) AS time"
ANSWERS = {
    "entries": f"SELECT vid, {_TIME}, lane, lav, toll, accident, _seq FROM entries WHERE _seq > ?",
    "balances": f"SELECT qid, {_TIME}, balance, _seq FROM balances WHERE _seq > ?",
    "expenditures": f"SELECT qid, {_TIME}, expenditure, _seq FROM expenditures WHERE _seq > ?",
}


def create(db: Database, daily_tolls: pa.Table | None = None) -> None:
    """Make the application: tables, the past's tolls, kept queries."""
    create_tables(db, daily_tolls)
    create_queries(db)


def create_tables(
    db: Database, daily_tolls: pa.Table | None = None, *, has_indices: bool = True
) -> None:
    """The tables that rows come into. A past that is loaded now is read, but not answered.

    Without ``has_indices`` they have none: what the indices gain can be measured by that."""
    for statement in _statements(are_queries=False):
        if has_indices or not _IS_INDEX.search(statement):
            db.sql(statement)
    if daily_tolls is not None and daily_tolls.num_rows:
        db.append("daily_tolls", daily_tolls)


def create_queries(db: Database) -> None:
    """The kept queries, which answer what comes from now on."""
    for statement in _statements(are_queries=True):
        db.sql(statement)


def _statements(*, are_queries: bool) -> Iterator[str]:
    """The application's statements before the first kept query, or from there on."""
    statements = [text for text in SQL.read_text().split(";\n") if text.strip()]
    first = next(at for at, text in enumerate(statements) if _IS_KEPT.search(text))
    yield from statements[first:] if are_queries else statements[:first]


def feed(db: Database, rows: pa.RecordBatch, source: str | None = None) -> None:
    """Append rows of the input: all of one second or of several, in time order.

    With a ``source`` rows that were fed before, cut into the same batches, are not stored again."""
    if not rows.num_rows:
        return
    offset = None if source is None else rows.column("time")[-1].as_py()
    for stream in STREAMS:
        taken = rows.filter(pc.equal(rows.column("type"), stream.type))
        if taken.num_rows:
            columns = {name: taken.column(name) for name in stream.columns}
            moments = moments_of(taken.column("time").to_numpy())
            batch = pa.RecordBatch.from_pydict({"ts": moments, **columns})
            db.append(stream.table, batch, source=source, offset=offset)


def moments_of(seconds: npt.NDArray[np.int32]) -> pa.Array:
    """The input's seconds as the tables' timestamps."""
    return pa.array((seconds.astype(np.int64) + START_S) * 1_000_000).cast(pa.timestamp("us"))


class Answers:
    """Reads every answer once."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._seen = dict.fromkeys(ANSWERS, -1)

    def read(self) -> dict[str, pa.Table]:
        """The answers that came since the last call, by table; tables without any are left out.

        ``entries`` are notifications of tolls, and of accidents where ``accident`` is not NULL;
        those in lane 4 are for the books, nobody is notified."""
        found = {}
        for name, query in ANSWERS.items():
            answers = self._db.sql(query, [self._seen[name]]).arrow()
            if answers.num_rows:
                self._seen[name] = pc.max(answers.column("_seq")).as_py()
                found[name] = answers
        return found
