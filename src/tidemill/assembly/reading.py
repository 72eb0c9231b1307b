"""Reading: plans, routes and views over memory and history; loads, which write to history."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tidemill.assembly.memory import Memory
from tidemill.assembly.store import Store
from tidemill.executions import Executions
from tidemill.federation.costs import RouteCosts
from tidemill.federation.reference_rows import ReferenceRows
from tidemill.federation.routes import Router, Spark
from tidemill.federation.runner import Runner, ViewReader
from tidemill.federation.scatter import Scatter
from tidemill.federation.system import SystemTables
from tidemill.history.guard import Guard
from tidemill.pipeline.executor import InlineExecutor
from tidemill.pipeline.loads.appending import Appending
from tidemill.pipeline.loads.environment import WarehouseLoadEnvironment
from tidemill.pipeline.loads.loads import Loads
from tidemill.pipeline.spark_sql import SparkSqlEngine
from tidemill.pipeline.spark_state import spark_rows
from tidemill.sql.spark import SPARK_SETTINGS
from tidemill.statements.spark_route import SparkSqlRoute
from tidemill.stream.counting import LiveRows
from tidemill.system.registry import WarehouseTables
from tidemill.system.state import ContributedRows, State
from tidemill.views.registry import ViewEnvironment, Views


@dataclass(frozen=True)
class Reading:
    guard: Guard
    loads: Loads
    views: Views
    view_rows: ContributedRows
    router: Router


def build_reading(store: Store, memory: Memory, executions: Executions) -> Reading:
    loads = build_loads(store, memory)
    view_rows = ContributedRows()
    costs = RouteCosts(memory.tier.tables, store.clock)
    system = build_system_tables(store, memory, loads, view_rows, executions, costs)
    guard = Guard(str(store.path), store.storage)

    def make_runner(views: ViewReader) -> Runner:
        return Runner(
            store.duck,
            memory.tier.tables,
            system,
            store.clock,
            store.catalog,
            store.pins,
            store.storage,
            guard,
            views,
            ReferenceRows(lambda: store.references.changes),
        )

    environment = ViewEnvironment(
        store.catalog,
        memory.tier,
        store.duck,
        store.references,
        store.storage,
        memory.pipeline,
        store.clock,
    )
    views = Views(environment, make_runner)
    router = build_router(store, memory, views.runner, costs)
    return Reading(guard, loads, views, view_rows, router)


def build_loads(store: Store, memory: Memory) -> Loads:
    tables = memory.tier.tables
    return Loads(
        store.catalog,
        WarehouseLoadEnvironment(store.catalog, tables, store.keys),
        Appending(store.catalog, tables, store.clock),
        memory.pipeline,
        store.storage,
        memory.life,
        memory.keeping.publishing.publish,
        store.clock,
    )


def build_system_tables(
    store: Store,
    memory: Memory,
    loads: Loads,
    view_rows: ContributedRows,
    executions: Executions,
    costs: RouteCosts,
) -> SystemTables:
    catalog = store.catalog
    state = State(
        catalog.snapshot,
        memory.tier.tables,
        store.references.row_count,
        store.settings,
        jobs=memory.pipeline.board.records,
        moves=memory.keeping.mover.records,
        packages=catalog.records.packages,
        snapshots=catalog.snapshots,
        sources_state=loads.status,
        live_rows=LiveRows(store.duck, store.storage),
        clock=store.clock,
        views=view_rows,
        spark=partial(spark_rows, memory.runtime, memory.executor, store.settings),
        queries=executions.running,
        costs=costs.rows,
    )
    return WarehouseTables(state)


def build_router(store: Store, memory: Memory, runner: Runner, costs: RouteCosts) -> Router:
    executor = memory.executor
    scatter = Scatter(executor, store.duck, store.storage)
    spark = Spark(lambda: executor.is_ready, memory.life.foresee, store.settings["spark_scan"])
    if isinstance(executor, InlineExecutor):
        return Router(runner, scatter, spark, costs)
    engine = SparkSqlEngine(memory.runtime, SPARK_SETTINGS)
    route = SparkSqlRoute(engine, store.duck, runner, store.storage)
    return Router(runner, scatter, spark, costs, route)
