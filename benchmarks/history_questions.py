"""The questions of the history benchmark: ten aggregates, and one key in an hour.

Every system gets the same text. Times are written ``TIMESTAMP '…'`` and spelled anew for systems
that want them otherwise; ``own`` is the text for a system that says something differently. Answers
are compared as sets of rows; ``tolerance`` is relative, ``absolute`` absolute; both are for
numbers with a fraction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from benchmarks.systems.base import to_time
from benchmarks.traffic import CARS, SEED, span_us

HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class HistoryQuestion:
    name: str
    sql: str
    own: Mapping[str, str] = field(default_factory=dict)
    tolerance: float = 1e-9
    absolute: float = 0.0


_MINUTES = (
    "SELECT date_trunc('minute', ts) AS minute, count(*) AS n, avg(spd) AS speed "
    "FROM reports GROUP BY date_trunc('minute', ts)"
)
_CHDB_MINUTE = "toDateTime64(date_trunc('minute', ts), 6)"  # else it answers a bare number

QUESTIONS = (
    HistoryQuestion(
        "no groups: count, average, extremes where spd > 50",
        "SELECT count(*), avg(spd), min(pos), max(pos), sum(seg) FROM reports WHERE spd > 50",
    ),
    HistoryQuestion(
        "2,000 groups: xway, dir, seg",
        "SELECT xway, dir, seg, count(*) AS n, avg(spd) AS speed, max(spd) AS top "
        "FROM reports GROUP BY xway, dir, seg",
    ),
    HistoryQuestion(
        "10,000 groups: top ten cars by distance",
        "SELECT vid, sum(spd) AS distance, count(*) AS n FROM reports GROUP BY vid "
        "ORDER BY distance DESC, vid LIMIT 10",
    ),
    HistoryQuestion(
        "count distinct cars per expressway and lane",
        "SELECT xway, lane, count(DISTINCT vid) AS cars FROM reports "
        "WHERE spd >= 60 GROUP BY xway, lane",
    ),
    HistoryQuestion(
        "time buckets: speed by minute",
        _MINUTES,
        own={"chdb": _MINUTES.replace("date_trunc('minute', ts) AS", _CHDB_MINUTE + " AS")},
    ),
    HistoryQuestion(
        "spread: standard deviation by segment, HAVING",
        "SELECT seg, count(*) AS n, stddev_samp(spd) AS spread FROM reports "
        "WHERE dir = 0 GROUP BY seg HAVING count(*) > 10",
        tolerance=1e-7,
    ),
    HistoryQuestion(
        "join with the table of cars",
        "SELECT c.kind, r.xway, count(*) AS n, avg(r.spd) AS speed FROM reports r "
        "JOIN cars c ON r.vid = c.vid GROUP BY c.kind, r.xway",
    ),
    HistoryQuestion(
        "TPC-H Q1",
        "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, "
        "sum(l_extendedprice) AS sum_base_price, "
        "sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price, "
        "sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, "
        "avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, "
        "avg(l_discount) AS avg_disc, count(*) AS count_order FROM lineitem "
        "WHERE l_shipdate <= TIMESTAMP '1998-09-02 00:00:00' "
        "GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus",
        absolute=1e-6,  # Spark's average of a DECIMAL(15, 2) has six digits after the point
    ),
    HistoryQuestion(
        "TPC-H Q6",
        "SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem "
        "WHERE l_shipdate >= TIMESTAMP '1994-01-01 00:00:00' "
        "AND l_shipdate < TIMESTAMP '1995-01-01 00:00:00' "
        "AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    ),
    HistoryQuestion(
        "suppliers of a quarter by revenue (after TPC-H Q15)",
        "SELECT l_suppkey, sum(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitem "
        "WHERE l_shipdate >= TIMESTAMP '1996-01-01 00:00:00' "
        "AND l_shipdate < TIMESTAMP '1996-04-01 00:00:00' "
        "GROUP BY l_suppkey ORDER BY revenue DESC, l_suppkey LIMIT 20",
    ),
)

KEY_COLUMNS = "ts, vid, spd, xway, lane, dir, seg, pos"
KEY = HistoryQuestion(
    "one key in one hour",
    f"SELECT {KEY_COLUMNS} FROM keyed "
    "WHERE vid = {vid} AND ts >= TIMESTAMP '{low}' AND ts < TIMESTAMP '{high}'",
)


def key_texts(rows: int, turn: int, count: int) -> list[str]:
    """Lookups of different cars in different hours, each text new."""
    first_us, last_us = span_us(rows)
    rng = np.random.default_rng([SEED, 11, turn])
    texts = []
    for _ in range(count):
        low = int(rng.integers(first_us, max(first_us + 1, last_us - HOUR_US)))
        low_text, high_text = (f"{to_time(us):%Y-%m-%d %H:%M:%S.%f}" for us in (low, low + HOUR_US))
        texts.append(KEY.sql.format(vid=int(rng.integers(CARS)), low=low_text, high=high_text))
    return texts
