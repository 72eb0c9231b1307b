"""Random commits of files against a simple model, on both databases; and what a commit costs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
import sqlalchemy as sa
from catalog_support import new_digest, new_file, new_table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from once import once

from tidemill.catalog import filing, schema
from tidemill.catalog.model import (
    FILE_DELETES,
    FILE_DIGEST,
    FILE_KINDS,
    FILE_ROWS,
    History,
    Snapshot,
)
from tidemill.catalog.store import Catalog
from tidemill.clock import FakeClock
from tidemill.errors import ConflictError, UnknownNameError

"""Measured: 1 ms. A commit that looks at all files takes far longer."""

ROWS_OR_PARTIALS = (FILE_ROWS, FILE_DIGEST)
OF_STREAMS = [kind for kind in FILE_KINDS if kind != FILE_DIGEST]
NEW = st.tuples(st.integers(-1, 2), st.sampled_from([1, 1, 1, 2, 3]), st.sampled_from(OF_STREAMS))
STEPS = st.one_of(
    st.tuples(
        st.just("commit"),
        st.integers(0, 2),
        st.lists(NEW, max_size=3),
        st.lists(st.integers(0, 20), max_size=2),
        st.sampled_from([-1, 0, 0, 1, 5]),
        st.booleans(),
    ),
    st.tuples(st.just("reserve"), st.integers(0, 1)),
    st.tuples(st.just("replace"), st.integers(0, 1)),
    st.tuples(st.just("alter"), st.integers(0, 1)),
    st.tuples(st.just("define"), st.booleans()),
    st.tuples(st.just("expire"), st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("look")),
    st.tuples(st.just("restart")),
)


@dataclass
class Model:
    """What a table's history should be: plain lists, no versions, no order."""

    table_id: int
    moved_seq: int = 0
    live: dict[int, tuple[str, str, int, int]] = field(default_factory=dict)
    generations: dict[int, int] = field(default_factory=dict)  # of moments, the last seen
    changed: set[int] = field(default_factory=set)  # moments that the last commit touched
    loads: list[tuple[int, int]] = field(default_factory=list)

    def commit(self, add: list[tuple[str, int, int, str]], drop: list[int], first_id: int) -> None:
        gone = [self.live.pop(each) for each in drop]
        for number, (path, lo, hi, kind) in enumerate(add, first_id):
            self.live[number] = (path, kind, lo, hi)
        came = [(path, kind, lo, hi) for path, lo, hi, kind in add]
        self.changed = {
            moment
            for _, kind, lo, hi in (*gone, *came)
            for moment in range(lo, hi, 10)
            if kind in ROWS_OR_PARTIALS
        }
        for _, kind, lo, hi in came:
            if kind == FILE_DELETES:
                self.changed |= {m for m in range(lo, hi, 10) if self.generation_before(m)}

    def generation_before(self, moment: int) -> int | None:
        """The generation of a moment before the commit, if any of its files is left."""
        held = any(
            lo <= moment < hi and kind in ROWS_OR_PARTIALS for _, kind, lo, hi in self.live.values()
        )
        return self.generations.get(moment) if held else None

    def check(self, snapshot: Snapshot) -> None:
        history = snapshot.history(self.table_id)
        facts = {
            each.file_id: (each.path, each.kind, each.lo_us, each.hi_us) for each in history.files
        }
        assert facts == self.live
        self.check_partitions(history)
        assert list(history.files) == sorted(history.files, key=lambda each: each.place)
        assert history.moved_seq == self.moved_seq
        assert [(each.first_seq, each.last_seq) for each in history.reservations] == self.loads
        rows = sum(7 for _, kind, _, _ in self.live.values() if kind in ROWS_OR_PARTIALS)
        assert history.rows == rows

    def check_partitions(self, history: History) -> None:
        """Partitions never overlap, hold all files of their time, and no generation goes back."""
        parts = history.partitions
        assert all(a.hi_us <= b.lo_us for a, b in pairwise(parts))
        held = sorted(file.file_id for part in parts for file in part.files)
        assert held == sorted(i for i, f in self.live.items() if f[1] in ROWS_OR_PARTIALS)
        for part in parts:
            assert part.lo_us == min(file.lo_us for file in part.files)
            assert part.hi_us == max(file.hi_us for file in part.files)
            first = min(file.created_snapshot for file in part.files)
            assert part.revisions == sum(f.created_snapshot > first for f in part.files)
            assert part.generation >= max(file.generation for file in part.files)
            for moment in range(part.lo_us, part.hi_us, 10):
                before = self.generations.get(moment, 0)
                assert part.generation >= before + (moment in self.changed)
                self.generations[moment] = part.generation
        self.changed = set()


class Run:
    """One random history of a catalog; every snapshot is checked as long as it is kept."""

    def __init__(self, url: str) -> None:
        self.url, self.clock = url, FakeClock(0)
        self.catalog = Catalog.open(url, self.clock)
        self.models = []
        for name in ("a", "b"):
            self.clock.advance(1)
            self.models.append(Model(once(self.catalog).create_table(new_table(name)).table_id))
        self.clock.advance(1)
        digest = once(self.catalog).create_table(new_digest(self.models[0].table_id))
        self.models.append(Model(digest.table_id))
        self.published = {each: self.catalog.snapshot(each) for each in range(4)}
        self.files = self.paths = 0
        self.seq = 0
        self.deleted: set[str] = set()

    def step(self, verb: str, *rest: object) -> None:
        self.clock.advance(1)
        getattr(self, f"do_{verb}")(*rest)
        snapshot = self.catalog.snapshot()
        self.published[snapshot.snapshot_id] = snapshot
        for model in self.models:
            model.check(snapshot)

    def do_commit(
        self, which: int, new: list[tuple[int, int, str]], picks: list[int], ahead: int, load: bool
    ) -> None:
        model = self.models[which]
        before = self.catalog.snapshot()
        live = sorted(model.live)
        drop = sorted({live[pick % len(live)] for pick in picks if live})
        new = [(part, width, FILE_DIGEST) for part, width, _ in new] if which == 2 else new
        add = [
            (f"{self.paths + n}", part * 10, (part + width) * 10, kind)
            for n, (part, width, kind) in enumerate(new)
        ]
        self.paths += len(add)
        self.seq += 10
        loads = [(self.seq, self.seq + 5)] if load else []
        files = [new_file(path, lo, kind, hi_us=hi) for path, lo, hi, kind in add]
        moved = model.moved_seq + ahead
        arguments = {"moved_seq": moved, "reserved": loads, "progress": f"{self.seq}"}
        if ahead < 0:
            with pytest.raises(ConflictError):
                once(self.catalog).commit_files(model.table_id, files, drop, **arguments)
            with pytest.raises(ConflictError):
                once(self.catalog).commit_files(model.table_id, files, [*drop, 10**6])
            assert self.catalog.snapshot() is before
            return
        once(self.catalog).commit_files(model.table_id, files, drop, **arguments)
        model.commit(add, drop, self.files + 1)
        self.files += len(add)
        model.moved_seq = moved
        model.loads += loads
        assert self.catalog.records.progress(model.table_id) == f"{self.seq}"
        assert self.catalog.snapshot().tables is before.tables

    def do_reserve(self, which: int) -> None:
        before = self.catalog.snapshot()
        self.seq += 10
        once(self.catalog).reserve(self.models[which].table_id, self.seq, self.seq + 5)
        assert self.catalog.snapshot() == before

    def do_replace(self, which: int) -> None:
        table = once(self.catalog).replace_table(new_table("ab"[which]))
        self.models[which] = Model(table.table_id)

    def do_alter(self, which: int) -> None:
        hot = f"{self.clock.now_us()} s"
        once(self.catalog).alter_settings(self.models[which].table_id, {"hot": hot})

    def do_define(self, renamed: bool) -> None:
        """Name and define the digest anew, sometimes twice in one snapshot."""
        now_us, table_id = self.clock.now_us(), self.models[2].table_id
        with self.catalog.transaction() as change:
            change.alter_definition(table_id, f"{now_us}")
            if renamed:
                change.rename_table(table_id, f"new{now_us}$digest0")
                change.rename_table(table_id, f"v{now_us}$digest0")

    def do_expire(self, ago_s: int, pin: int) -> None:
        before_us = self.clock.now_us() - ago_s * 1_000_000
        current = self.catalog.snapshot()
        pinned = [current.snapshot_id - pin] if pin < 5 else []
        kept = [each for each in self.published if self._stays(each, before_us, pinned)]
        gone = once(self.catalog).expire_snapshots(before_us, pinned)
        assert self.catalog.snapshot() == current
        assert [number for number, _ in self.catalog.snapshots()] == sorted(kept, reverse=True)
        self.published = {each: self.published[each] for each in kept}
        seen = {
            file.path
            for snapshot in self.published.values()
            for history in snapshot.histories.values()
            for file in history.files
        }
        assert not seen & set(gone)
        assert not self.deleted & set(gone)
        self.deleted |= set(gone)
        assert self.catalog.records.known_paths() == seen

    def _stays(self, number: int, before_us: int, pinned: list[int]) -> bool:
        next_one = self.published.get(number + 1)
        needed = next_one is None or next_one.committed_at_us > before_us
        return needed or any(number >= each for each in pinned)

    def do_look(self) -> None:
        for history in self.catalog.snapshot().histories.values():
            assert history.partitions is not None
            assert history.files is not None

    def do_restart(self) -> None:
        before = self.catalog.snapshot()
        self.catalog.close()
        self.catalog = Catalog.open(self.url, self.clock)
        assert self.catalog.snapshot() == before
        for table_id, history in before.histories.items():
            assert self.catalog.snapshot().history(table_id).partitions == history.partitions

    def finish(self) -> None:
        """Every snapshot that is kept is what it was when it was published."""
        for _ in range(2):
            for number, snapshot in self.published.items():
                got = self.catalog.snapshot(number)
                assert got == snapshot
                assert got.definition_id == snapshot.definition_id
                assert self.catalog.snapshot_at(snapshot.committed_at_us) == snapshot
            oldest = min(self.published)
            if oldest > 0:
                with pytest.raises(UnknownNameError):
                    self.catalog.snapshot(oldest - 1)
            self.do_restart()


def play(url: str, steps: list[tuple[object, ...]]) -> None:
    run = Run(url)
    try:
        for step in steps:
            run.step(*step)
        run.finish()
    finally:
        run.catalog.close()


@settings(max_examples=30, deadline=None)
@given(st.lists(STEPS, max_size=20))
def test_random_commits_on_sqlite(steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        play(f"sqlite:///{Path(folder) / 'c.db'}", steps)


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEPS, max_size=20))
def test_random_commits_on_postgres(
    new_postgres_url: Callable[[], str], steps: list[tuple[object, ...]]
) -> None:
    play(new_postgres_url(), steps)


@pytest.fixture
def new_postgres_url(request: pytest.FixtureRequest) -> Callable[[], str]:
    return request.getfixturevalue("postgres").new_url


def test_a_commit_does_not_look_at_other_files(tmp_path: Path) -> None:
    catalog = Catalog.open(f"sqlite:///{tmp_path / 'c.db'}", FakeClock(0))
    table_id = once(catalog).create_table(new_table()).table_id
    files = [new_file(f"{number}", number // 50 * 10) for number in range(20_000)]
    once(catalog).commit_files(table_id, files)
    for number in range(30):
        once(catalog).commit_files(table_id, [new_file(f"new{number}")], moved_seq=number + 1)
    history = catalog.snapshot().history(table_id)
    assert "files" not in history.__dict__
    assert len(history.files) == 20_030
    catalog.close()


def test_what_is_asked_often_is_found_by_an_index(tmp_path: Path) -> None:
    catalog = Catalog.open(f"sqlite:///{tmp_path / 'c.db'}", FakeClock(0))
    files, moves, marks = schema.files.c, schema.moves.c, schema.marks.c
    queries = [
        sa.select(*filing.FILE_COLUMNS).where(files.dropped_snapshot > 5),
        sa.select(files.path).where(files.file_id.in_([1, 2])),
        sa.select(files.path).where(files.table_id == 1),
        sa.select(moves.moved_seq).where(moves.table_id == 1, moves.created_snapshot <= 5),
        sa.select(moves.moved_seq).where(moves.table_id == 1, moves.moved_seq >= 5),
        sa.select(marks.seq).where(marks.table_id == 1, marks.at_us <= 5),
    ]
    with catalog._connections.read() as connection:
        for query in queries:
            text = str(query.compile(connection, compile_kwargs={"literal_binds": True}))
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}").all()
            assert all("SEARCH" in row.detail for row in plan), (text, plan)
    catalog.close()
