"""Joins that are kept: what is found for groups, until the reference table changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from catalog_tables import reference

from tidemill.engine import Database
from tidemill.federation.references import References, place_of
from tidemill.sql.maintain.key_joins import FOUND, KeyJoinPlan
from tidemill.views import key_joins as module
from tidemill.views.key_joins import KeyJoins

PLAN = KeyJoinPlan(77, "k0", "k", ("label",), "SELECT 1")
DIGEST: Any = SimpleNamespace(table_id=5)
CARS = reference(77, "cars", {"k": "INTEGER", "label": "VARCHAR"})


class Groups:
    """The groups of a state, which only grows."""

    def __init__(self, *keys: int | None, is_steady: bool = True) -> None:
        self.keys = list(keys)
        self._is_steady = is_steady

    def groups(self, digest_id: int) -> int:
        return len(self.keys)

    def is_steady(self, digest_id: int) -> bool:
        return self._is_steady

    def table(self, digest_id: int) -> pa.Table:
        return pa.table({"k0": pa.array(self.keys, pa.int32())})


@pytest.fixture
def references(db: Database, monkeypatch: pytest.MonkeyPatch) -> References:
    monkeypatch.setattr(module, "GROUPS_MIN", 2)
    made = References(db._duck)
    made.create(CARS)
    made.write(f"INSERT INTO {place_of(77)} VALUES (1, 'one'), (2, 'two'), (NULL, 'none')")
    return made


@pytest.fixture
def key_joins(db: Database, references: References) -> KeyJoins:
    return KeyJoins(PLAN, db._duck, references, 1 << 20)


def found(key_joins: KeyJoins, groups: Groups) -> list[tuple[object, ...]] | None:
    columns = key_joins.columns(DIGEST, groups)  # type: ignore[arg-type]
    if columns is None:
        return None
    assert columns.column_names == ["tm_l0", FOUND]
    return [(row["tm_l0"], bool(row[FOUND])) for row in columns.to_pylist()]


def test_the_second_read_has_what_was_found(key_joins: KeyJoins) -> None:
    groups = Groups(2, 7, None, 1)
    assert found(key_joins, groups) is None
    expected = [("two", True), (None, False), (None, False), ("one", True)]
    assert found(key_joins, groups) == expected


def test_new_groups_are_looked_up_and_the_others_stay(key_joins: KeyJoins) -> None:
    groups = Groups(2, 7)
    found(key_joins, groups)
    found(key_joins, groups)
    groups.keys += [1, 2]
    assert found(key_joins, groups) == [
        ("two", True),
        (None, False),
        ("one", True),
        ("two", True),
    ]
    groups.keys += [8]
    assert found(key_joins, groups) == [
        ("two", True),
        (None, False),
        ("one", True),
        ("two", True),
        (None, False),
    ]


def test_a_change_of_the_table_is_seen(key_joins: KeyJoins, references: References) -> None:
    groups = Groups(2, 7)
    found(key_joins, groups)
    found(key_joins, groups)
    references.write(f"INSERT INTO {place_of(77)} VALUES (7, 'seven')")
    assert found(key_joins, groups) is None  # the query itself is asked
    assert found(key_joins, groups) == [("two", True), ("seven", True)]


def test_another_state_begins_anew(key_joins: KeyJoins) -> None:
    found(key_joins, Groups(2, 7))
    groups = Groups(1, 2)
    assert found(key_joins, groups) is None
    assert found(key_joins, groups) == [("one", True), ("two", True)]


def test_a_key_that_is_there_twice_is_joined_each_time(
    key_joins: KeyJoins, references: References
) -> None:
    references.write(f"INSERT INTO {place_of(77)} VALUES (2, 'again')")
    groups = Groups(2, 7)
    assert [found(key_joins, groups) for _ in range(3)] == [None, None, None]


@pytest.mark.parametrize("groups", [Groups(1), Groups(1, 2, is_steady=False)])
def test_few_groups_or_those_that_move_are_joined_each_time(
    key_joins: KeyJoins, groups: Groups
) -> None:
    assert [found(key_joins, groups) for _ in range(2)] == [None, None]


def test_what_takes_too_much_memory_is_not_kept(db: Database, references: References) -> None:
    small = KeyJoins(PLAN, db._duck, references, 1)
    groups = Groups(1, 2)
    assert [found(small, groups) for _ in range(3)] == [None, None, None]
