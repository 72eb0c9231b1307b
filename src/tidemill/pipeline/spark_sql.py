"""Spark's own SQL over files and hot rows: the third route's engine.

Each query gets a session of its own (they share Spark's context, not its names), in which the
tables it reads are temporary views: the files of history as Spark reads Parquet, joined with the
hot rows, which travel there as Arrow. Rows that were deleted are left out by their number.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill.errors import QueryError, TidemillError
from tidemill.errors import SparkSqlError as SparkSqlError
from tidemill.executions import cancellable
from tidemill.history.storage import Storage
from tidemill.pipeline.executor import PipelineError, reason_of
from tidemill.pipeline.spark import SparkRuntime
from tidemill.stream.relation import HistoryScan
from tidemill.stream.removed import Removed
from tidemill.types import SEQ

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class SparkTable:
    """A view to be made: the columns with their Spark types, rows as Arrow of those very columns,
    and what is read of files beside them, which lie in the storage.

    ``stored`` names the columns that are something else in files: the type as which Spark reads
    them there, and the expression, over ``?``, that makes of it what the view has."""

    view: str
    columns: Mapping[str, str]
    rows: pa.Table
    scan: HistoryScan
    storage: Storage
    stored: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    since: tuple[str, str, str] | None = None  # column, type and time: older rows are left out


class SparkSqlEngine:
    def __init__(self, runtime: SparkRuntime, settings: Mapping[str, str]) -> None:
        self._runtime = runtime
        self._settings = settings

    def run(self, sql: str, tables: Sequence[SparkTable]) -> pa.Table:
        """The answer as Arrow, as Spark gives it. It can be cancelled, also while Spark starts."""
        group = f"sql-{uuid.uuid4().hex[:12]}"
        cancelled = threading.Event()

        def cancel(_: TidemillError | None) -> None:
            cancelled.set()
            if self._runtime.is_ready:
                self._runtime.session().sparkContext.cancelJobGroup(group)

        def check() -> None:
            if cancelled.is_set():
                raise QueryError("the statement was cancelled")

        with cancellable(cancel):
            return self._run(sql, tables, group, check)

    def _run(
        self, sql: str, tables: Sequence[SparkTable], group: str, check: Callable[[], None]
    ) -> pa.Table:
        try:
            session = self._session(check)
            session.sparkContext.setJobGroup(group, "query", interruptOnCancel=True)
            for table in tables:
                self._frame(session, table).createOrReplaceTempView(table.view)
            return session.sql(sql).toArrow()
        except TidemillError:
            raise
        except Exception as error:  # of py4j or pyspark, which raise what they like
            check()
            if not self._runtime.is_ready:
                raise PipelineError("the query failed: Spark ended") from error
            raise SparkSqlError(
                "Spark's SQL did not answer the query", detail=reason_of(str(error))
            ) from error

    def _session(self, check: Callable[[], None]) -> SparkSession:
        session = self._runtime.session(check).newSession()
        for name, value in self._settings.items():
            session.conf.set(name, value)
        return session

    def _frame(self, session: SparkSession, table: SparkTable) -> DataFrame:
        schema = _schema(table.columns)
        frame: DataFrame = session.createDataFrame(table.rows, schema=schema)
        files = [table.storage.place(file.path) for file in table.scan.files]
        if not files:
            return frame
        removed = table.scan.removed
        read = {**table.columns, **{name: kind for name, (kind, _) in table.stored.items()}}
        if removed:
            read[SEQ] = "BIGINT"
        if table.since is not None:
            read.setdefault(table.since[0], table.since[1])
        stored = session.read.schema(_schema(read)).parquet(*files)
        if table.since is not None:
            name, kind, text = table.since
            stored = stored.where(f"{_quoted(name)} >= CAST('{text}' AS {kind})")
        if removed:
            stored = self._without(session, stored, removed, table.storage)
        return stored.selectExpr(*(_expression(table, name) for name in table.columns)).union(frame)

    def _without(
        self, session: SparkSession, rows: DataFrame, removed: Removed, storage: Storage
    ) -> DataFrame:
        """The rows that count: the anti-join of Spark's own SQL."""
        seqs = [(seq,) for seq in removed.seqs]
        gone: Any = session.createDataFrame(seqs, f"{SEQ} BIGINT")
        if removed.deletes:
            places = [storage.place(file.path) for file in removed.deletes]
            gone = gone.union(session.read.schema(f"{SEQ} BIGINT").parquet(*places))
        return rows.join(gone, SEQ, "left_anti")


def _expression(table: SparkTable, name: str) -> str:
    """What a view's column is in files, as it stands or made from that."""
    _, text = table.stored.get(name, ("", "?"))
    return f"{text.replace('?', _quoted(name))} AS {_quoted(name)}"


def _schema(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{_quoted(name)} {kind}" for name, kind in columns.items())


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
