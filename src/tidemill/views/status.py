"""What is known of views: the rows of ``tidemill.views``, and EXPLAIN of a view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tidemill.catalog.model import FILE_ROWS, Snapshot
from tidemill.digests.definition import Digest
from tidemill.errors import ViewFailedError
from tidemill.federation.duck import public
from tidemill.history.partitions import US_MAX
from tidemill.hot.view import BEFORE_ALL_US
from tidemill.views.answering import LiveView
from tidemill.views.continuous import KeptQueries, KeptStatus
from tidemill.views.defining import ViewDefinition
from tidemill.views.follower import Follower
from tidemill.views.kept.definition import definition_of
from tidemill.views.key_joins import GROUPS_MIN

if TYPE_CHECKING:
    from tidemill.views.registry import Views


def status_row(views: Views, live: LiveView, snapshot: Snapshot) -> dict[str, Any]:
    """One view as ``tidemill.views`` shows it."""
    with suppress(ViewFailedError):
        live.check()
    followers = list(dict.fromkeys(views.followers(live)))
    # Before anything that waits for followers, who would catch up meanwhile.
    lag_rows = max((each.lag_rows for each in followers), default=0)
    newest_us = max((each.state.newest_us for each in followers), default=BEFORE_ALL_US)
    rows_in = sum(each.figures.rows_in for each in followers)
    seconds = sum(each.figures.seconds for each in followers)
    now_us = views.environment.clock.now_us()
    is_known = newest_us > BEFORE_ALL_US
    share, from_us = _history(views, live, snapshot)
    return {
        "view_name": live.table.name,
        "kind": "view",
        "streams": list(live.parts.streams),
        "state": _state_of(live, followers),
        "groups": sum(_groups(each, live) for each in followers),
        "state_bytes": sum(each.state.nbytes for each in followers),
        "rows_in": rows_in,
        "rows_out": live.answer.table.num_rows if live.answer is not None else None,
        "insert_ns_row": seconds * 1e9 / rows_in if rows_in else None,
        "rebuilds": sum(each.figures.rebuilds for each in followers),
        "newest": newest_us if is_known else None,
        "lag": max(now_us - newest_us, 0) if is_known else None,
        "lag_rows": lag_rows,
        "refreshes": live.costs.answers,
        "served": live.costs.served,
        "refresh_ms": live.costs.last_seconds * 1e3 if live.costs.answers else None,
        "history": share,
        "history_from": from_us,
        "last_error": _error_of(views, live, followers),
        "definition": ViewDefinition.of(live.table).query,
        "created_at": live.table.created_at_us,
    }


def _state_of(live: LiveView, followers: list[Follower]) -> str:
    if live.failure is not None:
        return "failed"
    if not live.digests:
        return f"query: {live.parts.reason}"
    if live.is_too_large:
        return "query: more than its memory"
    kinds = [each.state.kept.kind if each.state.is_built else "not built yet" for each in followers]
    return "; ".join(dict.fromkeys(kinds))


def _error_of(views: Views, live: LiveView, followers: Sequence[Follower]) -> str | None:
    """Why the view failed, or the last try to follow its streams, or its last back-fill."""
    errors = (live.failure, *(follower.error for follower in followers))
    found = next((error for error in errors if error), None) or views.completing.error_of(live)
    return None if found is None else public(found)


def _groups(follower: Follower, live: LiveView) -> int:
    own = {digest.table_id for digest in live.digests}
    if not follower.state.is_built:  # who builds it holds the lock
        return 0
    with follower.lock:
        if not follower.state.is_built:  # it failed meanwhile
            return 0
        kept = follower.state.kept
        return sum(kept.groups(d.table_id) for d in follower.digests if d.table_id in own)


def _history(views: Views, live: LiveView, snapshot: Snapshot) -> tuple[float, int | None]:
    """How much of the streams' history the view has, and from when on (None: all of it)."""
    shares, froms = [1.0], []
    for digest in live.digests:
        progress = views.completing.progress(digest)
        if progress.from_us is not None:
            shares.append(_share(digest, progress.from_us, snapshot))
            if progress.from_us < US_MAX:
                froms.append(progress.from_us)
    return min(shares), max(froms, default=None)


def _share(digest: Digest, from_us: int, snapshot: Snapshot) -> float:
    history = snapshot.history(digest.source_id)
    files = [file for file in history.files if file.kind == FILE_ROWS]
    rows = sum(file.rows for file in files)
    done = sum(file.rows for file in files if file.time_min_us >= from_us)
    return done / rows if rows else 1.0


def kept_rows(kept: KeptQueries, snapshot: Callable[[], Snapshot]) -> list[dict[str, Any]]:
    """Kept queries as ``tidemill.views`` shows them."""
    now = snapshot()
    return [kept_row(status, now) for status in kept.status()]


def kept_row(kept: KeptStatus, snapshot: Snapshot) -> dict[str, Any]:
    """One kept query as ``tidemill.views`` shows it."""
    table = snapshot.table(kept.table_id)
    query = "" if table is None else definition_of(table).query
    return {
        "view_name": kept.name,
        "kind": kept.kind,
        "streams": list(kept.streams),
        "state": kept.slide,
        "rows_out": kept.rows_out,
        "newest": kept.last_us,
        "lag": kept.lag_us,
        "lag_rows": kept.lag_rows,
        "refreshes": kept.evaluations,
        "refresh_ms": kept.cost_ms,
        "last_error": kept.error or kept.notice,
        "definition": query,
        "created_at": None if table is None else table.created_at_us,
    }


def explain_view(views: Views, live: LiveView) -> list[str]:
    """A view's split, the states that hold it, and what it reads besides."""
    lines = [f'view "{live.table.name}": ' + _state_of(live, views.followers(live))]
    lines += live.parts.explain()
    snapshot = views.environment.catalog.snapshot()
    for table_id in live.parts.above:
        table = snapshot.table(table_id)
        if table is not None:
            when = "when the view is read" if live.digests else "by its query"
            lines.append(f'reference table "{table.name}" is joined {when}')
            if live.lookups is not None and live.lookups.plan.reference == table_id:
                least = f"{GROUPS_MIN:,}"
                lines.append(f"  from {least} groups on, what was found is kept until it changes")
    share, _ = _history(views, live, snapshot)
    if share < 1:
        lines.append(f"history: {share:.0%} back-filled; the answer lacks the rest")
    return lines
