"""What the tests of history share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tidemill.history import storage as storing
from tidemill.history.storage import Storage


@pytest.fixture(autouse=True)
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The places that were forced to disk; they are not, because tests write many."""
    places: list[str] = []

    def sync(place: str) -> int:
        places.append(place)
        return Path(place).stat().st_size

    monkeypatch.setattr(storing, "_sync", sync)
    return places


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


@pytest.fixture
def duck(storage: Storage) -> Iterator[duckdb.DuckDBPyConnection]:
    with storage.connect() as connection:
        yield connection
