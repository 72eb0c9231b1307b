"""Few rows of a long time become few files: partitions are chosen, and ranges joined."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from warehouses import compact, flush, open_inline, quiet

from tidemill.engine import Database

HOURS = 24 * 180
FEW = 220  # partitions of a view's digest are dear
START = dt.datetime(2024, 1, 1)
CREATE = "CREATE STREAMING TABLE t (ts TIMESTAMP, a INTEGER{key}, WATERMARK FOR ts AS ts) WITH ({})"

BY_WEEK = "SELECT date_trunc('week', ts) AS w, sum(a) AS s FROM t GROUP BY w"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with quiet(), open_inline(tmp_path / "w") as made:
        yield made


def make(db: Database, settings: str = "clock = 'event'", key: str = "") -> None:
    db.sql(CREATE.format(settings, key=key))


def rows(count: int = HOURS, step: dt.timedelta = dt.timedelta(hours=1)) -> pa.Table:
    times = [START + step * at for at in range(count)]
    return pa.table({"ts": pa.array(times, pa.timestamp("us")), "a": pa.array(range(count))})


def packages(folder: Path, table: pa.Table, parts: int) -> str:
    folder.mkdir()
    size = -(-table.num_rows // parts)
    for at in range(parts):
        pa.csv.write_csv(table.slice(at * size, size), folder / f"{at:03}.csv")
    return str(folder / "*.csv")


def partition(db: Database) -> tuple[Any, ...]:
    sql = "SELECT value, is_given FROM tidemill.settings WHERE table_name = 't' AND name = '{}'"
    return db.sql(sql.format("partition")).fetchall()[0]


def files(db: Database) -> int:
    table = db.catalog.snapshot().get("t")
    return len(db.catalog.snapshot().history(table.table_id).files)


def check(db: Database, count: int = HOURS) -> None:
    found = db.sql("SELECT count(*), sum(a), count(DISTINCT ts) FROM t").fetchall()
    assert found == [(count, count * (count - 1) // 2, count)]


def test_a_move_of_months(db: Database) -> None:
    make(db)
    db.append("t", rows())
    flush(db, "t")
    assert files(db) == 180
    assert partition(db) == ("1 day", True)
    check(db)
    db.append("t", {"ts": START, "a": 0})
    flush(db, "t")
    files_now = db.catalog.snapshot().history(db.catalog.snapshot().get("t").table_id).files
    assert {file.hi_us - file.lo_us for file in files_now} == {86_400_000_000}


@pytest.mark.parametrize("parts", [1, 30])
def test_a_load_of_months(db: Database, tmp_path: Path, parts: int) -> None:
    make(db)
    db.sql(f"COPY t FROM '{packages(tmp_path / 'in', rows(), parts)}'")
    assert files(db) <= 200
    assert partition(db) == ("1 day", True)
    check(db)


def test_years_of_days(db: Database) -> None:
    make(db)
    count = 365 * 30
    db.append("t", rows(count, dt.timedelta(days=1)))
    flush(db, "t")
    assert files(db) <= 31
    assert partition(db) == ("365 days", True)
    check(db, count)


def test_a_partition_that_was_given_stays(db: Database) -> None:
    make(db, "clock = 'event', partition = '1 hour'")
    db.append("t", rows())
    flush(db, "t")
    assert partition(db) == ("1 hour", True)
    assert files(db) == 180
    check(db)


def test_a_few_hours_keep_the_default(db: Database) -> None:
    make(db)
    db.append("t", rows(100))
    flush(db, "t")
    assert files(db) == 100
    assert partition(db) == ("1 hour", False)
    db.append("t", rows())
    flush(db, "t")
    assert partition(db) == ("1 hour", False)  # it has a history
    assert files(db) == 280
    db.sql("SELECT 1")
    assert db.sql("SELECT count(*) FROM t").fetchall() == [(HOURS + 100,)]


def test_ranges_stay_short_for_retention(db: Database) -> None:
    make(db, "clock = 'event', retention = '300 days'")
    count = 24 * 280 * 2
    db.append("t", rows(count, dt.timedelta(minutes=30)))
    flush(db, "t")
    assert partition(db) == ("7 days", True)
    check(db, count)
    db.sql("DROP TABLE t")
    make(db, "clock = 'event', retention = '5 days', move = 'manual'")
    db.append("t", rows(900, dt.timedelta(minutes=8)))
    flush(db, "t")
    assert partition(db) == ("1 hour", False)


@pytest.mark.parametrize("policy", ["ignore", "replace"])
def test_keys_and_views_over_joined_ranges(db: Database, tmp_path: Path, policy: str) -> None:
    make(db, f"clock = 'event', on_conflict = '{policy}'", ", PRIMARY KEY (ts)")
    if policy == "ignore":
        db.sql(f"CREATE MATERIALIZED VIEW v AS {BY_WEEK}")
    db.append("t", rows(FEW // 2))
    flush(db, "t")
    changed = rows(FEW).set_column(1, "a", pa.array([at + 7 for at in range(FEW)]))
    db.sql(f"COPY t FROM '{packages(tmp_path / 'in', changed, 7)}'")
    for _ in range(2):
        shift = 7 * FEW if policy == "replace" else 7 * (FEW // 2)
        found = db.sql("SELECT count(*), sum(a) FROM t").fetchall()
        assert found == [(FEW, FEW * (FEW - 1) // 2 + shift)]
        if policy == "ignore":
            wanted = db.sql(f"{BY_WEEK} ORDER BY w").fetchall()
            assert db.sql("SELECT * FROM v ORDER BY w").fetchall() == wanted
        compact(db, "t")


def test_a_view_over_joined_ranges_is_its_query(db: Database, tmp_path: Path) -> None:
    make(db)
    db.sql(f"CREATE MATERIALIZED VIEW v AS {BY_WEEK}")
    db.append("t", rows(FEW // 2))
    flush(db, "t")
    db.sql(f"COPY t FROM '{packages(tmp_path / 'in', rows(FEW), 3)}'")
    wanted = db.sql(f"{BY_WEEK} ORDER BY w").fetchall()
    assert db.sql("SELECT * FROM v ORDER BY w").fetchall() == wanted
    db.sql(f"CREATE MATERIALIZED VIEW later AS {BY_WEEK}")
    db.sql("REFRESH MATERIALIZED VIEW later")
    assert db.sql("SELECT * FROM later ORDER BY w").fetchall() == wanted
    compact(db, "t")
    assert db.sql("SELECT * FROM v ORDER BY w").fetchall() == wanted
