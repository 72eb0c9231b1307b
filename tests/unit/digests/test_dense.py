"""Dense states against DuckDB's own grouping, over awkward values in random pieces."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest
from digests_kit import TYPES, answer, chunks, columns_of, projector, random_rows, runner

from tidemill.digests import dense
from tidemill.digests.dense import (
    DenseGroup,
    DensePlan,
    NotPackable,
    plan_dense,
)
from tidemill.types import Column, SqlType

_SUMMED = ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "UINTEGER", "DOUBLE", "FLOAT")
_SUMMED_WHEN_PLAIN = ("BIGINT", "UBIGINT", "DECIMAL(4,1)", "DECIMAL(18,2)", "BOOLEAN")
_EXTREME = tuple(kind for kind in TYPES if kind != "VARCHAR")


class Case:
    """A random partial query, its rows in pieces, and the answer over all of them."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, number: int) -> None:
        self.connection = connection
        self.seed = seed = random.Random(number)
        awkward = seed.choice((0.0, 0.0, 0.02, 0.3))
        self.keys = seed.choices(TYPES, k=seed.choice((0, 1, 1, 2, 3)))
        summed = _SUMMED if awkward else (*_SUMMED, *_SUMMED_WHEN_PLAIN)
        self.values = [*seed.choices(summed, k=2), *seed.choices(_EXTREME, k=2)]
        self.types = [*self.keys, *self.values]
        self.rows = random_rows(connection, self.types, seed.choice((0, 30, 3000)), seed, awkward)
        self.where = seed.choice(("", "", " WHERE hash(c0) % 3 > 0"))
        self.pieces = chunks(self.rows, seed)

    def query(self) -> str:
        first = len(self.keys)
        keys = [f"c{at} AS k{at}" for at in range(first)]
        a, b, c, d = (f"c{first + at}" for at in range(4))
        keep = f" FILTER (WHERE hash({a}) % 4 > 0)" if self.seed.random() < 0.4 else ""
        states = [
            "count(*)",
            f"count({c})",
            f"sum({a}){keep}",
            f"sum({b})",
            f"min({c}){keep}",
            f"max({c})",
            f"min({d})",
            f"max({d}){keep}",
            f"count(*){keep}",
        ]
        chosen = self.seed.sample(states, self.seed.randint(1, len(states)))
        items = [*keys, *(f"{state} AS s{at}" for at, state in enumerate(chosen))]
        group = f" GROUP BY {', '.join(str(at + 1) for at in range(first))}" if first else ""
        return f"SELECT {', '.join(items)} FROM tm_rows{self.where}{group}"

    def expect(self, sql: str, rows: pa.Table | None = None) -> list[tuple[object, ...]]:
        return answer(self.connection, sql, {"tm_rows": self.rows if rows is None else rows})

    def plan(self, sql: str) -> DensePlan:
        plan = plan_dense(sql, columns_of(self.connection, sql, self.rows))
        assert plan is not None
        return plan


def held(case: Case, group: DenseGroup, name: str) -> list[tuple[object, ...]]:
    sql = group.select_sql(name, "t")
    return answer(case.connection, sql, {"t": group.table(name)})


@pytest.mark.parametrize("number", range(60))
def test_rows_and_partials_in_any_mix(
    connection: duckdb.DuckDBPyConnection, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(connection, number)
    if number % 3 == 0:
        monkeypatch.setattr(dense, "_ROWS_AT_ONCE", 64)
    sql = case.query()
    group = DenseGroup({"v": case.plan(sql)})
    assert held(case, group, "v") == case.expect(sql, case.rows.slice(0, 0))
    expected = case.expect(sql)
    for piece in case.pieces:
        if case.seed.random() < 0.3:
            group.absorb_partials("v", runner(connection)(sql, {"tm_rows": piece}))
        else:
            group.absorb(piece, projector(connection))
    assert held(case, group, "v") == expected
    assert group.groups("v") == len(expected) - 1
    assert group.nbytes() > 0


@pytest.mark.parametrize("number", range(100, 120))
def test_members_absorb_together_and_alone(
    connection: duckdb.DuckDBPyConnection, number: int
) -> None:
    case = Case(connection, number)
    queries = {name: case.query() for name in ("a", "b", "late")}
    plans = {name: case.plan(sql) for name, sql in queries.items()}
    group = DenseGroup({name: plans[name] for name in ("a", "b")})
    project = projector(connection)
    seen: dict[str, list[pa.Table]] = {name: [] for name in queries}
    for at, piece in enumerate(case.pieces):
        if at == len(case.pieces) // 2:
            group.add("late", plans["late"])
        only = case.seed.choice((None, None, ("a",), (group.names[-1],)))
        if only is not None and case.seed.random() < 0.5:
            partials = runner(connection)(queries[only[0]], {"tm_rows": piece})
            group.absorb_partials(only[0], partials)
        else:
            group.absorb(piece, project, only)
        for name in only or group.names:
            seen[name].append(piece)
    for name in group.names:
        rows = pa.concat_tables([case.rows.slice(0, 0), *seen[name]])
        assert held(case, group, name) == case.expect(queries[name], rows)
        assert group.groups(name) == group.table(name).num_rows


def test_columns_are_taken_without_duckdb(connection: duckdb.DuckDBPyConnection) -> None:
    rows = random_rows(connection, ["INTEGER", "DOUBLE"], 100, random.Random(1))
    sql = 'SELECT t."C0" AS k0, sum(c1) AS s0, count(*) AS s1 FROM tm_rows AS t GROUP BY 1'
    plan = plan_dense(sql, columns_of(connection, sql, rows))
    assert plan is not None

    def never(sql: str, rows: pa.Table) -> pa.Table:
        raise AssertionError(sql)

    group = DenseGroup({"v": plan})
    group.absorb(rows, never)
    expected = answer(connection, sql, {"tm_rows": rows})
    assert answer(connection, plan.select_sql("t"), {"t": group.table("v")}) == expected


def test_arrays_are_handed_over_without_a_copy(connection: duckdb.DuckDBPyConnection) -> None:
    rows = pa.table({"k": pa.array([1, 2, 1]), "v": pa.array([1.0, 2.0, 3.0])})
    sql = "SELECT k AS k0, sum(v) AS s0 FROM tm_rows GROUP BY 1"
    plan = plan_dense(sql, columns_of(connection, sql, rows))
    assert plan is not None
    group = DenseGroup({"v": plan})
    group.absorb(rows, projector(connection))
    table = group.table("v")
    group.absorb(rows, projector(connection))
    assert table.column("s0").to_pylist() == [8.0, 4.0]


_EXTREMES = {
    "BIGINT": ([2**62, 2**62], pa.int64()),
    "UBIGINT": ([2**63], pa.uint64()),
    "DECIMAL(18,2)": ([9999999999999999, 9999999999999999], pa.int64()),
    "HUGEINT": ([2**63 - 1, 1], pa.int64()),
}


@pytest.mark.parametrize("kind", _EXTREMES)
def test_sums_that_may_pass_the_limit_are_refused(
    connection: duckdb.DuckDBPyConnection, kind: str
) -> None:
    values, arrow = _EXTREMES[kind]
    rows = pa.table({"v": pa.array(values, arrow)})
    sql = f"SELECT sum(v::{kind}) AS s0, count(*) AS s1 FROM tm_rows"
    plan = plan_dense(sql, columns_of(connection, sql, rows))
    assert plan is not None
    group = DenseGroup({"v": plan})
    with pytest.raises(NotPackable):
        group.absorb(rows, projector(connection))
    assert group.table("v").column("s1").to_pylist() == [0]  # nothing was absorbed


def test_the_bound_of_a_sum_follows_what_it_became(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Values that cancel each other, many times the limit in total."""
    sql = "SELECT sum(v) AS s0 FROM tm_rows"
    rows = pa.table({"v": pa.array([2**60, -(2**60)])})
    plan = plan_dense(sql, columns_of(connection, sql, rows))
    assert plan is not None
    group = DenseGroup({"v": plan})
    for _ in range(20):
        group.absorb(rows, projector(connection))
    assert group.table("v").column("s0").to_pylist() == [0]


@pytest.mark.parametrize(
    ("sql", "types"),
    [
        ("SELECT k AS k0, list(v) AS s0 FROM tm_rows GROUP BY 1", ("INTEGER", "INTEGER[]")),
        ("SELECT k AS k0, max(v) AS s0 FROM tm_rows GROUP BY 1", ("INTEGER", "VARCHAR")),
        ("SELECT k AS k0, min(v) AS s0 FROM tm_rows GROUP BY 1", ("INTEGER", "DECIMAL(20,2)")),
        ("SELECT k AS k0, count(*) AS s0 FROM tm_rows GROUP BY 1", ("UUID", "BIGINT")),
        ("SELECT sum(DISTINCT v) AS s0 FROM tm_rows", ("HUGEINT",)),
        ("SELECT max(v, 3) AS s0 FROM tm_rows", ("INTEGER[]",)),
        ("SELECT sum(v) + 1 AS s0 FROM tm_rows", ("HUGEINT",)),
        ("SELECT DISTINCT k AS k0 FROM tm_rows", ("INTEGER",)),
        ("SELECT k AS k0 FROM tm_rows LIMIT 3", ("INTEGER",)),
        ("SELECT k AS k0 FROM tm_rows", ("INTEGER",)),
        ("SELECT count(*) AS s0 FROM tm_rows HAVING count(*) > 3", ("BIGINT",)),
    ],
)
def test_other_shapes_have_no_plan(sql: str, types: tuple[str, ...]) -> None:
    names = [word for word in ("k0", "s0") if f"AS {word}" in sql]
    columns = [Column(name, SqlType.parse(kind)) for name, kind in zip(names, types, strict=True)]
    assert plan_dense(sql, columns) is None


def test_bool_and_or_are_extremes(connection: duckdb.DuckDBPyConnection) -> None:
    rows = random_rows(connection, ["TINYINT", "BOOLEAN"], 200, random.Random(2), 0.5)
    sql = "SELECT c0 AS k0, bool_and(c1) AS s0, bool_or(c1) AS s1 FROM tm_rows GROUP BY 1"
    plan = plan_dense(sql, columns_of(connection, sql, rows))
    assert plan is not None
    group = DenseGroup({"v": plan})
    group.absorb(rows, projector(connection))
    expected = answer(connection, sql, {"tm_rows": rows})
    assert answer(connection, plan.select_sql("t"), {"t": group.table("v")}) == expected


def test_a_join_and_a_filter_are_duckdbs(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(
        "CREATE TABLE tm_ref_7 AS SELECT i AS id, 'n' || i AS name FROM range(9) s(i)"
    )
    rows = random_rows(connection, ["TINYINT", "INTEGER"], 500, random.Random(3))
    sql = (
        "SELECT r.name AS k0, sum(c1::BIGINT * 2) FILTER (WHERE c1 > 3) AS s0, count(*) AS s1"
        " FROM tm_rows JOIN tm_ref_7 AS r ON r.id = c0 WHERE c1 <> 7 GROUP BY 1"
    )
    plan = plan_dense(sql, columns_of(connection, sql, rows))
    assert plan is not None
    group = DenseGroup({"v": plan})
    group.absorb(rows, projector(connection))
    expected = answer(connection, sql, {"tm_rows": rows})
    assert answer(connection, plan.select_sql("t"), {"t": group.table("v")}) == expected
