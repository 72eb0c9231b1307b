"""The AIM queries in PyFlink: a program of its own, run by the Python of Flink's venv.

It imports nothing of this project. Events come from an Arrow file (as PyFlink takes them: from
pandas, sent to the JVM as Arrow), customers from CSV with a key; every query is SQL of the Table
API, so that all work happens in the JVM. Customers are joined after their calls were aggregated:
joined before, Flink would keep every call in its state. All six queries are one statement set, and
so one job, which scans the calls once; what they find goes to the blackhole sink. ``aggregates``
keeps only what is below the queries, all aggregates of a customer in one state.

Each line of standard input is a request as JSON, each answer a line that begins with ``=`` on
standard output: ``{"do": "run", "what": "views" | "aggregates", "events": path}`` gives the job's
seconds, ``{"do": "answers", "events": path}`` the answers, from the changes that Flink emits.
"""

from __future__ import annotations

import collections
import json
import sys
from typing import Any

import pyarrow.feather
from pyflink.common import Configuration, RowKind
from pyflink.table import DataTypes, EnvironmentSettings, StreamTableEnvironment
from pyflink.version import __version__

SPLIT_ROWS = 10_000
_BUNDLES = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "10 s",
    "table.exec.mini-batch.size": "100000",
}
_EVENTS = {
    "ts": DataTypes.TIMESTAMP(6),
    "entity_id": DataTypes.BIGINT(),
    "duration": DataTypes.INT(),
    "cost": DataTypes.DOUBLE(),
    "long_distance": DataTypes.BOOLEAN(),
    "local_calls": DataTypes.INT(),
    "local_cost": DataTypes.DOUBLE(),
    "long_distance_cost": DataTypes.DOUBLE(),
}
_CUSTOMERS = (
    "id BIGINT, city_zip INT, region_id INT, type INT, category INT, value_type INT, "
    "PRIMARY KEY (id) NOT ENFORCED"
)
_MINUTES = "CAST(duration AS BIGINT)"
_VIEWS = {
    "calls": "SELECT * FROM events WHERE ts >= FLOOR(LOCALTIMESTAMP TO WEEK)",
    "totals": (
        f"SELECT entity_id, count(local_calls) AS n_local, sum({_MINUTES}) AS t_duration, "
        "max(cost) AS max_cost, count(*) AS num_calls, sum(cost) AS t_cost, "
        "count(*) FILTER (WHERE NOT long_distance) AS near_calls, "
        f"sum({_MINUTES}) FILTER (WHERE NOT long_distance) AS near_duration, "
        "sum(long_distance_cost) AS cost_long, sum(local_cost) AS cost_local "
        "FROM calls GROUP BY entity_id"
    ),
}
# question: the columns of its answer, and the query
_QUESTIONS = {
    "q1": (
        "a DOUBLE",
        f"SELECT avg(CAST(d AS DOUBLE)) FROM (SELECT sum({_MINUTES}) AS d FROM calls "
        "GROUP BY entity_id HAVING count(local_calls) > 2)",
    ),
    "q2": (
        "a DOUBLE",
        "SELECT max(m) FROM (SELECT max(cost) AS m FROM calls GROUP BY entity_id "
        "HAVING count(*) > 2)",
    ),
    "q3": (
        "a DOUBLE",
        f"SELECT sum(c) / sum(d) FROM (SELECT sum(cost) AS c, sum({_MINUTES}) AS d, "
        "count(*) AS n FROM calls GROUP BY entity_id) GROUP BY n",
    ),
    "q4": (
        "a INT, b DOUBLE, c BIGINT",
        "SELECT city_zip, avg(CAST(n AS DOUBLE)), sum(d) FROM (SELECT entity_id, "
        f"count(*) AS n, sum({_MINUTES}) AS d FROM calls WHERE NOT long_distance "
        "GROUP BY entity_id HAVING count(*) > 4 AND sum(duration) > 25) AS e "
        "JOIN customers ON e.entity_id = id GROUP BY city_zip",
    ),
    "q5": (
        "a INT, b DOUBLE, c DOUBLE",
        "SELECT region_id, sum(far), sum(near) FROM (SELECT entity_id, "
        "sum(long_distance_cost) AS far, sum(local_cost) AS near FROM calls GROUP BY entity_id) "
        "AS e JOIN customers ON e.entity_id = id WHERE type = 2 AND category = 1 "
        "GROUP BY region_id",
    ),
    "q7": (
        "a DOUBLE",
        f"SELECT sum(c) / sum(d) FROM (SELECT entity_id, sum(cost) AS c, sum({_MINUTES}) AS d "
        "FROM calls GROUP BY entity_id) AS e JOIN customers ON e.entity_id = id "
        "WHERE value_type = 2",
    ),
}
_TOTALS = (
    "a BIGINT, b BIGINT, c BIGINT, d DOUBLE, e BIGINT, f DOUBLE, g BIGINT, h BIGINT, i DOUBLE, "
    "j DOUBLE"
)


class Flink:
    """One table environment; its jobs run in a small cluster inside the JVM."""

    def __init__(self, settings: dict[str, str], customers: str) -> None:
        configuration = Configuration()
        for name, value in settings.items():
            configuration.set_string(name, value)
        made = EnvironmentSettings.new_instance().in_streaming_mode()
        self.tables = StreamTableEnvironment.create(
            environment_settings=made.with_configuration(configuration).build()
        )
        self.tables.execute_sql(
            f"CREATE TEMPORARY TABLE customers ({_CUSTOMERS}) WITH ('connector' = 'filesystem', "
            f"'path' = '{customers}', 'format' = 'csv')"
        )
        sinks = {name: columns for name, (columns, _) in _QUESTIONS.items()}
        for name, columns in {**sinks, "totals": _TOTALS}.items():
            self.tables.execute_sql(
                f"CREATE TEMPORARY TABLE into_{name} ({columns}) WITH ('connector' = 'blackhole')"
            )

    def _use(self, events: str) -> int:
        """Let the views read these events."""
        held = pyarrow.feather.read_table(events)
        for name in ("totals", "calls", "events"):
            self.tables.drop_temporary_view(name)
        row = DataTypes.ROW([DataTypes.FIELD(name, kind) for name, kind in _EVENTS.items()])
        splits = max(2, held.num_rows // SPLIT_ROWS)
        made = self.tables.from_pandas(held.to_pandas(), row, splits_num=splits)
        self.tables.create_temporary_view("events", made)
        for name, query in _VIEWS.items():
            self.tables.execute_sql(f"CREATE TEMPORARY VIEW {name} AS {query}")
        return int(held.num_rows)

    def run(self, what: str, events: str) -> dict[str, Any]:
        """Run a job to its end; its own account of the time, without submission."""
        rows = self._use(events)
        statements = self.tables.create_statement_set()
        if what == "views":
            for name, (_, query) in _QUESTIONS.items():
                statements.add_insert_sql(f"INSERT INTO into_{name} {query}")
        else:
            statements.add_insert_sql("INSERT INTO into_totals SELECT * FROM totals")
        client = statements.execute().get_job_client()
        assert client is not None
        took_ms = client.get_job_execution_result().result().get_net_runtime()
        return {"rows": rows, "seconds": took_ms / 1_000}

    def answers(self, events: str) -> dict[str, Any]:
        """What each query has emitted in the end: every change applied in its order. Changes are
        taken in bundles here, since each that reaches Python costs a millisecond."""
        self._use(events)
        for name, value in _BUNDLES.items():
            self.tables.get_config().set(name, value)
        found = {}
        for name, (_, query) in _QUESTIONS.items():
            rows: collections.Counter[tuple[Any, ...]] = collections.Counter()
            with self.tables.execute_sql(query).collect() as changes:
                for change in changes:
                    is_gone = change.get_row_kind() in (RowKind.UPDATE_BEFORE, RowKind.DELETE)
                    rows[tuple(change)] += -1 if is_gone else 1
            found[name] = list(rows.elements())
        self.tables.get_config().set("table.exec.mini-batch.enabled", "false")
        return found


def main() -> None:
    first = json.loads(sys.stdin.readline())
    flink = Flink(first["settings"], first["customers"])
    _answer({"version": __version__})
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "run":
            _answer(flink.run(request["what"], request["events"]))
        else:
            _answer(flink.answers(request["events"]))


def _answer(value: dict[str, Any]) -> None:
    print("=" + json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
