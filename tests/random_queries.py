"""Random rows and random queries, from a seed: the two halves of the differential test.

``random_rows`` gives rows with NULL, NaN, repeated keys and times out of order; ``Queries`` writes
SELECTs over them that any DuckDB must answer in one way only: every order that decides an answer is
total, and every number is a multiple of a quarter, so that sums do not depend on their order.
"""

from __future__ import annotations

import datetime as dt
import random
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

_PARAMETER = re.compile(r"\$(\d+)")
START = dt.datetime(2024, 3, 1, 10)
SPAN_S = 4 * 3_600
NAMES = ("", "a", "b", "B", "ab", "it's", "ä", "日本", "zz", "a%")

# The columns of tables s and r; ``id`` is unique and orders everything.
COLUMNS = {
    "id": "BIGINT",
    "ts": "TIMESTAMP",
    "k": "INTEGER",
    "h": "UBIGINT",
    "v": "DOUBLE",
    "d": "DECIMAL(9,2)",
    "name": "VARCHAR",
    "flag": "BOOLEAN",
    "day": "DATE",
    "u": "UUID",
    "tz": "TIMESTAMP WITH TIME ZONE",
    "f": "FLOAT",
    "tiny": "TINYINT",
}
COLUMN_LIST = ", ".join(
    f"{name} {kind}{' NOT NULL' if name in ('id', 'ts') else ''}" for name, kind in COLUMNS.items()
)


def random_rows(rng: random.Random, count: int, first_id: int = 0) -> list[dict[str, Any]]:
    """Rows in arrival order: mostly in order of time, one in ten late."""

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.08 else value

    rows = []
    for number in range(count):
        seconds = SPAN_S * number / count
        if rng.random() < 0.1:
            seconds = max(0.0, seconds - rng.uniform(0, 3_600))
        moment = START + dt.timedelta(seconds=round(seconds))
        if rng.random() < 0.2:
            moment += dt.timedelta(microseconds=rng.randrange(1_000_000))
        rows.append(
            {
                "id": first_id + number,
                "ts": moment,
                "k": maybe(rng.randrange(-5, 25)),
                "h": maybe(rng.choice((0, 1, 2, 3, 2**32, 2**63, 2**64 - 1))),
                "v": maybe(rng.choice((float("nan"), -0.0, 0.0, float("inf"), 1.5, 2.25, -7.75))),
                "d": maybe(Decimal(rng.randrange(-400, 400)) / 4),
                "name": maybe(rng.choice(NAMES)),
                "flag": maybe(rng.random() < 0.5),
                "day": maybe(dt.date(2024, 2, 28) + dt.timedelta(days=rng.randrange(5))),
                "u": maybe(uuid.UUID(int=rng.randrange(12) << 124 | rng.randrange(3))),
                "tz": maybe(moment.replace(tzinfo=dt.UTC)),
                "f": maybe(rng.choice((0.0, 0.5, -1.25, float("nan"), 1e30))),
                "tiny": maybe(rng.randrange(-128, 128)),
            }
        )
    return rows


def renumbered(text: str, params: list[Any]) -> tuple[str, list[Any]]:
    """A query with the parameters that it kept, numbered from one."""
    used = sorted({int(number) for number in _PARAMETER.findall(text)})
    text = _PARAMETER.sub(lambda found: f"${used.index(int(found[1])) + 1}", text)
    return text, [params[number - 1] for number in used]


class Queries:
    """Writes one query after the other; ``params`` are the values of its ``$1``, ``$2`` …"""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.params: list[Any] = []

    def next(self) -> tuple[str, list[Any]]:
        self.params = []
        return renumbered(self.rng.choice(_SHAPES)(self), self.params)

    # -- constants

    def constant(self, kind: str) -> str:
        """A constant to compare a column with: of its type, near it, or far from it."""
        text, value = self._constant(kind)
        if value is not None and self.rng.random() < 0.2:
            self.params.append(value)
            return f"${len(self.params)}"
        return text

    def _constant(self, kind: str) -> tuple[str, Any]:
        rng = self.rng
        if rng.random() < 0.04:
            return "NULL", None
        if kind in ("INTEGER", "BIGINT", "UBIGINT", "TINYINT"):
            number = rng.choice((rng.randrange(-6, 27), rng.randrange(4), 2**40, 2**63, -(2**33)))
            forms = (str(number), f"{number}.0", f"{number}.5", f"({number} + 1)")
            if 0 <= number < 100:  # a text that is no such number is an error, sooner or later
                forms += (f"'{number}'",)
            if number < 2**40:
                forms += (f"{number}::DOUBLE", f"CAST({number} AS HUGEINT)", f"{number}e0")
            text = rng.choice((str(number), *forms))
            return text, number if text == str(number) and abs(number) < 2**63 else None
        if kind in ("DOUBLE", "FLOAT"):
            text = rng.choice(
                (
                    *("1.5", "2.25", "0", "-0.0", "1e300", "'nan'::DOUBLE", "'inf'", "-7.75"),
                    *("0.1", "0.5::FLOAT", "1e30", "'1.5'", "2::BIGINT"),
                )
            )
            return text, 1.5 if text == "1.5" else None
        if kind.startswith("DECIMAL"):
            cents = rng.randrange(-400, 400)
            exact = f"{cents / 4:.2f}"
            text = rng.choice((exact, f"{cents / 4:.3f}", "1.005", "7", "3e0", "'1.5'"))
            return text, Decimal(cents) / 4 if text == exact else None
        if kind == "VARCHAR":
            name = rng.choice((*NAMES, "none", "A"))
            quoted = name.replace("'", "''")
            return f"'{quoted}'", name
        if kind == "BOOLEAN":
            value = rng.random() < 0.5
            return rng.choice((str(value), "'true'", "'f'")), None
        if kind == "DATE":
            day = dt.date(2024, 2, 27) + dt.timedelta(days=rng.randrange(7))
            form = rng.choice(("DATE '{}'", "'{}'", "TIMESTAMP '{} 00:00:01'", "DATE '{}' + 1"))
            text = form.format(day)
            return text, day if text.endswith("'") and "TIME" not in text else None
        if kind == "UUID":
            value = uuid.UUID(int=rng.randrange(12) << 124 | rng.randrange(3))
            return rng.choice((f"'{value}'", f"UUID '{value}'")), value
        return self._moment(kind)

    def _moment(self, kind: str) -> tuple[str, Any]:
        rng = self.rng
        moment = START + dt.timedelta(seconds=rng.randrange(-600, SPAN_S + 600))
        if rng.random() < 0.3:
            moment = moment.replace(microsecond=rng.randrange(1_000_000))
        zone = "+00" if "ZONE" in kind else ""
        name = "TIMESTAMPTZ" if zone else "TIMESTAMP"
        forms = (
            f"{name} '{moment}{zone}'",
            f"'{moment}{zone}'",
            f"{name} '{moment}{zone}' - INTERVAL '{rng.randrange(90)}' MINUTE",
            f"{name} '{moment}{zone}' + INTERVAL 1 HOUR",
            f"date_trunc('hour', {name} '{moment}{zone}')",
            f"DATE '{moment.date()}'",
            f"'{moment}'::TIMESTAMP",
            f"'{moment}'::TIMESTAMPTZ",
            f"DATE '{moment.date()}' + INTERVAL 11 HOUR",
        )
        at = rng.randrange(len(forms))
        value = moment.replace(tzinfo=dt.UTC) if zone else moment
        return forms[at], value if at == 0 else None

    # -- conditions

    def column(self, alias: str) -> tuple[str, str]:
        name = self.rng.choice(("ts", "ts", "k", "k", "h", "name", *COLUMNS))
        return (f"{alias}.{name}" if alias else name), COLUMNS[name]

    def atom(self, alias: str) -> str:
        rng = self.rng
        column, kind = self.column(alias)
        chance = rng.random()
        op = rng.choice(("=", "=", "<", "<=", ">", ">=", "<>", "!="))
        if chance < 0.35:
            return f"{column} {op} {self.constant(kind)}"
        if chance < 0.43:
            return f"{self.constant(kind)} {op} {column}"
        if chance < 0.55:
            negated = rng.choice(("", "", "NOT "))
            low, high = self.constant(kind), self.constant(kind)
            return f"{column} {negated}BETWEEN {low} AND {high}"
        if chance < 0.68:
            negated = rng.choice(("", "", "", "NOT "))
            items = [self.constant(kind) for _ in range(rng.choice((1, 1, 2, 3, 8)))]
            return f"{column} {negated}IN ({', '.join(items)})"
        if chance < 0.73:
            return f"{column} IS {rng.choice(('', 'NOT '))}NULL"
        if chance < 0.78:
            how = rng.choice(("IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
            return f"{column} {how} {self.constant(kind)}"
        return self._odd_atom(alias)

    def _odd_atom(self, alias: str) -> str:
        rng = self.rng
        dot = f"{alias}." if alias else ""
        return rng.choice(
            (
                f"{dot}k = {dot}tiny",
                f"{dot}k % 3 = 0",
                f"{dot}flag",
                f"NOT {dot}flag",
                f"{dot}name LIKE 'a%'",
                f"CAST({dot}k AS VARCHAR) = '3'",
                f"CAST({dot}ts AS DATE) = DATE '2024-03-01'",
                f"date_trunc('hour', {dot}ts) = TIMESTAMP '2024-03-01 11:00:00'",
                f"coalesce({dot}k, 3) = 3",
                f"({dot}k, {dot}name) = (3, 'a')",
                f"{dot}k = 3 AND {dot}name = 'a'",
                f"({dot}k = 1 OR {dot}k = 2 OR {dot}k IN (5, 6))",
                f"{dot}k IN (SELECT k FROM c WHERE label <> 'x')",
                f"{dot}k NOT IN (SELECT k FROM c)",
                f"{dot}k IN (SELECT k FROM c WHERE label <= {self.constant('VARCHAR')})",
                f"{dot}u IN (SELECT u FROM r WHERE r.tiny < {self.constant('TINYINT')})",
                f"{dot}h IN (SELECT h FROM r WHERE r.ts > {self.constant('TIMESTAMP')})",
                f"{dot}k > (SELECT min(k) FROM c)",
                f"{dot}ts > (SELECT max(ts) - INTERVAL 1 HOUR FROM s)",
                f"EXISTS (SELECT 1 FROM c WHERE c.k = {dot}k)",
                f"NOT EXISTS (SELECT 1 FROM r WHERE r.k = {dot}k AND r.h = 1)",
                f"{dot}k = ANY (SELECT k FROM c)",
                f"CASE WHEN {dot}k > 3 THEN {dot}flag ELSE {dot}k = 1 END",
                f"({dot}k = 3) = {dot}flag",
                f"({dot}k > 3) IS NOT TRUE",
            )
        )

    def condition(self, alias: str, depth: int = 0) -> str:
        rng = self.rng
        if depth >= 3 or rng.random() < 0.35:
            return self.atom(alias)
        left, right = self.condition(alias, depth + 1), self.condition(alias, depth + 1)
        form = rng.choice(
            ("{} AND {}", "{} AND {}", "({} OR {})", "NOT ({} AND {})", "({}) AND {}")
        )
        return form.format(left, right)

    # -- shapes

    def table(self) -> str:
        return self.rng.choice(("s", "s", "s", "r"))

    def plain(self) -> str:
        columns = self.rng.choice(("*", "id, ts, k", "id, v, d, name", "k, count(*) OVER () AS n"))
        return f"SELECT {columns} FROM {self.table()} WHERE {self.condition('')}"

    def ordered(self) -> str:
        limit, offset = self.rng.randrange(20), self.rng.choice((0, 0, 5))
        return (
            f"SELECT id, ts, k FROM {self.table()} x WHERE {self.condition('x')} "
            f"ORDER BY ts DESC, id LIMIT {limit} OFFSET {offset}"
        )

    def grouped(self) -> str:
        key = self.rng.choice(("k", "name", "date_trunc('hour', ts)", "flag, k", "day"))
        having = self.rng.choice(("", " HAVING count(*) > 2", " HAVING max(id) > 100"))
        return (
            f"SELECT {key}, count(*), count(v), sum(d), min(ts), max(name), avg(tiny), "
            f"count(DISTINCT h), bool_or(flag) FROM {self.table()} WHERE {self.condition('')} "
            f"GROUP BY {key}{having}"
        )

    def whole(self) -> str:
        return (
            f"SELECT count(*), sum(k), min(v), max(v), sum(f) FILTER (f < 2), max(u), "
            f"list(id ORDER BY id) FROM {self.table()} WHERE {self.condition('')}"
        )

    def joined(self) -> str:
        rng = self.rng
        kind = rng.choice(
            ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN")
        )
        one_sided = kind in ("SEMI JOIN", "ANTI JOIN")
        on = f"a.k = b.k AND {self.condition(rng.choice('ab'), 2)}"
        where = self.condition("a" if one_sided else rng.choice("ab"), 1)
        columns = "a.id, a.ts" if one_sided else "a.id, b.id, a.name, b.k"
        right = rng.choice(("c", "r", "r"))
        if right == "c":
            on, where = f"a.k = b.k AND {self.condition('a', 2)}", self.condition("a", 1)
            columns = "a.id, a.ts" if one_sided else "a.id, a.name, b.k, b.label"
        left = f"(SELECT * FROM s WHERE {self.condition('', 2)}) a" if rng.random() < 0.3 else "s a"
        return f"SELECT {columns} FROM {left} {kind} {right} b ON {on} WHERE {where}"

    def joined_using(self) -> str:
        kind = self.rng.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        where = self.rng.choice(("k = 3", "k IN (1, 2)", "label = 'x'", self.condition("s", 2)))
        return f"SELECT k, label, s.id FROM s {kind} c USING (k) WHERE {where}"

    def derived(self) -> str:
        inner = self.rng.choice(
            (
                f"SELECT * FROM s WHERE {self.condition('', 2)}",
                f"SELECT id, ts, k, name, h, v, d, flag, day, u, tz, f, tiny FROM s x "
                f"WHERE {self.condition('x', 2)}",
                "SELECT * REPLACE (k + 1 AS k) FROM s",
                "SELECT * EXCLUDE (name, k), k AS name, name AS k FROM s",
                "SELECT DISTINCT * FROM s",
                "SELECT * FROM s ORDER BY id LIMIT 100",
                "SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts, id) AS n FROM s",
                "SELECT *, lag(id) OVER (ORDER BY ts, id) AS n FROM s",
                "SELECT * FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts, id) = 1",
                "SELECT * FROM s UNION ALL SELECT * FROM r",
                "SELECT * FROM s EXCEPT ALL SELECT * FROM r WHERE k > 3",
                "SELECT * FROM s SEMI JOIN c USING (k)",
            )
        )
        if inner.startswith("SELECT * EXCLUDE"):
            return f"SELECT id, k, name FROM ({inner}) q WHERE {self.swapped()}"
        if self.rng.random() < 0.5:
            return f"SELECT * FROM ({inner}) q WHERE {self.condition('q', 1)}"
        return f"WITH q AS ({inner}) SELECT * FROM q WHERE {self.condition('', 1)}"

    def swapped(self) -> str:
        """A condition on the columns k and name after they changed places."""
        return self.rng.choice(("k = 'a'", "name = 3", "name < 4 AND k > 'a'", "k IN ('a', 'b')"))

    def with_queries(self) -> str:
        rng = self.rng
        first = f"SELECT k, count(*) AS n, max(ts) AS ts FROM s WHERE {self.condition('', 2)}"
        twice = rng.choice(
            (
                "SELECT a.k, b.n FROM q a JOIN q b ON a.k = b.k + 1",
                "SELECT s.id, q.n FROM s JOIN q ON s.k = q.k AND s.ts = q.ts",
                f"SELECT * FROM q WHERE {rng.choice(('k = 3', 'n > 4', 'k BETWEEN 2 AND 6'))}",
                "SELECT k FROM q WHERE k > 2 UNION SELECT tiny FROM r WHERE tiny < 3",
                "SELECT (SELECT count(*) FROM q WHERE q.k = c.k) AS n, k FROM c",
            )
        )
        hidden = rng.choice(
            ("", "", ", s AS (SELECT 3 AS k, 1 AS id, TIMESTAMP '2024-03-01' AS ts)")
        )
        return f"WITH q AS ({first} GROUP BY k){hidden} {twice}"

    def windowed(self) -> str:
        frame = self.rng.choice(
            (
                "ORDER BY ts, id ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
                "ORDER BY ts, id",
                "ORDER BY ts RANGE BETWEEN INTERVAL 10 MINUTE PRECEDING AND CURRENT ROW",
            )
        )
        where = self.condition("", 1)
        return (
            f"SELECT id, k, sum(d) OVER w AS a, count(v) OVER w AS b, max(tiny) OVER w AS c "
            f"FROM s WHERE {where} WINDOW w AS (PARTITION BY k {frame}) "
            f"QUALIFY {self.rng.choice(('TRUE', 'a > 0', 'k = 3', 'b < 5'))}"
        )

    def combined(self) -> str:
        operation = self.rng.choice(("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "EXCEPT ALL"))
        left, right = self.condition("", 2), self.condition("", 2)
        columns = self.rng.choice(("k, name", "id", "day, flag"))
        return (
            f"SELECT {columns} FROM s WHERE {left} {operation} "
            f"SELECT {columns} FROM r WHERE {right}"
        )

    def correlated(self) -> str:
        return self.rng.choice(
            (
                f"SELECT id, (SELECT count(*) FROM r WHERE r.k = x.k AND {self.condition('r', 2)}) "
                f"FROM s x WHERE {self.condition('x', 2)}",
                f"SELECT x.id, y.n FROM s x, LATERAL (SELECT count(*) AS n FROM r WHERE r.k = x.k "
                f"AND r.ts <= x.ts AND {self.condition('r', 2)}) y WHERE {self.condition('x', 2)}",
                f"SELECT id FROM s x WHERE k IN (SELECT k FROM r WHERE r.h = x.h AND "
                f"{self.condition('r', 2)}) AND {self.condition('x', 2)}",
                f"SELECT c.k, (SELECT max(id) FROM s WHERE k = c.k AND {self.atom('s')}) FROM c",
                f"SELECT x.id, y.id FROM s x ASOF JOIN r y ON x.k = y.k AND x.ts >= y.ts "
                f"WHERE {self.condition(self.rng.choice('xy'), 2)}",
                f"SELECT x.id, y.id FROM s x ASOF LEFT JOIN r y ON x.k = y.k AND x.ts > y.ts "
                f"WHERE {self.condition('x', 2)}",
            )
        )

    def several(self) -> str:
        return (
            f"SELECT x.id, y.id FROM s x, s y, c WHERE x.k = y.k AND y.k = c.k "
            f"AND {self.condition('x', 2)} AND {self.condition('y', 2)} AND x.id < y.id"
        )


_SHAPES: tuple[Callable[[Queries], str], ...] = (
    Queries.plain,
    Queries.plain,
    Queries.ordered,
    Queries.grouped,
    Queries.whole,
    Queries.joined,
    Queries.joined,
    Queries.joined_using,
    Queries.derived,
    Queries.derived,
    Queries.with_queries,
    Queries.windowed,
    Queries.combined,
    Queries.correlated,
    Queries.several,
)
