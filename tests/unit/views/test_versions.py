"""Versions of reference tables: each is what the table was, whole or as differences, and after a
restart; rows are divided by the version that they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tidemill.federation.duck import Duck
from tidemill.federation.references import place_of
from tidemill.views.versions import FOLDER, Span, Versions

TABLE, DIGEST = 7, 70
VALUES = {
    "INTEGER": ("1", "2"),
    "HUGEINT": ("170141183460469231731687303715884105727", "-1"),
    "UHUGEINT": ("340282366920938463463374607431768211455", "1"),
    "DECIMAL(38,2)": ("-999999999999.25", "0.01"),
    "DOUBLE": ("'nan'", "'-inf'"),
    "UUID": ("'550e8400-e29b-41d4-a716-446655440000'", "uuid()"),
    "VARCHAR": ("'ä'", "''"),
    "BLOB": ("'\\x00'::BLOB", "''::BLOB"),
    "BIT": ("'0101'", "'1'"),
    "TIMESTAMPTZ": ("'2024-01-01'", "'infinity'"),
    "TIMESTAMP_NS": ("'2024-01-01 00:00:00.123456789'", "'1970-01-01'"),
    "TIME": ("'24:00:00'", "'00:00:01'"),
    "INTERVAL": ("'1 month'", "'30 days'"),
    "INTEGER[]": ("[1, NULL]", "[]"),
    "STRUCT(a INTEGER, b VARCHAR)": ("{'a': 1, 'b': NULL}", "{'a': NULL, 'b': 'x'}"),
    "MAP(VARCHAR, INTEGER)": ("MAP {'a': 1}", "MAP {}"),
    "JSON": ("'{\"a\": 1}'", "'[]'"),
    "BOOLEAN": ("true", "false"),
    "DATE": ("'2024-02-29'", "'infinity'"),
}


@pytest.fixture
def duck(tmp_path: Path) -> Iterator[Duck]:
    made = Duck(tmp_path / "reference.duckdb", 1, 1 << 30)
    yield made
    made.close()


def opened(duck: Duck) -> Versions:
    versions = Versions(duck)
    versions.open({DIGEST})
    return versions


def span(upto_seq: int, newest_us: int = 100, digest_id: int = DIGEST) -> Span:
    return Span(digest_id, 0, upto_seq, newest_us)


def content(duck: Duck, rows: pa.Table | None = None) -> list[object]:
    source = "tm_rows" if rows is not None else place_of(TABLE)
    sources = {} if rows is None else {"tm_rows": rows}
    select = f"SELECT k, x::VARCHAR, typeof(x) FROM {source} ORDER BY ALL"
    return duck.query(select, {}, sources)[0].to_pylist()


@pytest.mark.parametrize("kind", VALUES)
def test_a_version_is_what_the_table_was(kind: str, duck: Duck) -> None:
    first, second = VALUES[kind]
    place = place_of(TABLE)
    duck.execute(f"CREATE TABLE {place} (k INTEGER, x {kind})")
    changes = (
        f"INSERT INTO {place} VALUES (1, {first}), (1, {first}), (2, {second}), (3, NULL)",
        f"UPDATE {place} SET x = {second} WHERE k = 1",
        f"INSERT INTO {place} VALUES (1, {first}), (3, NULL)",
        f"DELETE FROM {place} WHERE k = 3",
        f"TRUNCATE {place}",
    )
    versions, wanted = opened(duck), []
    for number, change in enumerate(changes, 1):
        wanted.append(content(duck))
        versions.keep(TABLE, [span(10 * number)], {DIGEST})
        duck.execute(change)
    for each in (versions, opened(duck)):
        seqs = np.array([10 * number - 3 for number in range(1, len(changes) + 2)])
        parts = each.divide(DIGEST, (TABLE,), seqs)
        found = {int(place): part.tables.get(TABLE) for part in parts for place in part.places}
        assert found[len(changes)] is None
        for number, rows in enumerate(wanted):
            assert content(duck, found[number]) == rows


def test_rows_are_divided_by_all_their_tables(duck: Duck) -> None:
    versions = opened(duck)
    for table_id in (TABLE, TABLE + 1):
        duck.execute(f"CREATE TABLE {place_of(table_id)} AS SELECT {table_id} AS x")
    versions.keep(TABLE, [span(10)], {DIGEST})
    versions.keep(TABLE + 1, [span(20)], {DIGEST})
    versions.keep(TABLE, [span(20), span(20, digest_id=71)], {DIGEST, 71})
    seqs = np.array([30, 5, 15, 10, 20, 21])
    parts = versions.divide(DIGEST, (TABLE, TABLE + 1), seqs)
    places = {tuple(map(int, part.places)): set(part.tables) for part in parts}
    assert places == {(0, 5): set(), (1, 3): {TABLE, TABLE + 1}, (2, 4): {TABLE, TABLE + 1}}
    (part,) = versions.divide(72, (TABLE, TABLE + 1), seqs)
    assert not part.tables


def test_rows_of_an_unfinished_back_fill_have_the_table_as_it_is(duck: Duck) -> None:
    duck.execute(f"CREATE TABLE {place_of(TABLE)} AS SELECT 1 AS x")
    versions = opened(duck)
    versions.keep(TABLE, [Span(DIGEST, 5, 10, 100)], {DIGEST})
    versions.keep(TABLE, [Span(DIGEST, 8, 20, 100)], {DIGEST})
    parts = versions.divide(DIGEST, (TABLE,), np.array([5, 6, 15]))
    assert sorted((list(part.places), bool(part.tables)) for part in parts) == [
        ([0], False),
        ([1], True),
        ([2], True),
    ]


def test_nothing_is_kept_without_rows_or_reach(duck: Duck, tmp_path: Path) -> None:
    duck.execute(f"CREATE TABLE {place_of(TABLE)} AS SELECT 1 AS x")
    versions = opened(duck)
    versions.keep(TABLE, [span(0)], {DIGEST})
    versions.keep(TABLE, [span(5)], {DIGEST})
    versions.keep(TABLE, [span(5)], {DIGEST})
    assert len(list((tmp_path / FOLDER).iterdir())) == 1
    versions.reached(DIGEST, 101)
    versions.keep(TABLE, [span(9)], {DIGEST})
    assert not list((tmp_path / FOLDER).iterdir())
    versions.keep(TABLE, [span(9, 101)], {DIGEST})
    assert len(list((tmp_path / FOLDER).iterdir())) == 1


def test_what_was_being_written_is_removed(duck: Duck, tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / "t7-v3.new").write_bytes(b"half")
    opened(duck)
    assert not list(folder.iterdir())
