"""Kills on a real Spark: of Python workers in mid-task, and of the driver with all it started.

Spark runs a task again whose worker died; when it gives up, the job fails and nothing is stored.
Either way each row is there once, and the next FLUSH succeeds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sim import spark_writer as w
from warehouses import open_inline, quiet

from tidemill.engine import Database
from tidemill.pipeline.executor import PipelineError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_spark")]
WAIT_S = 240.0
POLL_S = 0.01


@pytest.fixture(autouse=True)
def nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Moves of small segments in tasks of their own, when a test says so."""
    monkeypatch.setattr("tidemill.pipeline.move.TASK_BYTES", 1)
    monkeypatch.setattr("tidemill.pipeline.packages.TASK_WEIGHT_MIN", 1)
    with quiet():
        yield


def _open(path: Path) -> Database:
    return open_inline(path, spark_master="local[2]", segment_size="1 MB")


def _create(db: Database, batches: int = 10) -> int:
    db.sql("CREATE STREAMING TABLE t (ts TIMESTAMP, id BIGINT, note VARCHAR)")
    for batch in range(batches):
        db.append("t", w.rows_of(batch))
    return batches * w.BATCH_ROWS


def _check(db: Database, rows: int) -> None:
    query = "SELECT count(*), count(DISTINCT _seq), count(DISTINCT id), sum(id) FROM t"
    assert db.sql(query).fetchall() == [(rows, rows, rows, rows * (rows - 1) // 2)]


def _check_files(db: Database) -> None:
    assert db.catalog.records.known_paths() <= _there(db)
    db.sql("VACUUM")
    assert _there(db) == db.catalog.records.known_paths()


def _there(db: Database) -> set[str]:
    return {path for path, *_ in db._keeping.storage.list("")}


def test_a_worker_that_dies_in_a_move_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every worker kills itself when it has written the files of its second task."""
    monkeypatch.setenv("TIDEMILL_CRASH_AT", "task.written:2")
    with _open(tmp_path / "w") as db:
        rows = _create(db, 30)
        segments = db.sql("SELECT log_segments FROM tidemill.ingest").fetchall()[0][0]
        assert segments > 2
        with suppress(PipelineError):  # if a task was unlucky four times
            db.sql("FLUSH t")
        _check(db, rows)
        assert len(_there(db)) > len(db.catalog.records.known_paths()), "nobody died"
        _check_files(db)
    with open_inline(tmp_path / "w") as db:
        _check(db, rows)
        db.sql("FLUSH t")
        _check(db, rows)
        _check_files(db)


def test_when_all_workers_die_the_move_fails_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_CRASH_AT", "task.written:1")
    with _open(tmp_path / "w") as db:
        rows = _create(db, 3)
        with pytest.raises(PipelineError):
            db.sql("FLUSH t")
        _check(db, rows)
        assert db.catalog.records.known_paths() == set()
        assert db.sql("SELECT state FROM tidemill.jobs").fetchall() == [("failed",)]
        db.append("t", w.rows_of(3))
        rows += w.BATCH_ROWS
        _check_files(db)
        assert _there(db) == set()
    with open_inline(tmp_path / "w") as db:
        _check(db, rows)
        db.sql("FLUSH t")
        _check(db, rows)
        assert db.sql("SELECT count(*) FROM tidemill.files").fetchall() != [(0,)]


# -- workers killed from outside


def _processes() -> dict[int, tuple[int, str]]:
    """Every process: its parent and its command."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(entry.name)] = int(stat[1]), command
    return found


def _workers() -> list[int]:
    """The Python workers that this process's Spark has forked."""
    known = _processes()

    def is_ours(pid: int) -> bool:
        while pid in known and pid != os.getpid():
            pid = known[pid][0]
        return pid == os.getpid()

    daemons = [pid for pid, (_, command) in known.items() if "pyspark.daemon" in command]
    return [pid for pid in daemons if known[pid][0] in daemons and is_ours(pid)]


def _kill_workers_of(db: Database, job_id: str) -> int:
    """Kill all workers once the job has shown progress; answers how many."""
    pause = threading.Event()
    while (record := db._keeping.pipeline.board.get(job_id)) and not record.is_ended:
        if record.tasks_done and (workers := _workers()):
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return len(workers)
        pause.wait(POLL_S)
    return 0


def _packages(folder: Path) -> None:
    folder.mkdir()
    for batch in range(10, 22):
        lines = (f"{ts},{number},{note}\n" for ts, number, note in w.rows_of(batch))
        (folder / f"{batch}.csv").write_text("ts,id,note\n" + "".join(lines))


def test_workers_killed_from_outside_change_no_answer(tmp_path: Path) -> None:
    """In a move and in a load: retried by Spark, or by whoever asked."""
    _packages(tmp_path / "in")
    with _open(tmp_path / "w") as db:
        rows = _create(db)
        hot = next(iter(db._hot.values()))
        handle = db._keeping._submit_move(hot, None, "a test")
        _kill_workers_of(db, handle.job_id)
        with suppress(PipelineError):
            handle.wait(WAIT_S)
        _check(db, rows)
        db.sql("FLUSH t")
        _check(db, rows)

        messages: list[Any] = []

        def copy() -> None:
            try:
                messages.append(db.sql(f"COPY t FROM '{tmp_path}/in/*.csv'").message)
            except PipelineError as error:
                messages.append(error)

        copying = threading.Thread(target=copy)
        copying.start()
        pause = threading.Event()
        while not (loads := _running_loads(db)) and copying.is_alive():
            pause.wait(POLL_S)
        for load in loads:
            _kill_workers_of(db, load)
        copying.join(WAIT_S)
        assert not copying.is_alive()
        if not isinstance(messages[0], str):
            messages.append(db.sql(f"COPY t FROM '{tmp_path}/in/*.csv'").message)
        assert messages[-1] == f"COPY {12 * w.BATCH_ROWS}"
        rows += 12 * w.BATCH_ROWS
        _check(db, rows)
        _check_files(db)
    with open_inline(tmp_path / "w") as db:
        _check(db, rows)


def _running_loads(db: Database) -> list[str]:
    records = db._keeping.pipeline.board.records()
    return [each.job_id for each in records if each.kind == "load" and not each.is_ended]


# -- the driver


@pytest.mark.parametrize("crash_at", [None, "move.written:2"])
def test_a_driver_killed_in_a_move_loses_nothing(tmp_path: Path, crash_at: str | None) -> None:
    """By its own hand between the tasks and the commit, or by ours while tasks run."""
    folder, errors = tmp_path / "w", tmp_path / "stderr"
    acknowledged, moving = 0, 0
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, w.__file__, str(folder)],
            env={**os.environ, "TIDEMILL_CRASH_AT": crash_at or ""},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            kind, *rest = line.split()
            acknowledged = int(rest[0]) if kind == "ack" else acknowledged
            moving += kind == "moving"
            if crash_at is None and moving == 2:
                process.kill()
        assert process.wait(WAIT_S) == -signal.SIGKILL, errors.read_text()
    finally:
        with suppress(ProcessLookupError):  # the JVM and its workers, too
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    assert moving >= 2
    with open_inline(folder) as db:
        found = db.sql("SELECT count(*) FROM t").fetchall()[0][0]
        assert acknowledged <= found <= acknowledged + w.BATCH_ROWS
        _check(db, found)
        _check_files(db)
        db.sql("FLUSH t")
        _check(db, found)
        _check_files(db)
    with open_inline(folder) as db:
        _check(db, found)
