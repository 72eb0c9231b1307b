"""Random streams, and random queries that can be kept as views, from a seed.

``random_stream`` draws a schema and settings, ``random_rows`` rows for it around a moment: NULL and
NaN keys, numbers at the limits of their types, empty and foreign texts, times that are late, equal
or ahead, on the night on which Berlin changes its clocks. ``ViewQueries`` writes SELECTs that are
answered in one way only: each order that decides an answer is total, and what is summed up in
floating point is a multiple of a quarter. A query has the text of the view, and

- ``query``: the same with views that it reads written out, for the warehouse to answer directly;
- ``model``: the same for a plain DuckDB with the rows in their order of arrival, in which
  ``now()`` is the moment; None where Tidemill's own windows are in it.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

# Evenings before clocks change in Berlin, at 01:00 UTC, to summer time and back.
EVENINGS = tuple(
    dt.datetime(year, month, day, 22)
    for year, march, october in ((2024, 30, 26), (2025, 29, 25), (2026, 28, 24), (2027, 27, 30))
    for month, day in ((3, march), (10, october))
)
NAMES = ("", "a", "b", "B", "it's", "ä", "日本", "a%", "zz\n", "𝄞")
REFERENCE_COLUMNS = "k BIGINT, label VARCHAR, w INTEGER"
LABELS = ("x", "y", "", "ö", None)
_INTEGERS = {
    "TINYINT": (-128, 127),
    "SMALLINT": (-(2**15), 2**15 - 1),
    "INTEGER": (-(2**31), 2**31 - 1),
    "BIGINT": (-(2**63), 2**63 - 1),
    "UBIGINT": (0, 2**64 - 1),
    "HUGEINT": (-(10**37), 10**37),
}
_NAN, _INF = float("nan"), float("inf")

# Columns of every stream, of a type that the seed chooses.
_KINDS: dict[str, tuple[str, ...]] = {
    "id": ("BIGINT NOT NULL",),
    "ts": ("TIMESTAMP", "TIMESTAMPTZ"),
    "k": ("INTEGER", "BIGINT", "SMALLINT", "TINYINT"),
    "n": ("BIGINT", "UBIGINT", "INTEGER", "HUGEINT"),
    "g": ("VARCHAR",),
    "d": ("DECIMAL(9,2)", "DECIMAL(18,4)", "DECIMAL(4,1)"),
    "e": ("DECIMAL(38,0)", "DECIMAL(38,10)", "DECIMAL(18,0)"),
    "v": ("DOUBLE", "FLOAT"),
    "flag": ("BOOLEAN",),
    "day": ("DATE",),
    "seen": ("TIMESTAMP", "TIMESTAMPTZ"),
}


@dataclass(frozen=True)
class Stream:
    """A streaming table of a random history."""

    name: str
    kinds: dict[str, str]
    settings: dict[str, str]
    has_key: bool

    @property
    def create(self) -> str:
        columns = [f"{name} {kind}" for name, kind in self.kinds.items()]
        columns += ["PRIMARY KEY (ts, id)"] if self.has_key else []
        columns.append("WATERMARK FOR ts AS ts - INTERVAL '1' HOUR")
        given = ", ".join(f"{key} = '{value}'" for key, value in self.settings.items())
        return f"CREATE STREAMING TABLE {self.name} ({', '.join(columns)}) WITH ({given})"

    @property
    def has_zone(self) -> bool:
        return self.kinds["ts"] == "TIMESTAMPTZ"


def random_stream(rng: random.Random, name: str) -> Stream:
    kinds = {column: rng.choice(found) for column, found in _KINDS.items()}
    has_key = rng.random() < 0.25
    settings = {
        "partition": rng.choice(("1 hour", "6 hours", "1 day")),
        "clock": rng.choice(("wall", "event")),
        "retention": rng.choice(("forever", "forever", "forever", "2 hours")),
        "late": rng.choice(("accept", "accept", "divert")),
        "durability": "none",
        "move": "manual",
    }
    if has_key:
        settings["on_conflict"] = "ignore"
    return Stream(name, kinds, settings, has_key)


def random_rows(
    rng: random.Random, stream: Stream, count: int, first_id: int, now: dt.datetime
) -> list[dict[str, Any]]:
    """Rows in their order of arrival; ``id`` counts on from ``first_id``."""
    return [_row(rng, stream, first_id + at, now) for at in range(count)]


def random_reference(rng: random.Random, count: int) -> list[tuple[Any, ...]]:
    """Rows of a reference table: keys occur once, or not at all."""
    keys = rng.sample((*range(-3, 12), None), min(count, 16))
    return [(k, rng.choice(LABELS), rng.choice((None, *range(5)))) for k in keys]


def _row(rng: random.Random, stream: Stream, number: int, now: dt.datetime) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.1 else value

    moment = now - dt.timedelta(seconds=_age_s(rng))
    if rng.random() < 0.3:
        moment += dt.timedelta(microseconds=rng.randrange(-3, 1_000_000))
    low, high = _INTEGERS[stream.kinds["n"]]
    at = moment - dt.timedelta(minutes=rng.randrange(3 * 60))
    return {
        "id": number,
        "ts": _zoned(moment, stream.kinds["ts"]),
        "k": maybe(rng.randrange(-3, 9)),
        "n": maybe(rng.choice((low, high, 0, 1, 2, high // 3, low // 7))),
        "g": maybe(rng.choice(NAMES)),
        "d": maybe(_decimal(rng, stream.kinds["d"])),
        "e": maybe(_decimal(rng, stream.kinds["e"])),
        "v": maybe(rng.choice((_NAN, -0.0, 0.0, 0.25, 1.5, -7.75, 100.0, _INF))),
        "flag": maybe(rng.random() < 0.5),
        "day": maybe(now.date() - dt.timedelta(days=rng.randrange(4))),
        "seen": maybe(_zoned(at, stream.kinds["seen"])),
    }


def _age_s(rng: random.Random) -> int:
    """How old a row is when it arrives: mostly minutes, some hours; some are of the future."""
    chance = rng.random()
    if chance < 0.7:
        return rng.randrange(0, 600)
    if chance < 0.85:
        return rng.choice((0, 60, 300, 900, 3_600))
    if chance < 0.97:
        return rng.randrange(0, 5 * 3_600)
    return -rng.randrange(1, 1_200)


def _zoned(moment: dt.datetime, kind: str) -> dt.datetime:
    return moment.replace(tzinfo=dt.UTC) if kind == "TIMESTAMPTZ" else moment


def _decimal(rng: random.Random, kind: str) -> Decimal:
    digits, scale = map(int, kind.removeprefix("DECIMAL(").rstrip(")").split(","))
    most = 10**digits - 1
    number = rng.choice((most, -most, 0, 1, -1, rng.randrange(-400, 400), most // 3))
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


@dataclass(frozen=True)
class ViewQuery:
    """What a view is made of. ``columns`` are the names of its answer's columns."""

    text: str
    query: str
    model: str | None
    columns: tuple[str, ...]
    is_ordered: bool = False


@dataclass(frozen=True)
class _Source:
    """What stands in FROM under the alias x."""

    text: str
    model: str | None
    added: tuple[str, ...] = ()
    keys: tuple[str, ...] | None = None  # it can be grouped by these alone, and not filtered


class ViewQueries:
    """Writes queries over some streams and the reference table ``r``."""

    def __init__(self, rng: random.Random, streams: Sequence[Stream], start: dt.datetime) -> None:
        self.rng = rng
        self.start = start
        self.streams = {stream.name: stream for stream in streams}

    def take(self, views: dict[str, ViewQuery]) -> tuple[ViewQuery, str | None]:
        """A query, and the view that it reads, if it reads one."""
        if views and self.rng.random() < 0.2:
            name = self.rng.choice(sorted(views))
            return self.over_view(name, views[name]), name
        return self.rng.choice(_SHAPES)(self), None

    # -- pieces

    def stream(self) -> Stream:
        return self.rng.choice(tuple(self.streams.values()))

    def condition(self, alias: str = "x") -> str:
        text = self.rng.choice(_CONDITIONS)
        if self.rng.random() < 0.25:
            text = f"({text} {self.rng.choice(('AND', 'OR'))} {self.rng.choice(_CONDITIONS)})"
        text = text.replace("{start}", str(self.start)).replace("{day}", str(self.start.date()))
        return text.replace("x.", f"{alias}." if alias else "")

    def now_condition(self, stream: Stream) -> str:
        """A filter that time alone makes true or false."""
        text = self.rng.choice(_NOW_CONDITIONS)
        if not stream.has_zone:
            text = text.replace("now()", "CAST(now() AS TIMESTAMP)")
        return text

    def where(self, stream: Stream) -> str:
        filters = [self.condition()] if self.rng.random() < 0.3 else []
        if self.rng.random() < 0.25:
            filters.append(self.now_condition(stream))
        return f" WHERE {' AND '.join(filters)}" if filters else ""

    def aggregate(self) -> str:
        text = self.rng.choice(_AGGREGATES)
        if text.endswith(")") and text.count("(") == 1 and self.rng.random() < 0.2:
            text += f" FILTER (WHERE {self.condition()})"
        return text

    def source(self, stream: Stream) -> _Source:
        chance = self.rng.random()
        name = stream.name
        if chance < 0.45:
            return _Source(f"{name} x", f"{name} x")
        if chance < 0.55:
            return self.joined(name)
        if chance < 0.6:
            inner = (
                f"(SELECT {', '.join(stream.kinds)} FROM {name} z WHERE {self.condition('z')}) x"
            )
            return _Source(inner, inner)
        return self.rng.choice(_WINDOWS)(self, stream)

    def joined(self, name: str) -> _Source:
        """Rows with their partners of a reference table."""
        kind = self.rng.choice(("JOIN", "LEFT JOIN"))
        more = self.rng.choice(("", "", " AND y.w > 0"))
        text = f"{name} x {kind} r y ON x.k = y.k{more}"
        return _Source(text, text, ("y.label",))

    # -- shapes

    def grouped(self, keys_max: int = 3) -> ViewQuery:
        """``SELECT keys AS g0 …, aggregates AS a0 … FROM … GROUP BY``."""
        rng = self.rng
        stream = self.stream()
        source = self.source(stream)
        keys = self.keys(source, keys_max)
        items = [f"{key} AS g{at}" for at, key in enumerate(keys)]
        aggregates = [self.aggregate() for _ in range(rng.choice((1, 2, 2, 3, 5)))]
        if keys and source.keys is None and rng.random() < 0.1:
            aggregates.append(f"any_value({rng.choice(keys)})")
        items += [f"{text} AS a{at}" for at, text in enumerate(aggregates)]
        where = self.where(stream) if source.keys is None else ""
        group = self.group_by(keys)
        having = f" HAVING {rng.choice(_HAVING)}" if keys and rng.random() < 0.2 else ""
        text = f"SELECT {', '.join(items)} FROM {source.text}{where}{group}{having}"
        model = None
        if source.model is not None:
            model = text.replace(f"FROM {source.text}", f"FROM {source.model}", 1)
        columns = tuple(item.rpartition(" AS ")[2] for item in items)
        return ViewQuery(text, text, model, columns)

    def keys(self, source: _Source, keys_max: int) -> list[str]:
        rng = self.rng
        if source.keys is not None:
            return list(source.keys[:keys_max])
        keys = rng.sample(_KEYS, min(rng.choice((0, 1, 1, 1, 2, 2, 3)), keys_max))
        if "x.window_start" in source.added:
            return ["x.window_start", *keys[: max(0, keys_max - 1)]]
        if source.added and rng.random() < 0.7:
            return [*source.added, *keys[: max(0, keys_max - 1)]]
        return keys

    def group_by(self, keys: Sequence[str]) -> str:
        if not keys:
            return ""
        numbers = ", ".join(str(at) for at in range(1, len(keys) + 1))
        return f" GROUP BY {self.rng.choice((', '.join(keys), numbers, 'ALL'))}"

    def best(self) -> ViewQuery:
        """Groups in an order of their own, the first of them."""
        query = self.grouped(2)
        keys = [name for name in query.columns if name.startswith("g")]
        if not keys:
            return query
        order = ", ".join(
            f"{name}{self.rng.choice(('', ' DESC', ' NULLS FIRST'))}" for name in keys
        )
        first = self.rng.choice(("", "count(*) DESC, ", "max(x.id), ", "min(x.ts) DESC, "))
        offset = self.rng.choice(("", "", " OFFSET 1"))
        tail = f" ORDER BY {first}{order} LIMIT {self.rng.randrange(1, 7)}{offset}"
        return replace(_with(query, "{}" + tail), is_ordered=True)

    def wrapped(self) -> ViewQuery:
        """Groups inside another query."""
        query = self.grouped(2)
        rng = self.rng
        form, columns = rng.choice(
            (
                ("WITH w AS ({}) SELECT * FROM w WHERE a0 IS NOT NULL", query.columns),
                ("SELECT count(*) AS n, count(a0) AS m FROM ({}) w", ("n", "m")),
                ("SELECT DISTINCT * FROM ({}) w", query.columns),
                ("SELECT *, count(*) OVER () AS c FROM ({}) w", (*query.columns, "c")),
            )
        )
        return replace(_with(query, form), columns=columns)

    def joined_above(self) -> ViewQuery:
        """Groups with reference rows: these the view follows."""
        query = self.grouped(2)
        if not any(name.startswith("g") for name in query.columns):
            return query
        kind = self.rng.choice(("JOIN", "LEFT JOIN"))
        on = "CAST(y.k AS VARCHAR) = CAST(w.g0 AS VARCHAR)"
        form = f"SELECT w.*, y.label AS l FROM ({{}}) w {kind} r y ON {on}"
        return replace(_with(query, form), columns=(*query.columns, "l"))

    def joined_groups(self) -> ViewQuery:
        """Two grouped streams, joined by their first keys."""
        one, two = self.side("x.k"), self.side("x.k")
        kind = self.rng.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
        form = f"SELECT o.g0, o.a0, p.a0 AS b0 FROM ({{}}) o {kind} ({{}}) p ON o.g0 = p.g0"
        return replace(_both(one, two, form), columns=("g0", "a0", "b0"))

    def united(self) -> ViewQuery:
        """UNION, INTERSECT or EXCEPT of groups."""
        one, two = self.side("x.g", "count(*)"), self.side("x.g", "count(*)")
        word = self.rng.choice(("UNION", "UNION ALL", "INTERSECT", "EXCEPT"))
        return _both(one, two, f"{{}} {word} {{}}")

    def side(self, key: str, aggregate: str = "") -> ViewQuery:
        """One grouped input, with one key and one aggregate."""
        name = self.stream().name
        where = f" WHERE {self.condition()}" if self.rng.random() < 0.6 else ""
        text = (
            f"SELECT {key} AS g0, {aggregate or self.aggregate()} AS a0 FROM {name} x{where} "
            "GROUP BY 1"
        )
        return ViewQuery(text, text, text, ("g0", "a0"))

    def distinct(self) -> ViewQuery:
        rng = self.rng
        stream = self.stream()
        columns = rng.choice(("x.k AS g0", "x.k AS g0, x.g AS g1", "x.day AS g0, x.flag AS g1"))
        text = f"SELECT DISTINCT {columns} FROM {stream.name} x{self.where(stream)}"
        return ViewQuery(text, text, text, ("g0", "g1")[: columns.count("g") or 1])

    def newest(self) -> ViewQuery:
        """The first rows in some order, of all or of each key."""
        rng = self.rng
        name = self.stream().name
        order = rng.choice(("x.ts DESC, x.id", "x.id", "x.k NULLS FIRST, x.id", "x.e DESC, x.id"))
        where = f" WHERE {self.condition()}" if rng.random() < 0.4 else ""
        text = f"SELECT x.id AS g0, x.g AS a0, x.ts AS a1 FROM {name} x{where}"
        columns = ("g0", "a0", "a1")
        if rng.random() < 0.5:
            text += f" ORDER BY {order} LIMIT {rng.randrange(1, 8)}"
            return ViewQuery(text, text, text, columns, is_ordered=True)
        by, count = rng.choice(("x.k", "x.g", "x.flag")), rng.randrange(1, 3)
        text += f" QUALIFY row_number() OVER (PARTITION BY {by} ORDER BY {order}) <= {count}"
        return ViewQuery(text, text, text, columns)

    def over_view(self, name: str, view: ViewQuery) -> ViewQuery:
        first = view.columns[0]
        form, columns = self.rng.choice(
            (
                (f"SELECT {first} AS g0, count(*) AS b0 FROM {{}} b GROUP BY 1", ("g0", "b0")),
                (f"SELECT count({first}) AS n, count(*) AS m FROM {{}} b", ("n", "m")),
                (f"SELECT * FROM {{}} b WHERE {first} IS NOT NULL", view.columns),
                (f"SELECT b.{first} AS g0, (b.{first} IS NULL) AS b0 FROM {{}} b", ("g0", "b0")),
            )
        )
        model = form.replace("{}", f"({view.model})") if view.model is not None else None
        return ViewQuery(
            form.replace("{}", f'"{name}"'),
            form.replace("{}", f"({view.query})"),
            model,
            columns,
        )


def _with(query: ViewQuery, form: str) -> ViewQuery:
    """A query put into another, where that has ``{}``."""
    model = form.replace("{}", query.model) if query.model is not None else None
    return replace(
        query,
        text=form.replace("{}", query.text),
        query=form.replace("{}", query.query),
        model=model,
    )


def _both(one: ViewQuery, two: ViewQuery, form: str) -> ViewQuery:
    def put(first: str | None, second: str | None) -> str | None:
        if first is None or second is None:
            return None
        return form.replace("{}", first, 1).replace("{}", second, 1)

    text, query = put(one.text, two.text), put(one.query, two.query)
    assert text is not None
    assert query is not None
    return ViewQuery(text, query, put(one.model, two.model), one.columns)


# -- windows


def _tumble(queries: ViewQueries, stream: Stream) -> _Source:
    size = queries.rng.choice(("1 minute", "7 seconds", "30 minutes", "1 hour", "1 day"))
    return _window(f"TUMBLE({stream.name}, ts, INTERVAL '{size}') x")


def _hop(queries: ViewQueries, stream: Stream) -> _Source:
    minutes, times = queries.rng.choice(((5, 3), (10, 6), (60, 2)))
    slide, size = f"INTERVAL '{minutes} minutes'", f"INTERVAL '{minutes * times} minutes'"
    return _window(f"HOP({stream.name}, ts, {slide}, {size}) x")


def _session(queries: ViewQueries, stream: Stream) -> _Source:
    gap = f"INTERVAL '{queries.rng.choice((20, 90, 600))} seconds'"
    by = queries.rng.choice(("", "", "k", "g"))
    more = f", partition_by => {by}" if by else ""
    keys = ("x.window_start", *((f"x.{by}",) if by else ()), "x.window_end")
    text = f"SESSION({stream.name}, ts, {gap}{more}) x"
    return _Source(text, None, keys=keys)


def _window(text: str) -> _Source:
    return _Source(text, None, ("x.window_start", "x.window_end"))


def _recent(queries: ViewQueries, stream: Stream) -> _Source:
    span = queries.rng.choice(("1 minute", "10 minutes", "45 minutes", "90 minutes", "1 day"))
    return _Source(f"RECENT({stream.name}, INTERVAL '{span}') x", None)


def _recent_rows(queries: ViewQueries, stream: Stream) -> _Source:
    count = queries.rng.choice((1, 3, 20, 300))
    by = queries.rng.choice(("", "", "k", "g", "flag"))
    more = f", partition_by => {by}" if by else ""
    return _Source(f"RECENT({stream.name}, rows => {count}{more}) x", None)


_WINDOWS: tuple[Callable[[ViewQueries, Stream], _Source], ...] = (
    *(_tumble, _tumble, _hop, _session, _recent, _recent, _recent_rows),
)
_SHAPES: tuple[Callable[[ViewQueries], ViewQuery], ...] = (
    *(ViewQueries.grouped,) * 6,
    *(ViewQueries.best,) * 2,
    *(ViewQueries.wrapped,) * 2,
    *(ViewQueries.joined_above, ViewQueries.joined_groups, ViewQueries.united),
    *(ViewQueries.distinct, ViewQueries.newest),
)
_BERLIN = "AT TIME ZONE 'Europe/Berlin'"
_KEYS = (
    *("x.k", "x.g", "x.flag", "x.day", "x.n", "x.e", "x.v", "x.d", "x.seen", "x.k % 3"),
    *("date_trunc('hour', x.ts)", "date_trunc('day', x.ts)", "(x.d > 0)", "coalesce(x.k, -1)"),
    *("time_bucket(INTERVAL '15 minutes', x.ts)", "CASE WHEN x.k < 5 THEN 'few' ELSE 'many' END"),
    *(f"date_trunc('hour', CAST(x.ts AS TIMESTAMPTZ) {_BERLIN})", "length(x.g)", "lower(x.g)"),
    *(f"date_trunc('day', CAST(x.ts AS TIMESTAMPTZ) {_BERLIN})", "CAST(x.ts AS DATE)"),
)
_CONDITIONS = (
    *("x.k < 5", "x.k IS NOT NULL", "x.flag", "NOT x.flag", "x.g <> ''", "x.d >= 0", "x.n > 1"),
    *("x.g IN ('a', 'b', 'ä')", "x.day >= DATE '{day}'", "x.v > 1", "x.k IS NULL"),
    *("x.ts >= TIMESTAMP '{start}'", "x.k BETWEEN 0 AND 6", "x.e <> 0"),
)
_NOW_CONDITIONS = (
    *("x.ts > now() - INTERVAL '10 minutes'", "x.ts >= now() - INTERVAL '1 hour'"),
    *("date_trunc('day', x.ts) = date_trunc('day', now())", "x.ts <= now()"),
    *("date_trunc('hour', x.ts) = date_trunc('hour', now())",),
    *("x.ts BETWEEN now() - INTERVAL '30 minutes' AND now()",),
    *("x.ts >= now() - INTERVAL '90 seconds' AND x.ts < now()",),
)
_HAVING = ("count(*) > 2", "max(x.id) > 20", "min(x.k) IS NOT NULL", "sum(x.k) > 0")
_AGGREGATES = (
    *("count(*)", "count(*)", "count(x.v)", "sum(x.k)", "sum(x.k)", "sum(x.d)", "sum(x.v)"),
    *("avg(x.k)", "avg(x.d)", "min(x.ts)", "max(x.ts)", "min(x.g)", "max(x.g)", "min(x.v)"),
    *("max(x.v)", "min(x.n)", "max(x.n)", "min(x.e)", "max(x.e)", "max(x.d)", "min(x.k)"),
    *("max(x.k)", "min(x.day)", "max(x.seen)", "max(x.flag)", "bool_and(x.flag)"),
    *("bool_or(x.flag)", "var_pop(x.k)", "var_samp(x.k)", "stddev(x.k)", "stddev_pop(x.k)"),
    *("covar_pop(x.k, x.id)", "covar_samp(x.k, x.id)", "corr(x.k, x.id)"),
    *("regr_slope(x.k, x.id)", "regr_count(x.k, x.id)", "regr_avgx(x.k, x.id)"),
    *("first(x.g ORDER BY x.ts, x.id)", "last(x.k ORDER BY x.ts, x.id)", "arg_min(x.g, x.id)"),
    *("arg_max(x.k, x.id)", "arg_max(x.ts, x.id)", "count(DISTINCT x.k)", "count(DISTINCT x.g)"),
    *("count(DISTINCT x.v)", "count(DISTINCT x.n)", "sum(DISTINCT x.k)", "histogram(x.k)"),
    *("histogram(x.g)", "approx_count_distinct(x.id)", "approx_count_distinct(x.g)"),
    *("list(x.k ORDER BY x.id DESC)", "string_agg(x.g, ',' ORDER BY x.id)", "bit_xor(x.k)"),
    *("list(x.g ORDER BY x.ts, x.id)", "max(x.id, 3)", "min(x.n, 2)"),
    *("approx_quantile(x.k, 0.5) BETWEEN min(x.k) AND max(x.k)", "count_if(x.flag)"),
    *("sum(x.k) / count(*)", "coalesce(sum(x.k), 0)", "count(*) + 1", "round(avg(x.k), 2)"),
    *("sum(CASE WHEN x.flag THEN 1 ELSE 0 END)", "max(length(x.g))", "max(x.id) - min(x.id)"),
)
