"""Options and fixtures of the simulations: ``pytest tests/sim --kills 500 --sim-seed 7``."""

from __future__ import annotations

import pytest

KILLS_DEFAULT = 20
SEED_DEFAULT = 20_240_101
EXAMPLES_DEFAULT = 15


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=KILLS_DEFAULT, help="how often a writer is shot")
    parser.addoption("--sim-examples", type=int, default=EXAMPLES_DEFAULT, help="random histories")
    parser.addoption("--sim-seed", type=int, default=SEED_DEFAULT, help="seed of the simulations")


@pytest.fixture(scope="session")
def kills(request: pytest.FixtureRequest) -> int:
    # When pytest was started for all tests, this file was read too late to add its options.
    return int(request.config.getoption("--kills", KILLS_DEFAULT))


@pytest.fixture(scope="session")
def sim_seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--sim-seed", SEED_DEFAULT))


@pytest.fixture(scope="session")
def sim_examples(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--sim-examples", EXAMPLES_DEFAULT))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> int:
    """Blocks of 64 rows, so that a small test has many of them."""
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS", 64)
    monkeypatch.setattr("tidemill.hot.published.BLOCK_ROWS_MAX", 128)
    monkeypatch.setattr("tidemill.hot.row_writer.IN_PLACE_BYTES_MIN", 2_048)
    monkeypatch.setattr("tidemill.hot.piece.MERGE_BYTES_MAX", 4_096)
    return 64
