"""Digests in files: partials that moves, loads, and back-fills write, merged, are the
partials of all rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from digest_kit import HOUR_US, NEWEST, START_US, SUMS, Row, Stream, opened
from once import once

from tidemill.catalog.model import FILE_DIGEST, Table
from tidemill.digests.progress import Progress
from tidemill.errors import ConflictError
from tidemill.history.partitions import US_MAX
from tidemill.pipeline.backfill import BackfillJob
from tidemill.pipeline.digest_compact import FILES_MAX
from tidemill.stream.keys import KeyConflicts


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    with opened(tmp_path) as stream:
        yield stream


def rows_at(hour: float, *keys: int | None, text: str | None = "a", f: float = 0.5) -> list[Row]:
    return [(START_US + int(hour * HOUR_US) + at, key, text, f) for at, key in enumerate(keys)]


# -- moves


def test_a_move_writes_partials_by_partition(stream: Stream) -> None:
    digests = stream.digest(), stream.digest(NEWEST)
    stream.append([*rows_at(0, 1, 2, 1), *rows_at(1, 1, None), *rows_at(5, 3, 3)])
    stream.move()
    for digest in digests:
        files = stream.files(digest)
        assert [(file.lo_us - START_US) // HOUR_US for file in files] == [0, 1, 5]
        assert {(file.kind, file.origin) for file in files} == {(FILE_DIGEST, "move")}
        assert [(file.seq_min, file.seq_max) for file in files] == [(1, 3), (4, 5), (6, 7)]
        assert (files[0].time_min_us, files[0].time_max_us) == (START_US, START_US + 2)
        assert all(file.path.startswith(f"{digest.table_id}/") for file in files)
        assert stream.catalog.snapshot().history(digest.table_id).moved_seq == 7
    assert [file.rows for file in stream.files(digests[0])] == [2, 2, 1]
    stream.check(*digests)


def test_several_moves_and_late_rows(stream: Stream) -> None:
    digest = stream.digest()
    stream.append(rows_at(5, 1, 2, 3))
    stream.move()
    stream.append([*rows_at(2, 1), *rows_at(5, 2, text="z"), *rows_at(5.5, 9, f=-1.0)])
    stream.check(digest)
    stream.move()
    stream.append(rows_at(7, 1, 2))
    stream.check(digest)
    assert len(stream.files(digest)) == 3  # the third move has not come


def test_rows_that_no_group_wants_leave_no_file(stream: Stream) -> None:
    digest = stream.digest()
    stream.append(rows_at(0, 1, 2, f=-1.0))
    stream.move()
    assert stream.files(digest) == ()
    assert stream.catalog.snapshot().history(digest.table_id).moved_seq == 2
    stream.check(digest)


def test_a_task_with_many_rows_writes_partials_in_parts(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.pipeline.move.BUFFER_BYTES", 64)
    digest = stream.digest()
    for number in range(4):
        stream.append(rows_at(0, number, 1, 2))
    stream.move()
    assert len(stream.files(digest)) == 4
    stream.check(digest)


def test_a_digest_that_came_meanwhile_fails_the_move(stream: Stream) -> None:
    stream.append(rows_at(0, 1))
    job = stream.move_job()
    written = stream.ran(job)
    stream.digest()
    before = stream.catalog.snapshot()
    with pytest.raises(ConflictError, match="changed while rows of its stream were moved"):
        written.commit()
    assert stream.catalog.snapshot() is before
    assert stream.history.files == ()
    assert stream.move().rows == 1


def test_a_digest_that_left_meanwhile_does_not(stream: Stream) -> None:
    digest = stream.digest()
    stream.append(rows_at(0, 1))
    job = stream.move_job()
    written = stream.ran(job)
    once(stream.catalog).drop_table(digest.table_id)
    written.commit()
    assert stream.history.rows == 1


# -- loads


def test_a_load_writes_partials(stream: Stream) -> None:
    digests = stream.digest(), stream.digest(NEWEST)
    stream.append(rows_at(3, 1, 2))
    stream.load([*rows_at(0, 1, 2), *rows_at(3, 7)], rows_at(3, 1, None))
    for digest in digests:
        files = stream.files(digest)
        assert {(file.kind, file.origin) for file in files} == {(FILE_DIGEST, "load")}
        assert stream.catalog.snapshot().history(digest.table_id).moved_seq == 0
    stream.check(*digests)
    stream.move()
    stream.load(rows_at(4, 5))
    stream.check(*digests)


def test_a_digest_that_came_during_a_load_gets_its_rows(stream: Stream) -> None:
    job = stream.load_job([*rows_at(0, 1, 2, 1), *rows_at(1, 1)])
    written = stream.ran(job)
    digest = stream.digest()
    written.commit()
    stream.check(digest)
    assert len(stream.files(digest)) == 2


def test_a_back_fill_during_a_load_misses_nothing(stream: Stream) -> None:
    """Whatever of the load the digest covers, when the load commits, is in it."""
    stream.load([*rows_at(1, 1), *rows_at(3, 3)])
    digest = stream.digest()
    job = stream.load_job([*rows_at(0, 1), *rows_at(1, 1), *rows_at(2, 1), *rows_at(3, 1)])
    written = stream.ran(job)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemill.pipeline.backfill.JOB_BYTES", 1)
        assert stream.backfill(digest) == 1
    written.commit()
    assert {file.lo_us for file in stream.files(digest)} == {START_US + 3 * HOUR_US}
    stream.check(digest)
    while stream.backfill(digest):
        stream.check(digest)
    stream.check(digest)
    assert stream.progress(digest).is_complete


def test_a_dropped_digest_does_not_fail_a_load(stream: Stream) -> None:
    digest = stream.digest()
    job = stream.load_job(rows_at(0, 1))
    written = stream.ran(job)
    once(stream.catalog).drop_table(digest.table_id)
    written.commit()
    assert stream.history.rows == 1


def test_rows_that_a_load_ignores_are_not_digested(tmp_path: Path) -> None:
    key = {"primary_key": ("ts", "k"), "settings": {"on_conflict": "ignore"}}
    with opened(tmp_path, **key) as stream:  # type: ignore[arg-type]
        digest = stream.digest()
        job = stream.load_job([*rows_at(0, 1, 2, 3), *rows_at(1, 1), *rows_at(2, 5, 6)])
        written = stream.ran(job)
        first = written.work.first_seq
        gone = np.array([first + 1, first + 3], np.int64)
        times = np.array([START_US + 1, START_US + HOUR_US], np.int64)
        stream.environment.conflicts = KeyConflicts(gone, gone, times)
        written.commit()
        assert stream.history_rows().num_rows == 4
        stream.check(digest)
        assert sorted(stream.found(digest)["k0"].to_pylist()) == [1, 3, 5, 6]


def test_packages_set_aside_at_commit_are_not_digested(tmp_path: Path) -> None:
    key = {"primary_key": ("ts", "k"), "settings": {"on_conflict": "reject"}}
    with opened(tmp_path, **key) as stream:  # type: ignore[arg-type]
        digest = stream.digest()
        job = stream.load_job(rows_at(0, 1, 2), rows_at(0.5, 7), rows_at(0.6, 8))
        job = replace(job, plan=replace(job.plan, source="s"))
        written = stream.ran(job)
        second = next(t for t in written.work.packages if t.listed.name.endswith("-1.csv"))
        gone = np.array([second.first_seq], np.int64)
        stream.environment.conflicts = KeyConflicts(gone, gone - 1, gone)
        written.commit()
        stream.check(digest)
        assert sorted(stream.found(digest)["k0"].to_pylist()) == [1, 2, 8]


# -- back-fill


def test_a_back_fill_goes_from_the_newest_on(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.pipeline.backfill.JOB_BYTES", 1)
    for hour in (0, 1, 4, 5):
        stream.append(rows_at(hour, 1, 2, hour))
    stream.move()
    digest = stream.digest()
    stream.append(rows_at(6, 1))
    assert stream.progress(digest).from_us == US_MAX
    stream.check(digest)
    stream.move()
    assert [file.origin for file in stream.files(digest)] == ["move"]
    froms = []
    while stream.backfill(digest):
        froms.append((stream.progress(digest).from_us or 0) - START_US)
        stream.check(digest)
        stream.append([*rows_at(0, 7), *rows_at(froms[-1] / HOUR_US, 8), *rows_at(8, 9)])
        stream.move()
        stream.check(digest)
    assert froms == [hour * HOUR_US for hour in (8, 6, 5, 4, 1)][-len(froms) :]
    assert stream.progress(digest) == Progress()
    assert {file.origin for file in stream.files(digest)} == {"move", "backfill"}
    stream.check(digest)
    assert stream.backfill(digest) == 0


def test_a_back_fill_in_one_step(stream: Stream) -> None:
    stream.append([row for hour in range(6) for row in rows_at(hour, 1, 2, hour)])
    stream.move()
    digest = stream.digest()
    assert stream.backfill(digest) == 0
    assert len(stream.files(digest)) == 6
    stream.check(digest)
    record = stream.board.records()[-1]
    assert (record.kind, record.rows, record.tasks_done) == ("backfill", 18, 6)


def test_a_back_fill_of_nothing_is_complete(stream: Stream) -> None:
    stream.append(rows_at(0, 1))
    stream.move()
    digest = stream.digest()
    stream.expire(START_US + 5 * HOUR_US)
    assert stream.backfill(digest) == 0
    assert stream.progress(digest).is_complete
    assert stream.files(digest) == ()


def test_partitions_that_were_joined_are_cut_again(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a compaction joined them over the time that the digest reaches back to."""
    monkeypatch.setattr("tidemill.pipeline.backfill.JOB_BYTES", 1)
    for hour in range(12):
        stream.append(rows_at(hour, 1, 2, hour))
        stream.move()
    digests = stream.digest(), stream.digest(NEWEST)
    for digest in digests:
        stream.backfill(digest)
        stream.backfill(digest)
        assert stream.progress(digest).from_us == START_US + 10 * HOUR_US
    stream.append(rows_at(12, 1, 2))
    stream.move()
    stream.compact(START_US + 12 * HOUR_US)
    assert any(file.hi_us - file.lo_us > HOUR_US for file in stream.history.files)
    stream.append(rows_at(3, 77))
    stream.move()
    stream.check(*digests)
    for digest in digests:
        while stream.backfill(digest):
            stream.check(*digests)
        assert {file.hi_us - file.lo_us for file in stream.files(digest)} == {HOUR_US}
    stream.check(*digests)


def test_chunks_of_a_back_fill(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.pipeline.backfill.CHUNK_BYTES", 1)
    monkeypatch.setattr("tidemill.pipeline.backfill.BATCH_ROWS", 3)
    monkeypatch.setattr("tidemill.pipeline.backfill.TASK_BYTES", 1)
    for hour in range(10):
        stream.append(rows_at(hour, 1, 2, hour, 5))
        stream.move()
    stream.compact(START_US + 20 * HOUR_US)
    stream.append(rows_at(4, 1))
    stream.move()
    digest = stream.digest()
    assert stream.backfill(digest) == 0
    stream.check(digest)


def test_deleted_rows_are_not_filled_in(tmp_path: Path) -> None:
    key = {"primary_key": ("ts", "k"), "settings": {"on_conflict": "ignore"}}
    with opened(tmp_path, **key) as stream:  # type: ignore[arg-type]
        job = stream.load_job(rows_at(0, 1, 2, 3))
        written = stream.ran(job)
        gone = np.array([written.work.first_seq + 1], np.int64)
        stream.environment.conflicts = KeyConflicts(gone, gone, np.array([START_US + 1], np.int64))
        written.commit()
        digest = stream.digest()
        assert stream.backfill(digest) == 0
        stream.check(digest)
        assert sorted(stream.found(digest)["k0"].to_pylist()) == [1, 3]


def test_a_back_fill_of_a_dropped_digest_ends(stream: Stream) -> None:
    stream.append(rows_at(0, 1))
    stream.move()
    digest = stream.digest()
    job = BackfillJob(digest, stream.table, stream.catalog, stream.storage)
    written = stream.ran(job)
    once(stream.catalog).drop_table(digest.table_id)
    assert written.commit().value == 0


# -- order


def test_partials_expire_with_their_rows(stream: Stream) -> None:
    digest = stream.digest()
    stream.append([row for hour in range(4) for row in rows_at(hour, hour, 1)])
    stream.move()
    stream.expire(START_US + int(2.5 * HOUR_US))
    assert [(f.lo_us - START_US) // HOUR_US for f in stream.files(digest)] == [2, 3]
    stream.check(digest)


def test_a_late_revision_does_not_expire_before_its_range(stream: Stream) -> None:
    """Its partials also sum up rows of the range that it was merged into."""
    digest = stream.digest()
    for hour in range(10):
        stream.append(rows_at(hour, hour, 1))
        stream.move()
    stream.compact(START_US + 20 * HOUR_US)
    stream.append(rows_at(3, 77))
    stream.move()
    before = stream.files(digest)
    stream.expire(START_US + 5 * HOUR_US)
    assert stream.files(digest) == before
    stream.check(digest)
    stream.expire(START_US + 10 * HOUR_US)
    assert stream.files(digest) == ()
    assert stream.history.files == ()


def test_many_files_of_a_partition_are_merged(stream: Stream) -> None:
    digests = stream.digest(), stream.digest(NEWEST)
    for number in range(FILES_MAX + 1):
        assert stream.compact_digest(digests[0]).files == 0
        stream.append([*rows_at(0, number, 1, 2), *rows_at(1, 5)])
        stream.move()
    for digest in digests:
        assert stream.compact_digest(digest).files == 2
        files = stream.files(digest)
        assert [file.origin for file in files] == ["compact", "compact"]
        assert (files[0].seq_min, files[1].seq_max) == (1, 4 * (FILES_MAX + 1))
    stream.check(*digests)


def test_partials_of_a_pair_of_commits_are_seen_together(stream: Stream) -> None:
    """Rows and partials come with one snapshot."""
    digest = stream.digest()
    stream.append(rows_at(0, 1))
    before = stream.catalog.snapshot().snapshot_id
    stream.move()
    after = stream.catalog.snapshot()
    assert after.snapshot_id == before + 1
    assert after.history(digest.table_id).files
    assert after.history(stream.table.table_id).files


# -- everything at once


STEPS = (
    *["append"] * 3,
    *["move", "back-fill"] * 2,
    *["load", "compact", "merge", "expire", "create"],
)


@pytest.mark.parametrize("seed", range(10))
def test_after_every_step_digests_hold_what_they_must(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr("tidemill.pipeline.backfill.JOB_BYTES", chance.choice([1, 4_000, 10**9]))
    monkeypatch.setattr("tidemill.pipeline.digest_compact.FILES_MAX", 2)
    with opened(tmp_path) as stream:
        digests = [stream.digest()] if chance.random() < 0.5 else []
        hour = 0.0
        for _ in range(20):
            hour += 2 * chance.random()
            _take_step(stream, digests, hour, chance)
            stream.check(*digests)
        for digest in digests:
            while stream.backfill(digest):
                stream.check(digest)
            assert stream.progress(digest).is_complete
        stream.check(*digests)


def _take_step(stream: Stream, digests: list[Table], hour: float, chance: random.Random) -> None:
    step = chance.choice(STEPS)
    keys = [chance.choice([None, 1, 2, 3, -5, 2**63 - 1]) for _ in range(6)]
    late = chance.random() * hour
    if step == "append":
        stream.append([*rows_at(hour, *keys), *rows_at(late, *keys[:2])])
    elif step == "move":
        stream.move()
    elif step == "load":
        stream.load(rows_at(hour, *keys), rows_at(late, *keys[:2]))
    elif step == "create" and len(digests) < 3:
        digests.append(stream.digest(chance.choice([SUMS, NEWEST])))
    elif step == "compact":
        stream.compact(START_US + int(hour * HOUR_US))
    elif step == "expire":
        stream.move()
        stream.expire(START_US + int((hour - 8) * HOUR_US))
    elif digests and step == "back-fill":
        stream.backfill(chance.choice(digests))
    elif digests and step == "merge":
        stream.compact_digest(chance.choice(digests))
