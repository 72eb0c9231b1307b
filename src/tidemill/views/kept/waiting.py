"""The oldest of the rows that wait for partners: up to where a query's answers are complete.

Rows are answered in the order of arrival, which is not that of their times. Each stretch of numbers
is looked at once, when it has arrived, and its least time is kept until all of its rows were
answered. At most ``STRETCHES_MAX`` are kept apart.
"""

from __future__ import annotations

from collections.abc import Callable

STRETCHES_MAX = 256


class OldestWaiting:
    def __init__(self) -> None:
        self._stretches: list[tuple[int, int]] = []  # the last number, the least time
        self._known = -1
        self._until: int | None = None

    def until(
        self, low: int, high: int, clock_us: int, least: Callable[[int, int], int | None]
    ) -> int:
        """No answer of an earlier time is to come from the rows behind ``low``, which go up to
        ``high``, nor from those that come after. It does not go back."""
        if self._known < high:
            found = least(max(self._known, low), high)
            if found is not None:
                self._stretches.append((high, found))
            self._known = high
        self._stretches = [each for each in self._stretches if each[0] > low]
        if len(self._stretches) > STRETCHES_MAX:
            (_, one), (last, other) = self._stretches[:2]
            self._stretches[:2] = [(last, min(one, other))]
        until = min([clock_us, *(us for _, us in self._stretches)])
        self._until = until if self._until is None else max(self._until, until)
        return self._until
