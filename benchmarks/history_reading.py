"""The workers of the history benchmark: one system each, over the same Parquet files.

Tidemill loads the rows and names the files its history consists of; DuckDB, chdb and plain Spark
SQL then read those very files (sorted, zstd, with Tidemill's row groups). ``ask`` runs texts and
answers the seconds of each and the first answers as plain rows.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

import tidemill
from benchmarks import lineitem
from benchmarks.peers import FOLDER
from benchmarks.pouring import quiet
from benchmarks.systems import plain_spark
from benchmarks.systems.base import Row, plain_rows
from benchmarks.systems.tide import COLUMNS_SQL, wait_for_jobs
from benchmarks.traffic import car_table

ANSWERS_KEPT = 3
PARTITIONS = {"reports": "1 hour", "keyed": "1 hour", "lineitem": "30 days"}
INDEXES = {"reports": "vid", "keyed": "vid", "lineitem": "l_suppkey"}
TIMES = {"reports": "ts", "keyed": "ts", "lineitem": "l_shipdate"}
COLUMNS = {"reports": COLUMNS_SQL, "keyed": COLUMNS_SQL, "lineitem": lineitem.COLUMNS_SQL}
_TIME = re.compile(r"TIMESTAMP '([^']*)'")

Files = Mapping[str, Sequence[str]]  # of a table: its files


class Asker:
    """``time_form`` spells a TIMESTAMP literal whose text is ``\\1``."""

    time_form: str | None = None

    def settings(self) -> dict[str, str]:
        raise NotImplementedError

    def query(self, text: str) -> pa.Table:
        raise NotImplementedError

    def ask(self, texts: Sequence[str], budget_s: float) -> tuple[list[float], list[list[Row]]]:
        """Run the texts, at most about ``budget_s`` long."""
        if self.time_form is not None:
            texts = [_TIME.sub(self.time_form, text) for text in texts]
        taken: list[float] = []
        answers: list[pa.Table] = []
        with quiet():
            deadline = time.perf_counter() + budget_s
            for text in texts:
                began = time.perf_counter()
                answer = self.query(text)
                now = time.perf_counter()
                taken.append(now - began)
                if len(answers) < ANSWERS_KEPT:
                    answers.append(answer)
                if now > deadline:
                    break
        return taken, [sorted(plain_rows(answer)) for answer in answers]

    def close(self) -> None:
        raise NotImplementedError


class AskTide(Asker):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.db = tidemill.open(folder, spark_master="local[*]")
        self.db.sql("CREATE TABLE cars (vid BIGINT PRIMARY KEY, kind VARCHAR)")
        self.db.append("cars", car_table())

    def settings(self) -> dict[str, str]:
        return {
            "version": tidemill.__version__,
            "partitions": ", ".join(f"{name}: {size}" for name, size in PARTITIONS.items()),
            "first index": ", ".join(f"{name}: {columns}" for name, columns in INDEXES.items()),
        }

    def load(self, table: str, pattern: str) -> tuple[float, list[str]]:
        """Load a table by COPY; answers the seconds and the files it consists of."""
        self.db.sql(
            f"CREATE STREAMING TABLE {table} ({COLUMNS[table]}, "
            f"WATERMARK FOR {TIMES[table]} AS {TIMES[table]} - INTERVAL '5' SECOND) "
            f"WITH (clock = 'event', partition = '{PARTITIONS[table]}')"
        )
        self.db.sql(f"CREATE INDEX ON {table} ({INDEXES[table]})")
        began = time.perf_counter()
        self.db.sql(f"COPY {table} FROM '{pattern}'")
        self.db.sql(f"FLUSH {table}")  # a small one was only appended
        seconds = time.perf_counter() - began
        wait_for_jobs(self.db)  # small files are merged behind a load, on Spark
        return seconds, self._files(table)

    def _files(self, table: str) -> list[str]:
        asked = "SELECT path FROM tidemill.files WHERE table_name = :t ORDER BY path"
        names = [row[0] for row in self.db.sql(asked, {"t": table}).fetchall()]
        found = {path.name: path for path in self.folder.rglob("*.parquet")}
        return [str(found[Path(name).name]) for name in names]

    def ask_by(
        self, route: str, texts: Sequence[str], budget_s: float
    ) -> tuple[list[float], list[list[Row]]] | str:
        """As ``ask``, by one route; a text instead if that route does not take the question."""
        self.db.sql(f"SET route = '{route}'")
        try:
            return self.ask(texts, budget_s)
        except tidemill.TidemillError as error:
            return f"{error.code}: {error}"

    def query(self, text: str) -> pa.Table:
        return self.db.sql(text).arrow()

    def explain(self, route: str, text: str) -> list[str]:
        self.db.sql(f"SET route = '{route}'")
        return [str(row[0]) for row in self.db.sql(f"EXPLAIN {text}").fetchall()]

    def close(self) -> None:
        self.db.close()


class AskDuck(Asker):
    def __init__(self, folder: Path, files: Files) -> None:
        self.connection = duckdb.connect()
        cars = car_table()
        self.connection.execute("CREATE TABLE cars AS FROM cars")
        del cars
        for table, paths in files.items():
            self.connection.execute(f"CREATE VIEW {table} AS FROM read_parquet({list(paths)})")

    def settings(self) -> dict[str, str]:
        threads = self.connection.execute("SELECT current_setting('threads')").fetchall()[0][0]
        return {"version": duckdb.__version__, "threads": str(threads), "tables": "read_parquet"}

    def query(self, text: str) -> pa.Table:
        return self.connection.sql(text).to_arrow_table()

    def close(self) -> None:
        self.connection.close()


class AskSpark(Asker):
    time_form = r"TIMESTAMP_NTZ '\1'"  # the columns' own type, so that filters reach the files

    def __init__(self, folder: Path, files: Files) -> None:
        self.session = plain_spark.start(folder)
        cars = self.session.createDataFrame(car_table().to_pandas()).cache()
        cars.count()
        cars.createOrReplaceTempView("cars")
        for table, paths in files.items():
            self.session.read.parquet(*paths).createOrReplaceTempView(table)

    def settings(self) -> dict[str, str]:
        return {**plain_spark.settings(self.session), "tables": "read.parquet of a list of files"}

    def query(self, text: str) -> pa.Table:
        return self.session.sql(text).toArrow()

    def close(self) -> None:
        plain_spark.stop(self.session)


class AskChdb(Asker):
    time_form = r"toDateTime64('\1', 6)"

    def __init__(self, folder: Path, files: Files) -> None:
        sys.path.append(str(FOLDER))
        import chdb  # type: ignore[import-not-found]  # in a folder of its own
        from chdb.session import Session  # type: ignore[import-not-found]

        self.version = f"{chdb.__version__} (engine {chdb.engine_version})"
        self.session = Session(str(folder))
        self.session.query("CREATE DATABASE IF NOT EXISTS bench ENGINE = Atomic")
        self.session.query("USE bench")
        cars = car_table()
        self.session.query("CREATE TABLE cars (vid Int64, kind String) ENGINE = Memory")
        self.session.query("INSERT INTO cars SELECT * FROM Python(cars)")
        del cars
        for table, paths in files.items():
            listed = ",".join(path.removeprefix("/") for path in paths)
            source = f"file('/{{{listed}}}', 'Parquet')"
            self.session.query(f"CREATE VIEW {table} AS SELECT * FROM {source}")

    def settings(self) -> dict[str, str]:
        return {"version": self.version, "tables": "views of file(…, Parquet)"}

    def query(self, text: str) -> pa.Table:
        return self.session.query(text, "ArrowTable")

    def close(self) -> None:
        self.session.close()


PEERS = {"duckdb": "AskDuck", "chdb": "AskChdb", "spark": "AskSpark"}
