"""Frozen mappings, and what of the catalog travels to Spark's tasks."""

from __future__ import annotations

import copy
import pickle
from types import MappingProxyType

import pytest

from tidemill.catalog.frozen import FrozenMap
from tidemill.catalog.model import (
    FILE_LATE,
    FILE_ROWS,
    DataFile,
    History,
    Index,
    NewFile,
    Snapshot,
    Table,
)
from tidemill.types import Column, SqlType


def test_a_frozen_map_is_a_mapping_that_stays() -> None:
    given = {"b": 1, "a": 2}
    frozen = FrozenMap(given)
    given["c"] = 3
    assert frozen == {"b": 1, "a": 2} == frozen
    assert frozen == MappingProxyType({"a": 2, "b": 1})
    assert frozen != {"a": 2}
    assert frozen != 5
    assert list(frozen) == ["b", "a"]
    assert ("a" in frozen, "c" in frozen, len(frozen), frozen.get("x")) == (True, False, 2, None)
    assert hash(frozen) == hash(FrozenMap({"a": 2, "b": 1}))
    assert repr(frozen) == "{'b': 1, 'a': 2}"
    for attempt in ("frozen['a'] = 1", "del frozen['a']"):
        with pytest.raises(TypeError):
            exec(attempt)
    assert pickle.loads(pickle.dumps(frozen)) == frozen
    assert copy.deepcopy(frozen) == frozen
    assert not FrozenMap()


def table() -> Table:
    columns = (Column("ts", SqlType("TIMESTAMP")), Column("s", SqlType("STRUCT(a INTEGER)[]")))
    index = Index(1, "i", 7, ("ts",), "ordered")
    settings = FrozenMap({"hot": "1 s"})
    return Table(7, "t", "streaming", columns, ("ts",), "ts", 5, settings, (index,), 9)


def file(kind: str = FILE_ROWS, file_id: int = 1) -> DataFile:
    facts = (0, 10, 7, 700, 1, 1, 9, 1, 7, "move")
    ranges = FrozenMap({"vid": (1, 9), "x": (None, "é")})
    return DataFile(f"7/{file_id}", kind, *facts, ranges, None, 0, file_id, 7, file_id, 3)


def test_tables_and_files_travel() -> None:
    for used in (False, True):
        sent = table()
        if used:
            assert sent.settings["hot"] == 1_000_000
            assert sent.schema.names == ["ts", "s"]
            assert sent.column("TS") is sent.columns[0]
        got = pickle.loads(pickle.dumps(sent))
        assert got == sent
        assert hash(got) == hash(sent)
        assert got.settings["hot"] == 1_000_000
        assert got.schema == sent.schema
        assert got.get_column("S") == sent.columns[1]
    for each in (file(), NewFile("p", FILE_ROWS, 0, 1, 1, 1, 1, 0, 0, 1, 1, "load", {"a": (1, 2)})):
        assert pickle.loads(pickle.dumps(each)) == each
    assert len({file(), file(), file(file_id=2)}) == 2


def test_histories_and_snapshots_travel() -> None:
    history = History(7, 5, 9, (file(), file(FILE_LATE, 2), file(file_id=3)))
    assert history.rows == 14
    assert history.bytes == 1_400
    assert [each.generation for each in history.partitions] == [3]
    assert [len(each.files) for each in (*history.partitions, *history.sides)] == [2, 1]
    snapshot = Snapshot(1, 2, FrozenMap({"t": table()}), FrozenMap({7: history}), definition_id=1)
    got = pickle.loads(pickle.dumps(snapshot))
    assert got == snapshot
    assert got.history(7).partitions == history.partitions
    assert got.history(7).reserved_seq == 9
    assert got.history(8) == History(8)
    assert History(8).files == History(8).partitions == ()
