"""Keyed: UPDATE … FROM and DELETE … USING that wait as corrections by key.

``UPDATE t SET v = s.v FROM s WHERE t.k = s.k`` says which rows it means by equality of columns of
the table with what another source gives, and what they get by that source alone. So the source is
read when the statement is made, its rows become corrections by key, and no row of the table is
looked at. Whatever is not of that form is resolved at once:

- every column has the name of its source before it, or there is no telling whose it is;
- what a column is compared with has the column's own type, so that both compare alike;
- a key comes once, else a row might get two values, which is an error if it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.model import Table
from tidemill.changes.model import DELETE, UPDATE, ChangeForm
from tidemill.sql.comparisons import parts_of_and
from tidemill.sql.constants import is_repeatable
from tidemill.sql.params import Params, placeholders
from tidemill.statements.assigning import assignments
from tidemill.types import Column


@dataclass(frozen=True)
class Keyed:
    """A statement over a source: ``query`` gives, for each of its rows, the keys and the values."""

    query: exp.Select
    keys: tuple[Column, ...]
    sets: tuple[Column, ...]
    kind: str
    time: str | None

    def change(self, rows: pa.Table) -> tuple[ChangeForm, pa.RecordBatch] | None:
        """The corrections that the source's rows are; None if the statement must not wait."""
        columns = (*self.keys, *self.sets)
        given = [column.combine_chunks() for column in rows.columns]
        names = [f"s{at}" for at in range(len(columns))]
        for column, array in zip(self.keys, given, strict=False):
            if array.type != column.type.arrow:
                return None
        held = pa.table(given, names=names)
        keys = names[: len(self.keys)]
        for name in keys:  # NULL equals nothing
            held = held.filter(held.column(name).is_valid())
        try:
            distinct = held.group_by(keys).aggregate([]).num_rows
        except pa.ArrowException:  # of a type that Arrow does not group by
            return None
        if distinct != held.num_rows:
            return None
        sets = held.select(names[len(keys) :]).columns
        if any(
            array.null_count and not column.nullable
            for column, array in zip(self.sets, sets, strict=True)
        ):
            return None
        form = self._form()
        whole = held.cast(form.schema).combine_chunks()
        return form, (whole.to_batches() or [pa.RecordBatch.from_pylist([], form.schema)])[0]

    def _form(self) -> ChangeForm:
        columns = (*self.keys, *self.sets)
        times = [at for at, column in enumerate(self.keys) if column.type.is_time]
        count = len(self.keys)
        return ChangeForm(
            self.kind,
            tuple(column.type.name for column in columns),
            tuple((column.name, at) for at, column in enumerate(self.keys)),
            (),
            tuple((column.name, (count + at,)) for at, column in enumerate(self.sets)),
            frozenset(column.name for column in self.keys),
            tuple(("=", at) for at in times if self.keys[at].name == self.time),
        )


def keyed(body: exp.Expression, table: Table, params: Params) -> Keyed | None:
    """A statement as corrections by key; None if it has another form."""
    source, using = body.args.get("from_"), body.args.get("using") or []
    others = [source.this] if source is not None else list(using)
    where = body.args.get("where")
    is_plain = not body.args.get("returning") and not body.args.get("with_")
    if len(others) != 1 or where is None or not is_plain or not is_repeatable(where):
        return None
    name = str(body.this.alias) or table.name
    is_own = _owner(name, str(others[0].alias_or_name))
    keys: list[tuple[Column, exp.Expr]] = []
    tests: list[exp.Expr] = []
    for part in parts_of_and(where.this):
        if (pair := _key(part, table, is_own)) is not None:
            keys.append(pair)
        elif is_own(part) is False:
            tests.append(part)
        else:
            return None
    sets = _sets(body, table, is_own)
    if sets is None or not keys or len({column.name for column, _ in keys}) < len(keys):
        return None
    items = [value.copy() for _, value in keys]
    items += [
        exp.cast(exp.paren(value.copy()), str(column.type), dialect="duckdb")
        for column, value in sets
    ]
    query = exp.select(*(exp.alias_(item, f"s{at}") for at, item in enumerate(items)))
    query = query.from_(others[0].copy())
    if tests:
        query = query.where(*(test.copy() for test in tests))
    if params is not None and len(placeholders(query)) < len(placeholders(body)):
        return None
    kind = UPDATE if isinstance(body, exp.Update) else DELETE
    columns = tuple(column for column, _ in keys)
    return Keyed(query, columns, tuple(column for column, _ in sets), kind, table.time_column)


IsOwn = Callable[[exp.Expr], bool | None]
"""Whether an expression reads the table (True) or not (False); None where there is no telling."""


def _owner(name: str, other: str) -> IsOwn:
    own, source = name.lower(), other.lower()

    def is_own(node: exp.Expr) -> bool | None:
        if node.find(exp.Query, exp.Star):
            return None
        found = {column.table.lower() for column in node.find_all(exp.Column)}
        if own == source or not source or not found <= {own, source}:
            return None
        return own in found

    return is_own


def _key(part: exp.Expr, table: Table, is_own: IsOwn) -> tuple[Column, exp.Expr] | None:
    """A column of the table, and what of the source it must equal."""
    if not isinstance(part, exp.EQ):
        return None
    for own, other in ((part.this, part.expression), (part.expression, part.this)):
        if isinstance(own, exp.Column) and is_own(own) and is_own(other) is False:
            column = table.column(own.name)
            is_of_source = other.find(exp.Column) is not None
            return None if column is None or not is_of_source else (column, other)
    return None


def _sets(
    body: exp.Expression, table: Table, is_own: IsOwn
) -> Sequence[tuple[Column, exp.Expr]] | None:
    """What columns get, by the source alone; None if the time or a key is among them."""
    if not isinstance(body, exp.Update):
        return ()
    fixed = {table.time_column, *table.primary_key}
    found = []
    for name, value in assignments(body.expressions, table, None).items():
        column = table.get_column(name)
        if column.name in fixed or is_own(value) is not False or not is_repeatable(value):
            return None
        found.append((column, value))
    return found
