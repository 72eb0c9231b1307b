"""What the tests of streams share: the storage and the rows of the tests of history."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "history"))

from history_kit import HOUR_US, NOW_US, make_batch, make_table, write

from tidemill.catalog.model import NewFile, Table
from tidemill.history.storage import Storage

BY_K = make_table([("k", "BIGINT")], [("k",)])


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


@pytest.fixture
def duck(storage: Storage) -> Iterator[duckdb.DuckDBPyConnection]:
    with storage.connect() as connection:
        yield connection


@pytest.fixture
def by_k() -> Table:
    return BY_K


@pytest.fixture
def files(storage: Storage) -> list[NewFile]:
    """Three hours of ten rows, whose sequence numbers and values count from 1 on."""
    rows = [(NOW_US + (at // 10) * HOUR_US + at, at + 1) for at in range(30)]
    return write(storage, BY_K, make_batch(BY_K, rows))
