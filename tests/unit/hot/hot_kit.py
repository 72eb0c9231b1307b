"""Tables, batches and faulty disks for the tests of the hot tier."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings

from tidemill.catalog.model import Index, Table
from tidemill.clock import Clock, FakeClock
from tidemill.hot.environment import Environment, NoHistory
from tidemill.hot.intake import Accepted
from tidemill.hot.log import Files, SystemFiles
from tidemill.hot.recovery import recover
from tidemill.hot.table import HotTable
from tidemill.subscribers import Subscribers
from tidemill.types import Column, SqlType

QUICK = settings(
    max_examples=20,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

COLUMNS = (
    Column("ts", SqlType("TIMESTAMP"), nullable=False),
    Column("k", SqlType("BIGINT")),
    Column("s", SqlType("VARCHAR")),
    Column("f", SqlType("DOUBLE")),
)
ORDERED_K = Index(1, "by_k", 1, ("k",), "ordered")
HASHED_S = Index(2, "by_s", 1, ("s",), "hash")
HASHED_KS = Index(3, "by_ks", 1, ("k", "s"), "hash")
ORDERED_F = Index(4, "by_f", 1, ("f",), "ordered")
NOW_US = 1_700_000_000_000_000
SECOND_US = 1_000_000


def make_table(
    given: dict[str, str] | None = None,
    indexes: tuple[Index, ...] = (),
    primary_key: tuple[str, ...] = (),
    delay_us: int | None = None,
    columns: tuple[Column, ...] = COLUMNS,
) -> Table:
    given = {"durability": "none", **(given or {})}
    return Table(1, "t", "streaming", columns, primary_key, "ts", delay_us, given, indexes, 0)


def make_batch(rows: Iterable[tuple[Any, ...]], table: Table | None = None) -> pa.RecordBatch:
    """Rows with their times in microseconds."""
    schema = (table or make_table()).schema
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [
        pa.array(list(values), pa.int64()).view(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array(list(values), field.type)
        for values, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def accepted(
    rows: Iterable[tuple[Any, ...]],
    table: Table | None = None,
    rejects: tuple[tuple[str, str], ...] = (),
    source: str | None = None,
    offset: int | None = None,
) -> Accepted:
    return Accepted((make_batch(rows, table),), rejects, source, offset)


def open_hot(
    table: Table,
    folder: Path,
    clock: Clock | None = None,
    files: Files | None = None,
    segment_bytes: int = 1 << 20,
    wait_us: int = 50_000,
    environment: Environment | None = None,
    listeners: Subscribers[HotTable] | None = None,
) -> HotTable:
    hot = HotTable(
        table,
        clock or FakeClock(NOW_US),
        wait_us,
        environment=environment or NoHistory(),
        listeners=listeners,
    )
    recover(hot, folder, segment_bytes, files or SystemFiles())
    return hot


def rows_of(held: pa.Table) -> list[tuple[Any, ...]]:
    """Rows as tuples, times in microseconds."""
    columns = [
        column.cast(pa.int64()).to_pylist()
        if pa.types.is_timestamp(column.type)
        else column.to_pylist()
        for column in held.columns
    ]
    return list(zip(*columns, strict=True))


def held(hot: HotTable, with_seq: bool = False) -> list[tuple[Any, ...]]:
    return rows_of(hot.view().whole(with_seq))


class FaultyFiles(SystemFiles):
    """A disk that fails when told to, and that remembers what was asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.bytes_left: int | None = None
        self.write_error: int | None = None
        self.sync_error: int | None = None
        self.truncate_error: int | None = None

    def write(self, fd: int, parts: list[bytes | memoryview]) -> int:
        self.calls.append("write")
        if self.write_error is not None:
            raise OSError(self.write_error, os.strerror(self.write_error))
        if self.bytes_left is None:
            return super().write(fd, parts)
        whole = b"".join(parts)
        if self.bytes_left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        some = whole[: self.bytes_left]
        self.bytes_left -= len(some)
        return os.write(fd, some)

    def sync(self, fd: int) -> None:
        self.calls.append("sync")
        if self.sync_error is not None:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        self.calls.append("truncate")
        if self.truncate_error is not None:
            raise OSError(self.truncate_error, os.strerror(self.truncate_error))
        super().truncate(fd, size)
