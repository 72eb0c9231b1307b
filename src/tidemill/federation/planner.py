"""The planner: a query's tree in, a plan out that names its scans.

What happens to the tree is in ``passes``, one step after the other; here the steps are run and what
they found becomes a ``Plan``.

A plan depends on the text and the catalog's snapshot alone, so it is kept and used again; values,
clocks and rows come in when it runs.
"""

from __future__ import annotations

from functools import partial

from sqlglot import exp

from tidemill.catalog.model import Snapshot
from tidemill.federation.passes import PASSES, PlanState
from tidemill.federation.plan import FRAME as FRAME
from tidemill.federation.plan import HOT as HOT
from tidemill.federation.plan import LATE as LATE
from tidemill.federation.plan import REJECTED as REJECTED
from tidemill.federation.plan import SYSTEM as SYSTEM
from tidemill.federation.plan import VIEW as VIEW
from tidemill.federation.plan import FileRead as FileRead
from tidemill.federation.plan import Frames as Frames
from tidemill.federation.plan import Plan as Plan
from tidemill.federation.plan import Scan as Scan
from tidemill.federation.template import Template
from tidemill.sql.now import NOW as NOW
from tidemill.sql.params import Params, placeholders
from tidemill.sql.passes import run_passes
from tidemill.sql.scopes import with_query


def make_plan(
    query: exp.Expression,
    snapshot: Snapshot,
    params: Params = None,
    frames: Frames | None = None,
) -> Plan:
    """Plan a query; ``params`` are needed only where a window's size is a parameter.

    ``frames`` are read where the catalog has no table of a name."""
    plan_of = partial(make_plan, snapshot=snapshot, frames=frames)
    start = PlanState.of(query.copy(), snapshot, plan_of, frames or {}, params)
    return _plan(run_passes(PASSES, start), tuple(placeholders(query)))


def _plan(state: PlanState, given: tuple[str, ...]) -> Plan:
    """What the passes found, as a plan; ``given`` are the parameters of the query as written."""
    tree = state.tree
    scans = tuple(found.scan for found in state.resolved if found.scan is not None)
    return Plan(
        template=Template.of(tree, {scan.source for scan in scans}),
        tree=tree,
        scans=scans,
        keys=state.keys,
        names=state.names,
        bounds=state.bounds,
        uses_now=state.uses_now,
        key_queries=state.key_queries,
        lookup=state.lookup,
        given=given,
        used=frozenset(placeholders(tree)),
        whole_view=state.whole_view,
        files=state.files,
        may_grow=_may_grow(tree, len(scans)),
        is_one_row=_is_one_row(tree),
        partners=state.partners,
    )


_SMALL = (exp.Count, exp.Sum, exp.Avg)
_GROWING = (exp.Join, exp.Explode, exp.Unnest, exp.Lateral, exp.Pivot)


def _is_one_row(tree: exp.Expression) -> bool:
    """Whether a query does nothing but add all rows up."""
    if not isinstance(tree, exp.Select) or tree.args.get("group") is not None:
        return False
    return all(isinstance(part.unalias(), _SMALL) for part in tree.expressions)


def _may_grow(tree: exp.Expression, scans: int) -> bool:
    """Whether the answer may have more rows than are read."""
    tables = 0
    for node in tree.find_all(exp.Table, exp.With, *_GROWING):
        if isinstance(node, exp.Table):
            tables += with_query(node) is None
        elif not isinstance(node, exp.With) or node.args.get("recursive"):
            return True
    return tables > scans  # reference tables, functions, files
