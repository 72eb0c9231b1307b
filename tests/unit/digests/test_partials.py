"""Partials of a digest: made by partition, exact in files, merged; the digest's definition."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from tidemill.catalog.model import FILE_DIGEST, Table
from tidemill.digests.definition import Digest, definition_text
from tidemill.digests.partials import (
    Origin,
    cut_rows,
    merge_partials,
    partials_of,
    partials_of_scan,
    read_partials,
    write_file,
    write_partials,
)
from tidemill.digests.progress import Progress
from tidemill.errors import DurabilityError
from tidemill.history.partitions import US_MAX, US_MIN
from tidemill.history.storage import Storage
from tidemill.sql.decompose.exported import LAYOUTS
from tidemill.sql.maintain.plan import DigestParts, Pane
from tidemill.types import Column, SqlType

HOUR_US = 3_600_000_000
STREAM = Table(
    7,
    "t",
    "streaming",
    (
        Column("ts", SqlType("TIMESTAMP"), nullable=False),
        Column("k", SqlType("BIGINT")),
        Column('a "b"', SqlType("DOUBLE")),
    ),
    (),
    "TS",
    None,
    {"partition": "1 hour"},
    (),
    0,
)
PARTIAL = "SELECT k AS k0, count(*) AS s0, sum(k) AS s1 FROM tm_rows GROUP BY 1"
MERGE = "SELECT k0, CAST(sum(s0) AS BIGINT) AS s0, sum(s1) AS s1 FROM tm_partials GROUP BY 1"
TYPES = ("BIGINT", "BIGINT", "HUGEINT")


def make_digest(
    partial: str = PARTIAL,
    merge: str = MERGE,
    types: Sequence[str] = TYPES,
    pane: Pane | None = None,
) -> Digest:
    names = ("k0", *(f"s{at}" for at in range(len(types) - 1)))
    parts = DigestParts(
        "t",
        partial,
        merge,
        names[:1],
        names[1:],
        pane,
        None,
        False,
        names[:1],
        (),
        "_seq" in partial,
        None,
        partial,
        types=tuple(types),
    )
    columns = tuple(Column(n, SqlType(t)) for n, t in zip(names, types, strict=True))
    text = definition_text(parts, STREAM)
    table = replace(STREAM, table_id=9, name="v$digest0", kind="digest", columns=columns)
    return Digest.of(replace(table, time_column=None, definition=text, source_id=7))


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


@pytest.fixture
def duck(storage: Storage) -> Iterator[duckdb.DuckDBPyConnection]:
    with storage.connect() as connection:
        yield connection


def rows_of(*rows: tuple[int, int | None], first_seq: int = 1) -> pa.RecordBatch:
    times = pa.array([at for at, _ in rows], pa.int64()).view(pa.timestamp("us"))
    keys = pa.array([key for _, key in rows], pa.int64())
    others = pa.array([0.5] * len(rows))
    seqs = pa.array(range(first_seq, first_seq + len(rows)), pa.int64())
    names = ["ts", "k", 'a "b"', "_seq"]
    return pa.RecordBatch.from_arrays([times, keys, others, seqs], names)


def shown(duck: duckdb.DuckDBPyConnection, rows: pa.Table) -> list[tuple[str, ...]]:
    """The rows in order, each value as text that is its own."""
    tm_shown = rows  # noqa: F841  (DuckDB finds it by name)
    given = ", ".join(f"typeof({name}), CAST({name} AS VARCHAR)" for name in rows.column_names)
    return sorted(duck.sql(f"SELECT {given} FROM tm_shown").fetchall(), key=repr)


# -- the definition


def test_a_digest_comes_back_from_its_table() -> None:
    pane = Pane("k0", 1_000, "$tidemill_now - INTERVAL 1 HOUR", None, low_open=True)
    digest = make_digest(pane=pane)
    assert (digest.time_column, digest.partition_us) == ("ts", HOUR_US)
    assert (digest.table_id, digest.source_id, digest.name) == (9, 7, "v$digest0")
    assert digest.parts.pane == pane
    assert [column.name for column in digest.columns] == ["k0", "s0", "s1"]
    assert pickle.loads(pickle.dumps(digest)) == digest


@pytest.mark.parametrize(
    ("partial", "needed"),
    [
        ("SELECT K AS k0, count(*) AS s0 FROM tm_rows GROUP BY 1", ["k"]),
        ('SELECT max("a ""b""" * 2) AS k0 FROM tm_rows', ["k", 'a "b"']),
        ("SELECT k AS k0 FROM (SELECT * FROM tm_rows) GROUP BY 1", ["ts", "k", 'a "b"']),
        ("SELECT x.* FROM tm_rows AS x", ["ts", "k", 'a "b"']),
        ('SELECT x.k AS k0 FROM "tm_rows" AS x WHERE "x".k > 1', ["k"]),
        ("SELECT tm_rows.k AS k0 FROM tm_rows", ["k"]),
        ("SELECT max(x) AS k0 FROM tm_rows AS x", ["ts", "k", 'a "b"']),
        ('SELECT max("tm_rows") AS k0 FROM "tm_rows"', ["ts", "k", 'a "b"']),
        ("SELECT count( *) AS k0, max(COLUMNS(*)) FROM tm_rows", ["ts", "k", 'a "b"']),
    ],
)
def test_the_columns_that_a_partial_may_read(partial: str, needed: list[str]) -> None:
    names = [column.name for column in STREAM.columns]
    assert make_digest(partial).needed(names) == needed


def test_progress() -> None:
    nothing, some, all_of_it = Progress.nothing(), Progress(50, ((1, 3),)), Progress()
    for progress in (nothing, some, all_of_it):
        assert Progress.read(progress.text) == progress
    assert [nothing.covers(at) for at in (US_MIN, 0, US_MAX)] == [False] * 3
    assert [some.covers(at) for at in (49, 50, 51)] == [False, True, True]
    assert [all_of_it.covers(at) for at in (US_MIN, 0, US_MAX)] == [True] * 3
    assert (nothing.upper_us, some.upper_us) == (None, 50)
    assert some.lowered(20) == Progress(20, ((1, 3),))
    assert some.lowered(None) == all_of_it
    assert some.with_sealed([(7, 9)]) == Progress(50, ((1, 3), (7, 9)))
    assert all_of_it.with_sealed([(7, 9)]) == all_of_it


# -- rows to partials


def test_rows_are_cut_by_partition() -> None:
    batches = [
        rows_of((HOUR_US + 1, 1), (0, 2)),
        rows_of((-1, 3), (HOUR_US, 4), (HOUR_US - 1, 5), first_seq=3),
    ]
    cuts = list(cut_rows(batches, "ts", HOUR_US))
    assert [(cut.lo_us // HOUR_US, cut.hi_us // HOUR_US) for cut in cuts] == [
        (-1, 0),
        (0, 1),
        (1, 2),
    ]
    assert [cut.rows["k"].to_pylist() for cut in cuts] == [[3], [2, 5], [1, 4]]
    assert list(cut_rows([rows_of()], "ts", HOUR_US)) == []
    assert list(cut_rows([], "ts", HOUR_US)) == []


def test_infinite_times_have_partitions(storage: Storage, duck: duckdb.DuckDBPyConnection) -> None:
    digest = make_digest()
    cuts = list(cut_rows([rows_of((US_MAX, 1), (-US_MAX, 1), (0, 1))], "ts", HOUR_US))
    files = write_partials(storage, duck, digest, cuts, "move", "job")
    assert len(files) == 3
    assert {file.time_max_us for file in files} == {US_MAX, -US_MAX, 0}
    merged = merge_partials(duck, digest, [read_partials(storage, duck, digest, files)])
    assert merged.to_pydict() == {"k0": [1], "s0": [3], "s1": merged["s1"].to_pylist()}


def test_files_say_what_they_hold(storage: Storage, duck: duckdb.DuckDBPyConnection) -> None:
    digest = make_digest()
    batch = rows_of((0, 1), (HOUR_US + 7, 2), (5, 2), (6, 1), first_seq=10)
    files = write_partials(
        storage, duck, digest, list(cut_rows([batch], "ts", HOUR_US)), "seal", "job-0"
    )
    assert [file.path for file in files] == [
        "9/19700101T000000Z/job-0-0.parquet",
        "9/19700101T010000Z/job-0-1.parquet",
    ]
    first = files[0]
    assert (first.kind, first.origin, first.rows, first.row_groups) == (FILE_DIGEST, "seal", 2, 1)
    assert (first.lo_us, first.hi_us) == (0, HOUR_US)
    assert (first.time_min_us, first.time_max_us) == (0, 6)
    assert (first.seq_min, first.seq_max) == (10, 13)
    assert first.bytes == Path(storage.place(first.path)).stat().st_size


def test_partials_of_parts_merged_are_those_of_all(
    storage: Storage, duck: duckdb.DuckDBPyConnection
) -> None:
    digest = make_digest()
    batches = [
        rows_of((0, 1), (1, None), (HOUR_US, 2**63 - 1)),
        rows_of((2, 1), (3, 2**63 - 1), (HOUR_US, None), first_seq=4),
    ]
    files = [
        file
        for number, batch in enumerate(batches)
        for file in write_partials(
            storage, duck, digest, list(cut_rows([batch], "ts", HOUR_US)), "move", f"j{number}"
        )
    ]
    held = read_partials(storage, duck, digest, files)
    assert held.num_rows == 6
    merged = merge_partials(duck, digest, [held, partials_of(duck, digest, [rows_of((9, 5))])])
    whole = partials_of(duck, digest, [*batches, rows_of((9, 5))])
    assert merged.schema == whole.schema
    assert shown(duck, merged) == shown(duck, whole)


def test_no_files_no_partials(storage: Storage, duck: duckdb.DuckDBPyConnection) -> None:
    digest = make_digest()
    held = read_partials(storage, duck, digest, [])
    assert held.schema == partials_of(duck, digest, [rows_of((0, 1))]).schema
    assert held.num_rows == 0
    assert write_partials(storage, duck, digest, [], "move", "job") == []


def test_numbers_of_rows_are_there_if_asked_for(duck: duckdb.DuckDBPyConnection) -> None:
    newest = "SELECT k AS k0, max(_seq) AS s0 FROM tm_rows GROUP BY 1"
    digest = make_digest(newest, newest, ("BIGINT", "BIGINT"))
    assert partials_of(duck, digest, [rows_of((0, 1), (0, 1))]).to_pydict() == {
        "k0": [1],
        "s0": [2],
    }
    wrong = replace(digest, parts=replace(digest.parts, with_seq=False))
    with pytest.raises(duckdb.BinderException):
        partials_of(duck, wrong, [rows_of((0, 1))])


@pytest.mark.parametrize("with_query", ["", "WITH few AS (SELECT * FROM tm_rows WHERE k < 2) "])
def test_a_scan_gives_the_partials_of_its_rows(
    duck: duckdb.DuckDBPyConnection, with_query: str
) -> None:
    source = "few" if with_query else "tm_rows"
    query = f"{with_query}SELECT k AS k0, count(*) AS s0 FROM {source} WHERE k = 1 GROUP BY 1"
    digest = make_digest(query, query, ("BIGINT", "BIGINT"))
    rows = rows_of((0, 1), (0, 2), (0, 1))
    expected = {"k0": [1], "s0": [2]}
    assert partials_of(duck, digest, [rows]).to_pydict() == expected
    duck.register("given", pa.Table.from_batches([rows]))
    assert partials_of_scan(duck, digest, "SELECT ts, k FROM given").to_pydict() == expected


# -- types


VALUES: dict[str, tuple[str, ...]] = {
    "BOOLEAN": ("true", "false"),
    "TINYINT": ("-128", "127"),
    "UBIGINT": ("18446744073709551615",),
    "BIGINT": ("-9223372036854775808", "9223372036854775807"),
    "HUGEINT": (
        "'-170141183460469231731687303715884105728'",
        "'170141183460469231731687303715884105727'",
        "-1",
        "0",
    ),
    "UHUGEINT": ("'340282366920938463463374607431768211455'", "0"),
    "FLOAT": ("'nan'", "'-inf'", "-0.0", "1e-45"),
    "DOUBLE": ("'nan'", "'inf'", "-0.0", "5e-324", "0.1"),
    "DECIMAL(38,9)": ("99999999999999999999999999999.999999999", "-0.000000001"),
    "DECIMAL(38,0)": ("99999999999999999999999999999999999999",),
    "DECIMAL(4,1)": ("-999.9",),
    "VARCHAR": ("''", "'a'", "chr(0) || 'ä'", "repeat('x', 1000)"),
    "BLOB": ("''::BLOB", "'\\x00\\xFF'::BLOB"),
    "BIT": ("'0101'", "'1'"),
    "UUID": ("'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'00000000-0000-0000-0000-000000000000'"),
    "DATE": ("'infinity'", "'0001-01-01'"),
    "TIME": ("'23:59:59.999999'",),
    "TIME WITH TIME ZONE": ("'12:00:00.000001+03:30'",),
    "TIMESTAMP": ("'infinity'", "'-infinity'", "'2024-02-29 12:00:00.000001'"),
    "TIMESTAMP WITH TIME ZONE": ("'infinity'", "'2024-02-29 12:00:00.000001+02'"),
    "TIMESTAMP_NS": ("'2024-02-29 12:00:00.000000001'",),
    "INTERVAL": ("'-1 month 3 days -00:00:00.000001'", "'178000000 years'"),
    "JSON": ("'{\"a\": [1, null]}'",),
    "BIGNUM": ("'-123456789012345678901234567890123456789012345678901234567890'",),
    "BIGINT[]": ("[]", "[1, NULL]"),
    "HUGEINT[]": ("['-170141183460469231731687303715884105728'::HUGEINT, NULL]",),
    "VARCHAR[3]": ("['a', NULL, '']",),
    "INTERVAL[]": ("[INTERVAL '-1 day']",),
    "STRUCT(a BIGINT, b VARCHAR)": ("{'a': 1, 'b': NULL}",),
    "STRUCT(t HUGEINT, u TIMESTAMP WITH TIME ZONE)[]": (
        "[{'t': 1, 'u': '2024-01-01'::TIMESTAMPTZ}, NULL]",
        "[]",
    ),
    'STRUCT("a ""b""" INTERVAL, c UHUGEINT[2])[]': ("[{'a \"b\"': INTERVAL 1 DAY, 'c': [1, 2]}]",),
    "MAP(VARCHAR, HUGEINT)": ("MAP {'a': 1, 'b': NULL}", "MAP {}"),
    "MAP(BIGINT, STRUCT(n DOUBLE, m BIT)[])": ("MAP {1: [{'n': 'nan', 'm': '01'}]}",),
    "VARCHAR[][]": ("[['a'], [], NULL]",),
    **{layout: ("NULL",) for _, layout in LAYOUTS.values()},
}


@pytest.mark.parametrize("kind", VALUES)
def test_every_type_comes_back(
    storage: Storage, duck: duckdb.DuckDBPyConnection, kind: str
) -> None:
    """The same values, with the same types in DuckDB and in Arrow, with and without NULLs."""
    digest = make_digest(types=("BIGINT", kind))
    columns = f"SELECT n AS k0, CAST(v AS {kind}) AS s0"
    for nulls in ((), ("NULL",), ("NULL",) * 3):
        values = [*(f"CAST({value} AS {kind})" for value in VALUES[kind]), *nulls]
        rows = " UNION ALL ".join(
            f"SELECT CAST({at} AS BIGINT) AS n, CAST({value} AS {kind}) AS v"
            for at, value in enumerate(values)
        )
        given = duck.sql(f"{columns} FROM ({rows})").to_arrow_table()
        origin = Origin("move", 0, HOUR_US, (0, 1), (1, 2))
        label = f"job{len(nulls)}"
        (file,) = write_file(storage, duck, digest, given, origin, label)
        held = read_partials(storage, duck, digest, [file])
        assert held.schema == given.schema
        assert shown(duck, held) == shown(duck, given)


def test_the_states_of_aggregates_come_back(
    storage: Storage, duck: duckdb.DuckDBPyConnection
) -> None:
    """Exported states, with values in them, from several files and merged."""
    name, (arity, layout) = "stddev", LAYOUTS["stddev"]
    assert arity == 1
    state = f"CAST((stddev(k) EXPORT_STATE) AS {layout})"
    merge = f"combine_aggr(to_aggregate_state(s0, '{name}', ['DOUBLE']))"
    digest = make_digest(
        f"SELECT k % 2 AS k0, {state} AS s0 FROM tm_rows GROUP BY 1",
        f"SELECT k0, CAST({merge} AS {layout}) AS s0 FROM tm_partials GROUP BY 1",
        ("BIGINT", layout),
    )
    batches = [rows_of(*((at, at) for at in range(start, start + 10))) for start in (0, 10)]
    files = [
        file
        for at, batch in enumerate(batches)
        for file in write_partials(
            storage, duck, digest, list(cut_rows([batch], "ts", HOUR_US)), "move", f"j{at}"
        )
    ]
    merged = merge_partials(duck, digest, [read_partials(storage, duck, digest, files)])
    whole = partials_of(duck, digest, batches)
    found = {row["k0"]: row["s0"] for row in merged.to_pylist()}
    for row in whole.to_pylist():
        assert found[row["k0"]] == pytest.approx(row["s0"])


def test_a_disk_that_fails_is_told_of(storage: Storage, duck: duckdb.DuckDBPyConnection) -> None:
    Path(storage.root, "9").write_text("not a folder")
    cuts = list(cut_rows([rows_of((0, 1))], "ts", HOUR_US))
    with pytest.raises(DurabilityError, match="could not be written"):
        write_partials(storage, duck, make_digest(), cuts, "move", "job")
