"""Intake: sorting an accepted batch into rows to store and rows to set aside.

A batch is all or nothing, unless the table says ``rejected = 'divert'`` or ``late = 'divert'``.
Whatever the table says, every row is counted once: rows_in = stored + late + rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.model import Package, Table
from tidemill.clock import from_us
from tidemill.errors import DuplicateKeyError, LateRowsError
from tidemill.hot import keys
from tidemill.hot.primary import Key, PrimaryKeys
from tidemill.hot.progress import Progress
from tidemill.hot.published import Published
from tidemill.rendering import rows_as_json
from tidemill.result import AppendResult as AppendResult

FindKeys = Callable[[pa.RecordBatch], dict[Key, int]]
"""Which keys of a batch history holds, with the sequence number of each."""


@dataclass(frozen=True)
class Accepted:
    """Rows that fit the table's columns, and (row as JSON, reason) of those that do not.

    ``packages`` are the files that they came from, if these must not be stored twice. Rows of a
    load (``is_load``) are never late and do not move the table's clock. Nor do those that
    ``moved``: rows of the table with another time or key; if one of their keys is taken, nothing
    is stored."""

    batches: tuple[pa.RecordBatch, ...]
    rejects: tuple[tuple[str, str], ...] = ()
    source: str | None = None
    offset: int | None = None
    packages: tuple[Package, ...] = ()
    is_load: bool = False
    moved: tuple[pa.RecordBatch, ...] = ()

    @property
    def rows(self) -> int:
        batches = (*self.batches, *self.moved)
        return sum(int(batch.num_rows) for batch in batches) + len(self.rejects)

    @cached_property
    def nbytes(self) -> int:
        return sum(int(batch.nbytes) for batch in (*self.batches, *self.moved)) + sum(
            len(text) + len(reason) for text, reason in self.rejects
        )


@dataclass
class Sorted:
    """What a batch consists of, as the table sees it."""

    stored: list[pa.RecordBatch] = field(default_factory=list)
    late: list[pa.RecordBatch] = field(default_factory=list)
    late_reason: str = ""
    rejects: list[tuple[str, str]] = field(default_factory=list)
    replaced: list[int] = field(default_factory=list)
    ignored: int = 0
    late_stored: int = 0
    newest_us: int | None = None

    def summary(self, rows_in: int) -> AppendResult:
        return AppendResult(
            rows_in,
            stored=sum(batch.num_rows for batch in self.stored),
            late=sum(batch.num_rows for batch in self.late),
            rejected=len(self.rejects) + self.ignored,
            ignored=self.ignored,
            replaced=len(self.replaced),
        )


@dataclass(frozen=True)
class Sorter:
    """Sorts batches of one table, under its write lock."""

    table: Table
    progress: Progress
    primary: PrimaryKeys | None
    published: Published
    next_seq: int
    history: FindKeys | None = None
    leaving: frozenset[int] = frozenset()

    def sort(self, accepted: Accepted) -> Sorted:
        """Set late rows and repeated keys apart; raise if the table refuses them."""
        result = Sorted(rejects=list(accepted.rejects), newest_us=self.progress.newest_us)
        watermark = None if accepted.is_load else self.progress.watermark_us()
        for batch in self._batches(accepted):
            if watermark is not None:
                batch = self._sort_late(batch, watermark, result)
            if self.primary is not None and batch.num_rows and not accepted.moved:
                batch = self._sort_repeated(batch, self.primary, result)
            if batch.num_rows:
                result.stored.append(batch)
                newest = None if accepted.is_load else self.progress.newest_of(self._times(batch))
                if newest is not None:
                    held = result.newest_us
                    result.newest_us = newest if held is None else max(newest, held)
        moved = [batch for batch in accepted.moved if batch.num_rows]
        if moved and self.primary is not None:
            whole = pa.concat_batches([*result.stored, *moved])
            self._sort_repeated(whole, self.primary, result, must_fit=True)
        result.stored += moved
        return result

    def _batches(self, accepted: Accepted) -> list[pa.RecordBatch]:
        batches = [batch for batch in accepted.batches if batch.num_rows]
        if self.primary is not None and len(batches) > 1:
            return [pa.concat_batches(batches)]
        return batches

    def _times(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        return keys.words(batch.column(self.table.time_column))

    def _sort_late(self, batch: pa.RecordBatch, watermark: int, result: Sorted) -> pa.RecordBatch:
        times = self._times(batch)
        late = times < watermark
        count = int(np.count_nonzero(late))
        policy = self.table.settings["late"]
        if count == 0 or policy == "accept":
            result.late_stored += count
            return batch
        reason = f"{self.table.time_column} is below the watermark {from_us(watermark)}"
        rows = batch.filter(pa.array(late))
        if policy == "divert":
            result.late.append(rows)
            result.late_reason = reason
        elif self.table.settings["rejected"] == "divert":
            result.rejects += [(text, f"late: {reason}") for text in rows_as_json(rows)]
        else:
            raise LateRowsError(
                f'{count} of {batch.num_rows} rows are late for table "{self.table.name}"; '
                "nothing was stored",
                detail=f"{reason}, the oldest is {from_us(int(times.min()))}",
                hint="leave them out, or set late = 'accept' or late = 'divert'",
            )
        return batch.filter(pa.array(~late))

    def _sort_repeated(
        self,
        batch: pa.RecordBatch,
        primary: PrimaryKeys,
        result: Sorted,
        must_fit: bool = False,
    ) -> pa.RecordBatch:
        """Set rows apart whose key is taken; with ``must_fit`` the first one is an error, whatever
        the table says."""
        times = self._times(batch)
        young = primary.young()
        blocks, gone = self.published.blocks_between(int(times.min()), int(times.max()))
        policy = "reject" if must_fit else self.table.settings["on_conflict"]
        # Memory first, then history: rows only go from here to there, so none is missed.
        moved = self.history(batch) if self.history is not None else {}
        if self.leaving:
            young = {key: seq for key, seq in young.items() if seq not in self.leaving}
            moved = {key: seq for key, seq in moved.items() if seq not in self.leaving}
            gone = gone | self.leaving
        found = primary.check(batch, young, blocks, gone, policy, self.next_seq, moved)
        result.replaced += found.replaced
        if found.kept is None:
            return batch
        repeated = batch.take(pa.array(found.repeated))
        if policy == "ignore":
            result.ignored += len(found.repeated)
        elif self.table.settings["rejected"] == "divert" and not must_fit:
            reason = f"the primary key ({', '.join(primary.columns)}) exists"
            result.rejects += [(text, reason) for text in rows_as_json(repeated)]
        else:
            example = rows_as_json(repeated.slice(0, 1).select(list(primary.columns)))[0]
            raise DuplicateKeyError(
                f"{len(found.repeated)} of {batch.num_rows} rows repeat a primary key of table "
                f'"{self.table.name}"; nothing was stored',
                detail=f"for example {example}",
                hint="leave them out, or set on_conflict = 'ignore' or on_conflict = 'replace'",
            )
        return batch.take(pa.array(found.kept))
