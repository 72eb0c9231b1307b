"""The six AIM queries of document 004, Table 4.3, and their right answers.

The parameters are those of its evaluation: α = 2, β = 2, γ = 4, δ = 25, t = 2, cat = 1, v = 2. What
it writes as ``week = current_week()`` is ``{week}`` here, for every system in its own words. The
right answers are DuckDB's over all calls at once, of which the week is known from the calls alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.aim_data import Calls
from benchmarks.systems.base import Row, plain_rows

WEEK = "date_trunc('week', ts) = date_trunc('week', now())"
QUESTIONS = {
    "q1": (
        "SELECT avg(t_duration) AS avg_duration FROM (SELECT sum(duration) AS t_duration "
        "FROM events WHERE {week} GROUP BY entity_id HAVING count(local_calls) > 2) AS e"
    ),
    "q2": (
        "SELECT max(max_cost) AS max_cost FROM (SELECT max(cost) AS max_cost "
        "FROM events WHERE {week} GROUP BY entity_id HAVING count(*) > 2) AS e"
    ),
    "q3": (
        "SELECT sum(t_cost) / sum(t_duration) AS cost_ratio FROM (SELECT sum(cost) AS t_cost, "
        "sum(duration) AS t_duration, count(*) AS num_calls FROM events WHERE {week} "
        "GROUP BY entity_id) AS e GROUP BY num_calls LIMIT 100"
    ),
    "q4": (
        "SELECT city_zip, avg(num_calls) AS avg_calls, sum(duration_calls) AS sum_duration "
        "FROM (SELECT entity_id, count(*) AS num_calls, sum(duration) AS duration_calls "
        "FROM events WHERE NOT long_distance AND {week} GROUP BY entity_id "
        "HAVING count(*) > 4 AND sum(duration) > 25) AS e, customers AS c "
        "WHERE e.entity_id = c.id GROUP BY city_zip"
    ),
    "q5": (
        "SELECT c.region_id, sum(e.long_distance_cost) AS cost_long, "
        "sum(e.local_cost) AS cost_local FROM events AS e, customers AS c "
        "WHERE e.entity_id = c.id AND {week} AND c.type = 2 AND c.category = 1 "
        "GROUP BY c.region_id"
    ),
    "q7": (
        "SELECT sum(e.cost) / sum(e.duration) AS cost_ratio FROM events AS e, customers AS c "
        "WHERE e.entity_id = c.id AND {week} AND c.value_type = 2"
    ),
}

Answers = dict[str, list[Row]]


class Judge:
    """Knows what every question's answer is after so many calls."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._connection = duckdb.connect(":memory:")
        self._connection.register("customers", calls.customer_table())
        self._known: dict[int, Answers] = {}

    def answers(self, count: int) -> Answers:
        """The right answers after ``past`` and the first ``count`` calls."""
        if count not in self._known:
            calls = pa.concat_tables([self._calls.past(), self._calls.table(count)])
            self._connection.register("events", calls)
            week = f"date_trunc('week', ts) = TIMESTAMP '{self._calls.week}'"
            self._known[count] = {
                name: ordered(self._connection.execute(text.format(week=week)).fetchall())
                for name, text in QUESTIONS.items()
            }
            self._connection.unregister("events")
        return self._known[count]

    def close(self) -> None:
        self._connection.close()


def ordered(answer: Any) -> list[Row]:
    """An answer as plain rows in an order that every system's rows can be brought into."""
    rows = plain_rows(answer)
    return sorted(rows, key=lambda row: tuple((value is None, value or 0) for value in row))


def differences(given: Mapping[str, list[Row]], right: Answers) -> str:
    """What is wrong with the answers, or nothing."""
    wrong = []
    for name, rows in right.items():
        if not _same_rows(given.get(name, []), rows):
            wrong.append(f"{name}: {given.get(name, [])[:2]} is not {rows[:2]}")
    return "; ".join(wrong)[:400]


def _same_rows(rows: Sequence[Row], others: Sequence[Row]) -> bool:
    return len(rows) == len(others) and all(
        len(row) == len(other) and all(_same(a, b) for a, b in zip(row, other, strict=True))
        for row, other in zip(rows, others, strict=True)
    )


def _same(value: Any, other: Any) -> bool:
    if value is None or other is None:
        return value is other
    return math.isclose(value, other, rel_tol=1e-9)
