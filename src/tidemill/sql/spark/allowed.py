"""The allow-list: every type, cast, operator, function and clause that Spark SQL may be given.

An entry is here because the differential suite (tests/behaviours/test_spark_sql.py) runs it on
both engines over edge values and finds the same answers; an entry that no test reaches fails a
test. To withdraw something, delete its line: queries that use it then take another route.
"""

from __future__ import annotations

from tidemill.sql.spark.kinds import type_names
from tidemill.sql.spark.values import refuse

_COMPARED = "boolean number float text blob uuid date timestamp timestamptz"
_GROUPED = "boolean integer unsigned huge decimal float text blob uuid date timestamp timestamptz"

_CASTS = """
    integer to integer; integer to decimal; integer to text; integer to boolean; integer to float;
    unsigned to integer; unsigned to text; unsigned to float; unsigned to decimal;
    huge to integer; decimal to decimal; decimal to text; decimal to integer; decimal to float;
    float to integer; float to float; boolean to integer; boolean to text; date to text;
    date to timestamp; date to timestamptz; timestamp to text; timestamp to date;
    timestamp to timestamptz; timestamptz to timestamp; uuid to text
"""
_OPERATORS = """
    + integer; + decimal; + float; + interval; + days; - integer; - decimal; - float; - interval;
    - days; - dates; * integer; * decimal; * float; /; //; %; negative; and; or; not; is null;
    is true; distinct from; between; in list; like; row =; case; coalesce; nullif;
    greatest; least; ||
"""
_FUNCTIONS = """
    abs; sign; ceil; floor; round; sqrt; isnan; lower; upper; length; trim; substring;
    left; right; replace; starts_with; ends_with; contains; instr; split_part; concat; md5; sha256;
    date_trunc; year; month; day; hour; minute; second; quarter; week; dow; isodow; doy; epoch;
    epoch_us; date_diff; time_bucket; extract
"""
_AGGREGATES = """
    count star; count; count distinct; sum number; sum boolean; sum float; sum distinct; avg; min;
    max; bool_and; bool_or; count_if; stddev; stddev_pop; variance; var_pop; filter
"""
_WINDOWS = """
    row_number; rank; dense_rank; percent_rank; cume_dist; ntile; lag; lead; first_value;
    last_value; nth_value; aggregate; rows; range; range interval; named
"""
_CLAUSES = """
    where; group by; group by all; group by position; having; qualify;
    distinct; order by; order by position; order by all; limit; offset; with; derived table; values;
    star; exclude; replace; alias in select; alias in where; alias in group by; alias in having
"""
_JOINS = "inner; left; right; full; cross; semi; anti; using"
_SETS = "union; union all; intersect; intersect all; except; except all"
_SUBQUERIES = "scalar; correlated scalar; exists; correlated exists; in; correlated in; not in; any"


def _listed(prefix: str, text: str) -> list[str]:
    return [f"{prefix} {' '.join(item.split())}" for item in text.split(";") if item.strip()]


ALLOWED: frozenset[str] = frozenset(
    [
        *(f"type {name}" for name in type_names()),
        *(f"compare {family}" for family in _COMPARED.split()),
        *(f"group {family}" for family in _GROUPED.split()),
        *(f"sort {family}" for family in _GROUPED.split()),
        *_listed("cast", _CASTS),
        *_listed("operator", _OPERATORS),
        *_listed("function", _FUNCTIONS),
        *_listed("aggregate", _AGGREGATES),
        *_listed("window", _WINDOWS),
        *_listed("clause", _CLAUSES),
        *_listed("join", _JOINS),
        *_listed("set", _SETS),
        *_listed("subquery", _SUBQUERIES),
    ]
)


class Ledger:
    """The entries that one query uses."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def use(self, entry: str) -> None:
        if entry not in ALLOWED:
            refuse(f"{entry} is not verified for Spark SQL")
        self.used.add(entry)
