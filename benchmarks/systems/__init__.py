"""The contenders: Tidemill and its peers, each with the same face (``base.System``)."""

from __future__ import annotations

# name: where the class lives; a module is imported only in the worker that runs it
SYSTEMS = {
    "tidemill": "benchmarks.systems.tide:Tide",
    "duckdb": "benchmarks.systems.duck:DuckOnDisk",
    "duckdb-memory": "benchmarks.systems.duck:DuckInMemory",
    "duckdb-arrow": "benchmarks.systems.duck:DuckOnArrow",
    "postgres": "benchmarks.systems.postgres:Postgres",
    "sqlite": "benchmarks.systems.sqlite:Sqlite",
    "chdb": "benchmarks.systems.clickhouse:Chdb",
}
