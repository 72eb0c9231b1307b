"""The first rows of a table in two parts: by time, and by any order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tidemill.clock import FakeClock, to_us
from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.federation import first_rows
from tidemill.federation.first_rows import first_of_parts
from tidemill.federation.runner import Filled
from tidemill.sql.parser import parse
from tidemill.sql.statements import Query

NOON = to_us(datetime(2024, 5, 1, 12))
INSERT = (
    "INSERT INTO s SELECT TIMESTAMP '2024-05-01' + i * INTERVAL '1' SECOND, i % 10, i, i % 7, 'x' "
    "FROM range({}, {}) r(i)"
)


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """Two hours of rows in files, then 1,000 in memory in blocks of 64."""
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS", 64)
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 64)
    monkeypatch.setattr(first_rows, "TRIED_ROWS", 40)
    monkeypatch.setattr(first_rows, "WORTH_ROWS_MIN", 400)
    settings = Settings(DATABASE_SETTINGS, {"spark_master": "inline", "threads": 1})
    with Database(tmp_path / "w", settings, FakeClock(NOON)) as opened:
        opened.sql(
            "CREATE STREAMING TABLE s (ts TIMESTAMP, k INT, v INT, w INT, x VARCHAR) "
            "WITH (clock = 'event', partition = '1 hour', hot = '1 day', move = 'manual')"
        )
        opened.sql(INSERT.format(0, 7_200))
        opened.sql("FLUSH s")
        opened.sql(INSERT.format(7_200, 8_200))
        yield opened


def fill(db: Database, text: str, params: Any = None) -> Filled:
    (statement,) = parse(text)
    assert isinstance(statement, Query)
    return db._runner.fill(db._querying.plan(statement, params), params)


def files_of(filled: Filled) -> int:
    past = filled.selected[0].past
    return 0 if past is None else len(past.files)


def answer(db: Database, text: str, params: Any = None) -> list[Any]:
    return db.sql(text, params).fetchall()


# -- the newest


def test_a_condition_that_young_rows_satisfy_reads_no_file(db: Database) -> None:
    text = "SELECT v FROM s WHERE k = $1 ORDER BY ts DESC LIMIT 3"
    filled = fill(db, text, [4])
    assert files_of(filled) == 0
    assert filled.selected[0].table.num_rows <= 64
    assert answer(db, text, [4]) == [(8_194,), (8_184,), (8_174,)]
    lines = [line for (line,) in answer(db, f"EXPLAIN {text}", [4])]
    assert "  newest 3 rows that match suffice" in lines


def test_a_condition_that_few_rows_satisfy_reads_all(db: Database) -> None:
    text = "SELECT v FROM s WHERE v % 4000 = 17 ORDER BY ts DESC LIMIT 2"
    filled = fill(db, text)
    assert files_of(filled) > 0
    assert filled.selected[0].table.num_rows == 1_000
    assert answer(db, text) == [(8_017,), (4_017,)]


def test_more_rows_are_tried_while_they_are_few(db: Database, monkeypatch: Any) -> None:
    monkeypatch.setattr(first_rows, "TRIED_SHARE_MAX", 0.5)
    text = "SELECT v FROM s WHERE v % 100 = 17 ORDER BY ts DESC LIMIT 3"  # within 320 rows
    assert files_of(fill(db, text)) == 0
    assert answer(db, text) == [(8_117,), (8_017,), (7_917,)]


def test_rows_of_the_same_time_are_kept(db: Database) -> None:
    db.append("s", [(datetime(2024, 5, 1, 2, 16, 39), 4, n, 0, "tie") for n in range(9_000, 9_009)])
    text = "SELECT v FROM s WHERE k IN (4, 9) ORDER BY ts DESC, v DESC LIMIT 4"
    assert answer(db, text) == [(9_008,), (9_007,), (9_006,), (9_005,)]


def test_late_rows_in_memory_do_not_count_as_young(db: Database) -> None:
    db.append("s", [(datetime(2024, 5, 1, 0, 0, 5), 99, 20_000 + n, 0, "late") for n in range(50)])
    text = "SELECT count(*) FROM (SELECT v FROM s WHERE k = 99 ORDER BY ts DESC LIMIT 3)"
    assert answer(db, text) == [(3,)]
    mixed = "SELECT v FROM s WHERE k = 99 OR v = 5000 ORDER BY ts DESC, v LIMIT 3"
    assert answer(db, mixed) == [(5_000,), (20_000,), (20_001,)]


def test_a_limit_beyond_memory(db: Database) -> None:
    text = "SELECT v FROM s WHERE k >= 0 ORDER BY ts DESC LIMIT 2000"
    assert [v for (v,) in answer(db, text)] == list(range(8_199, 6_199, -1))


def test_recent_rows_are_read_from_memory_alone(db: Database) -> None:
    for text in ("FROM RECENT(s, rows => 5)", "FROM s ORDER BY ts DESC LIMIT 5"):
        filled = fill(db, f"SELECT v {text}")
        assert files_of(filled) == 0
        assert sorted(answer(db, f"SELECT v {text}")) == [(n,) for n in range(8_195, 8_200)]
    edge = fill(db, "SELECT v FROM RECENT(s, rows => 1000)")
    assert files_of(edge) == 0  # all of memory, and the files are older
    beyond = fill(db, "SELECT v FROM RECENT(s, rows => 1001)")
    assert files_of(beyond) > 0
    assert len(answer(db, "SELECT v FROM RECENT(s, rows => 1001)")) == 1_001


def test_a_file_that_reaches_the_same_time_is_read(db: Database) -> None:
    db.sql("FLUSH s")
    last = datetime(2024, 5, 1, 2, 16, 39)
    db.append("s", [(last, 1, 30_000 + n, 0, "tie") for n in range(3)])
    text = "SELECT v FROM s ORDER BY ts DESC, v LIMIT 3"
    assert files_of(fill(db, text)) == 1
    assert answer(db, text) == [(8_199,), (30_000,), (30_001,)]
    above = "SELECT v FROM s ORDER BY ts DESC, v LIMIT 2 OFFSET 1"
    assert answer(db, above) == [(30_000,), (30_001,)]


# -- any order


def test_each_part_gives_its_first_rows(db: Database) -> None:
    text = "SELECT * FROM s AS a WHERE a.w = 3 ORDER BY v % 100, a.v DESC LIMIT 4"
    filled = fill(db, text)
    assert filled.text.count("LIMIT 4") == 3
    expected = sorted((n for n in range(8_200) if n % 7 == 3), key=lambda n: (n % 100, -n))[:4]
    assert [row[2] for row in answer(db, text)] == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT v, w FROM s WHERE w = 3 ORDER BY v LIMIT 4",  # hardly another column
        "SELECT * FROM s WHERE w = 3 ORDER BY v LIMIT 400",  # too many to fetch one by one
        "SELECT * FROM s WHERE w = 3 LIMIT 4",
        "SELECT * FROM s WHERE ts < '2024-05-01' ORDER BY v LIMIT 4",
    ],
)
def test_parts_are_read_whole(db: Database, text: str) -> None:
    assert fill(db, text).text.count(" LIMIT ") == 1


def test_offsets_hidden_columns_and_parameters(db: Database, monkeypatch: Any) -> None:
    monkeypatch.setattr(first_rows, "FETCHED_COLUMNS_MIN", 2)
    text = "SELECT *, _seq FROM s WHERE k = $k AND w > $w ORDER BY _seq DESC LIMIT 2 OFFSET 1"
    filled = fill(db, text, {"k": 3, "w": 2})
    assert filled.text.count("LIMIT 3") == 2
    rows = [n for n in range(8_200) if n % 10 == 3 and n % 7 > 2]
    assert [row[2] for row in answer(db, text, {"k": 3, "w": 2})] == rows[-2:-4:-1]


def test_a_scan_without_an_order_has_no_first_rows(db: Database) -> None:
    (chosen,) = fill(db, "SELECT * FROM s").selected
    assert chosen.files_sql is not None
    assert first_of_parts(chosen.scan, chosen.files_sql) is None
    assert first_of_parts(replace(chosen.scan, table=None), chosen.files_sql) is None
