"""Writing: append and INSERT, from any form to the table that keeps it.

Rows for a streaming table are accepted and given to the hot tier; rows for a reference table are
accepted by the same rules and inserted by DuckDB. Either way a statement is all or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from sqlglot import exp

from tidemill.accept.literals import accept_literals
from tidemill.accept.rows import Checked, divert_hint, from_columns, read
from tidemill.catalog.model import Table
from tidemill.errors import (
    QueryError,
    RowsRejectedError,
    UnknownNameError,
    UnsupportedError,
)
from tidemill.federation.references import References, physical_name
from tidemill.hot.intake import Accepted, AppendResult
from tidemill.hot.table import HotTable
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.sql.inserts import DEFAULT
from tidemill.sql.params import Params, bind_rows, check_params
from tidemill.statements.call import Call, Handlers, RunQuery
from tidemill.statements.changing import changed_rows
from tidemill.statements.merging import NOTHING, Merger, read_tail, upsert_of
from tidemill.statements.naming import check_writable
from tidemill.statements.row_values import RowByRow
from tidemill.statements.targets import Target, Targets
from tidemill.subscribers import Subscribers
from tidemill.types import quote

OFFSET_MAX = 2**63 - 1
SOURCE_CHARS_MAX = 1_000


class Writer:
    def __init__(
        self,
        targets: Targets,
        hot: Mapping[int, HotTable],
        references: References,
        changes: Subscribers[int],
        query: RunQuery,
        merger: Merger,
    ) -> None:
        """``changes`` are told of a reference table, by its id, before it changes."""
        self.targets = targets
        self._hot = hot
        self._references = references
        self._changes = changes
        self._query = query
        self._merger = merger

    @property
    def handlers(self) -> Handlers:
        return {st.Insert: self.insert}

    # -- append

    def append(
        self,
        name: str,
        rows: Any,
        source: str | None,
        offset: int | None,
        rejects: Sequence[tuple[str, str]] = (),
    ) -> AppendResult:
        target = self.targets.get(name)
        check_writable(target.table)
        if source is None and offset is None and not rejects:
            row = self._single(target, rows)
            if row is not None and self._hot_of(target.table).append_row(row):
                return AppendResult(1, stored=1)
        check_source(source, offset)
        given = read(rows, target.table, target.acceptor.defaults)
        if self._is_repeat(target, source, offset):
            return AppendResult(given.num_rows + len(rejects), is_repeat=True)
        check_rejects(rejects, target.table)
        checked = target.acceptor.accept(given)
        checked = Checked(checked.batches, (*checked.rejects, *rejects))
        return self.store(target, checked, source, offset)

    def append_answers(self, table: Table, rows: pa.Table, source: str, offset: int) -> None:
        """Store what a kept query answered, once for each offset."""
        target = self.targets.get(table.name)
        if not self._is_repeat(target, source, offset):
            self.store(target, target.acceptor.accept(rows), source, offset)

    def _is_repeat(self, target: Target, source: str | None, offset: int | None) -> bool:
        """A repeat is acknowledged whatever the table would say of its rows today."""
        if source is None or offset is None or not target.table.is_streaming:
            return False
        return self._hot_of(target.table).is_acknowledged(source, offset)

    def _single(self, target: Target, rows: Any) -> tuple[Any, ...] | None:
        if not target.reader.is_usable or not target.table.is_streaming:
            return None
        if type(rows) is dict:
            return target.reader.read_dict(rows)
        return target.reader.read_tuple(rows) if type(rows) is tuple else None

    def store(
        self, target: Target, checked: Checked, source: str | None = None, offset: int | None = None
    ) -> AppendResult:
        if target.table.is_streaming:
            accepted = Accepted(checked.batches, checked.rejects, source, offset)
            return self._hot_of(target.table).append(accepted)
        if source is not None:
            raise UnsupportedError(
                f'reference table "{target.table.name}" keeps no source offsets',
                hint="append without source and offset, or use a streaming table",
            )
        rows = pa.Table.from_batches(checked.batches, target.table.schema)
        self._insert_reference(target.table, rows, "")
        return AppendResult(rows.num_rows, stored=rows.num_rows)

    def _hot_of(self, table: Table) -> HotTable:
        hot = self._hot.get(table.table_id)
        if hot is None:
            raise UnknownNameError(f'table "{table.name}" was dropped')
        return hot

    # -- insert

    def insert(self, call: Call[st.Insert]) -> Result:
        statement, params = call.statement, call.params
        target = self.targets.at(statement.table, statement)
        columns = self.columns_of(target.table, statement.columns, statement)
        template = statement.rows if statement.rows is not None else statement.template
        if statement.literals is not None:
            check_params((), params)
            self._check_width(len(statement.literals.columns), columns, statement)
            checked = accept_literals(target.acceptor, statement.literals, columns)
        elif template is not None:
            rows = self._bound(statement, template, params)
            if (
                len(rows) == 1
                and not statement.tail
                and self._insert_single(target, rows[0], columns, statement)
            ):
                return done("INSERT 1")
            checked = self._check_rows(target, rows, columns)
        else:
            assert statement.query is not None
            checked = self._check_query(target, call, statement.query, columns)
        if target.table.is_streaming:
            if statement.tail:
                return self._upsert(target, checked, statement)
            stored = self.store(target, checked)
            return done(f"INSERT {stored.stored}")
        table = pa.Table.from_batches(checked.batches, target.table.schema)
        return self._insert_reference(target.table, table, statement.tail)

    def _upsert(self, target: Target, checked: Checked, statement: st.Insert) -> Result:
        table, hot = target.table, self._hot_of(target.table)
        names = [column.name for column in table.columns]
        merge = upsert_of(read_tail(statement.tail), table, names, statement.position)
        check_rejects(checked.rejects, table)
        rows = pa.Table.from_batches(checked.batches, table.schema)
        only_new = merge.whens[0].action == NOTHING
        hot.changing.wait_for_room(rows.nbytes)
        with hot.paused():
            found = self._merger.merge(merge, target, hot, rows, None, checked.rejects, only_new)
        return done(f"INSERT {found.count}")

    def _insert_single(
        self, target: Target, row: tuple[Any, ...], columns: Sequence[str], statement: st.Insert
    ) -> bool:
        if statement.columns is None:
            plain = self._single(target, row)
        else:
            plain = self._single(target, dict(zip(columns, row, strict=True)))
        return plain is not None and self._hot_of(target.table).append_row(plain)

    def _bound(
        self, statement: st.Insert, template: Sequence[tuple[Any, ...]], params: Params
    ) -> Sequence[tuple[Any, ...]]:
        if statement.rows is None:
            return bind_rows(tuple(template), params, statement.in_order)
        check_params((), params)
        return template

    def _check_rows(
        self, target: Target, rows: Sequence[Sequence[Any]], columns: Sequence[str]
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
            return target.acceptor.accept(from_columns(columns, values, target.table))
        pairs = [zip(columns, row, strict=True) for row in rows]
        kept = [{name: v for name, v in row if v is not DEFAULT} for row in pairs]
        if not any(kept):
            return target.acceptor.accept(self._all_default(target, len(kept)))
        return target.acceptor.accept(read(kept, target.table, target.acceptor.defaults))

    def _check_query(
        self,
        target: Target,
        call: Call[st.Insert],
        body: exp.Expression,
        columns: Sequence[str],
    ) -> Checked:
        statement = call.statement

        def evaluate(part: exp.Expression) -> pa.Table:
            query = st.Query(part, text=statement.text, position=statement.position)
            return self._query(call.of(query)).table

        try:
            answer = evaluate(body)
        except QueryError:
            rows = body.expressions if isinstance(body, exp.Values) and not call.params else []
            if len(rows) < 2:
                raise
            # VALUES get one type a column, which a text and a time do not have: row by row, then.
            names = _value_names(rows[0]) if statement.by_name else columns
            wrong = partial(_wrong_width, columns=columns, statement=statement)
            return RowByRow(target.acceptor, names, evaluate, wrong).check(rows)
        if statement.by_name:
            columns = answer.column_names
        self._check_width(answer.num_columns, columns, statement)
        return target.acceptor.accept(answer.rename_columns(columns))

    def _check_width(self, width: int, columns: Sequence[str], statement: st.Insert) -> None:
        if width != len(columns):
            raise _wrong_width(width, columns, statement)

    def _all_default(self, target: Target, count: int) -> pa.Table:
        first = target.table.columns[0]
        return pa.table({first.name: target.acceptor.defaults.array(first, count)})

    def _insert_reference(self, table: Table, rows: pa.Table, tail: str) -> Result:
        target = f"reference.{physical_name(table.table_id)}"
        names = ", ".join(quote(name) for name in rows.column_names)
        sql = f"INSERT INTO {target} ({names}) SELECT * FROM tm_rows {tail}"
        self._changes.tell(table.table_id)
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


def check_source(source: str | None, offset: int | None) -> None:
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


def _wrong_width(width: int, columns: Sequence[str], statement: st.Insert) -> RowsRejectedError:
    return RowsRejectedError(
        f"the query gives {width} columns, {len(columns)} are wanted",
        hint=f"the columns are {', '.join(columns)}",
        position=statement.position,
    )


def _value_names(row: exp.Expression) -> list[str]:
    """What DuckDB calls the columns of VALUES."""
    return [f"col{at}" for at in range(len(row.expressions))]
