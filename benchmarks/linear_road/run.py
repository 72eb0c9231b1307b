"""One run of Linear Road, from the plan to the verdict: stage, load, drive, judge.

Each step is in processes of its own (``staging``, ``driver``, ``judging``), so that only the
warehouse and what feeds it share the processor while the clock runs.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness import Worker, progress
from benchmarks.linear_road.comparison import Verdict
from benchmarks.linear_road.deliveries import read_answers
from benchmarks.linear_road.driver import Course, Measured, Progress
from benchmarks.linear_road.fields import Answers
from benchmarks.linear_road.judging import added, judge
from benchmarks.linear_road.staging import Stage, stage_files, stage_history, stage_plan
from benchmarks.linear_road.traffic import Plan
from tidemill.errors import TidemillError

POLL_S = 0.5
_DRIVER = "benchmarks.linear_road.driver:Driver"
_LOADER = "benchmarks.linear_road.driver:Loader"


@dataclass(frozen=True)
class Request:
    """What is to be run. ``plan`` or ``given``; ``rate`` None means as fast as it goes."""

    plan: Plan | None
    given: Path | None = None
    tolls: Path | None = None
    rate: float | None = 1.0
    otq_per_minute: tuple[float, ...] = ()
    has_history: bool = False
    spark_master: str = "local[*]"
    seed: int = 1
    gives_up: bool = False
    has_indices: bool = True


@dataclass(frozen=True)
class Outcome:
    """What came of it. There is no verdict on a run that was given up."""

    request: Request
    stage: Stage
    measured: Measured
    answers: Answers
    verdict: Verdict | None
    history_rows: int = 0
    staging_s: float = 0.0
    loading_s: float = 0.0

    @property
    def faults(self) -> list[str]:
        """All that keeps the run from being good, in words."""
        told = self.measured
        found = list(told.errors)
        if told.gave_up:
            found.append(f"given up at second {told.fed_seconds:,} of the input: too slow")
        if self.verdict is not None:
            for kind in self.verdict.kinds:
                if not kind.ok:
                    found.append(str(kind).splitlines()[0])
        wrong = [asked.fault for asked in told.asked if asked.fault is not None]
        if wrong:
            found.append(f"{len(wrong):,} one-time queries failed or were wrong: {wrong[0]}")
        return found

    @property
    def ok(self) -> bool:
        """Every answer right and in time."""
        return self.verdict is not None and self.verdict.ok and not self.faults


def run(request: Request, folder: Path) -> Outcome:
    """Run it in an empty folder, which is emptied again of all but the answers."""
    cores = len(os.sched_getaffinity(0))
    began = time.perf_counter()
    with progress(None, "making the input") as told:
        stage = _stage(request, folder, cores)
        told(f"{stage.rows:,} rows", 0)
    staged = time.perf_counter()
    course = Course(
        stage,
        folder,
        request.rate,
        request.otq_per_minute,
        request.seed,
        request.spark_master,
        request.gives_up,
        request.has_indices,
    )
    history_rows = _load(course) if request.has_history else 0
    loaded = time.perf_counter()
    measured = _drive(course)
    shutil.rmtree(course.warehouse, ignore_errors=True)
    verdict = None if measured.gave_up else _judge(course, cores)
    return Outcome(
        request,
        stage,
        measured,
        read_answers(course.answers),
        verdict,
        history_rows,
        staged - began,
        loaded - staged,
    )


def _stage(request: Request, folder: Path, cores: int) -> Stage:
    if request.plan is None:
        assert request.given is not None
        return stage_files(request.given, request.tolls, folder)
    stage = stage_plan(request.plan, folder, cores)
    return stage_history(stage, folder, cores) if request.has_history else stage


def _load(course: Course) -> int:
    stage = course.stage
    assert stage.history is not None
    assert stage.history_counts is not None
    with progress(None, "loading the history"), Worker(_LOADER, course) as loader:
        rows = int(loader.call("load"))
    shutil.rmtree(stage.history)
    due = int(stage.history_counts.sum())
    if rows != due:
        raise TidemillError(f"{rows:,} rows of history are there, {due:,} were loaded")
    return rows


def _drive(course: Course) -> Measured:
    stage = course.stage
    with (
        Worker(_DRIVER, course) as driver,
        progress(stage.last - stage.first + 1, "driving") as told,
    ):
        driver.call("start")
        watch(lambda: driver.call("progress"), told, stage.first)
        measured: Measured = driver.call("result")
    return measured


def watch(ask: Callable[[], Progress], told: Callable[[str, int], None], first: int) -> None:
    """Show how far a run is until it is done."""
    shown = first
    while True:
        now = ask()
        text = f"minute {now.second / 60:.1f}, {now.answers:,} answers, {now.slowest_s:.2f} s"
        told(text, now.second - shown)
        shown = now.second
        if now.is_done:
            return
        time.sleep(POLL_S)


def _judge(course: Course, cores: int) -> Verdict:
    stage = course.stage
    parts = 1 if stage.plan is None else stage.plan.xways
    verdicts = []
    with progress(parts, "judging") as told:
        for verdict in judge(stage, course.answers, cores):
            verdicts.append(verdict)
            told(f"{len(verdicts)} of {parts} expressways", 1)
    return added(verdicts)


def search(
    request: Request, folder: Path, most: int, show: Callable[[int, Outcome], None]
) -> tuple[int, list[tuple[int, Outcome]]]:
    """The highest number of expressways that holds: from the plan's on, doubled until one fails,
    then halved between. Answers it (0 if not even one holds) and all that was tried, in order."""
    assert request.plan is not None
    tried: list[tuple[int, Outcome]] = []

    def holds(xways: int) -> bool:
        assert request.plan is not None
        step = folder / f"l{xways}"
        step.mkdir()
        plan = replace(request.plan, xways=xways)
        outcome = run(replace(request, plan=plan, gives_up=True), step)
        shutil.rmtree(step)
        tried.append((xways, outcome))
        show(xways, outcome)
        return outcome.ok

    low, high = 0, request.plan.xways
    while high <= most and holds(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > max(1, low // 16):  # finer is not worth the time
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low, tried
