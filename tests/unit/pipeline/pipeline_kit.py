"""Tables, packages, a desk that stands for the catalog, and jobs for the tests of the pipeline."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tidemill.catalog.model import FILE_DELETES, FILE_REJECTED, FILE_ROWS, NewFile, Package, Table
from tidemill.clock import FakeClock
from tidemill.history.storage import Storage
from tidemill.pipeline.job import JobContext, Outcome, Written
from tidemill.pipeline.jobs import JobHandle, Pipeline
from tidemill.pipeline.load import Load, LoadCommit, LoadJob, LoadReport
from tidemill.pipeline.packages import Listed, list_packages
from tidemill.stream.keys import KeyConflicts
from tidemill.types import Column, SqlType

NONE = KeyConflicts(*(np.array([], np.int64) for _ in range(3)))
TIMEOUT_S = 240.0  # far more than it takes, on a machine that does much else


def make_table(given: dict[str, str] | None = None, key: tuple[str, ...] = ()) -> Table:
    columns = (
        Column("ts", SqlType("TIMESTAMP"), nullable=False),
        Column("k", SqlType("BIGINT")),
        Column("v", SqlType("DOUBLE"), default="0.5"),
        Column("s", SqlType("VARCHAR")),
    )
    return Table(7, "t", "streaming", columns, key, "ts", None, given or {}, (), 0)


def csv_text(rows: Sequence[tuple[Any, ...]], header: str = "ts,k,v,s") -> str:
    return "\n".join([header, *(",".join(str(value) for value in row) for row in rows), ""])


def hour(number: int, second: int = 0) -> str:
    return f"2024-01-01 {number:02d}:00:{second:02d}"


def put(folder: Path, name: str, rows: Sequence[tuple[Any, ...]], **more: Any) -> Path:
    """A package of rows, compressed if its name says so."""
    return put_bytes(folder / name, csv_text(rows, **more).encode())


def put_bytes(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


@dataclass
class FakeEnvironment:
    """A catalog in memory, which can also have existing keys."""

    commits: list[LoadCommit] = field(default_factory=list)
    packages: list[Package] = field(default_factory=list)
    conflicts: Callable[[Sequence[NewFile]], KeyConflicts] = lambda files: NONE
    next_seq: int = 1_000
    before_commit: Callable[[], None] = lambda: None

    def known(self, table_id: int, names: Sequence[str]) -> Sequence[Package]:
        return [package for package in self.packages if package.name in set(names)]

    def reserve(self, table_id: int, count: int) -> int:
        first, self.next_seq = self.next_seq, self.next_seq + count
        return first

    def check_keys(self, table: Table, files: Sequence[NewFile]) -> KeyConflicts:
        assert {file.kind for file in files} == {FILE_ROWS}
        return self.conflicts(files)

    def commit(self, commit: LoadCommit) -> None:
        self.before_commit()
        self.commits.append(commit)
        kept = [p for p in self.packages if _key(p) not in {_key(new) for new in commit.packages}]
        self.packages = [*kept, *commit.packages]

    @property
    def files(self) -> list[NewFile]:
        return [file for commit in self.commits for file in commit.files]

    def states(self) -> dict[str, str]:
        return {Path(package.name).name: package.state for package in self.packages}


def _key(package: Package) -> tuple[str, int, str]:
    return package.name, package.size, package.digest


@dataclass
class Warehouse:
    """A storage, a desk and a pipeline: what is loaded, and what is then there."""

    storage: Storage
    pipeline: Pipeline
    environment: FakeEnvironment = field(default_factory=FakeEnvironment)
    clock: FakeClock = field(default_factory=lambda: FakeClock(1_700_000_000_000_000))

    def job(self, table: Table, packages: Sequence[Listed], **more: Any) -> LoadJob:
        form = more.pop("form", "csv")
        plan = Load(table, self.storage, tuple(packages), form, **more)
        return LoadJob(plan, self.environment, self.clock)

    def submit(self, table: Table, pattern: Path | str, **more: Any) -> JobHandle:
        return self.pipeline.submit(self.job(table, list_packages(str(pattern)), **more))

    def load(self, table: Table, pattern: Path | str, **more: Any) -> LoadReport:
        report: LoadReport = self.submit(table, pattern, **more).wait(TIMEOUT_S).value
        return report

    def rows(self, columns: str = "ts::VARCHAR, k, v, s") -> list[tuple[Any, ...]]:
        """What a reader of all committed files sees, by time and key."""
        gone = self._scan(FILE_DELETES, "_seq", "_seq")
        found = self._scan(FILE_ROWS, f"_seq, {columns}", "ts, k, _seq")
        return [row[1:] for row in found if (row[0],) not in gone]

    def rejected(self) -> list[tuple[Any, ...]]:
        return self._scan(FILE_REJECTED, "_row::VARCHAR, _reason", "_seq, _row::VARCHAR")

    def _scan(self, kind: str, columns: str, order: str) -> list[tuple[Any, ...]]:
        paths = [
            self.storage.place(file.path) for file in self.environment.files if file.kind == kind
        ]
        if not paths:
            return []
        with self.storage.connect() as connection:
            query = f"SELECT {columns} FROM read_parquet({paths!r}) ORDER BY {order}"
            return connection.sql(query).fetchall()

    def on_disk(self) -> set[str]:
        return {path for path, _, _ in self.storage.list()}


@dataclass
class ToyJob:
    """A job that does what a test tells it to."""

    kind: str = "toy"
    table_id: int = 1
    table_name: str = "t"
    exclusive: bool = True
    on_run: Callable[[JobContext], None] = lambda context: None
    on_commit: Callable[[], None] = lambda: None

    def explain(self) -> list[str]:
        return ["a toy"]

    def run(self, context: JobContext) -> Written[str, str]:
        self.on_run(context)
        return Written("value", self.commit)

    def commit(self, written: str) -> Outcome[str]:
        self.on_commit()
        return Outcome(written, rows=2, bytes=3, files=4, detail="played")


class Gate:
    """A place where a job waits until a test lets it go on."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, *_: object) -> None:
        self.reached.set()
        assert self.opened.wait(TIMEOUT_S)

    def await_arrival(self) -> None:
        assert self.reached.wait(TIMEOUT_S)
