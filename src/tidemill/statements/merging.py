"""Merging: MERGE INTO and INSERT … ON CONFLICT of streams.

Both are one thing: rows of a source beside the rows of the table that they match, and of each pair
what becomes of it. They are resolved when they are made, while no other writer is let in: a query
joins the source to the table and gives of every pair its action and the new values; rows that
match nothing may be inserted. All that comes of it is one frame of the log.

INSERT … ON CONFLICT is a MERGE whose source is called ``excluded`` and whose rows match by the
primary key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp

from tidemill.accept.rows import Checked
from tidemill.catalog.model import Table
from tidemill.catalog.store import Catalog
from tidemill.errors import (
    Position,
    RowsRejectedError,
    SqlSyntaxError,
    UnsupportedError,
)
from tidemill.federation.duck import Duck
from tidemill.federation.planner import make_plan
from tidemill.federation.runner import Runner
from tidemill.hot.intake import Accepted, AppendResult
from tidemill.hot.keys import storage
from tidemill.hot.table import HotTable
from tidemill.sql.constants import is_repeatable
from tidemill.sql.names import position_of, table_node
from tidemill.sql.params import Params, own_params, placeholders
from tidemill.sql.permitted import call_name
from tidemill.sql.tokens import words
from tidemill.statements.assigning import assignments, default_of, is_default
from tidemill.statements.resolved import OLD_TIME, by_number, places_of
from tidemill.statements.targets import Target
from tidemill.types import SEQ, Column

UPDATE, DELETE, INSERT, NOTHING = "update", "delete", "insert", "nothing"
_WORDS = {"DELETE": DELETE, "DO NOTHING": NOTHING}
EXCLUDED = "excluded"
_SOURCE = "tm_source"
_PLACE = "tm_place"  # of a row in the source
_ACTION = "tm_action"
_NO_ACTION = -1
_OLD = "tm_old"  # what columns were that say which row it is
TIME_US_MAX = 2**62


@dataclass(frozen=True)
class When:
    """One WHEN: for pairs (``matched``) or for rows of the source alone, what to do with them, and
    the columns' new values, by names in lower case."""

    matched: bool
    condition: exp.Expr | None
    action: str
    values: Mapping[str, exp.Expr]


@dataclass(frozen=True)
class Merge:
    """``target`` and ``source`` are what the statement calls the two."""

    target: str
    source: str
    on: exp.Expr
    whens: tuple[When, ...]
    position: Position


@dataclass(frozen=True)
class Merged:
    """What became of a MERGE."""

    appended: AppendResult
    updated: int
    deleted: int

    @property
    def count(self) -> int:
        return self.appended.stored + self.updated + self.deleted


def merge_of(body: exp.Expr, table: Table, columns: Sequence[str], position: Position) -> Merge:
    """The parts of a MERGE whose source has some columns."""
    target, using = body.this, body.args["using"]
    name = str(target.alias) or table.name
    source = str(using.alias_or_name)
    if not source:
        raise SqlSyntaxError("the source of MERGE needs a name", hint="USING (…) AS s")
    if name.lower() == source.lower():
        raise SqlSyntaxError(
            "the table and the source of MERGE have one name", hint="MERGE INTO t USING u AS s"
        )
    on = body.args.get("on")
    if not on:
        equal = [
            exp.EQ(
                this=exp.column(each.name, table=name, quoted=True),
                expression=exp.column(each.name, table=source, quoted=True),
            )
            for each in body.args.get("using_cond") or ()
        ]
        if not equal:
            raise SqlSyntaxError("MERGE needs ON", hint="ON t.k = s.k", position=position)
        on = exp.and_(*equal, copy=False)
    if body.args.get("returning"):
        raise UnsupportedError(
            "MERGE answers no rows", hint="SELECT them afterwards", position=position
        )
    whens = [
        _when(each, table, name, source, columns, position)
        for each in body.args["whens"].expressions
    ]
    for when in whens:
        _check_chance(when.condition, position)
    return Merge(name, source, on, tuple(whens), position)


def _check_chance(condition: exp.Expr | None, position: Position) -> None:
    """A condition is written beside each column, and must say the same everywhere."""
    if condition is None or is_repeatable(condition):
        return
    for node in condition.find_all(exp.Func):
        if call_name(node) in _CHANCE:
            raise UnsupportedError(
                "conditions of MERGE must not depend on chance",
                hint="take the chance into a column of the source",
                position=position_of(condition) or position,
            )


_CHANCE = words("random rand setseed uuid gen_random_uuid uuidv4 uuidv7 gen_uuid")


def _when(
    node: exp.Expr,
    table: Table,
    target: str,
    source: str,
    columns: Sequence[str],
    position: Position,
) -> When:
    if node.args.get("source") and not node.args["matched"]:
        raise UnsupportedError(
            "WHEN NOT MATCHED BY SOURCE is not offered",
            hint="DELETE FROM t WHERE NOT EXISTS (…) does it",
            position=position,
        )
    condition, then, matched = node.args.get("condition"), node.args["then"], node.args["matched"]
    inner = then.args.get("where")
    if inner is not None:
        parts = [exp.paren(inner.this.copy())]
        parts += [exp.paren(condition.copy())] if condition is not None else []
        condition = exp.and_(*parts, copy=False)
    values: Mapping[str, exp.Expr] = {}
    if isinstance(then, exp.Var) and then.name.upper() in _WORDS:
        action = _WORDS[then.name.upper()]
    elif isinstance(then, exp.Update):
        action, values = UPDATE, _updated(then, table, target, source, columns, position)
    elif isinstance(then, exp.Insert):
        action, values = INSERT, _inserted(then, table, source, columns, position)
    else:
        raise SqlSyntaxError("WHEN … THEN UPDATE, DELETE, INSERT or DO NOTHING", position=position)
    if action in (UPDATE, DELETE) and not matched:
        raise SqlSyntaxError(f"WHEN NOT MATCHED cannot {action.upper()}", position=position)
    if action == INSERT and matched:
        raise SqlSyntaxError("WHEN MATCHED cannot INSERT", position=position)
    return When(matched, condition, action, values)


def _is_star(node: exp.Expr) -> bool:
    return isinstance(node, exp.Star) and not any(node.args.values())


def _updated(
    then: exp.Expr,
    table: Table,
    target: str,
    source: str,
    columns: Sequence[str],
    position: Position,
) -> Mapping[str, exp.Expr]:
    given = then.expressions
    if isinstance(given, exp.Star):
        given = [given]
    if not given or (len(given) == 1 and _is_star(given[0])):
        return _same_names(table, source, columns, position)
    return assignments(given, table, position, target)


def _inserted(
    then: exp.Expr, table: Table, source: str, columns: Sequence[str], position: Position
) -> Mapping[str, exp.Expr]:
    names, values = then.args.get("this"), then.args.get("expression")
    found: dict[str, exp.Expr] = {
        column.name.lower(): default_of(column)
        for column in table.columns
        if column.default is not None
    }
    if not values and (not names or _is_star(names)):
        return {**found, **_same_names(table, source, columns, position)}
    listed = names.expressions if names else [exp.column(c.name) for c in table.columns]
    if not values and len(listed) == 1 and is_default(listed[0]):
        return found  # DEFAULT VALUES
    if not values or not all(isinstance(each, exp.Column) for each in listed):
        raise SqlSyntaxError("INSERT (columns) VALUES (…), or INSERT *", position=position)
    rows = values.expressions if isinstance(values, exp.Tuple) else [values.unnest()]
    if len(rows) != len(listed):
        raise SqlSyntaxError(
            f"INSERT has {len(listed)} columns and {len(rows)} values", position=position
        )
    given: set[str] = set()
    for name, value in zip(listed, rows, strict=True):
        column = table.get_column(name.name, position_of(name) or position)
        if column.name.lower() in given:
            raise SqlSyntaxError(f'column "{column.name}" is given twice', position=position)
        given.add(column.name.lower())
        found[column.name.lower()] = default_of(column) if is_default(value) else value
    return found


def _same_names(
    table: Table, source: str, columns: Sequence[str], position: Position
) -> Mapping[str, exp.Expr]:
    """Every column of the source for the column with its name."""
    return {
        table.get_column(name, position).name.lower(): exp.column(name, table=source, quoted=True)
        for name in columns
    }


def upsert_of(tail: exp.Expr, table: Table, columns: Sequence[str], position: Position) -> Merge:
    """ON CONFLICT of an INSERT that gives some columns."""
    conflict = tail.args.get("conflict")
    if conflict is None or tail.args.get("returning"):
        raise UnsupportedError(
            "INSERT into a streaming table takes ON CONFLICT and nothing more",
            hint="SELECT the rows afterwards",
            position=position,
        )
    if conflict.args.get("duplicate") or conflict.args.get("constraint"):
        raise SqlSyntaxError("ON CONFLICT (columns) DO UPDATE or DO NOTHING", position=position)
    keys = table.primary_key
    wanted = [each.this.name for each in conflict.args.get("conflict_keys") or ()]
    named = {table.get_column(each, position).name for each in wanted}
    if not keys or (named and named != set(keys)) or conflict.args.get("index_predicate"):
        listed = f"primary key is ({', '.join(keys)})" if keys else "table has no primary key"
        raise RowsRejectedError(
            f'ON CONFLICT needs the primary key of table "{table.name}"',
            detail=f"the {listed}",
            hint="ON CONFLICT without columns means the primary key",
            position=position,
        )
    equal = [
        exp.EQ(
            this=exp.column(name, table=table.name, quoted=True),
            expression=exp.column(name, table=EXCLUDED, quoted=True),
        )
        for name in keys
    ]
    values = {
        column.name.lower(): exp.column(column.name, table=EXCLUDED, quoted=True)
        for column in table.columns
    }
    insert = When(False, None, INSERT, values)
    on = exp.and_(*equal, copy=False)
    action = str(conflict.args["action"]).upper()
    if action not in ("DO NOTHING", "DO UPDATE"):
        raise SqlSyntaxError("ON CONFLICT (columns) DO UPDATE or DO NOTHING", position=position)
    if action == "DO NOTHING":
        return Merge(table.name, EXCLUDED, on, (When(True, None, NOTHING, {}), insert), position)
    where = conflict.args.get("where")
    condition = None if where is None else _own(where.this, table)
    _check_chance(condition, position)
    sets = {
        name: _own(value, table)
        for name, value in assignments(conflict.expressions, table, position).items()
    }
    update = When(True, condition, UPDATE, sets)
    return Merge(table.name, EXCLUDED, on, (update, insert), position)


def _own(node: exp.Expr, table: Table) -> exp.Expr:
    """With the table's columns where a name stands alone."""
    found = node.copy()
    for column in list(found.find_all(exp.Column)):
        is_within = column.find_ancestor(exp.Query) is not None
        if not column.table and not is_within and table.column(column.name) is not None:
            column.set("table", exp.to_identifier(table.name, quoted=True))
    return found


@lru_cache(maxsize=512)
def read_tail(tail: str) -> exp.Expression:
    """What stands behind the rows of an INSERT."""
    try:
        found = sqlglot.parse_one(f"INSERT INTO t VALUES (1) {tail}", dialect="duckdb")
    except sqlglot.errors.SqlglotError as error:
        raise SqlSyntaxError("ON CONFLICT (columns) DO UPDATE or DO NOTHING") from error
    assert isinstance(found, exp.Expression)
    if placeholders(found):
        raise UnsupportedError(
            "ON CONFLICT takes no parameters", hint="SET v = excluded.v names what was given"
        )
    return found


class Merger:
    """Carries MERGE out in streams."""

    def __init__(self, catalog: Catalog, runner: Runner, duck: Duck) -> None:
        self._catalog = catalog
        self._runner = runner
        self._duck = duck

    def source(self, using: exp.Expr, with_: exp.Expr | None, params: Params) -> pa.Table:
        """The rows of a source."""
        query = exp.select("*").from_(using.copy())
        if with_ is not None:
            query.set("with_", with_.copy())
        return self._query(query, own_params(query, params), {})

    def merge(
        self,
        merge: Merge,
        target: Target,
        hot: HotTable,
        rows: pa.Table,
        params: Params,
        rejects: Sequence[tuple[str, str]] = (),
        first_counts: bool = False,
    ) -> Merged:
        """Bring rows into a table, which lets no other writer in (``paused``). Of several rows with
        one key that would be inserted the first one counts with ``first_counts``."""
        table = target.table
        query = _pairs(merge, table, rows)
        places = pa.array(np.arange(rows.num_rows, dtype=np.int64))
        frames = {_SOURCE: rows.append_column(_PLACE, places)}
        found = self._query(query, own_params(query, params), frames)
        actions = found.column(_ACTION).to_numpy()
        kinds = np.array([when.action for when in merge.whens] + [NOTHING])[actions]
        inserted = found.filter(pa.array(kinds == INSERT)).sort_by(_PLACE)
        if first_counts and table.primary_key:
            inserted = _first_of_keys(inserted, table)
        checked = _accepted(target, inserted)
        touched = found.filter(pa.array((kinds == UPDATE) | (kinds == DELETE)))
        if touched.num_rows != pc.count_distinct(touched.column(SEQ)).as_py():
            raise RowsRejectedError(
                "a row of the table would be changed a second time; nothing was changed",
                detail="several rows of the source match it",
                hint="let one row of the source match it: GROUP BY or QUALIFY in the source",
                position=merge.position,
            )
        updated = found.filter(pa.array(kinds == UPDATE)).sort_by(SEQ)
        deleted = found.filter(pa.array(kinds == DELETE)).sort_by(SEQ)
        return _store(merge, target, hot, checked, rejects, updated, deleted)

    def _query(
        self,
        query: exp.Select,
        params: Params,
        frames: Mapping[str, pa.Table],
    ) -> pa.Table:
        plan = make_plan(query, self._catalog.snapshot(), params, frames)
        filled = self._runner.fill(plan, params)
        rows, _ = self._duck.query(filled.sql, filled.values, filled.sources, exact=True)
        return rows


def _pairs(merge: Merge, table: Table, rows: pa.Table) -> exp.Select:
    """Every row of the source, with each row of the table that it matches: what becomes of it."""
    is_pair = exp.not_(exp.Is(this=_column(merge.target, SEQ), expression=exp.Null()))
    tests: list[exp.Expr] = []
    for when in merge.whens:
        test: exp.Expr = is_pair.copy() if when.matched else exp.not_(is_pair.copy())
        if when.condition is not None:
            test = exp.and_(test, exp.paren(when.condition.copy()), copy=False)
        tests.append(test)

    def chosen(values: Sequence[exp.Expr | None], otherwise: exp.Expr) -> exp.Case:
        case = exp.Case(default=otherwise)
        for test, value in zip(tests, values, strict=True):
            if value is not None:
                case = case.when(test.copy(), value, copy=False)
        return case

    numbers = [exp.Literal.number(at) for at in range(len(tests))]
    none = exp.Literal.number(_NO_ACTION)
    columns: list[exp.Expr] = [
        exp.alias_(chosen(numbers, none), _ACTION),
        exp.alias_(_column(merge.source, _PLACE), _PLACE),
        exp.alias_(_column(merge.target, table.time_column or ""), OLD_TIME),
        exp.alias_(_column(merge.target, SEQ), SEQ),
    ]
    for name in _fixed(table):
        columns.append(exp.alias_(_column(merge.target, name), _OLD + name, quoted=True))
    for column in table.columns:
        name = column.name.lower()
        own = _column(merge.target, column.name)
        # Branches without values stand there, too: those behind them are for other pairs.
        values = [
            own.copy() if when.action in (DELETE, NOTHING) else _cast(when, name, own, column)
            for when in merge.whens
        ]
        filled = chosen(values, own)
        columns.append(exp.alias_(filled, column.name, quoted=True))
    source = exp.to_table(_SOURCE)
    source.set("alias", exp.TableAlias(this=exp.to_identifier(merge.source, quoted=True)))
    target = table_node(table.name)
    target.set("alias", exp.TableAlias(this=exp.to_identifier(merge.target, quoted=True)))
    on = exp.and_(merge.on.copy(), *_bounds(merge, table, rows), copy=False)
    return exp.select(*columns).from_(source).join(target, on=on, join_type="left")


def _cast(when: When, name: str, own: exp.Expr, column: Column) -> exp.Expr:
    value = when.values.get(name)
    if value is None:
        return own.copy() if when.action == UPDATE else exp.Null()
    return exp.cast(exp.paren(value.copy()), str(column.type), dialect="duckdb")


def _bounds(merge: Merge, table: Table, rows: pa.Table) -> list[exp.Expr]:
    """The span of time of the source's rows, where they match by the time."""
    time = (table.time_column or "").lower()
    for part in merge.on.flatten() if isinstance(merge.on, exp.And) else [merge.on]:
        sides = part.unnest_operands() if isinstance(part, exp.EQ) else ()
        names = {side.table.lower(): side.name for side in sides if isinstance(side, exp.Column)}
        own, other = names.get(merge.target.lower()), names.get(merge.source.lower())
        if own is None or other is None or own.lower() != time:
            continue
        known = {name.lower(): name for name in rows.column_names}
        if other.lower() not in known or not rows.num_rows:
            continue
        column = rows.column(known[other.lower()])
        if column.type != table.get_column(own).type.arrow:
            continue
        ends = pc.min_max(column.cast(pa.int64()))
        is_zoned = table.get_column(own).type.name != "TIMESTAMP"
        make = "make_timestamptz" if is_zoned else "make_timestamp"
        return [
            sign(
                this=_column(merge.target, own),
                expression=exp.Anonymous(
                    this=make, expressions=[exp.cast(exp.Literal.number(us), "BIGINT")]
                ),
            )
            for sign, end in ((exp.GTE, "min"), (exp.LTE, "max"))
            if (us := ends[end].as_py()) is not None and abs(us) < TIME_US_MAX
        ]
    return []


def _column(table: str, name: str) -> exp.Column:
    return exp.column(name, table=table, quoted=True)


def _accepted(target: Target, inserted: pa.Table) -> Checked:
    """Rows to be inserted, in the columns' own types."""
    checked = target.acceptor.accept(inserted.select([c.name for c in target.table.columns]))
    if checked.rejects and target.table.settings["rejected"] != "divert":
        raise RowsRejectedError(
            f"{len(checked.rejects)} of the new rows do not fit; nothing was changed",
            detail=f"for example: {checked.rejects[0][1]}",
        )
    return checked


def _store(
    merge: Merge,
    target: Target,
    hot: HotTable,
    checked: Checked,
    rejects: Sequence[tuple[str, str]],
    updated: pa.Table,
    deleted: pa.Table,
) -> Merged:
    table = target.table
    names = {name for when in merge.whens if when.action == UPDATE for name in when.values}
    changed = tuple(column for column in table.columns if column.name.lower() in names)
    for column in changed:
        if not column.nullable and updated.column(column.name).null_count:
            raise RowsRejectedError(
                f'"{column.name}" of table "{table.name}" must not be NULL; nothing was changed',
                position=merge.position,
            )
    # With another time or another key the old row goes and a new one comes.
    is_moving = _differ(updated, [name for name in _fixed(table) if name.lower() in names])
    moving, staying = updated.filter(is_moving), updated.filter(pc.invert(is_moving))
    again = _accepted(target, moving)
    if again.rejects:
        raise RowsRejectedError(
            f"{len(again.rejects)} of the new rows do not fit; nothing was changed",
            detail=f"for example: {again.rejects[0][1]}",
            position=merge.position,
        )
    gone = pa.concat_tables([deleted, moving])
    rest = tuple(column for column in changed if column.name not in _fixed(table))
    named = by_number(table, staying, rest) if staying.num_rows and rest else None
    accepted = Accepted(checked.batches, (*checked.rejects, *rejects), moved=tuple(again.batches))
    counts = updated.num_rows, deleted.num_rows
    if not accepted.rows and named is None and not gone.num_rows:
        return Merged(AppendResult(0), *counts)
    appended = hot.changing.replace(accepted, places_of(gone), named)
    stored = appended.stored - moving.num_rows
    return Merged(AppendResult(appended.rows_in, stored=stored), *counts)


def _fixed(table: Table) -> list[str]:
    """The columns that say where a row stands: a row with others is another one."""
    return list(dict.fromkeys([table.time_column or "", *table.primary_key]))


def _differ(rows: pa.Table, names: Sequence[str]) -> pa.Array:
    """Which rows have other values of some columns than they had."""
    found = pa.array(np.zeros(rows.num_rows, dtype=bool))
    for name in names:
        new, old = (storage(rows.column(each).combine_chunks()) for each in (name, _OLD + name))
        found = pc.or_(found, pc.fill_null(pc.not_equal(new, old.cast(new.type)), True))
    return found


def _first_of_keys(rows: pa.Table, table: Table) -> pa.Table:
    """Of the rows with one key the first."""
    if not rows.num_rows:
        return rows
    places = pa.array(np.arange(rows.num_rows, dtype=np.int64))
    keys = list(table.primary_key)
    plain = [storage(rows.column(key).combine_chunks()) for key in keys]
    numbered = pa.table(plain, names=keys).append_column(_PLACE, places)
    first = numbered.group_by(keys).aggregate([(_PLACE, "min")]).column(f"{_PLACE}_min")
    return rows.take(first.combine_chunks().sort())
