"""A warehouse whose views take in rows when they are read, and at no other time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from warehouses import open_inline, quiet

sys.path.insert(0, str(Path(__file__).parent))

from views_kit import START

from tidemill.clock import FakeClock
from tidemill.engine import Database


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def db(tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A stream ``s`` and a reference table ``r``."""
    monkeypatch.setattr("tidemill.views.upkeep.IDLE_S", 1e6)
    with quiet(), open_inline(tmp_path / "w", clock) as found:
        found.sql(
            "CREATE STREAMING TABLE s (ts TIMESTAMP, k INTEGER, v DOUBLE) WITH (move = 'manual')"
        )
        found.sql("CREATE TABLE r (k INTEGER PRIMARY KEY, label VARCHAR)")
        found.sql("INSERT INTO r VALUES (0, 'none'), (1, 'one')")
        yield found
