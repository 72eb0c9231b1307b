"""The third route wired: a filled plan becomes Spark's own SQL, if all of it was verified.

``sql.spark`` translates, ``pipeline.spark_sql`` runs, DuckDB turns the answer's types back. Where
the translation is not sure, Spark raises an error instead of guessing; then the local route
answers, so that the answer is always DuckDB's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import duckdb
import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.model import Table
from tidemill.clock import from_us
from tidemill.errors import QueryError
from tidemill.federation.duck import REFERENCE, Duck
from tidemill.federation.planner import HOT
from tidemill.federation.references import physical_name
from tidemill.federation.runner import Filled, Runner, Selected
from tidemill.history.storage import Storage
from tidemill.pipeline.spark_sql import SparkSqlEngine, SparkSqlError, SparkTable
from tidemill.sql.spark import (
    NotOnTheList,
    SparkQuery,
    given_expression,
    result_sql,
    spark_type,
    to_spark,
    view_name,
)
from tidemill.stream.relation import NO_FILES
from tidemill.types import SEQ, Column, SqlType, quote

# What Spark reads from our files as it reads it from Arrow; unsigned integers as wider signed ones.
_FROM_FILES = re.compile(
    r"BOOLEAN|U?TINYINT|U?SMALLINT|U?INTEGER|U?BIGINT|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|VARCHAR|BLOB|"
    r"DATE|TIMESTAMP|TIMESTAMP WITH TIME ZONE"
)
# What it reads as something else: as which type, and how that becomes what the view has. A number
# of 39 digits is an error there, and then the query runs locally.
_STORED: Mapping[str, tuple[str, str]] = {
    "HUGEINT": ("STRING", "CAST(? AS DECIMAL(38,0))"),
    "UUID": (
        "BINARY",
        "regexp_replace(lower(hex(?)), '^(.{8})(.{4})(.{4})(.{4})(.{12})$', '$1-$2-$3-$4-$5')",
    ),
}
_IN_PATTERN = re.compile(r"[][{}*?\\,]")
_log = logging.getLogger("tidemill.routes")


class SparkSqlRoute:
    def __init__(
        self, engine: SparkSqlEngine, duck: Duck, runner: Runner, storage: Storage
    ) -> None:
        self._engine = engine
        self._duck = duck
        self._runner = runner
        self._storage = storage

    def refusal(self, filled: Filled) -> str | None:
        """Why a query must not go to Spark's SQL; None if it may."""
        if self._storage.folder is None:
            return "Spark's SQL reads files of history from a folder only"
        if _IN_PATTERN.search(self._storage.folder):
            return "the name of the storage's folder has signs that Spark takes for a pattern"
        if any(chosen.scan.kind != HOT for chosen in filled.selected):
            return "the query reads tables that are not streams"
        if any(chosen.scan.as_of is not None for chosen in filled.selected):
            return "Spark's SQL does not read the past"
        if any(chosen.past is not None and chosen.past.changed_by for chosen in filled.selected):
            return "rows of files get their changes (UPDATE, DELETE) while they are read"
        query = self._translated(filled)
        if isinstance(query, NotOnTheList):
            return query.reason
        for chosen in filled.selected:
            wanted = query.reads.get(chosen.scan.source.lower(), ())
            for column in _columns(chosen):
                is_asked = column.name.lower() in {name.lower() for name in wanted}
                if is_asked and not _is_readable(column.type.name):
                    return f"Spark's SQL does not read {column.type} from files as DuckDB does"
        return None

    def run(self, filled: Filled) -> tuple[pa.Table, list[str]]:
        query = self._translated(filled)
        assert isinstance(query, SparkQuery)
        for chosen in filled.selected:
            if chosen.reads is not None:
                chosen.reads.check_all_times()  # Spark's reader does not know our checksums
        try:
            tables = [self._table(chosen, query) for chosen in filled.selected]
            tables += self._references(filled, query)
            answer = self._engine.run(query.sql, tables)
        except SparkSqlError as error:
            _log.info("the query runs locally instead: %s", error.detail)
            return self._runner.run_filled(filled)
        return self._duck.query(result_sql(query, "tm_answer"), {}, {"tm_answer": answer})

    def _translated(self, filled: Filled) -> SparkQuery | NotOnTheList:
        columns = {chosen.scan.source: _columns(chosen) for chosen in filled.selected}
        snapshot = filled.pin.snapshot
        for table in snapshot.tables.values():
            if table.is_reference:
                columns[physical_name(table.table_id)] = list(table.columns)

        def columns_of(node: exp.Table) -> Mapping[str, object] | None:
            found = columns.get(node.name)
            return None if found is None else {c.name: c.type.name for c in found}

        return to_spark(filled.plan.tree, columns_of, filled.values)

    def _table(self, chosen: Selected, query: SparkQuery) -> SparkTable:
        view = chosen.scan.source
        columns = _wanted(_columns(chosen), query, view)
        return SparkTable(
            view,
            {column.name: spark_type(column.type.name) or "STRING" for column in columns},
            self._given(columns, quote(view), {view: chosen.table}),
            chosen.past or NO_FILES,
            self._storage,
            {c.name: _STORED[c.type.name] for c in columns if c.type.name in _STORED},
            _since(chosen),
        )

    def _references(self, filled: Filled, query: SparkQuery) -> list[SparkTable]:
        """The reference tables of a query travel to Spark whole."""
        made: dict[str, SparkTable] = {}
        by_name: dict[str, Table] = {
            physical_name(table.table_id): table
            for table in filled.pin.snapshot.tables.values()
            if table.is_reference
        }
        for node in filled.plan.tree.find_all(exp.Table):
            if node.catalog != REFERENCE or node.name not in by_name:
                continue
            view = view_name(node)
            columns = _wanted(list(by_name[node.name].columns), query, view)
            rows = self._given(columns, f"{REFERENCE}.main.{quote(node.name)}", {})
            kinds = {c.name: spark_type(c.type.name) or "STRING" for c in columns}
            made[view] = SparkTable(view, kinds, rows, NO_FILES, self._storage)
        return list(made.values())

    def _given(
        self, columns: list[Column], source: str, sources: Mapping[str, pa.Table]
    ) -> pa.Table:
        given = ", ".join(
            f"{given_expression(column.name, column.type.name)} AS {quote(column.name)}"
            for column in columns
        )
        try:
            rows, _ = self._duck.query(f"SELECT {given} FROM {source}", {}, sources)
        except QueryError as error:
            if not isinstance(error.__cause__, duckdb.ConversionException):
                raise
            raise SparkSqlError(
                "rows have values that Spark's SQL cannot hold", detail=error.message
            ) from error
        return rows


def _since(chosen: Selected) -> tuple[str, str, str] | None:
    """From when on the retention lets rows of files be seen, where some are older."""
    for part in (chosen.past or NO_FILES).parts:
        times = part.times
        if times is None or times.low_us is None:
            continue
        if not all(times.has_all(file) for file in part.files):
            column = times.column
            text = from_us(times.low_us).isoformat(sep=" ")
            zone = "" if column.type.name == "TIMESTAMP" else "+00:00"
            return column.name, spark_type(column.type.name) or "TIMESTAMP", f"{text}{zone}"
    return None


def _is_readable(name: str) -> bool:
    """Whether Spark finds the values of a type in our files."""
    return name in _STORED or bool(_FROM_FILES.fullmatch(name))


def _columns(chosen: Selected) -> list[Column]:
    assert chosen.scan.table is not None
    columns = list(chosen.scan.table.columns)
    return [*columns, Column(SEQ, SqlType("BIGINT"))] if chosen.scan.with_seq else columns


def _wanted(columns: list[Column], query: SparkQuery, view: str) -> list[Column]:
    """The columns that the query reads; one that Spark knows, if it only counts rows."""
    names = {name.lower() for name in query.reads.get(view.lower(), ())}
    known = [column for column in columns if spark_type(column.type.name)]
    return [column for column in known if column.name.lower() in names] or known[:1]
