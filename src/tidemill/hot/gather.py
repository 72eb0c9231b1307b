"""Gathering: the rows picked from many blocks, as few Arrow batches.

A key's rows lie scattered, a few in every block. Taking them block by block costs a call of Arrow
for each; gathering column by column over all blocks costs one numpy index for each, and one array
for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.hot import keys
from tidemill.hot.block import Block
from tidemill.hot.piece import Piece
from tidemill.types import SEQ

SEQ_FIELD = pa.field(SEQ, pa.int64(), nullable=False)


@dataclass(frozen=True)
class Picked:
    """Rows of a block or piece: a run (``first``, ``count``) or single ``rows``."""

    part: Block | Piece
    first: int = 0
    count: int = 0
    rows: npt.NDArray[Any] | None = None


def gather(picked: list[Picked], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The picked rows in order; runs without a copy, neighbouring single rows in one batch."""
    with_seq = schema.get_field_index(SEQ_FIELD.name) >= 0
    for is_run, group in groupby(picked, lambda p: p.rows is None):
        if is_run:
            yield from (_slice(run, schema, with_seq) for run in group)
        else:
            yield _collect(list(group), schema, with_seq)


def _slice(run: Picked, schema: pa.Schema, with_seq: bool) -> pa.RecordBatch:
    batch = run.part.batch.slice(run.first, run.count)
    if not with_seq:
        return batch
    seqs = pa.array(run.part.seq_column()[run.first : run.first + run.count])
    return pa.RecordBatch.from_arrays([*batch.columns, seqs], schema=schema)


def _collect(picked: list[Picked], schema: pa.Schema, with_seq: bool) -> pa.RecordBatch:
    columns = [_column(picked, at, field) for at, field in enumerate(schema)]
    if with_seq:
        seqs = [pick.part.seq_column()[pick.rows] for pick in picked]
        columns[-1] = pa.array(np.concatenate(seqs))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(picked: list[Picked], at: int, field: pa.Field) -> pa.Array | None:
    if field.name == SEQ_FIELD.name:
        return None
    words = [pick.part.words(at) for pick in picked]
    if all(word is not None for word in words):
        chosen = [w[p.rows] for w, p in zip(words, picked, strict=True) if w is not None]
        return keys.array_of(np.concatenate(chosen), field.type)
    rows = [keys.row_numbers(pick.rows) for pick in picked if pick.rows is not None]
    pairs = zip(picked, rows, strict=True)
    taken = [pick.part.batch.column(at).take(chosen) for pick, chosen in pairs]
    return taken[0] if len(taken) == 1 else pa.concat_arrays(taken)
