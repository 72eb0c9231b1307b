"""What the tests of the pipeline share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pipeline_kit import Warehouse

from tidemill.clock import FakeClock
from tidemill.history.storage import Storage
from tidemill.pipeline.board import JobBoard
from tidemill.pipeline.executor import InlineExecutor
from tidemill.pipeline.jobs import Pipeline


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    executor = InlineExecutor(2)
    pipeline = Pipeline(executor, JobBoard(), FakeClock(1_700_000_000_000_000))
    yield pipeline
    pipeline.close()
    executor.close()


@pytest.fixture
def warehouse(tmp_path: Path, pipeline: Pipeline) -> Warehouse:
    return Warehouse(Storage(str(tmp_path / "data")), pipeline)
