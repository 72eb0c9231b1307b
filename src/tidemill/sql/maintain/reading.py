"""Reading a view: which panes and rows, and the text that DuckDB runs over states and rows.

For each digest:

1. ``bounds_sql`` asks DuckDB for the ends of its window, ``reach_of`` turns them into the panes
   that lie inside wholly and the times of the rows that must be read one by one (the edges);
2. ``read_sql`` is the relation ``tm_digest_<i>``: groups that the condition lets through, of panes
   inside, with the partials of the edge rows, merged. Where nothing is to be merged, it is a plain
   SELECT over the state;
3. ``answer_sql`` puts them before the final query.

Rows of the edges may be any rows of those times: ``edge`` asks the view's conditions of each. What
they may not be is rows of panes inside, which the state holds already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill.clock import from_us
from tidemill.sql.decompose.plan import MERGE_SOURCE
from tidemill.sql.maintain.plan import DIGEST, REFERENCE, ROWS, DigestParts, Pane, ViewParts
from tidemill.types import quote


@dataclass(frozen=True)
class Reach:
    """The panes to read as they are, from ``first_us`` and below ``end_us`` (None is no end), and
    the ranges of time ``[from, to)`` whose rows are read instead."""

    first_us: int | None = None
    end_us: int | None = None
    edges: tuple[tuple[int | None, int | None], ...] = ()

    @property
    def is_empty(self) -> bool:
        """No pane lies inside."""
        ends = (self.first_us, self.end_us)
        return ends[0] is not None and ends[1] is not None and ends[0] >= ends[1]


def bounds_sql(pane: Pane) -> str:
    """SELECT of the window's ends as microseconds since 1970; NULL for none."""
    low, high = (f"epoch_us({end})" if end is not None else "NULL" for end in (pane.low, pane.high))
    return f"SELECT CAST({low} AS BIGINT), CAST({high} AS BIGINT)"


def reach_of(
    pane: Pane, low_us: int | None, high_us: int | None, newest_us: int | None = None
) -> Reach:
    """What a window reaches. ``newest_us`` is the time of the stream's newest row, if known: a
    window that ends behind it has no upper edge.

    >>> reach_of(Pane("h0", 10, "…", "…"), 15, 42)
    Reach(first_us=20, end_us=40, edges=((10, 20), (40, 50)))
    >>> reach_of(Pane("h0", 10, "…", "…"), 20, 42, newest_us=41)
    Reach(first_us=20, end_us=None, edges=())
    """
    size = pane.size_us
    if low_us is not None and pane.low_open:
        low_us += 1
    if high_us is not None and not pane.high_open:
        high_us += 1  # from here on a time is the first one or the first not inside
    if high_us is not None and newest_us is not None and newest_us < high_us:
        high_us = None
    low_pane = low_us // size * size if low_us is not None else None
    first = -(-low_us // size) * size if low_us is not None else None
    end = high_us // size * size if high_us is not None else None
    high_pane = -(-high_us // size) * size if high_us is not None else None
    if low_us is not None and high_us is not None and low_us >= high_us:
        return Reach(0, 0)
    if first is not None and end is not None and first >= end:
        return Reach(0, 0, ((low_pane, high_pane),))
    edges = [(low_pane, first)] if low_pane != first else []
    edges += [(end, high_pane)] if end != high_pane else []
    return Reach(first, end, tuple(edges))


def read_sql(
    digest: DigestParts,
    state: str,
    rows: str | None = None,
    reach: Reach | None = None,
    *,
    is_merged: bool = True,
    is_whole: bool = False,
    more: Sequence[str] = (),
) -> str:
    """The relation of a digest as the final sees it: columns ``digest.shown``, and ``more`` that
    the state has, where it is read as it is.

    ``state`` is the FROM item of the digest's state, ``rows`` that of the rows at its edges, if
    there are any; neither may be called ``tm_rows`` or ``tm_partials``.
    ``is_merged`` says that the state has each key once. With ``is_whole`` the rows are all rows of
    the stream and the state is not read: what to do when ``rows_window`` does not hold.
    """
    if is_whole:
        assert rows is not None
        return _edge(digest, rows)
    groups = _groups(digest, state, reach, more)
    if rows is None and is_merged and digest.is_single:
        return groups
    parts = [groups]
    if rows is not None:
        parts.append(_edge(digest, rows))
    union = " UNION ALL ".join(f"({part})" for part in parts)
    return f"WITH {MERGE_SOURCE} AS NOT MATERIALIZED ({union}) {digest.collapse}"


def _groups(digest: DigestParts, state: str, reach: Reach | None, more: Sequence[str] = ()) -> str:
    conditions = [f"({digest.condition})"] if digest.condition is not None else []
    if digest.pane is not None and reach is not None:
        conditions += _inside(digest, digest.pane, reach)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {_list([*digest.shown, *more])} FROM {state}{where}"


def _inside(digest: DigestParts, pane: Pane, reach: Reach) -> list[str]:
    if reach.is_empty:
        return ["false"]
    kind = digest.types[digest.columns.index(pane.key)] if digest.types else "TIMESTAMP"
    ends = ((">=", reach.first_us), ("<", reach.end_us))
    return [
        f"{quote(pane.key)} {sign} {moment_sql(us, kind)}" for sign, us in ends if us is not None
    ]


def moment_sql(us: int, kind: str) -> str:
    """A time in microseconds as SQL of one of the timestamp types."""
    zone = "" if kind == "TIMESTAMP" else "+00:00"
    return f"CAST('{from_us(us).isoformat(sep=' ')}{zone}' AS {kind})"


def _edge(digest: DigestParts, rows: str) -> str:
    edge = f"SELECT {_list(digest.shown)} FROM ({digest.edge})"
    return f"WITH {ROWS} AS NOT MATERIALIZED (SELECT * FROM {rows}) {edge}"


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(quote, names))


def answer_sql(parts: ViewParts, digests: Sequence[str], references: Mapping[int, str]) -> str:
    """The final query with its digests (texts of ``read_sql``) and reference tables (FROM items by
    table id)."""
    given = [
        *(
            f"{REFERENCE}{key} AS NOT MATERIALIZED (SELECT * FROM {references[key]})"
            for key in references
        ),
        *(f"{DIGEST}{at} AS NOT MATERIALIZED ({text})" for at, text in enumerate(digests)),
    ]
    for start in ("WITH RECURSIVE ", "WITH "):
        if parts.final.startswith(start):
            return f"{start}{', '.join(given)}, {parts.final[len(start) :]}"
    return f"WITH {', '.join(given)} {parts.final}"
