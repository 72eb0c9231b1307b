"""Which files become one: levels while a partition grows, whole once it is cold, and never more
files than twice what would do, and one. Files here are descriptions; none of them exists."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from pipeline_kit import make_table

from tidemill.catalog.model import (
    FILE_DELETES,
    FILE_LATE,
    FILE_REJECTED,
    FILE_ROWS,
    DataFile,
    History,
    Table,
)
from tidemill.catalog.splicing import with_files
from tidemill.history.storage import Storage
from tidemill.pipeline.compact import (
    FAN,
    LEVEL_BYTES_MIN,
    TARGET_BYTES,
    TARGET_ROWS,
    TASKS_MAX,
    Compact,
    expired_files,
    ideal_files,
    plan_compact,
)
from tidemill.pipeline.rewriting import RewriteTask

SECOND_US = 1_000_000
HOUR_US = 3_600 * SECOND_US
DAY_US = 24 * HOUR_US
KB = 1_000
STORAGE = Storage("/nowhere")
TABLE = make_table()


@dataclass
class Files:
    """Files as the catalog would name them."""

    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    snapshot: int = 0

    def make(
        self,
        hour: int,
        size: int = 10 * KB,
        kind: str = FILE_ROWS,
        hours: int = 1,
        rows: int | None = None,
        seqs: tuple[int, int] | None = None,
    ) -> DataFile:
        number = next(self.numbers)
        self.snapshot += 1
        lo, hi = hour * HOUR_US, (hour + hours) * HOUR_US
        first, last = seqs or (number * 1_000, number * 1_000 + 999)
        return DataFile(
            f"7/{number}.parquet",
            kind,
            lo,
            hi,
            size // 50 if rows is None else rows,
            size,
            1,
            lo,
            hi - 1,
            first,
            last,
            "move",
            {},
            None,
            0,
            number,
            7,
            number,
            self.snapshot,
        )


@pytest.fixture
def files() -> Files:
    return Files()


def _history(files: Iterable[DataFile], moved_seq: int = 10**9) -> History:
    return History(7, moved_seq, files=tuple(sorted(files, key=lambda file: file.place)))


def _plan(
    files: Iterable[DataFile], cold_hour: int | None = None, table: Table = TABLE
) -> Compact | None:
    cold = None if cold_hour is None else cold_hour * HOUR_US
    return plan_compact("job", table, _history(files), STORAGE, cold)


def _groups(plan: Compact | None) -> list[list[int]]:
    """The files that become one, by their numbers."""
    return [] if plan is None else [[f.file_id for f in task.files] for task in plan.tasks]


# -- partitions that still grow


def test_few_files_of_a_growing_partition_are_left_alone(files: Files) -> None:
    assert _plan([], 0) is None
    assert _plan([files.make(5) for _ in range(FAN - 1)], 0) is None


def test_files_of_one_level_become_one_of_the_next(files: Files) -> None:
    small = [files.make(5, LEVEL_BYTES_MIN // 2) for _ in range(FAN)]
    larger = [files.make(5, 3 * LEVEL_BYTES_MIN) for _ in range(FAN - 1)]
    largest = [files.make(5, TARGET_BYTES) for _ in range(FAN)]
    plan = _plan([*small, *larger, *largest], 0)
    assert _groups(plan) == [[file.file_id for file in small]]
    assert plan is not None
    assert plan.dropped == tuple(file.file_id for file in small)
    assert (plan.tasks[0].lo_us, plan.tasks[0].hi_us) == (5 * HOUR_US, 6 * HOUR_US)


def test_what_fell_behind_catches_up_in_one_step(files: Files) -> None:
    many = [files.make(5) for _ in range(100)]
    assert _groups(_plan(many, 0)) == [[file.file_id for file in many]]


def test_no_group_exceeds_a_file(files: Files) -> None:
    big = [files.make(5, TARGET_BYTES // 3) for _ in range(9)]
    plan = _plan(big, 0)
    assert plan is not None
    for task in plan.tasks:
        assert len(task.files) <= FAN or sum(f.bytes for f in task.files) <= TARGET_BYTES
    wide = [files.make(5, KB, rows=TARGET_ROWS // 3) for _ in range(9)]
    plan = _plan(wide, 0)
    assert plan is not None
    for task in plan.tasks:
        assert len(task.files) <= FAN or sum(f.rows for f in task.files) <= TARGET_ROWS


def test_a_job_has_a_bound(files: Files) -> None:
    many = [files.make(hour) for hour in range(100) for _ in range(FAN)]
    plan = _plan(many, 0)
    assert plan is not None
    assert len(plan.tasks) == TASKS_MAX
    assert set(plan.dropped) == {f.file_id for task in plan.tasks for f in task.files}


# -- cold partitions


def test_a_cold_partition_becomes_one_file(files: Files) -> None:
    cold = [files.make(5, 40 * KB), files.make(5, 30 * KB)]
    warm = [files.make(7), files.make(7)]
    assert _groups(_plan([*cold, *warm], 6)) == [[1, 2]]
    assert _plan([files.make(5), *warm], 6) is None


def test_without_a_clock_all_but_the_newest_partition_are_cold(files: Files) -> None:
    history = [files.make(5), files.make(5), files.make(9), files.make(9)]
    assert _groups(_plan(history, None)) == [[1, 2]]


def test_a_large_file_is_not_written_again_for_a_trickle(files: Files) -> None:
    large = files.make(5, 40_000 * KB)
    assert _plan([large, files.make(5)], 9) is None
    late = [files.make(5, 10 * KB) for _ in range(3)]
    assert _groups(_plan([large, *late], 9)) == [[file.file_id for file in late]]
    much = [files.make(5, 10_000 * KB) for _ in range(2)]
    assert _groups(_plan([large, *much], 9)) == [[1, *(file.file_id for file in much)]]


def test_small_neighbours_become_one_range(files: Files) -> None:
    day = [files.make(hour) for hour in range(24)]
    plan = _plan(day, 24)
    assert plan is not None
    assert len(plan.tasks) == 1
    assert (plan.tasks[0].lo_us, plan.tasks[0].hi_us) == (0, DAY_US)
    assert plan.dropped == tuple(range(1, 25))


def test_ranges_do_not_reach_over_a_gap_or_past_a_file(files: Files) -> None:
    apart = [files.make(hour) for hour in (*range(12), *range(20, 32))]
    spans = [(t.lo_us // HOUR_US, t.hi_us // HOUR_US) for t in _plan(apart, 90).tasks]  # type: ignore[union-attr]
    assert spans == [(0, 12), (20, 32)]
    heavy = [files.make(hour, TARGET_BYTES // 4) for hour in range(24)]
    plan = _plan(heavy, 24)
    for task in plan.tasks if plan else ():
        assert sum(file.bytes for file in task.files) <= TARGET_BYTES


def test_a_range_can_still_be_dropped_whole(files: Files) -> None:
    """With a retention of ten days no range is longer than one."""
    table = make_table({"retention": "10 days"})
    week = [files.make(hour) for hour in range(7 * 24)]
    plan = _plan(week, 7 * 24, table)
    assert plan is not None
    assert all(task.hi_us - task.lo_us <= DAY_US for task in plan.tasks)
    assert len(plan.tasks) == 7


def test_late_rows_inside_a_range_join_it(files: Files) -> None:
    merged = files.make(0, 100 * KB, hours=24)
    late = files.make(5, 90 * KB)
    plan = _plan([merged, late], 48)
    assert _groups(plan) == [[1, 2]]
    assert plan is not None
    assert (plan.tasks[0].lo_us, plan.tasks[0].hi_us) == (0, DAY_US)


def test_a_large_range_is_not_written_again_for_a_trickle(files: Files) -> None:
    merged = files.make(0, 40_000 * KB, hours=24)
    assert _plan([merged, files.make(5, 10 * KB)], 48) is None


# -- deletes


def test_deleted_rows_are_written_out_of_cold_files(files: Files) -> None:
    large = files.make(5, TARGET_BYTES, seqs=(1, 1_000))
    other = files.make(5, TARGET_BYTES, seqs=(2_000, 3_000))
    deletes = files.make(5, KB, FILE_DELETES, seqs=(10, 20))
    plan = _plan([large, other, deletes], 9)
    assert _groups(plan) == [[large.file_id]]
    assert plan is not None
    assert plan.tasks[0].scan.removed.deletes == (deletes,)
    assert plan.dropped == (large.file_id, deletes.file_id)


def test_deletes_stay_while_a_file_may_need_them(files: Files) -> None:
    """Of two files that they may touch, one is rewritten: it is in a cold partition."""
    cold = files.make(5, TARGET_BYTES, seqs=(1, 1_000))
    warm = files.make(9, TARGET_BYTES, seqs=(1, 1_000))
    deletes = files.make(5, KB, FILE_DELETES, hours=5, seqs=(10, 20))
    plan = _plan([cold, warm, deletes], 7)
    assert _groups(plan) == [[cold.file_id]]
    assert plan is not None
    assert plan.dropped == (cold.file_id,)
    rewritten = replace(cold, file_id=99, created_snapshot=99)
    assert _plan([rewritten, warm, deletes], 7) is None, "the same file, again and again"


def test_deletes_of_rows_that_the_log_still_has_stay(files: Files) -> None:
    rows = files.make(5, seqs=(1, 1_000))
    deletes = files.make(5, KB, FILE_DELETES, seqs=(10, 2_000))
    history = _history([rows, deletes], moved_seq=1_000)
    plan = plan_compact("job", TABLE, history, STORAGE, 9 * HOUR_US)
    assert plan is not None
    assert plan.dropped == (rows.file_id,)


# -- what expires


def test_files_expire_when_their_whole_range_has(files: Files) -> None:
    rows = [files.make(hour) for hour in range(4)]
    wide = files.make(1, hours=2)  # merged of two: one partition with the files in it
    late = files.make(1, kind=FILE_LATE)
    rejected = files.make(0, kind=FILE_REJECTED)
    gone_with = files.make(0, kind=FILE_DELETES)
    needed = files.make(0, kind=FILE_DELETES, hours=2)
    history = _history([*rows, wide, late, rejected, gone_with, needed])

    def gone(before_hour: float, aside_hour: float) -> set[int]:
        bounds = int(before_hour * HOUR_US), int(aside_hour * HOUR_US)
        return {file.file_id for file in expired_files(history, *bounds)}

    assert gone(0.9, 0.9) == set()
    assert gone(2, 0) == {1, gone_with.file_id}
    deletes = {gone_with.file_id, needed.file_id}
    assert gone(3, 1) == {1, 2, 3, wide.file_id, rejected.file_id, *deletes}
    assert gone(0, 2) == {late.file_id, rejected.file_id}


# -- a day of moves


@dataclass
class Day:
    """A table that moves again and again and compacts as soon as that is due: the planner that
    runs in a warehouse, and what a commit makes of a history in memory. No rows, no database."""

    files: Files
    history: History = field(default_factory=lambda: History(7, 10**9))
    moved: int = 0
    rewritten: int = 0

    def move(self, *made: DataFile) -> None:
        self._commit(made, ())
        self.moved += sum(file.bytes for file in made)

    def compact(self, cold_us: int) -> None:
        while (plan := plan_compact("job", TABLE, self.history, STORAGE, cold_us)) is not None:
            made = [self._merged(task) for task in plan.tasks]
            old = [file for task in plan.tasks for file in task.files]
            assert {file.file_id for file in old} == set(plan.dropped)
            self._commit(made, old)
            self.rewritten += sum(file.bytes for file in old)

    def _commit(self, add: Sequence[DataFile], drop: Sequence[DataFile]) -> None:
        self.history = with_files(self.history, add, drop, moved_seq=10**9)

    def _merged(self, task: RewriteTask) -> DataFile:
        old = task.files
        size, rows = sum(file.bytes for file in old), sum(file.rows for file in old)
        seqs = min(file.seq_min for file in old), max(file.seq_max for file in old)
        new = self.files.make(0, size, rows=rows, seqs=seqs)
        return replace(new, lo_us=task.lo_us, hi_us=task.hi_us)

    @property
    def too_many(self) -> int:
        """Files beyond twice what would do, and one of late rows in each partition."""
        parts = self.history.partitions
        return sum(len(part.files) for part in parts) - 2 * ideal_files(self.history) - len(parts)


@pytest.mark.parametrize("size", [5 * KB, 200 * KB])
def test_after_a_day_of_moves_every_second_files_are_few(files: Files, size: int) -> None:
    """Every tenth move has late rows for the hour before; hot rows are ten minutes old."""
    day, most = Day(files), 0
    for second in range(DAY_US // SECOND_US):
        hour = second // 3_600
        late = [files.make(max(hour - 1, 0), size // 20)] if second % 10 == 0 else []
        day.move(files.make(hour, size), *late)
        if second % 2 == 1:
            day.compact((second - 600) * SECOND_US)
        if second % 60 == 59:
            most = max(most, day.too_many)
    day.compact(DAY_US + HOUR_US)
    assert day.too_many <= 0
    assert sum(file.bytes for file in day.history.files) == day.moved
    # a row is rewritten about log₄ of the number of moves in an hour, and when it is cold
    assert day.rewritten <= 12 * day.moved
    assert most <= 40, "too many files at some moment"
