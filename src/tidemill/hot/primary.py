"""Primary keys of a streaming table: exact, without holding every key as a Python object.

The key includes the time column, so a row can only repeat one in the blocks that its time reaches:
the interval index names them, and a hash directory per block (kept like any value index) finds
candidates, which are then compared exactly. The rows not yet in a block are few and their keys are
kept in a dictionary.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.catalog.model import Index
from tidemill.hot import keys
from tidemill.hot.block import Block

PRIMARY_INDEX_ID = 0
Key = tuple[Any, ...]
NO_KEYS: Mapping[Key, int] = MappingProxyType({})


@dataclass(frozen=True)
class Conflicts:
    """What a batch repeats: ``kept`` rows may be stored, ``repeated`` rows may not, and the rows
    ``replaced`` (sequence numbers) give way to newer ones."""

    kept: npt.NDArray[np.int64] | None
    repeated: npt.NDArray[np.int64]
    replaced: tuple[int, ...] = ()


_NONE = np.empty(0, dtype=np.int64)
NO_CONFLICTS = Conflicts(None, _NONE)


class PrimaryKeys:
    def __init__(self, columns: tuple[str, ...], table_id: int) -> None:
        self.columns = columns
        self.index = Index(PRIMARY_INDEX_ID, "primary key", table_id, columns, "hash")
        self._lock = threading.Lock()
        self._young: dict[Key, int] = {}

    @property
    def nbytes(self) -> int:
        return len(self._young) * 200

    def keys_of(self, batch: pa.RecordBatch) -> list[Key]:
        return list(zip(*(_plain(batch.column(name)) for name in self.columns), strict=True))

    def young(self) -> dict[Key, int]:
        """The keys not yet in blocks. Take them before the blocks: rows only go from here to there,
        so none is missed when they settle in between."""
        return self._young

    def check(
        self,
        batch: pa.RecordBatch,
        young: dict[Key, int],
        blocks: list[Block],
        gone: set[int],
        policy: str,
        first_seq: int,
        moved: Mapping[Key, int] = NO_KEYS,
    ) -> Conflicts:
        """Compare a batch with itself, the young rows and the blocks it may repeat.

        ``gone`` are rows that were replaced but still stand in their blocks; ``first_seq`` is the
        sequence number that the batch's first row will get; ``moved`` are keys in history."""
        own = self.keys_of(batch)
        known = {**moved, **self._known(batch, own, young, blocks, gone)}
        if policy == "replace":
            return _replaced(own, known, first_seq)
        seen: set[Key] = set()
        repeated = []
        for row, key in enumerate(own):
            if key in known or key in seen:
                repeated.append(row)
            seen.add(key)
        if not repeated:
            return NO_CONFLICTS
        rows = np.array(repeated, dtype=np.int64)
        return Conflicts(np.setdiff1d(np.arange(len(own), dtype=np.int64), rows), rows)

    def add(self, batch: pa.RecordBatch, first_seq: int) -> None:
        seqs = range(first_seq, first_seq + batch.num_rows)
        with self._lock:
            self._young.update(zip(self.keys_of(batch), seqs, strict=True))

    def forget(self, seqs: Iterable[int]) -> None:
        """These rows are rows no more."""
        gone = set(seqs)
        with self._lock:
            self._young = {key: seq for key, seq in self._young.items() if seq not in gone}

    def settle(self, last_seq: int) -> None:
        """The rows up to a sequence number are in blocks now."""
        with self._lock:
            self._young = {key: seq for key, seq in self._young.items() if seq > last_seq}

    def _known(
        self,
        batch: pa.RecordBatch,
        own: list[Key],
        young: dict[Key, int],
        blocks: list[Block],
        gone: set[int],
    ) -> dict[Key, int]:
        """The batch's keys that exist, with the sequence number that holds each."""
        known = {key: young[key] for key in own if key in young}
        if not blocks:
            return known
        hashed = keys.hashes([batch.column(name) for name in self.columns])
        for block in blocks:
            for key, seq in self._known_in(block, hashed, own):
                if seq not in gone and key not in known:
                    known[key] = seq
        return known

    def _known_in(
        self, block: Block, hashed: keys.UInt64s, own: list[Key]
    ) -> list[tuple[Key, int]]:
        directory = block.directories[PRIMARY_INDEX_ID]
        filed = directory.keys
        assert isinstance(filed, np.ndarray)
        at = np.searchsorted(filed, hashed)
        at[at == len(filed)] = 0
        candidates = np.flatnonzero(filed[at] == hashed) if len(filed) else _NONE
        if not len(candidates):
            return []
        rows = [
            directory.rows[directory.starts[a] : directory.starts[a + 1]] for a in at[candidates]
        ]
        held = block.batch.select(list(self.columns))
        there = self.keys_of(held.take(pa.array(np.concatenate(rows))))
        seqs = block.seq_column()
        found, place = [], 0
        for candidate, run in zip(candidates, rows, strict=True):
            for row in run:
                if there[place] == own[candidate]:
                    found.append((own[candidate], int(seqs[row])))
                place += 1
        return found


def _replaced(own: list[Key], known: dict[Key, int], first_seq: int) -> Conflicts:
    """All rows are stored; each takes the place of the row that held its key before, be it in the
    table or earlier in the batch."""
    holders = dict(known)
    replaced = []
    for seq, key in enumerate(own, first_seq):
        if key in holders:
            replaced.append(holders[key])
        holders[key] = seq
    return Conflicts(None, _NONE, tuple(replaced))


def _plain(column: pa.Array) -> list[Any]:
    """Values that compare as SQL compares them (NaN equals NaN, -0.0 equals 0.0)."""
    column = keys.storage(column)
    if pa.types.is_floating(column.type):
        values = keys.words(column).astype(np.float64) + 0.0
        return list(np.where(np.isnan(values), np.nan, values).view(np.int64).tolist())
    if keys.is_numeric(column.type):
        return list(keys.words(column).tolist())
    return list(column.to_pylist())
