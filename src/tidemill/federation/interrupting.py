"""Breaking off a query of DuckDB.

DuckDB forgets a request to interrupt when the next query of the connection begins, and what is one
query to us can be several to it: it plans, then runs. A request that arrives between two of them
would be lost, and the query would run to its end. So the request is repeated until the query has
ended. No request reaches a later query: leaving waits for the thread that repeats it.
"""

from __future__ import annotations

import threading

import duckdb

from tidemill.errors import TidemillError
from tidemill.executions import cancellable

REPEAT_S = 0.02


class Interruptible:
    """While this context lasts, cancelling the current execution breaks the cursor's work off."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor
        self._has_ended: threading.Event | None = None
        self._repeating: threading.Thread | None = None
        self._work = cancellable(self._cancel)

    def __enter__(self) -> None:
        self._work.__enter__()

    def __exit__(self, *_: object) -> None:
        self._work.__exit__(None, None, None)  # from here on nobody calls _cancel
        if self._has_ended is not None and self._repeating is not None:
            self._has_ended.set()
            self._repeating.join()

    def _cancel(self, _: TidemillError | None) -> None:
        if self._repeating is None:
            self._has_ended = threading.Event()
            self._repeating = threading.Thread(
                target=self._repeat, args=(self._has_ended,), name="tidemill-interrupt", daemon=True
            )
            self._repeating.start()

    def _repeat(self, has_ended: threading.Event) -> None:
        while True:
            self._cursor.interrupt()
            if has_ended.wait(REPEAT_S):
                return
