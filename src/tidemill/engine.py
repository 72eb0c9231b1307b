"""The engine: builds a warehouse and wires its rooms (``assembly``). Nothing else is done here.

``Database`` is the whole, as programs hold it. Statements go to ``statements``, appends to its
writer; both are executions, which can be listed and cancelled. ``tidemill.open`` makes a database,
and has it serve the local socket (``server.opening``).
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tidemill.as_text import TEXT, text_result
from tidemill.assembly.events import Events
from tidemill.assembly.memory import open_memory
from tidemill.assembly.reading import build_reading
from tidemill.assembly.store import open_store
from tidemill.assembly.writing import build_writing, start, wire
from tidemill.clock import Clock, WallClock
from tidemill.closing import Closing
from tidemill.config import Settings
from tidemill.errors import ClosedError
from tidemill.executions import Executions
from tidemill.frames import is_frame, no_rows
from tidemill.hot.log import Files, SystemFiles
from tidemill.result import AppendResult, ChangeResult, Result
from tidemill.sql.params import Params
from tidemill.statements.caller import variables_of
from tidemill.statements.session import Session
from tidemill.text_result import TextResult
from tidemill.types import quote

CLOSE_WAIT_S = 10.0
FRAME_NAME = "the given frame"
_log = logging.getLogger("tidemill")
_open: weakref.WeakSet[Database] = weakref.WeakSet()


class Database:
    """A warehouse. Safe to use from many threads; also a context manager."""

    def __init__(
        self,
        path: Path,
        settings: Settings,
        clock: Clock | None = None,
        files: Files | None = None,
        *,
        create: bool = True,
    ) -> None:
        began = time.perf_counter()
        self._pid = os.getpid()
        _open.add(self)
        self.path = path
        self.session = Session()
        self._clock = clock or WallClock()
        self.executions = Executions(str(path), self._clock)
        self._closing = Closing()
        self._leaving: list[Callable[[], None]] = []  # before executions are waited for
        self._serving: list[Callable[[], None]] = []
        self._close_lock = threading.Lock()
        try:
            self._build(settings, files or SystemFiles(), create)
        except BaseException:
            self.close()
            raise
        rows = sum(found.rows for found in self.recovered)
        _log.info("opened %s: %d rows, %.2f s", path, rows, time.perf_counter() - began)

    def _build(self, settings: Settings, files: Files, create: bool) -> None:
        events, closing = Events(), self._closing
        store = open_store(self.path, settings, self._clock, create, closing)
        memory = open_memory(store, files, events, closing, self.executions.busy_s)
        reading = build_reading(store, memory, self.executions)
        writing = build_writing(store, memory, reading, events, self.executions)
        wire(store, reading, writing.kept, events)
        self._leaving.append(memory.keeping.mover.leave)
        start(memory, reading, writing.kept, closing)
        self.settings, self.owner, self.catalog = store.settings, store.owner, store.catalog
        self.recovered = memory.recovered
        self._statements, self._querying = writing.statements, writing.querying
        self._writer, self._kept = writing.writer, writing.kept
        self._corrections = writing.corrections
        self._loads, self._views, self._router = reading.loads, reading.views, reading.router
        self._runner = reading.views.runner
        self._keeping, self._hot, self._duck = memory.keeping, memory.tier.tables, store.duck

    def sql(self, text: str, params: Params = None, *, session: Session | None = None) -> Result:
        """Run the statements of a text; answers the result of the last one.

        A table that the catalog does not have may be a data frame in a variable of the caller.
        ``session`` holds what SET sets; without one, all callers share the database's own."""
        find = variables_of(1) if session is None else None
        return self._statements.run(text, params, session or self.session, find)

    def sql_text(
        self,
        text: str,
        params: Params = None,
        *,
        form: str = TEXT,
        rows_max: int | None = None,
        session: Session | None = None,
    ) -> TextResult:
        """Run the statements of a text; answers the rows of the last one as texts, for people.

        ``form`` is ``text``, each value as SQL writes it, or ``json``, an object for each row;
        ``rows_max`` bounds how many come."""
        result = self._statements.run(text, params, session or self.session)
        return text_result(result, form, rows_max)

    def create_table(self, name: str, frame: Any, *, replace: bool = False) -> Result:
        """Make a reference table of a pandas or Polars data frame or an Arrow table."""
        if not is_frame(frame):
            raise no_rows(frame)
        verb = "CREATE OR REPLACE TABLE" if replace else "CREATE TABLE"
        text = f"{verb} {quote(name)} AS SELECT * FROM {quote(FRAME_NAME)}"
        return self._statements.run(text, None, self.session, {FRAME_NAME: frame}.get)

    def append(
        self,
        table: str,
        rows: Any,
        *,
        source: str | None = None,
        offset: int | None = None,
        rejects: Sequence[tuple[str, str]] = (),
    ) -> AppendResult:
        """Append Arrow, pandas or Polars data, dicts or tuples. Returns once they are stored.

        With ``source`` and ``offset`` the append is idempotent: the same pair is stored once.
        ``rejects`` are (row as JSON, reason) pairs that a reader of files already refused; a table
        that diverts keeps them beside the rows, any other refuses the batch."""
        with self.executions.begin(f"append to {table}", self.session):
            return self._writer.append(table, rows, source, offset, rejects)

    def update(
        self,
        table: str,
        rows: Any,
        *,
        key: Sequence[str] | None = None,
        source: str | None = None,
        offset: int | None = None,
    ) -> ChangeResult:
        """Correct rows of a streaming table by key: those whose ``key`` columns (without any, the
        primary key) equal a given row's get its other columns. Takes what ``append`` takes, but
        tuples; nothing is read before the next query. With ``source`` and ``offset`` idempotent."""
        with self.executions.begin(f"update of {table}", self.session):
            return self._corrections.update(table, rows, key, source, offset)

    def delete(
        self,
        table: str,
        keys: Any,
        *,
        key: Sequence[str] | None = None,
        source: str | None = None,
        offset: int | None = None,
    ) -> ChangeResult:
        """Delete rows of a streaming table by key, in the same way."""
        with self.executions.begin(f"delete from {table}", self.session):
            return self._corrections.delete(table, keys, key, source, offset)

    def cancel(self, thread: int | None = None) -> None:
        """Break off the statement that a thread (by its identifier) is running, or all of them."""
        self.executions.cancel_thread(thread)

    def close_first(self, close: Callable[[], None]) -> None:
        """Something serves this database: ``close`` ends it before the database itself."""
        self._serving.append(close)

    def close(self) -> None:
        """Give the warehouse back. What was acknowledged is on disk; closing twice is no error.

        Calls in progress in other threads are waited for, at most ``CLOSE_WAIT_S``, then
        broken off; calls that come later get a ClosedError."""
        with self._close_lock:
            while self._serving:
                self._serving.pop()()
            self.executions.close()
            for leave in self._leaving:
                leave()
            if not self.executions.wait(CLOSE_WAIT_S):
                closed = ClosedError(f'warehouse "{self.path}" was closed')
                self.executions.cancel_thread(None, closed)
                self.executions.wait(CLOSE_WAIT_S)
            self._closing.run()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@atexit.register
def _close_all() -> None:
    """A program that ends without ``close``: threads that still hold DuckDB's objects then would
    keep them past its end, of which it complains on stderr, and the log would lack its end."""
    for database in list(_open):
        if database._pid == os.getpid():  # not in a forked child, which owns nothing
            database.close()
