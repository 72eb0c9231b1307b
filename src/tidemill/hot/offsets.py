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

from tidemill.errors import RowsRejectedError

INTERVALS_MAX = 65_536
SOURCES_MAX = 65_536


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

    def dump(self) -> dict[str, list[object]]:
        return {
            source: [self._floors.get(source), lows, self._highs[source]]
            for source, lows in self._lows.items()
        }

    @classmethod
    def load(cls, state: Mapping[str, list[object]]) -> Offsets:
        offsets = cls()
        for source, (floor, lows, highs) in state.items():
            offsets._lows[source] = list(lows)  # type: ignore[call-overload]
            offsets._highs[source] = list(highs)  # type: ignore[call-overload]
            if floor is not None:
                offsets._floors[source] = int(floor)  # type: ignore[call-overload]
        return offsets
