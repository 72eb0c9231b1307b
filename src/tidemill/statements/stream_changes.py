"""Changes of streams: UPDATE, DELETE and TRUNCATE, which wait if they may (``deferring``).

What must not wait is *resolved*: the rows that are meant are found when the statement is made, by a
query over the table as it is, while no other writer is let in. The change then names rows by their
numbers and has their new values. An UPDATE of the time column or of the primary key takes rows out
and puts others in, as one frame of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidemill.catalog.model import Table
from tidemill.catalog.store import Catalog
from tidemill.changes.model import Spans
from tidemill.clock import Clock
from tidemill.errors import RowsRejectedError, TidemillError, UnknownNameError, UnsupportedError
from tidemill.federation.duck import Duck
from tidemill.federation.planner import VIEW, make_plan
from tidemill.federation.runner import Runner, stream_ids
from tidemill.hot.intake import Accepted
from tidemill.hot.table import HotTable
from tidemill.result import Result, done
from tidemill.sql import statements as st
from tidemill.sql.params import check_params, own_params, placeholders
from tidemill.sql.windows import recent_target, window_call
from tidemill.statements.assigning import assignments
from tidemill.statements.call import Call
from tidemill.statements.deferring import Deferred, deferred
from tidemill.statements.keyed import keyed
from tidemill.statements.merging import Merger, merge_of
from tidemill.statements.naming import check_writable
from tidemill.statements.resolved import OLD_TIME, by_number, places_of
from tidemill.statements.targets import Targets
from tidemill.stream.image import bounds_of
from tidemill.types import SEQ

KNOWN_MAX = 1_000  # statements whose forms are kept
RESOLVED_BYTES = 1 << 20  # that must be free when a statement is resolved
KEYED_SHARE = 8  # of a table's memory, for the corrections of one statement
_NEW = "tm_new"


class StreamChanges:
    def __init__(
        self,
        catalog: Catalog,
        hot: Mapping[int, HotTable],
        targets: Targets,
        runner: Runner,
        duck: Duck,
        clock: Clock,
        merger: Merger,
    ) -> None:
        self._catalog = catalog
        self._hot = hot
        self._targets = targets
        self._runner = runner
        self._duck = duck
        self._clock = clock
        self._merger = merger
        self._known: dict[tuple[str, int], tuple[Table, Deferred]] = {}

    def change(self, call: Call[st.Change], table: Table) -> Result:
        """Carry an UPDATE or DELETE of a streaming table out."""
        check_writable(table)
        given = statement = call.statement
        hot = self._hot_of(table)
        if statement.kind == "merge":
            return self._merge(call, table, hot)
        if window_call(statement.body.this) is not None:
            call = self._windowed(call, hot)
            statement = call.statement
        wait = self._deferred(call, table, is_kept=statement is given)
        tag = statement.kind.upper()
        if wait is not None:
            values = wait.values(call.params, self._clock.now_us())
            if values is not None:
                hot.changing.change(
                    wait.form, (values,), spared=lambda: spared_by(self._catalog, hot)
                )
                return done(tag)
        if self._by_key(call, table, hot):
            return done(tag)
        hot.changing.wait_for_room(RESOLVED_BYTES)
        with hot.paused():
            return self._resolve(call, table, hot)

    def _by_key(self, call: Call[st.Change], table: Table, hot: HotTable) -> bool:
        """Make a change with another source wait, as corrections by key; whether it may."""
        found = keyed(call.statement.body, table, call.params)
        if found is None:
            return False
        given = call.params if placeholders(found.query) else None
        try:
            plan = make_plan(found.query, self._catalog.snapshot(), given)
            if any(scan.kind == VIEW for scan in plan.scans) or table.table_id in stream_ids(plan):
                return False  # rows of the table itself, which may change meanwhile
            filled = self._runner.fill(plan, given)
            rows, _ = self._duck.query(filled.sql, filled.values, filled.sources, exact=True)
        except TidemillError:
            return False  # a row that matches nothing may be what fails
        change = found.change(rows)
        if change is None or change[1].nbytes > table.settings["memory"] // KEYED_SHARE:
            return False
        form, batch = change
        if batch.num_rows:
            hot.changing.change(form, batch=batch, spared=lambda: spared_by(self._catalog, hot))
        return True

    def _windowed(self, call: Call[st.Change], hot: HotTable) -> Call[st.Change]:
        """A change of RECENT(t, …) as one of the table, with what is recent now as a condition."""
        check_params(placeholders(call.statement.body), call.params)
        body = call.statement.body.copy()
        now = bounds_of(hot)
        target, condition = recent_target(
            body.this, self._catalog.snapshot().find, call.params, lambda _: now
        )
        body.set("this", target)
        where = body.args.get("where")
        parts = [condition] if where is None else [condition, exp.paren(where.this, copy=False)]
        body.set("where", exp.Where(this=exp.and_(*parts, copy=False)))
        statement = replace(call.statement, body=body, text=body.sql(dialect="duckdb"))
        return Call(statement, own_params(body, call.params), call.session, call.find)

    def _deferred(self, call: Call[st.Change], table: Table, is_kept: bool) -> Deferred | None:
        """The statement, if it may wait; kept, if it may come again with other parameters."""
        statement = call.statement
        key = statement.text, table.table_id
        known = self._known.get(key)
        if known is not None and known[0] is table:
            return known[1]
        check_params(placeholders(statement.body), call.params)
        found = deferred(statement.body, table, call.params, self._clock.now_us())
        if found is not None and call.params and is_kept:
            if len(self._known) >= KNOWN_MAX:
                self._known = {}
            self._known[key] = table, found
        return found

    def _hot_of(self, table: Table) -> HotTable:
        hot = self._hot.get(table.table_id)
        if hot is None:
            raise UnknownNameError(f'table "{table.name}" was dropped')
        return hot

    def _merge(self, call: Call[st.Change], table: Table, hot: HotTable) -> Result:
        body, params = call.statement.body, call.params
        check_params(placeholders(body), params)
        target = self._targets.get(table.name)
        if window_call(body.this) is not None:
            raise UnsupportedError(
                "MERGE names a table, not a window of it",
                hint="WHEN MATCHED AND t.ts > … leaves the others out",
                position=call.statement.position,
            )
        hot.changing.wait_for_room(RESOLVED_BYTES)
        with hot.paused():
            rows = self._merger.source(body.args["using"], body.args.get("with_"), params)
            merge = merge_of(body, table, rows.column_names, call.statement.position)
            found = self._merger.merge(merge, target, hot, rows, params)
        return done(f"MERGE {found.count}")

    # -- resolved at once

    def _resolve(self, call: Call[st.Change], table: Table, hot: HotTable) -> Result:
        statement = call.statement
        body = statement.body
        is_update = isinstance(body, exp.Update)
        sets = assignments(body.expressions, table, statement.position) if is_update else {}
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
        columns.append(exp.alias_(time, OLD_TIME))
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
        time_field = table.schema.field(table.time_column).with_name(OLD_TIME)
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
        frames = {_NEW: answer.drop_columns([SEQ, OLD_TIME])}
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
        form, batch = by_number(table, answer, tuple(changed) if is_update else None)
        hot.changing.change(form, batch=batch, spared=lambda: spared_by(self._catalog, hot))

    def _replace(self, table: Table, hot: HotTable, answer: pa.Table) -> None:
        """Rows with another time or another key: the old ones go, new ones come."""
        given = answer.drop_columns([SEQ, OLD_TIME])
        checked = self._targets.get(table.name).acceptor.accept(given)
        if checked.rejects:
            raise RowsRejectedError(
                f"{len(checked.rejects)} of the new rows do not fit; nothing was changed",
                detail=f"for example: {checked.rejects[0][1]}",
            )
        hot.changing.replace(Accepted((), moved=checked.batches), places_of(answer))


def spared_by(catalog: Catalog, hot: HotTable) -> Spans:
    """The numbers of loads that are not committed: their rows come later. Called under the table's
    write lock."""
    if not hot.published.loads.has_open:
        return ()
    history = catalog.snapshot().history(hot.table.table_id)
    known = [(each.first_seq, each.last_seq) for each in history.reservations]
    with hot.published.lock:
        return hot.published.loads.open_without(known)


def _name_of(body: exp.Expression, table: Table) -> str:
    """What the statement calls its table."""
    alias = body.this.alias
    return str(alias) if alias else table.name


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
