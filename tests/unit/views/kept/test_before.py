"""PREV over the windows of many rows: moved columns say what lag would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from warehouses import open_inline, quiet

from tidemill.catalog.model import Snapshot
from tidemill.clock import FakeClock, from_us
from tidemill.sql import statements as st
from tidemill.views.kept import row_query
from tidemill.views.kept.before import Before, with_before
from tidemill.views.kept.definition import Definition
from tidemill.views.kept.passes import MANY_ROWS_PASSES, take_before
from tidemill.views.kept.row_query import RowQuery

SLIDE = st.Slide(every_row=True)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    path: Path = tmp_path_factory.mktemp("before") / "w"
    with quiet(), open_inline(path, FakeClock(from_us(0))) as db:
        db.sql(
            "CREATE STREAMING TABLE s (ts TIMESTAMP, vid INTEGER, x INTEGER, name VARCHAR, "
            "place STRUCT(seg INTEGER))"
        )
        db.sql("CREATE STREAMING TABLE odd (ts TIMESTAMP, tm_before_1_x INTEGER, x INTEGER)")
        yield db.catalog.snapshot()


def windows() -> pa.Table:
    """Windows of up to three rows, as they are asked for."""
    with duckdb.connect() as connection:
        return connection.sql(
            "SELECT TIMESTAMP '2024-01-01' + to_seconds(r + w) AS ts, r % 4 AS vid,"
            " nullif((r * 7 + w * 3) % 5, 4)::INTEGER AS x, chr(97 + ((r + w) % 3)::INTEGER) AS"
            " name, {'seg': (r * w)::INTEGER} AS place, r + w AS _seq, r + 10 AS tm_row,"
            " TIMESTAMP '2024-01-01' + to_seconds(r + 10) AS tm_time"
            " FROM range(40) a(r), range(3) b(w) WHERE w <= r % 4 ORDER BY tm_row, ts, _seq"
        ).to_arrow_table()


def query_of(text: str, snapshot: Snapshot) -> RowQuery:
    return row_query.row_query(Definition(text, SLIDE, (), (), None, 0), snapshot, None)


def answers(query: RowQuery) -> list[tuple[object, ...]]:
    assert query.tagged is not None
    with duckdb.connect() as connection:
        connection.register("tm_windows", with_before(windows(), query.before))
        return sorted(connection.execute(query.tagged).fetchall(), key=repr)


FROM = "FROM RECENT(s, rows => 3, partition_by => vid)"
MOVED = {
    f"SELECT vid, x, PREV(x) AS was {FROM} WHERE x <> PREV(x)": 1,
    f"SELECT vid, PREV(x) AS a, PREV(x, 2) AS b, prev(X, 1 + 1) AS c, PREV(name) AS d {FROM}": 3,
    f"SELECT vid, PREV(x + 1) AS a, PREV(coalesce(x, -1), 2) AS b, PREV(7) AS c {FROM}": 4,
    f"SELECT *, PREV(w.x) AS a {FROM} w WHERE PREV(w.ts) < ts": 2,
    f"SELECT max(x - PREV(x)) AS a {FROM}": 1,
    f"SELECT vid, count(PREV(x)) AS a, sum(PREV(x, 5)) AS b {FROM} GROUP BY vid": 2,
    f"SELECT PREV(ts) AS ts_before, PREV(place) AS a {FROM} WHERE PREV(x) IS NULL": 3,
    f"SELECT vid {FROM} WHERE vid IN (SELECT x FROM (VALUES (1), (2)) v(x)) AND PREV(x) > 0": 1,
    f"SELECT PREV(s) AS a {FROM}": 6,
}


@pytest.mark.parametrize("text", MOVED)
def test_moved_columns_are_what_lag_gives(
    text: str, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = query_of(text, snapshot)
    assert len(moved.before) == MOVED[text]
    assert moved.tagged is not None
    assert "LAG(" not in moved.tagged.upper()
    with monkeypatch.context() as patch:
        without = tuple(each for each in MANY_ROWS_PASSES if each is not take_before)
        patch.setattr(row_query, "MANY_ROWS_PASSES", without)
        lagging = query_of(text, snapshot)
    assert lagging.tagged is not None
    assert "LAG(" in lagging.tagged.upper()
    found = answers(moved)
    assert found == answers(lagging)
    assert found


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT PREV(place.seg) AS a {FROM}",
        "SELECT PREV(x) AS a FROM RECENT(odd, rows => 2)",
    ],
)
def test_what_cannot_be_moved_stays(text: str, snapshot: Snapshot) -> None:
    query = query_of(text, snapshot)
    assert query.before == ()
    assert "LAG(" in (query.tagged or "").upper()


def test_a_lag_of_the_users_own_stays(snapshot: Snapshot) -> None:
    text = f"SELECT lag(x) OVER (PARTITION BY name ORDER BY ts, vid) AS a {FROM}"
    query = query_of(text, snapshot)
    assert query.before == ()


def test_windows_without_rows_and_of_one_row() -> None:
    columns = (Before(1), Before(1, "x"), Before(3, "x"))
    empty = pa.table({"x": pa.array([], pa.int32()), "tm_row": pa.array([], pa.int64())})
    assert with_before(empty, columns).num_rows == 0
    single = pa.table({"x": pa.array([5], pa.int32()), "tm_row": [1]})
    (row,) = with_before(single, columns).to_pylist()
    assert row == {"x": 5, "tm_row": 1, "tm_before_1": False, "tm_before_1_x": None} | {
        "tm_before_3_x": None
    }
