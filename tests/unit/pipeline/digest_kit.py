"""A stream with digests, its catalog, storage and jobs, and what its digests must hold."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "hot"))

from hot_kit import COLUMNS, accepted, open_hot
from once import file_commit, once
from pipeline_kit import NONE, TIMEOUT_S, put_bytes

from tidemill.catalog.model import (
    DIGEST,
    FILE_DELETES,
    FILE_ROWS,
    STREAMING,
    DataFile,
    History,
    NewFile,
    NewTable,
    Package,
    Table,
)
from tidemill.catalog.store import Catalog
from tidemill.clock import FakeClock
from tidemill.digests.definition import Digest, definition_text
from tidemill.digests.partials import merge_partials, partials_of, read_partials
from tidemill.digests.progress import Progress
from tidemill.history.storage import Storage
from tidemill.hot.table import HotTable
from tidemill.pipeline.backfill import BackfillJob
from tidemill.pipeline.board import RUNNING, JobBoard, JobRecord
from tidemill.pipeline.compact import CompactJob, ExpireJob
from tidemill.pipeline.digest_compact import DigestCompactJob
from tidemill.pipeline.digesting import commit_loaded
from tidemill.pipeline.executor import Executor, InlineExecutor
from tidemill.pipeline.job import Job, JobContext, Outcome, new_job_id
from tidemill.pipeline.jobs import Pipeline
from tidemill.pipeline.load import DigestWriting, Load, LoadCommit, LoadJob, LoadReport
from tidemill.pipeline.move import Move, MoveJob
from tidemill.pipeline.packages import list_packages
from tidemill.sql.maintain.plan import DigestParts
from tidemill.stream.keys import KeyConflicts
from tidemill.stream.relation import FileScan
from tidemill.stream.removed import Removed
from tidemill.types import Column, SqlType

T = TypeVar("T")

HOUR_US = 3_600_000_000
START_US = 472_222 * HOUR_US  # in November 2023
Row = tuple[int, int | None, str | None, float | None]

SUMS = (
    "SELECT k AS k0, count(*) AS s0, sum(k) AS s1, max(s) AS s2, list_sort(list(DISTINCT s)) AS s3 "
    "FROM tm_rows WHERE f IS NULL OR f >= 0 GROUP BY 1",
    "SELECT k0, CAST(sum(s0) AS BIGINT) AS s0, sum(s1) AS s1, max(s2) AS s2, "
    "list_sort(list_distinct(flatten(list(s3)))) AS s3 FROM tm_partials GROUP BY 1",
    ("BIGINT", "BIGINT", "HUGEINT", "VARCHAR", "VARCHAR[]"),
)
NEWEST = (
    "SELECT s AS k0, max(_seq) AS s0, max(ts) AS s1 FROM tm_rows GROUP BY 1",
    "SELECT k0, max(s0) AS s0, max(s1) AS s1 FROM tm_partials GROUP BY 1",
    ("VARCHAR", "BIGINT", "TIMESTAMP"),
)


def parts_of(queries: tuple[str, str, tuple[str, ...]]) -> DigestParts:
    partial, merge, types = queries
    states = tuple(f"s{at}" for at in range(len(types) - 1))
    return DigestParts(
        table="t",
        partial=partial,
        merge=merge,
        keys=("k0",),
        states=states,
        pane=None,
        condition=None,
        is_single=False,
        visible=("k0",),
        growing=(),
        with_seq="_seq" in partial,
        rows_window=None,
        edge=partial,
        types=types,
    )


def columns_of(parts: DigestParts) -> tuple[Column, ...]:
    names = (*parts.keys, *parts.states)
    return tuple(Column(n, SqlType(t)) for n, t in zip(names, parts.types, strict=True))


@dataclass
class CatalogEnvironment:
    """The desk of loads, on a real catalog."""

    catalog: Catalog
    hot: HotTable
    conflicts: KeyConflicts = NONE

    def known(self, table_id: int, names: Sequence[str]) -> Sequence[Package]:
        return self.catalog.records.packages(table_id, names)

    def reserve(self, table_id: int, count: int) -> int:
        return self.hot.reserve(count, lambda a, b: once(self.catalog).reserve(table_id, a, b))

    def check_keys(self, table: Table, files: Sequence[NewFile]) -> KeyConflicts:
        return self.conflicts

    def commit(self, commit: LoadCommit) -> None:
        ranges = [commit.reserved] if commit.reserved is not None else []
        reserved = [(each.first_seq, each.last_seq) for each in ranges]
        with self.catalog.transaction() as change:
            change.commit_files(
                commit.table_id,
                file_commit(add=commit.files, packages=commit.packages, reserved=reserved),
            )
            commit_loaded(change, commit.digested)


@dataclass
class Stream:
    """One streaming table and all that is kept of it."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()
    executor: Executor = field(default_factory=lambda: InlineExecutor(2))

    def __post_init__(self) -> None:
        self.clock = FakeClock(START_US)
        self.catalog = Catalog.open(f"sqlite:///{self.folder}/catalog.db", self.clock)
        given = {"durability": "none", "partition": "1 hour", **self.settings}
        new = NewTable("t", STREAMING, COLUMNS, self.primary_key, "ts", settings=given)
        self.table = once(self.catalog).create_table(new)
        self.storage = Storage(str(self.folder / "data"))
        self.hot = open_hot(self.table, self.folder / "log", self.clock)
        self.board = JobBoard()
        self.pipeline = Pipeline(self.executor, self.board, self.clock)
        self.environment = CatalogEnvironment(self.catalog, self.hot)
        self.duck = self.storage.connect()
        self._loads = 0

    def close(self) -> None:
        self.pipeline.close()
        self.executor.close()
        self.hot.close()
        self.duck.close()
        self.catalog.close()

    # -- what happens to it

    def append(self, rows: Sequence[Row]) -> None:
        self.hot.append(accepted(rows, self.table))

    def run(self, job: Job[T]) -> Outcome[T]:
        return self.pipeline.submit(job).wait(TIMEOUT_S)

    def ran(self, job: Any) -> Any:
        """A job that has run and is about to commit; what is done meanwhile, it has not seen."""
        job_id = new_job_id()
        record = JobRecord(job_id, job.kind, job.table_id, job.table_name, RUNNING, 0)
        self.board.add(record)
        return job.run(JobContext(job_id, self.executor, self.board, lambda: None))

    def move(self, upto_seq: int | None = None) -> Outcome[Move]:
        return self.run(self.move_job(upto_seq))

    def move_job(self, upto_seq: int | None = None) -> MoveJob:
        return MoveJob(self.hot, self.catalog, self.storage, upto_seq, "test")

    def load(self, *packages: Sequence[Row]) -> Outcome[LoadReport]:
        return self.run(self.load_job(*packages))

    def load_job(self, *packages: Sequence[Row]) -> LoadJob:
        self._loads += 1
        for number, rows in enumerate(packages):
            lines = [",".join(_texts(row)) for row in rows]
            text = "\n".join(["ts,k,s,f", *lines, ""])
            put_bytes(self.folder / "in" / f"{self._loads}-{number}.csv", text.encode())
        listed = tuple(list_packages(str(self.folder / "in" / f"{self._loads}-*.csv")))
        load = Load(self.table, self.storage, listed, "csv")
        return LoadJob(load, self.environment, self.clock, DigestWriting(self.catalog))

    def backfill(self, digest: Table) -> int:
        job = BackfillJob(digest, self.table, self.catalog, self.storage)
        return self.run(job).value

    def compact(self, cold_before_us: int | None = None) -> Outcome[None]:
        return self.run(CompactJob(self.table, self.catalog, self.storage, cold_before_us))

    def compact_digest(self, digest: Table) -> Outcome[None]:
        return self.run(DigestCompactJob(digest, self.table, self.catalog, self.storage))

    def expire(self, before_us: int) -> Outcome[None]:
        return self.run(ExpireJob(self.table, self.catalog, before_us, before_us))

    # -- digests

    def digest(self, queries: tuple[str, str, tuple[str, ...]] = SUMS) -> Table:
        """A digest as a view would make it: what is in history, it has not seen."""
        parts = parts_of(queries)
        number = len(self.catalog.snapshot().digests_of(self.table.table_id))
        history = self.history
        with self.catalog.transaction() as change:
            table = change.create_table(
                NewTable(
                    f"v$digest{number}",
                    DIGEST,
                    columns_of(parts),
                    definition=definition_text(parts, self.table),
                    source_id=self.table.table_id,
                )
            )
            progress = Progress.nothing() if history.files else Progress()
            change.commit_files(
                table.table_id, file_commit(moved_seq=history.moved_seq, progress=progress.text)
            )
        return table

    # -- what there is

    @property
    def history(self) -> History:
        return self.catalog.snapshot().history(self.table.table_id)

    def files(self, digest: Table) -> tuple[DataFile, ...]:
        return self.catalog.snapshot().history(digest.table_id).files

    def progress(self, digest: Table) -> Progress:
        return Progress.read(self.catalog.records.progress(digest.table_id))

    def history_rows(self) -> pa.Table:
        files = self.history.files
        rows = [file for file in files if file.kind == FILE_ROWS]
        deletes = [file for file in files if file.kind == FILE_DELETES]
        scan = FileScan(tuple(rows), Removed.of(deletes))
        text = scan.sql(self.storage, self.table, with_seq=True)
        return self.duck.sql(text).to_arrow_table()

    def hot_rows(self, after_seq: int) -> pa.Table:
        return self.hot.view().arrived_after(after_seq, True)[0]

    def found(self, digest: Table) -> pa.Table:
        """What a view would read: files of partials, and rows that are not in them yet."""
        made = Digest.of(digest)
        moved_seq = self.catalog.snapshot().history(digest.table_id).moved_seq
        held = read_partials(self.storage, self.duck, made, self.files(digest))
        hot = partials_of(self.duck, made, [self.hot_rows(moved_seq)])
        return merge_partials(self.duck, made, [held, hot])

    def wanted(self, digest: Table) -> pa.Table:
        """The partials of all rows that the digest must have seen."""
        progress = self.progress(digest)
        rows = self.history_rows()
        times = rows.column("ts").cast(pa.int64()).to_pylist()
        seqs = rows.column("_seq").to_pylist()
        mask = [
            progress.covers(at // HOUR_US * HOUR_US)
            or any(first <= seq <= last for first, last in progress.sealed)
            for at, seq in zip(times, seqs, strict=True)
        ]
        seen = rows.filter(pa.array(mask, pa.bool_()))
        hot = self.hot_rows(self.history.moved_seq)
        return partials_of(self.duck, Digest.of(digest), [seen, hot])

    def check(self, *digests: Table) -> None:
        for digest in digests:
            found, wanted = self.found(digest), self.wanted(digest)
            assert counted(found) == counted(wanted), digest.name
            assert found.schema.types == wanted.schema.types


def counted(rows: pa.Table) -> Counter[str]:
    with duckdb.connect() as connection:
        tm_all = rows  # noqa: F841  (DuckDB finds it by name)
        return Counter(map(repr, connection.sql("SELECT * FROM tm_all").fetchall()))


@contextmanager
def opened(folder: Path, **more: Any) -> Iterator[Stream]:
    stream = Stream(folder, **more)
    try:
        yield stream
    finally:
        stream.close()


def _texts(row: Row) -> Iterator[str]:
    """A row as a file of CSV has it."""
    yield str(pa.scalar(row[0], pa.timestamp("us")))
    yield from ("" if value is None else str(value) for value in row[1:])
