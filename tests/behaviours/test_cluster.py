"""The same warehouse on a real Spark cluster, its catalog in a real PostgreSQL.

A master and two workers run as processes of their own. Moves, loads and queries run there; a worker
that is killed in the middle of a job changes no answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from cluster import SparkCluster
from postgres import PostgresServer

import tidemill

pytestmark = pytest.mark.spark

START = np.datetime64("2024-03-01T10:00:00", "us")
TABLE = """\
CREATE STREAMING TABLE t (ts TIMESTAMP, k BIGINT, v DOUBLE)
WITH (clock = 'event', partition = '10 minutes', move = 'manual')"""
QUERY = "SELECT k % 3 AS g, count(*) AS n, sum(v) AS total FROM t GROUP BY g ORDER BY g"
WAIT_S = 60.0


def rows(first: int, count: int) -> pa.Table:
    numbers = np.arange(first, first + count)
    times = START + numbers * np.timedelta64(10_000, "us")
    return pa.table({"ts": times, "k": numbers % 1_000, "v": numbers * 0.25})


def expected(count: int) -> list[tuple[int, int, float]]:
    groups = [[n for n in range(count) if n % 1_000 % 3 == g] for g in range(3)]
    return [(g, len(found), sum(found) * 0.25) for g, found in enumerate(groups)]


@pytest.fixture
def cluster(no_spark: None) -> Iterator[SparkCluster]:
    with SparkCluster(workers=2) as started:
        yield started


def test_moves_loads_and_queries_on_a_cluster(
    cluster: SparkCluster, postgres: PostgresServer, tmp_path: Path
) -> None:
    path, url = tmp_path / "w", postgres.new_url()
    with tidemill.open(path, spark_master=cluster.url, catalog=url) as db:
        db.sql(TABLE)
        db.append("t", rows(0, 40_000))
        assert db.sql("FLUSH t").message == "FLUSH 40000"
        folder = tmp_path / "in"
        folder.mkdir()
        for number in range(4):
            part = rows(40_000 + number * 5_000, 5_000)
            pyarrow.csv.write_csv(part, folder / f"{number}.csv")
        assert db.sql(f"COPY t FROM '{folder}/*.csv'").message == "COPY 20000"
        db.append("t", rows(60_000, 1_000))
        for route in ("local", "spark", "spark_sql"):
            db.sql(f"SET route = '{route}'")
            assert db.sql(QUERY).fetchall() == expected(61_000), route
        kill_a_worker_in_mid_job(cluster, db, folder)
        for route in ("local", "spark"):
            db.sql(f"SET route = '{route}'")
            assert db.sql(QUERY).fetchall() == expected(111_000), route
    with tidemill.open(path, spark_master="inline", catalog=url) as db:
        assert db.sql(QUERY).fetchall() == expected(111_000)
        assert db.sql("SELECT count(*) = count(DISTINCT _seq) FROM t").fetchall() == [(True,)]


def kill_a_worker_in_mid_job(cluster: SparkCluster, db: tidemill.Database, folder: Path) -> None:
    """Load more, and end one of the two workers as soon as the first task is done."""
    for number in range(50):
        part = rows(61_000 + number * 1_000, 1_000)
        pyarrow.csv.write_csv(part, folder / f"more{number}.csv")
    messages: list[str] = []

    def load() -> None:
        messages.append(db.sql(f"COPY t FROM '{folder}/more*.csv'").message)

    loading = threading.Thread(target=load)
    loading.start()
    deadline = time.monotonic() + WAIT_S
    running = "SELECT count(*) FROM tidemill.jobs WHERE kind = 'load' AND state = 'running'"
    while loading.is_alive() and time.monotonic() < deadline:
        if db.sql(running).fetchall() == [(1,)]:
            break
    cluster.kill_worker(0)
    loading.join(2 * WAIT_S)
    assert messages == ["COPY 50000"]
