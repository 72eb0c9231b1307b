"""A view in miniature: rows in DuckDB, digests made of random chunks of them, read as views are.

``View.agrees`` compares what the parts of a split give with the query itself, at one now.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp
from support import body

from tidemill.clock import from_us, to_us
from tidemill.config import TABLE_SETTINGS, Settings
from tidemill.sql.hidden import hide_seq
from tidemill.sql.maintain import (
    DigestParts,
    Reach,
    ViewParts,
    answer_sql,
    bounds_sql,
    expand_views,
    from_json,
    reach_of,
    read_sql,
    split_view,
    to_json,
)
from tidemill.sql.now import NOW, bind_now
from tidemill.sql.scopes import with_query
from tidemill.sql.windows import Bound, NowBounds, rewrite_deferred
from tidemill.types import Column, SqlType

START = datetime(2024, 3, 10, 23, 50)
SPAN_US = 30 * 60 * 1_000_000


@dataclass(frozen=True)
class ViewTable:
    table_id: int
    name: str
    columns: tuple[Column, ...]
    time_column: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return "streaming" if self.is_streaming else "reference"

    @property
    def is_streaming(self) -> bool:
        return self.time_column is not None

    @property
    def is_reference(self) -> bool:
        return self.time_column is None

    @property
    def settings(self) -> Settings:
        return Settings(TABLE_SETTINGS, self.given)


def _table(number: int, called: str, time: str | None, /, **columns: str) -> ViewTable:
    kinds = [Column(key, SqlType.parse(kind), key != time) for key, kind in columns.items()]
    return ViewTable(number, called, tuple(kinds), time)


_S = {
    "ts": "TIMESTAMP",
    "k": "INTEGER",
    "v": "DOUBLE",
    "n": "BIGINT",
    "name": "VARCHAR",
    "d": "DECIMAL(10,2)",
    "flag": "BOOLEAN",
    "tags": "INTEGER[]",
    "due": "TIMESTAMP",
}
TABLES = {
    made.name: made
    for made in (
        _table(1, "s", "ts", **_S),
        _table(2, "u", "at", at="TIMESTAMPTZ", k="INTEGER", n="BIGINT", name="VARCHAR"),
        _table(3, "dim", None, k="INTEGER", label="VARCHAR", weight="INTEGER"),
        _table(4, "zones", None, name="VARCHAR", zone="VARCHAR"),
        replace(
            _table(5, "keyed", "ts", ts="TIMESTAMP", k="INTEGER"), given={"on_conflict": "replace"}
        ),
    )
}


def split(query: str, views: Mapping[str, str] | None = None) -> ViewParts:
    tree = expand_views(body(query), _definitions(views))
    return split_view(tree, _find)


def _find(name: str) -> ViewTable | None:
    return TABLES.get(name.lower())


def _definitions(views: Mapping[str, str] | None) -> Any:
    return lambda name: body(views[name]) if views and name in views else None


class Streams:
    """Random rows of s and u, and two reference tables."""

    def __init__(self, seed: int, rows: int = 120) -> None:
        self.rng = random.Random(seed)
        self.connection = duckdb.connect(config={"threads": 1})
        self.connection.execute("SET TimeZone = 'UTC'")
        self.connection.execute("SET arrow_lossless_conversion = true")
        for made in TABLES.values():
            parts = [f'"{column.name}" {column.type}' for column in made.columns]
            parts += ["_seq BIGINT"] if made.is_streaming else []
            self.connection.execute(f"CREATE TABLE {made.name} ({', '.join(parts)})")
        self._insert("s", [self._row_of_s(seq) for seq in range(rows)])
        self._insert("u", [self._row_of_u(seq) for seq in range(rows // 2)])
        self._insert("dim", [(1, "a", 1), (2, "b", 2), (3, "a", 3), (3, "c", 4), (None, "z", 5)])
        self._insert("zones", [("ann", "north"), ("bob", "south"), ("cy", None)])

    def close(self) -> None:
        self.connection.close()

    def _insert(self, name: str, rows: Sequence[tuple[object, ...]]) -> None:
        marks = ", ".join("?" for _ in rows[0])
        self.connection.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)

    def time(self) -> datetime:
        """Times that meet each other, and the edges of minutes, often enough."""
        step = self.rng.choice((1, 1, 1_000_000, 60_000_000))
        us = self.rng.randrange(SPAN_US) // step * step
        return START + timedelta(microseconds=us)

    def _row_of_s(self, seq: int) -> tuple[object, ...]:
        rng = self.rng
        value = rng.choice((None, rng.randrange(-40, 40) / 4, float("nan"), 2.5))
        tags = rng.choice((None, [], [1], [1, 2, 2], [None, 3]))
        due = START + timedelta(minutes=rng.randrange(40))
        return (
            *(self.time(), rng.choice((None, 1, 1, 2, 3, 7)), value, rng.choice((None, seq))),
            *(
                rng.choice((None, "ann", "bob", "cy", "di")),
                Decimal(rng.randrange(-999, 999)) / 100,
            ),
            *(rng.choice((None, True, False)), tags, rng.choice((None, due)), seq),
        )

    def _row_of_u(self, seq: int) -> tuple[object, ...]:
        rng = self.rng
        at = self.time().replace(tzinfo=UTC)
        return (at, rng.choice((None, 1, 2, 4)), seq * 3, rng.choice((None, "ann", "bob")), seq)

    def newest_us(self, name: str) -> int:
        time = TABLES[name].time_column
        query = f'SELECT max(epoch_us("{time}")) FROM {name}'
        return int(self.connection.sql(query).fetchall()[0][0])

    def run(self, sql: str, values: Mapping[str, object]) -> duckdb.DuckDBPyRelation:
        (statement,) = self.connection.extract_statements(sql)
        used = {name: values[name] for name in statement.named_parameters}
        return self.connection.sql(sql, params=used or None)

    # The query itself.

    def whole(self, query: str, now_us: int, views: Mapping[str, str] | None) -> Any:
        tree = rewrite_deferred(expand_views(body(query), _definitions(views)), _find)
        bind_now(tree.query)
        _hide_seq(tree.query)
        values = _values(tree.bounds, now_us)
        return self.run(tree.query.sql(dialect="duckdb"), values)

    # Its parts.

    def state(self, digest: DigestParts) -> pa.Table:
        """The digest of all rows: partials of random chunks, merged in some order."""
        chunks = self.rng.randrange(1, 5)
        partials = [self._partial(digest, chunk, chunks) for chunk in range(chunks)]
        self.rng.shuffle(partials)
        while len(partials) > 1:
            count = self.rng.randrange(2, len(partials) + 1)
            partials = [self._merged(digest, partials[:count]), *partials[count:]]
        return self._merged(digest, partials)

    def _partial(self, digest: DigestParts, chunk: int, chunks: int) -> pa.Table:
        chosen = f"hash(_seq, {chunks}) % {chunks} = {chunk}"
        self._name_rows(digest, "tm_rows", chosen)
        return self.connection.sql(digest.partial).to_arrow_table()

    def _name_rows(self, digest: DigestParts, name: str, where: str) -> None:
        hidden = "" if digest.with_seq else " EXCLUDE (_seq)"
        self.connection.execute(
            f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT *{hidden} FROM {digest.table} "
            f"WHERE {where}"
        )

    def _merged(self, digest: DigestParts, partials: list[pa.Table]) -> pa.Table:
        self.connection.register("tm_partials", pa.concat_tables(partials))
        try:
            return self.connection.sql(digest.merge).to_arrow_table()
        finally:
            self.connection.unregister("tm_partials")

    def answer(
        self, parts: ViewParts, states: Sequence[pa.Table], now_us: int
    ) -> duckdb.DuckDBPyRelation:
        values = _values(parts.bounds, now_us)
        texts = []
        for at, (digest, state) in enumerate(zip(parts.digests, states, strict=True)):
            self.connection.register(f"tm_state_{at}", state)
            texts.append(self._read(digest, at, values))
        references = {m.table_id: m.name for m in TABLES.values() if m.is_reference}
        return self.run(answer_sql(parts, texts, references), values)

    def _read(self, digest: DigestParts, at: int, values: Mapping[str, object]) -> str:
        state, rows = f"tm_state_{at}", f"tm_edge_{at}"
        if digest.rows_window is not None:
            ends = self.run(f"SELECT epoch_us({digest.rows_window})", values).fetchall()
            if self.newest_us(digest.table) > ends[0][0]:
                self._name_rows(digest, rows, "true")
                return read_sql(digest, state, rows, is_whole=True)
        if digest.pane is None:
            return read_sql(digest, state)
        ((low, high),) = self.run(bounds_sql(digest.pane), values).fetchall()
        newest = self.rng.choice((None, self.newest_us(digest.table)))
        reach = reach_of(digest.pane, low, high, newest)
        if not reach.edges:
            return read_sql(digest, state, None, reach)
        self._name_rows(digest, rows, _in_edges(digest, reach))
        return read_sql(digest, state, rows, reach)


def _in_edges(digest: DigestParts, reach: Reach) -> str:
    time = f'epoch_us("{TABLES[digest.table].time_column}")'
    ranges = [
        " AND ".join(
            [
                *([f"{time} >= {low}"] if low is not None else []),
                *([f"{time} < {high}"] if high is not None else []),
            ]
        )
        for low, high in reach.edges
    ]
    return " OR ".join(f"({part})" for part in ranges)


def _values(bounds: Sequence[Bound], now_us: int) -> dict[str, object]:
    moment = NowBounds(now_us, now_us)
    values: dict[str, object] = {NOW: from_us(now_us).replace(tzinfo=UTC)}
    return values | {bound.name: bound.value(lambda _: moment) for bound in bounds}


def _hide_seq(tree: exp.Expression) -> None:
    """``_seq`` in no star, as the engine gives it."""
    for node in tree.find_all(exp.Table):
        made = _find(node.name)
        if made is not None and made.is_streaming and with_query(node) is None:
            hide_seq(node, [column.name for column in made.columns], _find)


def moments(streams: Streams) -> list[int]:
    """Nows before, within and after the rows; some of them at a row's time to the microsecond."""
    first = to_us(START)
    rows = [int(us) for (us,) in streams.connection.sql("SELECT epoch_us(ts) FROM s").fetchall()]
    return [
        first + 10 * 60_000_000,
        first + 15 * 60_000_000 + 123_456,
        streams.rng.choice(rows) + streams.rng.choice((0, 5 * 60_000_000)),
        first + SPAN_US + streams.rng.choice((60_000_000, 24 * 3_600_000_000)),
    ]


def check_view(streams: Streams, query: str, views: Mapping[str, str] | None = None) -> ViewParts:
    """Compare the parts with the query, at several nows; answers the parts."""
    parts = split(query, views)
    again = from_json(to_json(parts))
    assert again == parts
    states = [streams.state(digest) for digest in parts.digests]
    for now_us in moments(streams) if parts.uses_now or parts.bounds else [to_us(START)]:
        expected = streams.whole(query, now_us, views)
        got = streams.answer(again, states, now_us)
        try:
            assert tuple(got.columns) == tuple(expected.columns) == parts.columns
            assert tuple(map(str, got.types)) == tuple(map(str, expected.types)) == parts.types
            rows, wanted = got.fetchall(), expected.fetchall()
            if not _is_ordered(query):
                rows, wanted = sorted(rows, key=_coarse), sorted(wanted, key=_coarse)
            assert same(rows, wanted)
        except (AssertionError, duckdb.Error) as error:
            lines = [query, str(from_us(now_us)), *parts.explain(), str(error)]
            raise AssertionError("\n".join(lines)) from error
    return parts


def _is_ordered(query: str) -> bool:
    tree = body(query)
    return isinstance(tree, exp.Select) and tree.args.get("order") is not None


def _coarse(row: tuple[object, ...]) -> list[str]:
    return [
        f"{round(value, 6) + 0.0:.3g}" if isinstance(value, float) else repr(value) for value in row
    ]


def same(left: Any, right: Any) -> bool:
    """Whether two values are one: NaN is NaN, and merging adds doubles in another order."""
    if isinstance(left, float) and isinstance(right, float):
        both_nan = math.isnan(left) and math.isnan(right)
        return both_nan or math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return same(sorted(left.items(), key=repr), sorted(right.items(), key=repr))
    return bool(left == right)
