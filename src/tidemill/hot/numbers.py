"""Which sequence numbers history has of a table, as the catalog says when the table is opened."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.catalog.commits import SeqRange
from tidemill.catalog.model import Snapshot


@dataclass(frozen=True)
class HistoryNumbers:
    """``moved_seq``: history holds the rows up to it that came through memory. ``reserved_seq`` is
    the last number that a load was given, ``loaded`` are those of loads that were committed."""

    moved_seq: int = 0
    reserved_seq: int = 0
    loaded: tuple[SeqRange, ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot, table_id: int) -> HistoryNumbers:
        history = snapshot.history(table_id)
        loaded = tuple(SeqRange(each.first_seq, each.last_seq) for each in history.reservations)
        return cls(history.moved_seq, history.reserved_seq, loaded)
