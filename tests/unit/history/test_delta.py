"""The Delta log of a table's files: what it names, what it refuses, how it recovers."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import logging
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from history_kit import HOUR_US, NOW_US, history_of, make_batch, make_table, write

from tidemill.catalog.model import FILE_DELETES, FILE_LATE, DataFile, History, Table
from tidemill.errors import DurabilityError, UnsupportedError
from tidemill.history import delta
from tidemill.history.delta import (
    check_publishable,
    publish_delta,
    unpublish,
    waits_for_compaction,
)
from tidemill.history.storage import Storage

TABLE = make_table([("k", "INTEGER")])
FEW = 5
WORDS = uuid.UUID(int=2**100 + 5)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints every few versions."""
    quick = {**delta._CONFIGURATION, "delta.checkpointInterval": str(FEW)}
    monkeypatch.setattr(delta, "_CONFIGURATION", quick)


def file_of(number: int, **changes: Any) -> DataFile:
    """A file as the catalog names it; nobody has written it."""
    lo_us = NOW_US + number * HOUR_US
    given = DataFile(
        path=f"1/{number}/job{number}-0.parquet",
        kind="rows",
        lo_us=lo_us,
        hi_us=lo_us + HOUR_US,
        rows=10,
        bytes=1_000 + number,
        row_groups=1,
        time_min_us=lo_us,
        time_max_us=lo_us + 9,
        seq_min=number * 10 + 1,
        seq_max=number * 10 + 10,
        origin="move",
        file_id=number,
        created_snapshot=number,
    )
    return dataclasses.replace(given, **changes)


def history(*files: DataFile) -> History:
    return History(1, files=files)


def publish(storage: Storage, snapshot_id: int, *files: DataFile) -> int | None:
    return publish_delta(storage, TABLE, history(*files), snapshot_id)


def log_of(storage: Storage) -> Path:
    return Path(storage.root, "1", "_delta_log")


def entry(storage: Storage, version: int) -> Path:
    return log_of(storage) / f"{version:020d}.json"


def actions(storage: Storage, version: int) -> list[tuple[str, str]]:
    """What a version adds and removes."""
    lines = [json.loads(line) for line in entry(storage, version).read_text().splitlines()]
    found = ((kind, line[kind]["path"]) for line in lines for kind in line if "path" in line[kind])
    return sorted(found)


def published(storage: Storage) -> DeltaTable:
    return DeltaTable(storage.place("1"))


def named(storage: Storage) -> set[str]:
    """The files that the newest version names, as paths of the catalog."""
    held = pa.table(published(storage).get_add_actions())
    return {f"1/{path}" for path in held["path"].to_pylist()}


def answers(storage: Storage, table: Table) -> dict[str, list[dict[str, Any]]]:
    """All rows, as several readers read them; none of them is DuckDB."""
    place = storage.place(str(table.table_id))
    opened = DeltaTable(place)
    query = deltalake.QueryBuilder().register("t", opened)
    return {
        "polars": pl.read_delta(place).sort("_seq").to_dicts(),
        "pyarrow": opened.to_pyarrow_dataset().to_table().sort_by("_seq").to_pylist(),
        "datafusion": pa.table(query.execute("SELECT * FROM t ORDER BY _seq")).to_pylist(),
    }


# -- types

TYPES: list[tuple[str, Any, Any]] = [
    ("BOOLEAN", True, True),
    ("TINYINT", -128, -128),
    ("SMALLINT", -32_768, -32_768),
    ("INTEGER", -(2**31), -(2**31)),
    ("BIGINT", -(2**63), -(2**63)),
    ("UTINYINT", 255, 255),
    ("USMALLINT", 65_535, 65_535),
    ("UINTEGER", 2**32 - 1, 2**32 - 1),
    ("HUGEINT", -(2**127), str(-(2**127))),
    ("UHUGEINT", 2**128 - 1, str(2**128 - 1)),
    ("INTERVAL", pa.MonthDayNano((14, -3, 0)), "1 year 2 months -3 days"),
    ("FLOAT", 1.5, 1.5),
    ("DOUBLE", -0.1, -0.1),
    ("VARCHAR", "größe\n数", "größe\n数"),
    ("BLOB", b"\x00\xff", b"\x00\xff"),
    ("DATE", 20_454, dt.date(2026, 1, 1)),
    ("TIMESTAMP", NOW_US + 1, dt.datetime(2023, 11, 14, 22, 0, 0, 1)),
    ("TIMESTAMPTZ", NOW_US + 1, dt.datetime(2023, 11, 14, 22, 0, 0, 1, dt.UTC)),
    ("DECIMAL(4,1)", Decimal("-123.4"), Decimal("-123.4")),
    ("DECIMAL(18,3)", Decimal("123456789012345.678"), Decimal("123456789012345.678")),
    ("DECIMAL(38,10)", Decimal("-1.0000000001"), Decimal("-1.0000000001")),
    ("UUID", WORDS.bytes, WORDS.bytes),
    ("JSON", '{"a": 1}', b'{"a": 1}'),
    ("INTEGER[]", [1, None], [1, None]),
    ("UTINYINT[]", [255, None], [255, None]),
    ("JSON[]", ["1"], [b"1"]),
    ("UUID[]", [WORDS.bytes], [WORDS.bytes]),
    ("TIMESTAMP[]", [NOW_US], [dt.datetime(2023, 11, 14, 22)]),
    ("HUGEINT[2]", [1, 2**100], ["1", str(2**100)]),
    ("STRUCT(a USMALLINT, b STRUCT(c JSON))", (65_535, ("1",)), {"a": 65_535, "b": {"c": b"1"}}),
]


@pytest.mark.parametrize("time_type", ["TIMESTAMP", "TIMESTAMP WITH TIME ZONE"])
def test_every_reader_reads_every_type(storage: Storage, time_type: str) -> None:
    table = make_table([(f"c{at}", t[0]) for at, t in enumerate(TYPES)], time_type=time_type)
    batch = make_batch(table, [(NOW_US, *(t[1] for t in TYPES)), (NOW_US, *[None] * len(TYPES))])
    check_publishable(table, storage)
    assert publish_delta(storage, table, history_of(write(storage, table, batch)), 1) == 0
    zone = None if time_type == "TIMESTAMP" else dt.UTC
    ends = {"ts": dt.datetime(2023, 11, 14, 22, tzinfo=zone)}
    first = {**ends, **{f"c{at}": t[2] for at, t in enumerate(TYPES)}, "_seq": 1}
    second = {**ends, **{f"c{at}": None for at in range(len(TYPES))}, "_seq": 2}
    for reader, rows in answers(storage, table).items():
        assert rows == [first, second], reader


def test_maps(storage: Storage) -> None:
    table = make_table([("m", "MAP(VARCHAR, UINTEGER)")])
    batch = make_batch(table, [(NOW_US, [("k", 2**32 - 1)])])
    publish_delta(storage, table, history_of(write(storage, table, batch)), 1)
    for reader, rows in answers(storage, table).items():
        assert dict(rows[0]["m"]) == {"k": 2**32 - 1}, reader


@pytest.mark.parametrize(
    "kind", ["TIME", "UBIGINT", "TIME[]", "STRUCT(a UBIGINT)", "MAP(VARCHAR, TIME)"]
)
def test_types_that_no_reader_would_read_right_are_refused(kind: str) -> None:
    with pytest.raises(UnsupportedError, match='column "c" of table "t"') as caught:
        check_publishable(make_table([("c", kind)]))
    assert "UBIGINT" in str(caught.value) or "TIME" in str(caught.value)


@pytest.mark.parametrize("name", ["a b", "a,b", "a=b", "(a)", "a\nb"])
def test_names_that_delta_does_not_allow_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot be published"):
        check_publishable(make_table([(name, "INTEGER")]))
    with pytest.raises(UnsupportedError, match="cannot be published"):
        check_publishable(make_table([("s", f'STRUCT("{name}" INTEGER)')]))


@pytest.mark.parametrize("name", ["größe", "a.b", "a'b", 'a"b', "select", "A"])
def test_other_names_are_read(storage: Storage, name: str) -> None:
    table = make_table([(name, "INTEGER")])
    files = write(storage, table, make_batch(table, [(NOW_US, 7)]))
    publish_delta(storage, table, history_of(files), 1)
    for reader, rows in answers(storage, table).items():
        assert rows[0][name] == 7, reader


def test_reference_tables_and_other_storage_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="reference table"):
        check_publishable(dataclasses.replace(TABLE, kind="reference"))
    with pytest.raises(UnsupportedError, match="memory://x"):
        check_publishable(TABLE, Storage("memory://x"))
    with pytest.raises(UnsupportedError, match="%"):
        check_publishable(TABLE, Storage("/tmp/a%20b"))
    check_publishable(TABLE, Storage("s3://bucket/folder"))


# -- versions


def test_only_what_changed_is_written(storage: Storage) -> None:
    one, two, three = file_of(1), file_of(2), file_of(3)
    assert publish(storage, 1) == 0
    assert not named(storage)
    assert publish(storage, 2, one, two) == 1
    assert publish(storage, 3, one, two) is None
    assert publish(storage, 4, two, three) == 2
    assert named(storage) == {two.path, three.path}
    assert actions(storage, 2) == [("add", three.path[2:]), ("remove", one.path[2:])]
    assert publish(storage, 5) == 3
    assert not named(storage)


def test_an_older_snapshot_changes_nothing(storage: Storage) -> None:
    publish(storage, 5, file_of(1), file_of(2))
    assert published(storage).transaction_version("tidemill") == 5
    assert publish(storage, 4, file_of(1)) is None
    assert len(named(storage)) == 2
    assert publish(storage, 5, file_of(1), file_of(2)) is None


def test_others_do_not_read_the_log(storage: Storage) -> None:
    publish(storage, 1, file_of(1), file_of(2))
    publish(storage, 2, file_of(1))
    folder = Path(storage.place(f"{TABLE.table_id}/_delta_log"))
    found = [folder, *folder.iterdir()]
    assert len(found) > 1
    assert not [path for path in found if path.stat().st_mode & 0o077]


def test_side_files_are_not_published(storage: Storage) -> None:
    publish(storage, 1, file_of(1), file_of(2, kind=FILE_LATE))
    assert named(storage) == {file_of(1).path}


def test_rows_deleted_in_files_wait_for_compaction(storage: Storage) -> None:
    rows = file_of(1)
    gone = dataclasses.replace(rows, path="1/d.parquet", kind=FILE_DELETES, created_snapshot=9)
    compacted = file_of(1, path="1/c.parquet", created_snapshot=10)
    publish(storage, 1, rows)
    assert waits_for_compaction(history(rows, gone))
    with pytest.raises(UnsupportedError, match="not yet compacted"):
        publish(storage, 9, rows, gone, file_of(2))
    assert named(storage) == {rows.path}
    assert not waits_for_compaction(history(compacted, gone))
    assert publish(storage, 10, compacted, gone, file_of(2)) == 1
    assert named(storage) == {compacted.path, file_of(2).path}


def test_rows_that_a_load_takes_back_at_once_wait_for_compaction() -> None:
    """Their file and the file of deletes are named together."""
    rows = file_of(1, created_snapshot=9)
    gone = dataclasses.replace(rows, path="1/d.parquet", kind=FILE_DELETES)
    assert waits_for_compaction(history(rows, gone))


@pytest.mark.usefixtures("often")
def test_the_log_stays_short(storage: Storage) -> None:
    files: list[DataFile] = []
    for number in range(5 * FEW + 3):
        files = [*files[-20:], file_of(number)]
        assert publish(storage, number, *files) == number
    last = json.loads((log_of(storage) / "_last_checkpoint").read_text())
    assert last["version"] >= 5 * FEW - 1
    assert named(storage) == {file.path for file in files}


# -- what readers skip


@pytest.mark.parametrize("time_type", ["TIMESTAMP", "TIMESTAMP WITH TIME ZONE"])
def test_readers_skip_files_by_time(storage: Storage, time_type: str) -> None:
    table = make_table([], time_type=time_type)
    times = [NOW_US + number * HOUR_US + 1 for number in range(5)]
    files = history_of(write(storage, table, make_batch(table, [(time,) for time in times])))
    publish_delta(storage, table, files, 1)
    zone = None if time_type == "TIMESTAMP" else dt.UTC
    begin = dt.datetime(2023, 11, 14, 23, 0, 0, 1, zone)
    place = storage.place("1")
    kept = pl.scan_delta(place).filter(pl.col("ts").is_between(begin, begin)).collect()
    assert kept["_seq"].to_list() == [2]
    opened = DeltaTable(place)
    assert opened.to_pyarrow_table(filters=[("ts", "=", begin)])["_seq"].to_pylist() == [2]
    assert len(opened.file_uris(file_pruning_predicate=[("ts", "=", begin)])) == 1
    later = begin + dt.timedelta(milliseconds=2)  # readers allow for bounds in milliseconds
    assert len(opened.file_uris(file_pruning_predicate=[("ts", ">", later)])) == 3
    assert len(opened.file_uris(file_pruning_predicate=[("_seq", "<=", 2)])) == 2


def test_times_that_no_calendar_holds_have_no_bounds(storage: Storage) -> None:
    table = make_table([])
    rows = [(2**63 - 1,), (1 - 2**63,), (-62_135_596_800_000_000,)]
    files = history_of(write(storage, table, make_batch(table, rows)))
    publish_delta(storage, table, files, 1)
    bounds = pa.table(published(storage).get_add_actions(flatten=True)).to_pylist()
    assert {each["min.ts"] for each in bounds} == {None, dt.datetime(1, 1, 1)}
    assert pl.read_delta(storage.place("1"))["_seq"].sort().to_list() == [1, 2, 3]


# -- recovery


def test_a_version_that_was_never_written_is_made_up_for(storage: Storage) -> None:
    publish(storage, 1, file_of(1))
    publish(storage, 2, file_of(1), file_of(2))
    entry(storage, 1).unlink()
    assert publish(storage, 2, file_of(1), file_of(2)) == 1
    assert len(named(storage)) == 2


@pytest.mark.parametrize("left", ["", '{"add":{"path":', "\0" * 100])
def test_a_torn_log_is_written_anew(
    storage: Storage, left: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = [file_of(number) for number in range(1, 4)]
    for number in (1, 2):
        publish(storage, number, *files[:number])
    entry(storage, 1).write_text(left)
    with caplog.at_level(logging.WARNING, "tidemill.history"):
        assert publish(storage, 3, *files) is not None
    assert named(storage) == {file.path for file in files}
    assert bool(caplog.messages) == bool(left)


@pytest.mark.usefixtures("often")
def test_a_lost_checkpoint_is_written_anew(storage: Storage) -> None:
    for number in range(FEW + 2):
        publish(storage, number, file_of(number))
    for path in log_of(storage).glob("*.checkpoint.parquet"):
        path.unlink()
    publish(storage, 1_000, file_of(7))
    assert named(storage) == {file_of(7).path}


def test_a_log_of_another_schema_is_written_anew(storage: Storage) -> None:
    publish_delta(storage, make_table([("k", "BIGINT")]), history(file_of(1)), 1)
    assert publish(storage, 2, file_of(1)) == 0
    assert published(storage).schema() == delta.delta_schema(TABLE)


def test_two_writers_at_once_is_an_error(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(storage, 1, file_of(1))
    sizes = delta._sizes

    def interrupted(table: DeltaTable) -> dict[str, int]:
        monkeypatch.setattr(delta, "_sizes", sizes)
        publish(storage, 2, file_of(1), file_of(2))
        return sizes(table)

    monkeypatch.setattr(delta, "_sizes", interrupted)
    with pytest.raises(DurabilityError, match='table "t" could not be published'):
        publish(storage, 3, file_of(1), file_of(2), file_of(3))
    assert named(storage) == {file_of(1).path, file_of(2).path}
    assert publish(storage, 3, file_of(1), file_of(2), file_of(3)) == 2


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("no folder")
    with pytest.raises(DurabilityError, match='table "t" could not be published'):
        publish(Storage(str(tmp_path)), 1, file_of(1))


# -- the end


def test_unpublish_removes_the_log_and_nothing_else(storage: Storage) -> None:
    files = write(storage, TABLE, make_batch(TABLE, [(NOW_US, 7)]))
    unpublish(storage, TABLE)
    for snapshot_id in range(3):
        publish_delta(storage, TABLE, history_of(files * (snapshot_id % 2)), snapshot_id)
    unpublish(storage, TABLE)
    assert not log_of(storage).exists()
    assert [path for path, _, _ in storage.list("")] == [file.path for file in files]
    assert publish_delta(storage, TABLE, history_of(files), 3) == 0


@pytest.mark.usefixtures("often")
def test_what_a_broken_off_unpublish_leaves_is_an_older_version(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(FEW + 2):
        publish(storage, number, file_of(number))
    count = len(list(log_of(storage).iterdir()))
    deleted = Storage.delete
    for _ in range(count):
        left = [1]

        def delete_one(self: Storage, path: str, left: list[int] = left) -> None:
            if not left:
                raise OSError("broken off")
            left.pop()
            deleted(self, path)

        monkeypatch.setattr(Storage, "delete", delete_one)
        try:
            unpublish(storage, TABLE)
        except OSError:
            assert len(named(storage)) == 1
    assert not log_of(storage).exists()
