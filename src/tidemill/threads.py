"""Things that each thread has one of, such as a cursor of DuckDB.

``threading.local`` would do, but for one trap: Spark's start forks this process, and the child
throws away what the other threads had, which for a DuckDB connection ends in a crash. A plain
dictionary is left alone there. What threads that have ended held is let go with the next newcomer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerThread(Generic[T]):
    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._held: dict[int, T] = {}

    def get(self) -> T:
        """This thread's own; made if it has none."""
        ident = threading.get_ident()
        if ident not in self._held:
            self._forget_ended()
            self._held[ident] = self._make()
        return self._held[ident]

    def forget(self) -> None:
        """Let go of this thread's own; the next ``get`` makes another."""
        self._held.pop(threading.get_ident(), None)

    def _forget_ended(self) -> None:
        alive = {thread.ident for thread in threading.enumerate()}
        for ident in list(self._held):
            if ident not in alive:
                self._held.pop(ident, None)
