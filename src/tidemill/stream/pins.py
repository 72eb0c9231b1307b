"""Pins: while a statement runs it holds its snapshot, and VACUUM leaves the files of that alone."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from tidemill.catalog.model import Snapshot


class Pins:
    """The snapshots that statements are reading."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._lock = threading.Lock()
        self._held: Counter[int] = Counter()

    def pin(self) -> Pin:
        """Hold the newest snapshot; the pin lets go when it is forgotten."""
        with self._lock:
            snapshot = self._snapshot()
            self._held[snapshot.snapshot_id] += 1
        return Pin(self, snapshot)

    def pin_older(self, snapshot: Snapshot) -> Pin:
        with self._lock:
            self._held[snapshot.snapshot_id] += 1
        return Pin(self, snapshot)

    def release(self, snapshot_id: int) -> None:
        with self._lock:
            self._held[snapshot_id] -= 1
            if not self._held[snapshot_id]:
                del self._held[snapshot_id]

    def held(self) -> set[int]:
        """Snapshots in use, the newest always."""
        with self._lock:
            return {*self._held, self._snapshot().snapshot_id}


class Pin:
    """A snapshot that is held until this object goes."""

    def __init__(self, pins: Pins, snapshot: Snapshot) -> None:
        self._pins = pins
        self.snapshot = snapshot

    def __del__(self) -> None:
        self._pins.release(self.snapshot.snapshot_id)
