"""The generator's rows are an expressway's: in range, in time, in motion, and the same again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.linear_road import validator
from benchmarks.linear_road.fields import DAILY_TOLLS, INPUT, REPORT_SECONDS
from benchmarks.linear_road.generator import asking_vehicles, batches, daily_tolls, vehicles
from benchmarks.linear_road.traffic import Expressway, Plan
from tidemill.errors import DefinitionError

BUSY = Plan(
    xways=2, minutes=24, seed=7, peak_per_minute=8_000, ramp_minutes=8, accident_gap_minutes=2
)
Columns = dict[str, npt.NDArray[np.int32]]


def _columns(table: pa.Table) -> Columns:
    return {name: table.column(name).to_numpy() for name in table.column_names}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return pa.Table.from_batches(batches(BUSY, chunk_seconds=30))


@pytest.fixture(scope="module")
def by_car(rows: pa.Table) -> Columns:
    """The reports, each car's after one another in time order."""
    reports = rows.filter(pc.equal(rows["type"], 0))
    return _columns(reports.sort_by([("vid", "ascending"), ("time", "ascending")]))


@pytest.fixture(scope="module")
def follows(by_car: Columns) -> npt.NDArray[np.bool_]:
    """Whether the next report is of the same trip."""
    same = np.diff(by_car["vid"]) == 0
    return same & (np.diff(by_car["time"]) <= 60)


def _digest(parts: Iterable[pa.RecordBatch]) -> str:
    table = pa.Table.from_batches(list(parts), INPUT)
    whole = hashlib.sha256()
    for column in table.columns:
        whole.update(column.to_numpy().tobytes())
    return whole.hexdigest()


def test_fields_are_in_range_and_rows_in_time_order(rows: pa.Table) -> None:
    assert rows.schema == INPUT
    all_rows = _columns(rows)
    assert np.all(np.diff(all_rows["time"]) >= 0)
    assert all_rows["time"][0] == 0
    assert all_rows["time"][-1] == 24 * 60 - 1
    reports = _columns(rows.filter(pc.equal(rows["type"], 0)))
    ranges = {"spd": (0, 100), "xway": (0, 1), "lane": (0, 4), "dir": (0, 1), "seg": (0, 99)}
    for name, (low, high) in ranges.items():
        assert reports[name].min() >= low, name
        assert reports[name].max() <= high, name
        assert len(np.unique(reports[name])) > min(high - low, 50), name
    assert np.all(reports["seg"] == reports["pos"] // 5280)
    assert np.all((reports["pos"] >= 0) & (reports["pos"] < 528_000))
    for name in ("qid", "sinit", "send", "dow", "tod", "day"):
        assert np.all(reports[name] == -1)


def test_a_car_reports_every_thirty_seconds_exactly(
    by_car: Columns, follows: npt.NDArray[np.bool_]
) -> None:
    gaps = np.diff(by_car["time"])
    assert np.all(gaps[follows] == REPORT_SECONDS)
    comes_again = (np.diff(by_car["vid"]) == 0) & ~follows
    assert 20 < comes_again.sum() < 0.1 * len(np.unique(by_car["vid"]))
    assert np.all(gaps[comes_again] > 60)


def test_a_car_moves_as_fast_as_it_says_and_its_direction_is_its_own(
    by_car: Columns, follows: npt.NDArray[np.bool_]
) -> None:
    assert np.all(np.diff(by_car["dir"])[follows] == 0)
    assert np.all(np.diff(by_car["xway"])[follows] == 0)
    onward = np.diff(by_car["pos"]) * (1 - 2 * by_car["dir"][:-1])
    assert np.all(onward[follows] >= 0)
    assert np.all(np.abs(onward - 44 * by_car["spd"][1:])[follows] <= 22)
    assert np.abs(np.diff(by_car["seg"])[follows]).max() == 1


def test_a_trip_begins_in_lane_0_and_ends_in_lane_4(
    by_car: Columns, follows: npt.NDArray[np.bool_]
) -> None:
    begins = np.concatenate([[True], ~follows])
    ends = np.concatenate([~follows, [True]])
    assert np.array_equal(begins, by_car["lane"] == 0)
    assert np.all(ends[by_car["lane"] == 4])
    on_the_road = by_car["time"][ends] >= 24 * 60 - REPORT_SECONDS
    assert np.all((by_car["lane"][ends] == 4) | on_the_road)
    # Some leave in the segment they were in, some in the one they just reached.
    leaves = np.flatnonzero(by_car["lane"] == 4)
    stays = np.mean(by_car["seg"][leaves] == by_car["seg"][leaves - 1])
    assert 0.1 < stays < 0.9


def test_accidents_are_two_cars_at_one_spot_for_ten_to_twenty_minutes(
    by_car: Columns, follows: npt.NDArray[np.bool_]
) -> None:
    stands = follows & (np.diff(by_car["pos"]) == 0) & (np.diff(by_car["lane"]) == 0)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], stands, [False]]).astype(int)))
    first, last = edges[::2], edges[1::2]
    spots: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for start, stop in zip(first.tolist(), last.tolist(), strict=True):
        names = ("xway", "dir", "lane", "pos")
        spot = tuple(int(by_car[name][start]) for name in names)
        began, moved = by_car["time"][start], by_car["time"][stop] + REPORT_SECONDS
        spots.setdefault(spot, []).append((int(began), int(moved)))
    accidents = {spot: cars for spot, cars in spots.items() if len(cars) > 1}
    assert len(accidents) >= 6
    assert len(spots) > len(accidents)  # cars that broke down alone
    over = 0
    for (_, _, lane, _), cars in accidents.items():
        assert len(cars) == 2
        assert 1 <= lane <= 3
        for began, moved in cars:
            if moved < 24 * 60:
                over += 1
                assert 10 * 60 <= moved - began <= 20 * 60
    assert over >= 4


def test_one_report_in_a_hundred_is_followed_by_a_query(rows: pa.Table) -> None:
    queries = _columns(rows.filter(pc.not_equal(rows["type"], 0)))
    reports = _columns(rows.filter(pc.equal(rows["type"], 0)))
    share = len(queries["qid"]) / len(reports["vid"])
    assert 0.009 < share < 0.011
    assert len(np.unique(queries["qid"])) == len(queries["qid"])
    assert set(np.unique(queries["type"])) == {2, 3}
    assert 0.12 < np.mean(queries["type"] == 3) < 0.22
    days = queries["day"][queries["type"] == 3]
    assert days.min() >= 1
    assert days.max() <= 69
    assert np.all(queries["day"][queries["type"] == 2] == -1)
    asked = queries["vid"].astype(np.int64) << 32 | queries["time"]
    reported = reports["vid"].astype(np.int64) << 32 | reports["time"]
    assert np.all(np.isin(asked, reported))


def test_queries_come_after_the_reports_of_their_second(rows: pa.Table) -> None:
    all_rows = _columns(rows)
    is_query = (all_rows["type"] != 0).astype(np.int64)
    assert np.all(np.diff(all_rows["time"].astype(np.int64) * 2 + is_query) >= 0)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not() -> None:
    small = Plan(minutes=4, peak_per_minute=4_000, ramp_minutes=3)
    first, again = _digest(batches(small)), _digest(batches(small))
    other = _digest(batches(Plan(minutes=4, peak_per_minute=4_000, ramp_minutes=3, seed=2)))
    assert first == again != other


def test_chunks_differ_in_their_seams_only() -> None:
    small = Plan(xways=2, minutes=2, peak_per_minute=4_000, ramp_minutes=1)
    whole = {seconds: list(batches(small, seconds)) for seconds in (1, 10, 30)}
    assert [len(parts) for parts in whole.values()] == [120, 12, 4]
    assert len({_digest(parts) for parts in whole.values()}) == 1


def test_an_expressway_is_the_same_whichever_others_are_made(rows: pa.Table) -> None:
    alone = Plan(
        first_xway=1, minutes=24, seed=7, peak_per_minute=8_000, ramp_minutes=8,
        accident_gap_minutes=2,
    )  # fmt: skip
    second = rows.filter(pc.and_(pc.equal(rows["xway"], 1), pc.equal(rows["type"], 0)))
    made = pa.Table.from_batches(batches(alone))
    assert made.filter(pc.equal(made["type"], 0)).equals(second.combine_chunks())


def test_a_later_start_gives_the_end_of_the_whole(rows: pa.Table) -> None:
    late = Plan(**{**BUSY.__dict__, "from_minute": 21})
    tail = rows.filter(pc.greater_equal(rows["time"], 21 * 60))
    assert _digest(batches(late)) == _digest(tail.to_batches())


def test_three_hours_rise_to_a_hundred_thousand_reports_a_minute() -> None:
    plan = Plan()
    per_minute = [plan.reports(2 * m) + plan.reports(2 * m + 1) for m in range(180)]
    assert per_minute == sorted(per_minute)
    assert 900 <= per_minute[0] <= 1_300
    assert 99_900 <= per_minute[-1] <= 100_000
    assert 12_000_000 <= sum(per_minute) <= 12_500_000
    assert Plan(minutes=200).reports(2 * 190) == 50_000


def test_traffic_at_the_peak_is_slow_in_a_good_share_of_the_segments() -> None:
    road = Expressway(Plan(ramp_minutes=10), 0)
    for _ in range(24):
        made = road.advance()
    segment = made.dir * 100 + made.seg
    cars = np.bincount(segment, minlength=200)
    speed = np.bincount(segment, weights=made.spd, minlength=200) / np.maximum(cars, 1)
    assert len(made.vid) == 50_000
    assert np.mean((cars > 50) & (speed < 40)) > 0.4


def test_a_mean_over_cars_is_another_than_one_over_reports(
    by_car: Columns, follows: npt.NDArray[np.bool_]
) -> None:
    """Cars report once or twice from a segment in a minute, and not at one speed."""
    minute, segment = by_car["time"] // 60, by_car["dir"] * 100 + by_car["seg"]
    again = follows & (np.diff(minute) == 0) & (np.diff(segment) == 0)
    twice = 2 * again.sum() / len(minute)
    assert 0.3 < twice < 0.9
    assert np.mean(np.diff(by_car["spd"])[again] != 0) > 0.8


def _over_reports(conditions: validator.Conditions, segment: validator.Segment) -> int:
    """The mean of all reports of five minutes, which R4 is not."""
    found = [each for m in conditions.before for each in m.cars.get(segment, {}).values()]
    return sum(speeds for speeds, _ in found) // max(1, sum(reports for _, reports in found))


def _exact(conditions: validator.Conditions, segment: validator.Segment) -> int:
    """R4 without any rounding but the last."""
    averages = [
        sum(Fraction(*each) for each in cars.values()) / len(cars)
        for minute in conditions.before
        if (cars := minute.cars.get(segment))
    ]
    return int(sum(averages) / len(averages)) if averages else 0


def test_traffic_tells_the_rule_of_the_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where roads are about 40 mph fast, other averages are other tolls."""
    plan = Plan(minutes=9, peak_per_minute=70_000, ramp_minutes=24, seed=3)
    given = list(batches(plan, 30))
    found = validator.expect(given, []).tolls
    monkeypatch.setattr(validator.Conditions, "_average_speed", _exact)
    assert validator.expect(given, []).tolls == found
    monkeypatch.setattr(validator.Conditions, "_average_speed", _over_reports)
    other = validator.expect(given, []).tolls
    assert [each[:2] for each in other] == [each[:2] for each in found]
    pairs = list(zip(found, other, strict=True))
    assert sum(one[2] != two[2] for one, two in pairs) > 0.5 * len(pairs)
    assert sum(one[3] != two[3] for one, two in pairs) > 0.01 * len(pairs)


def test_past_tolls_are_of_each_vehicle_its_days_and_expressway() -> None:
    small = Plan(xways=2, minutes=3, peak_per_minute=4_000, ramp_minutes=1)
    seen = vehicles(small)
    table = pa.Table.from_batches(daily_tolls(small.seed, seen), DAILY_TOLLS)
    tolls = _columns(table)
    assert np.array_equal(np.unique(tolls["vid"]), seen)
    assert 0.48 < table.num_rows / (69 * len(seen)) < 0.52
    assert (tolls["day"].min(), tolls["day"].max()) == (1, 69)
    assert (tolls["toll"].min(), tolls["toll"].max()) == (0, 99)
    assert np.array_equal(tolls["xway"], tolls["vid"] // 1_000_000)
    pairs = tolls["vid"].astype(np.int64) * 100 + tolls["day"]
    assert len(np.unique(pairs)) == len(pairs)
    asking = asking_vehicles(small)
    assert 0 < len(asking) < len(seen)
    assert np.all(np.isin(asking, seen))
    few = pa.Table.from_batches(daily_tolls(small.seed, asking), DAILY_TOLLS)
    assert few.equals(table.filter(pc.is_in(table["vid"], pa.array(asking))).combine_chunks())


@pytest.mark.parametrize(
    "wrong", [{"xways": 0}, {"minutes": 5, "from_minute": 5}, {"query_share": 1.5}, {"seed": -1}]
)
def test_a_plan_that_cannot_be_made_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(DefinitionError, match="of a Linear Road plan must be"):
        Plan(**wrong)


def test_chunks_must_divide_a_round() -> None:
    with pytest.raises(DefinitionError, match="chunk_seconds must divide 30, not 7"):
        next(batches(Plan(minutes=1), chunk_seconds=7))
