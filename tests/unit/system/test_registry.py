"""System tables: made from hand-made snapshots, and from a warehouse whose rows moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from once import once

from tidemill.catalog.model import DataFile, History, Package, Snapshot, Source, Table
from tidemill.clock import FakeClock, to_us
from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.executions import Executions
from tidemill.federation.system import INFORMATION_NAMES, NAMES, schema
from tidemill.history.writing import WriteSpec, write_deletes
from tidemill.stream.counting import LiveRows, deleted_rows
from tidemill.stream.image import look
from tidemill.system.registry import MAKERS, WarehouseTables
from tidemill.system.state import State

HOUR_US = 3_600_000_000
DAY = datetime(2024, 5, 1)
SETTINGS = Settings(DATABASE_SETTINGS, {})


def a_file(number: int, hour: int = 0, **changes: Any) -> DataFile:
    lo = to_us(DAY) + hour * HOUR_US
    file = DataFile(
        path=f"1/x/{number}.parquet",
        kind="rows",
        lo_us=lo,
        hi_us=lo + HOUR_US,
        rows=100,
        bytes=1_000,
        row_groups=2,
        time_min_us=lo + number,
        time_max_us=lo + HOUR_US - number,
        seq_min=100 * number,
        seq_max=100 * number + 99,
        origin="move",
        file_id=number,
        table_id=1,
        generation=number,
        created_snapshot=number,
    )
    return replace(file, **changes)


def a_snapshot(*files: DataFile, sources: dict[str, Source] | None = None) -> Snapshot:
    table = Table(1, "Pos", "streaming", (), (), "ts", None, {}, (), to_us(DAY))
    bare = Table(2, "r", "reference", (), (), None, None, {}, (), to_us(DAY))
    history = History(1, 500, 0, files)
    return Snapshot(7, to_us(DAY), {"pos": table, "r": bare}, {1: history}, sources or {})


def made(snapshot: Snapshot, **calls: Any) -> WarehouseTables:
    return WarehouseTables(State(lambda: snapshot, {}, lambda table_id: 3, SETTINGS, **calls))


# -- all of them


def test_every_name_has_a_maker() -> None:
    names = {name.partition(".")[2] for name in NAMES}
    assert set(MAKERS) == names | set(INFORMATION_NAMES)


@pytest.mark.parametrize("name", [name.partition(".")[2] for name in NAMES])
def test_every_table_can_be_made_without_anything_wired(name: str) -> None:
    table = made(a_snapshot()).table(name)
    assert table.schema == schema(name)


# -- history


def test_partitions_are_told_with_their_chain() -> None:
    files = (
        a_file(1),
        a_file(2, rows=10, bytes=50),
        a_file(3, hour=2),
        a_file(4, kind="late"),
    )
    rows = made(a_snapshot(*files)).table("partitions").to_pylist()
    assert [row["lo"] for row in rows] == [DAY, DAY + timedelta(hours=2)]
    assert rows[0] == {
        "table_name": "Pos",
        "lo": DAY,
        "hi": DAY + timedelta(hours=1),
        "generation": 2,
        "files": 2,
        "revisions": 1,
        "deletes": 0,
        "rows": 110,
        "bytes": 1_050,
        "time_min": DAY + timedelta(microseconds=1),
        "time_max": DAY + timedelta(hours=1, microseconds=-1),
    }


def test_a_file_of_deletes_counts_for_every_partition_it_concerns() -> None:
    wide = a_file(9, kind="deletes", hi_us=to_us(DAY) + 2 * HOUR_US, rows=5)
    files = (a_file(1), a_file(2, hour=1), a_file(3, hour=2), wide)
    rows = made(a_snapshot(*files)).table("partitions").to_pylist()
    assert [(row["files"], row["deletes"], row["rows"]) for row in rows] == [
        (1, 1, 100),
        (1, 1, 100),
        (1, 0, 100),
    ]


def test_files_are_told_as_the_catalog_knows_them() -> None:
    (first, row) = made(a_snapshot(a_file(3), a_file(4))).table("files").to_pylist()
    assert first["is_anchor"] is True
    assert row == {
        "table_name": "Pos",
        "file_id": 4,
        "path": "1/x/4.parquet",
        "kind": "rows",
        "origin": "move",
        "lo": DAY,
        "hi": DAY + timedelta(hours=1),
        "generation": 4,
        "is_anchor": False,
        "rows": 100,
        "bytes": 1_000,
        "row_groups": 2,
        "time_min": DAY + timedelta(microseconds=4),
        "time_max": DAY + timedelta(hours=1, microseconds=-4),
        "seq_min": 400,
        "seq_max": 499,
        "snapshot": 4,
    }


@pytest.mark.parametrize("us", [-(2**63), -(2**63) + 1, 2**63 - 1, -(2**70), 2**70])
@pytest.mark.parametrize("name", ["partitions", "files"])
def test_times_that_nobody_can_show_break_nothing(us: int, name: str) -> None:
    """DuckDB gives up its whole instance over some of these times."""
    lo, hi = min(us, 0), max(us, 0)
    snapshot = a_snapshot(a_file(1, lo_us=max(lo, -(2**63)), hi_us=min(hi, 2**63 - 1)))
    if name == "files":
        snapshot = a_snapshot(a_file(1, lo_us=lo, hi_us=hi))
    told = made(snapshot).table(name)
    (row,) = told.to_pylist()
    shown = row["lo"] if us < 0 else row["hi"]
    assert shown == (datetime.min if us < 0 else datetime.max)
    texts = duckdb.execute("SELECT lo::VARCHAR, hi::VARCHAR FROM told").fetchall()
    assert texts == [(str(row["lo"]), str(row["hi"]))]


def test_rows_that_a_compaction_has_left_out_are_not_taken_away_twice() -> None:
    deletes = a_file(5, kind="deletes", rows=7, seq_min=100, seq_max=120)
    before, after = a_file(1), a_file(6, seq_min=100, seq_max=199)
    assert deleted_rows(History(1, 0, 0, (before, deletes))) == 7
    assert deleted_rows(History(1, 0, 0, (deletes, after))) == 0
    elsewhere = a_file(1, hour=5)
    assert deleted_rows(History(1, 0, 0, (deletes, elsewhere))) == 0
    assert deleted_rows(History(1)) == 0


def test_snapshots_are_those_of_the_catalog_or_the_present_one() -> None:
    (row,) = made(a_snapshot()).table("snapshots").to_pylist()
    assert row == {"snapshot_id": 7, "committed_at": DAY, "is_current": True}
    kept = made(a_snapshot(), snapshots=lambda: [(7, to_us(DAY)), (6, 0)]).table("snapshots")
    assert [(row["snapshot_id"], row["is_current"]) for row in kept.to_pylist()] == [
        (7, True),
        (6, False),
    ]


# -- work


@dataclass(frozen=True)
class Job:
    job_id: str = "j"
    kind: str = "move"
    table_name: str = "Pos"
    state: str = "running"
    planned_at_us: int = 0
    started_at_us: int | None = 1_000_000
    ended_at_us: int | None = None
    tasks: int = 4
    tasks_done: int = 1
    rows: int = 10
    bytes: int = 20
    files: int = 2
    error: str | None = None
    detail: str | None = "move 10 rows"
    ran_on: str | None = "Spark"


@pytest.mark.parametrize(
    ("job", "progress", "elapsed_s"),
    [
        (Job(), 0.25, 9),
        (Job(tasks_done=4), 1.0, 9),
        (Job(tasks=0, tasks_done=0), 0.0, 9),
        (Job(state="committed", tasks=0, ended_at_us=3_000_000), 1.0, 2),
        (Job(state="failed", ended_at_us=2_000_000, error="no"), 0.25, 1),
        (Job(state="queued", started_at_us=None, tasks=0), 0.0, None),
        (Job(ended_at_us=500_000), 0.25, 0),  # the clock was set back
    ],
)
def test_jobs_are_told_with_their_progress(
    job: Job, progress: float, elapsed_s: int | None
) -> None:
    clock = FakeClock(10_000_000)
    (row,) = made(a_snapshot(), jobs=lambda: [job], clock=clock).table("jobs").to_pylist()
    assert row["progress"] == progress
    assert row["elapsed"] == (None if elapsed_s is None else timedelta(seconds=elapsed_s))
    assert (row["state"], row["error"], row["detail"]) == (job.state, job.error, job.detail)
    assert row["planned_at"] == datetime(1970, 1, 1)


@dataclass(frozen=True)
class Move:
    table_name: str = "Pos"
    at_us: int = to_us(DAY)
    policy: str = "adaptive"
    action: str = "waits"
    reason: str = "nothing is old enough"
    keep_us: int = 2**70
    keep_rows: int = 7
    rate_bytes_s: float = 1.5
    fill: float = 0.5
    fill_max: float = 0.55
    full_in_us: int | None = 2_000_000
    move_us: int = 1_500_000
    arrival_factor: float = 1.25
    move_factor: float = 0.75
    rows: int = 0
    bytes: int = 0
    upto_seq: int | None = None
    stays_bytes: int | None = 100
    stays_from_us: int | None = to_us(DAY)
    stayed_bytes: int | None = None
    job_id: str | None = None


def test_moves_are_told_with_their_reason() -> None:
    (row,) = made(a_snapshot(), moves=lambda: [Move()]).table("moves").to_pylist()
    assert (row["at"], row["policy"], row["action"]) == (DAY, "adaptive", "waits")
    assert (row["rate_bytes_s"], row["fill"], row["upto_seq"]) == (1.5, 0.5, None)
    assert row["keep"] == timedelta(microseconds=2**63 - 1)  # as long as can be told
    assert (row["keep_rows"], row["fill_max"]) == (7, 0.55)
    assert (row["full_in"], row["move_time"]) == (timedelta(seconds=2), timedelta(seconds=1.5))
    assert (row["arrival_factor"], row["move_factor"]) == (1.25, 0.75)
    assert (row["stays_bytes"], row["stays_from"], row["stayed_bytes"]) == (100, DAY, None)


def a_package(name: str, state: str = "loaded", source: str = "In", **numbers: int) -> Package:
    counts = {"rows": 10, "rejected": 1, "late": 2, **numbers}
    reason = None if state == "loaded" else "bad header"
    at_us = to_us(DAY)
    return Package(
        name, 5, "ab", state, reason, **counts, loaded_at_us=at_us, source=source, job_id="j"
    )


def packages_of(*packages: Package) -> Callable[[int], list[Package]]:
    return lambda table_id: list(packages) if table_id == 1 else []


@dataclass(frozen=True)
class Looked:
    looked_at_us: int | None = to_us(DAY)
    last_error: str | None = "gone"


def test_sources_are_told_with_their_packages() -> None:
    source = Source(1, "In", 1, "/in/*.csv", "csv", {}, 10_000_000, to_us(DAY))
    lonely = Source(2, "zero", 99, "/z", "csv", {}, None, to_us(DAY))
    snapshot = a_snapshot(sources={"in": source, "zero": lonely})
    packages = packages_of(
        a_package("a"), a_package("b", "set_aside", rows=0), a_package("c", source="copy")
    )
    system = made(snapshot, packages=packages, sources_state=lambda: {"in": Looked()})
    first, second = system.table("sources").to_pylist()
    assert first == {
        "source_name": "In",
        "table_name": "Pos",
        "pattern": "/in/*.csv",
        "format": "csv",
        "every": timedelta(seconds=10),
        "packages": 2,
        "set_aside": 1,
        "last_look_at": DAY,
        "last_error": "gone",
        "created_at": DAY,
    }
    assert (second["table_name"], second["every"], second["last_look_at"]) == (None, None, None)


def test_packages_are_told_as_the_catalog_knows_them() -> None:
    system = made(a_snapshot(), packages=packages_of(a_package("a", "set_aside")))
    (row,) = system.table("packages").to_pylist()
    assert (row["table_name"], row["source_name"], row["name"]) == ("Pos", "In", "a")
    assert (row["size"], row["digest"], row["state"]) == (5, "ab", "set_aside")
    assert (row["reason"], row["loaded_at"], row["job_id"]) == ("bad header", DAY, "j")


def test_queries_are_what_runs() -> None:
    clock = FakeClock(DAY)
    executions = Executions("w", clock)
    system = made(a_snapshot(), queries=executions.running, clock=clock)
    assert system.table("queries").num_rows == 0
    with executions.begin("  FLUSH t\n"), executions.begin("x" * 5_000) as second:
        clock.advance(1.5)
        second.cancel()
        first_row, second_row = system.table("queries").to_pylist()
        assert first_row.pop("query_id") < second_row.pop("query_id")
        assert first_row == {
            "statement": "FLUSH t",
            "state": "running",
            "progress": None,
            "started_at": DAY,
            "seconds": 1.5,
        }
        assert second_row["state"] == "cancelling"
        assert len(second_row["statement"]) == 1_000


# -- a warehouse


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    settings = Settings(DATABASE_SETTINGS, {"spark_master": "inline", "threads": 1})
    with Database(tmp_path / "w", settings, FakeClock(DAY)) as opened:
        yield opened


def of(db: Database, **calls: Any) -> WarehouseTables:
    state = State(db.catalog.snapshot, db._hot, lambda table_id: 0, SETTINGS, **calls)
    return WarehouseTables(state)


def fill(db: Database, count: int, minute: int = 0) -> None:
    db.sql(
        "INSERT INTO t SELECT TIMESTAMP '2024-05-01' + INTERVAL (?) MINUTE "
        "+ i * INTERVAL '1' SECOND, i FROM range(?) r(i)",
        [minute, count],
    )


def only(system: WarehouseTables, name: str) -> dict[str, Any]:
    (row,) = system.table(name).to_pylist()
    return dict(row)


def test_rows_are_counted_once_wherever_they_are(db: Database) -> None:
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, a INT) WITH (clock = 'event')")
    fill(db, 10)
    before = only(of(db), "tables")
    assert (before["rows"], before["hot_rows"], before["history_rows"]) == (10, 10, 0)
    assert (before["history_bytes"], before["partitions"]) == (0, 0)
    db.sql("FLUSH t")
    fill(db, 5, minute=1)
    after = only(of(db), "tables")
    assert (after["rows"], after["hot_rows"], after["history_rows"]) == (15, 5, 10)
    assert after["history_bytes"] > 0
    assert after["partitions"] == 1
    told = only(of(db), "ingest")
    assert (told["rows_in"], told["stored"], told["expired"]) == (15, 15, 0)
    assert (told["loaded"], told["moved_seq"]) == (0, 10)


def test_replaced_rows_are_not_counted_before_and_after_the_move_that_deletes_them(
    db: Database,
) -> None:
    db.sql(
        "CREATE STREAMING TABLE t (ts TIMESTAMP, a INT, PRIMARY KEY (ts, a)) "
        "WITH (clock = 'event', on_conflict = 'replace')"
    )
    fill(db, 20)
    db.sql("FLUSH t")
    fill(db, 5)
    for _ in range(2):
        row, told = only(of(db), "tables"), only(of(db), "ingest")
        assert row["rows"] == 20
        assert (told["stored"], told["replaced"], told["expired"]) == (25, 5, 0)
        db.sql("FLUSH t")
    assert only(of(db), "tables")["hot_rows"] == 0


def test_rows_of_history_are_counted_exactly(db: Database) -> None:
    """A file of deletes may name rows that no file holds, and rows that memory replaced as well."""
    db.sql(
        "CREATE STREAMING TABLE t (ts TIMESTAMP, a INT, PRIMARY KEY (ts, a)) "
        "WITH (clock = 'event', on_conflict = 'replace')"
    )
    fill(db, 20)
    db.sql("FLUSH t")
    fill(db, 5)
    (hot,) = db._hot.values()
    image = look(hot).at(db.catalog.snapshot())
    (file,) = image.history.files
    storage = db._keeping.storage
    counted = LiveRows(db._duck, storage)
    nothing_newer = replace(image.view, removed=frozenset())
    assert counted(replace(image, view=nothing_newer)) == 20
    assert counted(image) == 15
    named = [*range(1, 4), *range(1_000, 1_100)]
    deletes = write_deletes(
        storage, WriteSpec.of(hot.table), file.lo_us, file.hi_us, named, "j", 0, "load"
    )
    once(db.catalog).commit_files(hot.table.table_id, add=[deletes])
    after = look(hot).at(db.catalog.snapshot())
    assert counted(after) == 15
    assert counted(replace(after, view=nothing_newer)) == 17
    exact = only(of(db, live_rows=counted), "tables")
    assert (exact["rows"], exact["history_rows"]) == (20, 15)
    assert only(of(db), "tables")["history_rows"] == 0  # what the catalog can say


def test_loaded_packages_count_as_rows_that_came_in(db: Database) -> None:
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, a INT) WITH (clock = 'event')")
    fill(db, 3)
    packages = packages_of(a_package("a"), a_package("b"), a_package("c", "set_aside"))
    told = only(of(db, packages=packages), "ingest")
    assert (told["rows_in"], told["stored"], told["rejected"], told["late"]) == (29, 23, 2, 4)
    assert told["loaded"] == 20
    assert told["expired"] == 20  # the packages' rows are in no file here


def test_rows_that_loads_replaced_did_not_expire(db: Database) -> None:
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, a INT) WITH (clock = 'event')")
    fill(db, 3)
    packages = packages_of(a_package("a", replaced=7), a_package("b", replaced=2))
    told = only(of(db, packages=packages), "ingest")
    assert (told["stored"], told["replaced"], told["expired"]) == (23, 9, 11)


def test_expired_is_never_negative(db: Database) -> None:
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, a INT) WITH (clock = 'event')")
    fill(db, 3)
    hot = next(iter(db._hot.values()))
    hot.counters.replaced = 100
    assert only(of(db), "ingest")["expired"] == 0


def test_expired_rows_are_counted(db: Database) -> None:
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, a INT) WITH (clock = 'event')")
    fill(db, 10)
    db.sql("FLUSH t")
    fill(db, 4, minute=1)
    (table_id,) = db._hot
    files = [file.file_id for file in db.catalog.snapshot().history(table_id).files]
    once(db.catalog).commit_files(table_id, drop=files)
    assert only(of(db), "ingest")["expired"] == 10
    assert only(of(db), "tables")["rows"] == 4
