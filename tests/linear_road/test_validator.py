"""Each rule of docs/linear-road.md on cases worked by hand, and the verdict on the delivered."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from benchmarks.linear_road.comparison import Verdict, compare
from benchmarks.linear_road.fields import (
    ACCIDENTS,
    BALANCES,
    DAILY_TOLLS,
    EXPENDITURES,
    INPUT,
    INPUT_NAMES,
    TOLLS,
    Answers,
)
from benchmarks.linear_road.generator import asking_vehicles, batches, daily_tolls
from benchmarks.linear_road.traffic import Plan
from benchmarks.linear_road.validator import Expected, expect
from tidemill.errors import DefinitionError, RowsRejectedError

Row = dict[str, int]
MILE = 5280


def report(time: int, vid: int, seg: int, **others: int) -> Row:
    """A report from the middle of a segment of expressway 0, eastbound, lane 1, at 30 mph."""
    row = {"type": 0, "time": time, "vid": vid, "seg": seg, "pos": seg * MILE + 2000}
    return row | {"spd": 30, "xway": 0, "lane": 1, "dir": 0} | others


def crowd(minute: int, seg: int, cars: int, spd: int, first_vid: int = 1000) -> list[Row]:
    """So many cars in a segment in the first second of a minute, by 10 to a second."""
    time = minute * 60
    return [report(time + n // 10, first_vid + n, seg, spd=spd, pos=seg * MILE + n)
            for n in range(cars)]  # fmt: skip


def expected(rows: Sequence[Row], tolls: Sequence[tuple[int, int, int, int]] = ()) -> Expected:
    ordered = sorted(rows, key=lambda row: row["time"])
    cells = {name: [row.get(name, -1) for row in ordered] for name in INPUT_NAMES}
    past = {name: [toll[n] for toll in tolls] for n, name in enumerate(DAILY_TOLLS.names)}
    return expect(
        [pa.RecordBatch.from_pydict(cells, INPUT)],
        [pa.RecordBatch.from_pydict(past, DAILY_TOLLS)],
    )


def of(found: Expected, vid: int) -> list[tuple[int, int, int]]:
    """A vehicle's toll notifications: time, average speed, toll."""
    return [toll[1:] for toll in found.tolls if toll[0] == vid]


def wreck(start: int, seg: int, reports: int, **others: int) -> list[Row]:
    """Cars 1 and 2, 5 seconds apart, stopped at one spot for so many reports each."""
    spots = [(start + 30 * n, 1) for n in range(reports)]
    spots += [(start + 5 + 30 * n, 2) for n in range(reports)]
    return [report(time, vid, seg, **({"spd": 0} | others)) for time, vid in spots]


# R2: who is notified, and when.


def test_a_car_is_notified_when_it_enters_a_segment_and_not_again_in_it() -> None:
    rows = [report(0, 1, 10, lane=0), report(30, 1, 10), report(60, 1, 11), report(90, 1, 11)]
    assert [time for time, _, _ in of(expected(rows), 1)] == [0, 60]


def test_a_car_in_the_exit_lane_is_not_notified() -> None:
    rows = [report(0, 1, 10), report(30, 1, 11, lane=4)]
    assert [time for time, _, _ in of(expected(rows), 1)] == [0]


def test_a_car_that_comes_again_is_notified_even_in_the_same_segment() -> None:
    rows = [report(0, 1, 10), report(60, 1, 10), report(121, 1, 10), report(151, 1, 10, xway=1)]
    assert [time for time, _, _ in of(expected(rows), 1)] == [0, 121, 151]


def test_a_car_that_turns_round_is_on_another_trip() -> None:
    rows = [report(0, 1, 10), report(30, 1, 10, dir=1)]
    assert [time for time, _, _ in of(expected(rows), 1)] == [0, 30]


# R3, R4, R5: statistics and the toll.


def test_the_toll_is_twice_the_square_of_the_cars_above_fifty() -> None:
    rows = [*crowd(0, 10, 53, 39), report(60, 1, 10)]
    assert of(expected(rows), 1) == [(60, 39, 2 * 3**2)]


def test_fifty_cars_pay_nothing() -> None:
    rows = [*crowd(0, 10, 50, 20), report(60, 1, 10)]
    assert of(expected(rows), 1) == [(60, 20, 0)]


def test_forty_miles_an_hour_pay_nothing() -> None:
    rows = [*crowd(0, 10, 60, 40), report(60, 1, 10)]
    assert of(expected(rows), 1) == [(60, 40, 0)]


def test_the_average_is_rounded_down_so_just_under_forty_pays() -> None:
    rows = [*crowd(0, 10, 59, 40), report(0, 1, 10, spd=39), report(60, 2, 10)]
    assert of(expected(rows), 2) == [(60, 39, 2 * 10**2)]


def test_cars_are_counted_once_and_in_the_minute_before_only() -> None:
    twice = [
        *crowd(0, 10, 26, 20),
        *(row | {"time": row["time"] + 30} for row in crowd(0, 10, 26, 20)),
    ]
    assert of(expected([*twice, report(60, 1, 10)]), 1) == [(60, 20, 0)]
    early = [*crowd(0, 10, 60, 20), report(119, 1, 10), report(120, 2, 10)]
    found = expected(early)
    assert of(found, 1) == [(119, 20, 200)]
    assert of(found, 2) == [(120, (20 + 30) // 2, 0)]


def test_the_exit_lane_counts_in_the_statistics() -> None:
    rows = [*(row | {"lane": 4} for row in crowd(0, 10, 51, 20)), report(60, 1, 10)]
    assert of(expected(rows), 1) == [(60, 20, 2)]


def test_the_average_is_the_mean_of_the_averages_of_five_minutes() -> None:
    rows = [report(0, 1, 10, spd=10), report(61, 2, 10, spd=40), report(62, 3, 10, spd=51)]
    rows += [report(299, 4, 10, spd=90), report(300, 5, 10), report(359, 6, 10)]
    found = expected(rows)
    assert of(found, 1) == [(0, 0, 0)]
    assert of(found, 2) == [(61, 10, 0)]
    assert of(found, 4) == [(299, int((10 + 45.5) / 2), 0)]
    assert of(found, 5) == [(300, int((10 + 45.5 + 90) / 3), 0)]
    assert of(expected([*rows, report(360, 7, 10)]), 7) == [(360, int((45.5 + 90 + 30) / 3), 0)]
    assert of(expected([*rows, report(660, 7, 10)]), 7) == [(660, 0, 0)]


def test_a_car_counts_once_in_a_minute_however_often_it_reports() -> None:
    rows = [report(0, 1, 10, spd=20), report(20, 1, 10, spd=30), report(40, 1, 10, spd=31)]
    rows += [report(10, 2, 10, spd=60), report(60, 3, 10)]
    assert of(expected(rows), 3) == [(60, int((27 + 60) / 2), 0)]  # of reports: 35


@pytest.mark.parametrize("cars", range(1, 8))
def test_a_mean_that_is_a_whole_number_is_not_rounded_down(cars: int) -> None:
    """Thirds and sevenths have no end, but their sum has."""
    rows = []
    for minute in range(3):
        for car in range(3 * cars):
            speeds = (20, 20, 21) if (minute + car) % 3 else (20, 20, 18)  # 61/3, 61/3, 58/3: 20
            for at, spd in enumerate(speeds):
                rows.append(
                    report(60 * minute + 20 * at + car % 20, 100 * minute + car, 10, spd=spd)
                )
    assert of(expected([*rows, report(180, 9999, 10)]), 9999) == [(180, 20, 0)]


def test_segments_directions_and_expressways_do_not_mix() -> None:
    rows = [*crowd(0, 10, 60, 20)]
    rows += [report(60, 1, 11), report(60, 2, 10, dir=1), report(60, 3, 10, xway=1)]
    found = expected(rows)
    for vid in (1, 2, 3):
        assert of(found, vid) == [(60, 0, 0)]


# R6: what an accident is and how long it stands.


def test_four_reports_of_two_cars_make_an_accident_from_the_next_minute_on() -> None:
    rows = wreck(0, 20, 5)  # the fourth of car 2 is at 95, the fifth at 125
    rows += [report(119, 3, 20), report(120, 4, 20)]
    assert expected(rows).accidents == [(4, 120, 20)]


def test_three_reports_are_not_enough() -> None:
    rows = [*wreck(0, 20, 3), report(60, 3, 20), report(120, 4, 20)]
    assert expected(rows).accidents == []


def test_one_stopped_car_is_no_accident() -> None:
    rows = [row for row in wreck(0, 20, 6) if row["vid"] == 1]
    assert expected([*rows, report(120, 3, 20), report(180, 4, 20)]).accidents == []


def test_a_change_of_lanes_breaks_the_four_reports() -> None:
    rows = [row | {"lane": 2 if row["time"] < 60 else 1} for row in wreck(0, 20, 5)]
    assert expected([*rows, report(120, 3, 20)]).accidents == []


@pytest.mark.parametrize("other", [{"lane": 2}, {"pos": 20 * MILE}, {"dir": 1}, {"xway": 1}])
def test_cars_at_different_places_are_no_accident(other: Row) -> None:
    rows = [row | (other if row["vid"] == 2 else {}) for row in wreck(0, 20, 6)]
    assert expected([*rows, report(120, 3, 20), report(180, 4, 20)]).accidents == []


def test_the_speed_of_a_report_does_not_matter_only_its_place() -> None:
    rows = [row | {"spd": 1} for row in wreck(0, 20, 5)]
    assert expected([*rows, report(120, 4, 20)]).accidents == [(4, 120, 20)]


def test_an_accident_stands_until_the_end_of_the_minute_in_which_a_car_moves() -> None:
    rows = wreck(0, 20, 7)  # the last stopped reports are at 180 and 185
    rows += [report(210, 1, 20, pos=20 * MILE + 2500), report(215, 2, 20, spd=0)]
    rows += [report(209, 3, 20), report(239, 4, 20), report(240, 5, 20)]
    assert [vid for vid, _, _ in expected(rows).accidents] == [3, 4]


def test_an_accident_that_clears_in_its_own_minute_is_never_told() -> None:
    rows = wreck(0, 20, 4)  # detected at 95
    rows += [report(119, 1, 20, pos=20 * MILE + 2500), report(120, 3, 20)]
    assert expected(rows).accidents == []


def test_cars_that_fall_silent_are_no_accident_any_more() -> None:
    rows = [*wreck(0, 20, 4), report(120, 3, 20), report(180, 4, 20)]
    assert [vid for vid, _, _ in expected(rows).accidents] == [3]


def test_a_silence_breaks_the_four_reports() -> None:
    rows = wreck(0, 20, 3) + wreck(151, 20, 1)
    assert expected([*rows, report(180, 3, 20)]).accidents == []


# R7: who is told of an accident, and where it is.


def test_the_zone_is_the_segment_of_the_accident_and_the_four_before_it() -> None:
    rows = wreck(0, 20, 6)
    rows += [report(130, 100 + seg, seg) for seg in range(14, 23)]
    assert expected(rows).accidents == [(100 + seg, 130, 20) for seg in range(16, 21)]


def test_the_zone_of_the_other_direction_lies_on_the_other_side() -> None:
    rows = wreck(0, 20, 6, dir=1)
    rows += [report(130, 100 + seg, seg, dir=1) for seg in range(18, 27)]
    rows += [report(131, 300, 20)]
    assert expected(rows).accidents == [(100 + seg, 130, 20) for seg in range(20, 25)]


def test_of_two_accidents_the_nearer_is_told() -> None:
    more = [row | {"vid": row["vid"] + 10} for row in wreck(0, 22, 6)]
    rows = [*wreck(0, 20, 6), *more, report(130, 3, 19), report(131, 4, 21)]
    assert expected(rows).accidents == [(3, 130, 20), (4, 131, 22)]


def test_nobody_is_told_in_the_exit_lane_or_without_entering() -> None:
    rows = wreck(0, 20, 6)
    rows += [report(130, 3, 19, lane=4), report(95, 4, 19), report(125, 4, 19)]
    assert expected(rows).accidents == []


def test_an_accident_ahead_makes_the_toll_nothing_and_leaves_the_average() -> None:
    rows = [*wreck(0, 20, 6), *crowd(1, 16, 60, 20), *crowd(1, 15, 60, 20, first_vid=2000)]
    rows += [report(130, 3, 16), report(130, 4, 15)]
    found = expected(rows)
    assert of(found, 3) == [(130, 20, 0)]
    assert of(found, 4) == [(130, 20, 200)]


# R8: charges and balances.

TOLLED = [*crowd(0, 10, 53, 20), *crowd(0, 11, 55, 20, first_vid=2000)]  # 18 and 50


def test_the_toll_is_charged_when_the_car_leaves_for_the_next_segment() -> None:
    rows = [*TOLLED, report(60, 1, 10), report(90, 1, 10), report(110, 1, 11)]
    assert expected(rows).charges == {1: [(110, 18)]}


def test_a_car_that_crosses_into_the_exit_lane_pays_for_what_it_left_and_no_more() -> None:
    rows = [*TOLLED, report(60, 1, 10), report(90, 1, 11, lane=4)]
    assert expected(rows).charges == {1: [(90, 18)]}


def test_a_segment_that_was_entered_in_the_exit_lane_costs_nothing() -> None:
    rows = [*TOLLED, report(60, 1, 10), report(90, 1, 11, lane=4), report(119, 1, 12)]
    assert expected(rows).charges == {1: [(90, 18)]}


def test_a_car_that_leaves_from_within_a_segment_does_not_pay_for_it() -> None:
    rows = [*TOLLED, report(60, 1, 10), report(90, 1, 10, lane=4), report(300, 1, 12, lane=0)]
    assert expected(rows).charges == {}


def test_a_balance_is_the_sum_of_the_charges_up_to_its_second() -> None:
    rows = [*TOLLED, report(60, 1, 10), report(90, 1, 11), report(119, 1, 12)]
    rows += [
        {"type": 2, "time": 119, "vid": 1, "qid": 7},
        {"type": 2, "time": 0, "vid": 9, "qid": 8},
    ]
    found = expected(rows)
    assert found.balances == {7: (119, 1), 8: (0, 9)}
    assert [found.balance(1, at) for at in (89, 90, 118, 119)] == [0, 18, 18, 68]
    assert found.balance(9, 0) == 0


# R9: daily expenditures.


def test_an_expenditure_is_the_sum_of_a_day_and_expressway() -> None:
    tolls = [(1, 5, 0, 30), (1, 5, 0, 4), (1, 5, 1, 50), (1, 6, 0, 60), (2, 5, 0, 70)]
    asked = [(1, 5, 0), (1, 5, 1), (2, 5, 0), (1, 7, 0)]
    rows = [
        {"type": 3, "time": n, "vid": vid, "qid": n, "day": day, "xway": xway}
        for n, (vid, day, xway) in enumerate(asked)
    ]
    assert expected(rows, tolls).expenditures == {0: (0, 34), 1: (1, 50), 2: (2, 70), 3: (3, 0)}


# An input that is none.


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([report(0, 1, 10), report(0, 1, 10)], "vehicle 1 reports at second 0 after"),
        ([{"type": 2, "time": 0, "vid": 1, "qid": 3}] * 2, "query 3 is asked twice"),
        ([report(0, 1, 10) | {"type": 7}], "is of type 7"),
    ],
)
def test_an_input_that_breaks_its_own_rules_is_refused(rows: list[Row], message: str) -> None:
    with pytest.raises(RowsRejectedError, match=message):
        expected(rows)


def test_travel_times_are_passed_over() -> None:
    assert expected([{"type": 4, "time": 0, "vid": 1, "qid": 1}]).tolls == []


# The verdict.


def table(schema: pa.Schema, rows: Sequence[tuple[float, ...]]) -> pa.Table:
    columns = {name: [row[n] for row in rows] for n, name in enumerate(schema.names)}
    return pa.Table.from_pydict(columns, schema)


def answers(found: Expected, seconds: float = 1.0) -> dict[str, list[tuple[float, ...]]]:
    """Everything right, each ``seconds`` after what called for it."""
    return {
        "tolls": [(v, t, t + seconds, lav, toll) for v, t, lav, toll in found.tolls],
        "accidents": [(v, t, t + seconds, seg) for v, t, seg in found.accidents],
        "balances": [
            (q, t, t + seconds, t, found.balance(v, t)) for q, (t, v) in found.balances.items()
        ],
        "expenditures": [(q, t, t + seconds, x) for q, (t, x) in found.expenditures.items()],
    }


def verdict(found: Expected, given: dict[str, list[tuple[float, ...]]]) -> Verdict:
    schemas = {"tolls": TOLLS, "accidents": ACCIDENTS, "balances": BALANCES}
    schemas["expenditures"] = EXPENDITURES
    return compare(found, Answers(**{n: table(s, given[n]) for n, s in schemas.items()}))


@pytest.fixture
def found() -> Expected:
    rows = [*wreck(0, 40, 6), report(130, 3, 39), *TOLLED]
    rows += [report(60, 4, 10), report(90, 4, 11), report(119, 4, 12)]
    rows += [{"type": 2, "time": 119, "vid": 4, "qid": 7}]
    rows += [{"type": 3, "time": 119, "vid": 4, "qid": 8, "day": 2, "xway": 0}]
    return expected(rows, [(4, 2, 0, 33)])


def test_right_answers_in_time_are_ok_in_any_order(found: Expected) -> None:
    given = answers(found, 5.0)
    given["tolls"].reverse()
    judged = verdict(found, given)
    assert judged.ok, str(judged)
    assert [kind.expected for kind in judged.kinds] == [len(found.tolls), 1, 1, 1]
    assert judged.kinds[0].max_seconds == 5.0


@pytest.mark.parametrize("kind", ["tolls", "accidents", "balances", "expenditures"])
def test_each_fault_is_counted_and_shown(found: Expected, kind: str) -> None:
    number = ["tolls", "accidents", "balances", "expenditures"].index(kind)
    first = answers(found)[kind][0]
    rest = answers(found)[kind][1:]
    faults: dict[str, list[tuple[float, ...]]] = {
        "missing": rest,
        "extra": [first, first, *rest],
        "wrong": [(*first[:-1], first[-1] + 1), *rest],
        "late": [(*first[:2], first[1] + 5.5, *first[3:]), *rest],
    }
    for fault, rows in faults.items():
        judged = verdict(found, answers(found) | {kind: rows})
        assert not judged.ok
        counts = {name: getattr(judged.kinds[number], name) for name in faults}
        assert counts == {name: int(name == fault) for name in faults}
        assert fault in str(judged.kinds[number].examples[0])
        assert all(other.ok for other in judged.kinds if other is not judged.kinds[number])


def test_an_answer_to_nothing_is_extra(found: Expected) -> None:
    given = answers(found)
    given["accidents"].append((77, 3, 4.0, 9))
    judged = verdict(found, given)
    assert (judged.kinds[1].extra, judged.kinds[1].missing) == (1, 0)
    assert "vid 77" in judged.kinds[1].examples[0]


def test_answers_to_an_input_that_calls_for_none_are_extra() -> None:
    nothing = expected([])
    judged = verdict(nothing, answers(nothing) | {"balances": [(1, 2, 3.0, 2, 0)]})
    assert judged.kinds[2].extra == 1
    assert not judged.ok


def test_an_answer_before_its_trigger_is_wrong(found: Expected) -> None:
    assert verdict(found, answers(found, -0.5)).kinds[0].wrong == len(found.tolls)


@pytest.mark.parametrize(
    ("result_time", "balance", "right"),
    [(119, 68, 1), (118, 18, 1), (90, 18, 1), (89, 0, 1), (59, 0, 1), (58, 0, 0), (120, 68, 0),
     (119, 18, 0), (89, 18, 0)],
)  # fmt: skip
def test_a_balance_may_be_a_minute_old_and_is_then_that_of_its_second(
    found: Expected, result_time: int, balance: int, right: int
) -> None:
    given = answers(found) | {"balances": [(7, 119, 120.0, result_time, balance)]}
    kind = verdict(found, given).kinds[2]
    assert (kind.right, kind.wrong) == (right, 1 - right)


def test_a_table_without_its_columns_is_refused(found: Expected) -> None:
    whole = {n: table(s, []) for n, s in (("accidents", ACCIDENTS), ("balances", BALANCES))}
    short = table(TOLLS, []).drop_columns(["lav"])
    with pytest.raises(DefinitionError, match="the table of toll notifications lacks lav"):
        compare(found, Answers(short, **whole, expenditures=table(EXPENDITURES, [])))


def test_generated_traffic_calls_for_every_kind_of_answer() -> None:
    plan = Plan(minutes=8, peak_per_minute=12_000, ramp_minutes=2, accident_gap_minutes=0.5)
    found = expect(batches(plan, 30), daily_tolls(plan.seed, asking_vehicles(plan)))
    assert sum(toll > 0 for *_, toll in found.tolls) > 1_000
    assert len(found.accidents) > 200
    assert len(found.charges) > 500
    assert any(found.balance(vid, time) for time, vid in found.balances.values())
    assert any(spent for _, spent in found.expenditures.values())
    assert any(not spent for _, spent in found.expenditures.values())
    assert verdict(found, answers(found)).ok
