"""Source offsets: which appends of which source were acknowledged, so that none is stored twice.

Offsets of a source need not arrive in order, so a high-water mark would lose rows: the exact set
is kept, as sorted disjoint intervals. Neighbouring offsets melt into one interval. A source that
leaves gaps for ever keeps at most ``INTERVALS_MAX`` intervals: the oldest are forgotten, and an
offset below the forgotten ones is refused loudly, because nobody can say any more whether it was
stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.errors import RowsRejectedError

INTERVALS_MAX = 65_536
SOURCES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    """The offsets of one source: the intervals from ``lows`` to ``highs``, and the offset below
    which they are no longer remembered singly."""

    floor: int | None
    lows: tuple[int, ...]
    highs: tuple[int, ...]


class Offsets:
    def __init__(self) -> None:
        self._lows: dict[str, list[int]] = {}
        self._highs: dict[str, list[int]] = {}
        self._floors: dict[str, int] = {}

    def holds(self, source: str, offset: int) -> bool:
        """Whether the pair was acknowledged; raises when that is no longer known."""
        if offset < self._floors.get(source, offset):
            raise RowsRejectedError(
                f'offset {offset} of source "{source}" is too old to be checked for repetition',
                detail=f"offsets below {self._floors[source]} are no longer remembered singly",
                hint="send it under another source name if it is surely new",
            )
        at = bisect_right(self._lows.get(source, []), offset) - 1
        return at >= 0 and self._highs[source][at] >= offset

    def is_repeat(self, source: str | None, offset: int | None) -> bool:
        """Whether an append was acknowledged before; never one without a source or an offset.
        Refuses a source too many."""
        if source is None or offset is None:
            return False
        self.check_room(source)
        return self.holds(source, offset)

    def check_room(self, source: str) -> None:
        if source not in self._lows and len(self._lows) >= SOURCES_MAX:
            raise RowsRejectedError(
                f'source "{source}" would be one more than the {SOURCES_MAX} a table remembers',
                hint="use fewer source names, with growing offsets",
            )

    def add(self, source: str, offset: int) -> None:
        lows, highs = self._lows.setdefault(source, []), self._highs.setdefault(source, [])
        at = bisect_right(lows, offset)
        joins_left = at > 0 and highs[at - 1] >= offset - 1
        joins_right = at < len(lows) and lows[at] == offset + 1
        if joins_left and joins_right:
            highs[at - 1] = highs[at]
            del lows[at], highs[at]
        elif joins_left:
            highs[at - 1] = max(highs[at - 1], offset)
        elif joins_right:
            lows[at] = offset
        else:
            lows.insert(at, offset)
            highs.insert(at, offset)
        if len(lows) > INTERVALS_MAX:
            self._floors[source] = highs[0] + 1
            del lows[0], highs[0]

    def newest(self) -> dict[str, int]:
        """The largest offset of each source."""
        return {source: highs[-1] for source, highs in self._highs.items() if highs}

    def of(self, source: str) -> SourceOffsets | None:
        """What is known of one source; None if it never appended."""
        lows = self._lows.get(source)
        if lows is None:
            return None
        highs = self._highs[source]
        return SourceOffsets(self._floors.get(source), tuple(lows), tuple(highs))

    def dump(self) -> dict[str, SourceOffsets]:
        """What is known of all sources."""
        found = ((source, self.of(source)) for source in list(self._lows))
        return {source: known for source, known in found if known is not None}

    @classmethod
    def load(cls, state: Mapping[str, SourceOffsets]) -> Offsets:
        offsets = cls()
        for source, known in state.items():
            offsets._lows[source] = list(known.lows)
            offsets._highs[source] = list(known.highs)
            if known.floor is not None:
                offsets._floors[source] = known.floor
        return offsets
