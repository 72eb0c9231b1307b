"""States for followers: a dense group for digests that share keys and rows, else levels for one.

Queries over rows run in the engine's DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from tidemill.digests.batch import Rows
from tidemill.digests.definition import Digest
from tidemill.digests.dense import DenseGroup, plan_dense
from tidemill.digests.levels import LevelState
from tidemill.digests.shape import ROWS, DensePlan
from tidemill.federation.duck import Duck
from tidemill.views.bounded_state import DigestStates, Narrow

BATCH_ROWS = 122_880
ROWS_A_GROUP_MIN = 64  # in a batch, for DuckDB to add them up (docs/design/20261116-view-kernels)


def family_of(digest: Digest) -> tuple[object, ...] | None:
    """What digests must have in common to be fed together; None: it is fed alone."""
    plan = _dense_plan(digest)
    return None if plan is None else plan.share


def _dense_plan(digest: Digest) -> DensePlan | None:
    """How arrays hold a digest whose merge is by its keys; sessions are merged by their times."""
    if digest.parts.kind != "aggregate":
        return None
    return plan_dense(digest.partial, digest.columns)


def make_states(digests: Sequence[Digest], duck: Duck, may_be_dense: bool) -> DigestStates:
    """The states of digests of one family."""

    def run(sql: str, sources: Mapping[str, pa.Table]) -> pa.Table:
        return duck.query(sql, {}, sources, exact=True)[0]

    plans = {str(d.table_id): _dense_plan(d) for d in digests}
    known = {name: plan for name, plan in plans.items() if plan is not None}
    if may_be_dense and len(known) == len(plans):
        partials = {str(d.table_id): d.partial for d in digests}
        return _Dense(DenseGroup(known), partials, lambda sql, rows: run(sql, {ROWS: rows}))
    return _Levels({d.table_id: LevelState(d.columns, d.partial, d.merge, run) for d in digests})


class _Dense:
    """Arrays. Where something is computed of the rows and groups are few, DuckDB adds the rows of
    a batch up by itself, and arrays take its sums: it need not hand over all it computed."""

    def __init__(
        self,
        group: DenseGroup,
        partials: Mapping[str, str],
        project: Callable[[str, pa.Table], pa.Table],
    ) -> None:
        """``partials`` are the queries of the group's members."""
        self._group = group
        self._project = project
        self._computed = {n: sql for n, sql in partials.items() if group.plan(n).is_computed}
        self._bare = [name for name in partials if name not in self._computed]

    @property
    def kind(self) -> str:
        return f"dense, {self._group.index.describe()}"

    def absorb(self, rows: Rows) -> None:
        least = self._group.index.groups * ROWS_A_GROUP_MIN
        if not self._computed or least > rows.table.num_rows:
            self._group.absorb(rows, self._project)
            return
        for name, sql in self._computed.items():
            self._group.absorb_partials(name, self._project(sql, rows.table))
        if self._bare:
            self._group.absorb(rows, self._project, self._bare)

    def absorb_partials(self, digest_id: int, partials: pa.Table) -> None:
        self._group.absorb_partials(str(digest_id), partials)

    def table(self, digest_id: int) -> pa.Table:
        rows = self._group.table(str(digest_id))
        # One batch is read by one thread.
        return pa.Table.from_batches(rows.to_batches(BATCH_ROWS), rows.schema)

    def select(self, digest_id: int, source: str, narrow: Narrow, more: Sequence[str] = ()) -> str:
        return self._group.select_sql(str(digest_id), source, narrow, more)

    def is_steady(self, digest_id: int) -> bool:
        return self._group.is_whole(str(digest_id))

    def groups(self, digest_id: int) -> int:
        return self._group.groups(str(digest_id))

    @property
    def nbytes(self) -> int:
        return self._group.nbytes()

    def growth(self, rows: int) -> int:
        return self._group.growth(rows)


class _Levels:
    def __init__(self, states: Mapping[int, LevelState]) -> None:
        self._states = states

    @property
    def kind(self) -> str:
        return "levels"

    def absorb(self, rows: Rows) -> None:
        for state in self._states.values():
            state.absorb(rows.table)

    def absorb_partials(self, digest_id: int, partials: pa.Table) -> None:
        self._states[digest_id].absorb_partials(partials)

    def table(self, digest_id: int) -> pa.Table:
        return self._states[digest_id].table()

    def select(self, digest_id: int, source: str, narrow: Narrow, more: Sequence[str] = ()) -> str:
        assert not more, "groups of levels have no place of their own"
        return self._states[digest_id].select_sql(source)

    def is_steady(self, digest_id: int) -> bool:
        return False

    def groups(self, digest_id: int) -> int:
        return self._states[digest_id].groups

    @property
    def nbytes(self) -> int:
        return sum(state.nbytes for state in self._states.values())

    def growth(self, rows: int) -> int:
        groups = sum(state.groups for state in self._states.values())
        return rows * self.nbytes // max(groups, rows, 1)
