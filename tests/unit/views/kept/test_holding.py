"""The newest rows of each key: places, chains, and what is dropped."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from tidemill.views.kept import holding
from tidemill.views.kept.holding import HeldRows, numbers


def rows_of(*times: int, first: int = 1) -> pa.Table:
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us")),
            "_seq": pa.array(range(first, first + len(times)), pa.int64()),
        }
    )


def codes(*given: int) -> npt.NDArray[np.int64]:
    return np.array(given, np.int64)


def marks(*given: int) -> npt.NDArray[np.bool_]:
    return np.array(given, np.bool_)


def seqs(held: HeldRows, places: npt.NDArray[np.int64]) -> list[int]:
    return [int(value) for value in held.seqs.array[places]]


def filled(most: int) -> HeldRows:
    """Three rows of key 0, two of key 1."""
    held = HeldRows("ts", most)
    places = held.append(rows_of(10, 20, 30, 11, 21), codes(0, 0, 0, 1, 1))
    is_first = marks(1, 0, 0, 1, 0)
    held.link(places, is_first)
    held.trim(places, is_first)
    return held


def test_a_chain_leads_from_the_oldest_to_the_newest() -> None:
    held = filled(3)
    places, lengths = held.chain(codes(1, 0))
    assert lengths.tolist() == [2, 3]
    assert seqs(held, places) == [4, 5, 1, 2, 3]


def test_of_a_key_only_so_many_are_held() -> None:
    held = filled(2)
    places, lengths = held.chain(codes(0, 1))
    assert (len(held), lengths.tolist()) == (4, [2, 2])
    assert seqs(held, places) == [2, 3, 4, 5]
    assert held.has_lost.array[:2].tolist() == [True, False]


def test_places_that_became_free_are_given_again() -> None:
    held = filled(2)
    size = len(held.codes.array)
    places = held.append(rows_of(40, first=6), codes(1))
    assert len(held.codes.array) == size
    assert held.take(places).column("_seq").to_pylist() == [6]


def test_rows_are_taken_in_the_order_of_places() -> None:
    held = filled(3)
    more = held.append(rows_of(50, 60, first=6), codes(2, 2))
    wanted = np.concatenate([more[::-1], held.of_keys(codes(1))])
    assert held.take(wanted).column("_seq").to_pylist() == [7, 6, 4, 5]
    assert held.take(codes()).num_rows == 0
    assert sorted(seqs(held, held.all())) == [1, 2, 3, 4, 5, 6, 7]


def test_pieces_are_written_anew_when_most_of_their_rows_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holding, "PIECE_ROWS", 8)
    held = HeldRows("ts", 1)
    for at in range(40):
        old, _ = held.chain(codes(0)) if at else (codes(), None)
        new = held.append(rows_of(at, first=at + 1), codes(0))
        places = np.concatenate([old, new])
        is_first = np.arange(len(places)) == 0
        held.link(places, is_first)
        held.trim(places, is_first)
    assert len(held) == 1
    assert held.take(held.all()).column("_seq").to_pylist() == [40]
    assert sum(map(len, held._pieces)) <= 8


def test_numbers_of_a_column_in_any_number_of_chunks() -> None:
    table = pa.concat_tables([rows_of(1, 2), rows_of(3)])
    assert numbers(table, "ts").tolist() == [1, 2, 3]
    assert numbers(rows_of(7), "ts").tolist() == [7]
