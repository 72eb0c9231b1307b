"""SET route holds for every statement with a query in it, and each route gives the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from warehouses import open_inline, quiet

import tidemill
from tidemill.federation.routes import GatherRoute, PartitionRoute, Route, TaskRoute
from tidemill.federation.runner import Filled
from tidemill.statements.session import Session

Run = Callable[..., object]

KINDS = {
    "h": "HUGEINT",
    "u": "UUID",
    "d": "DECIMAL(18,2)",
    "i": "INTERVAL",
    "l": "INTEGER[]",
    "m": "STRUCT(a INTEGER, b VARCHAR)",
    "b": "BLOB",
}
ROW = (
    "TIMESTAMP '2024-01-01' + INTERVAL (n) MINUTE, n, n::HUGEINT * 10^30::HUGEINT, "
    "uuid(), n / 4, INTERVAL (n) DAY, [n, NULL], {'a': n, 'b': 'x' || n}, 'ab'::BLOB"
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[tidemill.Database]:
    columns = ", ".join(f"{name} {kind}" for name, kind in KINDS.items())
    with quiet(), open_inline(tmp_path / "w") as db:
        db.sql(f"CREATE STREAMING TABLE t (ts TIMESTAMP, n INTEGER, {columns})")
        db.sql(f"CREATE STREAMING TABLE copied (ts TIMESTAMP, n INTEGER, {columns})")
        db.sql(f"INSERT INTO t SELECT {ROW} FROM range(100) AS r(n)")
        db.sql("FLUSH t")
        db.sql(f"INSERT INTO t SELECT {ROW} FROM range(100, 120) AS r(n)")
        yield db


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ran in tasks."""
    found: list[str] = []
    for kind in (PartitionRoute, TaskRoute, GatherRoute):

        def counted(self: Route, filled: Filled, _run: Run = kind.run) -> object:
            found.append(self.name)
            return _run(self, filled)

        monkeypatch.setattr(kind, "run", counted)
    return found


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM t",
        "INSERT INTO copied SELECT * FROM t",
        "CREATE TABLE made AS SELECT * FROM t",
        "COPY t TO '{}/out.parquet'",
        "COPY (SELECT n, count(*) FROM t GROUP BY n) TO '{}/out.csv'",
        "EXPLAIN ANALYZE SELECT * FROM t",
    ],
)
def test_the_route_of_a_session(
    db: tidemill.Database, runs: list[str], text: str, tmp_path: Path
) -> None:
    own, other = Session(), Session()
    db.sql("SET route = 'spark'", session=own)
    db.sql(text.format(tmp_path), session=own)
    assert runs == ["spark"]
    if not text.startswith("CREATE"):
        db.sql(text.format(tmp_path), session=other)
        assert runs == ["spark"]


def test_a_route_that_is_not_there(db: tidemill.Database, tmp_path: Path) -> None:
    db.sql("SET route = 'spark_sql'")
    for text in ("INSERT INTO copied SELECT * FROM t", f"COPY t TO '{tmp_path}/x.csv'"):
        with pytest.raises(tidemill.TidemillError, match="cannot run on Spark's SQL"):
            db.sql(text)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "json"])
def test_the_same_file(db: tidemill.Database, tmp_path: Path, suffix: str) -> None:
    for route in ("local", "spark"):
        db.sql(f"SET route = '{route}'")
        db.sql(f"COPY (SELECT * FROM t ORDER BY n) TO '{tmp_path}/{route}.{suffix}'")
    one, two = (f"'{tmp_path}/{route}.{suffix}'" for route in ("local", "spark"))
    kinds = [db.sql(f"FROM (DESCRIBE SELECT * FROM {each})").fetchall() for each in (one, two)]
    assert kinds[0] == kinds[1]
    assert db.sql(f"SELECT count(*) FROM (FROM {one} EXCEPT FROM {two})").fetchall() == [(0,)]
    assert db.sql(f"SELECT count(*) FROM {two}").fetchall() == [(120,)]
