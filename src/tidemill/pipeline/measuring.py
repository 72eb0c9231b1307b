"""Measuring: the arrival rate of a table, what its moves take, and how wrong the forecasts were.

Document 000 §IV-C weights λ and k for contention: "not all λ data of a bunch arrive exactly at the
same time, nor all k data are moved at the same time". Here c_λ(λ) and c_k(k) are what was found
over what had been expected:

1. when a move begins, λ, what is held and what the move shall take are written down;
2. when it has ended, the rows that arrived meanwhile over λ·elapsed is one measurement of c_λ, and
   the bytes that were freed over those that were planned one of c_k (indices and replaced rows go
   along, and rows that a reader holds still count).

Both are kept by magnitude, since they vary with λ and k; each is bounded and smoothed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tidemill.pipeline.estimates import MOVE_S_START, Flow
from tidemill.smoothing import clamped, smoothed

RATE_HALF_LIFE_S = 5.0
BURST_HALF_LIFE_S = 1.0
PEAK_HALF_LIFE_S = 60.0
FACTOR_MIN, FACTOR_MAX = 0.25, 4.0
NEAR_DOUBLINGS = 3  # a factor is taken from magnitudes that are at most so far
MAGNITUDES_MAX = 64
MEASURED_S_MIN = 0.05  # in a shorter time nothing can be told
MOVE_S_MIN, MOVE_S_MAX = 0.05, 600.0


class Contention:
    """A factor by the size of what was forecast; 1 where nothing near was measured."""

    def __init__(self) -> None:
        self._factors: dict[int, tuple[float, int]] = {}  # by magnitude: factor, measurements

    def factor(self, size: float) -> float:
        wanted = _magnitude(size)
        near = min(self._factors, key=lambda known: abs(known - wanted), default=None)
        if near is None or abs(near - wanted) > NEAR_DOUBLINGS:
            return 1.0
        return self._factors[near][0]

    def note(self, size: float, ratio: float) -> None:
        """What was found was so many times what had been expected."""
        at = _magnitude(size)
        factor, runs = self._factors.get(at, (1.0, 0))
        factor = clamped(smoothed(factor, ratio, runs + 1), FACTOR_MIN, FACTOR_MAX)
        self._factors[at] = factor, runs + 1


def _magnitude(size: float) -> int:
    return min(int(math.log2(size)), MAGNITUDES_MAX - 1) if size > 1 else 0


@dataclass(frozen=True)
class _Begun:
    """A move under way, and what was known when it began."""

    at_us: int
    stored: int
    rate_rows_s: float
    row_bytes: float
    held_bytes: int
    moved_bytes: int


class FlowMeter:
    """One table's arrivals and moves. Whoever looks tells the time, so that tests can."""

    def __init__(self, now_us: int, stored: int) -> None:
        self.stored = stored
        self.rate_rows_s = 0.0
        self._looked_at_us = now_us
        self._burst_rows_s = 0.0
        self._peak_rows_s = 0.0
        self._move_s = MOVE_S_START
        self._moves = 0
        self._moved_bytes = 0
        self._arrivals = Contention()
        self._freed = Contention()
        self._begun: _Begun | None = None

    def look(self, stored: int, now_us: int) -> None:
        """So many rows were stored up to now."""
        elapsed_s = (now_us - self._looked_at_us) / 1e6
        if elapsed_s <= 0:
            return
        rate = max(stored - self.stored, 0) / elapsed_s
        self.rate_rows_s += _weight(elapsed_s, RATE_HALF_LIFE_S) * (rate - self.rate_rows_s)
        self._burst_rows_s += _weight(elapsed_s, BURST_HALF_LIFE_S) * (rate - self._burst_rows_s)
        faded = self._peak_rows_s * (1 - _weight(elapsed_s, PEAK_HALF_LIFE_S))
        self._peak_rows_s = max(self._burst_rows_s, faded)
        self.stored, self._looked_at_us = stored, now_us

    def flow(self, row_bytes: float, moved_bytes: float | None = None) -> Flow:
        """The flow with rows of that size, and the factor for a move of ``moved_bytes`` (without
        it, of one like the last)."""
        rate = self.rate_rows_s * row_bytes
        return Flow(
            rate,
            self._peak_rows_s * row_bytes,
            self._move_s,
            self._arrivals.factor(rate),
            self._freed.factor(self._moved_bytes if moved_bytes is None else moved_bytes),
            self._moves,
        )

    def begin(self, now_us: int, held_bytes: int, row_bytes: float, moved_bytes: int) -> None:
        """A move begins that shall take so much."""
        self._moved_bytes = moved_bytes
        self._begun = _Begun(
            now_us, self.stored, self.rate_rows_s, row_bytes, held_bytes, moved_bytes
        )

    def end(self, now_us: int, held_bytes: int, *, is_good: bool = True) -> None:
        """The move has ended, and so much is held now. One that failed teaches nothing."""
        begun, self._begun = self._begun, None
        if begun is None or not is_good:
            return
        elapsed_s = (now_us - begun.at_us) / 1e6
        if elapsed_s < MEASURED_S_MIN:
            return
        found_s = clamped(elapsed_s, MOVE_S_MIN, MOVE_S_MAX)
        self._move_s = smoothed(self._move_s, found_s, self._moves)
        self._moves += 1
        arrived = self.stored - begun.stored
        expected = begun.rate_rows_s * elapsed_s
        if expected >= 1:
            self._arrivals.note(begun.rate_rows_s * begun.row_bytes, arrived / expected)
        if begun.moved_bytes > 0:
            freed = begun.held_bytes + arrived * begun.row_bytes - held_bytes
            self._freed.note(begun.moved_bytes, freed / begun.moved_bytes)


def _weight(elapsed_s: float, half_life_s: float) -> float:
    return float(1 - 0.5 ** (elapsed_s / half_life_s))
