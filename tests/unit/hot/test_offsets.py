"""Source offsets against a plain set."""

from __future__ import annotations

import pytest
from hot_kit import QUICK
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import RowsRejectedError
from tidemill.hot import offsets as module
from tidemill.hot.offsets import Offsets, SourceOffsets

PAIRS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-5, 30)), max_size=60)


@QUICK
@given(PAIRS)
def test_it_is_a_set(pairs: list[tuple[str, int]]) -> None:
    offsets, known = Offsets(), set()
    for source, offset in pairs:
        assert offsets.holds(source, offset) == ((source, offset) in known)
        offsets.add(source, offset)
        known.add((source, offset))
    for source in "abc":
        for offset in range(-7, 33):
            assert offsets.holds(source, offset) == ((source, offset) in known)
    for source, offset in offsets.newest().items():
        assert offset == max(o for s, o in known if s == source)
    loaded = Offsets.load(offsets.dump())
    assert loaded.dump() == offsets.dump()
    for lows, highs in zip(offsets._lows.values(), offsets._highs.values(), strict=True):
        gaps = list(zip(highs, lows[1:], strict=False))
        assert all(low > high + 1 for high, low in gaps)


def test_neighbours_melt() -> None:
    offsets = Offsets()
    for offset in (*range(0, 1_000, 2), *range(1, 1_000, 2)):
        offsets.add("s", offset)
    assert offsets.dump() == {"s": SourceOffsets(None, (0,), (999,))}


def test_forgotten_offsets_are_refused_and_survive_a_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INTERVALS_MAX", 3)
    offsets = Offsets()
    for offset in (10, 20, 30, 40):
        offsets.add("s", offset)
    for held in (offsets, Offsets.load(offsets.dump())):
        with pytest.raises(RowsRejectedError, match="too old"):
            held.holds("s", 10)
        assert not held.holds("s", 11)
        assert held.holds("s", 20)
        assert not held.holds("other", 1)
        assert held.newest() == {"s": 40}


def test_sources_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOURCES_MAX", 2)
    offsets = Offsets()
    for source in "ab":
        offsets.check_room(source)
        offsets.add(source, 1)
    offsets.check_room("a")
    with pytest.raises(RowsRejectedError, match="2 a table remembers"):
        offsets.check_room("c")
