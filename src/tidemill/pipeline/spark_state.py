"""How Spark is doing: the row of ``tidemill.spark``."""

from __future__ import annotations

from typing import Any

from tidemill.config import Settings
from tidemill.pipeline.executor import INLINE, Executor
from tidemill.pipeline.spark import SparkRuntime


def spark_rows(
    runtime: SparkRuntime, executor: Executor, settings: Settings
) -> list[dict[str, Any]]:
    failure = runtime.failure()
    row = {
        "state": INLINE if executor.place == INLINE else runtime.state,
        "master": settings["spark_master"],
        "lifetime": settings["lifetime"],
        "memory_bytes": settings["spark_memory"],
        "java_pid": runtime.pid,
        "last_error": None if failure is None else " ".join(str(failure).split()),
    }
    return [row]
