"""The state of a digest in memory, whichever way it is held.

A state is a cache: it holds what digest files and hot rows say, and can be made again from them.
It is not safe for use by several threads at once; its owner serialises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from tidemill.digests.dense import DenseGroup, DenseState, Project, plan_dense
from tidemill.digests.levels import LevelState, Run
from tidemill.types import Column


class State(Protocol):
    """Partial results of all rows absorbed so far, one row for each group."""

    def absorb(self, rows: pa.Table) -> None:
        """Take in rows of the stream. A dense state may raise NotPackable instead, before it has
        taken in anything; its owner then makes the state again, in levels."""

    def absorb_partials(self, partials: pa.Table) -> None:
        """Take in partial results that were computed elsewhere; several may be of one group."""

    def table(self) -> pa.Table:
        """Keys and states, one row for each group; valid until rows are absorbed again."""

    def select_sql(self, source: str) -> str:
        """A query over ``table()``, known as ``source``, with the digest's exact types."""

    @property
    def groups(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def clear(self) -> None:
        """Forget everything."""

    def describe(self) -> str:
        """How the state is held, for people."""


def make_state(
    columns: Sequence[Column],
    partial: str,
    merge: str,
    run: Run,
    project: Project,
    dense: bool = True,
) -> State:
    """A state of its own for one digest: dense if its shape and ``dense`` allow it."""
    plan = plan_dense(partial, columns) if dense else None
    if plan is None:
        return LevelState(columns, partial, merge, run)
    return DenseState(DenseGroup({"": plan}), "", project)
