"""The engine: builds the rooms, wires them, and carries out statements.

A ``Database`` takes a warehouse folder into possession; ``Database.sql`` parses a text and gives
each statement to the method that carries it out; ``Database.append`` is the short way for rows.
``tidemill.open`` makes one, and has it serve the local socket (``server.opening``).
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlglot import exp

from tidemill.appending import Appending
from tidemill.as_text import TEXT, text_result
from tidemill.caller import FIND, Find, frames_of, variables_of
from tidemill.catalog.model import Table
from tidemill.catalog.owner import Owner
from tidemill.catalog.store import Catalog
from tidemill.catalog.urls import sqlite_url
from tidemill.clock import Clock, WallClock
from tidemill.config import Settings
from tidemill.copying import Copied, copy_from, copy_to
from tidemill.definitions import Definitions
from tidemill.errors import (
    CatalogError,
    ClosedError,
    TidemillError,
    UnknownNameError,
    UnsupportedError,
)
from tidemill.federation.duck import Duck
from tidemill.federation.explain import analyze_lines, explain_lines, timed_lines
from tidemill.federation.past import Pins
from tidemill.federation.planner import Plan, make_plan, unbound_tables
from tidemill.federation.reference_rows import ReferenceRows
from tidemill.federation.references import References
from tidemill.federation.routes import LOCAL, Router, Spark
from tidemill.federation.runner import Runner
from tidemill.federation.scatter import Scatter
from tidemill.federation.system import LiveRows, SystemTables
from tidemill.frames import is_frame, no_rows
from tidemill.history.guard import Guard
from tidemill.hot.ending import sync_folder
from tidemill.hot.intake import AppendResult
from tidemill.hot.log import Files, SystemFiles
from tidemill.hot.recovery import Recovered
from tidemill.hot.table import HotTable
from tidemill.hot.tier import Boundary, HotTier
from tidemill.keeping import Keeping
from tidemill.loads import Desk, Loads
from tidemill.permissions import make_file
from tidemill.pipeline.executor import INLINE, InlineExecutor, make_executor
from tidemill.pipeline.jobs import JobBoard, Pipeline
from tidemill.pipeline.lifetime import Lifetime
from tidemill.pipeline.spark import SparkRuntime
from tidemill.pipeline.spark_sql import SparkSqlEngine
from tidemill.result import Result, done, lines_result
from tidemill.session import Session
from tidemill.spark_route import SparkSqlRoute
from tidemill.sql import statements as st
from tidemill.sql.locate import locate
from tidemill.sql.params import Params, plain_params
from tidemill.sql.parser import parse
from tidemill.sql.spark import SPARK_SETTINGS
from tidemill.text_result import TextResult
from tidemill.types import quote
from tidemill.verifying import Verifying
from tidemill.views.continuous import KeptQueries
from tidemill.views.kept.definition import is_kept
from tidemill.views.kept.desk import WarehouseDesk
from tidemill.views.registry import House, Views
from tidemill.views.status import kept_row
from tidemill.warehouse import MARK, belonging, enter, storage_of
from tidemill.writing import Writer

TEXT_CACHED_BYTES_MAX = 10_000
CLOSE_WAIT_S = 10.0
FRAME_NAME = "the given frame"
_CATALOG_ID = re.compile(r"[0-9a-f]{32}")
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
        self.settings = settings
        self._clock = clock or WallClock()
        self._closing: list[Callable[[], None]] = []
        self._leaving: list[Callable[[], None]] = []  # before calls in progress are waited for
        self._serving: list[Callable[[], None]] = []
        self._is_closed = False
        self._close_lock = threading.Lock()
        self._calls: Counter[int] = Counter()  # in progress, by thread
        self._gate = threading.Condition()
        try:
            self._build(files or SystemFiles(), create)
        except BaseException:
            self.close()
            raise
        rows = sum(found.rows for found in self.recovered)
        _log.info("opened %s: %d rows, %.2f s", path, rows, time.perf_counter() - began)

    def _build(self, files: Files, create: bool) -> None:
        enter(self.path, create=create)
        self.owner = Owner.acquire(self.path, self._clock)
        self._closing.append(self.owner.release)
        url = self.settings["catalog"]
        url = sqlite_url(self.path / "catalog.sqlite") if url == "sqlite" else url
        self.catalog = Catalog.open(url, self._clock)
        self._closing.append(self.catalog.close)
        _match_catalog(self.path, self.catalog)
        settings = self.settings = belonging(self.path, self.catalog, self.settings)
        storage = storage_of(self.path, settings["storage"])
        storage.clean()
        duck = Duck(
            self.path / "reference.duckdb",
            settings["threads"],
            settings["query_memory"],
            storage.prepare,
        )
        self._closing.append(duck.close)
        references = References(duck)
        tier = HotTier(
            self.path / "log",
            self._clock,
            files,
            settings["backpressure_wait"],
            settings["segment_size"],
            settings["batch_interval"],
        )
        self._closing.append(tier.close)
        snapshot = self.catalog.snapshot()
        tables = snapshot.tables.values()
        references.clean(table for table in tables if table.is_reference)
        pins = Pins(self.catalog.snapshot)

        def boundary_of(table_id: int) -> Boundary:
            history = snapshot.history(table_id)
            loaded = tuple((span.first_seq, span.last_seq) for span in history.reservations)
            return history.moved_seq, history.reserved_seq, loaded

        master = settings["spark_master"]
        runtime = SparkRuntime(
            master, scratch=self.path / "spark", memory_bytes=settings["spark_memory"]
        )
        executor = make_executor(master, runtime)
        self._closing += [runtime.stop, executor.close]
        pipeline = Pipeline(executor, JobBoard(), self._clock)
        life = Lifetime(settings["lifetime"], executor)
        keeping = Keeping(
            self.catalog, tier, pipeline, storage, pins, duck, self._clock, settings, life
        )

        def adopt(hot: HotTable) -> None:
            keeping.adopt(hot)
            hot.on_published = self._published

        tier.on_open = adopt
        streaming = (table for table in tables if table.is_streaming)
        self.recovered: list[Recovered] = tier.open(streaming, boundary_of)
        desk = Desk(self.catalog, tier, storage, duck)
        appending = Appending(self.catalog, tier, self._clock)
        self._loads = Loads(self.catalog, desk, keeping, self._clock, appending)
        system = SystemTables(
            self.catalog.snapshot,
            tier.tables,
            references.row_count,
            settings,
            jobs=pipeline.board.records,
            moves=keeping.mover.records,
            packages=self.catalog.packages,
            snapshots=self.catalog.snapshots,
            sources_state=self._loads.status,
            live_rows=LiveRows(duck, storage),
            clock=self._clock,
            views=self._view_rows,
            spark=lambda: [spark_row(runtime, executor.place, settings)],
        )
        self._hot = tier.tables
        self._duck = duck
        self._guard = Guard(str(self.path), storage)
        self._runner = Runner(
            duck,
            tier.tables,
            system,
            self._clock,
            self.catalog,
            pins,
            storage,
            self._guard,
            ReferenceRows(lambda: references.changes),
        )
        house = House(
            self.catalog,
            tier,
            duck,
            references,
            self._runner,
            storage,
            pipeline,
            self._clock,
        )
        self._views = Views(house)
        self._runner.views = self._views
        self._writer = Writer(self.catalog, tier.tables, references, self._runner, self._changing)
        self._kept = KeptQueries(
            WarehouseDesk(
                self.catalog,
                tier.tables,
                self._runner,
                duck,
                self._writer.append_answers,
                self._clock,
            )
        )
        self._definitions = Definitions(
            self.catalog,
            tier,
            references,
            keeping,
            self._loads,
            self._views,
            self._kept,
        )
        self.session = Session()
        self._keeping = keeping
        self._leaving.append(keeping.mover.leave)
        self._verifying = Verifying(self.catalog, storage, tier.tables, references)
        self._scatter = Scatter(executor, duck, storage)
        is_inline = isinstance(executor, InlineExecutor)
        spark = Spark(lambda: executor.is_ready, life.foresee, settings["spark_scan"])
        self._spark_sql = SparkSqlEngine(runtime, SPARK_SETTINGS)
        route = SparkSqlRoute(self._spark_sql, duck, self._runner, storage)
        self._router = Router(self._runner, self._scatter, spark, None if is_inline else route)
        self._plan_for = lru_cache(maxsize=512)(self._make_plan)
        for hot in tier.tables.values():
            keeping.recall(hot)
            self._loads.recall(hot)
        self._views.open()
        self._closing.append(self._views.close)
        self._kept.start()
        self._closing.append(self._kept.close)
        keeping.on_look = self._views.look
        keeping.start()
        self._closing.append(keeping.close)
        self._loads.start()
        self._closing.append(self._loads.close)

    def _published(self, hot: HotTable) -> None:
        """Rows of a stream can be read: those who follow it have something to do."""
        self._views.upkeep.poke(hot)
        self._kept.poke(hot.table.table_id)

    @contextmanager
    def _changing(self, table_id: int) -> Iterator[None]:
        """Around a change of a reference table: what is due before it is answered without it."""
        self._kept.answer_before_change(table_id)
        yield

    def _view_rows(self) -> list[dict[str, Any]]:
        """The rows of ``tidemill.views``."""
        snapshot = self.catalog.snapshot()
        kept = [kept_row(status, snapshot) for status in self._kept.status()]
        return [*self._views.status(), *kept]

    # -- the public face

    def sql(self, text: str, params: Params = None, *, session: Session | None = None) -> Result:
        """Run the statements of a text; answers the result of the last one.

        A table that the catalog does not have may be a data frame in a variable of the caller.
        ``session`` holds what SET sets; without one, all callers share the database's own."""
        find = variables_of(1) if session is None else None
        return self._call(text, params, session or self.session, find)

    def _call(self, text: str, params: Params, session: Session, find: Find | None) -> Result:
        self._enter()
        token = FIND.set(find)
        try:
            return self._sql(text, plain_params(params), session)
        finally:
            FIND.reset(token)
            self._leave()

    def _sql(self, text: str, params: Params, session: Session) -> Result:
        began = time.perf_counter()
        statements = _parse_cached(text) if len(text) <= TEXT_CACHED_BYTES_MAX else parse(text)
        result = done("")
        for statement in statements:
            try:
                result = self._run(statement, params, session)
            except TidemillError as error:
                error.position = error.position or locate(error.message, statement)
                raise
        return Result(result.table, result.types, result.message, time.perf_counter() - began)

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
        result = self._call(text, params, session or self.session, None)
        return text_result(result, form, rows_max)

    def create_table(self, name: str, frame: Any, *, replace: bool = False) -> Result:
        """Make a reference table of a pandas or Polars data frame or an Arrow table."""
        if not is_frame(frame):
            raise no_rows(frame)
        verb = "CREATE OR REPLACE TABLE" if replace else "CREATE TABLE"
        text = f"{verb} {quote(name)} AS SELECT * FROM {quote(FRAME_NAME)}"
        return self._call(text, None, self.session, {FRAME_NAME: frame}.get)

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
        self._enter()
        try:
            return self._writer.append(table, rows, source, offset, rejects)
        finally:
            self._leave()

    def cancel(self, thread: int | None = None) -> None:
        """Break off the statement that a thread (by its identifier) is running, or all of them."""
        self._cancel(thread, None)

    def _cancel(self, thread: int | None, why: TidemillError | None) -> None:
        self._duck.interrupt(thread)
        self._scatter.cancel(thread)
        self._spark_sql.cancel(thread)
        self._keeping.cancel(thread, why)
        self._loads.spooling.cancel(thread)

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
            self._is_closed = True
            for leave in self._leaving:
                leave()
            with self._gate:
                own = threading.get_ident()
                if not self._gate.wait_for(lambda: self._calls.keys() <= {own}, CLOSE_WAIT_S):
                    self._cancel(None, ClosedError(f'warehouse "{self.path}" was closed'))
                    self._gate.wait_for(lambda: self._calls.keys() <= {own}, CLOSE_WAIT_S)
            while self._closing:
                try:
                    self._closing.pop()()
                except Exception as error:  # whatever one room says, the others must be closed
                    _log.warning("while closing: %s", error)

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- statements

    def _run(self, statement: st.Statement, params: Params, session: Session) -> Result:
        match statement:
            case st.Query():
                return self.query(statement, params, session)
            case st.Insert():
                return self._writer.insert(statement, params, partial(self.query, session=session))
            case st.Change():
                return self._writer.change(statement, params)
            case st.CopyFrom():
                self._guard.check_read(statement.path)
                return copy_from(self._writer, self._loads, statement)
            case st.CopyTo():
                return self._copy_to(statement, params, session)
            case st.Explain():
                return self._explain(statement, params, session)
            case st.SetVariable():
                return session.set(statement)
            case st.ShowVariable():
                return session.show(statement)
            case st.Flush() | st.Vacuum():
                return self._keep(statement)
            case st.ShowJobs():
                return self._query_text("SELECT * FROM tidemill.jobs ORDER BY planned_at DESC")
            case st.ShowViews():
                return self._query_text("SELECT * FROM tidemill.views ORDER BY view_name")
            case st.RefreshView():
                return self._refresh(statement)
            case st.ExplainView():
                return self._explain_view(statement)
            case st.ShowSources():
                return self._query_text("SELECT * FROM tidemill.sources ORDER BY source_name")
            case st.ShowPartitions():
                return self._show_partitions(statement)
            case st.ShowTables():
                return self._query_text(
                    "SELECT table_name, kind, rows, bytes FROM tidemill.tables ORDER BY table_name"
                )
            case st.ShowIndexes():
                return self._show_indexes(statement)
            case st.Describe():
                return self._describe(statement)
            case st.CreateSource():
                self._guard.check_read(statement.pattern)
                return self._definitions.run(statement, params, self.query)
            case _:
                run = partial(self.query, session=session)
                return self._definitions.run(statement, params, run)

    def query(
        self, query: st.Query, params: Params = None, session: Session | None = None
    ) -> Result:
        """Plan (or find the plan again) and run a query."""
        plan = self._plan(query, params)
        if plan.whole_view is not None:
            table, types = self._views.shown(plan.whole_view)
            return Result(table, types, f"SELECT {table.num_rows}")
        route = (session or self.session)["route"]
        table, types = self._router.run(plan, params, route)
        return Result(table, types, f"SELECT {table.num_rows}")

    def _plan(self, query: st.Query, params: Params) -> Plan:
        try:
            if params and _has_window_parameter(query):
                return make_plan(query.body, self.catalog.snapshot(), params)
            return self._plan_for(query, self.catalog.snapshot().definition_id)
        except UnknownNameError as error:
            frames = frames_of((name for _, name in unbound_tables(query.body)), error)
            return make_plan(query.body, self.catalog.snapshot(), params, frames)

    def _make_plan(self, query: st.Query, definition_id: int) -> Plan:
        del definition_id  # part of the cache's key: moves make snapshots, but no other plans
        return make_plan(query.body, self.catalog.snapshot())

    def _query_text(self, text: str, params: Params = None) -> Result:
        statement = _parse_cached(text)[0]
        assert isinstance(statement, st.Query)
        return self.query(statement, params)

    def _keep(self, statement: st.Flush | st.Vacuum) -> Result:
        """FLUSH and VACUUM, of one table or of all."""
        snapshot = self.catalog.snapshot()
        tables = None
        if statement.table is not None:
            table = snapshot.get(statement.table, statement.position)
            if not table.is_streaming:
                raise UnsupportedError(
                    f'reference table "{table.name}" has no history',
                    position=statement.position,
                )
            tables = [table]
        if isinstance(statement, st.Vacuum):
            return self._vacuum(statement, tables)
        streaming = [table for table in snapshot.tables.values() if table.is_streaming]
        return done(f"FLUSH {self._keeping.flush(tables or streaming)}")

    def _vacuum(self, statement: st.Vacuum, tables: list[Table] | None) -> Result:
        files, size = self._keeping.vacuum(tables)
        message = f"VACUUM {files}" + (f" ({size} bytes of orphans)" if size else "")
        if statement.drops_damaged and tables is not None:
            dropped, rows = self._verifying.drop_damaged(tables[0])
            return done(f"{message} ({dropped} damaged files with {rows} rows dropped)")
        self._verifying.check(None if tables is None else tables[0])
        return done(message)

    def _refresh(self, statement: st.RefreshView) -> Result:
        table = self.catalog.snapshot().get(statement.name, statement.position)
        if is_kept(table):
            return done(f"REFRESH MATERIALIZED VIEW {self._kept.catch_up()}")
        view = self._get_view(statement.name, statement)
        answer = self._views.refresh(view)
        return done(f"REFRESH MATERIALIZED VIEW {answer.table.num_rows}")

    def _explain_view(self, statement: st.ExplainView) -> Result:
        view = self._get_view(statement.name, statement)
        return lines_result(self._views.explain(view), "EXPLAIN")

    def _get_view(self, name: str, statement: st.Statement) -> Table:
        view = self.catalog.snapshot().get(name, statement.position)
        if not view.is_view:
            raise UnsupportedError(
                f'"{view.name}" is not a view',
                hint="SHOW VIEWS lists the views",
                position=statement.position,
            )
        return view

    def _show_indexes(self, statement: st.ShowIndexes) -> Result:
        if statement.table is not None:
            table = self.catalog.snapshot().get(statement.table, statement.position)
            return self._query_text(
                "SELECT * FROM tidemill.indexes WHERE table_name = $1 ORDER BY index_name",
                [table.name],
            )
        return self._query_text("SELECT * FROM tidemill.indexes ORDER BY table_name, index_name")

    def _show_partitions(self, statement: st.ShowPartitions) -> Result:
        query = "SELECT * FROM tidemill.partitions"
        if statement.table is None:
            return self._query_text(f"{query} ORDER BY table_name, lo")
        table = self.catalog.snapshot().get(statement.table, statement.position)
        return self._query_text(f"{query} WHERE table_name = $1 ORDER BY lo", [table.name])

    def _describe(self, statement: st.Describe) -> Result:
        table = self.catalog.snapshot().get(statement.table, statement.position)
        return self._query_text(
            'SELECT column_name, type, nullable, "default", is_key, is_time '
            "FROM tidemill.columns WHERE table_name = $1 ORDER BY position",
            [table.name],
        )

    def _copy_to(self, statement: st.CopyTo, params: Params, session: Session) -> Result:
        query = st.Query(statement.query, text=statement.text, position=statement.position)
        plan = self._plan(query, params)
        filled = self._router.fill(plan, params, session["route"])
        if filled.route == LOCAL:
            answer = Copied(filled.sql, filled.values, filled.sources)
        else:
            answer = Copied.of(*self._router.run_filled(filled))
        return copy_to(self._duck, self._guard, statement, answer)

    def _explain(self, statement: st.Explain, params: Params, session: Session) -> Result:
        inner = statement.statement
        if isinstance(inner, st.CreateView):
            return lines_result(self._views.check(inner).parts.explain(), "EXPLAIN")
        if not isinstance(inner, st.Query):
            raise UnsupportedError(
                "only queries can be explained",
                hint="write EXPLAIN SELECT …",
                position=inner.position,
            )
        plan = self._plan(inner, params)
        filled = self._router.fill(plan, params, session["route"])
        lines = explain_lines(filled)
        if statement.analyze and filled.route == LOCAL:
            lines += analyze_lines(self._duck, filled)
        elif statement.analyze:
            began = time.perf_counter()
            table, _ = self._router.run_filled(filled)
            lines += timed_lines(table.num_rows, time.perf_counter() - began)
        return lines_result(lines, "EXPLAIN")

    def _enter(self) -> None:
        """Begin a call, if the warehouse is open; ``close`` waits for the matching ``_leave``."""
        with self._gate:
            if self._is_closed:
                raise ClosedError(f'warehouse "{self.path}" is closed', hint="open it again")
            self._calls[threading.get_ident()] += 1

    def _leave(self) -> None:
        with self._gate:
            own = threading.get_ident()
            self._calls[own] -= 1
            if not self._calls[own]:
                del self._calls[own]
            if self._is_closed:
                self._gate.notify_all()


@atexit.register
def _close_all() -> None:
    """A program that ends without ``close``: threads that still hold DuckDB's objects then would
    keep them past its end, of which it complains on stderr, and the log would lack its end."""
    for database in list(_open):
        if database._pid == os.getpid():  # not in a forked child, which owns nothing
            database.close()


def spark_row(runtime: SparkRuntime, place: str, settings: Settings) -> dict[str, Any]:
    """The row of ``tidemill.spark``."""
    failure = runtime.failure()
    return {
        "state": INLINE if place == INLINE else runtime.state,
        "master": settings["spark_master"],
        "lifetime": settings["lifetime"],
        "memory_bytes": settings["spark_memory"],
        "java_pid": runtime.pid,
        "last_error": None if failure is None else " ".join(str(failure).split()),
    }


def _match_catalog(path: Path, catalog: Catalog) -> None:
    """A folder belongs to one catalog: with another, its rows would look like left-overs."""
    mark = path / MARK
    try:
        if not mark.exists():
            partial = mark.with_name("catalog.id.partial")
            make_file(partial)
            partial.write_text(catalog.catalog_id)
            partial.replace(mark)
            sync_folder(path)
        known = mark.read_bytes().decode(errors="replace")
    except OSError as error:
        raise CatalogError(f'cannot read or write in "{path}"', detail=str(error)) from error
    if not _CATALOG_ID.fullmatch(known):
        raise CatalogError(
            f'file "{mark}" is damaged: it does not hold the id of a catalog',
            hint=f"restore it from a copy, or write {catalog.catalog_id} into it if the warehouse "
            f"belongs to {catalog.place}",
        )
    if known != catalog.catalog_id:
        raise CatalogError(
            f'warehouse "{path}" belongs to another catalog than {catalog.place}',
            hint="open it with the setting catalog that it was made with",
        )


@lru_cache(maxsize=512)
def _parse_cached(text: str) -> tuple[st.Statement, ...]:
    return tuple(parse(text))


def _has_window_parameter(query: st.Query) -> bool:
    """Whether a stream window may depend on a parameter, so that the plan cannot be kept."""
    return any(
        isinstance(node.this, exp.Anonymous) and node.find(exp.Placeholder)
        for node in query.body.find_all(exp.Table)
    )
