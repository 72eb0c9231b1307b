"""What outsiders read of a published table: the rows that history holds, at every moment."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pytest
from deltalake import DeltaTable

import tidemill
from tidemill.engine import Database
from tidemill.history.delta import publish_delta, unpublish, waits_for_compaction
from tidemill.history.storage import Storage
from tidemill.pipeline.jobs import JobHandle

Rows = list[tuple[Any, ...]]


class Published:
    """A warehouse with a table, and the Delta table that is made of it."""

    def __init__(self, folder: Path) -> None:
        self.db: Database = tidemill.open(folder, spark_master="inline", time_travel="1 ms")
        self.storage = Storage(str(folder / "data"))
        self.place = str(folder / "data" / "1")
        self._handles: list[JobHandle] = []
        pipeline = self.db._keeping.pipeline
        submit = pipeline.submit

        def noted(*given: Any, **named: Any) -> JobHandle:
            self._handles.append(submit(*given, **named))
            return self._handles[-1]

        pipeline.submit = noted

    def make(self, columns: str = "k BIGINT, name VARCHAR", options: str = "") -> None:
        self.db.sql(
            f"CREATE STREAMING TABLE t (ts TIMESTAMP, {columns}, "
            "WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE) "
            f"WITH (move = 'manual', clock = 'event'{options})"
        )

    def append(self, first: int, count: int, minutes: int = 1) -> None:
        self.db.sql(
            f"INSERT INTO t SELECT TIMESTAMP '2026-01-01' + INTERVAL ({minutes} * r) MINUTE, r, "
            f"'n' || r FROM range({first}, {first + count}) AS x(r)"
        )

    def flush(self) -> int | None:
        self.db.sql("FLUSH t")
        return self.publish()

    def publish(self) -> int | None:
        snapshot = self.db.catalog.snapshot()
        table = snapshot.get("t")
        history = snapshot.history(table.table_id)
        return publish_delta(self.storage, table, history, snapshot.snapshot_id)

    def settle(self) -> None:
        """Until there is nothing left to compact or to drop; history looks by itself, too."""
        history = None
        while history != (history := self.db.catalog.snapshot().history(1)):
            self.db._keeping.look()
            for handle in self._handles:
                handle.wait()

    def wanted(self) -> Rows:
        rows = self.db.sql("SELECT ts, k, name FROM t").table.to_pylist()
        return sorted(tuple(row.values()) for row in rows)

    def check(self) -> None:
        """Readers that have nothing to do with Tidemill see its rows, each once."""
        wanted = self.wanted()
        names = ["ts", "k", "name"]
        assert sorted(pl.read_delta(self.place).select(names).rows()) == wanted
        opened = DeltaTable(self.place)
        rows = opened.to_pyarrow_table(columns=names).to_pylist()
        assert sorted(tuple(row.values()) for row in rows) == wanted
        folder = fs.SubTreeFileSystem(self.place, fs.LocalFileSystem())
        inner = [uri.removeprefix(f"{self.place}/") for uri in opened.file_uris()]
        plain = ds.dataset(inner, filesystem=folder, format="parquet") if inner else None
        assert (plain.count_rows() if plain else 0) == len(wanted)


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Published]:
    warehouse = Published(tmp_path / "warehouse")
    yield warehouse
    warehouse.db.close()


def test_outsiders_read_what_was_moved(published: Published) -> None:
    published.make()
    assert published.publish() == 0
    published.check()
    published.append(0, 300)
    assert published.publish() is None
    assert published.flush() == 1
    published.check()
    published.append(100, 300)
    published.append(10_000, 5)
    assert published.flush() == 2
    assert published.publish() is None
    published.check()


def test_compaction_expiry_and_vacuum(published: Published) -> None:
    published.make()
    for number in range(12):
        published.append(number * 10, 10)
        published.flush()
    published.append(1_000, 10)
    published.flush()
    small = set(DeltaTable(published.place).file_uris())
    published.settle()
    published.publish()
    compacted = set(DeltaTable(published.place).file_uris())
    assert len(compacted) < len(small)
    published.check()
    published.db.sql("ALTER TABLE t SET (retention = '10 hours')")
    published.settle()
    published.publish()
    assert set(DeltaTable(published.place).file_uris()) < compacted
    assert pl.read_delta(published.place).height == 10
    published.check()
    DeltaTable(published.place).create_checkpoint()
    published.db.sql("VACUUM")
    published.check()
    held = {str(path) for path in Path(published.place).glob("[!_]*/*.parquet")}
    assert held == set(DeltaTable(published.place).file_uris())


def test_replaced_rows_wait_for_compaction(published: Published) -> None:
    published.make(
        "k BIGINT, name VARCHAR, PRIMARY KEY (ts, k)", options=", on_conflict = 'replace'"
    )
    published.append(0, 10)
    published.flush()
    published.check()
    published.append(5, 1)
    published.db.sql("FLUSH t")
    history = published.db.catalog.snapshot().history(1)
    assert waits_for_compaction(history)
    with pytest.raises(tidemill.errors.UnsupportedError, match="as it is now"):
        published.publish()
    assert pl.read_delta(published.place).height == 10
    published.append(10_000, 1)  # what is now long ago is compacted
    published.db.sql("FLUSH t")
    published.settle()
    assert published.publish() == 1
    published.check()
    assert pl.read_delta(published.place).height == 11


def test_after_a_crash_the_next_publishing_catches_up(published: Published, tmp_path: Path) -> None:
    published.make()
    published.append(0, 10)
    published.flush()
    published.append(10, 10)
    published.db.sql("FLUSH t")  # committed, and not published
    published.db.close()
    again = Published(tmp_path / "warehouse")
    try:
        assert again.publish() == 1
        again.check()
        unpublish(again.storage, again.db.catalog.snapshot().get("t"))
        assert not Path(again.place, "_delta_log").exists()
        assert again.publish() == 0
        again.check()
    finally:
        again.db.close()


def test_readers_never_see_half_a_move(published: Published) -> None:
    """Every move brings ten rows: whenever somebody reads, there are whole tens."""
    published.make()
    published.publish()
    seen: list[int] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.append(DeltaTable(published.place).to_pyarrow_dataset().count_rows())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(20):
            published.append(number * 10, 10, minutes=7)
            published.flush()
    finally:
        done.set()
        reader.join()
    assert seen == sorted(seen)
    assert not [count for count in seen if count % 10]
    published.check()
