"""Changes as SQL, as lines to join, and on Arrow: all give what DuckDB's own UPDATE gives."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tidemill.changes import rewriting
from tidemill.changes.model import Change, ChangeForm, pack, span_of, unpack
from tidemill.changes.patching import patched
from tidemill.changes.resolving import resolve
from tidemill.changes.runs import runs_of
from tidemill.changes.values import Named, registered
from tidemill.types import SEQ, Column, SqlType

BASE = dt.datetime(2024, 3, 1)
BASE_US = 1_709_251_200_000_000


@dataclass(frozen=True)
class Shape:
    columns: tuple[Column, ...]


TABLE = Shape(
    tuple(
        Column(name, SqlType(kind))
        for name, kind in (("ts", "TIMESTAMP"), ("k", "INTEGER"), ("v", "BIGINT"), ("s", "VARCHAR"))
    )
)
NAMES = ["ts", "k", "v", "s"]


def rows(rng: random.Random, count: int) -> pa.Table:
    values = [
        (
            BASE + dt.timedelta(seconds=rng.randrange(50)),
            rng.choice((None, *range(5))),
            rng.choice((None, *range(6))),
            rng.choice((None, "a", "b", "it's")),
        )
        for _ in range(count)
    ]
    columns = list(zip(*values, strict=True))
    arrays = [
        pa.array(list(c), col.type.arrow) for c, col in zip(columns, TABLE.columns, strict=True)
    ]
    seqs = pa.array(range(1, count + 1), pa.int64())
    return pa.table([*arrays, seqs], names=[*NAMES, SEQ])


def a_change(rng: random.Random, number: int, count: int) -> tuple[Change, str]:
    """A change, and what DuckDB calls it."""
    upto = rng.randrange(1, count + 1)
    kind = rng.randrange(8)
    k, v = rng.randrange(5), rng.choice((None, *range(6)))
    s = rng.choice(("c", "o'clock", None))
    at = BASE_US + 1_000_000 * rng.randrange(50)
    low, high = sorted((at, BASE_US + 1_000_000 * rng.randrange(50)))
    test = f"{SEQ} <= {upto}"
    if kind == 0:
        form = ChangeForm(
            "update", ("INTEGER", "BIGINT"), (("k", 0),), (), (("v", (1,)),), frozenset({"k"})
        )
        return change(
            number, upto, form, (k, v)
        ), f"UPDATE t SET v = {null(v)} WHERE k = {k} AND {test}"
    if kind == 1:
        form = ChangeForm(
            "update",
            ("TIMESTAMP", "TIMESTAMP", "VARCHAR"),
            (),
            ('r."ts" >= ', 0, ' AND r."ts" <= ', 1),
            (("s", (2,)),),
            frozenset({"ts"}),
            ((">=", 0), ("<=", 1)),
        )
        text = "NULL" if s is None else "'" + s.replace("'", "''") + "'"
        where = f"ts BETWEEN make_timestamp({low}) AND make_timestamp({high})"
        return change(
            number, upto, form, (low, high, s)
        ), f"UPDATE t SET s = {text} WHERE {where} AND {test}"
    if kind == 2:
        form = ChangeForm("delete", ("BIGINT",), (("v", 0),), (), (), frozenset({"v"}))
        return change(number, upto, form, (v,)), f"DELETE FROM t WHERE v = {null(v)} AND {test}"
    if kind == 3:
        form = ChangeForm(
            "delete", ("TIMESTAMP",), (), ('r."ts" < ', 0), (), frozenset({"ts"}), (("<", 0),), True
        )
        low = BASE_US + 1_000_000 * rng.randrange(8)
        return change(
            number, upto, form, (low,)
        ), f"DELETE FROM t WHERE ts < make_timestamp({low}) AND {test}"
    if kind == 4:
        form = ChangeForm(
            "update",
            (),
            (),
            ('(r."v" IS NULL OR r."s" = \'a\')',),
            (("v", ('r."k"',)),),
            frozenset({"v", "s", "k"}),
        )
        return change(
            number, upto, form, ()
        ), f"UPDATE t SET v = k WHERE (v IS NULL OR s = 'a') AND {test}"
    if kind == 5:
        form = ChangeForm(
            "update", ("BIGINT",), (), (), (("v", (0,)), ("s", ('r."s"',))), frozenset({"s"})
        )
        return change(number, upto, form, (v,)), f"UPDATE t SET v = {null(v)} WHERE {test}"
    if kind == 6:
        form = ChangeForm(
            "update", ("INTEGER", "INTEGER"), (("k", 0),), (), (("k", (1,)),), frozenset({"k"})
        )
        new = rng.randrange(5)
        return change(
            number, upto, form, (k, new)
        ), f"UPDATE t SET k = {new} WHERE k = {k} AND {test}"
    seqs = rng.sample(range(1, count + 1), 3)
    form = ChangeForm("update", ("BIGINT", "BIGINT"), ((SEQ, 0),), (), (("v", (1,)),))
    batch = pa.record_batch(
        [pa.array(seqs, pa.int64()), pa.array([7, 8, None], pa.int64())], schema=form.schema
    )
    made = Change(number, count, 0, form, batch=batch)
    pairs = ", ".join(f"({q}, {null(x)})" for q, x in zip(seqs, (7, 8, None), strict=True))
    return made, f"UPDATE t SET v = c.x FROM (VALUES {pairs}) AS c(q, x) WHERE {SEQ} = c.q"


def null(value: Any) -> str:
    return "NULL" if value is None else str(value)


def change(number: int, upto: int, form: ChangeForm, row: tuple[Any, ...]) -> Change:
    low, high = span_of(form, [row])
    return Change(number, upto, 0, form, (row,), None, low, high)


def by_duckdb(table: pa.Table, statements: Sequence[str]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.register("tm_source", table)
        connection.execute("CREATE TABLE t AS FROM tm_source")
        for text in statements:
            connection.execute(text)
        return connection.execute(f"FROM t ORDER BY {SEQ}").fetchall()


def by_sql(table: pa.Table, changes: Sequence[Change]) -> list[tuple[Any, ...]]:
    def source(names: Sequence[str], low_us: int | None, high_us: int | None) -> str:
        tests = []
        if low_us is not None and low_us > -(2**62):
            tests.append(f"ts >= make_timestamp({low_us})")
        if high_us is not None and high_us < 2**62:
            tests.append(f"ts <= make_timestamp({high_us})")
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        return f"SELECT {', '.join([*names, SEQ])} FROM tm_source{where}"

    named = Named()
    text = rewriting.rewritten(source, TABLE, NAMES, changes, table.num_rows, named)
    with duckdb.connect() as connection, registered(connection, named):
        connection.register("tm_source", table)
        shown = ", ".join([*NAMES, SEQ])
        return connection.execute(f"SELECT {shown} FROM ({text}) ORDER BY {SEQ}").fetchall()


def by_arrow(table: pa.Table, changes: Sequence[Change]) -> list[tuple[Any, ...]]:
    touched = resolve(TABLE, table, changes)
    (batch,) = table.combine_chunks().to_batches()
    seqs = batch.column(SEQ).to_numpy()
    left = patched(batch, seqs, touched).filter(pa.array(~np.isin(seqs, touched.deleted)))
    return [tuple(row.values()) for row in left.to_pylist()]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("folded_max", [0, 3, 1_000])
def test_all_ways_agree(seed: int, folded_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewriting, "FOLDED_MAX", folded_max)
    rng = random.Random(seed)
    table = rows(rng, 30)
    pairs = [a_change(rng, number, 30) for number in range(1, rng.choice((2, 6, 14)))]
    changes = [made for made, _ in pairs]
    wanted = by_duckdb(table, [text for _, text in pairs])
    assert by_sql(table, changes) == wanted
    assert by_arrow(table, changes) == wanted
    assert by_arrow(table, unpack(pack(changes))) == wanted


def test_corrections_of_one_column_are_one_run() -> None:
    form = ChangeForm(
        "update", ("INTEGER", "BIGINT"), (("k", 0),), (), (("v", (1,)),), frozenset("k")
    )
    changes = [change(number, 9, form, (number % 7, number)) for number in range(1, 1_000)]
    assert len(runs_of(changes)) == 1


def test_what_builds_upon_others_waits_for_a_run_of_its_own() -> None:
    form = ChangeForm(
        "update", ("INTEGER",), (("k", 0),), (), (("v", ('r."v" + 1',)),), frozenset({"k", "v"})
    )
    other_keys = [change(number, 9, form, (number,)) for number in range(1, 50)]
    assert len(runs_of(other_keys)) == 1
    same_key = [change(number, 9, form, (4,)) for number in range(1, 5)]
    assert len(runs_of(same_key)) == 4


@pytest.mark.parametrize("folded_max", [0, 100])
def test_the_last_value_counts_whatever_its_form(
    folded_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewriting, "FOLDED_MAX", folded_max)
    both = ChangeForm("update", ("BIGINT",), (), (), (("v", (0,)), ("s", ("'x'",))))
    one = ChangeForm("update", ("BIGINT",), (), (), (("v", (0,)),))
    changes = [change(n, 9, form, (n,)) for n, form in enumerate((both, one, both, one, both), 1)]
    table = rows(random.Random(1), 9)
    assert {(row[2], row[3]) for row in by_sql(table, changes)} == {(5, "x")}
    assert {(row[2], row[3]) for row in by_arrow(table, changes)} == {(5, "x")}
