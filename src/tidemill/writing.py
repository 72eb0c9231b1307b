"""Writing: append, INSERT, UPDATE and DELETE, from any form to the table that keeps it.

Rows for a streaming table are accepted and given to the hot tier; rows for a reference table are
accepted by the same rules and inserted by DuckDB. Either way a statement is all or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

from tidemill.accept.cast import FATAL, Caster
from tidemill.accept.defaults import Defaults
from tidemill.accept.literals import accept_literals
from tidemill.accept.rows import Acceptor, Checked, divert_hint, from_columns, read
from tidemill.accept.single import RowReader
from tidemill.catalog.model import Table
from tidemill.catalog.store import Catalog
from tidemill.config import DUCKDB_CLOSED
from tidemill.errors import (
    QueryError,
    RowsRejectedError,
    TidemillError,
    UnknownNameError,
    UnsupportedError,
)
from tidemill.federation.duck import translated
from tidemill.federation.planner import make_plan
from tidemill.federation.references import References, physical_name
from tidemill.federation.runner import Runner
from tidemill.hot.intake import Accepted, AppendResult
from tidemill.hot.table import HotTable
from tidemill.result import Result, done
from tidemill.row_values import RowByRow
from tidemill.sql import statements as st
from tidemill.sql.inserts import DEFAULT
from tidemill.sql.params import Params, bind_rows, check_params
from tidemill.threads import PerThread
from tidemill.types import quote
from tidemill.views.kept.definition import is_kept

OFFSET_MAX = 2**63 - 1
SOURCE_CHARS_MAX = 1_000

RunQuery = Callable[[st.Query, Params], Result]
"""Runs a query for the session whose statement is carried out."""
Changing = Callable[[int], AbstractContextManager[None]]


@dataclass(frozen=True)
class Desk:
    """What accepts rows for one table, as one snapshot of the catalog describes it."""

    table: Table
    acceptor: Acceptor
    reader: RowReader


class Writer:
    def __init__(
        self,
        catalog: Catalog,
        hot: Mapping[int, HotTable],
        references: References,
        runner: Runner,
        changing: Changing = lambda _: nullcontext(),
    ) -> None:
        """``changing`` is entered around a change of a reference table, by its id."""
        self._changing = changing
        self._catalog = catalog
        self._hot = hot
        self._references = references
        self._runner = runner
        self._casting = PerThread(_new_connection)
        self._desks: dict[str, Desk] = {}

    # -- append

    def append(
        self,
        name: str,
        rows: Any,
        source: str | None,
        offset: int | None,
        rejects: Sequence[tuple[str, str]] = (),
    ) -> AppendResult:
        desk = self._desk(name)
        check_writable(desk.table)
        if source is None and offset is None and not rejects:
            row = self._single(desk, rows)
            if row is not None and self._hot_of(desk.table).append_row(row):
                return AppendResult(1, stored=1)
        _check_source(source, offset)
        given = read(rows, desk.table, desk.acceptor.defaults)
        if self._is_repeat(desk, source, offset):
            return AppendResult(given.num_rows + len(rejects), is_repeat=True)
        check_rejects(rejects, desk.table)
        checked = desk.acceptor.accept(given)
        checked = Checked(checked.batches, (*checked.rejects, *rejects))
        return self.store(desk, checked, source, offset)

    def append_answers(self, table: Table, rows: pa.Table, source: str, offset: int) -> None:
        """Store what a kept query answered, once for each offset."""
        desk = self._desk(table.name)
        if not self._is_repeat(desk, source, offset):
            self.store(desk, desk.acceptor.accept(rows), source, offset)

    def _is_repeat(self, desk: Desk, source: str | None, offset: int | None) -> bool:
        """A repeat is acknowledged whatever the table would say of its rows today."""
        if source is None or offset is None or not desk.table.is_streaming:
            return False
        return self._hot_of(desk.table).is_acknowledged(source, offset)

    def _single(self, desk: Desk, rows: Any) -> tuple[Any, ...] | None:
        if not desk.reader.is_usable or not desk.table.is_streaming:
            return None
        if type(rows) is dict:
            return desk.reader.read_dict(rows)
        return desk.reader.read_tuple(rows) if type(rows) is tuple else None

    def store(
        self, desk: Desk, checked: Checked, source: str | None = None, offset: int | None = None
    ) -> AppendResult:
        if desk.table.is_streaming:
            accepted = Accepted(checked.batches, checked.rejects, source, offset)
            return self._hot_of(desk.table).append(accepted)
        if source is not None:
            raise UnsupportedError(
                f'reference table "{desk.table.name}" keeps no source offsets',
                hint="append without source and offset, or use a streaming table",
            )
        rows = pa.Table.from_batches(checked.batches, desk.table.schema)
        self._insert_reference(desk.table, rows, "")
        return AppendResult(rows.num_rows, stored=rows.num_rows)

    def _hot_of(self, table: Table) -> HotTable:
        hot = self._hot.get(table.table_id)
        if hot is None:
            raise UnknownNameError(f'table "{table.name}" was dropped')
        return hot

    def _desk(self, name: str) -> Desk:
        table = self._catalog.snapshot().find(name)
        known = self._desks.get(name)
        if known is not None and known.table is table:
            return known
        self._refuse_system(name)
        table = self._catalog.snapshot().get(name)
        if table.is_view or table.is_digest:
            raise UnsupportedError(
                f'view "{table.name}" can be read but not written',
                hint="append to the streams that it reads",
            )
        defaults = Defaults(self._evaluate)
        desk = Desk(
            table,
            Acceptor(table, Caster(self._cast_connection, self._forget_connection), defaults),
            RowReader(table, defaults),
        )
        self._desks = {**self._desks, name: desk} if len(self._desks) < 10_000 else {name: desk}
        return desk

    def _refuse_system(self, name: str) -> None:
        if self._catalog.snapshot().find(name) is None and ("$" in name or "." in name):
            raise UnsupportedError(
                f'"{name}" can be read but not written',
                hint="side tables and system tables are filled by Tidemill itself",
            )

    def _evaluate(self, sql: str) -> pa.Table:
        try:
            return self._cast_connection().sql(sql).to_arrow_table()
        except FATAL as error:
            self._forget_connection()
            raise translated(error) from error

    def _cast_connection(self) -> duckdb.DuckDBPyConnection:
        """A small DuckDB of this thread, whose Arrow output keeps every type as it is."""
        return self._casting.get()

    def _forget_connection(self) -> None:
        """After a fatal error DuckDB refuses everything; the next cast gets a new connection."""
        self._casting.forget()

    # -- insert

    def insert(self, statement: st.Insert, params: Params, query: RunQuery) -> Result:
        desk = self.desk_at(statement.table, statement)
        columns = self.columns_of(desk.table, statement.columns, statement)
        if statement.tail and desk.table.is_streaming:
            raise UnsupportedError(
                "INSERT into a streaming table takes neither ON CONFLICT nor RETURNING",
                hint="set on_conflict on the table",
                position=statement.position,
            )
        template = statement.rows if statement.rows is not None else statement.template
        if statement.literals is not None:
            check_params((), params)
            self._check_width(len(statement.literals.columns), columns, statement)
            checked = accept_literals(desk.acceptor, statement.literals, columns)
        elif template is not None:
            rows = self._bound(statement, template, params)
            if len(rows) == 1 and self._insert_single(desk, rows[0], columns, statement):
                return done("INSERT 1")
            checked = self._check_rows(desk, rows, columns)
        else:
            assert statement.query is not None
            checked = self._check_query(desk, statement, statement.query, columns, params, query)
        if desk.table.is_streaming:
            stored = self.store(desk, checked)
            return done(f"INSERT {stored.stored}")
        table = pa.Table.from_batches(checked.batches, desk.table.schema)
        return self._insert_reference(desk.table, table, statement.tail)

    def _insert_single(
        self, desk: Desk, row: tuple[Any, ...], columns: Sequence[str], statement: st.Insert
    ) -> bool:
        if statement.columns is None:
            plain = self._single(desk, row)
        else:
            plain = self._single(desk, dict(zip(columns, row, strict=True)))
        return plain is not None and self._hot_of(desk.table).append_row(plain)

    def _bound(
        self, statement: st.Insert, template: Sequence[tuple[Any, ...]], params: Params
    ) -> Sequence[tuple[Any, ...]]:
        if statement.rows is None:
            return bind_rows(tuple(template), params)
        check_params((), params)
        return template

    def _check_rows(
        self, desk: Desk, rows: Sequence[Sequence[Any]], columns: Sequence[str]
    ) -> Checked:
        """Literal rows, in their order; DEFAULT as a value leaves the column out of its row."""
        for row in rows:
            if len(row) != len(columns):
                raise RowsRejectedError(
                    f"a row has {len(row)} values, {len(columns)} columns are wanted; "
                    "nothing was stored"
                )
        values = list(zip(*rows, strict=True))
        if values and not any(value is DEFAULT for column in values for value in column):
            return desk.acceptor.accept(from_columns(columns, values, desk.table))
        pairs = [zip(columns, row, strict=True) for row in rows]
        kept = [{name: v for name, v in row if v is not DEFAULT} for row in pairs]
        if not any(kept):
            return desk.acceptor.accept(self._all_default(desk, len(kept)))
        return desk.acceptor.accept(read(kept, desk.table, desk.acceptor.defaults))

    def _check_query(
        self,
        desk: Desk,
        statement: st.Insert,
        body: exp.Expression,
        columns: Sequence[str],
        params: Params,
        run: RunQuery,
    ) -> Checked:
        def evaluate(part: exp.Expression) -> pa.Table:
            query = st.Query(part, text=statement.text, position=statement.position)
            return run(query, params).table

        try:
            answer = evaluate(body)
        except QueryError:
            rows = body.expressions if isinstance(body, exp.Values) and not params else []
            if len(rows) < 2:
                raise
            # VALUES get one type a column, which a text and a time do not have: row by row, then.
            names = _value_names(rows[0]) if statement.by_name else columns
            wrong = partial(_wrong_width, columns=columns, statement=statement)
            return RowByRow(desk.acceptor, names, evaluate, wrong).check(rows)
        if statement.by_name:
            columns = answer.column_names
        self._check_width(answer.num_columns, columns, statement)
        return desk.acceptor.accept(answer.rename_columns(columns))

    def _check_width(self, width: int, columns: Sequence[str], statement: st.Insert) -> None:
        if width != len(columns):
            raise _wrong_width(width, columns, statement)

    def _all_default(self, desk: Desk, count: int) -> pa.Table:
        first = desk.table.columns[0]
        return pa.table({first.name: desk.acceptor.defaults.array(first, count)})

    def _insert_reference(self, table: Table, rows: pa.Table, tail: str) -> Result:
        target = f"reference.{physical_name(table.table_id)}"
        names = ", ".join(quote(name) for name in rows.column_names)
        sql = f"INSERT INTO {target} ({names}) SELECT * FROM tm_rows {tail}"
        with self._changing(table.table_id):
            answer, types = self._references.write(sql, {}, {"tm_rows": rows})
        if "returning" in tail.lower():
            return Result(answer, types, f"INSERT {answer.num_rows}")
        return done(f"INSERT {changed_rows(answer, rows.num_rows)}")

    def columns_of(
        self, table: Table, names: Sequence[str] | None, statement: st.Statement
    ) -> list[str]:
        if names is None:
            return [column.name for column in table.columns]
        return [table.get_column(name, statement.position).name for name in names]

    def desk_at(self, name: str, statement: st.Statement) -> Desk:
        try:
            desk = self._desk(name)
            check_writable(desk.table)
            return desk
        except TidemillError as error:
            error.position = error.position or statement.position
            raise

    # -- update and delete

    def change(self, statement: st.Change, params: Params) -> Result:
        self._refuse_system(statement.table)
        snapshot = self._catalog.snapshot()
        table = snapshot.get(statement.table, statement.position)
        if table.is_view or table.is_digest:
            raise UnsupportedError(
                f'view "{table.name}" can be read but not written', position=statement.position
            )
        if table.is_streaming:
            raise UnsupportedError(
                f'{statement.kind.upper()} of streaming table "{table.name}" is not supported yet',
                hint="rows leave by retention, CREATE OR REPLACE empties a table, and with a "
                "PRIMARY KEY on_conflict = 'replace' corrects single rows",
                position=statement.position,
            )
        plan = make_plan(statement.body, snapshot, params)
        filled = self._runner.fill(plan, params)
        with self._changing(table.table_id):
            answer, types = self._references.write(filled.sql, filled.values, filled.sources)
        tag = statement.kind.upper()
        if statement.body.args.get("returning"):
            return Result(answer, types, f"{tag} {answer.num_rows}")
        return done(f"{tag} {changed_rows(answer, 0)}")


def _wrong_width(width: int, columns: Sequence[str], statement: st.Insert) -> RowsRejectedError:
    return RowsRejectedError(
        f"the query gives {width} columns, {len(columns)} are wanted",
        hint=f"the columns are {', '.join(columns)}",
        position=statement.position,
    )


def _value_names(row: exp.Expression) -> list[str]:
    """What DuckDB calls the columns of VALUES."""
    return [f"col{at}" for at in range(len(row.expressions))]


def check_writable(table: Table) -> None:
    """Refuse rows for a table that a kept query fills."""
    if is_kept(table):
        raise UnsupportedError(
            f'table "{table.name}" keeps the answers of a query and takes no other rows',
            hint="append to the streams that it reads",
        )


def _new_connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={**DUCKDB_CLOSED})
    for setting in ("arrow_lossless_conversion = true", "TimeZone = 'UTC'", "threads = 1"):
        connection.execute(f"SET {setting}")
    return connection


def _check_source(source: str | None, offset: int | None) -> None:
    if (source is None) != (offset is None):
        raise RowsRejectedError("source and offset belong together: give both or neither")
    if source is None or offset is None:
        return
    if not isinstance(source, str) or not source or len(source) > SOURCE_CHARS_MAX:
        raise RowsRejectedError(f"source must be a text of 1 to {SOURCE_CHARS_MAX} characters")
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= OFFSET_MAX:
        raise RowsRejectedError(f"offset must be a whole number from 0 to {OFFSET_MAX}")


def check_rejects(rejects: Sequence[tuple[str, str]], table: Table) -> None:
    if rejects and (not table.is_streaming or table.settings["rejected"] != "divert"):
        raise RowsRejectedError(
            f'{len(rejects)} rows do not fit table "{table.name}"; nothing was stored',
            detail=f"for example: {rejects[0][1]}",
            hint=divert_hint(table),
        )


def changed_rows(answer: pa.Table, otherwise: int) -> int:
    """DuckDB answers a change with one row that counts."""
    if answer.num_columns == 1 and answer.num_rows == 1:
        value = answer.column(0)[0].as_py()
        return int(value) if isinstance(value, int | Decimal) else otherwise
    return otherwise
