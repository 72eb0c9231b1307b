"""Migrations: what an older Tidemill wrote, today's reads; and the two schemas agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from catalog_support import new_digest, new_file, new_view, package
from once import once

from tidemill.catalog import migrations, schema
from tidemill.catalog.store import Catalog
from tidemill.catalog.urls import parse_url
from tidemill.clock import FakeClock

FROM_VERSION_1 = """
    UPDATE tidemill_catalog SET next_table_id = 8, next_index_id = 4;
    INSERT INTO tidemill_snapshots VALUES (1, 10, 's'), (2, 20, 's'), (3, 30, 's');
    INSERT INTO tidemill_tables VALUES
        (6, 'Old', 'h6', 'reference', NULL, NULL, 10, 1, 2),
        (7, 'Cars', 'h7', 'streaming', 'ts', 5000000, 20, 2, NULL);
    INSERT INTO tidemill_columns VALUES
        (6, 0, 'a', 'INTEGER', TRUE, NULL, NULL, 1, 2),
        (7, 0, 'ts', 'TIMESTAMP', FALSE, NULL, 1, 2, NULL),
        (7, 1, 'vid', 'BIGINT', FALSE, '7', 0, 2, NULL);
    INSERT INTO tidemill_table_settings VALUES
        (7, 'hot', '1 s', 2, 3), (7, 'hot', '2 s', 3, NULL);
    INSERT INTO tidemill_indexes VALUES (3, 7, 'by_car', 'h', 'hash', 2, NULL);
    INSERT INTO tidemill_index_columns VALUES (3, 0, 'vid')
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    return request.getfixturevalue("postgres").new_url()


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(parse_url(url))
    yield engine
    engine.dispose()


def version_1(engine: sa.Engine) -> None:
    migrations.migrate(engine.begin, "here", 5, migrations.MIGRATIONS[:1])
    with engine.begin() as connection:
        for statement in FROM_VERSION_1.split(";"):
            connection.execute(sa.text(statement))


def test_a_catalog_of_version_1_opens_with_its_data(url: str, engine: sa.Engine) -> None:
    version_1(engine)
    for _ in range(2):
        catalog = Catalog.open(url, FakeClock(100))
        cars = catalog.snapshot().get("cars")
        assert (cars.table_id, cars.name, cars.primary_key) == (7, "Cars", ("vid", "ts"))
        assert cars.watermark_delay_us == 5_000_000
        assert cars.columns[1].default == "7"
        assert cars.given_settings == {"hot": "2 s"}
        assert [(i.name, i.columns, i.unique) for i in cars.indexes] == [
            ("by_car", ("vid",), False)
        ]
        assert catalog.snapshot(2).get("cars").given_settings == {"hot": "1 s"}
        assert set(catalog.snapshot(1).tables) == {"old"}
        assert catalog.snapshot_at(5).snapshot_id == 0
        assert catalog.records.get_meta("k") is None
        catalog.close()
    catalog = Catalog.open(url, FakeClock(100))
    once(catalog).set_meta("k", "v")
    assert once(catalog).create_index(7, ["vid"], unique=True).index_id == 4
    catalog.close()
    with engine.begin() as connection:
        assert connection.scalar(sa.select(schema.catalog.c.version)) == migrations.VERSION


def test_a_catalog_of_version_2_gets_a_history(url: str, engine: sa.Engine) -> None:
    version_1(engine)
    migrations.migrate(engine.begin, "here", 5, migrations.MIGRATIONS[:2])
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO tidemill_meta VALUES ('k', 'v')"))
    for reserved_seq in (0, 9):
        catalog = Catalog.open(url, FakeClock(100))
        assert [catalog.snapshot(each).definition_id for each in range(4)] == [0, 1, 2, 3]
        assert catalog.records.get_meta("k") == "v"
        assert set(catalog.snapshot().histories) == {7}
        assert catalog.snapshot().history(7).reserved_seq == reserved_seq
        assert set(catalog.snapshot(1).histories) == {6}
        assert catalog.snapshot(1).history(6).files == ()
        once(catalog).reserve(7, 1, 9)
        catalog.close()
    catalog = Catalog.open(url, FakeClock(100))
    file = once(catalog).commit_files(7, [new_file("a")], moved_seq=4).files[0]
    source = once(catalog).create_source("s", 7, "*.csv", "csv")
    assert (file.file_id, source.source_id, file.created_snapshot) == (1, 1, 4)
    before = catalog.snapshot()
    catalog.close()
    catalog = Catalog.open(url, FakeClock(200))
    assert catalog.snapshot() == before
    assert once(catalog).expire_snapshots(150) == []
    assert catalog.snapshots() == [(5, 100)]
    assert catalog.snapshot() == before
    catalog.close()


def test_a_catalog_of_version_3_gets_views(url: str, engine: sa.Engine) -> None:
    version_1(engine)
    migrations.migrate(engine.begin, "here", 5, migrations.MIGRATIONS[:3])
    catalog = Catalog.open(url, FakeClock(100))
    cars = catalog.snapshot().get("cars")
    assert (cars.definition, cars.source_id) == (None, None)
    once(catalog).create_table(new_view())
    digest = once(catalog).create_table(new_digest(cars.table_id))
    once(catalog).rename_table(cars.table_id, "autos")
    before = catalog.snapshot()
    catalog.close()
    catalog = Catalog.open(url, FakeClock(200))
    assert catalog.snapshot() == before
    assert before.get("autos").name == "autos"
    assert catalog.snapshot().digests_of(7) == (digest,)
    assert catalog.snapshot(3).get("cars") == cars
    assert set(catalog.snapshot(1).tables) == {"old"}
    catalog.close()


def test_a_catalog_of_version_4_counts_replaced_rows(url: str, engine: sa.Engine) -> None:
    version_1(engine)
    migrations.migrate(engine.begin, "here", 5, migrations.MIGRATIONS[:4])
    with engine.begin() as connection:
        columns = "table_id, name_hash, size, digest, name, state, row_count, rejected, late"
        facts = f"7, '{schema.text_hash('old')}', 5, 'ab', 'old', 'loaded', 3, 0, 0"
        connection.execute(
            sa.text(
                f"INSERT INTO tidemill_packages ({columns}, loaded_at_us, source, job_id) "
                f"VALUES ({facts}, 1, 'copy', 'j')"
            )
        )
    catalog = Catalog.open(url, FakeClock(100))
    once(catalog).add_packages(7, [package("new", replaced=4)])
    assert [(each.name, each.replaced) for each in catalog.records.packages(7)] == [
        ("old", 0),
        ("new", 4),
    ]
    catalog.close()


def test_a_step_that_fails_leaves_the_version_before(url: str, engine: sa.Engine) -> None:
    version_1(engine)

    def broken(connection: sa.Connection, now_us: int) -> None:
        connection.execute(sa.text("CREATE TABLE tidemill_half (a INTEGER)"))
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        migrations.migrate(_writer(engine), "here", 5, (migrations.base, broken))
    assert "tidemill_half" not in sa.inspect(engine).get_table_names()
    catalog = Catalog.open(url, FakeClock(100))
    assert "cars" in catalog.snapshot().tables
    catalog.close()


def test_the_steps_make_what_the_code_reads(url: str, engine: sa.Engine) -> None:
    Catalog.open(url, FakeClock(0)).close()
    inspector = sa.inspect(engine)
    assert set(inspector.get_table_names()) == set(schema.metadata.tables)
    for name, table in schema.metadata.tables.items():
        made = {column["name"]: column for column in inspector.get_columns(name)}
        assert set(made) == {column.name for column in table.columns}
        for column in table.columns:
            kind = column.type.compile(engine.dialect)
            assert made[column.name]["type"].compile(engine.dialect) == kind, (name, column.name)
            assert made[column.name]["nullable"] is column.nullable, (name, column.name)
        key = inspector.get_pk_constraint(name)["constrained_columns"]
        assert key == [column.name for column in table.primary_key]


def _writer(engine: sa.Engine):
    """Transactions that hold DDL on SQLite, too, as the catalog's own do."""
    if engine.dialect.name == "sqlite":
        from tidemill.catalog.connections import _begin_sqlite, _prepare_sqlite

        engine.dispose()
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
    return engine.begin


def test_a_catalog_of_version_5_gets_spans_that_do_not_overlap(url: str, engine: sa.Engine) -> None:
    """A range merged of two, with a late row behind it that began a chain of its own."""
    before = migrations.MIGRATIONS[: migrations.MIGRATIONS.index(migrations.generations)]
    version_1(engine)
    migrations.migrate(engine.begin, "here", 5, before)
    files = [
        (1, "a", "rows", 0, 10, 3, 2, 3),
        (2, "merged", "rows", 0, 20, 1, 3, None),
        (3, "late", "rows", 10, 20, 1, 3, None),
        (4, "other", "rows", 20, 30, 2, 3, None),
        (5, "aside", "rejected", 0, 1000, 7, 3, None),
        (6, "deletes", "deletes", 0, 25, 9, 3, None),
    ]
    counters = [(0, 10, 3), (0, 20, 1), (10, 20, 1), (20, 30, 2), (0, 1000, 7), (0, 25, 9)]
    with engine.begin() as connection:
        for number, path, kind, lo, hi, generation, created, dropped in files:
            connection.execute(
                sa.text(
                    "INSERT INTO tidemill_files (file_id, table_id, path, kind, lo_us, hi_us, "
                    "row_count, byte_count, row_groups, time_min_us, time_max_us, seq_min, "
                    "seq_max, origin, generation, is_anchor, created_snapshot, dropped_snapshot) "
                    "VALUES (:n, 7, :path, :kind, :lo, :hi, 1, 1, 1, :lo, :lo, 1, 1, 'move', :g, "
                    "TRUE, :created, :dropped)"
                ),
                {
                    "n": number,
                    "path": path,
                    "kind": kind,
                    "lo": lo,
                    "hi": hi,
                    "g": generation,
                    "created": created,
                    "dropped": dropped,
                },
            )
        for lo, hi, generation in counters:
            connection.execute(
                sa.text(f"INSERT INTO tidemill_partitions VALUES (7, {lo}, {hi}, {generation})")
            )
        connection.execute(sa.text("UPDATE tidemill_catalog SET next_file_id = 9"))
    catalog = Catalog.open(url, FakeClock(100))
    parts = catalog.snapshot().history(7).partitions
    assert [(p.lo_us, p.hi_us, p.generation, len(p.files)) for p in parts] == [
        (0, 20, 3, 2),
        (20, 30, 2, 1),
    ]
    after = once(catalog).commit_files(7, [new_file("new", 10)])
    assert [(p.lo_us, p.generation) for p in after.partitions] == [(0, 4), (20, 2)]
    assert [each.path for each in after.deletes] == ["deletes"]
    catalog.close()
