"""Sampling: whether rows take more room in one order than in another, found by a trial.

A key's rows often resemble each other, so an order by key compresses well, and the better the
longer its runs of one key are; but how much, only the data can tell. So all rows of some keys are
encoded in both orders, in memory, as a file would be. It takes a few hundredths of a second, and is
asked once for each call that writes large partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.history.ordering import Order, is_sortable, order_of
from tidemill.history.parquet import layout_of, write_parquet

SAMPLE_ROWS = 32_768
SAMPLE_ROWS_MAX = 4 * SAMPLE_ROWS  # if some of the keys have very many
GROWTH_MAX = 1.05

Places = npt.NDArray[np.int64]


def grows(
    rows: pa.RecordBatch,
    keys: pa.Array,
    order: Order | None,
    longer: Sequence[int],
    shorter: Sequence[int],
) -> bool:
    """Whether rows take more room by key within shorter slices than within longer ones. Slices
    end so in the order of time, which the keys have and the rows get by ``order``."""
    places = _places(keys)
    if not len(places):
        return False
    taken = rows.take(pa.array(places if order is None else order[places]))
    plain = [name for name in taken.schema.names if is_sortable(taken.schema.field(name).type)]
    sample, some = taken.select(plain), keys.take(pa.array(places))
    return _bytes(sample, some, places, shorter) > GROWTH_MAX * _bytes(sample, some, places, longer)


def _places(keys: pa.Array) -> Places:
    """Where some of the keys are: all places of each."""
    values = keys.storage if isinstance(keys, pa.ExtensionArray) else keys
    codes = pc.fill_null(values.dictionary_encode().indices, 0).to_numpy()
    share = max(len(codes) // SAMPLE_ROWS, 1)
    return np.flatnonzero(codes % share == share // 2)[:SAMPLE_ROWS_MAX]


def _bytes(rows: pa.RecordBatch, keys: pa.Array, places: Places, slices: Sequence[int]) -> int:
    numbers = np.searchsorted(np.asarray(slices), places, side="right")
    order = order_of([pa.array(numbers), keys])
    ordered = rows if order is None else rows.take(pa.array(order))
    ends = [ordered.num_rows]
    sink = pa.BufferOutputStream()
    write_parquet(sink, ordered, layout_of(ordered, (), ends), ends)
    return int(sink.tell())
