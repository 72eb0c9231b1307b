"""Random queries in the words that only Tidemill has, and what they mean in plain DuckDB.

``StreamQueries`` mixes the shapes of ``random_queries`` with aggregates of every kind, stream
windows, top-k and the hidden column ``_seq``. A query comes twice: ``text`` for the warehouse, and
``plain`` for a DuckDB whose tables got the same rows in the same order, with windows written out
as subqueries and ``_seq`` as ``rowid + 1``. As there, each query has one right answer, up to the
last digits of what is computed with floating-point numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from random_queries import _SHAPES, Queries, renumbered

_MARK = re.compile("\x00(\\d+)\x00")
_EPOCH = "TIMESTAMP '1970-01-01'"


@dataclass(frozen=True)
class StreamQuery:
    """One question in two dialects; ``is_ordered`` if the order of rows is part of the answer."""

    text: str
    plain: str
    params: list[Any]
    is_ordered: bool = False


class StreamQueries(Queries):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._marks: list[tuple[str, str]] = []
        self._is_ordered = False

    def take(self) -> StreamQuery:
        self.params, self._marks, self._is_ordered = [], [], False
        shapes = _SHAPES if self.rng.random() < 0.4 else _STREAM_SHAPES
        text, params = renumbered(self.rng.choice(shapes)(self), self.params)
        ours = _MARK.sub(lambda found: self._marks[int(found[1])][0], text)
        plain = _MARK.sub(lambda found: self._marks[int(found[1])][1], text)
        return StreamQuery(ours, plain, params, self._is_ordered)

    def _either(self, ours: str, plain: str) -> str:
        """A piece of a query that is written in one way here and in another there."""
        self._marks.append((ours, plain))
        return f"\x00{len(self._marks) - 1}\x00"

    def seq(self, alias: str = "") -> str:
        dot = f"{alias}." if alias else ""
        return self._either(f"{dot}_seq", f"({dot}rowid + 1)")

    # -- sources: what stands in FROM, with the alias x

    def window(self) -> tuple[str, list[str]]:
        """A stream window and the columns it adds."""
        form = self.rng.choice((_tumble, _tumble, _hop, _session, _recent, _recent_rows))
        ours, plain, added = form(self)
        return f"{self._either(ours, plain)} x", added

    def source(self) -> tuple[str, list[str]]:
        """Rows in which x.id is unique, within a window at least."""
        chance = self.rng.random()
        if chance < 0.4:
            return f"{self.table()} x", []
        if chance < 0.6:
            kind = self.rng.choice(("JOIN", "LEFT JOIN"))
            return f"s x {kind} c y ON x.k = y.k AND y.label = 'x'", ["y.label"]
        if chance < 0.7:
            return f"(SELECT * FROM s z WHERE {self.condition('z', 2)}) x", []
        source, added = self.window()
        return source, [f"x.{name}" for name in added]

    # -- shapes

    def aggregated(self) -> str:
        rng = self.rng
        source, added = self.source()
        keys = rng.sample(_KEYS, rng.choice((0, 1, 1, 1, 2)))
        if "x.window_start" in added:
            keys = ["x.window_start", *keys[:1]]
        elif added and rng.random() < 0.5:
            keys = [*added, *keys[:1]]
        items = [f"{key} AS g{at}" for at, key in enumerate(keys)]
        items += [f"{self.aggregate()} AS a{at}" for at in range(rng.choice((1, 2, 3, 5)))]
        where = f" WHERE {self.condition('x', 1)}" if rng.random() < 0.5 else ""
        group = self._group(keys)
        having = f" HAVING {rng.choice(_HAVING)}" if group and rng.random() < 0.25 else ""
        text = f"SELECT {', '.join(items)} FROM {source}{where}{group}{having}"
        return self._above(text, len(keys), "GROUPING" in group or "ROLLUP" in group)

    def aggregate(self) -> str:
        form = self.rng.choice(_AGGREGATES)
        if form.endswith(")") and form.count("(") == 1 and self.rng.random() < 0.2:
            form += f" FILTER (WHERE {self.condition('x', 2)})"
        return form

    def _group(self, keys: list[str]) -> str:
        if not keys:
            return ""
        names = ", ".join(keys)
        numbers = ", ".join(str(at) for at in range(1, len(keys) + 1))
        forms = [names, names, numbers, "ALL"]
        if len(keys) == 2:
            forms += [f"ROLLUP ({names})", f"GROUPING SETS (({keys[0]}), ({keys[1]}), ())"]
        return f" GROUP BY {self.rng.choice(forms)}"

    def _above(self, text: str, keys: int, has_sets: bool) -> str:
        """A grouped query as it is, or with its best rows only, or inside another."""
        rng = self.rng
        chance = rng.random()
        names = [f"g{at}" for at in range(keys)]
        if chance < 0.35:
            return text
        if chance < 0.6 and keys and not has_sets:
            self._is_ordered = True
            order = ", ".join(f"{name}{rng.choice(('', ' DESC'))}" for name in names)
            best = rng.choice(("", "count(*) DESC, ", "max(x.id), ", "sum(x.d) NULLS FIRST, "))
            offset = rng.choice(("", " OFFSET 2"))
            return f"{text} ORDER BY {best}{order} LIMIT {rng.randrange(1, 9)}{offset}"
        if chance < 0.7:
            return f"WITH q AS ({text}) SELECT * FROM q WHERE a0 IS NOT NULL"
        if chance < 0.8:
            return f"SELECT count(*), count(a0) FROM ({text}) q"
        if chance < 0.9 and keys:
            on = "CAST(c.k AS VARCHAR) = CAST(q.g0 AS VARCHAR)"
            return f"WITH q AS ({text}) SELECT q.*, c.label FROM q LEFT JOIN c ON {on}"
        return f"SELECT DISTINCT * FROM ({text}) q"

    def windowed_rows(self) -> str:
        source, added = self.window()
        columns = self.rng.choice(("*", "x.id, x.k", ", ".join(["x.id", *added])))
        return f"SELECT {columns} FROM {source} WHERE {self.condition('x', 1)}"

    def newest(self) -> str:
        """The beginning of the rows in some order."""
        self._is_ordered = True
        order = self.rng.choice(
            (
                *("ts DESC, id", "ts DESC, id DESC", "ts, id", "id DESC"),
                *("v DESC NULLS LAST, id", "name, id", "k NULLS FIRST, ts, id", "d DESC, id"),
            )
        )
        where = f"WHERE {self.condition('', 1)} " if self.rng.random() < 0.5 else ""
        columns = self.rng.choice(("*", "id, ts", "id, name, v"))
        limit, offset = self.rng.randrange(1, 30), self.rng.choice(("", "", " OFFSET 3"))
        return f"SELECT {columns} FROM {self.table()} {where}ORDER BY {order} LIMIT {limit}{offset}"

    def distinct(self) -> str:
        rng = self.rng
        where = f" WHERE {self.condition('', 1)}" if rng.random() < 0.5 else ""
        columns = rng.choice(("k", "k, name", "day, flag", "date_trunc('hour', ts) AS t", "h", "u"))
        text = f"SELECT DISTINCT {columns} FROM {self.table()}{where}"
        if rng.random() < 0.4:
            self._is_ordered = True
            return f"{text} ORDER BY ALL LIMIT {rng.randrange(1, 12)}"
        if rng.random() < 0.3:
            return f"SELECT DISTINCT ON (k) k, id, name FROM s{where} ORDER BY k, ts, id"
        return text

    def numbered(self) -> str:
        """Queries that name the hidden column."""
        rng = self.rng
        low = rng.randrange(400)
        where = self.condition("x", 2)
        seq = self.seq("x")
        chance = rng.randrange(7)
        if chance == 0:
            self._is_ordered = True
            return f"SELECT {seq} AS n, x.id FROM s x WHERE {where} ORDER BY {seq} DESC LIMIT 5"
        forms = (
            f"SELECT x.id FROM s x WHERE {seq} BETWEEN {low} AND {low + 60} AND {where}",
            f"SELECT * FROM s x WHERE {seq} > {low} AND {where}",
            f"SELECT max({seq}), min({seq}), count(*) FROM s x WHERE {where}",
            f"SELECT x.id, y.id FROM s x JOIN s y ON {seq} = {self.seq('y')} + 1 WHERE {where}",
            f"SELECT x.k, arg_max(x.name, {seq}), max({seq}) FROM s x WHERE {where} GROUP BY x.k",
            f"SELECT x.id, {seq} % 7 AS n FROM s x WHERE {seq} IN (1, {low}, 499, 500, 501)",
        )
        return forms[chance - 1]

    def counted(self) -> str:
        """Several queries over one table, of which each may be split by itself."""
        one, two = self.condition("", 1), self.condition("", 1)
        return self.rng.choice(
            (
                f"SELECT (SELECT count(*) FROM s WHERE {one}), (SELECT max(id) FROM r WHERE {two})",
                f"SELECT count(*) FROM s WHERE {one} UNION ALL SELECT count(*) FROM s WHERE {two}",
                f"WITH a AS (SELECT k, count(*) AS n FROM s WHERE {one} GROUP BY k), b AS (SELECT "
                f"k, sum(d) AS t FROM r WHERE {two} GROUP BY k) "
                "SELECT * FROM a FULL JOIN b USING (k)",
                f"SELECT k, n, sum(n) OVER (ORDER BY k) AS t FROM (SELECT k, count(*) AS n FROM s "
                f"WHERE {one} GROUP BY k)",
                f"SELECT k, count(*) FROM (SELECT k FROM s WHERE {one} UNION ALL SELECT k FROM r "
                f"WHERE {two}) GROUP BY k",
            )
        )


_STREAM_SHAPES: tuple[Callable[[StreamQueries], str], ...] = (
    StreamQueries.aggregated,
    StreamQueries.aggregated,
    StreamQueries.aggregated,
    StreamQueries.aggregated,
    StreamQueries.windowed_rows,
    StreamQueries.newest,
    StreamQueries.distinct,
    StreamQueries.numbered,
    StreamQueries.counted,
)

_KEYS = (
    *("x.k", "x.name", "x.flag", "x.day", "x.h", "x.u", "x.tiny % 4"),
    *("date_trunc('hour', x.ts)", "time_bucket(INTERVAL '15 minutes', x.ts)", "(x.d > 0)"),
    *("CASE WHEN x.k < 5 THEN 'few' ELSE 'many' END", "coalesce(x.k, -1)", "x.v"),
)
_HAVING = ("count(*) > 2", "max(x.id) > 100", "sum(x.d) > 0", "min(x.k) IS NOT NULL")
_AGGREGATES = (
    *("count(*)", "count(x.v)", "count(DISTINCT x.h)", "count(DISTINCT x.name)", "sum(x.k)"),
    *("sum(x.d)", "sum(x.v)", "sum(x.h)", "avg(x.tiny)", "avg(x.d)", "avg(x.k)", "min(x.ts)"),
    *("max(x.ts)", "min(x.name)", "max(x.name)", "min(x.v)", "max(x.v)", "min(x.u)", "max(x.d)"),
    *("min(x.tz)", "max(x.day)", "min(x.f)", "max(x.flag)", "bool_and(x.flag)", "bool_or(x.flag)"),
    *("var_pop(x.tiny)", "var_samp(x.d)", "variance(x.k)", "stddev(x.tiny)", "stddev_pop(x.d)"),
    *("covar_pop(x.k, x.tiny)", "covar_samp(x.k, x.tiny)", "corr(x.tiny, x.id)"),
    *("regr_slope(x.tiny, x.id)", "regr_count(x.k, x.tiny)", "regr_avgx(x.k, x.tiny)"),
    *("any_value(x.name ORDER BY x.id)", "first(x.name ORDER BY x.ts, x.id)"),
    *("last(x.k ORDER BY x.ts, x.id)", "first(x.d ORDER BY x.id DESC)", "arg_min(x.name, x.id)"),
    *("arg_max(x.k, x.id)", "max_by(x.ts, x.id)", "arg_max(x.id, x.id, 3)", "min(x.id, 3)"),
    *("max(x.tiny, 2)", "string_agg(x.name, ',' ORDER BY x.id)", "list(x.k ORDER BY x.id DESC)"),
    *("list(DISTINCT x.k ORDER BY x.k)", "array_agg(x.name ORDER BY x.ts, x.id)", "histogram(x.k)"),
    *("histogram(x.name)", "histogram(x.flag)", "median(x.tiny)", "quantile_cont(x.tiny, 0.25)"),
    *("quantile_disc(x.k, [0.1, 0.9])", "count_if(x.flag)", "bit_xor(x.k)", "bit_or(x.h)"),
    *("sum(DISTINCT x.tiny)", "avg(DISTINCT x.k)", "sum(x.k + x.tiny)", "max(x.id) - min(x.id)"),
    *("sum(x.d) / count(*)", "coalesce(sum(x.k), 0)", "round(avg(x.k), 2)", "count(*) + 1"),
    *("sum(CASE WHEN x.flag THEN 1 ELSE 0 END)", "max(length(x.name))", "skewness(x.tiny)"),
    *("max(date_trunc('minute', x.ts))", "list(x.id ORDER BY x.id)[1:3]", "entropy(x.k)"),
)


# -- windows: our text, the plain one, and the columns that the window adds


def _tumble(queries: StreamQueries) -> tuple[str, str, list[str]]:
    size = queries.rng.choice(("1 minute", "7 seconds", "30 minutes", "1 hour", "1 day"))
    step = f"INTERVAL '{size}'"
    plain = (
        f"(SELECT *, time_bucket({step}, ts, {_EPOCH}) AS window_start, "
        f"window_start + {step} AS window_end FROM s)"
    )
    return f"TUMBLE(s, ts, {step})", plain, ["window_start", "window_end"]


def _hop(queries: StreamQueries) -> tuple[str, str, list[str]]:
    minutes, times = queries.rng.choice(((5, 3), (10, 6), (60, 2), (15, 4)))
    slide, size = f"INTERVAL '{minutes} minutes'", f"INTERVAL '{minutes * times} minutes'"
    plain = (
        f"(SELECT t.*, time_bucket({slide}, ts, {_EPOCH}) - g.i * {slide} AS window_start, "
        f"window_start + {size} AS window_end FROM s t, range({times}) g(i))"
    )
    return f"HOP(s, ts, {slide}, {size})", plain, ["window_start", "window_end"]


def _session(queries: StreamQueries) -> tuple[str, str, list[str]]:
    gap = f"INTERVAL '{queries.rng.choice((20, 40, 90))} seconds'"
    by = queries.rng.choice(("", "k", "name"))
    ours = f"SESSION(s, ts, {gap}{f', partition_by => {by}' if by else ''})"
    over = f"{f'PARTITION BY {by} ' if by else ''}ORDER BY ts, tm_at"
    begins = f"ts - lag(ts) OVER ({over}) < {gap}"
    numbered = f"SELECT *, CASE WHEN {begins} THEN 0 ELSE 1 END AS tm_new FROM tm_rows"
    plain = (
        f"(WITH tm_rows AS (SELECT *, rowid AS tm_at FROM s), tm_marked AS ({numbered}), tm_all AS "
        f"(SELECT *, sum(tm_new) OVER ({over}) AS tm_nr FROM tm_marked) SELECT * EXCLUDE (tm_at, "
        f"tm_new, tm_nr), min(ts) OVER w AS window_start, max(ts) OVER w + {gap} AS window_end "
        f"FROM tm_all WINDOW w AS (PARTITION BY tm_nr{f', {by}' if by else ''}))"
    )
    return ours, plain, ["window_start", "window_end"]


def _recent(queries: StreamQueries) -> tuple[str, str, list[str]]:
    span = f"INTERVAL '{queries.rng.choice((1, 10, 45, 90, 200, 1_000))} minutes'"
    table = queries.table()
    plain = f"(SELECT * FROM {table} WHERE ts >= (SELECT max(ts) FROM {table}) - {span})"
    return f"RECENT({table}, {span})", plain, []


def _recent_rows(queries: StreamQueries) -> tuple[str, str, list[str]]:
    count = queries.rng.choice((1, 3, 50, 300, 2_000))
    by = queries.rng.choice(("", "", "k", "name", "flag"))
    if not by:
        plain = f"(SELECT * FROM s ORDER BY ts DESC, rowid DESC LIMIT {count})"
        return f"RECENT(s, rows => {count})", plain, []
    plain = (
        f"(SELECT * FROM s QUALIFY row_number() OVER (PARTITION BY {by} "
        f"ORDER BY ts DESC, rowid DESC) <= {count})"
    )
    return f"RECENT(s, rows => {count}, partition_by => {by})", plain, []
