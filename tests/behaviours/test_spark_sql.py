"""The third route agrees with DuckDB: every entry of the allow-list, and random queries.

Both engines read the same rows: half of each table from Parquet files, half from Arrow data in
memory, as the route will have them. CASES reach every entry of the list over edge values; the
random queries mix what is on it.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from random_queries import COLUMNS, Queries, random_rows

from tidemill.pipeline.spark import SparkRuntime
from tidemill.sql.spark import (
    ALLOWED,
    SPARK_SETTINGS,
    NotOnTheList,
    SparkQuery,
    given_expression,
    result_sql,
    spark_type,
    to_spark,
)
from tidemill.types import SqlType

INF, NAN = float("inf"), float("nan")
RANDOM_QUERIES = 135
ACCEPTED_MIN = 100
# Sums of doubles depend on their order, in each engine by itself too.
ROUNDED = frozenset(
    f"aggregate {name}"
    for name in ("sum float", "avg", "stddev", "stddev_pop", "variance", "var_pop")
)
TOLERANCE = 1e-12
SPARK_ERRORS = (PySparkException, Py4JError)

EDGES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "b": ("BOOLEAN", (True, False, None)),
    "i8": ("TINYINT", (0, 1, -1, 7, -128, 127, None)),
    "i16": ("SMALLINT", (0, 3, -5, -(2**15), 2**15 - 1, None)),
    "i32": ("INTEGER", (0, 1, -1, 2, 40, -(2**31), 2**31 - 1, None)),
    "i64": ("BIGINT", (0, 1, -1, 2**53 + 1, -(2**63), 2**63 - 1, None)),
    "u8": ("UTINYINT", (0, 1, 255, None)),
    "u16": ("USMALLINT", (0, 1, 2**16 - 1, None)),
    "u32": ("UINTEGER", (0, 1, 2**32 - 1, None)),
    "u64": ("UBIGINT", (0, 1, 2**53 + 1, 2**63, 2**64 - 1, None)),
    "hg": ("HUGEINT", (0, 1, -1, 10**30, -(10**30), 2**64, None)),
    "f": ("FLOAT", (0.0, -0.0, 0.5, -1.25, 0.1, 3.0, 1e30, NAN, INF, -INF, None)),
    "v": ("DOUBLE", (0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 0.1, 1e300, 5e-324, NAN, INF, -INF, None)),
    "d": ("DECIMAL(9,2)", ("0.00", "1.50", "-0.01", "2.50", "-2.50", "9999999.99", None)),
    "w": ("DECIMAL(30,6)", ("0.000001", "-1.500000", "123456789012345678901234.567891", None)),
    "t": (
        "VARCHAR",
        (
            "",
            "a",
            "A",
            "ab",
            " a ",
            "%",
            "_",
            "a\\b",
            "${x}",
            "it's",
            "ä",
            "日本",
            "\U0001f600z",
            None,
        ),
    ),
    "bl": ("BLOB", (b"", b"\x00", b"a", b"\xff\x00", None)),
    "u": ("UUID", (*(str(uuid.UUID(int=n)) for n in (0, 1, 2**127, 2**128 - 1)), None)),
    "day": (
        "DATE",
        (
            *(dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(1969, 12, 31), dt.date(1970, 1, 1)),
            *(dt.date(2024, 2, 29), dt.date(2023, 1, 1), dt.date(9999, 12, 31), None),
        ),
    ),
    "ts": (
        "TIMESTAMP",
        (
            *(dt.datetime(1, 1, 1), dt.datetime(1582, 10, 10, 23, 59, 59, 999999)),
            *(dt.datetime(1969, 12, 31, 23, 59, 59, 500000), dt.datetime(1970, 1, 1)),
            *(dt.datetime(2024, 2, 29, 12, 34, 56, 789000), dt.datetime(2024, 12, 30, 0, 0, 1)),
            *(dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None),
        ),
    ),
    "tz": (
        "TIMESTAMP WITH TIME ZONE",
        (
            *(dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
            *(dt.datetime(2024, 3, 31, 2, 30), dt.datetime(2021, 1, 3, 23, 0), None),
        ),
    ),
}
EDGE_COLUMNS = {"id": "INTEGER", **{name: kind for name, (kind, _) in EDGES.items()}}
EDGE_ROWS = 130
# Numbers small enough for arithmetic that does not overflow, and values that meet often.
SMALL_COLUMNS = {
    "id": "INTEGER",
    "g": "INTEGER",
    "x": "INTEGER",
    "y": "TINYINT",
    "z": "BIGINT",
    "p": "DOUBLE",
    "pf": "FLOAT",
    "q": "DECIMAL(9,2)",
    "h": "UBIGINT",
    "word": "VARCHAR",
    "tm": "TIMESTAMP",
    "day": "DATE",
    "flag": "BOOLEAN",
}
TABLES: dict[str, Mapping[str, str]] = {
    "e": EDGE_COLUMNS,
    "n": SMALL_COLUMNS,
    "m": SMALL_COLUMNS,
    "nothing": SMALL_COLUMNS,
    "odd": {"A b": "INTEGER", "sel`ect": "VARCHAR", "j": "JSON", "l": "INTEGER[]"},
    "s": COLUMNS,
    "r": COLUMNS,
    "c": {"k": "INTEGER", "label": "VARCHAR"},
}


def edge_rows() -> list[dict[str, Any]]:
    """Rows in which the values of any two columns meet in many ways."""
    rng = random.Random(3)
    rows = []
    for number in range(EDGE_ROWS):
        row: dict[str, Any] = {"id": number}
        for name, (kind, values) in EDGES.items():
            value = values[number % len(values)] if number < 20 else rng.choice(values)
            row[name] = Decimal(value) if value and kind.startswith("DECIMAL") else value
        rows.append(row)
    return rows


def small_rows(seed: int, count: int, first_id: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.1 else value

    start = dt.datetime(2024, 2, 28, 22)
    return [
        {
            "id": first_id + number,
            "g": maybe(rng.randrange(4)),
            "x": maybe(rng.randrange(-9, 10)),
            "y": maybe(rng.randrange(1, 8)),
            "z": maybe(rng.choice((10**17, -(10**17) + 1, 3, 0))),
            "p": maybe(rng.choice((0.25, -1.5, 4.0, 0.0, -0.0))),
            "pf": maybe(rng.choice((0.25, -1.5, 4.0))),
            "q": maybe(Decimal(rng.randrange(-900, 900)) / 4),
            "h": maybe(rng.choice((0, 7, 2**63))),
            "word": maybe(rng.choice(("a", "b", "ab", "x,y", "ä"))),
            "tm": maybe(start + dt.timedelta(minutes=rng.randrange(300))),
            "day": maybe(start.date() + dt.timedelta(days=rng.randrange(4))),
            "flag": maybe(rng.random() < 0.5),
        }
        for number in range(count)
    ]


def _columns(text: str, *names: str) -> list[str]:
    return [text.replace("?", name) for name in names]


_ORDERED = tuple(name for name in EDGES if name not in ("w", "hg", "bl", "u"))
CASES: tuple[str, ...] = (
    # types, stars, constants
    "SELECT * FROM e",
    "SELECT e.*, 1 AS one FROM e",
    "SELECT * EXCLUDE (bl, u) REPLACE (i16 + 1 AS i16) FROM e WHERE i16 < 9",
    'SELECT "A b", "sel`ect" AS s FROM odd WHERE "a B" > 1',
    "SELECT id, 1, -1, 1.50, 1e3, 'it''s ${x} \\ ', TRUE, DATE '2024-02-29', 9223372036854775808, "
    "TIMESTAMP '0001-01-01 00:00:00.000001', TIMESTAMPTZ '2024-02-29 12:00:00+02', "
    "CAST(NULL AS DATE), 'inf'::FLOAT, '-nan'::DOUBLE, 0.1::FLOAT, 5e-324::DOUBLE, "
    "DATE '2024-02-29' + INTERVAL 1 YEAR, 18446744073709551615::UBIGINT, 7::UTINYINT, "
    "8::USMALLINT, 9::UINTEGER, '\\x00a'::BLOB, 3::SMALLINT, 4::BIGINT, "
    "UUID '00000000-0000-0000-0000-00000000000a', INTERVAL 1 HOUR + TIMESTAMP '2024-01-01', "
    "10 / 4, 10 // 4, -7 % 3, 'a' || 1 FROM n",
    # comparisons: every type with itself, numbers among each other, constants of other types
    *(
        f"SELECT a.id, b.id, {', '.join(f'a.{name} {sign} b.{name}' for name in EDGES)} "
        f"FROM e a JOIN e b ON a.id < 20 AND b.id < 20"
        for sign in ("=", "<", ">=", "<>")
    ),
    "SELECT a.id, b.id, "
    + ", ".join(
        f"a.{one} {sign} b.{two}"
        for (one, two), sign in zip(
            itertools.permutations(("i8", "i64", "u8", "u64", "d", "v", "i32", "u32"), 2),
            itertools.cycle(("=", "<", ">", "<=", ">=", "<>")),
            strict=False,
        )
    )
    + ", a.f < b.i32, a.f = b.v, a.i64 < b.f, a.day < b.ts, a.ts >= b.tz, a.tz = b.day, a.w < b.d "
    "FROM e a, e b WHERE a.id < 25 AND b.id < 25",
    "SELECT id, i8 = 300, i8 < 1.5, i64 = 9223372036854775807, u64 > -1, u64 >= "
    "9223372036854775808, "
    "d = 1.5, d < 1.505, d = '1.5', d > 3e0, f = 0.1, f < 0.1::DOUBLE, v = 0.1, v < 'inf', v > 1, "
    "i32 = '40', b = 'true', day = '2024-02-29', day < TIMESTAMP '2024-02-29 00:00:01', "
    "ts > '1970-01-01', ts = DATE '1970-01-01', tz > '2024-01-01 00:00:00+02', t > 'a', t = "
    "'it''s', "
    "u = '00000000-0000-0000-0000-000000000001', bl < 'a'::BLOB, hg = 0, hg > 5::BIGINT, w > 0.5, "
    "i32 = NULL, t <> NULL, f = 'nan' FROM e",
    "SELECT id, i32 IS DISTINCT FROM i64, v IS NOT DISTINCT FROM NULL, v IS NOT DISTINCT FROM "
    "'nan', "
    "b IS TRUE, b IS NOT TRUE, b IS FALSE, t IS NULL, t IS NOT NULL, v IS NULL, "
    "(i8 > 0) IS NOT FALSE, (i8, t) = (1, 'a'), (i8, b) = (i32, b) FROM e",
    "SELECT id, i32 BETWEEN -1 AND 1.5, v BETWEEN -1 AND 'inf', f BETWEEN 0.1 AND 3, "
    "d NOT BETWEEN 0 AND 2.505, t BETWEEN 'A' AND 'b', ts BETWEEN DATE '1969-01-01' AND "
    "'2024-12-31', "
    "i32 IN (1, 2.0, NULL), i8 NOT IN (1, 7), t IN ('a', '日本', '${x}'), v IN ('nan', 0, 1.5), "
    "f IN (0.1, 3), d IN (1.5, 7, -0.01), u64 IN (1, 18446744073709551615), "
    "day IN ('2024-02-29', DATE '1970-01-01'), i32 IN (i8, 40), b IN (TRUE), i64 IN ('1', 0) FROM "
    "e",
    "SELECT id, b AND i8 > 0, b OR i8 > 0, NOT b, b AND NULL, b OR TRUE, NOT (b OR v > 1) FROM e",
    "SELECT id, "
    + ", ".join(
        f"t LIKE '{pattern}'"
        for pattern in (
            "a%",
            "%",
            "_",
            "__",
            "a\\%",
            "\\%",
            "%\\%",
            "${x}",
            "",
            "%b",
            "日_",
            "_z",
            "%''%",
        )
    )
    + " FROM e",
    # numbers
    "SELECT id, x + y, x - y, x * y, y + 1, y - 1, y * 2, x + z, z * 3, x + 1.5, q + q, q - 1, q "
    "* q, "
    "q + x, q * 1.25, p + p, p - x, p * q, pf + pf, pf * p, pf - x, x + 2::BIGINT, -x, -q, -p, "
    "-pf, -y, "
    "x + 300, p + 0.1 FROM n",
    "SELECT id, x / y, x / 2, x / 0, z / x, p / x, q / y, p / p, 1 / p, -1 / p, x / 0.5, "
    "x // y, z // y, x % y, z % 7, x % 3, y // 2::TINYINT, p / -0.0::DOUBLE FROM n",
    "SELECT id, w + 1, w + d, d * d, w - d, v + 1, v * 0, v - v, f + 0.5::FLOAT, v / 0, v / v, -v, "
    "v * -1, i32 + i64 // 2 FROM e WHERE i64 < 9000000000000000000",
    "SELECT id, abs(i16), abs(d), abs(v), abs(f), abs(w), sign(i32), sign(d), ceil(v), floor(v), "
    "ceil(f), floor(f), ceil(d), floor(d), floor(w), ceil(i8), round(v), round(f), round(d), "
    "round(d, 1), round(w, 3), round(i32), sqrt(abs(i8)), sqrt(v), sqrt(d), isnan(v), isnan(f) "
    "FROM e "
    "WHERE i8 > -128 AND i16 > -30000",
    "SELECT id, CAST(i32 AS BIGINT), CAST(i8 AS SMALLINT), CAST(i8 AS DECIMAL(9,2)), CAST(i64 AS "
    "VARCHAR), "
    "CAST(i32 AS BOOLEAN), CAST(i64 AS DOUBLE), CAST(i64 AS FLOAT), CAST(u8 AS INTEGER), "
    "CAST(u32 AS BIGINT), CAST(u64 AS VARCHAR), CAST(u64 AS DOUBLE), CAST(u64 AS DECIMAL(38,2)), "
    "CAST(d AS VARCHAR), CAST(w AS VARCHAR), CAST(d AS DECIMAL(9,1)), CAST(w AS DECIMAL(38,2)), "
    "CAST(d AS INTEGER), CAST(d AS DOUBLE), CAST(w AS DECIMAL(36,6)), CAST(f AS DOUBLE), "
    "CAST(b AS INTEGER), CAST(b AS VARCHAR), CAST(day AS VARCHAR), CAST(day AS TIMESTAMP), "
    "CAST(day AS TIMESTAMPTZ), CAST(ts AS VARCHAR), CAST(ts AS DATE), CAST(ts AS TIMESTAMPTZ), "
    "CAST(tz AS TIMESTAMP), CAST(u AS VARCHAR), CAST(v AS DOUBLE), CAST(t AS VARCHAR) FROM e",
    "SELECT id, CAST(v AS INTEGER), CAST(v AS BIGINT), CAST(v * 1.5 AS SMALLINT) FROM e "
    "WHERE v BETWEEN -1000 AND 1000",
    "SELECT id, CAST(hg AS BIGINT), CAST(i64 AS INTEGER), CAST(w AS BIGINT) FROM e "
    "WHERE hg BETWEEN -5 AND 5 AND i64 BETWEEN -5 AND 5 AND w < 5",
    # texts
    "SELECT id, length(t), t || 'x', t || t, t || i32, concat(t, 'x', NULL, t), "
    "substring(t, 1, 1), substring(t, 2), substring(t, 2, 3), left(t, 1), right(t, 1), left(t, 0), "
    "right(t, 9), replace(t, 'a', 'bb'), replace(t, '', 'x'), starts_with(t, 'a'), prefix(t, ''), "
    "ends_with(t, 'b'), suffix(t, 'z'), contains(t, 'a'), contains(t, ''), instr(t, 'b'), "
    "instr(t, ''), "
    "position('本' IN t), strpos(t, NULL), split_part(t, 'a', 1), split_part(t, 'a', 2), "
    "split_part(t, '.', 1), md5(t), sha256(t), contains(t, t), d || ',' || b FROM e",
    "SELECT id, lower(t), upper(t), trim(t), ltrim(t), rtrim(t) FROM e "
    "WHERE t NOT IN ('ä', '日本', '\U0001f600z')",
    # dates and times
    *(
        "SELECT id, "
        + ", ".join(
            f"date_trunc('{unit}', {name})"
            for unit in ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
            for name in ("ts", "tz", "day")
        )
        + f", date_trunc('{fine}', ts) FROM e WHERE day > DATE '0001-01-02'"
        for fine in ("millisecond", "microsecond")
    ),
    "SELECT id, "
    + ", ".join(
        itertools.chain.from_iterable(
            _columns(f"{part}(?)", "ts", "tz", "day")
            for part in (
                *("year", "month", "day", "quarter", "week", "weekofyear", "dayofweek", "isodow"),
                *("dayofyear", "dayofmonth"),
            )
        )
    )
    + ", epoch(ts), epoch(day), hour(ts), minute(ts), second(ts), hour(tz), extract(minute FROM "
    "tz), extract(dow FROM ts), "
    "extract(doy FROM day), extract(epoch FROM ts), extract(second FROM ts), extract(isodow FROM "
    "tz), "
    "epoch_us(ts), epoch_us(tz) FROM e",
    "SELECT id, ts + INTERVAL 1 HOUR, ts - INTERVAL '90' MINUTE, ts + INTERVAL 1 MONTH, "
    "ts - INTERVAL '1 year 2 months 3 days 04:05:06.7', day + INTERVAL 1 DAY, day - INTERVAL 1 "
    "YEAR, "
    "tz + INTERVAL 3 WEEK, INTERVAL 5 SECOND + ts, ts + to_microseconds(7), ts - to_days(2), "
    "day + 1, day - 30, 1 + day, day + i8, day - DATE '2000-01-01', DATE '2000-01-01' - day FROM e "
    "WHERE year(ts) BETWEEN 3 AND 9997 AND year(day) BETWEEN 3 AND 9997",
    "SELECT a.id, b.id, "
    + ", ".join(f"date_diff('{unit}', a.day, b.day)" for unit in ("day", "month", "year"))
    + ", "
    + ", ".join(
        f"date_diff('{unit}', a.{name}, b.{name})"
        for unit in ("day", "month", "year", "hour", "minute", "second")
        for name in ("ts", "tz")
    )
    + " FROM e a, e b WHERE a.id < 12 AND b.id < 12",
    "SELECT id, time_bucket(INTERVAL 7 MINUTE, ts), time_bucket(INTERVAL 3 DAY, ts), "
    "time_bucket(INTERVAL 1 WEEK, tz), time_bucket(to_microseconds(1500000), ts, TIMESTAMP "
    "'1970-01-01'), "
    "time_bucket(INTERVAL 1 HOUR, ts, TIMESTAMP '2024-01-01 00:10:00') FROM e WHERE year(ts) > 1",
    # choices
    "SELECT id, CASE WHEN b THEN i8 WHEN i8 > 0 THEN 300 ELSE i32 END, CASE i8 WHEN 1 THEN 'one' "
    "WHEN 7 THEN t END, if(b, v, 0), CASE WHEN b THEN d ELSE 0 END, CASE WHEN b THEN day ELSE ts "
    "END, "
    "coalesce(i8, i32, 0), coalesce(t, 'none'), coalesce(d, 0.001), ifnull(day, '2024-01-01'), "
    "coalesce(v, 1), coalesce(f, 0.1), nullif(i8, 1), nullif(t, ''), nullif(v, 'nan'), nullif(d, "
    "1.5), "
    "greatest(i8, i16, 5), least(v, 1), greatest(v, NULL, 0), least(t, 'b'), greatest(day, "
    "'2000-01-01'), "
    "greatest(f, f), least(d, 1.234) FROM e",
    # aggregates
    *(
        f"SELECT "
        f"{', '.join(f'{call}({name})' for call in ('min', 'max', 'count') for name in _ORDERED)}, "
        f"count(*), sum(i8), sum(i64), sum(u64), sum(hg), sum(d), sum(w), sum(b), bool_and(b), "
        f"bool_or(b), "
        f"count_if(b), min(u), max(bl), max(hg), count(DISTINCT v), count(DISTINCT t), "
        f"sum(DISTINCT i32), "
        f"min(DISTINCT w), avg(i8), avg(i64), avg(u32), avg(d) FROM e {after}"
        for after in ("", "WHERE id < 0", "GROUP BY i8, b", "WHERE v > 0 GROUP BY t")
    ),
    *(
        f"SELECT g, sum(p), avg(p), sum(pf), avg(pf), avg(x), avg(z), avg(q), stddev(x), "
        f"stddev_samp(y), "
        f"stddev_pop(x), variance(x), var_samp(z), var_pop(y), count(*) FILTER (x > 0), "
        f"sum(x) FILTER (WHERE flag), avg(q) FILTER (word = 'a'), count(DISTINCT x) FILTER (flag) "
        f"FROM {table} GROUP BY g"
        for table in ("n", "nothing")
    ),
    "SELECT sum(v), avg(v), max(f), sum(f) FROM e GROUP BY i16",
    "SELECT count(*), sum(x), max(word), bool_or(flag), avg(p), min(tm) FROM nothing",
    *(
        f"SELECT {keys}, count(*), min(id) FROM e GROUP BY {keys}"
        for keys in (
            "b, i8, v",
            "i16, i32, f",
            "i64, u8, d",
            "u16, u32, u64",
            "hg, w",
            "t, bl",
            "u, day",
        )
    ),
    "SELECT ts, tz, count(*) FROM e GROUP BY ts, tz",
    "SELECT DISTINCT b, u8, u16, u32, f FROM e",
    "SELECT DISTINCT v FROM e",
    # clauses
    "SELECT x % 2 AS half, count(*) AS n FROM n GROUP BY half HAVING n > 3",
    "SELECT g, flag, sum(x) AS total FROM n GROUP BY ALL",
    "SELECT g + 1, date_trunc('hour', tm), max(q) FROM n GROUP BY 1, 2 HAVING count(*) > 1 AND "
    "max(q) > 0",
    "SELECT x * 2 AS twice, twice + 1 AS more FROM n WHERE twice > 4",
    "SELECT count(*) AS n FROM n HAVING count(*) > 100000",
    "SELECT max(tm) AS tm, count(*) FROM n WHERE tm > TIMESTAMP '2024-02-29 00:00:00' GROUP BY g",
    "SELECT * FROM e ORDER BY b, i8 DESC NULLS FIRST, i16, i32, i64, id",
    "SELECT * FROM e ORDER BY u8 DESC, v, u16, u32, id",
    "SELECT * FROM e ORDER BY f NULLS FIRST, u64 DESC, hg, id",
    "SELECT * FROM e ORDER BY d, w DESC, t, id",
    "SELECT * FROM e ORDER BY t DESC NULLS FIRST, bl, u, id",
    "SELECT * FROM e ORDER BY day, ts DESC, tz, id",
    "SELECT v, tz, u FROM e ORDER BY v DESC NULLS FIRST, tz, u, bl DESC, id",
    "SELECT v, f, id FROM e ORDER BY 1 DESC, f NULLS FIRST, 3 LIMIT 40 OFFSET 5",
    "SELECT word, x FROM n ORDER BY ALL",
    "SELECT x AS k FROM n ORDER BY -id, k LIMIT 7",
    "SELECT DISTINCT word, g FROM n ORDER BY g DESC, word LIMIT 5",
    "SELECT g, sum(x) FROM n GROUP BY g ORDER BY sum(x) DESC, g LIMIT 2",
    "SELECT * FROM (SELECT id, x FROM n ORDER BY x, id LIMIT 9) q WHERE x < 0",
    "SELECT a, b, c FROM (VALUES (1, 'x', NULL), (2.5, 'y', 3)) v(a, b, c)",
    "SELECT * FROM n AS k(one, two) WHERE two = 1",
    # joins
    *(
        f"SELECT a.id, b.id, b.word FROM n a {kind} JOIN m b ON a.x = b.x AND a.word < b.word "
        f"WHERE "
        f"a.g IS DISTINCT FROM 2"
        for kind in ("", "LEFT", "RIGHT", "FULL", "INNER", "LEFT OUTER")
    ),
    *(
        f"SELECT a.id, a.x FROM n a {kind} JOIN m b ON a.x = b.y AND b.flag"
        for kind in ("SEMI", "ANTI")
    ),
    "SELECT a.id FROM n a SEMI JOIN m USING (g, word)",
    *(
        f"SELECT * FROM (SELECT id AS i, g, word, x FROM n WHERE id < 9) a {kind} JOIN "
        f"(SELECT g, word, q FROM m WHERE x > 0) b USING (g, word)"
        for kind in ("", "LEFT", "FULL")
    ),
    "SELECT g, a.x, b.x FROM n a RIGHT JOIN m b USING (g) WHERE g > 1",
    "SELECT a.id, b.id FROM n a, m b, nothing c WHERE a.x = b.x",
    "SELECT a.id, b.id FROM n a CROSS JOIN m b WHERE a.x > 6 AND b.x > 6",
    "SELECT a.id, b.id FROM e a JOIN e b ON a.v = b.v WHERE a.id < 40 AND b.id < 40",
    "SELECT a.id, b.id FROM e a LEFT JOIN e b ON a.f = b.v WHERE a.id < 40",
    "SELECT a.id, b.id FROM e a JOIN e b ON a.u64 = b.i64 AND a.t >= b.t",
    # sets
    *(
        f"SELECT x, word FROM n {operation} SELECT y, word FROM m"
        for operation in (
            "UNION",
            "UNION ALL",
            "INTERSECT",
            "INTERSECT ALL",
            "EXCEPT",
            "EXCEPT ALL",
        )
    ),
    *(
        f"SELECT v, d, day FROM e WHERE id < 60 {operation} SELECT f, i8, ts FROM e WHERE id > 30"
        for operation in ("UNION", "EXCEPT", "INTERSECT ALL")
    ),
    "SELECT v, hg, u, bl, tz FROM e WHERE id < 70 EXCEPT ALL SELECT v, hg, u, bl, tz FROM e WHERE "
    "id > 9",
    "SELECT u8, u16, u32, u64, w, i64 FROM e UNION SELECT i8, i16, i32, i64, d, u8 FROM e",
    "(SELECT x AS k FROM n UNION SELECT 3) ORDER BY k DESC LIMIT 5",
    "SELECT x FROM n EXCEPT (SELECT y FROM m UNION ALL SELECT 1)",
    # queries inside queries
    "WITH a AS (SELECT g, count(*) AS n FROM n GROUP BY g), b(k) AS (SELECT max(n) FROM a) "
    "SELECT a.g, a.n, b.k FROM a, b WHERE a.n < b.k",
    "SELECT id FROM n WHERE x IN (SELECT x FROM m WHERE flag) OR y IN (SELECT y FROM m WHERE x > "
    "7)",
    "SELECT id FROM n WHERE x NOT IN (SELECT x FROM m)",
    "SELECT id FROM n WHERE x NOT IN (SELECT x FROM m WHERE x > 3)",
    "SELECT id FROM n WHERE NOT (x IN (SELECT x FROM m WHERE x > 3) OR flag)",
    "SELECT id FROM n WHERE x NOT IN (SELECT x FROM m WHERE m.word = n.word AND x IS NOT NULL)",
    "SELECT id FROM n WHERE x NOT IN (SELECT x FROM nothing)",
    "SELECT id FROM n WHERE h IN (SELECT h FROM m WHERE m.g = n.g) AND word = ANY (SELECT word "
    "FROM m)",
    "SELECT id FROM n WHERE EXISTS (SELECT 1 FROM m WHERE m.x = n.x AND m.tm > n.tm) OR NOT flag",
    "SELECT id FROM n WHERE NOT EXISTS (SELECT * FROM m WHERE m.x = n.x AND m.word = n.word)",
    "SELECT id FROM n WHERE EXISTS (SELECT 1 FROM nothing) OR x > (SELECT avg(x) FROM m)",
    "SELECT id, (SELECT max(x) FROM m) FROM n WHERE (SELECT count(*) FROM m WHERE m.x = n.x) < 3",
    "SELECT id FROM n WHERE x = (SELECT min(x) FROM m WHERE m.word = n.word)",
    "SELECT id FROM n WHERE q < (SELECT sum(q) FROM m WHERE m.g = n.g AND m.flag) OR g IS NULL",
    # windows
    "SELECT id, row_number() OVER (ORDER BY id), rank() OVER (ORDER BY x), "
    "dense_rank() OVER (PARTITION BY g ORDER BY x DESC), percent_rank() OVER (ORDER BY x NULLS "
    "FIRST), "
    "cume_dist() OVER (PARTITION BY flag ORDER BY word), ntile(3) OVER (ORDER BY id), "
    "lag(x) OVER (ORDER BY id), lag(x, 2, 0) OVER (PARTITION BY g ORDER BY id), "
    "lead(word, 1, 'none') OVER (ORDER BY id DESC), first_value(x) OVER (PARTITION BY g ORDER BY "
    "id), "
    "last_value(x) OVER (PARTITION BY g ORDER BY id), nth_value(x, 2) OVER (ORDER BY id) FROM n",
    "SELECT id, sum(x) OVER w, count(*) OVER w, avg(q) OVER w, min(word) OVER w, max(p) OVER w, "
    "bool_or(flag) OVER w, count(*) OVER (), sum(z) OVER (PARTITION BY g), sum(x) OVER (ORDER BY "
    "g) "
    "FROM n WINDOW w AS (PARTITION BY g ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)",
    "SELECT id, sum(x) OVER (ORDER BY tm RANGE BETWEEN INTERVAL 10 MINUTE PRECEDING AND CURRENT "
    "ROW), "
    "count(*) OVER (PARTITION BY g ORDER BY tm DESC RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND "
    "INTERVAL 5 MINUTE FOLLOWING), max(x) OVER (ORDER BY x RANGE BETWEEN UNBOUNDED PRECEDING AND "
    "CURRENT ROW), count(x) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING), "
    "first_value(id) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) "
    "FROM n",
    "SELECT id, g, row_number() OVER (PARTITION BY g ORDER BY tm, id) AS k FROM n QUALIFY k <= 2",
    "SELECT g, count(*) AS n, sum(count(*)) OVER (ORDER BY g) AS running FROM n GROUP BY g "
    "QUALIFY running > 10 ORDER BY g",
    "SELECT DISTINCT g FROM n QUALIFY rank() OVER (ORDER BY x) < 20",
)

# What DuckDB refuses, or what Spark treats otherwise: the Spark query must not answer.
FAILING: tuple[str, ...] = (
    "SELECT i32 + i32 FROM e",
    "SELECT i8 * 2::TINYINT FROM e",
    "SELECT -i64 FROM e",
    "SELECT abs(i8) FROM e",
    "SELECT CAST(i64 AS INTEGER) FROM e",
    "SELECT CAST(v AS INTEGER) FROM e",
    "SELECT 1 // x FROM n",
    "SELECT x % (y - y) FROM n WHERE y > 0",
    "SELECT CAST(u64 AS BIGINT) FROM e",
    "SELECT lower(t) FROM e",
    "SELECT (SELECT x FROM m) FROM n",
)

NOT_LISTED: tuple[str, ...] = (
    "SELECT * FROM n LIMIT 3",
    "SELECT strftime(tm, '%Y') FROM n",
    "SELECT random() FROM n",
    "SELECT list(x) FROM n",
    "SELECT DISTINCT ON (g) g, x FROM n",
    "SELECT j FROM odd",
    "SELECT CAST(word AS INTEGER) FROM n",
    "SELECT x FROM n WHERE x NOT IN (SELECT x FROM m) OR flag",
    "SELECT first(x) FROM n",
    "SELECT row_number() OVER () FROM n",
    "SELECT CAST(p AS VARCHAR) FROM n",
    "SELECT x FROM n WHERE word SIMILAR TO 'a.*'",
    "SELECT missing FROM n",
    "SELECT a.id FROM n a ASOF JOIN m b ON a.tm >= b.tm",
)


class Pair:
    """The same tables in DuckDB and in Spark."""

    def __init__(self, folder: Path, session: Any) -> None:
        self.folder = folder
        self.spark = session
        for name, value in SPARK_SETTINGS.items():
            assert session.conf.get(name) == value
        self.duck = duckdb.connect(config={"threads": 1})
        self.duck.execute("SET TimeZone = 'UTC'")
        rng = random.Random(7)
        self._add("e", edge_rows())
        self._add("n", small_rows(1, 120, 0))
        self._add("m", small_rows(2, 60, 1_000))
        self._add("nothing", [])
        self._add("odd", [{"A b": n, "sel`ect": "x", "j": "1", "l": [1]} for n in (1, 2, 3)])
        self._add("s", random_rows(rng, 300))
        self._add("r", random_rows(rng, 150, first_id=1_000))
        labels = [(k, label) for k in (*range(0, 12, 2), 3, 99) for label in ("x", "y")]
        self._add("c", [{"k": k, "label": label} for k, label in labels])

    def _add(self, name: str, rows: list[dict[str, Any]]) -> None:
        columns = TABLES[name]
        listed = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
        self.duck.execute(f"CREATE TABLE {name} ({listed})")
        marks = ", ".join("?" for _ in columns)
        if rows:
            values = [[_given(row[column], columns[column]) for column in columns] for row in rows]
            self.duck.executemany(f"INSERT INTO {name} VALUES ({marks})", values)
        known = [column for column in columns if spark_type(columns[column])]
        given = ", ".join(f'{given_expression(c, columns[c])} AS "{c}"' for c in known)
        path = self.folder / f"{name}.parquet"
        query = f"SELECT {given} FROM {name} WHERE rowid % 2 ="
        self.duck.execute(f"COPY ({query} 0) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
        schema = ", ".join(f"`{c.replace('`', '``')}` {spark_type(columns[c])}" for c in known)
        reader = self.spark.read if name == "e" else self.spark.read.schema(schema)
        from_file = reader.parquet(str(path))
        in_memory = self.spark.createDataFrame(
            self.duck.sql(f"{query} 1").to_arrow_table(), schema=schema
        )
        assert from_file.schema == in_memory.schema
        from_file.union(in_memory).createOrReplaceTempView(name)

    def on_spark(self, query: SparkQuery) -> list[tuple[Any, ...]]:
        answer = self.spark.sql(query.sql).toArrow()
        kinds = [SqlType.parse(name) for name in query.types]
        assert answer.column_names == [f"c{at}" for at in range(len(kinds))]
        with self.duck.cursor() as cursor:
            cursor.register("answer", answer)
            return cursor.execute(shown(result_sql(query, "answer"), query.types)).fetchall()

    def on_duckdb(self, text: str, params: list[Any] | None, types: tuple[str, ...]) -> Any:
        with self.duck.cursor() as cursor:
            cursor.execute("SET TimeZone = 'UTC'")
            if params:
                return cursor.execute(shown(text, types), params).fetchall()
            return cursor.execute(shown(text, types)).fetchall()

    def close(self) -> None:
        self.duck.close()


def shown(query: str, types: tuple[str, ...]) -> str:
    """Times and dates as texts, so that years beyond Python's are seen too."""
    names = ", ".join(f"k{at}" for at in range(len(types)))
    columns = ", ".join(
        f"CAST(k{at} AS VARCHAR)" if kind.startswith(("TIMESTAMP", "DATE", "UUID")) else f"k{at}"
        for at, kind in enumerate(types)
    )
    return f"SELECT {columns} FROM ({query}) AS answer({names})"


def translated(text: str, params: list[Any] | None = None) -> SparkQuery | NotOnTheList:
    values = {str(number): value for number, value in enumerate(params or [], 1)}
    tree = sqlglot.parse_one(text, dialect="duckdb")
    return to_spark(tree, lambda node: TABLES.get(node.name), values)


def _given(value: Any, kind: str) -> Any:
    if value is not None and kind == "TIMESTAMP WITH TIME ZONE":
        return f"{value.replace(tzinfo=None)}+00"
    return value


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row that can be counted: NaN equals NaN, and 1.0 is not 1."""
    return tuple(
        ("nan" if math.isnan(item) else repr(item + 0.0)) if isinstance(item, float) else item
        for item in row
    )


def _near(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        both = math.isnan(one) and math.isnan(two)
        return both or math.isclose(one, two, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(one) is type(two) and one == two


def _rough(row: tuple[Any, ...]) -> str:
    return repr([f"{item + 0.0:.6g}" if isinstance(item, float) else item for item in row])


def check_same(
    found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]], query: SparkQuery, text: str
) -> None:
    if query.uses & ROUNDED:
        found, wanted = (sorted(rows, key=_rough) for rows in (found, wanted))
        same = len(found) == len(wanted) and all(
            all(map(_near, one, two)) for one, two in zip(found, wanted, strict=True)
        )
        assert same, f"{text}\n{query.sql}\n{found[:5]}\n{wanted[:5]}"
        return
    one, two = list(map(_plain, found)), list(map(_plain, wanted))
    if "ORDER BY" in text.rpartition(")")[2]:
        assert one == two, f"{text}\n{query.sql}"
        return
    left, right = Counter(one), Counter(two)
    missing, extra = list((right - left).elements()), list((left - right).elements())
    assert left == right, f"{text}\n{query.sql}\nmissing: {missing[:5]}\ntoo much: {extra[:5]}"


@pytest.fixture(scope="module")
def pair(shared_spark: SparkRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    conf = {
        **SPARK_SETTINGS,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",  # many queries over few rows
    }
    session = shared_spark.session().newSession()
    for name, value in conf.items():
        session.conf.set(name, value)
    both = Pair(tmp_path_factory.mktemp("spark_sql"), session)
    yield both
    both.close()


def test_every_entry_has_a_case() -> None:
    used: set[str] = set()
    for text in CASES:
        query = translated(text)
        assert isinstance(query, SparkQuery), f"{query.reason}: {text}"
        used |= query.uses
    assert not ALLOWED - used


@pytest.mark.parametrize("text", NOT_LISTED)
def test_what_is_not_listed_is_refused(text: str) -> None:
    assert isinstance(translated(text), NotOnTheList)


@pytest.mark.spark
@pytest.mark.parametrize("text", CASES, ids=range(len(CASES)))
def test_cases_agree(pair: Pair, text: str) -> None:
    query = translated(text)
    assert isinstance(query, SparkQuery)
    wanted = pair.on_duckdb(text, None, query.types)
    check_same(pair.on_spark(query), wanted, query, text)


@pytest.mark.spark
@pytest.mark.parametrize("text", FAILING)
def test_what_differs_is_an_error(pair: Pair, text: str) -> None:
    query = translated(text)
    assert isinstance(query, SparkQuery), query.reason
    with pytest.raises(SPARK_ERRORS):
        pair.on_spark(query)


@pytest.mark.spark
def test_random_queries_agree(pair: Pair) -> None:
    queries = Queries(11)
    chosen = [
        (text, list(params)) for text, params in (queries.next() for _ in range(RANDOM_QUERIES))
    ]

    def run(item: tuple[str, list[Any]]) -> bool:
        text, params = item
        query = translated(text, params)
        if isinstance(query, NotOnTheList):
            return False
        try:
            wanted = pair.on_duckdb(text, params, query.types)
        except duckdb.Error:
            return False
        check_same(pair.on_spark(query), wanted, query, f"{text}\n{params}")
        return True

    with ThreadPoolExecutor(2) as pool:
        accepted = sum(pool.map(run, chosen))
    assert accepted >= ACCEPTED_MIN
