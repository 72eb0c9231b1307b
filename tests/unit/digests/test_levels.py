"""Levels against DuckDB's own grouping, and how often they merge."""

from __future__ import annotations

import random
from collections.abc import Mapping

import duckdb
import pyarrow as pa
import pytest
from digests_kit import answer, chunks, columns_of, projector, random_rows, runner

from tidemill.digests.dense import DenseGroup, plan_dense
from tidemill.digests.levels import FANOUT, LevelState

PARTIAL = (
    "SELECT c0 AS k0, list_sort(list(DISTINCT c1) FILTER (WHERE c1 IS NOT NULL)) AS s0,"
    " sum(c2) AS s1, max(c3) AS s2, count(*) AS s3 FROM tm_rows GROUP BY 1"
)
MERGE = (
    "SELECT k0, list_sort(list_distinct(flatten(list(s0) FILTER (WHERE s0 IS NOT NULL)))) AS s0,"
    " sum(s1) AS s1, max(s2) AS s2, sum(s3)::BIGINT AS s3 FROM tm_partials GROUP BY k0"
)
TYPES = ("TINYINT", "INTEGER", "BIGINT", "VARCHAR")


@pytest.mark.parametrize("number", range(12))
def test_levels_are_duckdbs_grouping(connection: duckdb.DuckDBPyConnection, number: int) -> None:
    seed = random.Random(number)
    rows = random_rows(connection, TYPES, seed.choice((0, 50, 3000)), seed, 0.2)
    run = runner(connection)
    state = LevelState(columns_of(connection, PARTIAL, rows), PARTIAL, MERGE, run)
    done: list[pa.Table] = [rows.slice(0, 0)]
    assert state.groups == 0
    check(connection, state, done[0])
    for piece in chunks(rows, seed):
        if seed.random() < 0.3:
            state.absorb_partials(run(PARTIAL, {"tm_rows": piece}))
        else:
            state.absorb(piece)
        done.append(piece)
        if seed.random() < 0.2:
            check(connection, state, pa.concat_tables(done))
    check(connection, state, pa.concat_tables(done))


def check(connection: duckdb.DuckDBPyConnection, state: LevelState, rows: pa.Table) -> None:
    found = answer(connection, state.select_sql("t"), {"t": state.table()})
    assert found == answer(connection, PARTIAL, {"tm_rows": rows})
    assert state.table() is state.table()
    assert state.groups == state.table().num_rows


def test_a_table_is_merged_once_a_level(connection: duckdb.DuckDBPyConnection) -> None:
    merged: list[int] = []
    plain = runner(connection)

    def run(sql: str, sources: Mapping[str, pa.Table]) -> pa.Table:
        if "tm_partials" in sources:
            merged.append(sources["tm_partials"].num_rows)
        return plain(sql, sources)

    rows = random_rows(connection, TYPES, 1, random.Random(1), 0.0)
    state = LevelState(columns_of(connection, PARTIAL, rows), PARTIAL, MERGE, run)
    for _ in range(FANOUT**2):
        state.absorb(rows)
    assert len(merged) == FANOUT + 1
    assert state.table().column("s3").to_pylist() == [FANOUT**2]


def test_partials_of_another_layout_fit_in(connection: duckdb.DuckDBPyConnection) -> None:
    rows = random_rows(connection, TYPES, 100, random.Random(1))
    columns = columns_of(connection, PARTIAL, rows)
    run = runner(connection)
    state = LevelState(columns, PARTIAL, MERGE, run)
    state.absorb(rows)
    partials = run(PARTIAL, {"tm_rows": rows})
    at = partials.column_names.index("s2")
    state.absorb_partials(partials.set_column(at, "s2", partials.column("s2").cast("large_string")))
    check(connection, state, pa.concat_tables([rows, rows]))


def test_without_keys_there_is_one_group_always(connection: duckdb.DuckDBPyConnection) -> None:
    partial = "SELECT sum(c0) AS s0, count(*) AS s1 FROM tm_rows"
    merge = "SELECT sum(s0) AS s0, coalesce(sum(s1), 0)::BIGINT AS s1 FROM tm_partials"
    rows = random_rows(connection, ["TINYINT"], 10, random.Random(1))
    columns = columns_of(connection, partial, rows)
    levels = LevelState(columns, partial, merge, runner(connection))
    plan = plan_dense(partial, columns)
    assert plan is not None
    dense = DenseGroup({"v": plan})

    def found() -> list[list[tuple[object, ...]]]:
        in_levels = answer(connection, levels.select_sql("t"), {"t": levels.table()})
        return [
            in_levels,
            answer(connection, dense.select_sql("v", "t"), {"t": dense.table("v")}),
        ]

    assert found() == [[("HUGEINT", "BIGINT"), (None, "0")]] * 2
    levels.absorb(rows)
    dense.absorb(rows, projector(connection))
    assert found() == [answer(connection, partial, {"tm_rows": rows})] * 2


def test_what_arrays_cannot_hold_has_no_plan(connection: duckdb.DuckDBPyConnection) -> None:
    rows = random_rows(connection, TYPES, 10, random.Random(1))
    assert plan_dense(PARTIAL, columns_of(connection, PARTIAL, rows)) is None
    partial = "SELECT c0 AS k0, count(*) AS s0 FROM tm_rows GROUP BY 1"
    assert plan_dense(partial, columns_of(connection, partial, rows)) is not None
