"""Linear Road, live: what is played, measured and drawn, and how it ends."""

from __future__ import annotations

import doctest
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

import tidemill
from benchmarks.linear_road.__main__ import parse as parse_linear_road
from benchmarks.linear_road.traffic import Plan
from examples.linear_road import application, live, live_board
from examples.linear_road.live_answers import METER_S, RATE_OVER_S, Answer, Meter, Watcher
from examples.linear_road.live_board import SUGGESTIONS, draw, plain_line, spark_line
from examples.linear_road.live_traffic import MINUTE_S, PAUSE_S, Player, World
from tidemill import Database
from tidemill.errors import UnknownNameError
from tidemill.pipeline.java import JavaNotFoundError
from tidemill.server.remote import connect

ROOT = Path(__file__).parents[2]
NOW_S = 1_000_007
PLAN = Plan(
    xways=2,
    minutes=30,
    seed=4,
    from_minute=2,
    peak_per_minute=10_000,
    ramp_minutes=3,
    accident_gap_minutes=0.5,
    query_share=0.03,
)


@dataclass(frozen=True)
class Show:
    """A world with its past and its first live seconds, and all that the application said."""

    database: Database
    world: World
    player: Player
    watcher: Watcher


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Show]:
    folder = tmp_path_factory.mktemp("live") / "warehouse"
    with tidemill.open(folder, spark_master="inline") as database:
        application.create(database)
        world = World.around(PLAN, NOW_S, past_minutes=5, rate=1.0, newest_s=None)
        player = Player(database, world)
        watcher = Watcher(database, player.arrived_at)
        player.play_past()
        for second in range(1, 4):
            player.play_to(world.live_s + second)
        database.sql("REFRESH MATERIALIZED VIEW entries")
        watcher.read_on()
        watcher.ask_all()
        yield Show(database, world, player, watcher)


def number(database: Database, query: str) -> int:
    return int(database.sql(query).fetchall()[0][0])


def test_a_world_ends_its_past_now() -> None:
    world = World.around(PLAN, NOW_S, past_minutes=5, rate=1.0, newest_s=None)
    assert world.live_s == NOW_S
    first_s = world.base_s + PLAN.from_minute * MINUTE_S
    assert first_s % MINUTE_S == 0
    assert NOW_S - 6 * MINUTE_S < first_s <= NOW_S - 5 * MINUTE_S


@pytest.mark.parametrize("newest_s", [NOW_S - 1, NOW_S - 300, NOW_S + 10_000])
def test_a_later_world_begins_after_an_earlier_one(newest_s: int) -> None:
    world = World.around(PLAN, NOW_S, past_minutes=5, rate=1.0, newest_s=newest_s)
    first_s = world.base_s + PLAN.from_minute * MINUTE_S
    assert first_s % MINUTE_S == 0
    assert newest_s + PAUSE_S <= first_s < newest_s + PAUSE_S + MINUTE_S
    assert world.live_s >= first_s + 5 * MINUTE_S


def test_every_second_is_played_once(show: Show) -> None:
    counters = show.player.counters
    assert counters.newest_s == show.world.live_s + 3
    assert number(show.database, "SELECT count(*) FROM reports") == counters.reports > 20_000
    requests = "(SELECT count(*) FROM balance_requests) + (SELECT count(*) FROM {}_requests)"
    asked = number(show.database, f"SELECT {requests.format('expenditure')}")
    assert asked == counters.requests > 400
    twice = "SELECT count(*) FROM (SELECT vid, ts FROM reports GROUP BY ALL HAVING count(*) > 1)"
    assert number(show.database, twice) == 0


def test_every_answer_is_counted(show: Show) -> None:
    database, counts = show.database, show.watcher.counts
    assert counts.tolls == number(database, "SELECT count(*) FROM entries WHERE lane <> 4") > 5_000
    accidents = "SELECT count(*) FROM entries WHERE lane <> 4 AND accident IS NOT NULL"
    assert counts.accidents == number(database, accidents) > 0
    assert counts.balances + counts.expenditures == show.player.counters.requests


def test_who_asks_for_a_past_day_has_a_past(show: Show) -> None:
    lost = (
        "SELECT count(*) FROM expenditure_requests WHERE vid NOT IN (SELECT vid FROM daily_tolls)"
    )
    assert number(show.database, lost) == 0
    assert number(show.database, "SELECT sum(expenditure) FROM expenditures") > 0
    twice = "SELECT count(*) FROM (SELECT 1 FROM daily_tolls GROUP BY vid, day HAVING count(*) > 1)"
    assert number(show.database, twice) == 0


def test_only_live_rows_are_measured(show: Show) -> None:
    live_s = show.world.live_s
    assert show.player.arrived_at(live_s) is None
    assert None not in [show.player.arrived_at(live_s + second) for second in (1, 2, 3)]
    assert 0 < show.watcher.meter.mean_s <= show.watcher.meter.longest_s < 30


def test_the_meter_counts_by_seconds() -> None:
    meter = Meter()
    meter.advance(5.0)
    assert (meter.rate, meter.mean_s, meter.longest_s, meter.longest_each_s) == (0, 0, 0, [])
    meter.note(10.2, 3, 0.5)
    meter.note(10.9, 1, 0.1)
    meter.advance(14.0)
    meter.note(14.5, 100, 0.1)  # the second that still runs
    assert meter.rate == 1.0
    assert meter.mean_s == pytest.approx((1.5 + 0.1 + 10.0) / 104)
    assert meter.longest_each_s == [0.5, 0.1]
    meter.advance(14.0 + RATE_OVER_S + 1)
    assert meter.rate == 0
    meter.advance(10.0 + 10 * METER_S)
    assert (meter.longest_s, meter.longest_each_s) == (0, [])


@pytest.mark.parametrize(("width", "height"), [(80, 24), (118, 24), (118, 34)])
def test_the_board_fits(show: Show, width: int, height: int) -> None:
    console = Console(width=width, height=height, file=io.StringIO())
    console.print(draw(Path("warehouse"), 2, show.player, show.watcher, width, height))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert len(text.splitlines()) <= height
    assert "…" not in text  # nothing was cut
    for words in ("Linear Road", "✖", "xway 1 ←", "response", "tidemill sql --warehouse"):
        assert words in text
    for suggestion in SUGGESTIONS if height > 24 else SUGGESTIONS[:1]:
        assert suggestion in text
    assert f"{show.player.counters.cars:,} cars" in plain_line(show.player, show.watcher)


def test_the_board_shows_what_the_pipeline_does(show: Show) -> None:
    watcher = Watcher(show.database, show.player.arrived_at)
    moved = ("move", "reports", "committed", 25_000, "Spark", 1.25, "the period has passed")
    failed = ("move", "reports", "failed", 0, "Spark", 0.5, "Spark ended")
    watcher.answers["jobs"] = Answer([moved, failed])
    watcher.answers["jobs_done"] = Answer([("move", 2, 25_000, 1)])
    console = Console(width=118, height=34, file=io.StringIO())
    console.print(draw(Path("warehouse"), 2, show.player, watcher, 118, 34))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "move reports: 25,000 rows by Spark in 1.25 s" in text
    assert "move reports: failed by Spark 500.0 ms, Spark ended" in text
    assert "pipeline: 2 moves of 25,000 rows (1 failed)" in text
    assert "25,000 rows by Spark" in plain_line(show.player, watcher)


def test_the_questions_about_jobs_are_answered(show: Show) -> None:
    show.database.sql("FLUSH reports")
    watcher = Watcher(show.database, show.player.arrived_at)
    watcher.ask_all()
    assert [answer.error for answer in watcher.answers.values()] == [None] * len(watcher.answers)
    assert watcher.answers["jobs"].rows[0][:3] == ("move", "reports", "committed")
    assert watcher.answers["jobs_done"].rows[0][0] == "move"


def test_it_runs_on_spark_unless_there_is_no_java(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert live.build_parser().parse_args([]).spark == "local[*]"
    assert parse_linear_road([]).spark_master == "local[*]"
    assert live.choose_master("inline") == "inline"

    def no_java() -> None:
        raise JavaNotFoundError("no Java 17 or newer was found")

    monkeypatch.setattr(live, "find_java", no_java)
    assert live.choose_master("local[*]") == "inline"
    told = capsys.readouterr()
    assert "no Java 17" in told.err
    assert "without Spark" in told.out


def test_what_the_board_says_of_itself() -> None:
    tried = doctest.testmod(live_board)
    assert tried.attempted > 0
    assert tried.failed == 0


def test_suggestions_have_answers(show: Show) -> None:
    for suggestion in SUGGESTIONS:
        assert show.database.sql(suggestion).fetchall(), suggestion


def test_a_question_that_fails_is_shown_and_not_fatal(show: Show) -> None:
    watcher = Watcher(show.database, show.player.arrived_at)
    for name in watcher.answers:
        watcher.answers[name] = Answer(error=UnknownNameError(f"{name} is not there"))
    console = Console(width=80, file=io.StringIO())
    console.print(draw(Path("warehouse"), 2, show.player, watcher, 80))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue() + spark_line(watcher.answers["spark"])
    for name in watcher.answers:
        assert f"{name} is not there" in text
    assert "held is not there" in plain_line(show.player, watcher)


def test_it_stops_by_itself_and_goes_on_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-w", str(tmp_path / "w"), "--peak", "300", "--xways", "1", "--plain"]
    words += ["--spark", "inline"]
    newest = []
    for _ in range(2):
        assert live.main([*words, "--seconds", "0.3"]) == 0
        assert "the warehouse stays: " in capsys.readouterr().out
        with tidemill.open(tmp_path / "w") as database:
            newest += database.sql("SELECT max(ts), count(*) FROM reports").fetchall()
    (first_at, first_rows), (second_at, second_rows) = newest
    assert second_at > first_at
    assert second_rows > first_rows > 0


@pytest.mark.parametrize("words", [["--xways", "0"], ["--rate", "0"], ["--peak", "x"]])
def test_impossible_worlds_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        live.main(words)
    assert "argument" in capsys.readouterr().err


def test_a_warehouse_with_other_tables_of_these_names_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tidemill.open(tmp_path / "w") as database:
        database.sql("CREATE TABLE reports (a INT)")
    assert live.main(["-w", str(tmp_path / "w"), "--plain", "--seconds", "0.1"]) == live.EXIT_ERROR
    assert '"reports"' in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "w"
    words = ["-m", "examples.linear_road", "-w", str(folder), "--peak", "3000", "--plain"]
    with subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    ) as process:
        assert process.stdout is not None
        rows_are_in = re.compile(r"cars, .* reports/s.*; memory [1-9]")
        line = next(filter(rows_are_in.search, process.stdout), None)
        with connect(folder) as client:  # others may ask while it runs
            (count,) = client.sql("SELECT count(*) FROM reports").fetchall()[0]
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert count > 0
    assert line is not None
    assert (process.returncode, err) == (0, "")
    assert "the warehouse stays" in out
    with tidemill.open(folder) as database:
        assert database.sql("SELECT count(*) FROM reports").fetchall()[0][0] >= count
