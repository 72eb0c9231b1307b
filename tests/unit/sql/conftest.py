"""Makes ``support`` importable for the tests of this room, and closes what it opened."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from support import close


@pytest.fixture(scope="session", autouse=True)
def _close_database() -> Iterator[None]:
    yield
    close()
