"""Systems under readings and their corrections: Tidemill, and DuckDB on disk.

``change`` takes one correction or deletion, as it comes; a system that can take many at once says
so (``takes_blocks``) and gets a whole block.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import tidemill
from benchmarks.changes_data import TOTALS, Block, reference_tables, time_of
from benchmarks.systems.tide import wait_for_jobs, wait_for_spark

COLUMNS_SQL = "ts TIMESTAMP, id BIGINT, sensor INTEGER, " + ", ".join(
    f"v{at} DOUBLE" for at in range(1, 7)
)

SYSTEMS = {
    "tidemill": "benchmarks.systems.changing:Tide",
    "tidemill-eager": "benchmarks.systems.changing:TideEager",
    "duckdb": "benchmarks.systems.changing:Duck",
    "duckdb-batches": "benchmarks.systems.changing:DuckBatches",
    "postgres": "benchmarks.systems.changing_postgres:Postgres",
    "chdb": "benchmarks.systems.changing_chdb:Chdb",
}


class ChangingSystem:
    takes_blocks = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def settings(self) -> dict[str, str]:
        raise NotImplementedError

    def insert(self, readings: pa.RecordBatch) -> None:
        raise NotImplementedError

    def update(self, number: int, v1: float, v2: float) -> None:
        raise NotImplementedError

    def delete(self, number: int) -> None:
        raise NotImplementedError

    def take(self, block: Block) -> None:
        """A whole block: its readings, its corrections, its deletions."""
        raise NotImplementedError

    def ask(self, text: str, since: int | None = None) -> list[tuple[Any, ...]]:
        """The rows of a query; ``:since`` is the time of a reading."""
        raise NotImplementedError

    def settle(self) -> None:
        """See to it that what was loaded lies where it stays."""

    def totals(self) -> tuple[int, ...]:
        (row,) = self.ask(TOTALS)
        return tuple(int(value or 0) for value in row)

    def close(self) -> None:
        raise NotImplementedError


class Tide(ChangingSystem):
    takes_blocks = True
    mode = "defer"
    durability = "sync"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.db = tidemill.open(folder / "warehouse", lifetime="long")
        wait_for_spark(self.db)
        self.db.sql(
            f"CREATE STREAMING TABLE readings ({COLUMNS_SQL}) WITH (memory = '4 GB', "
            f"changes = '{self.mode}', durability = '{self.durability}')"
        )
        self.db.sql("CREATE INDEX ON readings (id)")
        for name, rows in reference_tables().items():
            self.db.create_table(name, rows)

    def settings(self) -> dict[str, str]:
        return {
            "version": tidemill.__version__,
            "durability": f"{self.durability}: each append and each batch of corrections",
            "index": "on id",
            "changes": f"{self.mode}; corrections and deletions by key, in batches",
        }

    def insert(self, readings: pa.RecordBatch) -> None:
        self.db.append("readings", readings)

    def take(self, block: Block) -> None:
        if block.readings.num_rows:
            self.db.append("readings", block.readings)
        corrections, deletions = block.corrections(), block.deletions()
        if corrections is not None:
            self.db.update("readings", corrections, key=("id", "ts"))
        if deletions is not None:
            self.db.delete("readings", deletions, key=("id", "ts"))

    def ask(self, text: str, since: int | None = None) -> list[tuple[Any, ...]]:
        params = {} if since is None else {"since": time_of(since)}
        return self.db.sql(text, params or None).fetchall()

    def settle(self) -> None:
        self.db.sql("FLUSH readings")
        wait_for_jobs(self.db)

    def close(self) -> None:
        self.db.close()


class TideEager(Tide):
    mode = "eager"


class Duck(ChangingSystem):
    """Every request of its own is a transaction, as it comes; readings in bulk between them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.connection = duckdb.connect(str(folder / "duck.db"))
        self.connection.execute(f"CREATE TABLE readings ({COLUMNS_SQL})")
        self.connection.execute("CREATE INDEX by_id ON readings (id)")
        for name, rows in reference_tables().items():
            given = rows
            self.connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
            del given

    def settings(self) -> dict[str, str]:
        return {
            "version": duckdb.__version__,
            "durability": "one commit each, write-ahead log synced (DuckDB's default)",
            "index": "ART on id",
            "changes": "as they come" if not self.takes_blocks else "UPDATE … FROM of a block",
        }

    def insert(self, readings: pa.RecordBatch) -> None:
        given = pa.Table.from_batches([readings])
        self.connection.execute("INSERT INTO readings SELECT * FROM given")
        del given

    def update(self, number: int, v1: float, v2: float) -> None:
        self.connection.execute(
            "UPDATE readings SET v1 = ?, v2 = ? WHERE id = ? AND ts = ?",
            [v1, v2, number, time_of(number)],
        )

    def delete(self, number: int) -> None:
        self.connection.execute(
            "DELETE FROM readings WHERE id = ? AND ts = ?", [number, time_of(number)]
        )

    def ask(self, text: str, since: int | None = None) -> list[tuple[Any, ...]]:
        params = None if since is None else {"since": time_of(since)}
        return self.connection.execute(text.replace(":since", "$since"), params).fetchall()

    def close(self) -> None:
        self.connection.close()


class DuckBatches(Duck):
    """The same with the changes of a block in one statement each: nobody's baseline, but fair."""

    takes_blocks = True

    def take(self, block: Block) -> None:
        if block.readings.num_rows:
            self.insert(block.readings)
        corrections, deletions = block.corrections(), block.deletions()
        if corrections is not None:
            given = pa.Table.from_batches([corrections])
            self.connection.execute(
                "UPDATE readings SET v1 = g.v1, v2 = g.v2 FROM (SELECT id, ts, last(v1) AS v1, "
                "last(v2) AS v2 FROM given GROUP BY id, ts) AS g "
                "WHERE readings.id = g.id AND readings.ts = g.ts"
            )
            del given
        if deletions is not None:
            given = pa.Table.from_batches([deletions])
            self.connection.execute(
                "DELETE FROM readings USING given AS g WHERE readings.id = g.id AND "
                "readings.ts = g.ts"
            )
            del given
