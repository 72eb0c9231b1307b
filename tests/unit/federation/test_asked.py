"""What is asked of a scan once values are known: constants in the column's own type, or nothing."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pytest
from catalog_tables import snapshot_of, stream

from tidemill.federation.asked import Known, asked_of
from tidemill.federation.plan import Scan
from tidemill.federation.planner import make_plan
from tidemill.federation.scans import KEYS_MAX, AskedBranch
from tidemill.sql.parser import parse_one
from tidemill.sql.statements import Query

COLUMNS = {"ts": "TIMESTAMP", "k": "BIGINT", "d": "DECIMAL(9,2)", "name": "VARCHAR"}
SNAPSHOT = snapshot_of(stream(1, "s", COLUMNS, indexes={"k": "hash"}))


def scan_of(where: str) -> Scan:
    statement = parse_one(f"SELECT * FROM s WHERE {where}")
    assert isinstance(statement, Query)
    (scan,) = make_plan(statement.body, SNAPSHOT).scans
    return scan


def asked(where: str, **values: object) -> AskedBranch:
    return asked_of(scan_of(where), Known(values, {}))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("k = 3", ("k", "=", (3,))),
        ("k = 1 + 2", ("k", "=", (3,))),
        ("K IN (1, 2)", ("k", "in", (1, 2))),
        ("name = 'a'", ("name", "=", ("a",))),
        ("ts >= '2024-01-01'", ("ts", ">=", (datetime(2024, 1, 1),))),
        ("d < 1.5", ("d", "<", (Decimal("1.5"),))),
    ],
)
def test_constants_are_values_of_the_column(where: str, expected: tuple[object, ...]) -> None:
    assert asked(where).asked == (expected,)


def test_a_parameter_is_known_when_the_query_runs() -> None:
    scan = scan_of("k = $1")
    assert asked_of(scan, Known({"tidemill_p1": 7}, {})).asked == (("k", "=", (7,)),)


@pytest.mark.parametrize("where", ["k = name", "k = random()", "k + 1 = 3", "k <> 3"])
def test_what_has_no_constant_is_not_asked(where: str) -> None:
    assert asked(where) == AskedBranch(())


def test_constants_of_several_kinds_are_compared_by_duckdb_alone() -> None:
    """``IN (9007199254740993, 1.5)`` compares doubles, in which the number is another one."""
    assert asked("k IN (9007199254740993, 1.5::DOUBLE)") == AskedBranch(())
    assert asked("k IN (9007199254740993, 1)").asked == (("k", "in", (9007199254740993, 1)),)


def test_so_many_keys_are_not_looked_up() -> None:
    listed = ", ".join(map(str, range(KEYS_MAX + 1)))
    assert asked(f"k IN ({listed})") == AskedBranch(())


def test_an_or_is_asked_if_each_branch_is() -> None:
    found = asked("k = 1 OR name = 'a' AND ts > '2024-01-01'")
    assert found.asked == ()
    ((first, second),) = found.either
    assert first.asked == (("k", "=", (1,)),)
    assert [column for column, _, _ in second.asked] == ["name", "ts"]
    assert asked("k = 1 OR name = random()::VARCHAR") == AskedBranch(())


def test_keys_that_a_query_found_are_asked_as_a_list() -> None:
    statement = parse_one("SELECT * FROM s WHERE k IN (SELECT o.k FROM s AS o WHERE o.k > 1)")
    assert isinstance(statement, Query)
    plan = make_plan(statement.body, SNAPSHOT)
    (query,) = plan.key_queries
    scan = next(each for each in plan.scans if each.alias == "s")
    assert asked_of(scan, Known({}, {id(query.query): (4, 5)})).asked == (("k", "in", (4, 5)),)
    assert asked_of(scan, Known({}, {})) == AskedBranch(())
