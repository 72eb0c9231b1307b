"""Levels: the state of digests that DuckDB computes: sets, sketches, lists, top-k, sessions.

1. A batch of rows becomes partials, by the digest's ``partial`` query; they enter level 0.
2. Eight tables of a level become one of the next, by the ``merge`` query. A row's partial is so
   merged once a level, and an insert waits for a large merge only as often as it is worth it.
3. An answer merges what all levels hold, and that becomes the only table left, on the highest
   level: answers without rows in between cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from tidemill.digests.shape import ROWS
from tidemill.types import Column, quote

Run = Callable[[str, Mapping[str, pa.Table]], pa.Table]

PARTIALS = "tm_partials"
FANOUT = 8


class LevelState:
    """Partials in levels; ``run`` answers a query over tables by name, in DuckDB's exact types."""

    def __init__(self, columns: Sequence[Column], partial: str, merge: str, run: Run) -> None:
        self._names = [column.name for column in columns]
        nulls = [f"CAST(NULL AS {c.type.name}) AS {quote(c.name)}" for c in columns]
        self._nothing = f"SELECT {', '.join(nulls)} WHERE false"
        self._partial = partial
        self._merge = merge
        self._run = run
        self._levels: list[list[pa.Table]] = []
        self._answer: pa.Table | None = None

    def absorb(self, rows: pa.Table) -> None:
        self.absorb_partials(self._run(self._partial, {ROWS: rows}))

    def absorb_partials(self, partials: pa.Table) -> None:
        if not partials.num_rows:
            return
        self._answer = None
        partials = partials.select(self._names)
        if any(table.schema != partials.schema for level in self._levels for table in level[:1]):
            partials = self._run(f"SELECT * FROM {PARTIALS}", {PARTIALS: partials})
        self._push(0, partials)

    def _push(self, level: int, table: pa.Table) -> None:
        while len(self._levels) <= level:
            self._levels.append([])
        self._levels[level].append(table)
        if len(self._levels[level]) == FANOUT:
            merged = self._merged(self._levels[level])
            self._levels[level] = []
            self._push(level + 1, merged)

    def _merged(self, tables: Sequence[pa.Table]) -> pa.Table:
        partials = pa.concat_tables(tables) if tables else self._run(self._nothing, {})
        return self._run(self._merge, {PARTIALS: partials})

    def table(self) -> pa.Table:
        if self._answer is None:
            tables = [table for level in reversed(self._levels) for table in level]
            self._answer = self._merged(tables)
            top = max(len(self._levels) - 1, 1)
            self._levels = [[] for _ in range(top)]
            self._levels.append([self._answer] if self._answer.num_rows else [])
        return self._answer

    def select_sql(self, source: str) -> str:
        """The digest's columns, over ``table()`` as ``source``."""
        return f"SELECT * FROM {source}"

    @property
    def groups(self) -> int:
        """The groups of the answer; before there is one, the rows of all partials."""
        if self._answer is not None:
            return int(self._answer.num_rows)
        return sum(table.num_rows for level in self._levels for table in level)

    @property
    def nbytes(self) -> int:
        """What is held; tables that are still to be merged take as much again meanwhile."""
        sizes = [table.nbytes for level in self._levels for table in level]
        return sum(sizes) if len(sizes) < 2 else 2 * sum(sizes)
