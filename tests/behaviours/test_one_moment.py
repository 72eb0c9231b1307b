"""One statement, one moment: a stream and its views, while rows arrive."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from warehouses import open_inline, quiet

import tidemill

STATEMENTS = 200
START = datetime(2024, 1, 1)
SUMS = "SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k"
MINUTES = "SELECT window_start, count(*) AS n, sum(v) AS s FROM {} GROUP BY window_start"
WINDOW = "TUMBLE(t, ts, INTERVAL '1' MINUTE)"
RECENT = "RECENT(t, INTERVAL '30' SECOND)"


@contextmanager
def written(db: tidemill.Database) -> Iterator[None]:
    """Rows arrive meanwhile, some in history by and by."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def write() -> None:
        number = 0
        try:
            while not stop.is_set():
                rows = [
                    {"ts": START + timedelta(seconds=(number + at) / 20), "k": at % 5, "v": number}
                    for at in range(3)
                ]
                db.append("t", rows)
                number += 3
                if number % 3_000 == 0:
                    db.sql("FLUSH t")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not errors


@pytest.fixture
def db(tmp_path: Path) -> Iterator[tidemill.Database]:
    with quiet(), open_inline(tmp_path / "w") as db:
        db.sql(
            "CREATE STREAMING TABLE t (ts TIMESTAMP, k INTEGER, v BIGINT, "
            "WATERMARK FOR ts AS ts) WITH (clock = 'event')"
        )
        db.sql(f"CREATE MATERIALIZED VIEW by_key AS {SUMS}")
        db.sql(f"CREATE MATERIALIZED VIEW by_minute AS {MINUTES.format(WINDOW)}")
        db.sql("CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS n, sum(s) AS s FROM by_key")
        db.sql(
            f"CREATE MATERIALIZED VIEW lately AS SELECT k, count(*) AS n FROM {RECENT} GROUP BY k"
        )
        yield db


def differing(db: tidemill.Database, query: str) -> int:
    """How many of many statements show columns that differ."""
    found = 0
    with written(db):
        for _ in range(STATEMENTS):
            row = db.sql(query).fetchone()
            assert row is not None
            found += len(set(row)) > 1
    return found


@pytest.mark.parametrize(
    "parts",
    [
        ("(SELECT count(*) FROM t)", "(SELECT sum(n) FROM by_key)"),
        ("(SELECT sum(n) FROM by_key)", "(SELECT sum(n) FROM by_minute)"),
        ("(SELECT sum(s) FROM by_minute)", "(SELECT sum(v) FROM t)", "(SELECT s FROM total)"),
        ("(SELECT sum(n) FROM lately)", f"(SELECT count(*) FROM {RECENT})"),
        ("(SELECT sum(n) FROM by_key AS a JOIN by_key AS b USING (k, n))", "(SELECT n FROM total)"),
    ],
)
def test_beside_a_writer(db: tidemill.Database, parts: tuple[str, ...]) -> None:
    casts = ", ".join(f"coalesce({part}, 0)::BIGINT" for part in parts)
    assert differing(db, f"SELECT {casts}") == 0


def test_row_by_row(db: tidemill.Database) -> None:
    """The view and its own query, joined, have nothing that the other has not."""
    query = (
        f"SELECT count(*), 0 FROM (({SUMS} EXCEPT SELECT * FROM by_key) UNION ALL "
        f"(SELECT * FROM by_key EXCEPT {SUMS}))"
    )
    assert differing(db, query) == 0


def test_a_view_that_gave_its_memory_up(db: tidemill.Database) -> None:
    """Its query runs at the statement's moment too."""
    for live in db._views.live():
        live.is_too_large = True
    assert differing(db, "SELECT (SELECT count(*) FROM t), coalesce((SELECT n FROM total), 0)") == 0
    assert all(live.costs.by_query for live in db._views.live() if live.table.name == "total")
