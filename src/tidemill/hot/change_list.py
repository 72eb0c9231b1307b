"""The changes (UPDATE, DELETE) of a table that some rows may still need, for ``Published``, which
holds its lock around all calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from tidemill.changes.model import Change
from tidemill.changes.needed import Needed
from tidemill.changes.patching import NO_SEQS, Seqs
from tidemill.changes.pending import NOTHING_PENDING, Pending


class ChangeList:
    """``pending`` are those that rows in memory have, ``new`` those that came since the last
    read. ``last`` is the number of the last one there ever was, ``saved`` up to which the catalog
    knows of them."""

    def __init__(self) -> None:
        self.pending: Pending = NOTHING_PENDING
        self.new: list[Change] = []
        self.last = 0
        self.saved = 0
        self._waiting: Pending = NOTHING_PENDING
        self._change_bytes = 0
        self._deleted: list[Seqs] = []  # rows that are not moved yet

    @property
    def nbytes(self) -> int:
        return self._change_bytes + sum(seqs.nbytes for seqs in self._deleted)

    def add(self, changes: Iterable[Change]) -> None:
        """Take changes with growing numbers; known ones are left out."""
        for change in changes:
            if change.number > self.last:
                self.new.append(change)
                self.last = change.number
                self._change_bytes += change.nbytes

    @property
    def waiting(self) -> Pending:
        """The new ones."""
        known = len(self._waiting)
        if known < len(self.new):
            self._waiting = self._waiting.added(self.new[known:])
        return self._waiting

    @property
    def settled(self) -> int:
        """The number of the last change that rows in memory have."""
        return self.new[0].number - 1 if self.new else self.last

    def concern(self, needed: Iterable[Needed]) -> bool:
        """Whether any of the new ones may matter to one of some readers."""
        return any(len(self.waiting.concerning(each)) for each in needed)

    def settle(self, changes: Sequence[Change], deleted: Seqs) -> None:
        """Rows in memory have these, the first of the new ones; ``deleted`` are gone."""
        if len(deleted):
            self._deleted.append(deleted)
        assert list(changes) == self.new[: len(changes)], "changes are carried out in their order"
        self.pending, self.new = self.pending.added(changes), self.new[len(changes) :]
        self._waiting = NOTHING_PENDING

    def forget(self, numbers: Collection[int]) -> None:
        """No row needs these any more."""
        self.pending = self.pending.without(numbers)
        self._change_bytes = sum(change.nbytes for change in (*self.pending, *self.new))

    def deleted_up_to(self, seq: int) -> Seqs:
        """The rows up to a sequence number that changes deleted and that are not moved."""
        found = np.concatenate([NO_SEQS, *self._deleted])
        return np.asarray(found[found <= seq])

    @property
    def firsts_deleted(self) -> list[int]:
        """Numbers of rows that changes deleted and that are not moved yet, the least among them."""
        return [int(seqs[0]) for seqs in self._deleted]

    def release(self, moved_seq: int) -> None:
        """History holds the rows up to a sequence number."""
        left = [seqs[seqs > moved_seq] for seqs in self._deleted]
        self._deleted = [seqs for seqs in left if len(seqs)]

    def needs(self, first_seq: int, following: int) -> bool:
        """Whether a segment of the log may have a change that is nowhere else."""
        return any(
            change.number > self.saved and first_seq <= change.upto_seq + 1 <= following
            for change in (*self.pending, *self.new)
        )
