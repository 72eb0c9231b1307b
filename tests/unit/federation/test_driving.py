"""Whether a small table is read before the stream it is joined with, and what takes its place."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemill.config import DATABASE_SETTINGS, Settings
from tidemill.engine import Database
from tidemill.federation import driving
from tidemill.federation.driving import Driven, drive, driven_plan, without_partners
from tidemill.federation.plan import Plan
from tidemill.federation.planner import make_plan
from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Query

JOIN = "SELECT p.spd, i.kind FROM p JOIN involved i ON p.vid = i.vid WHERE i.kind <> $1"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path: Path = tmp_path_factory.mktemp("driving") / "w"
    with Database(path, Settings(DATABASE_SETTINGS, {"spark_master": "inline"})) as opened:
        opened.sql(
            "CREATE STREAMING TABLE p (ts TIMESTAMP, vid BIGINT, name VARCHAR, d DECIMAL(9,2), "
            "at TIMESTAMP, spd INT, WATERMARK FOR ts AS ts); CREATE INDEX ON p (vid); "
            "CREATE INDEX ON p (name); CREATE INDEX ON p (d); CREATE INDEX ON p (at); "
            "CREATE TABLE involved (vid BIGINT, kind VARCHAR); CREATE TABLE seen (vid BIGINT)"
        )
        yield opened


def plan(db: Database, text: str) -> Plan:
    statement = parse_one(text)
    assert isinstance(statement, Query)
    return make_plan(statement.body, db.catalog.snapshot())


def driven(found: Plan, rows: pa.Table, at_stake: int = 10**6) -> Driven:
    return drive(found, lambda scan: at_stake, lambda partner: rows)


def involved(*keys: Any, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"vid": pa.array(keys, kind or pa.int64()), "kind": ["x"] * len(keys)})


def test_keys_are_asked_of_the_scan_and_rows_take_the_place(db: Database) -> None:
    found = plan(db, JOIN)
    rows = involved(3, 5, None, 3)
    result = driven(found, rows)
    (partner,) = found.partners
    assert result.asked == {"tm_scan_0": [("vid", "in", (3, 5))]}
    assert result.sources == {partner.source: rows}
    assert f'JOIN "{partner.source}" AS "i"' in result.plan.sql
    assert "reference" not in result.plan.sql
    assert [(join.alias, join.rows, join.reason) for join in result.joins] == [("i", 4, "")]
    assert result.plan is driven_plan(found, frozenset({partner.source}))  # made once


def test_parameters_of_what_was_read_are_not_needed_again(db: Database) -> None:
    text = "SELECT p.spd FROM p JOIN (SELECT vid FROM involved WHERE kind > $1) i USING (vid)"
    found = plan(db, text)
    assert found.used == {"tidemill_p1"}
    assert driven(found, pa.table({"vid": [1]})).plan.used == frozenset()


def test_nothing_is_read_for_few_rows(db: Database) -> None:
    found = plan(db, JOIN)
    result = drive(found, lambda scan: driving.STAKE_ROWS_MIN - 1, pytest.fail)
    assert result.plan is found
    assert (result.asked, result.sources) == ({}, {})
    assert result.joins[0].reason == "few rows are left to read anyway"


def test_a_large_table_stays_where_it_is(db: Database) -> None:
    found = plan(db, JOIN)
    result = driven(found, involved(*range(driving.PARTNER_ROWS_MAX + 1)))
    assert result.plan is found
    assert result.sources == {}
    assert result.joins[0].reason == "it has more than 1,000 rows"


@pytest.mark.parametrize(
    ("column", "kind", "is_used"),
    [
        ("vid", pa.int64(), True),
        ("vid", pa.int8(), True),
        ("vid", pa.uint64(), True),
        ("vid", pa.float64(), False),
        ("vid", pa.decimal128(9, 0), False),
        ("vid", pa.string(), False),
        ("name", pa.string(), True),
        ("name", pa.binary(), False),
        ("d", pa.decimal128(9, 2), True),
        ("d", pa.decimal128(12, 4), False),
        ("d", pa.int32(), False),
        ("at", pa.timestamp("us"), True),
        ("at", pa.timestamp("ns"), False),
        ("at", pa.timestamp("us", "UTC"), False),
        ("at", pa.date32(), False),
    ],
)
def test_keys_must_compare_as_the_index_does(
    db: Database, column: str, kind: pa.DataType, is_used: bool
) -> None:
    found = plan(db, f"SELECT * FROM p JOIN involved i ON p.{column} = i.vid")
    sample: Any = 1
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        sample = "1" if pa.types.is_string(kind) else b"1"
    elif pa.types.is_decimal(kind):
        sample = Decimal(1)
    elif pa.types.is_temporal(kind):
        sample = dt.date(2024, 1, 1) if pa.types.is_date(kind) else dt.datetime(2024, 1, 1)
    result = driven(found, involved(sample, kind=kind))
    assert bool(result.asked) == is_used
    assert (result.joins[0].reason == "") == is_used
    assert (result.plan is found) == (not is_used)


def test_rows_without_names_or_types_of_their_own(db: Database) -> None:
    found = plan(db, JOIN)
    for rows in (
        pa.table([pa.array([1]), pa.nulls(1)], names=["vid", "kind"]),
        pa.table([pa.array([1]), pa.array([2])], names=["vid", "VID"]),
    ):
        result = driven(found, rows)
        assert result.plan is found
        assert result.joins[0].reason == "its columns have no names or types of their own"


def test_one_of_two(db: Database) -> None:
    text = "SELECT * FROM p JOIN involved i USING (vid) JOIN seen ON seen.vid = p.vid"
    found = plan(db, text)
    small, large = involved(1), pa.table({"vid": range(5_000)})
    result = drive(found, lambda _: 10**6, lambda each: small if each.alias == "i" else large)
    assert list(result.sources) == [found.partners[0].source]
    assert "reference.main" in result.plan.sql
    assert [join.reason for join in result.joins] == ["", "it has more than 1,000 rows"]


def test_a_plan_without_partners_reads_nothing_first(db: Database) -> None:
    found = without_partners(plan(db, JOIN))
    assert found.partners == ()
    assert drive(found, pytest.fail, pytest.fail).plan is found
