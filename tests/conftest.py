"""Fixtures that several rooms share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from postgres import PostgresServer
from shared_spark import SharedSpark

from tidemill.pipeline.spark import SparkRuntime

QUERIES_DEFAULT = 1_040
FLIPS_DEFAULT = 64


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--queries",
        type=int,
        default=QUERIES_DEFAULT,
        help="random queries on the local route; a tenth of it, but 100 at least, on each other",
    )
    parser.addoption(
        "--flips",
        type=int,
        default=FLIPS_DEFAULT,
        help="bits flipped in files of a warehouse, one at a time",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What uses the tests' Spark is a test with Spark, whether it says so or not."""
    for item in items:
        if "shared_spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def query_count(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--queries"))


@pytest.fixture(scope="session")
def flip_count(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--flips"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL, started for the first test that asks for it."""
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def spark_of_tests() -> Iterator[SharedSpark]:
    shared = SharedSpark()
    yield shared
    shared.stop()


@pytest.fixture(scope="module")
def shared_spark(spark_of_tests: SharedSpark) -> SparkRuntime:
    """A running Spark; warehouses opened meanwhile use it."""
    return spark_of_tests.started()


@pytest.fixture(scope="module")
def no_spark(spark_of_tests: SharedSpark) -> None:
    """No Spark runs in this process, so that a test can start its own."""
    spark_of_tests.stop()
