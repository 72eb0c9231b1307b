"""History on an object store: a server that speaks S3, reached by the setting ``storage``."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from object_store import ObjectStore

import tidemill
from tidemill.engine import Database
from tidemill.errors import TidemillError
from tidemill.history.delta import check_publishable, publish_delta, unpublish
from tidemill.history.storage import Storage

QUESTION = "SELECT count(*), sum(k)::BIGINT, min(ts), max(ts), count(DISTINCT name) FROM t"
PLAIN = {"allow_http": "true"}  # what readers must say of an endpoint without encryption


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    before = _cloud_variables()
    server = ObjectStore()
    yield server
    server.stop()
    assert _cloud_variables() == before


def _cloud_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


@pytest.fixture
def root(store: ObjectStore) -> str:
    return store.new_root()


def open_on(folder: Path, root: str) -> Database:
    return tidemill.open(folder, spark_master="inline", storage=root, time_travel="1 ms")


def make(db: Database) -> None:
    db.sql(
        "CREATE STREAMING TABLE t (ts TIMESTAMP, k BIGINT, name VARCHAR, "
        "WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE) WITH (move = 'manual', clock = 'event')"
    )


def append(db: Database, first: int, count: int) -> None:
    db.sql(
        "INSERT INTO t SELECT TIMESTAMP '2026-01-01' + INTERVAL (r) MINUTE, r, 'n' || r % 7 "
        f"FROM range({first}, {first + count}) AS x(r)"
    )


def answer(db: Database, question: str = QUESTION) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in db.sql(question).table.to_pylist()]


def paths(storage: Storage, prefix: str = "") -> list[str]:
    return [path for path, _, _ in storage.list(prefix)]


def test_write_list_read_delete(root: str) -> None:
    storage = Storage(root)
    assert not paths(storage)
    with storage.connect() as connection:
        for name in ("1/a/x-0.parquet", "1/b/[x]*.parquet", "2/a/x-0.parquet"):
            storage.make_folder(name.rpartition("/")[0])
            connection.execute(f"COPY (SELECT 42 AS k) TO '{storage.place(name)}'")
            assert storage.finish(name) > 100
            found = connection.execute(f"FROM read_parquet('{storage.pattern(name)}')").fetchall()
            assert found == [(42,)]
    (path, size, changed) = next(iter(storage.list("2/")))
    assert path == "2/a/x-0.parquet"
    assert size > 100
    assert changed > 1_700_000_000
    assert len(paths(storage, "1/")) == 2
    for path in ("1/a/x-0.parquet", "1/a/x-0.parquet", "1/none/y.parquet"):
        storage.delete(path)
    assert paths(storage) == ["1/b/[x]*.parquet", "2/a/x-0.parquet"]


def test_what_others_write_is_seen_at_once(store: ObjectStore, root: str) -> None:
    """A listing that fsspec keeps would hide files of other processes: of Spark's tasks."""
    storage = Storage(root)
    other = boto3.client("s3", endpoint_url=store.endpoint)
    bucket, _, folder = root.removeprefix("s3://").partition("/")
    with storage.connect() as connection:
        connection.execute(f"COPY (SELECT 42 AS k) TO '{storage.place('1/a/0.parquet')}'")
        assert paths(storage) == ["1/a/0.parquet"]
        name = f"{folder}/1/a/0.parquet"
        other.copy_object(
            Bucket=bucket, Key=f"{folder}/1/a/1.parquet", CopySource=f"{bucket}/{name}"
        )
        place = storage.pattern("1/a/1.parquet")
        assert connection.execute(f"FROM read_parquet('{place}')").fetchall() == [(42,)]
        other.delete_object(Bucket=bucket, Key=name)
        assert paths(storage) == ["1/a/1.parquet"]


def test_a_filesystem_has_several_names(root: str) -> None:
    storage = Storage(root.replace("s3://", "s3a://"))
    with storage.connect() as connection:
        storage.prepare(connection)
        connection.execute(f"COPY (SELECT 42 AS k) TO '{storage.place('1/0.parquet')}'")
        place = storage.pattern("1/0.parquet")
        assert connection.execute(f"FROM read_parquet('{place}')").fetchall() == [(42,)]
        assert paths(storage) == ["1/0.parquet"]


def test_every_thread_and_process_reaches_it(root: str) -> None:
    storage = Storage(root)
    with storage.connect(threads=2) as connection:
        places = [storage.place(f"1/a/{number}.parquet") for number in range(2)]
        for place in places:
            connection.execute(f"COPY (SELECT * FROM range(1000) AS r(k)) TO '{place}'")
        count = f"SELECT count(*), sum(k)::BIGINT FROM read_parquet({places})"
        program = (
            "import pickle\n"
            f"with pickle.loads({pickle.dumps(storage)!r}).connect() as connection:\n"
            f"    print(*connection.execute({count!r}).fetchall())\n"
        )
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        found: list[Any] = []

        def read() -> None:
            cursor = connection.cursor()
            storage.prepare(cursor)  # it was before, by way of the connection: no error
            found.extend(cursor.execute(count).fetchall())

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [(2_000, 999_000)] * 3
    output, _ = child.communicate()
    assert output.strip() == "(2000, 999000)"


def test_a_warehouse_answers_and_opens_again(root: str, tmp_path: Path) -> None:
    with open_on(tmp_path / "w", root) as db:
        make(db)
        append(db, 0, 300)
        hot = answer(db)
        db.sql("FLUSH t")
        assert answer(db) == hot
        append(db, 300, 100)
        split = answer(db)
        assert split[0][:2] == (400, 79_800)
        assert not (tmp_path / "w" / "data").exists()
        assert len(paths(Storage(root), "1/")) >= 5
    with open_on(tmp_path / "w", root) as db:
        assert answer(db) == split
        db.sql("FLUSH t")
        assert answer(db) == split
        assert answer(db, "SELECT k FROM t WHERE ts = TIMESTAMP '2026-01-01 02:00:01'") == []
        assert answer(db, "SELECT k FROM t WHERE ts = TIMESTAMP '2026-01-01 02:00:00'") == [(120,)]


def test_threads_query_while_rows_move(root: str, tmp_path: Path) -> None:
    with open_on(tmp_path / "w", root) as db:
        make(db)
        seen: list[int] = []
        done = threading.Event()

        def count() -> None:
            while not done.is_set():
                seen.append(answer(db)[0][0])

        readers = [threading.Thread(target=count) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            for number in range(4):
                append(db, number * 50, 50)
                db.sql("FLUSH t")
        finally:
            done.set()
            for reader in readers:
                reader.join()
        assert answer(db)[0][0] == 200
        assert seen
        assert all(count % 50 == 0 for count in seen)


def test_vacuum_removes_orphans_and_forgotten_files(root: str, tmp_path: Path) -> None:
    storage = Storage(root)
    with open_on(tmp_path / "w", root) as db:
        make(db)
        append(db, 0, 60)
        db.sql("FLUSH t")
        kept = paths(storage)
        with storage.connect() as connection:
            connection.execute(f"COPY (SELECT 1) TO '{storage.place('1/x/orphan-0.parquet')}'")
            connection.execute(f"COPY (SELECT 1) TO '{storage.place('notes.txt')}' (FORMAT csv)")
        message = db.sql("VACUUM").message
        assert message.startswith("VACUUM 1 ")
        assert paths(storage) == [*kept, "notes.txt"]
        assert answer(db)[0][0] == 60
        db.sql("DROP TABLE t")
        db.sql("VACUUM")
        assert paths(storage) == ["notes.txt"]


def test_a_delta_table_on_an_object_store(root: str, tmp_path: Path) -> None:
    storage = Storage(root)
    place = f"{root}/1"
    with open_on(tmp_path / "w", root) as db:
        make(db)
        for version in range(2):
            snapshot = db.catalog.snapshot()
            table = snapshot.get("t")
            check_publishable(table, storage)
            history, at = snapshot.history(1), snapshot.snapshot_id
            assert publish_delta(storage, table, history, at) == version
            assert publish_delta(storage, table, history, at) is None
            assert pl.read_delta(place, storage_options=PLAIN).height == version * 100
            append(db, version * 100, 100)
            db.sql("FLUSH t")
        opened = DeltaTable(place, storage_options=PLAIN)
        assert opened.to_pyarrow_table()["k"].to_pylist().count(50) == 1
        unpublish(storage, table)
        assert not paths(storage, "1/_delta_log/")
        assert answer(db)[0][0] == 200


def test_a_bucket_that_is_not_there_is_an_error(store: ObjectStore, tmp_path: Path) -> None:
    with open_on(tmp_path / "w", "s3://no-such-bucket/w") as db:
        make(db)
        append(db, 0, 10)
        with pytest.raises(TidemillError, match="bucket"):
            db.sql("FLUSH t")
        assert answer(db)[0][0] == 10


def test_without_storage_duckdb_knows_no_bucket(root: str) -> None:
    """The filesystem comes from the storage alone, not from an extension of DuckDB."""
    with duckdb.connect(":memory:") as connection:
        assert "s3" not in connection.list_filesystems()
        Storage(root).prepare(connection)
        assert "s3" in connection.list_filesystems()


def test_a_wrong_key_is_refused(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server checks keys, so a request that is not signed with them would be noticed."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another secret")
    storage = Storage(root, {"skip_instance_cache": True})  # type: ignore[dict-item]
    with pytest.raises(PermissionError):
        paths(storage)
