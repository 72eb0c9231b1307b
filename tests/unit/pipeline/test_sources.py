"""Sources: when packages are looked at, left alone, loaded, and what happens when that fails."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pipeline_kit import TIMEOUT_S, Warehouse, hour, make_table, put

from tidemill.catalog.model import Source
from tidemill.errors import FileFormatError
from tidemill.pipeline import sources
from tidemill.pipeline.executor import PipelineError
from tidemill.pipeline.job import JobContext, Written
from tidemill.pipeline.jobs import JobHandle
from tidemill.pipeline.load import LoadJob, LoadReport, WrittenLoad
from tidemill.pipeline.packages import Listed
from tidemill.pipeline.sources import SourcePoller, SourceStatus

SECOND_US = 1_000_000


class Feed:
    """A source of a folder, its poller, and a clock that a test moves."""

    def __init__(self, warehouse: Warehouse, box: Path, every_s: int | None = 10) -> None:
        box.mkdir(exist_ok=True)
        self.warehouse, self.box = warehouse, box
        self.batches: list[list[str]] = []
        self.poison = False
        self.fail: Callable[[Sequence[Listed]], None] = lambda packages: None
        every_us = None if every_s is None else every_s * SECOND_US
        self.source = Source(1, "feed", 7, f"{box}/*.csv", "csv", {}, every_us, 0)
        self.poller = self.make_poller()

    def make_poller(self) -> SourcePoller:
        poller = SourcePoller(self.submit, self.warehouse.environment.known, self.warehouse.clock)
        poller.follow([self.source])
        return poller

    def submit(self, source: Source, packages: tuple[Listed, ...]) -> JobHandle:
        self.batches.append([Path(package.name).stem for package in packages])
        self.fail(packages)
        job = self.warehouse.job(make_table(), packages, source=source.name)
        return self.warehouse.pipeline.submit(job)

    def put(self, name: str, key: object = 1, age_s: float = 5) -> Path:
        path = put(self.box, f"{name}.csv", [(hour(1), key, 0.5, name)])
        self.touch(path, age_s)
        return path

    def touch(self, path: Path, age_s: float) -> None:
        now_ns = self.warehouse.clock.now_us() * 1_000
        os.utime(path, ns=(now_ns, now_ns - int(age_s * 1e9)))

    def look(self, after_s: float = 0) -> SourceStatus:
        """Move the clock, look, and look again until all jobs that this began have ended."""
        self.warehouse.clock.advance(after_s)
        self.poller.look()
        while self.status.job_id is not None:
            ended = threading.Event()
            handle = self.poller._watched[1].handle
            assert handle is not None
            handle.when_done(ended.set)
            assert ended.wait(TIMEOUT_S)
            self.poller.look()
        return self.status

    @property
    def status(self) -> SourceStatus:
        (status,) = self.poller.status()
        return status


@pytest.fixture
def feed(warehouse: Warehouse, tmp_path: Path) -> Feed:
    return Feed(warehouse, tmp_path / "in")


def test_packages_are_loaded_as_they_arrive(feed: Feed) -> None:
    feed.put("a")
    status = feed.look()
    assert (status.state, status.listed, status.loaded, status.rows) == ("waiting", 1, 1, 1)
    assert status.next_look_at_us == feed.warehouse.clock.now_us() + 10 * SECOND_US
    feed.put("b")
    assert feed.look(9).loaded == 1  # not due
    assert feed.look(1).loaded == 2
    feed.look(10)
    assert feed.batches == [["a"], ["b"]]
    assert len(feed.warehouse.rows()) == 2


def test_a_package_that_is_being_written_is_left_alone(feed: Feed) -> None:
    path = feed.put("a", age_s=0.5)
    status = feed.look()
    assert (status.waiting, feed.batches) == (1, [])
    put(feed.box, "a.csv", [(hour(1), 1, 0.5, "a")] * 2)
    feed.warehouse.clock.advance(1)
    feed.touch(path, 5)  # it grew since the last look, whatever its time says
    assert (feed.look().waiting, feed.batches) == (1, [])
    status = feed.look(2)
    assert (status.waiting, status.rows) == (0, 2)


def test_the_pauses_between_looks_at_a_busy_package_grow(feed: Feed) -> None:
    feed.put("a", age_s=-1_000)  # its time lies ahead
    pauses = []
    for size in range(6):
        put(feed.box, "a.csv", [(hour(1), 1, 0.5, "x" * size)])
        feed.touch(feed.box / "a.csv", -1_000)
        status = feed.look()
        assert status.next_look_at_us is not None
        pauses.append((status.next_look_at_us - feed.warehouse.clock.now_us()) // SECOND_US)
        feed.warehouse.clock.set(status.next_look_at_us)
    assert pauses == [1, 2, 4, 8, 10, 10]
    feed.touch(feed.box / "a.csv", -1_000)
    feed.look()
    assert feed.look(10).loaded == 1  # ahead, but the same from one look to the next


def test_bad_packages_are_set_aside_and_not_tried_every_time(feed: Feed) -> None:
    feed.put("a", key="one")
    feed.put("b")
    status = feed.look()
    assert (status.loaded, status.set_aside, status.last_error) == (1, 1, None)
    feed.look(10)
    assert feed.batches == [["a", "b"]]
    feed.touch(feed.box / "a.csv", 2)  # touched, it is tried again
    feed.look(10)
    assert feed.batches == [["a", "b"], ["a"]]


def test_a_changed_package_is_set_aside(feed: Feed) -> None:
    feed.put("a")
    feed.look()
    feed.warehouse.clock.advance(10)
    feed.put("a", key=2)
    assert feed.look().waiting == 1  # it changed since the last look
    status = feed.look(1)
    assert (status.loaded, status.set_aside) == (1, 1)
    assert feed.warehouse.rows("k") == [(1,)]


def test_a_touched_package_is_compared_and_not_loaded(feed: Feed) -> None:
    feed.put("a")
    feed.look()
    feed.warehouse.clock.advance(100)
    feed.touch(feed.box / "a.csv", 2)
    feed.look()
    feed.look(10)
    assert feed.batches == [["a"], ["a"]]
    assert (feed.status.loaded, len(feed.warehouse.rows())) == (1, 1)


def test_after_a_restart_the_catalog_tells_what_is_loaded(feed: Feed) -> None:
    feed.put("a")
    feed.look()
    feed.put("b")
    feed.poller = feed.make_poller()
    feed.look()
    assert feed.batches == [["a"], ["b"]]
    feed.warehouse.clock.advance(60)
    feed.touch(feed.box / "a.csv", 2)
    feed.poller = feed.make_poller()
    feed.look()  # touched since it was loaded, so its digest is compared
    assert feed.batches == [["a"], ["b"], ["a"]]
    assert len(feed.warehouse.rows()) == 2


def test_jobs_have_a_bound(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcde":
        feed.put(name)
    monkeypatch.setattr(sources, "BATCH_WEIGHT_MAX", 2 * Listed("a.csv", 30).weight)
    feed.look()
    assert feed.batches == [["a", "b"], ["c", "d"], ["e"]]


def test_a_source_of_one_look(warehouse: Warehouse, tmp_path: Path) -> None:
    feed = Feed(warehouse, tmp_path / "in", every_s=None)
    feed.put("a")
    feed.put("b", age_s=0)
    status = feed.look()
    assert (status.state, status.loaded, status.waiting) == ("waiting", 1, 1)
    status = feed.look(1)
    assert (status.state, status.loaded, status.next_look_at_us) == ("done", 2, None)
    feed.put("c")
    assert feed.look(1_000).loaded == 2


def test_a_look_that_fails_is_told_and_repeated(feed: Feed) -> None:
    feed.put("a")

    def away(_pattern: str, _options: object) -> list[Listed]:
        raise FileFormatError("the place is away")

    listing, feed.poller._listing = feed.poller._listing, away
    status = feed.look()
    assert (status.state, status.failures, status.last_error) == ("failing", 1, "the place is away")
    feed.look(10)
    assert feed.look(10).failures == 2  # 20 seconds now
    feed.poller._listing = listing
    status = feed.look(10)
    assert (status.state, status.failures, status.last_error, status.loaded) == (
        "waiting",
        0,
        None,
        1,
    )


def test_a_package_that_brings_jobs_down_ends_up_alone(feed: Feed) -> None:
    for name in "abcd":
        feed.put(name)

    def fail(packages: Sequence[Listed]) -> None:
        feed.poison = any(Path(package.name).stem == "b" for package in packages)

    feed.fail = fail
    submit = feed.poller._submit
    feed.poller._submit = lambda source, packages: _fall_if(feed, submit(source, packages))
    for _ in range(12):
        feed.look(10)
    assert feed.batches[:5] == [["a", "b", "c", "d"], ["a", "b"], ["a"], ["b", "c"], ["b"]]
    assert feed.status.loaded == 3
    assert sorted(feed.warehouse.rows("s")) == [("a",), ("c",), ("d",)]
    assert feed.status.waiting == 1
    tries = feed.batches.count(["b"])
    assert 2 <= tries <= 6


def _fall_if(feed: Feed, handle: JobHandle) -> JobHandle:
    """A job that ended, or that failed if the poison was in it."""
    handle.wait(TIMEOUT_S)
    if feed.poison:
        commit = feed.warehouse.environment.commits.pop()
        names = {package.name for package in commit.packages}
        packages = feed.warehouse.environment.packages
        feed.warehouse.environment.packages = [each for each in packages if each.name not in names]
        handle._entry.error = PipelineError("the worker died")
    return handle


def test_a_full_queue_is_a_failure_like_any_other(feed: Feed) -> None:
    feed.put("a")

    def full(_packages: Sequence[Listed]) -> None:
        raise PipelineError("too many jobs wait")

    feed.fail = full
    status = feed.look()
    assert (status.state, status.last_error, status.waiting) == (
        "failing",
        "too many jobs wait",
        1,
    )
    feed.fail = lambda packages: None
    assert feed.look(10).loaded == 1


def test_what_cannot_be_reached_is_told_and_tried_again(feed: Feed) -> None:
    path = feed.put("a")

    def vanish(_packages: Sequence[Listed]) -> None:
        path.unlink()

    feed.fail = vanish
    status = feed.look()
    assert (status.loaded, status.set_aside) == (0, 0)
    assert "is gone" in str(status.last_error)
    feed.fail = lambda packages: None
    feed.put("a")
    status = feed.look(10)
    assert (status.loaded, status.last_error) == (1, None)


def test_a_dropped_source_is_looked_at_no_more(feed: Feed) -> None:
    gate = threading.Event()
    job = feed.warehouse.job(make_table(), [], source="feed")

    class Slow(LoadJob):
        def run(self, context: JobContext) -> Written[WrittenLoad, LoadReport]:
            assert gate.wait(TIMEOUT_S)
            return super().run(context)

    handle = feed.warehouse.pipeline.submit(Slow(job.plan, job.environment, job.clock))
    feed.put("a")
    feed.poller._submit = lambda source, packages: handle
    feed.poller.look()
    assert feed.status.state == "loading"
    feed.poller.follow([])
    gate.set()
    assert feed.poller.status() == []
    with pytest.raises(PipelineError):
        handle.wait(TIMEOUT_S)


def test_the_thread_loads_by_itself(feed: Feed) -> None:
    feed.put("a")
    loaded = threading.Event()
    feed.warehouse.environment.before_commit = loaded.set
    feed.poller.start()
    feed.poller.start()
    try:
        assert loaded.wait(TIMEOUT_S)
    finally:
        feed.poller.close()
