"""The input of Linear Road as record batches in time order, and the tolls of the ten weeks before.

``batches`` advances every expressway of a plan by rounds (``traffic``) and reads the rounds off
second by second: in each second the reports of all expressways, then the queries that follow them.
Only one round of each expressway is held at a time, about 3 MB, whatever the length of the run.

The past's tolls are no matter of chance drawn in order but of a hash of (seed, vehicle, day), so
that they can be made for any vehicles in any order: a vehicle was on the road on every other day,
more or less, on the expressway that it uses today.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.linear_road.fields import (
    DAILY_TOLLS,
    DAYS,
    EXPENDITURE,
    INPUT,
    INPUT_NAMES,
    REPORT,
    REPORT_SECONDS,
    TOLL_MAX,
)
from benchmarks.linear_road.traffic import VIDS_PER_XWAY, Expressway, Ints, Plan, Round
from tidemill.errors import DefinitionError

TOLL_PIECE_VEHICLES = 10_000
_REPORT_COLUMNS = ("vid", "spd", "lane", "dir", "seg", "pos")
_AT = {name: index for index, name in enumerate(INPUT_NAMES)}


def batches(plan: Plan, chunk_seconds: int = 1) -> Iterator[pa.RecordBatch]:
    """The plan's input, ``chunk_seconds`` (a divisor of 30) to a batch."""
    if chunk_seconds < 1 or REPORT_SECONDS % chunk_seconds:
        raise DefinitionError(f"chunk_seconds must divide {REPORT_SECONDS}, not {chunk_seconds}")
    for made in rounds(plan):
        for second in range(0, REPORT_SECONDS, chunk_seconds):
            yield _batch(plan, made, range(second, second + chunk_seconds))


def rounds(plan: Plan) -> Iterator[list[Round]]:
    """The plan's rounds, each with one entry for each expressway."""
    roads = [Expressway(plan, plan.first_xway + index) for index in range(plan.xways)]
    for number in range(plan.rounds.stop):
        made = [road.advance() for road in roads]
        if number >= plan.rounds.start:
            yield made


def vehicles(plan: Plan) -> Ints:
    """Every vehicle that reports in the plan, ascending."""
    return _seen(plan, expenditures_only=False)


def asking_vehicles(plan: Plan) -> Ints:
    """Every vehicle that asks for a day's expenditure in the plan, ascending: the others' rows of
    the past are never looked at."""
    return _seen(plan, expenditures_only=True)


def daily_tolls(seed: int, of_vehicles: Ints) -> Iterator[pa.RecordBatch]:
    """What each vehicle paid on each day of the past on which it was on the road."""
    days = np.arange(1, DAYS + 1, dtype=np.int32)
    for start in range(0, len(of_vehicles), TOLL_PIECE_VEHICLES):
        piece = of_vehicles[start : start + TOLL_PIECE_VEHICLES]
        vid, day = np.repeat(piece, DAYS), np.tile(days, len(piece))
        drawn = _hash(seed, vid, day)
        drove = (drawn & np.uint64(1)).astype(bool)
        toll = ((drawn >> np.uint64(1)) % np.uint64(TOLL_MAX + 1)).astype(np.int32)
        columns = (vid, day, vid // np.int32(VIDS_PER_XWAY), toll)
        yield pa.record_batch([pa.array(column[drove]) for column in columns], schema=DAILY_TOLLS)


def _seen(plan: Plan, *, expenditures_only: bool) -> Ints:
    found = np.empty(0, np.int32)
    for made in rounds(plan):
        for part in made:
            asked = part.queries.vid[part.queries.type == EXPENDITURE]
            found = np.union1d(found, asked if expenditures_only else part.vid)
    return found


def _batch(plan: Plan, made: list[Round], seconds: range) -> pa.RecordBatch:
    ends = (seconds.start, seconds.stop)
    rows = sum(int(np.diff(part.starts[[*ends]])[0]) for part in made)
    rows += sum(int(np.diff(part.queries.starts[[*ends]])[0]) for part in made)
    cells = np.full((len(INPUT_NAMES), rows), -1, np.int32)
    at = 0
    for second in seconds:
        first = at
        for index, part in enumerate(made):
            at = _put_reports(cells, at, part, second, plan.first_xway + index)
        for index, part in enumerate(made):
            at = _put_queries(cells, at, part, second, plan.first_xway + index)
        cells[_AT["time"], first:at] = made[0].number * REPORT_SECONDS + second
    return pa.record_batch([pa.array(column) for column in cells], schema=INPUT)


def _put_reports(cells: npt.NDArray[np.int32], at: int, part: Round, second: int, xway: int) -> int:
    start, stop = part.starts[second], part.starts[second + 1]
    end = at + int(stop - start)
    cells[_AT["type"], at:end] = REPORT
    cells[_AT["xway"], at:end] = xway
    for name in _REPORT_COLUMNS:
        cells[_AT[name], at:end] = getattr(part, name)[start:stop]
    return end


def _put_queries(cells: npt.NDArray[np.int32], at: int, part: Round, second: int, xway: int) -> int:
    asked = part.queries
    start, stop = asked.starts[second], asked.starts[second + 1]
    end = at + int(stop - start)
    for name in ("type", "vid", "qid", "day"):
        cells[_AT[name], at:end] = getattr(asked, name)[start:stop]
    # Only the question for a day names an expressway.
    cells[_AT["xway"], at:end] = np.where(asked.type[start:stop] == EXPENDITURE, xway, -1)
    return end


def _hash(seed: int, vid: Ints, day: Ints) -> npt.NDArray[np.uint64]:
    """Well-mixed bits of each pair: two rounds of multiply and shift."""
    mixed = vid.astype(np.uint64) * np.uint64(DAYS + 1) + day.astype(np.uint64)
    mixed += np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB):
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
