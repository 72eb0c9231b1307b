"""History keeps its order of time: after a compaction a short window reads few rows, and a key
within a window too. What is counted is the rows of the row groups that DuckDB reads, by the
statistics of the files; EXPLAIN ANALYZE must tell the same number of row groups."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from warehouses import compact, files_of, flush, open_inline, quiet

from tidemill.engine import Database
from tidemill.errors import DamagedFileError

START = dt.datetime(2024, 3, 1)
START_US = 1_709_251_200_000_000
MINUTE_US = 60_000_000
A_MINUTE, MINUTES, KEYS = 360, 200, 400
CREATE = (
    "CREATE STREAMING TABLE t (ts {time}, k BIGINT, v DOUBLE, s VARCHAR{index}) "
    "WITH (clock = 'event', hot = '1 second', move = 'manual', partition = '{partition}')"
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with quiet(), open_inline(tmp_path / "w") as made:
        yield made


def fill(db: Database, time: str = "TIMESTAMP", partition: str = "10 minutes") -> None:
    """Rows of 200 minutes, moved in several steps, then compacted."""
    db.sql(CREATE.format(time=time, index="", partition=partition))
    db.sql("CREATE INDEX ON t (k)")
    chance = np.random.default_rng(5)
    count = A_MINUTE * MINUTES
    times = START_US + np.arange(count, dtype=np.int64) * MINUTE_US // A_MINUTE
    keys = pa.array(chance.integers(0, KEYS, count), mask=chance.random(count) < 0.01)
    kind = pa.timestamp("us") if time == "TIMESTAMP" else pa.timestamp("us", "UTC")
    texts = pa.array([f"text {n}" for n in chance.integers(0, 2**40, count)])
    rows = pa.table(
        {"ts": pa.array(times).cast(kind), "k": keys, "v": chance.random(count), "s": texts}
    )
    for at in range(0, count, count // 8):
        db.append("t", rows.slice(at, count // 8))
        flush(db, "t")
    before = files_of(db, "t")
    assert compact(db, "t")
    assert files_of(db, "t") <= 2 < before


def files(db: Database) -> list[Any]:
    snapshot = db.catalog.snapshot()
    return list(snapshot.history(snapshot.get("t").table_id).files)


def read_groups(db: Database, low: dt.datetime, high: dt.datetime) -> tuple[int, int]:
    """The row groups that can have rows of a window, and how many rows these have."""
    places = [str(db.path / "data" / file.path) for file in files(db)]
    found = duckdb.sql(
        "SELECT count(*), coalesce(sum(row_group_num_rows), 0) FROM parquet_metadata($1) "
        "WHERE path_in_schema = 'ts' AND left(stats_min_value, 26)::TIMESTAMP < $3 "
        "AND left(stats_max_value, 26)::TIMESTAMP >= $2",
        params=[places, low, high],
    ).fetchall()
    return int(found[0][0]), int(found[0][1])


def told_groups(db: Database, query: str) -> int:
    text = "\n".join(line for (line,) in db.sql(f"EXPLAIN ANALYZE {query}").fetchall())
    found = re.search(r"read t: .* ([\d,]+) of ([\d,]+) row groups", text)
    assert found is not None, text
    return int(found[1].replace(",", ""))


def window(first: float, minutes: float) -> tuple[dt.datetime, dt.datetime, str]:
    low = START + dt.timedelta(minutes=first)
    high = low + dt.timedelta(minutes=minutes)
    return low, high, f"ts >= TIMESTAMP '{low}' AND ts < TIMESTAMP '{high}'"


@pytest.mark.parametrize("partition", ["10 minutes", "1 hour"])
@pytest.mark.parametrize("time", ["TIMESTAMP", "TIMESTAMPTZ"])
def test_a_short_window_reads_few_rows_after_a_compaction(
    db: Database, time: str, partition: str
) -> None:
    fill(db, time, partition)
    assert sum(file.rows for file in files(db)) == A_MINUTE * MINUTES
    for first in (40, 43.5, 97.25):
        low, high, test = window(first, 10)
        assert db.sql(f"SELECT count(*) FROM t WHERE {test}").fetchall() == [(3_600,)]
        groups, rows = read_groups(db, low, high)
        assert told_groups(db, f"SELECT sum(v) FROM t WHERE {test}") == groups
        assert rows <= 2 * 3_600 + 2, "rows in row groups that are read"
    low, high, test = window(40, 10)
    assert read_groups(db, low, high)[1] <= 3_600, "a round window needs no other rows"


def test_a_key_in_a_window_reads_few_rows(db: Database) -> None:
    fill(db, partition="1 hour")
    low, high, test = window(30, 60)
    query = f"SELECT * FROM t WHERE k = 17 AND {test}"
    groups, rows = read_groups(db, low, high)
    assert told_groups(db, query) <= groups
    assert rows <= 2 * 60 * A_MINUTE
    every = db.sql("SELECT * FROM t WHERE k = 17").fetchall()
    wanted = [row for row in every if low <= row[0] < high]
    assert 10 < len(wanted) < len(every)
    assert sorted(db.sql(query).fetchall()) == sorted(wanted)


def test_what_a_window_does_not_read_is_not_checked(db: Database) -> None:
    """Damage far from the window is found by who reads there."""
    fill(db)
    file = max(files(db), key=lambda each: each.bytes)
    assert file.bytes > 1 << 20
    place = db.path / "data" / file.path
    content = bytearray(place.read_bytes())
    content[file.bytes // 2] ^= 4
    place.write_bytes(content)
    _, _, early = window(5, 10)
    assert db.sql(f"SELECT count(v) FROM t WHERE {early}").fetchall() == [(3_600,)]
    for route in ("local", "spark"):
        db.sql(f"SET route = '{route}'")
        assert db.sql(f"SELECT count(s) FROM t WHERE {early}").fetchall() == [(3_600,)]
        for query in (
            "SELECT max(s), max(v), max(k) FROM t",
            "SELECT max(s), max(v), max(k) FROM t WHERE ts >= TIMESTAMP '2024-03-01 01:00:00'",
        ):
            with pytest.raises(DamagedFileError, match="fail their checksum"):
                db.sql(query).fetchall()
