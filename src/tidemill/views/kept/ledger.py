"""The ledger of a kept query: its answers, stored once, and how far it came.

Answers are appended under a source of the query's own, with an offset that says what they answer
to. Rows and offset are one frame of the log, so after a crash the query goes on behind the newest
offset and nothing is stored twice. An evaluation without answers is harmless to repeat, so its
offset is noted only now and then; unless the query reads tables that change, which might have an
answer the next time.
"""

from __future__ import annotations

import time
from bisect import bisect_right

import pyarrow as pa

from tidemill.catalog.model import Table
from tidemill.hot.crash import point
from tidemill.views.kept.environment import KeptEnvironment

NOTE_EVERY_S = 5.0


class Ledger:
    def __init__(
        self, environment: KeptEnvironment, table: Table, source: str, is_noted: bool = False
    ) -> None:
        """``is_noted``: every offset, also of evaluations without answers."""
        self.table = table
        self.source = source
        self.rows_out = 0
        self._environment = environment
        self._noted = environment.hot(table).offsets.newest().get(source)
        self._reached = self._noted
        self._noted_at_s = time.monotonic()
        self._is_noted = is_noted

    @property
    def reached(self) -> int | None:
        """The newest offset, noted or not; None before the first evaluation."""
        return self._reached

    def store(self, answers: pa.Table, offset: int) -> None:
        """Store the answers of an evaluation and how far it came."""
        if answers.num_rows:
            point("kept.evaluated")
            self._environment.append(self.table, answers, self.source, offset)
            point("kept.stored")
            self.rows_out += answers.num_rows
            self._note(offset)
        self._reached = offset
        if self._is_noted or time.monotonic() - self._noted_at_s >= NOTE_EVERY_S:
            self.close()

    def newest_in(self, first: int, last: int) -> int:
        """The newest offset of a range that was stored; ``first - 1`` if there is none."""
        known = self._environment.hot(self.table).offsets.of(self.source)
        if known is None:
            return first - 1
        if known.floor is not None and last < known.floor:
            return last  # so long ago that it is not remembered singly
        at = bisect_right(known.highs, last) - 1
        return max(known.highs[at], first - 1) if at >= 0 else first - 1

    def close(self) -> None:
        """Note how far the query came without answers since."""
        if self._reached is not None and self._reached != self._noted:
            self._environment.note(self.table, self.source, self._reached)
            point("kept.noted")
            self._note(self._reached)

    def _note(self, offset: int) -> None:
        self._noted = offset
        self._noted_at_s = time.monotonic()
