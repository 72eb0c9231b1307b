"""The demo: what it pours, asks and shows, and how it ends."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

import tidemill
from tidemill import Database
from tidemill.cli.demo.board import draw, plain_line
from tidemill.cli.demo.command import prepare
from tidemill.cli.demo.producer import Producer
from tidemill.cli.demo.questions import Asker
from tidemill.cli.main import main
from tidemill.server.remote import connect


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with tidemill.open(tmp_path / "warehouse") as database:
        yield database


def pour(database: Database, seconds: int, rate: float = 10.0) -> Producer:
    producer = Producer(database, prepare(database, xways=1, cars=2_000, rate=rate), rate)
    for _ in range(seconds // 10):
        producer.pour(producer._traffic.advance(10))
    return producer


def test_every_row_is_stored_late_or_rejected(database: Database) -> None:
    counters = pour(database, 300).counters
    assert counters.rows_in == counters.stored + counters.late + counters.rejected
    assert min(counters.stored, counters.late, counters.rejected) > 0
    (told,) = database.sql("SELECT rows_in, stored, late, rejected FROM tidemill.ingest").fetchall()
    assert told == (counters.rows_in, counters.stored, counters.late, counters.rejected)
    (found,) = database.sql(
        "SELECT (SELECT count(*) FROM pos_reports), (SELECT count(*) FROM pos_reports$late), "
        "(SELECT count(*) FROM pos_reports$rejected)"
    ).fetchall()
    assert found == (counters.stored, counters.late, counters.rejected)


def test_every_question_has_an_answer(database: Database) -> None:
    producer = pour(database, 600)
    asker = Asker(database)
    assert list(asker.ask_all()) == ["congested", "stopped", "rejected", "held"]
    for name, answer in asker.answers.items():
        assert answer.error is None, f"{name}: {answer.error}"
        assert answer.rows, name
    stopped = {row[0] for row in asker.answers["stopped"].rows}
    stood = database.sql("SELECT DISTINCT vid FROM pos_reports WHERE spd = 0").fetchall()
    assert stopped <= {vid for (vid,) in stood}

    console = Console(width=80, height=24, file=io.StringIO())
    console.print(
        draw(Path("warehouse"), producer._traffic, 10.0, producer.counters, asker.answers)
    )
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert len(text.splitlines()) <= 24
    assert "congested segments" in text
    assert "cars stopped" in text
    assert "tidemill sql --warehouse" in text
    assert f"{producer.counters.rows_in:,}" in plain_line(producer.counters, asker.answers)


def test_a_question_that_fails_is_shown_and_not_fatal(database: Database) -> None:
    producer = pour(database, 10)
    database.sql("DROP TABLE pos_reports")
    asker = Asker(database)
    list(asker.ask_all())
    assert asker.answers["stopped"].error is not None
    draw(database.path, producer._traffic, 10.0, producer.counters, asker.answers)


def test_an_earlier_demo_is_continued(database: Database) -> None:
    first = pour(database, 60)
    second = prepare(database, xways=1, cars=10, rate=10.0)
    assert second.now_us >= first.counters.simulated_us
    vids = database.sql("SELECT max(vid) FROM pos_reports").fetchall()[0][0]
    assert second._vid.min() > vids


@pytest.mark.parametrize(("rate", "clock"), [(1.0, "wall"), (10.0, "event")])
def test_a_sped_up_world_has_its_own_clock(database: Database, rate: float, clock: str) -> None:
    prepare(database, xways=1, cars=10, rate=rate)
    query = "SELECT value FROM tidemill.settings WHERE table_name IS NOT NULL AND name = 'clock'"
    assert database.sql(query).fetchall() == [(clock,)]


def test_it_stops_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["demo", "-w", str(tmp_path / "w"), "--cars", "300", "--xways", "1", "--seconds", "0.3"]
    assert main([*words, "--plain"]) == 0
    assert "the warehouse stays: tidemill sql --warehouse" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--cars", "0"], ["--rate", "0"], ["--rate", "x"]])
def test_impossible_worlds_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["demo", *words])
    assert "argument" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "w"
    words = ["-m", "tidemill.cli.main", "demo", "-w", str(folder), "--cars", "3000", "--plain"]
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        with connect(folder) as client:  # others may ask while it runs
            (count,) = client.sql("SELECT count(*) FROM pos_reports").fetchall()[0]
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert count > 0
    assert lines[2].split()[1].replace(",", "").isdigit()
    assert (process.returncode, err) == (0, "")
    assert "the warehouse stays" in out
    with tidemill.open(folder) as database:
        assert database.sql("SELECT count(*) FROM pos_reports").fetchall()[0][0] >= count
