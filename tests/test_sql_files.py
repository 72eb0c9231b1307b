"""The SQL files of tests/sql: each runs from top to bottom in a warehouse of its own.

``TIDEMILL_REWRITE_SLT=1 pytest tests/test_sql_files.py`` writes the actual answers into the files;
read the difference before you keep it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import sqllogic
from warehouses import quiet

FILES = sorted((Path(__file__).parent / "sql").glob("*.slt"))
REWRITE = os.environ.get("TIDEMILL_REWRITE_SLT") == "1"


@pytest.mark.parametrize("manner", [sqllogic.LOCAL, sqllogic.SPARK])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_when_every_row_is_in_history(path: Path, manner: str, tmp_path: Path) -> None:
    with quiet():
        sqllogic.check(path, tmp_path, manner)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file(path: Path, tmp_path: Path) -> None:
    if REWRITE:
        path.write_text(sqllogic.rewrite(path, tmp_path))
    else:
        sqllogic.check(path, tmp_path)


EXAMPLE = """\
# about cars
statement ok CREATE TABLE
CREATE TABLE cars (vid BIGINT, name VARCHAR)

statement ok INSERT 2
INSERT INTO cars VALUES (2, ''), (1, NULL)

query IT rowsort
SELECT * FROM cars
----
1 | NULL
2 | (empty)

restart

clock advance 60

query D
SELECT now()
----
2024-01-01 00:01:00+00

statement error unknown_name.*did you mean "cars"
SELECT * FROM car
"""


def run_text(text: str, folder: Path) -> None:
    path = folder / "example.slt"
    path.write_text(text)
    sqllogic.check(path, folder)


def test_runner_accepts_what_holds(tmp_path: Path) -> None:
    run_text(EXAMPLE, tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("1 | NULL", "1 | x", "the rows are"),
        ("query IT rowsort", "query TT rowsort", "the types are IT"),
        ("INSERT 2", "INSERT 3", "the tag is 'INSERT 2'"),
        ("unknown_name", "syntax_error", "the error is"),
        ("SELECT * FROM car\n", "SELECT * FROM cars\n", "no error"),
        ("restart", "again", "is no record"),
        ("SELECT now()", "SELECT nou()", "nou"),
    ],
)
def test_runner_sees_what_does_not_hold(
    tmp_path: Path, before: str, after: str, complaint: str
) -> None:
    with pytest.raises(sqllogic.Mismatch, match=complaint):
        run_text(EXAMPLE.replace(before, after), tmp_path)


def test_rewrite_restores_the_truth(tmp_path: Path) -> None:
    path = tmp_path / "example.slt"
    spoilt = EXAMPLE.replace("1 | NULL", "7").replace("query D", "query X")
    path.write_text(spoilt.replace("INSERT 2\n", "INSERT 9\n", 1))
    assert sqllogic.rewrite(path, tmp_path) == EXAMPLE
