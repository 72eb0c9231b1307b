"""States for followers: a dense group for digests that share keys and rows, else levels for one.

Queries over rows run in the engine's DuckDB, where reference tables are at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from tidemill.digests.definition import Digest
from tidemill.digests.dense import DenseGroup, plan_dense
from tidemill.digests.levels import LevelState
from tidemill.digests.shape import ROWS, DensePlan
from tidemill.federation.duck import Duck
from tidemill.views.follower import Kept

BATCH_ROWS = 122_880
ReferenceSql = Callable[[int], str]


def family_of(digest: Digest) -> tuple[object, ...] | None:
    """What digests must have in common to be fed together; None: it is fed alone."""
    plan = _dense_plan(digest)
    return None if plan is None else plan.share


def _dense_plan(digest: Digest) -> DensePlan | None:
    """How arrays hold a digest whose merge is by its keys; sessions are merged by their times."""
    if digest.parts.kind != "aggregate":
        return None
    return plan_dense(digest.partial, digest.columns)


def make_kept(
    digests: Sequence[Digest], duck: Duck, reference_sql: ReferenceSql, may_be_dense: bool
) -> Kept:
    """The states of digests of one family."""
    references = {each for digest in digests for each in digest.references}
    heads = [f"tm_ref_{each} AS (SELECT * FROM {reference_sql(each)})" for each in references]
    head = f"WITH {', '.join(heads)} " if heads else ""

    def run(sql: str, sources: Mapping[str, pa.Table]) -> pa.Table:
        text = f"{head}SELECT * FROM ({sql})" if head else sql
        return duck.query(text, {}, sources, exact=True)[0]

    plans = {str(d.table_id): _dense_plan(d) for d in digests}
    known = {name: plan for name, plan in plans.items() if plan is not None}
    if may_be_dense and len(known) == len(plans):
        return _Dense(DenseGroup(known), lambda sql, rows: run(sql, {ROWS: rows}))
    return _Levels({d.table_id: LevelState(d.columns, d.partial, d.merge, run) for d in digests})


class _Dense:
    def __init__(self, group: DenseGroup, project: Callable[[str, pa.Table], pa.Table]) -> None:
        self._group = group
        self._project = project

    @property
    def kind(self) -> str:
        return f"dense, {self._group.index.describe()}"

    def absorb(self, rows: pa.Table) -> None:
        self._group.absorb(rows, self._project)

    def absorb_partials(self, digest_id: int, partials: pa.Table) -> None:
        self._group.absorb_partials(str(digest_id), partials)

    def table(self, digest_id: int) -> pa.Table:
        rows = self._group.table(str(digest_id))
        # One batch is read by one thread.
        return pa.Table.from_batches(rows.to_batches(BATCH_ROWS), rows.schema)

    def select(self, digest_id: int, source: str) -> str:
        return self._group.plan(str(digest_id)).select_sql(source)

    def groups(self, digest_id: int) -> int:
        return self._group.groups(str(digest_id))

    @property
    def nbytes(self) -> int:
        return self._group.nbytes()


class _Levels:
    def __init__(self, states: Mapping[int, LevelState]) -> None:
        self._states = states

    @property
    def kind(self) -> str:
        return "levels"

    def absorb(self, rows: pa.Table) -> None:
        for state in self._states.values():
            state.absorb(rows)

    def absorb_partials(self, digest_id: int, partials: pa.Table) -> None:
        self._states[digest_id].absorb_partials(partials)

    def table(self, digest_id: int) -> pa.Table:
        return self._states[digest_id].table()

    def select(self, digest_id: int, source: str) -> str:
        return self._states[digest_id].select_sql(source)

    def groups(self, digest_id: int) -> int:
        return self._states[digest_id].groups

    @property
    def nbytes(self) -> int:
        return sum(state.nbytes for state in self._states.values())
