"""Positions: how far a follower of a stream has come, as a value that can be stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tidemill.catalog.model import Reservation
from tidemill.stream.relation import SeqRange


@dataclass(frozen=True)
class Seen:
    """The moment up to which a follower was told of rows that are taken back: what rows up to
    ``seq`` replaced, and what loads replaced that were committed up to a snapshot."""

    seq: int = 0
    snapshot_id: int = 0


@dataclass(frozen=True)
class Position:
    """Up to where a follower has come.

    ``seq``: rows that were appended, up to this number; ``begin_snapshot``: rows of loads that were
    committed up to this snapshot; ``loads``: of loads since, the numbers that were given, from the
    first number of each on; ``seen``: what was taken back of all these rows."""

    seq: int = 0
    begin_snapshot: int = 0
    loads: tuple[SeqRange, ...] = ()
    seen: Seen = Seen()

    @property
    def is_start(self) -> bool:
        """Whether nothing was given yet."""
        return not (self.seq or self.begin_snapshot or self.loads)

    def with_load(self, first_seq: int, upto_seq: int) -> Position:
        """The position behind the rows of a load up to a number."""
        others = tuple(span for span in self.loads if span[0] != first_seq)
        return replace(self, loads=(*others, (first_seq, upto_seq)))

    def reached_in(self, load: Reservation) -> int:
        """The last number of a load that was given; the one before its first if none was."""
        found = (last for first, last in self.loads if first == load.first_seq)
        return next(found, load.first_seq - 1)

    def open_loads(self, reservations: Iterable[Reservation]) -> Iterator[Reservation]:
        """The loads whose rows were not all given, in the order of their numbers."""
        for load in reservations:
            is_later = load.created_snapshot > self.begin_snapshot
            if is_later and self.reached_in(load) < load.last_seq:
                yield load

    def settled(self, reservations: Sequence[Reservation], snapshot_id: int) -> Position:
        """The same position in fewer words, once all loads up to a snapshot were given."""
        if not self.loads or any(True for _ in self.open_loads(reservations)):
            return self
        return replace(self, begin_snapshot=max(snapshot_id, self.begin_snapshot), loads=())

    def held(self, seqs: Iterable[int], reservations: Sequence[Reservation]) -> list[int]:
        """Those of some rows that were given, or were there when the follower began."""
        since = [load for load in reservations if load.created_snapshot > self.begin_snapshot]
        before = [load for load in reservations if load.created_snapshot <= self.begin_snapshot]
        spans = [(load.first_seq, load.last_seq) for load in before]
        found = []
        for seq in seqs:
            load = next((each for each in since if each.first_seq <= seq <= each.last_seq), None)
            if load is not None:
                is_held = seq <= self.reached_in(load)
            else:
                is_held = seq <= self.seq or any(low <= seq <= high for low, high in spans)
            if is_held:
                found.append(seq)
        return found
