"""Calm: whether the statements of a process leave the machine time for work that can wait.

Merging files takes processor time from whoever reads at that moment, even at the lowest priority:
two threads of one core share it. So such work waits for a calm moment, in which statements (and
appends) ran for less than half of the time. A process that is never calm has it done all the same,
now and then, since files that are never merged make reading slow in the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable

BUSY_SHARE = 0.5
LOOK_EVERY_S = 1.0
WAIT_MAX_S = 60.0


class Calm:
    def __init__(
        self, busy_s: Callable[[], float], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """``busy_s`` says for how long statements have been running so far."""
        self._busy_s = busy_s
        self._now_s = now_s
        self._looked_s = self._calm_s = now_s()
        self._busy_then_s = busy_s()
        self._is_calm = True

    def is_calm(self) -> bool:
        """Whether it is now. By the last second or more; the first answer is yes."""
        now_s = self._now_s()
        if (passed_s := now_s - self._looked_s) >= LOOK_EVERY_S:
            busy_s = self._busy_s()
            share = (busy_s - self._busy_then_s) / passed_s
            waited_s = now_s - self._calm_s
            self._is_calm = share < BUSY_SHARE or waited_s >= WAIT_MAX_S
            self._looked_s, self._busy_then_s = now_s, busy_s
            if self._is_calm:
                self._calm_s = now_s
        return self._is_calm
