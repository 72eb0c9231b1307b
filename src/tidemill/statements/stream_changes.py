"""Changes of streams: UPDATE, DELETE and TRUNCATE, which wait if they may (``deferring``).

What must not wait is *resolved*: the rows that are meant are found when the statement is made, by a
query over the table as it is, while no other writer is let in. The change then names rows by their
numbers and has their new values. An UPDATE of the time column or of the primary key takes rows out
and puts others in, as one frame of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidemill.catalog.model import Table
from tidemill.catalog.store import Catalog
from tidemill.changes.model import DELETE, UPDATE, ChangeForm, Spans
from tidemill.clock import Clock
from tidemill.errors import RowsRejectedError, SqlSyntaxError, UnknownNameError, UnsupportedError
from tidemill.federation.duck import Duck
from tidemill.federation.planner import make_plan
from tidemill.federation.runner import Runner
from tidemill.hot.table import HotTable
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.sql.names import position_of
from tidemill.sql.params import check_params, placeholders
from tidemill.statements.call import Call
from tidemill.statements.deferring import Deferred, deferred
from tidemill.statements.naming import check_writable
from tidemill.statements.targets import Targets
from tidemill.types import SEQ, Column

KNOWN_MAX = 1_000  # statements whose forms are kept
_NEW = "tm_new"
_OLD_TIME = "tm_time"  # of a row that is meant, whatever it becomes


class StreamChanges:
    def __init__(
        self,
        catalog: Catalog,
        hot: Mapping[int, HotTable],
        targets: Targets,
        runner: Runner,
        duck: Duck,
        clock: Clock,
    ) -> None:
        self._catalog = catalog
        self._hot = hot
        self._targets = targets
        self._runner = runner
        self._duck = duck
        self._clock = clock
        self._known: dict[tuple[str, int], tuple[Table, Deferred]] = {}

    def change(self, call: Call[st.Change], table: Table) -> Result:
        """Carry an UPDATE or DELETE of a streaming table out."""
        check_writable(table)
        statement = call.statement
        hot = self._hot_of(table)
        wait = self._deferred(call, table)
        tag = statement.kind.upper()
        if wait is not None:
            values = wait.values(call.params, self._clock.now_us())
            if values is not None:
                hot.changing.change(
                    wait.form, (values,), spared=lambda: spared_by(self._catalog, hot)
                )
                return done(tag)
        with hot.paused():
            return self._resolve(call, table, hot)

    def _deferred(self, call: Call[st.Change], table: Table) -> Deferred | None:
        """The statement, if it may wait; kept, since it may come again with other parameters."""
        statement = call.statement
        key = statement.text, table.table_id
        known = self._known.get(key)
        if known is not None and known[0] is table:
            check_params(placeholders(statement.body), call.params)
            return known[1]
        check_params(placeholders(statement.body), call.params)
        found = deferred(statement.body, table, call.params, self._clock.now_us())
        if found is not None and call.params:
            if len(self._known) >= KNOWN_MAX:
                self._known = {}
            self._known[key] = table, found
        return found

    def _hot_of(self, table: Table) -> HotTable:
        hot = self._hot.get(table.table_id)
        if hot is None:
            raise UnknownNameError(f'table "{table.name}" was dropped')
        return hot

    # -- resolved at once

    def _resolve(self, call: Call[st.Change], table: Table, hot: HotTable) -> Result:
        statement = call.statement
        body = statement.body
        is_update = isinstance(body, exp.Update)
        sets = _assignments(body, table, statement) if is_update else {}
        answer = self._rows(call, table, sets)
        seqs = answer.column(SEQ)
        if len(seqs) != pc.count_distinct(seqs).as_py():
            if is_update:
                raise RowsRejectedError(
                    "the UPDATE gives a row more than one new value; nothing was changed",
                    detail="several rows of the other table match it",
                    hint="let each row match one row at most: GROUP BY in a subquery",
                )
            answer = _first_of_each(answer)
        _check_nulls(answer, table, sets)
        tag = f"{statement.kind.upper()} {answer.num_rows}"
        returning = body.args.get("returning")
        shown = self._returning(call, table, answer, returning) if returning else None
        if answer.num_rows:
            self._store(table, hot, answer, sets, is_update)
        if shown is not None:
            return Result(shown[0], shown[1], tag)
        return done(tag)

    def _rows(
        self, call: Call[st.Change], table: Table, sets: Mapping[str, exp.Expression]
    ) -> pa.Table:
        """The rows that are meant, with their numbers and their new values, in their types."""
        body = call.statement.body
        target = body.this.copy()
        name = _name_of(body, table)
        columns: list[exp.Expr] = []
        for column in table.columns:
            given = sets.get(column.name.lower())
            own = exp.column(column.name, table=name, quoted=True)
            if given is None:
                columns.append(exp.alias_(own, column.name, quoted=True))
            else:
                cast = exp.cast(exp.paren(given.copy()), str(column.type), dialect="duckdb")
                columns.append(exp.alias_(cast, column.name, quoted=True))
        time = exp.column(table.time_column or "", table=name, quoted=True)
        columns.append(exp.alias_(time, _OLD_TIME))
        columns.append(exp.column(SEQ, table=name, quoted=True))
        query = exp.select(*columns).from_(target)
        others = body.args.get("using") or []
        source = body.args.get("from_")
        if source is not None:
            others = [source.this, *others]
        for other in others:
            query = query.join(other.copy(), join_type="cross")
        where = body.args.get("where")
        if where is not None:
            query = query.where(where.this.copy())
        if body.args.get("with_"):
            query.set("with_", body.args["with_"].copy())
        snapshot = self._catalog.snapshot()
        plan = make_plan(query, snapshot, call.params)
        filled = self._runner.fill(plan, call.params)
        rows, _ = self._duck.query(filled.sql, filled.values, filled.sources, exact=True)
        time_field = table.schema.field(table.time_column).with_name(_OLD_TIME)
        schema = table.schema.append(time_field).append(pa.field(SEQ, pa.int64()))
        arrays = [c.cast(f.type) for c, f in zip(rows.columns, schema, strict=True)]
        nullable = pa.schema([field.with_nullable(True) for field in schema])
        return pa.Table.from_arrays(arrays, schema=nullable).sort_by(SEQ)

    def _returning(
        self, call: Call[st.Change], table: Table, answer: pa.Table, returning: exp.Expression
    ) -> tuple[pa.Table, list[str]]:
        name = _name_of(call.statement.body, table)
        source = exp.to_table(_NEW)
        source.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
        given = [each.copy() for each in returning.expressions]
        query = exp.select(*given).from_(source)
        frames = {_NEW: answer.drop_columns([SEQ, _OLD_TIME])}
        params = call.params if placeholders(query) else None
        plan = make_plan(query, self._catalog.snapshot(), params, frames)
        filled = self._runner.fill(plan, params)
        return self._duck.query(filled.sql, filled.values, filled.sources)

    def _store(
        self,
        table: Table,
        hot: HotTable,
        answer: pa.Table,
        sets: Mapping[str, exp.Expression],
        is_update: bool,
    ) -> None:
        fixed = {table.time_column, *table.primary_key}
        changed = [column for column in table.columns if column.name.lower() in sets]
        if any(column.name in fixed for column in changed):
            self._replace(table, hot, answer)
            return
        form = _resolved_form(table, tuple(changed) if is_update else None)
        columns = [answer.column(SEQ), _times(answer), *(answer.column(c.name) for c in changed)]
        whole = pa.Table.from_arrays([c.combine_chunks() for c in columns], names=form.schema.names)
        batch = whole.cast(form.schema).combine_chunks().to_batches()[0]
        hot.changing.change(form, batch=batch, spared=lambda: spared_by(self._catalog, hot))

    def _replace(self, table: Table, hot: HotTable, answer: pa.Table) -> None:
        """Rows with another time or another key: the old ones go, new ones come."""
        given = answer.drop_columns([SEQ, _OLD_TIME])
        checked = self._targets.get(table.name).acceptor.accept(given)
        if checked.rejects:
            raise RowsRejectedError(
                f"{len(checked.rejects)} of the new rows do not fit; nothing was changed",
                detail=f"for example: {checked.rejects[0][1]}",
            )
        columns = (answer.column(SEQ).to_pylist(), _times(answer).to_pylist())
        hot.changing.replace(checked.batches, list(zip(*columns, strict=True)))


def spared_by(catalog: Catalog, hot: HotTable) -> Spans:
    """The numbers of loads that are not committed: their rows come later. Called under the table's
    write lock."""
    history = catalog.snapshot().history(hot.table.table_id)
    known = [(each.first_seq, each.last_seq) for each in history.reservations]
    with hot.published.lock:
        return hot.published.loads.open_without(known)


@lru_cache(maxsize=1_000)
def _resolved_form(table: Table, changed: tuple[Column, ...] | None) -> ChangeForm:
    """The form of changes that name rows by their numbers."""
    times = table.get_column(table.time_column or "")
    types = ("BIGINT", "BIGINT", *(column.type.name for column in changed or ()))
    sets = tuple((column.name, (2 + at,)) for at, column in enumerate(changed or ()))
    kind = DELETE if changed is None else UPDATE
    assert times.type.is_time
    # the bounds serve to find the span of time; rows are named by their numbers alone
    return ChangeForm(kind, types, ((SEQ, 0),), (), sets, frozenset(), (("=", 1),))


def _times(answer: pa.Table) -> pa.ChunkedArray:
    """The times of the rows as they were, in microseconds."""
    return answer.column(_OLD_TIME).cast(pa.int64())


def _name_of(body: exp.Expression, table: Table) -> str:
    """What the statement calls its table."""
    alias = body.this.alias
    return str(alias) if alias else table.name


def _assignments(
    body: exp.Expression, table: Table, statement: st.Change
) -> dict[str, exp.Expression]:
    """The new values of an UPDATE, by column in lower case."""
    found: dict[str, exp.Expression] = {}
    for each in body.expressions:
        pairs = [(each.this, each.expression)] if isinstance(each, exp.EQ) else []
        if pairs and isinstance(each.this, exp.Tuple):
            values = each.expression
            if not isinstance(values, exp.Tuple) or len(values.expressions) != len(
                each.this.expressions
            ):
                raise UnsupportedError(
                    "UPDATE sets several columns from something that is no list",
                    hint="SET a = …, b = …",
                    position=statement.position,
                )
            pairs = list(zip(each.this.expressions, values.expressions, strict=True))
        for target, value in pairs:
            if not isinstance(target, exp.Column):
                raise SqlSyntaxError("SET names columns", position=statement.position)
            column = table.get_column(target.name, position_of(target) or statement.position)
            if column.name.lower() in found:
                raise SqlSyntaxError(
                    f'column "{column.name}" is set twice', position=position_of(target)
                )
            if isinstance(value, exp.Var) and value.name.upper() == "DEFAULT":
                value = exp.maybe_parse(column.default or "NULL", dialect="duckdb")
            found[column.name.lower()] = value
    return found


def _check_nulls(answer: pa.Table, table: Table, sets: Mapping[str, exp.Expression]) -> None:
    for column in table.columns:
        is_set = column.name.lower() in sets
        if is_set and not column.nullable and answer.column(column.name).null_count:
            raise RowsRejectedError(
                f'"{column.name}" of table "{table.name}" must not be NULL; nothing was changed'
            )


def _first_of_each(answer: pa.Table) -> pa.Table:
    seqs = np.asarray(answer.column(SEQ).to_numpy())
    _, places = np.unique(seqs, return_index=True)
    return answer.take(pa.array(places))
