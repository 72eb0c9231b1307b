"""What the tests of digests share: a connection of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from digests_kit import connect


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    opened = connect()
    yield opened
    opened.close()
