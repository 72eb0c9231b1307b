"""Which sequence numbers history has of a table, as the catalog says when the table is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tidemill.catalog.commits import ChangeSet, SeqRange
from tidemill.catalog.model import Snapshot
from tidemill.changes.model import Change, unpack


class SetsOf(Protocol):
    """Gives a table's sets of changes: those that are needed, or all that are known."""

    def __call__(self, table_id: int, *, is_live: bool = True) -> Sequence[ChangeSet]: ...


@dataclass(frozen=True)
class HistoryNumbers:
    """``moved_seq``: history holds the rows up to it that came through memory. ``reserved_seq`` is
    the last number that a load was given, ``loaded`` are those of loads that were committed.
    ``changes`` are those that the catalog keeps, ``last_change`` is the number of the last change
    that it knows of."""

    moved_seq: int = 0
    reserved_seq: int = 0
    loaded: tuple[SeqRange, ...] = ()
    changes: tuple[Change, ...] = ()
    last_change: int = 0

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        sets_of: SetsOf,
        table_id: int,
    ) -> HistoryNumbers:
        history = snapshot.history(table_id)
        loaded = tuple(SeqRange(each.first_seq, each.last_seq) for each in history.reservations)
        sets = sets_of(table_id)
        # A number is never given again, nor is a set with those that nothing needs any more.
        known = [each.last_number for each in sets_of(table_id, is_live=False)]
        last = max([*known, *(file.changed for file in history.files)], default=0)
        changes = tuple(change for each in sets for change in unpack(each.body))
        return cls(history.moved_seq, history.reserved_seq, loaded, changes, last)
