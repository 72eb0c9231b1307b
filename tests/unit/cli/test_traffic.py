"""The simulated cars."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.cli.demo.traffic import LENGTH_FEET, SCHEMA, SEGMENT_FEET, Reports, Traffic
from tidemill.clock import to_us

START_US = 1_700_000_000_000_000


def simulate(seconds: int, cars: int = 1_500, seed: int = 1) -> tuple[Traffic, Reports]:
    traffic = Traffic(xways=2, cars=cars, start_us=START_US, seed=seed)
    return traffic, traffic.advance(seconds)


def is_possible(row: dict[str, object]) -> bool:
    try:
        table = pa.Table.from_pylist([row], SCHEMA)
    except (pa.ArrowException, OverflowError):
        return False
    return bool(table.column("vid").null_count == 0)


def test_the_seed_decides_everything() -> None:
    _, first = simulate(120)
    _, second = simulate(120)
    _, other = simulate(120, seed=2)
    assert first == second
    assert first.rows != other.rows


def test_steps_of_any_size_tell_the_same_story() -> None:
    _, whole = simulate(90)
    traffic = Traffic(xways=2, cars=1_500, start_us=START_US)
    parts = [traffic.advance(30) for _ in range(3)]
    assert pa.concat_tables([part.rows for part in parts]) == whole.rows


def test_every_car_reports_each_half_minute() -> None:
    traffic, reports = simulate(30)
    held = sum(table.num_rows for _, table in traffic._overdue)
    assert reports.rows.num_rows + reports.overdue.num_rows + held == 1_500
    assert traffic.now_us == START_US + 30_000_000


def test_reports_are_possible() -> None:
    _, reports = simulate(1_200)
    rows = reports.rows
    assert rows.schema == SCHEMA

    def span(name: str) -> tuple[int, int]:
        both = pc.min_max(rows.column(name)).as_py()
        return both["min"], both["max"]

    assert span("xway") == (0, 1)
    assert span("dir") == (0, 1)
    assert span("lane") == (0, 4)
    assert 0 <= span("pos")[0] <= span("pos")[1] < LENGTH_FEET
    assert 0 == span("spd")[0] <= span("spd")[1] <= 110
    assert pc.all(pc.equal(rows.column("seg"), pc.divide(rows.column("pos"), SEGMENT_FEET))).as_py()
    assert rows.column("ts").to_pylist() == sorted(rows.column("ts").to_pylist())


def test_some_cars_stand_still() -> None:
    _, reports = simulate(1_200)
    standing = reports.rows.filter(pc.equal(reports.rows.column("spd"), 0))
    counts = standing.group_by(["vid", "pos"]).aggregate([("ts", "count")]).column("ts_count")
    assert pc.max(counts).as_py() >= 4


def test_overdue_rows_are_old_when_they_arrive() -> None:
    traffic = Traffic(xways=1, cars=3_000, start_us=START_US)
    count = 0
    for _ in range(120):
        told = traffic.advance(1).overdue
        count += told.num_rows
        for moment in told.column("ts").to_pylist():
            assert 10_000_000 <= traffic.now_us - to_us(moment) <= 60_000_000
    assert count > 0


def test_wrong_rows_are_wrong_in_one_column() -> None:
    _, reports = simulate(600)
    assert reports.wrong
    for row in reports.wrong:
        assert list(row) == SCHEMA.names
        assert not is_possible(row)
