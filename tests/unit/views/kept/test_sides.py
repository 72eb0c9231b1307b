"""Streams that rows are joined with: what is seen of them, since when, and how long rows wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from catalog_tables import snapshot_of, stream
from kept_kit import OTHER, SNAPSHOT, FakeEnvironment, S, body

from tidemill.catalog.model import Table
from tidemill.errors import UnsupportedError
from tidemill.views.kept.reads import leading, reads_of
from tidemill.views.kept.sides import Side, Sides, check_retention, take_sides

HOUR_US = 3_600_000_000
JOIN = "SELECT s.v, o.w FROM s JOIN o ON s.k = o.k"


def taken(text: str, snapshot: object = SNAPSHOT) -> tuple[tuple[Side, ...], str]:
    """The sides of a query, and what became of it."""
    tree = body(text)
    sides = take_sides(tree, leading(reads_of(tree, snapshot)), snapshot)  # type: ignore[arg-type]
    return sides, tree.sql("duckdb")


# -- the query


def test_a_row_sees_what_is_not_younger() -> None:
    (side,), text = taken(JOIN)
    assert (side.table, side.relation) == (OTHER, "tm_side_0")
    assert (side.reach_us, side.is_open, side.back_us) == (0, False, None)
    assert side.pairs == (("k", "k"),)
    assert 'tm_side_0 AS "o"' in text
    assert '"o"."ts" <= "s"."ts"' in text


def test_the_join_itself_may_say_how_far() -> None:
    (side,), text = taken(
        f"{JOIN} AND o.ts BETWEEN s.ts - INTERVAL '2' HOUR AND s.ts + INTERVAL '1' HOUR"
    )
    assert (side.reach_us, side.back_us) == (HOUR_US, 2 * HOUR_US)
    assert '"o"."ts" <= "s"."ts"' not in text
    (side,), _ = taken(f"{JOIN} AND o.ts < s.ts")
    assert (side.reach_us, side.is_open) == (0, True)


def test_where_says_it_for_an_inner_join_alone() -> None:
    bound = "WHERE o.ts <= s.ts + INTERVAL '1' HOUR"
    assert taken(f"{JOIN} {bound}")[0][0].reach_us == HOUR_US
    assert taken(f"{JOIN.replace('JOIN', 'LEFT JOIN')} {bound}")[0][0].reach_us == 0


def test_the_other_streams_retention_counts_as_of_the_row() -> None:
    kept = stream(2, "o", {"ts": "TIMESTAMP", "k": "INTEGER"}, {"retention": "1 hour"})
    (side,), text = taken(JOIN.replace("o.w", "o.k"), snapshot_of(S, kept))
    assert side.back_us == HOUR_US
    assert f"to_microseconds({HOUR_US})" in text.lower()


def test_columns_of_other_types_are_not_looked_up() -> None:
    texts = stream(2, "o", {"ts": "TIMESTAMP", "k": "VARCHAR"})
    (side,), _ = taken("SELECT s.v FROM s JOIN o ON s.k = o.k::INT", snapshot_of(S, texts))
    assert side.pairs == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT 1 FROM s, o", "says no ON"),
        ("SELECT 1 FROM s JOIN o USING (k)", "says no ON"),
        ("SELECT 1 FROM s RIGHT JOIN o ON s.k = o.k", "cannot join"),
        ("SELECT 1 FROM s WHERE k IN (SELECT k FROM o)", "cannot be told by their time"),
        ("SELECT 1 FROM s JOIN RECENT(o, rows => 1) AS o ON s.k = o.k", "reads one window"),
        ("SELECT 1 FROM s JOIN o ON o.ts >= s.ts", "without an end"),
    ],
)
def test_joins_that_have_no_moment_to_be_answered_at(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        taken(text)


def test_partners_must_be_kept_as_long_as_rows_wait() -> None:
    kept = stream(1, "s", {"ts": "TIMESTAMP"}, {"retention": "1 hour"})
    (read,) = reads_of(body("SELECT 1 FROM s"), snapshot_of(kept))
    check_retention(read, [Side(OTHER, "tm_side_0", (), HOUR_US - 1)])
    with pytest.raises(UnsupportedError, match="not kept until all their partners are there"):
        check_retention(read, [Side(OTHER, "tm_side_0", (), HOUR_US)])


# -- rows


def side_of(**more: object) -> Side:
    return replace(Side(OTHER, "tm_side_0"), **more)  # type: ignore[arg-type]


def upto(side: Side, clock_us: int | None, *times: int) -> int:
    return Sides([side], FakeEnvironment(), lambda _: clock_us).upto(np.array(times, np.int64))


def test_rows_are_answered_in_order_once_their_partners_are_there() -> None:
    assert upto(side_of(), 30, 10, 20, 30, 5) == 2  # at 30 more may come
    assert upto(side_of(is_open=True), 30, 10, 20, 30, 31) == 3
    assert upto(side_of(reach_us=15), 30, 10, 20) == 1
    assert upto(side_of(), None, 10) == 0
    assert upto(side_of(), 31, 10, 20, 30) == 3


def test_several_sides_all_have_to_be_there() -> None:
    clocks = {1: 100, 2: 15}
    sides = Sides(
        [side_of(), side_of(table=S, reach_us=7)],
        FakeEnvironment(),
        lambda table: clocks[table.table_id],
    )
    assert sides.upto(np.array([10, 20], np.int64)) == 1
    assert (bool(sides), sides.reach_us) == (True, 7)
    assert not Sides([], FakeEnvironment(), lambda _: None)


class Asking(FakeEnvironment):
    """Notes the values it is asked with."""

    def __init__(self, table: Table) -> None:
        super().__init__(self._note)
        self.values: list[dict[str, object]] = []
        self._rows = table.schema.empty_table()

    def _note(self, at_us: object, params: object) -> pa.Table:
        self.values.append(dict(params))  # type: ignore[call-overload]
        return self._rows


def test_what_a_batch_can_meet_is_read() -> None:
    environment = Asking(OTHER)
    side = side_of(pairs=(("k", "k"),), reach_us=5, back_us=10)
    rows = pa.table({"k": pa.array([3, 4, 3, None], pa.int32())})
    found = Sides([side], environment, lambda _: None).read(
        rows, np.array([100, 200, 150, 120], np.int64)
    )
    assert found["tm_side_0"].schema.names == OTHER.schema.names
    epoch = datetime(1970, 1, 1)
    assert environment.values == [
        {
            "tm_until": epoch + timedelta(microseconds=205),
            "tm_since": epoch + timedelta(microseconds=90),
            "tm_key_0": [3, 4],
        }
    ]


def test_too_many_values_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.views.kept.sides.KEYS_MAX", 1)
    environment = Asking(OTHER)
    sides = Sides([side_of(pairs=(("k", "k"),))], environment, lambda _: None)
    for keys in ([1, 2], [7]):
        sides.read(pa.table({"k": pa.array(keys, pa.int32())}), np.array([1], np.int64))
    assert [set(values) for values in environment.values] == [
        {"tm_until"},
        {"tm_until", "tm_key_0"},
    ]
