"""PostgreSQL with the six AIM queries, in the two ways that it offers.

*Triggers*: after every COPY, one trigger reads the new rows as a transition table, aggregates them
and adds the result to one table a query (INSERT … ON CONFLICT DO UPDATE): eager maintenance,
written by hand. *Refresh*: materialized views, computed anew by REFRESH MATERIALIZED VIEW before a
read. Rows come by binary COPY, made beforehand; writer and reader have a connection each.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.aim_data import Calls
from benchmarks.aim_questions import QUESTIONS, WEEK
from benchmarks.systems.base import Row
from benchmarks.systems.postgres import Server
from benchmarks.systems.views import ViewSystem

_COLUMNS = (
    "ts timestamp, entity_id bigint, duration integer, cost double precision, "
    "long_distance boolean, local_cost double precision, long_distance_cost double precision, "
    "local_calls integer"
)
_CUSTOMERS = (
    "id bigint PRIMARY KEY, city_zip integer, region_id integer, type integer, "
    "category integer, value_type integer"
)
_SHOWN = ("fsync", "synchronous_commit", "shared_buffers", "work_mem", "max_wal_size")
_HEADER = b"PGCOPY\n\xff\r\n\0" + b"\0" * 8
_TRAILER = b"\xff\xff"
_PG_EPOCH_US = 946_684_800_000_000  # 2000-01-01
_FIELDS = {  # as they are sent; the one that can be NULL comes last
    "ts": ">i8",
    "entity_id": ">i8",
    "duration": ">i4",
    "cost": ">f8",
    "long_distance": "u1",
    "local_cost": ">f8",
    "long_distance_cost": ">f8",
    "local_calls": ">i4",
}
_NOW_WEEK = "week = date_trunc('week', localtimestamp)"
# question: keys and states of its table, how two states become one, the rows to aggregate, and
# the query over the table
_KEYS = "week timestamp, entity_id bigint"
_WEEKS = "date_trunc('week', ts) AS week, entity_id"
_KEPT = {
    "q1": (
        f"{_KEYS}, n_local bigint, t_duration bigint, PRIMARY KEY (entity_id, week)",
        f"SELECT {_WEEKS}, count(local_calls), sum(duration) FROM fresh GROUP BY 1, 2",
        "(entity_id, week)",
        {"n_local": "+", "t_duration": "+"},
        f"SELECT avg(t_duration) FROM q1_kept WHERE {_NOW_WEEK} AND n_local > 2",
    ),
    "q2": (
        f"{_KEYS}, num_calls bigint, max_cost double precision, PRIMARY KEY (entity_id, week)",
        f"SELECT {_WEEKS}, count(*), max(cost) FROM fresh GROUP BY 1, 2",
        "(entity_id, week)",
        {"num_calls": "+", "max_cost": "greatest"},
        f"SELECT max(max_cost) FROM q2_kept WHERE {_NOW_WEEK} AND num_calls > 2",
    ),
    "q3": (
        f"{_KEYS}, num_calls bigint, t_cost double precision, t_duration bigint, "
        "PRIMARY KEY (entity_id, week)",
        f"SELECT {_WEEKS}, count(*), sum(cost), sum(duration) FROM fresh GROUP BY 1, 2",
        "(entity_id, week)",
        {"num_calls": "+", "t_cost": "+", "t_duration": "+"},
        f"SELECT sum(t_cost) / sum(t_duration) FROM q3_kept WHERE {_NOW_WEEK} "
        "GROUP BY num_calls LIMIT 100",
    ),
    "q4": (
        f"{_KEYS}, num_calls bigint, duration_calls bigint, PRIMARY KEY (entity_id, week)",
        f"SELECT {_WEEKS}, count(*), sum(duration) FROM fresh WHERE NOT long_distance "
        "GROUP BY 1, 2",
        "(entity_id, week)",
        {"num_calls": "+", "duration_calls": "+"},
        "SELECT city_zip, avg(num_calls), sum(duration_calls) FROM q4_kept AS e "
        f"JOIN customers AS c ON e.entity_id = c.id WHERE {_NOW_WEEK} AND num_calls > 4 "
        "AND duration_calls > 25 GROUP BY city_zip",
    ),
    "q5": (
        "week timestamp, region_id integer, cost_long double precision, "
        "cost_local double precision, PRIMARY KEY (region_id, week)",
        "SELECT date_trunc('week', ts), region_id, sum(long_distance_cost), sum(local_cost) "
        "FROM fresh JOIN customers AS c ON entity_id = c.id WHERE type = 2 AND category = 1 "
        "GROUP BY 1, 2",
        "(region_id, week)",
        {"cost_long": "+", "cost_local": "+"},
        f"SELECT region_id, cost_long, cost_local FROM q5_kept WHERE {_NOW_WEEK}",
    ),
    "q7": (
        "week timestamp PRIMARY KEY, t_cost double precision, t_duration bigint",
        "SELECT date_trunc('week', ts), sum(cost), sum(duration) FROM fresh "
        "JOIN customers AS c ON entity_id = c.id WHERE value_type = 2 GROUP BY 1",
        "(week)",
        {"t_cost": "+", "t_duration": "+"},
        f"SELECT t_cost / t_duration FROM q7_kept WHERE {_NOW_WEEK}",
    ),
}


class _PostgresViews(ViewSystem):
    how = ""

    def __init__(self, folder: Path, calls: Calls) -> None:
        super().__init__(folder, calls)
        self.server = Server(folder)
        self._threads = threading.local()
        self._connections: list[psycopg.Connection] = []
        try:
            self._define()
        except BaseException:
            self.close()
            raise

    def _define(self) -> None:
        run = self.connection.execute
        run(f"CREATE TABLE customers ({_CUSTOMERS})")
        customers = self.calls.customer_table()
        with (
            self.connection.cursor() as cursor,
            cursor.copy("COPY customers FROM STDIN") as copy,
        ):
            for row in zip(*(column.to_pylist() for column in customers.columns), strict=True):
                copy.write_row(row)
        run("VACUUM ANALYZE customers")
        run(f"CREATE TABLE events ({_COLUMNS})")
        self.define_views()

    def define_views(self) -> None:
        raise NotImplementedError

    @property
    def connection(self) -> psycopg.Connection:
        """The connection of this thread."""
        found: psycopg.Connection | None = getattr(self._threads, "connection", None)
        if found is None:
            found = psycopg.connect(self.server.url(), autocommit=True)
            found.execute("SET timezone = 'UTC'")
            self._threads.connection = found
            self._connections.append(found)
        return found

    def settings(self) -> dict[str, str]:
        told = {"version": str(self.connection.info.server_version // 10_000), "views": self.how}
        for name in _SHOWN:
            found = self.connection.execute(f"SHOW {name}").fetchone()
            assert found is not None
            told[name] = str(found[0])
        return {**told, "durability": "one COPY a batch, each a commit"}

    def prepare(self, batch: pa.RecordBatch) -> bytes:
        return _HEADER + encode(batch) + _TRAILER

    def insert(self, prepared: bytes) -> None:
        columns = ", ".join(_FIELDS)
        with (
            self.connection.cursor() as cursor,
            cursor.copy(f"COPY events ({columns}) FROM STDIN (FORMAT BINARY)") as copy,
        ):
            copy.write(prepared)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self.server.stop()


class PostgresTriggers(_PostgresViews):
    how = "a table a query, kept by a statement trigger (upserts)"

    def define_views(self) -> None:
        run = self.connection.execute
        upserts = []
        for name, (columns, query, keys, states, _) in _KEPT.items():
            run(f"CREATE TABLE {name}_kept ({columns}) WITH (fillfactor = 70)")
            sets = ", ".join(
                f"{state} = {_merged(f'kept.{state}', f'excluded.{state}', by)}"
                for state, by in states.items()
            )
            upserts.append(
                f"INSERT INTO {name}_kept AS kept {query} ON CONFLICT {keys} DO UPDATE SET {sets};"
            )
        body = "\n".join(upserts)
        run(
            "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN\n"
            f"{body}\nRETURN NULL; END $$"
        )
        run(
            "CREATE TRIGGER keeps AFTER INSERT ON events REFERENCING NEW TABLE AS fresh "
            "FOR EACH STATEMENT EXECUTE FUNCTION keep()"
        )

    def read(self, question: str) -> list[Row]:
        return self.connection.execute(_KEPT[question][-1]).fetchall()


class PostgresRefresh(_PostgresViews):
    how = "six materialized views, refreshed before a read"

    def define_views(self) -> None:
        week = WEEK.replace("now()", "localtimestamp")
        for name, text in QUESTIONS.items():
            self.connection.execute(f"CREATE MATERIALIZED VIEW {name} AS {text.format(week=week)}")

    def refresh(self, question: str) -> None:
        self.connection.execute(f"REFRESH MATERIALIZED VIEW {question}")

    def read(self, question: str) -> list[Row]:
        return self.connection.execute(f"SELECT * FROM {question}").fetchall()


def _merged(kept: str, new: str, by: str) -> str:
    return f"{kept} + {new}" if by == "+" else f"{by}({kept}, {new})"


def encode(batch: pa.RecordBatch) -> bytes:
    """The rows of a batch in PostgreSQL's binary COPY format, without header and trailer."""
    layout: list[tuple[str, str]] = [("count", ">i2")]
    for name, kind in _FIELDS.items():
        layout += [(f"{name}_len", ">i4"), (name, kind)]
    rows = np.empty(batch.num_rows, dtype=np.dtype(layout))
    rows["count"] = len(_FIELDS)
    for name, kind in _FIELDS.items():
        column = batch.column(name)
        if name == "ts":
            column = pc.subtract(column.view(pa.int64()), _PG_EPOCH_US)
        rows[f"{name}_len"] = np.dtype(kind).itemsize
        filled = column.fill_null(0) if column.null_count else column
        rows[name] = filled.to_numpy(zero_copy_only=False)
    is_null = batch.column("local_calls").is_null().to_numpy(zero_copy_only=False)
    rows["local_calls_len"][is_null] = -1
    flat = rows.view(np.uint8).reshape(batch.num_rows, -1)
    is_sent = np.ones(flat.shape, dtype=bool)
    is_sent[is_null, -np.dtype(_FIELDS["local_calls"]).itemsize :] = False
    return flat[is_sent].tobytes()
