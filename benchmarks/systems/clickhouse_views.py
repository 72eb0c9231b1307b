"""chdb with the six AIM queries as ClickHouse keeps them: one materialized view a query.

A materialized view there is a query over each inserted block whose result goes to another table;
tables of the AggregatingMergeTree kind add such partial results up, in the background and finally
when they are read. Q5 and Q7 need a customer's attributes at insert: these lie in a Join table in
memory, so that a block looks its own customers up instead of building a hash of all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from benchmarks.aim_data import Calls
from benchmarks.aim_questions import QUESTIONS
from benchmarks.peers import FOLDER
from benchmarks.systems.views import ViewSystem

sys.path.append(str(FOLDER))

import chdb  # type: ignore[import-not-found]  # in a folder of its own
from chdb.session import Session  # type: ignore[import-not-found]

_DURABLE = "fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1"
_COLUMNS = (
    "ts DateTime64(6, 'UTC'), entity_id Int64, duration Int32, cost Float64, "
    "long_distance Bool, local_calls Nullable(Int32), local_cost Float64, "
    "long_distance_cost Float64"
)
_CUSTOMERS = (
    "id Int64, city_zip Int32, region_id Int32, type Int32, category Int32, value_type Int32"
)
_SUM, _MAX = "SimpleAggregateFunction(sum, {})", "SimpleAggregateFunction(max, {})"
# question: keys and states of its table, and the query over a block
_KEPT = {
    "q1": (
        {"week": "Date", "entity_id": "Int64"},
        {"n_local": _SUM.format("UInt64"), "t_duration": _SUM.format("Int64")},
        "SELECT toMonday(ts) AS week, entity_id, count(local_calls) AS n_local, "
        "sum(duration) AS t_duration FROM events GROUP BY week, entity_id",
    ),
    "q2": (
        {"week": "Date", "entity_id": "Int64"},
        {"num_calls": _SUM.format("UInt64"), "max_cost": _MAX.format("Float64")},
        "SELECT toMonday(ts) AS week, entity_id, count() AS num_calls, max(cost) AS max_cost "
        "FROM events GROUP BY week, entity_id",
    ),
    "q3": (
        {"week": "Date", "entity_id": "Int64"},
        {
            "num_calls": _SUM.format("UInt64"),
            "t_cost": _SUM.format("Float64"),
            "t_duration": _SUM.format("Int64"),
        },
        "SELECT toMonday(ts) AS week, entity_id, count() AS num_calls, sum(cost) AS t_cost, "
        "sum(duration) AS t_duration FROM events GROUP BY week, entity_id",
    ),
    "q4": (
        {"week": "Date", "entity_id": "Int64"},
        {"num_calls": _SUM.format("UInt64"), "duration_calls": _SUM.format("Int64")},
        "SELECT toMonday(ts) AS week, entity_id, count() AS num_calls, "
        "sum(duration) AS duration_calls FROM events WHERE NOT long_distance "
        "GROUP BY week, entity_id",
    ),
    "q5": (
        {"week": "Date", "region_id": "Int32"},
        {"cost_long": _SUM.format("Float64"), "cost_local": _SUM.format("Float64")},
        "SELECT toMonday(ts) AS week, joinGet('customers_join', 'region_id', entity_id) "
        "AS region_id, sum(long_distance_cost) AS cost_long, sum(local_cost) AS cost_local "
        "FROM events WHERE joinGet('customers_join', 'type', entity_id) = 2 "
        "AND joinGet('customers_join', 'category', entity_id) = 1 GROUP BY week, region_id",
    ),
    "q7": (
        {"week": "Date"},
        {"t_cost": _SUM.format("Float64"), "t_duration": _SUM.format("Int64")},
        "SELECT toMonday(ts) AS week, sum(cost) AS t_cost, sum(duration) AS t_duration "
        "FROM events WHERE joinGet('customers_join', 'value_type', entity_id) = 2 GROUP BY week",
    ),
}
_WEEK = "week = toMonday(now('UTC'))"
_READS = {
    "q1": (
        "SELECT avgOrNull(t_duration) FROM (SELECT sum(t_duration) AS t_duration FROM q1 "
        f"WHERE {_WEEK} GROUP BY entity_id HAVING sum(n_local) > 2)"
    ),
    "q2": (
        "SELECT maxOrNull(max_cost) FROM (SELECT max(max_cost) AS max_cost FROM q2 "
        f"WHERE {_WEEK} GROUP BY entity_id HAVING sum(num_calls) > 2)"
    ),
    "q3": (
        "SELECT sum(c) / sum(d) FROM (SELECT sum(num_calls) AS n, sum(t_cost) AS c, "
        f"sum(t_duration) AS d FROM q3 WHERE {_WEEK} GROUP BY entity_id) GROUP BY n LIMIT 100"
    ),
    "q4": (
        "SELECT city_zip, avg(n), sum(d) FROM (SELECT entity_id, sum(num_calls) AS n, "
        f"sum(duration_calls) AS d FROM q4 WHERE {_WEEK} GROUP BY entity_id "
        "HAVING n > 4 AND d > 25) AS e JOIN customers AS c ON e.entity_id = c.id GROUP BY city_zip"
    ),
    "q5": (
        "SELECT region_id, sum(cost_long), sum(cost_local) FROM q5 "
        f"WHERE {_WEEK} GROUP BY region_id"
    ),
    "q7": f"SELECT sum(t_cost) / sum(t_duration) FROM q7 WHERE {_WEEK}",
}


class ChdbViews(ViewSystem):
    def __init__(self, folder: Path, calls: Calls) -> None:
        super().__init__(folder, calls)
        self.session = Session(str(folder / "chdb"))
        run = self.session.query
        run("CREATE DATABASE IF NOT EXISTS bench ENGINE = Atomic")
        run("USE bench")
        run(f"CREATE TABLE customers ({_CUSTOMERS}) ENGINE = MergeTree ORDER BY id")
        run(f"CREATE TABLE customers_join ({_CUSTOMERS}) ENGINE = Join(ANY, LEFT, id)")
        customers = calls.customer_table()
        run("INSERT INTO customers SELECT * FROM Python(customers)")
        run("INSERT INTO customers_join SELECT * FROM customers")
        del customers
        run(
            f"CREATE TABLE events ({_COLUMNS}) ENGINE = MergeTree ORDER BY (entity_id, ts) "
            f"SETTINGS {_DURABLE}"
        )
        for name in QUESTIONS:
            keys, states, query = _KEPT[name]
            columns = ", ".join(f"{key} {kind}" for key, kind in {**keys, **states}.items())
            run(
                f"CREATE TABLE {name} ({columns}) ENGINE = AggregatingMergeTree "
                f"ORDER BY ({', '.join(keys)}) SETTINGS {_DURABLE}"
            )
            run(f"CREATE MATERIALIZED VIEW {name}_view TO {name} AS {query}")

    def settings(self) -> dict[str, str]:
        return {
            "version": f"{chdb.__version__} (engine {chdb.engine_version})",
            "views": "a materialized view a query, into AggregatingMergeTree tables",
            "durability": _DURABLE,
        }

    def insert(self, prepared: pa.Table) -> None:
        self.session.query("INSERT INTO events SELECT * FROM Python(prepared)")

    def read(self, question: str) -> pa.Table:
        return self.session.query(_READS[question], "ArrowTable")

    def close(self) -> None:
        self.session.close()
