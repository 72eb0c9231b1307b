"""What Linear Road is written in: the input's columns, the answers' tables, the road's sizes.

The generator and the files make rows of ``INPUT``; an application delivers the four answer tables;
the validator makes the same four from the input. A field that does not apply to a row is -1.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

REPORT, BALANCE, EXPENDITURE, TRAVEL_TIME = 0, 2, 3, 4  # the values of ``type``
ENTRY_LANE, EXIT_LANE = 0, 4
SEGMENTS = 100
SEGMENT_FEET = 5_280
ROAD_FEET = SEGMENTS * SEGMENT_FEET
REPORT_SECONDS = 30  # between two reports of a car
FEET_PER_MPH = 44  # what one mile an hour covers between two reports
SPEED_MAX = 100
DAYS = 69  # of the past: 1 is yesterday
TOLL_MAX = 99  # of one past day

INPUT_NAMES = (
    "type",
    "time",
    "vid",
    "spd",
    "xway",
    "lane",
    "dir",
    "seg",
    "pos",
    "qid",
    "sinit",
    "send",
    "dow",
    "tod",
    "day",
)
_ANY = range(2**31)
# What the fields that apply to a type may be.
RANGES = {
    REPORT: {
        "time": _ANY,
        "vid": _ANY,
        "spd": range(SPEED_MAX + 1),
        "xway": range(2**15),
        "lane": range(EXIT_LANE + 1),
        "dir": range(2),
        "seg": range(SEGMENTS),
        "pos": range(ROAD_FEET),
    },
    BALANCE: {"time": _ANY, "vid": _ANY, "qid": _ANY},
    EXPENDITURE: {
        "time": _ANY,
        "vid": _ANY,
        "xway": range(2**15),
        "qid": _ANY,
        "day": range(1, DAYS + 1),
    },
    TRAVEL_TIME: {"time": _ANY},
}
INPUT = pa.schema([(name, pa.int32()) for name in INPUT_NAMES])
DAILY_TOLLS = pa.schema([(name, pa.int32()) for name in ("vid", "day", "xway", "toll")])

TOLLS = pa.schema(
    [
        ("vid", pa.int32()),
        ("time", pa.int32()),
        ("emit", pa.float64()),
        ("lav", pa.int32()),
        ("toll", pa.int32()),
    ]
)
ACCIDENTS = pa.schema(
    [("vid", pa.int32()), ("time", pa.int32()), ("emit", pa.float64()), ("seg", pa.int32())]
)
BALANCES = pa.schema(
    [
        ("qid", pa.int32()),
        ("time", pa.int32()),
        ("emit", pa.float64()),
        ("result_time", pa.int32()),
        ("balance", pa.int64()),
    ]
)
EXPENDITURES = pa.schema(
    [
        ("qid", pa.int32()),
        ("time", pa.int32()),
        ("emit", pa.float64()),
        ("expenditure", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Answers:
    """What an application delivered: one table for each kind of answer, rows in any order.

    ``emit`` is ``time`` plus the seconds from the arrival of the row that called for the answer
    to its delivery, whatever the speed at which the input was played.
    """

    tolls: pa.Table
    accidents: pa.Table
    balances: pa.Table
    expenditures: pa.Table
