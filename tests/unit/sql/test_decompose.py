"""Decomposition: parts, merged and finished, must give what DuckDB gives on everything.

The differential test writes random queries, splits random rows into parts, runs the partial on each
(handing results over as Arrow, as the engine does), merges some of them first, and compares with
the query itself: rows, names and types. Every order in the queries is total, numbers are multiples
of a quarter, and arg_min and its like are asked by a unique key, so that there is one right answer.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from random_queries import COLUMN_LIST, COLUMNS, Queries, random_rows
from sqlglot import exp
from support import FakeTable, body, rewrite, to_duckdb

from tidemill.sql.decompose import (
    MERGE_SOURCE,
    Decomposition,
    NotDecomposable,
    decompose,
    sql_of,
)
from tidemill.sql.decompose.calls import AGGREGATES
from tidemill.sql.params import placeholders
from tidemill.sql.windows import NowBounds
from tidemill.types import Column, SqlType

ROWS = 150
PARTS = 4  # the last one is empty
STREAM = FakeTable(
    "s",
    tuple(Column(name, SqlType.parse(kind), name != "ts") for name, kind in COLUMNS.items()),
    "ts",
)
SPELLING = {name: name for name in (*COLUMNS, "label")}
# Computed in doubles: merging adds in another order, so the last digits may differ.
ROUNDED = (
    *("var", "stddev", "sem(", "corr", "covar", "regr_", "skewness", "kurtosis", "favg", "fsum"),
    *("product", "kahan"),
)


def streamed(node: exp.Table) -> bool:
    return node.name.lower() == "s"


def split(query: exp.Expression) -> Decomposition | NotDecomposable:
    return decompose(query, streamed, SPELLING)


class Parts:
    """Tables s (all rows), part0 … part4 (the same rows, dealt out), and two others to join."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.connection = duckdb.connect(config={"threads": 1})
        self.connection.execute("SET TimeZone = 'UTC'")
        self.connection.execute("SET arrow_lossless_conversion = true")
        rows = random_rows(self.rng, ROWS)
        self._create("s", rows)
        self._create("r", random_rows(self.rng, 40, 1000))
        self.connection.execute("CREATE TABLE c (k INTEGER, label VARCHAR)")
        self.connection.execute(
            "INSERT INTO c VALUES (1, 'x'), (2, 'y'), (3, 'a'), (3, 'b'), (NULL, 'z'), (7, NULL)"
        )
        dealt: list[list[dict[str, Any]]] = [[] for _ in range(PARTS)]
        for row in rows:
            dealt[self.rng.choice((0, 0, *range(PARTS - 1)))].append(row)
        for number, part in enumerate(dealt):
            self._create(f"part{number}", part)

    def _create(self, name: str, rows: list[dict[str, Any]]) -> None:
        self.connection.execute(f"CREATE TABLE {name} ({COLUMN_LIST}, _seq BIGINT)")
        marks = ", ".join("?" for _ in (*COLUMNS, "_seq"))
        if rows:
            values = [[*row.values(), row["id"]] for row in rows]
            self.connection.executemany(f"INSERT INTO {name} VALUES ({marks})", values)

    def run(self, text: str, tree: exp.Expression, values: dict[str, object]) -> pa.Table:
        used = {name: values[name] for name in placeholders(tree)}
        return self.connection.sql(text, params=used or None).to_arrow_table()

    def partials(
        self, parts: Decomposition, numbers: Sequence[int], values: dict[str, object]
    ) -> pa.Table:
        """The partials over some of the parts, one below the other."""
        partial = parts.partial.copy()
        (scan,) = (node for node in partial.find_all(exp.Table) if streamed(node) and node.meta)
        scan.set("alias", exp.TableAlias(this=exp.to_identifier(scan.alias_or_name)))
        scan.set("this", exp.to_identifier("part_of_s"))
        text = f"SELECT * FROM ({sql_of(partial)})"
        texts = [text.replace("part_of_s", f"part{number}") for number in numbers]
        return self.run(" UNION ALL ".join(texts), parts.partial, values)

    def merge(
        self, parts: Decomposition, tables: Sequence[pa.Table], values: dict[str, object]
    ) -> pa.Table:
        self.connection.register(MERGE_SOURCE, pa.concat_tables(tables))
        return self.run(sql_of(parts.merge), parts.merge, values)

    def answer(self, parts: Decomposition, values: dict[str, object]) -> duckdb.DuckDBPyRelation:
        """Partials, some of them or none merged first, all merged, and the final over that."""
        numbers = self.rng.sample(range(PARTS), PARTS)
        cut = self.rng.randrange(1, PARTS)
        first = self.partials(parts, numbers[:cut], values)
        rest = self.partials(parts, numbers[cut:], values)
        how = self.rng.randrange(4)
        if how == 0:
            first = self.merge(parts, [first], values)
        elif how == 1:
            rest = pa.concat_tables([rest, self.merge(parts, [first.slice(0, 0)], values)])
        self.connection.register(MERGE_SOURCE, self.merge(parts, [first, rest], values))
        used = {name: values[name] for name in placeholders(parts.final)}
        return self.connection.sql(sql_of(parts.final), params=used or None)


@pytest.fixture(scope="module")
def parts() -> Iterator[Parts]:
    made = Parts(5)
    yield made
    made.connection.close()


def same(left: object, right: object, is_rounded: bool) -> bool:
    """Whether two values are one: NaN is NaN, 0.0 is -0.0, sums of doubles may differ a little."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right or (
            is_rounded and math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
        )
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        pairs = zip(left, right, strict=False)
        return len(left) == len(right) and all(same(a, b, is_rounded) for a, b in pairs)
    if isinstance(left, dict) and isinstance(right, dict):
        return same(_pairs(left), _pairs(right), is_rounded)
    return type(left) is type(right) and left == right


def _pairs(value: dict[Any, Any]) -> list[tuple[object, object]]:
    """In one order: adding 0.0 makes a key of -0.0 stand where 0.0 does."""
    return sorted(
        value.items(),
        key=lambda pair: repr(pair[0] + 0.0 if isinstance(pair[0], float) else pair[0]),
    )


def in_some_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows by what is surely the same in both answers."""

    def coarse(value: object) -> str:
        if isinstance(value, float):
            return "0" if abs(value) < 1e-6 else f"{value:.3g}"
        return "dict" if isinstance(value, dict) else repr(value).replace("-0.0", "0.0")

    return sorted(rows, key=lambda row: [coarse(value) for value in row])


def agree(parts: Parts, text: str, params: Sequence[object] = ()) -> bool:
    """Whether the query decomposes; if so, the parts must give its answer."""
    return agree_tree(parts, body(text), text, params)


def agree_tree(
    parts: Parts, query: exp.Expression, text: str, params: Sequence[object] = ()
) -> bool:
    tree, values = to_duckdb(query, params or None)
    before = tree.sql()
    found = split(tree)
    assert tree.sql() == before
    try:
        expected = parts.connection.sql(sql_of(tree), params=values or None)
        rows = expected.fetchall()
    except duckdb.Error:
        return False  # not a query, or one that fails on its rows
    if isinstance(found, NotDecomposable):
        assert found.reason
        return False
    try:
        got = parts.answer(found, values)
        assert got.columns == expected.columns
        assert got.types == expected.types
        given = got.fetchall()
        if not (isinstance(tree, exp.Select) and tree.args.get("order") is not None):
            given, rows = in_some_order(given), in_some_order(rows)
        is_rounded = any(name in text.lower() for name in ROUNDED)
        assert len(given) == len(rows)
        for left, right in zip(given, rows, strict=True):
            assert same(left, right, is_rounded), (left, right)
    except (AssertionError, duckdb.Error) as error:
        raise AssertionError("\n".join([text, *found.explain(), str(error)])) from error
    return True


# The differential test.

NUMBERS = ("k", "tiny", "d", "id", "h", "k + 1", "d * 2", "tiny * 2.5", "CASE WHEN flag THEN k END")
FINITE = ("k", "tiny", "d", "id", "tiny / 4")
ANY = (*NUMBERS, "v", "name", "ts", "day", "flag", "u", "tz", "f", "upper(name)")
AGGREGATE_FORMS = (
    *("count(*)", "count({any})", "sum({number})", "sum(v)", "avg({number})", "avg(v)", "mean(d)"),
    *("min({any})", "max({any})", "any_value(3)", "bool_and(flag)", "bool_or(k > 3)"),
    *("bit_and(k)", "bit_or(h)", "bit_xor(tiny)", "count_if(flag)", "product(k % 3 + 1.5)"),
    *("count(DISTINCT {any})", "sum(DISTINCT {number})", "avg(DISTINCT {number})"),
    *("max(DISTINCT {any})", "stddev(DISTINCT tiny)", "approx_count_distinct({any})"),
    *("var_pop({finite})", "var_samp({finite})", "variance({finite})", "stddev({finite})"),
    *("stddev_pop({finite})", "sem({finite})", "skewness({finite})", "kurtosis({finite})"),
    *("covar_pop({finite}, {finite})", "covar_samp({finite}, k)", "corr({finite}, {finite})"),
    *("regr_slope({finite}, tiny)", "regr_intercept(k, {finite})", "regr_r2(d, {finite})"),
    *("regr_count({number}, k)", "regr_avgx(k, {finite})", "regr_sxy(k, tiny)"),
    *("regr_sxx({finite}, k)", "regr_syy({finite}, k)", "regr_avgy({finite}, d)", "fsum(d)"),
    *("favg({finite})", "kurtosis_pop({finite})", "histogram({any})", "histogram(name)"),
    *("arg_min({any}, id)", "arg_max({any}, id)", "max_by(name, id)", "arg_max_null(name, id)"),
    *("arg_max({any}, id, 3)", "arg_min(name, (k, id), 4)", "max_by(d, -id, 100)"),
    *("max({any}, 3)", "min(k, 2)", "max(DISTINCT k, 3)", "min(DISTINCT tiny, 4)"),
    *("arg_min_null({any}, -id)", "first({any} ORDER BY id)", "last({any} ORDER BY ts, id)"),
    *("any_value({any} ORDER BY d DESC NULLS LAST, id)", "first(name ORDER BY flag, id DESC)"),
    *("list({any} ORDER BY id)", "array_agg(k ORDER BY name DESC NULLS FIRST, id)"),
    *("string_agg(name, '|' ORDER BY id)", "string_agg(name, '' ORDER BY day DESC, id)"),
    *("sum({number}) / count(*)", "max({number}) - min({number})", "round(avg({number}), 2)"),
    *("coalesce(sum({number}), 0)", "len(list(id ORDER BY id)) + count({any})"),
)
KEYS = (
    *("k", "name", "flag", "day", "tiny % 3", "date_trunc('hour', ts)", "v", "(k // 10)"),
    *("CASE WHEN k > 5 THEN 'big' ELSE name END", "ts::DATE", "d > 0"),
)
CONDITIONS = ("k > 3", "flag", "name <> 'a'", "d < 20 OR k IS NULL", "id % 2 = 0", "FALSE", "v > 1")
SOURCES = (
    *("s", "s", "s", "s JOIN c USING (k)", "s LEFT JOIN (SELECT k AS j, label FROM c) ON j = k"),
    *("(SELECT k AS j FROM c) RIGHT JOIN s ON j = k", "s SEMI JOIN c USING (k)"),
    *("(SELECT * FROM s WHERE k <> 4)", "(SELECT * REPLACE (k + 1 AS k) FROM s) q"),
    *("TUMBLE(s, ts, INTERVAL 30 MINUTE)", "HOP(s, ts, INTERVAL 30 MINUTE, INTERVAL 50 MINUTE) w"),
    *("RECENT(s, INTERVAL 2 HOUR)", "RECENT(s, rows => 40)"),
    *("RECENT(s, rows => 3, partition_by => name)",),
)


class GroupedQueries:
    """Aggregates of every kind, over windows and joins, grouped in every way, and used above."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def next(self) -> str:
        rng = self.rng
        source = rng.choice(SOURCES)
        pool = (*KEYS, *(("window_start",) if source.startswith(("TUM", "HOP")) else ()))
        keys = rng.sample(pool, rng.choice((0, 1, 1, 2)))
        if len(pool) > len(KEYS) and rng.random() < 0.6:
            keys = ["window_start", *keys[:1]]
        items = [f"{key} AS g{at}" if rng.random() < 0.4 else key for at, key in enumerate(keys)]
        group = self.group(items)
        items += [self.aggregate() for _ in range(rng.choice((1, 2, 3, 5)))]
        where = f" WHERE {rng.choice(CONDITIONS)}" if rng.random() < 0.4 else ""
        having = rng.choice(("", "", " HAVING count(*) > 2", " HAVING max(id) > 20 OR min(k) < 3"))
        text = f"SELECT {', '.join(items)} FROM {source}{where}{group}{having if group else ''}"
        return self.above(text, len(keys))

    def aggregate(self) -> str:
        rng = self.rng
        form = rng.choice(AGGREGATE_FORMS)
        for name, values in (("any", ANY), ("number", NUMBERS), ("finite", FINITE)):
            while f"{{{name}}}" in form:
                form = form.replace(f"{{{name}}}", rng.choice(values), 1)
        is_bare = form.endswith(")") and form.count("(") == 1
        if is_bare and rng.random() < 0.25:
            form += f" FILTER (WHERE {rng.choice(CONDITIONS)})"
        return f"{form} AS a{rng.randrange(100)}" if rng.random() < 0.4 else form

    def group(self, items: list[str]) -> str:
        if not items:
            return self.rng.choice(("", "", " GROUP BY ALL"))
        how = self.rng.choice(("all", "numbers", "names"))
        if how == "all":
            return " GROUP BY ALL"
        if how == "numbers":
            return f" GROUP BY {', '.join(str(at) for at in range(1, len(items) + 1))}"
        return f" GROUP BY {', '.join(item.rpartition(' AS ')[2] for item in items)}"

    def above(self, text: str, keys: int) -> str:
        rng = self.rng
        chance = rng.random()
        if chance < 0.4:
            return text
        if chance < 0.6 and keys:
            order = ", ".join(f"{at + 1}{rng.choice((' DESC', ''))}" for at in range(keys))
            return f"{text} ORDER BY {order} LIMIT {rng.randrange(8)} OFFSET {rng.choice((0, 2))}"
        if chance < 0.7:
            return f"SELECT count(*) AS n FROM ({text}) x"
        if chance < 0.8:
            return f"WITH x AS ({text}) SELECT * FROM x UNION ALL SELECT * FROM x"
        if chance < 0.9:
            return f"SELECT DISTINCT * FROM ({text}) x"
        return f"SELECT *, (SELECT count(*) FROM c) AS z FROM ({text}) x"


NOW_US = 1_709_301_600_000_000  # 2024-03-01 14:00


def windowed(text: str) -> exp.Expression:
    tables = {"s": STREAM}
    return rewrite(body(text), tables.get, lambda _: NowBounds(NOW_US, NOW_US))


@pytest.mark.parametrize("seed", range(4))
def test_grouped_queries_agree_with_duckdb(parts: Parts, seed: int) -> None:
    queries = GroupedQueries(seed)
    split_ones = 0
    for _ in range(50):
        text = queries.next()
        split_ones += agree_tree(parts, windowed(text), text)
    assert split_ones > 42


@pytest.mark.parametrize("seed", range(2))
def test_random_queries_agree_with_duckdb(parts: Parts, seed: int) -> None:
    queries = Queries(seed)
    split_ones = sum(agree(parts, *queries.next()) for _ in range(100))
    assert split_ones > 40


# By hand: what the generators do not write, and what is refused.


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k + 1 AS k, count(*) FROM s GROUP BY k HAVING k > 3 ORDER BY k",
        "SELECT k2 + 1 AS n, sum(v2) FROM (SELECT k AS k2, d AS v2 FROM s) GROUP BY n ORDER BY n",
        "SELECT count(*) AS n, n * 2 AS m, m + n FROM s",
        "SELECT k, -k AS k, count(*) FROM s GROUP BY s.k ORDER BY k",
        "SELECT k, id AS k FROM s ORDER BY k DESC LIMIT 5",
        "SELECT *, -id AS k FROM s ORDER BY k LIMIT 5",
        "SELECT k, sum(count(*)) OVER (ORDER BY k NULLS FIRST) AS c FROM s GROUP BY k",
        "SELECT k, rank() OVER w FROM s GROUP BY k WINDOW w AS (ORDER BY count(*), k)",
        "SELECT k FROM s GROUP BY k QUALIFY row_number() OVER (ORDER BY count(*) DESC, k) <= 3",
        "SELECT DISTINCT count(*) FROM s GROUP BY k",
        'SELECT K, "K" + 1, S.K FROM s GROUP BY s.k',
        "SELECT k, k + 1, -k AS k, id FROM s ORDER BY id LIMIT 5",
        "SELECT v + 0 AS w, w AS x FROM s WHERE w > 1 ORDER BY x, id LIMIT 3 OFFSET 2",
        "SELECT *, k + 1 AS k FROM s ORDER BY -id LIMIT 4",
        "SELECT a.*, label FROM s a JOIN c ON a.k = c.k",
        "SELECT * FROM (SELECT * FROM s ORDER BY ts, id LIMIT 9) q JOIN c USING (k)",
        "SELECT id FROM s ORDER BY id DESC OFFSET 140",
        "SELECT id, name FROM s ORDER BY ALL DESC LIMIT 7",
        "SELECT DISTINCT name FROM s ORDER BY name NULLS FIRST LIMIT 3",
        "SELECT DISTINCT * FROM s",
        "SELECT count(*) AS n FROM (SELECT DISTINCT k, name FROM s)",
        "SELECT id FROM s QUALIFY rank() OVER (PARTITION BY k, flag ORDER BY d DESC) < 2",
        "WITH q AS (SELECT * FROM s WHERE k > 2), z AS (SELECT * FROM c) "
        "SELECT label, count(*) FROM q JOIN z USING (k) GROUP BY label",
        "WITH z AS (SELECT max(k) AS m FROM c) "
        "SELECT k, count(*) FROM s GROUP BY k HAVING k < (SELECT m FROM z)",
        "WITH q AS (WITH p AS (SELECT k FROM s) SELECT k, count(*) AS n FROM p GROUP BY k) "
        "SELECT a.n, b.k FROM q a, q b WHERE a.k = b.k",
        "SELECT label, (SELECT count(*) FROM s) AS n FROM c WHERE k IS NOT NULL",
        "SELECT c.k FROM c WHERE c.k IN (SELECT x.k FROM s x GROUP BY x.k)",
        "SELECT k FROM c UNION SELECT max(k) FROM s",
        "SELECT name, count(*) FROM s WHERE EXISTS (SELECT 1 FROM c WHERE c.k = s.k) GROUP BY 1",
        "SELECT first(k IGNORE NULLS ORDER BY id), count(DISTINCT flag) FROM s",
        "(SELECT count(*), 'a (' || max(name) || ')' FROM s)",
        "SELECT count(*) FROM s GROUP BY ALL HAVING count(*) > 10000",
        "SELECT x.k, count(*) FROM s x ASOF LEFT JOIN r y ON x.k = y.k AND x.ts >= y.ts GROUP BY 1",
        "SELECT k0, s0, count(*) FROM (SELECT k AS k0, flag AS s0 FROM s) GROUP BY ALL",
        "SELECT sum(k) FILTER (WHERE k > $1) + $2 AS n FROM s WHERE k < $3 HAVING count(*) > $1",
        "SELECT id FROM s WHERE k <> $2 ORDER BY id LIMIT $1 OFFSET $3",
        "FROM s SELECT count(*), [count(*), max(k)], {'a': min(k)}",
    ],
)
def test_decomposes(parts: Parts, text: str) -> None:
    assert agree(parts, text, [4, 3, 9] if "$" in text else ())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT 1", "no streamed table"),
        ("SELECT * FROM c", "no streamed table"),
        ("WITH s AS (SELECT 1 AS k) SELECT k FROM s", "no streamed table"),
        ("SELECT a.id FROM s a JOIN s b ON a.id = b.id", "more than one streamed table"),
        ("WITH q AS (SELECT k FROM s) SELECT * FROM q a JOIN q b ON a.k = b.k", "used 2 times"),
        ("SELECT median(k) FROM s", "median needs all values"),
        ("SELECT quantile_cont(k, 0.5) FROM s", "quantile_cont needs all values"),
        ("SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY k) FROM s", "quantile_disc"),
        ("SELECT mode(k) FROM s", "mode takes the value that came first"),
        ("SELECT entropy(k) FROM s", "entropy"),
        ("SELECT max(k, 1 + 2) FROM s", "plain number k"),
        ("SELECT arg_max(id, k, 1 + 2) FROM s", "plain number k"),
        ("SELECT arg_max(DISTINCT id, k, 3) FROM s", "DISTINCT"),
        ("SELECT arg_max_null(id, k, 3) FROM s", "arg_max_null with 3 argument(s)"),
        ("SELECT first(k) FROM s", "first without ORDER BY"),
        ("SELECT list(k) FROM s", "list without ORDER BY"),
        ("SELECT string_agg(name, ',') FROM s", "string_agg without ORDER BY"),
        ("SELECT list(DISTINCT k ORDER BY k) FROM s", "list with DISTINCT"),
        ("SELECT count(DISTINCT (k, name)), count(DISTINCT k, name) FROM s", "one argument"),
        ("SELECT bitstring_agg(k) FROM s", "no way is known to compute bitstring_agg"),
        ("SELECT k, count(*) FROM s GROUP BY ROLLUP (k)", "GROUPING SETS, ROLLUP and CUBE"),
        ("SELECT k, count(*) FROM s GROUP BY GROUPING SETS ((k), ())", "GROUPING SETS"),
        ("SELECT id, row_number() OVER (ORDER BY id) FROM s", "window function"),
        ("SELECT id FROM s QUALIFY count(*) OVER () > 3", "QUALIFY"),
        ("SELECT id FROM s QUALIFY row_number() OVER (ORDER BY id) = 2", "QUALIFY"),
        ("SELECT DISTINCT ON (k) k, id FROM s ORDER BY k, id", "DISTINCT ON"),
        ("SELECT k FROM s UNION SELECT k FROM c", "UNION"),
        ("SELECT s.id FROM s RIGHT JOIN c ON s.k = c.k", "RIGHT JOIN with the stream on its left"),
        ("SELECT s.id FROM c LEFT JOIN s ON s.k = c.k", "LEFT JOIN with the stream on its right"),
        ("SELECT s.id FROM s FULL JOIN c ON s.k = c.k", "FULL JOIN"),
        ("SELECT c.k FROM c SEMI JOIN s ON s.k = c.k", "SEMI JOIN"),
        ("SELECT s.id FROM s POSITIONAL JOIN c", "POSITIONAL"),
        ("SELECT id FROM s TABLESAMPLE 10%", "SAMPLE"),
        ("SELECT * FROM c WHERE k IN (SELECT s.k FROM s)", "subquery in an expression"),
        ("SELECT k, (SELECT max(s.id) FROM s WHERE s.k = c.k) FROM c", "depends on c.k"),
        ("SELECT label, (SELECT max(id) FROM s) FROM c", "column id of a subquery"),
        ("SELECT * FROM (SELECT * FROM s ORDER BY id) WHERE k > 3", "in an order of its own"),
        ("SELECT id FROM s ORDER BY id LIMIT 10%", "LIMIT is split only"),
        ("SELECT * FROM s JOIN c ON s.k = c.k", "may give a name twice"),
        ("SELECT k AS name, count(*) FROM s WHERE name = 'a' GROUP BY 1", "column or an alias"),
        ("SELECT k + 1 AS z, sum(z) FROM s GROUP BY 1", '"z" in sum may be'),
        ("SELECT *, k + 1 AS z, z * 2 AS y FROM s", '"z" may be a column or an alias'),
        ("SELECT d + 1 AS k, count(*) FROM s GROUP BY k, d", '"k" in GROUP BY may be'),
        ("SELECT k, (SELECT max(label) FROM c WHERE c.k = s.k) FROM s GROUP BY k", "uses s.k"),
        ("SELECT k FROM s AS tm_partials", "name that columns of partial results have"),
        (
            "WITH RECURSIVE q AS (SELECT k FROM s UNION ALL SELECT k FROM q) SELECT * FROM q",
            "UNION",
        ),
    ],
)
def test_says_why_not(text: str, reason: str) -> None:
    found = split(body(text))
    assert isinstance(found, NotDecomposable)
    assert reason in found.reason


def test_sessions_need_all_rows() -> None:
    found = split(
        windowed("SELECT window_start, count(*) FROM SESSION(s, ts, INTERVAL 1 MINUTE) GROUP BY 1")
    )
    assert found == NotDecomposable("a window function needs all rows of its partition together")


def test_every_aggregate_of_duckdb_is_known(parts: Parts) -> None:
    """A new one would pass for a function of one row."""
    found = parts.connection.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
    ).fetchall()
    assert {name for (name,) in found} <= AGGREGATES


@pytest.mark.parametrize("column", ["id", "k", "d", "v", "f", "tiny", "h", "ts", "day"])
@pytest.mark.parametrize("at", ["0.25", "[0.1, 0.9]"])
def test_approximate_quantiles_are_near(parts: Parts, column: str, at: str) -> None:
    text = f"SELECT approx_quantile({column}, {at}) AS q FROM s WHERE isfinite(v) AND f < 2"
    found = split(body(text))
    assert isinstance(found, Decomposition)
    got, expected = parts.answer(found, {}), parts.connection.sql(text)
    assert got.types == expected.types
    assert got.fetchall() == expected.fetchall()  # so few rows that no digest has to round


def test_states_that_grow_are_named() -> None:
    found = split(body("SELECT count(DISTINCT k), list(id ORDER BY ts), max(v) FROM s"))
    assert isinstance(found, Decomposition)
    assert found.growing == ("s0: the distinct values of k", "s1: the values of id")
    assert (found.keys, found.states, found.kind) == ((), ("s0", "s1", "s2"), "aggregate")


def test_scan_is_the_table_of_the_partial() -> None:
    found = split(body("WITH q AS (SELECT * FROM s x) SELECT k, count(*) FROM q GROUP BY k"))
    assert isinstance(found, Decomposition)
    assert found.scan.root() is found.partial
    assert not any(streamed(node) for node in found.final.find_all(exp.Table))
    found.scan.set("this", exp.to_identifier("tm_scan_0"))
    assert "FROM tm_scan_0 AS x" in sql_of(found.partial)


@pytest.mark.parametrize(
    "kind", ["BIGINT", "DECIMAL(14, 3)", "DECIMAL(38, 1)", "HUGEINT", "DOUBLE"]
)
def test_averages_are_those_of_duckdb_to_the_last_bit(parts: Parts, kind: str) -> None:
    rng = random.Random(kind)
    rows = [(at, rng.randrange(10**11) / 8) for at in range(3_000)]
    parts.connection.execute(f"CREATE OR REPLACE TABLE numbers (n INTEGER, x {kind})")
    parts.connection.execute(
        "INSERT INTO numbers SELECT unnest($1), unnest($2)",
        [[a for a, _ in rows], [x for _, x in rows]],
    )
    query = body("SELECT n // 5 AS g, avg(x) AS a FROM numbers GROUP BY g ORDER BY g")
    found = decompose(query, lambda node: node.name == "numbers")
    assert isinstance(found, Decomposition)
    halves = []
    for half in (0, 1):
        partial = sql_of(found.partial).replace(
            "numbers", f"(SELECT * FROM numbers WHERE n % 2 = {half})"
        )
        halves.append(parts.run(partial, found.partial, {}))
    parts.connection.register(MERGE_SOURCE, parts.merge(found, halves, {}))
    got = parts.connection.sql(sql_of(found.final)).fetchall()
    assert got == parts.connection.sql(sql_of(query)).fetchall()
