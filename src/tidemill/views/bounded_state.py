"""The state of a follower: what its digests hold of the stream, within the memory of its views.

Rows and partials are absorbed in parts that cannot lift the state far over its bound; one that
would is given up (``TooLarge``), and the views are answered by their queries. The state knows the
times of what it holds, and the ``cut`` before which it takes no row (``follower``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from tidemill.catalog.model import DataFile
from tidemill.digests.batch import Rows
from tidemill.digests.definition import Digest
from tidemill.hot.view import AFTER_ALL_US, BEFORE_ALL_US

CHUNK_ROWS = 131_072
CHUNK_ROWS_MIN = 8_192
OVER = 1.1  # how far a state may pass its bound before it is given up

Narrow = Callable[[str], bool]
"""Whether a state may have fewer bits than its type."""

ReadFiles = Callable[[Digest, Sequence[DataFile]], pa.Table]
"""Reads files of partials."""


class TooLarge(Exception):
    """The state would take more memory than it may have."""


class DigestStates(Protocol):
    """States of some digests that absorb rows together; by the digests' table ids."""

    @property
    def kind(self) -> str: ...
    def absorb(self, rows: Rows) -> None: ...
    def absorb_partials(self, digest_id: int, partials: pa.Table) -> None: ...
    def table(self, digest_id: int) -> pa.Table:
        """Keys and states, merged; valid until the next change."""
        ...

    def select(self, digest_id: int, source: str, narrow: Narrow, more: Sequence[str] = ()) -> str:
        """A SELECT over ``table`` under a name, with the digest's exact types, but for states
        that may be narrow, and with more columns that the source has."""
        ...

    def is_steady(self, digest_id: int) -> bool:
        """Whether groups stay where they are in ``table``, and new ones come behind them."""
        ...

    def groups(self, digest_id: int) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def growth(self, rows: int) -> int:
        """The bytes that so many rows may take."""
        ...


@dataclass(frozen=True)
class Share:
    """A view that reads a state: the view's memory, and its other states."""

    memory_max: int
    others: Sequence[BoundedState]

    @property
    def left(self) -> int:
        """What the others leave of the memory."""
        return self.memory_max - sum(other.nbytes for other in self.others)


class BoundedState:
    def __init__(self, time_column: str, read_files: ReadFiles) -> None:
        self._time_column = time_column
        self._read_files = read_files
        self._kept: DigestStates | None = None
        self.shares: Sequence[Share] = ()
        self.newest_us = BEFORE_ALL_US  # no row that was taken in is newer
        self.oldest_us = AFTER_ALL_US  # no row that was taken in is older
        self.cut_us = BEFORE_ALL_US  # older rows were not taken in

    def begin(self, kept: DigestStates, cut_us: int) -> None:
        """Hold nothing, and nothing before a time from now on."""
        self._kept = kept
        self.oldest_us = AFTER_ALL_US
        self.cut_us = cut_us

    def drop(self) -> None:
        """Give the memory back."""
        self._kept = None

    @property
    def is_built(self) -> bool:
        return self._kept is not None

    @property
    def kept(self) -> DigestStates:
        assert self._kept is not None, "follow comes first"
        return self._kept

    @property
    def nbytes(self) -> int:
        kept = self._kept
        return 0 if kept is None else kept.nbytes

    @property
    def room(self) -> int | None:
        """The bytes that it may have; None if nobody says. The most that one of its views leaves
        it."""
        return max((share.left for share in self.shares), default=None)

    def take_rows(self, rows: Rows) -> None:
        """Absorb rows of the stream, without those before the cut."""
        low, high = rows.ends(self._time_column)
        self.newest_us = max(self.newest_us, high)
        if low < self.cut_us:
            rows, low = rows.since(self._time_column, self.cut_us), self.cut_us
        if not rows.table.num_rows:
            return
        self.oldest_us = min(self.oldest_us, low)
        count, room = rows.table.num_rows, self.room
        if room is None or self.kept.nbytes + self.kept.growth(count) <= room:
            self.kept.absorb(rows)
            return
        for start in range(0, count, CHUNK_ROWS_MIN):
            self._check_room(min(CHUNK_ROWS_MIN, count - start))
            self.kept.absorb(Rows(rows.table.slice(start, CHUNK_ROWS_MIN)))
        self._check_room(0)

    def take_partials(self, digest: Digest, files: Sequence[DataFile]) -> None:
        """Absorb files of partials, a few at a time. Each row of a file is a group: a file with
        more of them than there is room for needs not be read."""
        group_bytes = 8 * len(digest.columns)
        at = 0
        while at < len(files):
            end, rows = at + 1, files[at].rows
            while end < len(files) and rows + files[end].rows <= CHUNK_ROWS:
                rows, end = rows + files[end].rows, end + 1
            room = self.room
            if room is not None and files[at].rows * group_bytes > OVER * room:
                raise TooLarge
            self._check_room(0)
            self._absorb_partials(digest, self._read_files(digest, files[at:end]))
            at = end

    def note_times(self, files: Sequence[DataFile]) -> None:
        """Rows of some files are in the state."""
        self.newest_us = max([self.newest_us, *(file.time_max_us for file in files)])

    def note_oldest(self, files: Sequence[DataFile]) -> None:
        """Partials of some files were taken in."""
        self.oldest_us = min([self.oldest_us, *(file.time_min_us for file in files)])

    def _absorb_partials(self, digest: Digest, partials: pa.Table) -> None:
        count, room = partials.num_rows, self.room
        if room is None or self.kept.nbytes + self.kept.growth(count) <= room:
            self.kept.absorb_partials(digest.table_id, partials)
            return
        for start in range(0, count, CHUNK_ROWS_MIN):
            self._check_room(min(CHUNK_ROWS_MIN, count - start))
            part = partials.slice(start, CHUNK_ROWS_MIN)
            self.kept.absorb_partials(digest.table_id, part)
        self._check_room(0)

    def _check_room(self, rows: int) -> None:
        """Give up before so many rows might lift the state far over its bound."""
        room, kept = self.room, self.kept
        if room is None:
            return
        held = kept.nbytes
        if held > room or held + kept.growth(rows) > OVER * room:
            raise TooLarge
