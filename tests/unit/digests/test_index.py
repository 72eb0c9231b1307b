"""Slots of keys: as many as DuckDB has groups, and each with its own key."""

from __future__ import annotations

import random

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from digests_kit import TYPES, answer, chunks, random_rows

from tidemill.digests import coders
from tidemill.digests.arrays import NotPackable
from tidemill.digests.index import KeyIndex
from tidemill.types import SqlType


def check(connection: duckdb.DuckDBPyConnection, types: list[str], pieces: list[pa.Table]) -> None:
    index = KeyIndex([SqlType.parse(kind) for kind in types])
    slots = [index.slots(piece.columns, piece.num_rows) for piece in pieces]
    names = [f"c{at}" for at in range(len(types))]
    rows = pa.concat_tables(pieces)
    counts = np.bincount(np.concatenate(slots), minlength=index.groups)
    found = pa.table([*index.columns(), counts], names=[*names, "n"])
    keys = ", ".join(names)
    expected = f"SELECT {keys}, count(*) AS n FROM tm_rows GROUP BY ALL"
    assert answer(connection, f"SELECT {keys}, n FROM t", {"t": found}) == answer(
        connection, expected, {"tm_rows": rows}
    )


@pytest.mark.parametrize("kind", TYPES)
def test_one_column_of_every_type(connection: duckdb.DuckDBPyConnection, kind: str) -> None:
    seed = random.Random(kind)
    for awkward in (0.0, 0.2):
        rows = random_rows(connection, [kind], 3000, seed, awkward)
        check(connection, [kind], chunks(rows, seed))


@pytest.mark.parametrize("number", range(40))
def test_several_columns(connection: duckdb.DuckDBPyConnection, number: int) -> None:
    seed = random.Random(number)
    types = seed.choices(TYPES, k=seed.randint(2, 5))
    rows = random_rows(connection, types, 3000, seed, seed.choice((0.0, 0.02, 0.3)))
    check(connection, types, chunks(rows, seed))


def numbered(table: pa.Table, types: list[str], parts: int) -> KeyIndex:
    """An index over a table's rows; its slots tell the rows apart as their values do."""
    index = KeyIndex([SqlType.parse(kind) for kind in types])
    size = -(-table.num_rows // parts)
    pieces = [table.slice(at, size) for at in range(0, table.num_rows, size)]
    slots = np.concatenate([index.slots(piece.columns, piece.num_rows) for piece in pieces])
    values = np.stack([column.to_numpy().astype(np.int64) for column in table.columns])
    kept = np.stack([np.asarray(column.cast("int64")) for column in index.columns()])
    assert (kept[:, slots] == values).all()
    assert index.groups == len(np.unique(values, axis=1).T)
    return index


@pytest.mark.parametrize("parts", [1, 3, 50])
def test_many_keys_far_apart_are_hashed(parts: int) -> None:
    choose = np.random.default_rng(parts)
    keys = choose.integers(-(2**63), 2**63 - 1, 60_000)
    index = numbered(pa.table({"c0": choose.choice(keys, 300_000)}), ["BIGINT"], parts)
    assert index.describe() == "hashed"


def test_a_hashed_index_is_addressed_once_it_is_dense() -> None:
    choose = np.random.default_rng(1)
    index = KeyIndex([SqlType("INTEGER")])
    seen = []
    for _ in range(6):
        keys = choose.integers(0, 1_500_000, 40_000).astype(np.int32)
        index.slots([pa.array(keys)], len(keys))
        seen.append(index.describe())
    assert (seen[0], seen[-1]) == ("hashed", "addressed")
    kept = np.asarray(index.columns()[0])
    assert (index.slots([pa.array(kept)], len(kept)) == np.arange(index.groups)).all()


@pytest.mark.parametrize("parts", [1, 7])
def test_columns_that_do_not_fit_into_one_number(parts: int) -> None:
    choose = np.random.default_rng(parts)
    rows = pa.table(
        {f"c{at}": choose.integers(0, 2**50, 400)[choose.integers(0, 400, 9000)] for at in range(4)}
    )
    numbered(rows, ["BIGINT"] * 4, parts)


def test_weeks_are_neighbours_and_odd_times_still_right() -> None:
    week = 7 * 86_400 * 1_000_000
    start = 1_700_000_000_000_000
    weeks = pa.array([start + at * week for at in range(300)], pa.timestamp("us"))
    index = KeyIndex([SqlType("TIMESTAMP")])
    assert index.slots([weeks], 300).tolist() == list(range(300))
    assert index.describe() == "addressed"
    assert index.nbytes < 20_000
    odd = pa.array([start + 1, None, start, start - 5 * week, start + 1], pa.timestamp("us"))
    assert index.slots([odd], 5).tolist()[2] == 0
    assert index.slots([odd], 5).tolist()[0] == index.slots([odd], 5).tolist()[4]
    assert index.groups == 303
    assert sorted(set(index.slots([weeks], 300).tolist())) == list(range(300))


def test_texts_in_other_layouts_are_the_same_keys() -> None:
    texts = ["", "a", "seven77", "eight888", None, "a text of more than two words", "a"]
    array = pa.array(texts)
    index = KeyIndex([SqlType("VARCHAR")])
    first = index.slots([array], 7).tolist()
    assert len(set(first)) == index.groups == 6
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        assert index.slots([array.cast(kind)], 7).tolist() == first
    holed = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    assert index.slots([holed], 3).tolist() == [first[1], first[4], first[4]]
    assert index.slots([array.slice(2, 3)], 3).tolist() == first[2:5]
    assert index.groups == 6


def test_texts_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def same(eights: object, at: object, lengths: np.ndarray, words: object) -> np.ndarray:
        return np.full(len(lengths), np.uint64(0xFF << 56))

    monkeypatch.setattr(coders, "_hashes", same)
    index = KeyIndex([SqlType("VARCHAR")])
    index.slots([pa.array(["short", "the first long text"])], 2)
    with pytest.raises(NotPackable, match="one hash"):
        index.slots([pa.array(["the other long text"])], 1)
    assert index.groups == 2
