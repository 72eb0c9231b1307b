"""Positions: what was given, and what is still to come."""

from __future__ import annotations

from tidemill.catalog.model import Reservation
from tidemill.stream.position import Position

EARLY = Reservation(11, 20, created_snapshot=3)
LATER = Reservation(31, 40, created_snapshot=7)
LOADS = (EARLY, LATER)


def test_loads_before_the_beginning_were_given() -> None:
    position = Position(50, begin_snapshot=5)
    assert list(position.open_loads(LOADS)) == [LATER]
    assert list(Position(50, begin_snapshot=7).open_loads(LOADS)) == []


def test_a_load_is_open_until_its_last_number() -> None:
    position = Position(50, begin_snapshot=5)
    assert position.reached_in(LATER) == 30
    position = position.with_load(31, 35)
    assert position.reached_in(LATER) == 35
    assert list(position.open_loads(LOADS)) == [LATER]
    position = position.with_load(31, 40)
    assert position.loads == ((31, 40),)
    assert list(position.open_loads(LOADS)) == []


def test_loads_that_were_given_are_forgotten_together() -> None:
    position = Position(50).with_load(11, 20)
    assert position.settled(LOADS, 9) is position
    position = position.with_load(31, 40).settled(LOADS, 9)
    assert position == Position(50, begin_snapshot=9)
    assert position.settled(LOADS, 12) is position


def test_what_a_follower_holds() -> None:
    position = Position(5, begin_snapshot=5).with_load(31, 33)
    seqs = [4, 5, 6, 10, 11, 20, 21, 31, 33, 34, 40, 41]
    assert position.held(seqs, LOADS) == [4, 5, 11, 20, 31, 33]


def test_a_position_is_a_value() -> None:
    assert Position(3).with_load(31, 33) == Position(3, loads=((31, 33),))
    assert hash(Position(3)) == hash(Position(3))
