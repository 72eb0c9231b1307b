"""Removed rows: what touches which file, and the numbers that files of deletes name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from tidemill.catalog.model import NewFile, Table
from tidemill.history.storage import Storage
from tidemill.history.writing import WriteSpec, write_deletes
from tidemill.stream.removed import Deletes, Removed, deleted_seqs

Duck = duckdb.DuckDBPyConnection


class Lent:
    def __init__(self, duck: Duck) -> None:
        self._duck = duck

    @contextmanager
    def lent(self, *, exact: bool) -> Iterator[Duck]:
        assert exact
        yield self._duck


def some_deletes(storage: Storage, table: Table, files: list[NewFile]) -> list[NewFile]:
    spec = WriteSpec.of(table)
    return [
        write_deletes(storage, spec, files[at].lo_us, files[at].hi_us, seqs, "d", at, "move")
        for at, seqs in ((0, [1, 5]), (2, [30]))
    ]


def test_only_what_concerns_files_is_kept(
    storage: Storage, by_k: Table, files: list[NewFile]
) -> None:
    first, last = some_deletes(storage, by_k, files)
    removed = Removed.of([first, last], [17])
    assert [removed.touches(file) for file in files] == [True, True, True]
    assert [Removed.of([first, last]).touches(file) for file in files] == [True, False, True]
    assert removed.concerning([files[0]]).deletes == (first,)
    assert removed.concerning([files[1]]) == Removed((), (17,))
    assert not Removed.of([first, last]).concerning([files[1]])


def test_the_numbers_of_deletes(
    storage: Storage, duck: Duck, by_k: Table, files: list[NewFile]
) -> None:
    gone = some_deletes(storage, by_k, files)
    assert deleted_seqs(storage, duck, gone, "t") == [1, 5, 30]
    assert deleted_seqs(storage, duck, [], "t") == []
    deletes = Deletes(storage, Lent(duck))
    assert deletes.numbers(gone, "t") == [1, 5, 30]
    rows = pa.table({"k": [1, 2, 3], "_seq": pa.array([1, 2, 30], pa.int64())})
    assert deletes.filter(rows, gone, "t").column("k").to_pylist() == [2]
    assert deletes.filter(rows, [], "t") == rows


def test_many_numbers_are_joined_rather_than_listed(storage: Storage) -> None:
    assert Removed.of((), range(10)).clause(storage).join == ""
    assert "ANTI JOIN" in Removed.of((), range(1_000)).clause(storage).join
