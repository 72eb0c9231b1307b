"""Memory: streaming tables, recovered from their logs, and the pipeline that keeps history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tidemill.assembly.events import Events
from tidemill.assembly.store import Store
from tidemill.closing import Closing
from tidemill.hot.log import Files
from tidemill.hot.numbers import HistoryNumbers
from tidemill.hot.recovery import Recovered
from tidemill.hot.table import HotTable
from tidemill.hot.tier import HotTier
from tidemill.pipeline.board import JobBoard
from tidemill.pipeline.calm import Calm
from tidemill.pipeline.executor import Executor, make_executor
from tidemill.pipeline.jobs import Pipeline
from tidemill.pipeline.keeping import Keeping
from tidemill.pipeline.lifetime import Lifetime
from tidemill.pipeline.spark import SparkRuntime


@dataclass(frozen=True)
class Memory:
    runtime: SparkRuntime
    executor: Executor
    life: Lifetime
    pipeline: Pipeline
    keeping: Keeping
    tier: HotTier
    recovered: list[Recovered]


def open_memory(
    store: Store, files: Files, events: Events, closing: Closing, busy_s: Callable[[], float]
) -> Memory:
    """``busy_s`` says for how long statements have been running so far."""
    master = store.settings["spark_master"]
    runtime = SparkRuntime(
        master, scratch=store.path / "spark", memory_bytes=store.settings["spark_memory"]
    )
    executor = make_executor(master, runtime)
    closing.add(runtime.stop, executor.close)
    pipeline = Pipeline(executor, JobBoard(), store.clock)
    life = Lifetime(store.settings["lifetime"], executor, Calm(busy_s).is_calm)
    tables: dict[int, HotTable] = {}
    keeping = Keeping(
        store.catalog,
        tables,
        pipeline,
        store.storage,
        store.pins.held,
        store.keys,
        store.clock,
        store.settings,
        life,
        events.looks,
    )
    tier = make_tier(store, files, tables, keeping, events)
    closing.add(tier.close)
    snapshot = store.catalog.snapshot()
    streaming = (table for table in snapshot.tables.values() if table.is_streaming)
    recovered = tier.open(
        streaming, partial(HistoryNumbers.of, snapshot, store.catalog.records.changes)
    )
    return Memory(runtime, executor, life, pipeline, keeping, tier, recovered)


def make_tier(
    store: Store, files: Files, tables: dict[int, HotTable], keeping: Keeping, events: Events
) -> HotTier:
    return HotTier(
        store.path / "log",
        store.clock,
        files,
        store.settings["backpressure_wait"],
        store.settings["segment_size"],
        store.settings["batch_interval"],
        tables,
        keeping,
        events.published,
    )
