"""A catalog on both databases, and a table in it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from catalog_support import new_table
from once import once

from tidemill.catalog.model import Table
from tidemill.catalog.store import Catalog
from tidemill.clock import FakeClock

Open = Callable[[], Catalog]


@pytest.fixture(params=["sqlite", "postgres"])
def both_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    return request.getfixturevalue("postgres").new_url()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_000_000_000)


@pytest.fixture
def open_catalog(both_url: str, clock: FakeClock) -> Iterator[Open]:
    opened: list[Catalog] = []

    def open_one() -> Catalog:
        for each in opened:
            each.close()
        opened.append(Catalog.open(both_url, clock))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def catalog(open_catalog: Open) -> Catalog:
    return open_catalog()


@pytest.fixture
def cars(catalog: Catalog) -> Table:
    return once(catalog).create_table(new_table())
