"""The Linear Road application, whole: 20 minutes of two expressways, every answer judged.

The input is handed over as fast as it goes, through memory alone; with moves to history in between;
with a process that is killed and another that goes on. Whatever happens underneath, the answers
are those that the validator expects.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from linear_road import feeder
from warehouses import flush, open_inline, quiet

from benchmarks.linear_road import fields, generator
from benchmarks.linear_road.comparison import Verdict, compare
from benchmarks.linear_road.deliveries import Deliveries
from benchmarks.linear_road.traffic import Plan
from benchmarks.linear_road.validator import Expected, expect
from examples.linear_road import application
from tidemill.engine import Database

PLAN = Plan(
    xways=2, minutes=20, seed=5, ramp_minutes=4, peak_per_minute=8_000, accident_gap_minutes=2
)
CHUNK_SECONDS = 30
KEPT = ("segment_minutes", "conditions", "stops", "crossings", "entries", "charges", "balances")


@dataclass(frozen=True)
class Road:
    """The input, and all answers that it calls for."""

    batches: list[pa.RecordBatch]
    tolls: pa.Table
    expected: Expected


@pytest.fixture(scope="module")
def road() -> Road:
    batches = list(generator.batches(PLAN, CHUNK_SECONDS))
    asking = generator.asking_vehicles(PLAN)
    tolls = pa.Table.from_batches(
        generator.daily_tolls(PLAN.seed, asking), schema=fields.DAILY_TOLLS
    )
    return Road(batches, tolls, expect(batches, tolls.to_batches()))


@pytest.fixture(autouse=True)
def _nothing_moves_by_itself() -> Iterator[None]:
    with quiet():
        yield


def judged(db: Database, road: Road) -> Verdict:
    """The verdict on the answers, whose response times are not looked at here."""
    db._kept.catch_up()
    arrivals = np.zeros(60 * PLAN.minutes)
    delivered = Deliveries(0, arrivals)
    delivered.take(application.Answers(db).read(), 0.0)
    return compare(road.expected, delivered.answers())


def test_the_road_has_something_of_everything(road: Road) -> None:
    expected = road.expected
    assert len(expected.tolls) > 50_000
    assert sum(toll > 0 for *_, toll in expected.tolls) > 500
    assert len(expected.accidents) > 1_000
    assert sum(expected.balance(vid, at) > 0 for at, vid in expected.balances.values()) > 10
    assert sum(spent > 0 for _, spent in expected.expenditures.values()) > 100


def test_memory_alone(road: Road, tmp_path: Path) -> None:
    with open_inline(tmp_path / "w") as db:
        application.create(db, road.tolls)
        reader = application.Answers(db)
        delivered = Deliveries(0, np.zeros(60 * PLAN.minutes))
        for number, batch in enumerate(generator.batches(PLAN, 10)):
            application.feed(db, batch)
            if number % 20 == 19:  # as a client would: what is there by now
                delivered.take(reader.read(), 0.0)
        db._kept.catch_up()
        delivered.take(reader.read(), 0.0)
        verdict = compare(road.expected, delivered.answers())
        assert verdict.ok, str(verdict)
        assert reader.read() == {}


def test_an_application_that_averages_reports_is_caught(
    road: Road, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4 as it is not: the mean of all reports of five minutes."""
    text = application.SQL.read_text()
    rules = {
        "CAST((sum(speed) + count(*) // 2) // count(*) AS BIGINT) AS speed": "sum(speed) AS speed,"
        " CAST(sum(reports) AS BIGINT) AS reports",
        "CAST(round(avg(spd) * 1000000000) AS BIGINT) AS speed": "CAST(sum(spd) AS BIGINT) AS"
        " speed, count(*) AS reports",
        "(sum(speed) + count(*)) // (count(*) * 1000000000)": "sum(speed) // sum(reports)",
    }
    for rule, other in rules.items():
        assert rule in text
        text = text.replace(rule, other)
    changed = tmp_path / "application.sql"
    changed.write_text(text)
    monkeypatch.setattr(application, "SQL", changed)
    with open_inline(tmp_path / "w") as db:
        application.create(db, road.tolls)
        for batch in road.batches:
            application.feed(db, batch)
        tolls, *others = judged(db, road).kinds
    assert tolls.wrong > 1_000
    assert tolls.missing == tolls.extra == 0
    assert all(kind.ok for kind in others if kind.name in ("accidents", "expenditures"))


def test_moves_in_between(road: Road, tmp_path: Path) -> None:
    with open_inline(tmp_path / "w") as db:
        application.create(db, road.tolls)
        moved = 0
        for number, batch in enumerate(road.batches):
            application.feed(db, batch)
            if number % 8 == 5:
                # The streams that are fed always; those of answers in turns.
                moved += flush(db, "reports", "balance_requests", KEPT[number // 8 % len(KEPT)])
        assert moved > 200_000
        verdict = judged(db, road)
        assert verdict.ok, str(verdict)


def test_killed_and_gone_on(road: Road, tmp_path: Path) -> None:
    warehouse, given = tmp_path / "w", tmp_path / "input.arrow"
    with open_inline(warehouse) as db:
        application.create(db, road.tolls)
    with pa.OSFile(str(given), "wb") as file, pa.ipc.new_file(file, fields.INPUT) as writer:
        for batch in road.batches:
            writer.write_batch(batch)
    # Each life goes on a little before what is known to be acknowledged: nothing is stored twice.
    killed_while_feeding(warehouse, given, first=0, last=13)
    killed_while_feeding(warehouse, given, first=10, last=26)
    with open_inline(warehouse) as db:
        assert sum(found.rows for found in db.recovered)
        for batch in road.batches[24:]:
            application.feed(db, batch, feeder.SOURCE)
        verdict = judged(db, road)
        assert verdict.ok, str(verdict)
        reports = sum(len(pc.indices_nonzero(pc.equal(b["type"], 0))) for b in road.batches)
        assert db.sql("SELECT count(*) FROM reports").fetchall() == [(reports,)]


def killed_while_feeding(warehouse: Path, given: Path, *, first: int, last: int) -> None:
    """Let a process feed from one batch on and kill it when another is acknowledged: it is about
    to feed the next and to answer the last ones."""
    command = [sys.executable, feeder.__file__, str(warehouse), str(given), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [int(next(process.stdout)) for _ in range(first, last + 1)]
        process.kill()
    assert acknowledged == list(range(first, last + 1))
    assert process.returncode == -signal.SIGKILL
