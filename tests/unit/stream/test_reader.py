"""The reader: table expressions over files and memory, and what an earlier moment needs."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from tidemill.hot.wanted import Condition, Wanted
from tidemill.stream.reader import in_both, newest_of_keys, past_wanted

FILES = "SELECT * FROM (VALUES (1, 'old', 1), (2, 'kept', 2)) AS f(k, v, _seq)"


def test_rows_in_both() -> None:
    held = pa.table({"k": [3], "v": ["held"], "_seq": [3]})
    with duckdb.connect() as connection:
        connection.register("tm_scan_0", held)
        found = connection.sql(f"SELECT k FROM {in_both(FILES, 'tm_scan_0')} ORDER BY k")
        assert found.fetchall() == [(1,), (2,), (3,)]
        assert connection.sql(f"SELECT k FROM {in_both(FILES, None)} ORDER BY k").fetchall() == [
            (1,),
            (2,),
        ]


def test_of_each_key_the_newest_row() -> None:
    held = pa.table({"k": [1], "v": ["new"], "_seq": [3]})
    sql = newest_of_keys(FILES, "tm_scan_0", ["k"], ["k", "v"])
    with duckdb.connect() as connection:
        connection.register("tm_scan_0", held)
        found = connection.sql(f"SELECT * FROM {sql} ORDER BY k")
        assert found.columns == ["k", "v"]
        assert found.fetchall() == [(1, "new"), (2, "kept")]


def test_an_earlier_moment_is_read_without_conditions() -> None:
    """A row that does not match may have replaced one that does."""
    wanted = Wanted(1, 9, conditions=(Condition("k", ()),))
    assert past_wanted(wanted, ()) == Wanted(1, 9)
    assert past_wanted(wanted, ("k",)) == Wanted(1, 9, with_seq=True)
