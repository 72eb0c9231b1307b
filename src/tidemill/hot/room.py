"""Room: the bound of a table's memory, and the writers who wait for it (backpressure).

A batch that does not fit waits: first for what the table itself can give back, then for moves, as
long as these go on. When nobody moves anything within ``backpressure_wait``, the writer gets an
error.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tidemill.errors import BackpressureError
from tidemill.hot.environment import Environment

if TYPE_CHECKING:
    from tidemill.hot.table import HotTable

ROOM_POLL_S = 0.5


class Room:
    def __init__(self, hot: HotTable, environment: Environment, wait_s: float) -> None:
        self.wait_s = wait_s
        self._hot = hot
        self._environment = environment
        self._freed = threading.Condition()

    def fits(self, nbytes: int) -> bool:
        """Whether so much more fits, also once the tail has been sealed: directories are made
        then, and must not lift memory over its bound."""
        hot = self._hot
        claimed = hot.nbytes + hot.published.directory_bytes_to_come
        return bool(claimed + nbytes <= hot.table.settings["memory"])

    def tell(self) -> None:
        """Something was given back."""
        with self._freed:
            self._freed.notify_all()

    def wait(self, nbytes: int, deadline_s: float) -> None:
        """Wait until so much more fits the table's memory; raise when it does not in time."""
        if self.fits(nbytes):
            return
        hot = self._hot
        settings, name = hot.table.settings, hot.table.name
        if nbytes > settings["memory"]:
            raise BackpressureError(
                f'a batch of {nbytes} bytes is larger than the memory of table "{name}"',
                detail=f"memory = '{settings.text('memory')}'",
                hint=f'append smaller batches, or ALTER TABLE "{name}" SET (memory = …)',
            )
        hot.expire()
        hot.publisher.settle_replaced()
        self._environment.make_room(hot)
        failure = self._wait_for_moves(nbytes, deadline_s)
        if failure is None:
            return
        detail = f"{hot.nbytes} of {settings['memory']} bytes are held, {nbytes} more needed"
        raise BackpressureError(
            f'the memory of table "{name}" is full; waited {self.wait_s:g} s for room',
            detail=f"{detail}; {failure}" if failure else detail,
            hint=f'append later, or ALTER TABLE "{name}" SET (…) to raise memory or to shorten '
            "retention",
        )

    def _wait_for_moves(self, nbytes: int, deadline_s: float) -> str | None:
        """Wait for room, and on while moves make some: None when it is there, else why it is not.

        The deadline is for a table that nobody moves; a move under way begins it anew."""
        while True:
            left_s = deadline_s - time.monotonic()
            with self._freed:
                wait_s = min(max(left_s, 0), ROOM_POLL_S)
                if self._freed.wait_for(lambda: self.fits(nbytes), wait_s):
                    return None
            relief = self._environment.relief(self._hot)
            if relief.is_coming:
                deadline_s = time.monotonic() + self.wait_s
            elif left_s <= 0:
                return relief.failure
            self._environment.make_room(self._hot)  # of what a move frees, others may take it all
