"""The numbers of loads."""

from __future__ import annotations

from tidemill.hot.loaded import LoadedNumbers


def test_numbers_of_a_load_under_way_are_known_whatever_moves() -> None:
    loads = LoadedNumbers()
    loads.add(1, 5)  # committed before the start
    loads.begin(10, 19)
    loads.begin(20, 29)
    assert [seq for seq in (3, 9, 10, 29, 30) if loads.holds(seq)] == [3, 10, 29]
    loads.release(100)
    assert not loads.holds(10)
    assert loads.open_without([]) == ((10, 19), (20, 29))
    assert loads.open_without([(10, 14)]) == ((15, 19), (20, 29))
    assert loads.open_without([(12, 14), (20, 29)]) == ((10, 11), (15, 19))
    loads.end(10)
    assert loads.open_without([]) == ((20, 29),)
