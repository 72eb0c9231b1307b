"""A view may fail; its table may not, and no other view does.

Expressions of views overflow, divide and cast. Appends, moves, loads, compactions and back-fills of
the stream go on, the view says what is wrong with it, and REFRESH or OR REPLACE bring it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from warehouses import compact, flush, open_inline, quiet

from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.errors import TidemillError, ViewFailedError
from tidemill.hot.retention import horizon_us
from tidemill.pipeline.compact import ExpireJob
from tidemill.pipeline.spark import SparkRuntime

START = datetime(2024, 5, 1, 10)
BAD = "SELECT k, sum(CAST(t AS TINYINT)) AS n FROM s GROUP BY k"
GOOD = "SELECT k, count(*) AS n, max(t) AS top FROM s GROUP BY k"
SAME_KEYS = "SELECT k, sum(v) AS n FROM s GROUP BY k"
OVERFLOW = "SELECT k, sum(v * v) AS n FROM s GROUP BY k"
LISTED = "SELECT k, count(DISTINCT CAST(t AS TINYINT)) AS n FROM s GROUP BY k"
QUERIES = {"bad": BAD, "good": GOOD, "same": SAME_KEYS, "overflow": OVERFLOW, "listed": LISTED}
FAILING = ("bad", "overflow", "listed")


@pytest.fixture(autouse=True)
def nothing_by_itself() -> Iterator[None]:
    with quiet():
        yield


def create(db: Database) -> None:
    db.sql(
        "CREATE STREAMING TABLE s (ts TIMESTAMP, k INTEGER, t VARCHAR, v BIGINT)"
        " WITH (move = 'manual', clock = 'event', partition = '1 hour')"
    )


def make_views(db: Database) -> None:
    for name, query in QUERIES.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def rows(first: int, count: int, text: str = "1", value: int = 1) -> list[tuple[object, ...]]:
    return [(START + timedelta(minutes=n), n % 3, text, value) for n in range(first, first + count)]


def spoil(db: Database, at: int) -> None:
    db.append("s", rows(at, 1, "not a number", 2**62))


def check(db: Database, failed: tuple[str, ...] = ()) -> None:
    """Views that work give what their queries give; the others say why they do not."""
    for name, query in QUERIES.items():
        if name in failed:
            with pytest.raises(ViewFailedError) as caught:
                db.sql(f"SELECT * FROM {name}")
            assert f'view "{name}" failed' in str(caught.value)
            assert "REFRESH" in str(caught.value.hint)
            assert "tm_" not in f"{caught.value} {caught.value.detail}"
        else:
            found = sorted(db.sql(f"SELECT * FROM {name}").fetchall())
            assert found == sorted(db.sql(query).fetchall()), name


def errors(db: Database) -> set[str]:
    found = db.sql("SELECT view_name, last_error FROM tidemill.views").fetchall()
    assert not any("tm_" in error for _, error in found if error)  # names of ours
    return {name for name, error in found if error is not None}


def states(db: Database) -> dict[str, str]:
    return dict(db.sql("SELECT view_name, state FROM tidemill.views").fetchall())


def expire(db: Database) -> None:
    """Drop the files whose rows are all outside the retention."""
    table = db.catalog.snapshot().get("s")
    hot = db._hot[table.table_id]
    horizon = horizon_us(table, hot.progress.now_us())
    assert horizon is not None
    db._keeping.wait(db._keeping.submit(ExpireJob(table, db.catalog, horizon, horizon), 0))


def test_appends_moves_loads_and_compactions_go_on(tmp_path: Path) -> None:
    path = tmp_path / "w"
    with closing(open_inline(path)) as db:
        create(db)
        make_views(db)
        db.append("s", rows(0, 10))
        check(db)
        spoil(db, 10)
        check(db, FAILING)
        assert errors(db) == set(FAILING)
        assert flush(db, "s") == 11
        check(db, FAILING)
        assert {name for name, state in states(db).items() if state == "failed"} == set(FAILING)
        db.append("s", rows(11, 5))
        assert flush(db, "s") == 5
        file = tmp_path / "more.csv"
        file.write_text("ts,k,t,v\n2024-05-01 11:30:00,1,7,5\n2024-05-01 11:31:00,1,x,5\n")
        db.sql(f"COPY s FROM '{file}'")
        flush(db, "s")
        compact(db, "s")
        assert db.sql("SELECT count(*) FROM s").fetchall() == [(18,)]
        check(db, FAILING)
    with closing(open_inline(path)) as db:
        check(db, FAILING)
        assert errors(db) == set(FAILING)
        db.append("s", rows(16, 3))
        assert flush(db, "s") == 3
        check(db, FAILING)


def test_a_view_is_made_again_by_refresh_or_by_another_query(tmp_path: Path) -> None:
    with closing(open_inline(tmp_path / "w")) as db:
        create(db)
        db.sql("ALTER TABLE s SET (retention = '2 hours')")
        make_views(db)
        spoil(db, 0)
        db.append("s", rows(1, 10))
        flush(db, "s")
        check(db, FAILING)
        for name in FAILING:
            with pytest.raises(ViewFailedError):
                db.sql(f"REFRESH MATERIALIZED VIEW {name}")
        check(db, FAILING)
        wide = "SELECT k, sum(TRY_CAST(t AS TINYINT)) AS n FROM s GROUP BY k"
        db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW bad AS {wide}")
        db.sql("REFRESH MATERIALIZED VIEW bad")
        assert sorted(db.sql("SELECT * FROM bad")) == sorted(db.sql(wide))
        db.append("s", rows(300, 10))  # what was wrong is outside the retention now
        flush(db, "s")
        expire(db)
        for name in ("overflow", "listed"):
            db.sql(f"REFRESH MATERIALIZED VIEW {name}")
            found = sorted(db.sql(f"SELECT * FROM {name}").fetchall())
            assert found == sorted(db.sql(QUERIES[name]).fetchall())
            assert states(db)[name] != "failed"


def test_a_back_fill_that_fails_leaves_the_stream_alone(tmp_path: Path) -> None:
    with closing(open_inline(tmp_path / "w")) as db:
        create(db)
        db.append("s", rows(0, 200))
        spoil(db, 30)
        flush(db, "s")
        db.append("s", rows(200, 5))
        db.sql(f"CREATE MATERIALIZED VIEW good AS {GOOD}")
        db.sql(f"CREATE MATERIALIZED VIEW bad AS {BAD}")
        with pytest.raises(TidemillError):
            db.sql("REFRESH MATERIALIZED VIEW bad")
        db.sql("REFRESH MATERIALIZED VIEW good")
        assert errors(db) == {"bad"}
        assert flush(db, "s") == 5
        assert sorted(db.sql("SELECT * FROM good")) == sorted(db.sql(GOOD))
        db.sql("DROP MATERIALIZED VIEW bad")
        assert flush(db, "s") == 0


def test_on_spark_as_well(tmp_path: Path, shared_spark: SparkRuntime) -> None:
    settings = Settings(DATABASE_SETTINGS, {"spark_master": "local[2]"})
    with closing(Database(tmp_path / "w", settings)) as db:
        create(db)
        make_views(db)
        db.append("s", rows(0, 10))
        spoil(db, 10)
        assert flush(db, "s") == 11
        check(db, FAILING)
