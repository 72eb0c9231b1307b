"""Digests on a real Spark: specs travel to workers, and files are the same as in threads."""

from __future__ import annotations

from pathlib import Path

import pytest
from digest_kit import HOUR_US, NEWEST, START_US, opened

from tidemill.pipeline.executor import SparkExecutor
from tidemill.pipeline.spark import SparkRuntime

pytestmark = pytest.mark.spark


def test_every_job_writes_partials(
    shared_spark: SparkRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.pipeline.digest_compact.FILES_MAX", 1)
    with opened(tmp_path, executor=SparkExecutor(shared_spark)) as stream:
        digests = stream.digest(), stream.digest(NEWEST)
        for hour in range(3):
            at_us = START_US + hour * HOUR_US
            stream.append([(at_us, 1, "a", 0.5), (at_us + 1, None, "b", None)])
        stream.move()
        stream.load([(START_US, 1, "c", 0.5)])
        assert stream.compact_digest(digests[0]).files == 1
        later = stream.digest()
        assert stream.backfill(later) == 0
        stream.check(*digests, later)
