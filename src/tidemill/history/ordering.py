"""The order of rows in a file, found by sorting machine words.

Rows are ordered by one key after the other, the least important first, each time keeping the order
of equals; what is in order already costs one look. A word and its row number are sorted as one
number where both fit into 63 bits. This takes a twelfth of the time of a sort by DuckDB
(docs/design/20261115-history-files.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Order = npt.NDArray[np.int64]
Words = npt.NDArray[Any]


def order_of(keys: Sequence[pa.Array]) -> Order | None:
    """Row numbers in the order of the keys, the first the most important, NULLs last; None if
    every key is in order already."""
    order: Order | None = None
    for key in reversed(keys):
        for words in _words_of(key):
            order = sort_by(words, order)
    return order


def sort_by(words: Words, order: Order | None = None) -> Order | None:
    """An order, changed to be by these words first; None stands for the order that rows have."""
    given = words if order is None else words[order]
    if not len(given) or bool(np.all(given[1:] >= given[:-1])):
        return order
    change = _argsort(given)
    del given  # rows may be many
    return change if order is None else order[change]


def is_sortable(kind: pa.DataType) -> bool:
    """Whether rows can be ordered by a column of the type."""
    return bool(_is_word(kind) or _is_ranked(kind) or kind == pa.uuid())


def words_of(column: pa.Array) -> Words:
    """A column of numbers, times or booleans as machine words; NULL slots hold anything."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_date(kind):
        column = column.view(pa.int32())
    elif pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        column = column.view(pa.int64())
    if not len(column):
        return np.empty(0, column.type.to_pandas_dtype())
    dtype = column.type.to_pandas_dtype()
    return np.frombuffer(column.buffers()[1], dtype)[column.offset : column.offset + len(column)]


def _is_word(kind: pa.DataType) -> bool:
    tests = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_date,
        pa.types.is_time,
        pa.types.is_timestamp,
    )
    return any(test(kind) for test in tests)


def _is_ranked(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_decimal(kind))


def _words_of(key: pa.Array) -> list[Words]:
    """Words that order as the key does; a second array, if there is one, is more important."""
    if isinstance(key, pa.ExtensionArray):
        key = key.storage
    words = words_of(key) if _is_word(key.type) else _ranks(key)
    if not key.null_count:
        return [words]
    is_null = key.is_null().to_numpy(zero_copy_only=False)
    return [
        np.where(is_null, words.dtype.type(0), words),
        is_null,
    ]  # what NULL slots hold is chance


def _ranks(key: pa.Array) -> Words:
    """The rank of each value among the distinct ones."""
    encoded = key.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks: Words = np.zeros(len(order) + 1, dtype=np.int64)
    ranks[order] = np.arange(len(order), dtype=np.int64)
    places: Words = pc.fill_null(encoded.indices, len(order)).to_numpy()
    return ranks[places]


def _argsort(words: Words) -> Order:
    count = len(words)
    bits = max(count - 1, 1).bit_length()
    if words.dtype.kind in "iu":
        low, high = int(words.min()), int(words.max())
        if (high - low).bit_length() + bits <= 63:
            # Wraps around for words beyond 63 bits, and the difference is right all the same.
            packed = words.astype(np.int64)
            packed -= np.uint64(low % 2**64).astype(np.int64)
            packed <<= np.int64(bits)
            packed |= np.arange(count, dtype=np.int64)
            packed.sort()
            packed &= np.int64((1 << bits) - 1)
            return packed
    return np.argsort(words, kind="stable")
