"""Fixtures that several rooms share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from postgres import PostgresServer

QUERIES_DEFAULT = 1_040


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--queries",
        type=int,
        default=QUERIES_DEFAULT,
        help="random queries on the local route; a tenth of it, but 100 at least, on each other",
    )


@pytest.fixture(scope="session")
def query_count(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--queries"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL, started for the first test that asks for it."""
    server = PostgresServer()
    yield server
    server.stop()
