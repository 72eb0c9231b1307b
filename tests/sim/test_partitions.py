"""Partitions under random moves, late rows, loads, compactions that merge them, and expiry.

After every step: partitions of a table do not overlap, the generation of no moment has gone back
and those of moments that got rows have grown, revisions are the files behind the first commit, and
every row is counted once. A restart changes none of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from warehouses import compact, flush, open_inline, quiet

from tidemill.clock import FakeClock
from tidemill.engine import Database
from tidemill.pipeline.compact import ExpireJob
from tidemill.pipeline.keeping import MOVE_PRIORITY

START = datetime(2024, 1, 1)
START_US = 1_704_067_200_000_000
MINUTE_US = 60_000_000
STEPS = 70


@pytest.fixture(autouse=True)
def nothing_by_itself() -> Iterator[None]:
    with quiet():
        yield


class Run:
    """One random history: ``rows`` by their minute, and the generation seen last of each."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.random = path, random.Random(seed)
        self.clock = FakeClock(START_US)
        self.db = open_inline(path / "w", self.clock)
        self.db.sql(
            "CREATE STREAMING TABLE t (ts TIMESTAMP, id BIGINT) "
            "WITH (partition = '1 minute', hot = '1 s', move = 'manual')"
        )
        self.now = 0  # the newest minute
        self.files = self.merged = 0
        self.rows: dict[int, int] = {}
        self.generations: dict[int, int] = {}

    def _batch(self) -> list[tuple[datetime, int]]:
        late = [self.random.randrange(max(self.now, 1)) for _ in range(self.random.randrange(3))]
        passed = self.random.randrange(9)
        self.now += passed
        self.clock.advance(60 * passed)
        minutes = [*range(max(self.now - 8, 0), self.now + 1), *late]
        return [(START + timedelta(minutes=each), each) for each in minutes]

    def _count(self, batch: list[tuple[datetime, int]]) -> set[int]:
        for _, minute in batch:
            self.rows[minute] = self.rows.get(minute, 0) + 1
        return {minute for _, minute in batch}

    def move(self) -> set[int]:
        batch = self._batch()
        self.db.append("t", batch)
        flush(self.db, "t")
        return self._count(batch)

    def load(self) -> set[int]:
        batch = self._batch()
        self.files += 1
        name = self.path / f"{self.files}.csv"
        lines = "".join(f"{ts},{number}\n" for ts, number in batch)
        name.write_text(f"ts,id\n{lines}")
        self.db.sql(f"COPY t FROM '{name}'")
        flush(self.db, "t")
        return self._count(batch)

    def compact(self) -> set[int]:
        compact(self.db, "t")
        return set()

    def expire(self) -> set[int]:
        before_us = START_US + self.random.randrange(max(self.now // 4, 1)) * MINUTE_US
        table = self.db.catalog.snapshot().get("t")
        self.db._keeping.submit(
            ExpireJob(table, self.db.catalog, before_us, before_us), MOVE_PRIORITY
        ).wait()
        kept = {minute for part in self._parts() for minute in range(*part[:2])}
        self.rows = {minute: count for minute, count in self.rows.items() if minute in kept}
        return set()

    def restart(self) -> set[int]:
        before = self._parts()
        self.db.close()
        self.db = open_inline(self.path / "w", self.clock)
        assert self._parts() == before
        return set()

    def _parts(self) -> list[tuple[int, int, int, int, int]]:
        """Begin and end in minutes, generation, files, revisions."""
        found = self.db.sql(
            "SELECT epoch_us(lo), epoch_us(hi), generation, files, revisions "
            "FROM tidemill.partitions ORDER BY lo"
        ).fetchall()
        return [
            ((lo - START_US) // MINUTE_US, (hi - START_US) // MINUTE_US, *rest)
            for lo, hi, *rest in found
        ]

    def check(self, touched: set[int]) -> None:
        parts = self._parts()
        assert all(a[1] <= b[0] for a, b in pairwise(parts))
        for lo, hi, generation, files, revisions in parts:
            self.merged += hi - lo > 1 and revisions > 0
            assert 0 <= revisions < files
            for minute in range(lo, hi):
                assert generation >= self.generations.get(minute, 0) + (minute in touched)
                self.generations[minute] = generation
        assert touched <= {minute for part in parts for minute in range(*part[:2])}
        answer = self.db.sql("SELECT id, count(*)::INT FROM t GROUP BY id").fetchall()
        assert dict(answer) == self.rows


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_partitions_never_overlap_and_generations_never_go_back(tmp_path: Path, seed: int) -> None:
    run = Run(tmp_path, seed)
    try:
        verbs = (run.move, run.move, run.move, run.load, run.compact, run.expire, run.restart)
        weights = (4, 4, 4, 2, 3, 1, 1)
        for step in run.random.choices(verbs, weights, k=STEPS):
            run.check(step())
        assert run.merged, "no late row came to a merged partition"
    finally:
        run.db.close()


def test_a_late_row_behind_a_merged_partition_is_a_revision_of_it(tmp_path: Path) -> None:
    with open_inline(tmp_path / "w", FakeClock(START_US + 60 * MINUTE_US)) as db:
        fill_and_merge(db)
        ((lo, hi, generation, revisions),) = partitions(db)[:1]
        db.append("t", [(START + timedelta(minutes=2), 0)])
        flush(db, "t")
        assert partitions(db)[0] == (lo, hi, generation + 1, revisions + 1)


def fill_and_merge(db: Database) -> None:
    db.sql(
        "CREATE STREAMING TABLE t (ts TIMESTAMP, id BIGINT) "
        "WITH (partition = '1 minute', hot = '1 s', move = 'manual')"
    )
    for _ in range(3):
        db.append("t", [(START + timedelta(minutes=minute), 0) for minute in range(10)])
        flush(db, "t")
    assert compact(db, "t")
    assert len(partitions(db)) < 10


def partitions(db: Database) -> list[tuple[object, ...]]:
    query = "SELECT lo, hi, generation, revisions FROM tidemill.partitions ORDER BY lo"
    return [tuple(row) for row in db.sql(query).fetchall()]
