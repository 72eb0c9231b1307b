"""Programs that end without closing their warehouse leave nothing behind, and say nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tidemill

OPENED = """
import os, sys, threading
import tidemill
db = tidemill.open(sys.argv[1], spark_master="inline")
db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, a INT); CREATE TABLE r AS SELECT 1 AS a")
db.append("t", [{"ts": "2026-11-15 12:00:00", "a": 1}])
db.sql("SELECT * FROM t").df()
db.sql_text("SELECT 1").rows()
client = tidemill.connect(sys.argv[1])
client.sql("SELECT 1")
thread = threading.Thread(target=lambda: db.sql("SELECT 2"))
thread.start()
"""


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        ("db.close()", 0),
        ("sys.exit(3)", 3),
        ("if not os.fork(): sys.exit(0)\nos.wait()", 0),
    ],
    ids=["end", "close", "exit", "fork"],
)
def test_a_program_ends_quietly(tmp_path: Path, ending: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OPENED + ending, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert not (tmp_path / "tidemill.sock").exists()
    with tidemill.open(tmp_path, spark_master="inline") as db:
        assert db.sql("SELECT a FROM t").fetchall() == [(1,)]
