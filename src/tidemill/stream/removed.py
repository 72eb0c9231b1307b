"""Removed rows: rows of files that no longer count, as one value.

A row in a file stops counting in one of two ways:

- a *file of deletes*, which a move or a load committed, names its sequence number;
- a row in memory replaced it; the move that takes the newer row writes the file of deletes.

``Removed`` holds both, for the files of one snapshot. Each engine leaves such rows out in one
place: DuckDB by ``clause``, Arrow by ``filter``, Spark's own SQL in ``pipeline.spark_sql``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.catalog.model import NewFile
from tidemill.history.checking import check_files
from tidemill.history.reading import read_files
from tidemill.history.storage import Storage
from tidemill.stream.engine import Lender
from tidemill.types import SEQ

INLINE_MAX = 50  # more numbers than that are joined rather than listed


@dataclass(frozen=True)
class Clause:
    """What leaves removed rows out of ``FROM read_parquet(…) AS f``: a join and conditions."""

    join: str = ""
    tests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Removed:
    """Rows that no longer count: ``deletes`` are files that name them, ``seqs`` are numbers
    besides, in order."""

    deletes: tuple[NewFile, ...] = ()
    seqs: tuple[int, ...] = ()

    @classmethod
    def of(cls, deletes: Iterable[NewFile] = (), seqs: Iterable[int] = ()) -> Removed:
        return cls(tuple(deletes), tuple(sorted(seqs)))

    def __bool__(self) -> bool:
        return bool(self.deletes or self.seqs)

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        ends = [(file.seq_min, file.seq_max) for file in self.deletes]
        return joined_spans([*ends, *([(self.seqs[0], self.seqs[-1])] if self.seqs else [])])

    def touches(self, file: NewFile) -> bool:
        """Whether a file may hold such rows."""
        return _overlaps(self._spans, file)

    def concerning(self, files: Sequence[NewFile]) -> Removed:
        """What may take rows away from some files."""
        if not self.deletes:
            return self
        spans = joined_spans((file.seq_min, file.seq_max) for file in files)
        return Removed(tuple(f for f in self.deletes if _overlaps(spans, f)), self.seqs)

    def describe(self) -> list[str]:
        """What takes rows away, for EXPLAIN."""
        lines = []
        if self.deletes:
            rows = sum(file.rows for file in self.deletes)
            lines.append(f"deletes: {_count(len(self.deletes), 'file')}, {_count(rows, 'row')}")
        if self.seqs:
            lines.append(f"replaced by rows in memory: {_count(len(self.seqs), 'row')}")
        return lines

    def clause(self, storage: Storage) -> Clause:
        """The anti-join of DuckDB."""
        sources, tests = [], []
        if self.deletes:
            sources.append(f"SELECT {SEQ} FROM {read_files(storage, self.deletes)}")
        listed = ", ".join(map(str, self.seqs))
        if self.seqs and len(self.seqs) <= INLINE_MAX:
            tests.append(f"f.{SEQ} NOT IN ({listed})")
        elif self.seqs:
            sources.append(f"SELECT unnest([{listed}]::BIGINT[]) AS {SEQ}")
        if not sources:
            return Clause("", tuple(tests))
        gone = " UNION ALL ".join(sources)
        return Clause(f" ANTI JOIN ({gone}) AS d ON f.{SEQ} = d.{SEQ}", tuple(tests))


NOTHING = Removed()


@dataclass(frozen=True)
class Deletes:
    """Reads files of deletes."""

    storage: Storage
    duck: Lender

    def numbers(self, files: Sequence[NewFile], table: str) -> list[int]:
        """The sequence numbers that a table's files of deletes name, in order."""
        if not files:
            return []
        with self.duck.lent(exact=True) as connection:
            return deleted_seqs(self.storage, connection, files, table)

    def filter(self, rows: pa.Table, files: Sequence[NewFile], table: str) -> pa.Table:
        """Rows with their numbers, without those that files of deletes name: Arrow's anti-join."""
        gone = pa.array(self.numbers(files, table), pa.int64())
        return rows.filter(pc.invert(pc.is_in(rows.column(SEQ), gone)))


def deleted_seqs(
    storage: Storage,
    connection: duckdb.DuckDBPyConnection,
    deletes: Sequence[NewFile],
    table: str,
) -> list[int]:
    """The sequence numbers in a table's files of deletes, in order."""
    if not deletes:
        return []
    check_files(storage, table, deletes)
    text = f"SELECT DISTINCT {SEQ} FROM {read_files(storage, deletes)} ORDER BY 1"
    return [seq for (seq,) in connection.execute(text).fetchall()]


def joined_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of sequence numbers, ends included, joined where they meet, in order.

    >>> joined_spans([(5, 9), (1, 3), (4, 4), (20, 21)])
    [(1, 9), (20, 21)]
    """
    joined: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _overlaps(spans: Sequence[tuple[int, int]], file: NewFile) -> bool:
    at = bisect_left(spans, file.seq_min, key=itemgetter(1))
    return at < len(spans) and spans[at][0] <= file.seq_max
