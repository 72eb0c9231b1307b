"""The driver's parts: what is staged, asked, delivered, judged, searched and drawn; and a run."""

from __future__ import annotations

import threading
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tidemill
from benchmarks.linear_road import __main__ as command
from benchmarks.linear_road import files, generator, report, run, sampling
from benchmarks.linear_road.comparison import Verdict, compare
from benchmarks.linear_road.deliveries import Deliveries, numbered, read_answers, write_answers
from benchmarks.linear_road.driver import Driver, Measured
from benchmarks.linear_road.judging import added
from benchmarks.linear_road.onetime import Past
from benchmarks.linear_road.plots import Chart, Series, panels
from benchmarks.linear_road.sampling import Sampler
from benchmarks.linear_road.staging import Stage, stage_files, write_part
from benchmarks.linear_road.traffic import Plan
from benchmarks.linear_road.validator import expect
from examples.linear_road import application

PLAN = Plan(xways=2, minutes=3, peak_per_minute=600, ramp_minutes=1, query_share=0.2)
INLINE = ("--spark-master", "inline")  # a minute of a test is too short for Spark


def entries(*rows: tuple[int, int, int, int | None]) -> dict[str, pa.Table]:
    """Answers as the application's reader gives them: vehicle, time, lane, accident."""
    vid, time, lane, accident = (list(column) for column in zip(*rows, strict=True))
    columns = {"vid": vid, "time": time, "lane": lane, "accident": accident}
    zeros = {name: [0] * len(rows) for name in ("lav", "toll")}
    given = {name: pa.array(values, pa.int32()) for name, values in {**columns, **zeros}.items()}
    return {"entries": pa.table(given)}


class TestStaging:
    def test_a_part_has_a_batch_for_every_second_and_its_counts(self, tmp_path: Path) -> None:
        part = write_part(tmp_path / "part.arrow", generator.batches(PLAN))
        stage = Stage(
            PLAN, (part.path,), tmp_path / "t", part.first, part.last, part.rows, part.counts
        )
        given = pa.Table.from_batches(generator.batches(PLAN))
        assert pa.Table.from_batches(stage.seconds()).equals(given)
        reports = given.filter(pa.array(given["type"].to_numpy() == 0))
        assert stage.reports_by_minute().sum() == reports.num_rows
        place = (reports["time"].to_numpy() // 60, reports["xway"].to_numpy())
        counted = np.zeros((3, 2, 100), np.int64)
        np.add.at(counted, (*place, reports["seg"].to_numpy()), 1)
        assert np.array_equal(stage.counts, counted)
        assert part.asking.tolist() == generator.asking_vehicles(PLAN).tolist()

    def test_a_file_from_elsewhere(self, tmp_path: Path) -> None:
        rows = pa.Table.from_batches(generator.batches(replace(PLAN, from_minute=1)))
        files.write_input(tmp_path / "given.csv", rows.to_batches())
        stage = stage_files(tmp_path / "given.csv", None, tmp_path)
        assert pa.Table.from_batches(stage.seconds()).equals(rows)
        assert (stage.first_minute, stage.last // 60, stage.xways) == (1, 2, 2)
        assert stage.daily_tolls().num_rows == 0


class TestOneTimeQueries:
    def test_spans_hold_what_they_say(self) -> None:
        chance = np.random.default_rng(3)
        counts = chance.integers(0, 2_000, (60, 2, 100))
        past = Past(counts, 100)
        for size in (1_000, 10_000, 30_000):
            span = past.choose(chance, size, 150)
            assert 100 <= span.low <= span.high <= 150
            taken = counts[span.low - 100 : span.high - 100, span.xway, span.seg]
            assert taken.sum() == span.rows
            assert 0.8 * size <= span.rows <= size / 0.8

    def test_nothing_is_known_yet(self) -> None:
        span = Past(np.ones((5, 1, 100), np.int64), 7).choose(np.random.default_rng(1), 10, 7)
        assert (span.low, span.high, span.rows) == (7, 7, 0)


class TestDeliveries:
    def test_emit_counts_from_the_arrival(self) -> None:
        delivered = Deliveries(10, np.array([100.0, 101.5]))
        delivered.take(entries((1, 10, 0, None), (2, 11, 2, 7), (3, 11, 4, None)), 102.0)
        found = delivered.answers()
        assert found.tolls.select(["vid", "emit"]).to_pylist() == [
            {"vid": 1, "emit": 12.0},
            {"vid": 2, "emit": 11.5},
        ]
        assert found.accidents.select(["vid", "seg"]).to_pylist() == [{"vid": 2, "seg": 7}]
        assert (delivered.rows, delivered.newest, delivered.slowest_s) == (3, 11, 2.0)

    def test_an_answer_to_nothing_is_kept(self) -> None:
        delivered = Deliveries(10, np.array([100.0]))
        delivered.take(entries((1, 5, 0, None)), 102.0)
        assert delivered.answers().tolls["emit"].to_pylist() == [5.0]

    def test_written_and_read(self, tmp_path: Path) -> None:
        delivered = Deliveries(0, np.zeros(9))
        delivered.take(entries((1, 5, 0, None), (1_000_001, 5, 0, None)), 0.5)
        write_answers(tmp_path / "answers", delivered.answers())
        read = read_answers(tmp_path / "answers")
        assert read == delivered.answers()
        mine = numbered(read, range(1_000_000, 2_000_000))
        assert mine.tolls["vid"].to_pylist() == [1_000_001]
        others = numbered(read, range(1_000_000, 2_000_000), outside=True)
        assert others.tolls["vid"].to_pylist() == [1]


def test_verdicts_add_up() -> None:
    expected = expect(generator.batches(PLAN), ())
    nothing = Deliveries(0, np.zeros(1)).answers()
    one = compare(expected, nothing)
    both = added([one, one])
    assert [kind.missing for kind in both.kinds] == [2 * kind.missing for kind in one.kinds]
    assert both.kinds[0].missing > 0
    assert not both.ok


def test_the_sampler_sees_this_process() -> None:
    sampler = Sampler()
    sampler.start(0.0)
    samples = sampler.finish()
    assert samples[0].resident > samples[0].anonymous > 10_000_000
    assert samples[0].java_resident == 0


def test_a_thread_that_ends_takes_no_process_out_of_a_sample() -> None:
    """Java starts and ends threads all the time; its whole use would be missing now and then."""
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            thread = threading.Thread(target=lambda: None)
            thread.start()
            thread.join()

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        taken = [sampling._usages()[0].resident for _ in range(300)]
    finally:
        done.set()
        churning.join()
    assert min(taken) > 10_000_000


class TestSearch:
    @pytest.mark.parametrize("first", [1, 5, 32])
    @pytest.mark.parametrize("most", [1, 2, 5, 8, 13, 20])
    def test_finds_the_highest(
        self, first: int, most: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(run, "run", lambda request, _: _Outcome(request.plan.xways <= most))
        request = run.Request(replace(PLAN, xways=first))
        assert run.search(request, tmp_path, 128, lambda *_: None)[0] == most

    def test_none_holds(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(run, "run", lambda *_: _Outcome(False))
        request = run.Request(replace(PLAN, xways=1))
        best, tried = run.search(request, tmp_path, 128, lambda *_: None)
        assert (best, len(tried)) == (0, 1)

    def test_not_above_the_bound(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(run, "run", lambda *_: _Outcome(True))
        request = run.Request(replace(PLAN, xways=1))
        best, _ = run.search(request, tmp_path, 6, lambda *_: None)
        assert best == 6


class _Outcome:
    def __init__(self, ok: bool) -> None:
        self.ok = ok


def test_plots_are_well_formed() -> None:
    line = Series("a < b", [0.0, 1.0, 2.0], [0.0, 7.0, 3.0])
    dots = Series("dots", [0.5], [0.001], is_dots=True)
    chart = Chart("Response & load", "s", "minute", (line, dots), line, "rows", limit=5.0)
    root = ElementTree.fromstring(panels([chart, chart, Chart("none", "s", "minute", ())]))
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Response & load" in texts
    assert "a < b" in texts


class TestCommand:
    @pytest.mark.parametrize(
        "arguments",
        [
            ["--rate", "slow"],
            ["--rate", "0"],
            ["--tolls", "t.csv"],
            ["--input", "i.csv", "--history"],
            ["--rate", "max", "--otq-per-minute", "20"],
            ["--otq-per-minute=-3"],
            ["--otq-per-minute", "20,none"],
            ["--otq-per-minute", "20,20"],
            ["--search", "--xways", "5", "--search-most", "3"],
        ],
    )
    def test_refuses(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            command.parse(arguments)
        assert "error:" in capsys.readouterr().err

    def test_a_search_begins_near_the_end(self) -> None:
        plan = command.request_of(command.parse(["--search", "--seed", "9"])).plan
        assert plan == Plan(xways=1, minutes=180, from_minute=177, seed=9)

    def test_without_indices(self, tmp_path: Path) -> None:
        assert not command.request_of(command.parse(["--no-indices"])).has_indices
        with tidemill.open(tmp_path / "w", spark_master="inline") as db:
            application.create_tables(db, has_indices=False)
            found = db.sql("SELECT count(*) FROM tidemill.indexes").fetchall()
            tables = db.sql("SELECT count(*) FROM tidemill.tables").fetchall()
        assert found == [(0,)]
        assert tables[0][0] >= 4

    def test_runs_judges_and_writes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(report, "KEEP", tmp_path)
        monkeypatch.setattr(report, "ROOT", tmp_path)
        monkeypatch.setattr(run, "POLL_S", 0.05)
        small = ["--xways", "2", "--minutes", "2", "--peak", "600", "--ramp", "1"]
        code = command.main([*small, *INLINE, "--rate", "60", "--otq-per-minute", "0,300,900"])
        printed = capsys.readouterr().out
        # How fast the answers were is the machine's business here.
        assert (code == 0) == ("Every answer was right" in printed)
        page = next((tmp_path / "results").glob("*-linear_road.md")).read_text()
        assert "Linear Road, L2++" in page
        assert page.count("0 missing, 0 extra, 0 wrong") == 4, page
        assert "| all | 13 |" in page
        assert "| 300 a minute, about 10,000 rows | 1 |" in page
        assert "| 900 a minute, about 10,000 rows | 4 |" in page
        assert "## What one-time queries cost" in page
        assert next((tmp_path / "results").glob("*.svg")).stat().st_size > 1_000


def test_faults_are_told() -> None:
    told = Measured(errors=["the disk is full"], gave_up=True, fed_seconds=12)
    stage = Stage(PLAN, (), Path("t"), 0, 179, 0, np.zeros((3, 2, 100), np.int64))
    answers = Deliveries(0, np.zeros(1)).answers()
    outcome = run.Outcome(run.Request(PLAN), stage, told, answers, None)
    assert not outcome.ok
    assert outcome.faults == [
        "the disk is full",
        "given up at second 12 of the input: too slow",
    ]
    judged = replace(outcome, measured=Measured(), verdict=Verdict(()))
    assert judged.ok


def test_a_move_that_failed_is_a_fault_and_took_nothing() -> None:
    class Asked:
        def sql(self, _: str) -> Asked:
            return self

        def fetchall(self) -> list[tuple[str, int, str | None]]:
            return [
                ("committed", 500, None),
                ("failed", 0, "Spark ended"),
                ("cancelled", 0, None),
            ]

    driver = Driver.__new__(Driver)
    driver._told, driver._db = Measured(), Asked()  # type: ignore[assignment]
    driver._look_at_jobs()
    assert (driver._told.moves, driver._told.moved_rows) == (1, 500)
    assert driver._told.errors == ["a move failed: Spark ended"]
