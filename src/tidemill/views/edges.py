"""Reading digests: what the final query runs over, with the rows at the edges of sliding windows.

Panes that lie inside a window are groups of the state. Of those that its ends cut through, the rows
are read from the stream, and joined with reference tables as they were when the rows arrived
(``versions``); ``sql.maintain.reading`` has the texts that put all of them together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sqlglot
from sqlglot import exp

from tidemill.catalog.store import Catalog
from tidemill.clock import DATETIME_US_MAX, DATETIME_US_MIN, from_us
from tidemill.digests.definition import Digest
from tidemill.federation.duck import Duck
from tidemill.federation.planner import make_plan
from tidemill.federation.runner import Moment, Runner
from tidemill.sql.maintain import (
    EdgeRows,
    Reach,
    ViewParts,
    answer_sql,
    bounds_sql,
    reach_of,
    read_sql,
)
from tidemill.sql.maintain.narrowing import takes_any_width
from tidemill.types import quote
from tidemill.views.follower import Follower, Round
from tidemill.views.lookups import Lookups
from tidemill.views.versions import Versions

_PARAMETER = re.compile(r"\$(\w+)")
ReferenceSql = Callable[[int], str]
Values = Mapping[str, object]


@dataclass
class Reads:
    """What a final query runs over: the texts of the digests, and Arrow tables by name."""

    texts: list[str] = field(default_factory=list)
    sources: dict[str, pa.Table] = field(default_factory=dict)
    found: pa.Table | None = None  # columns beside the groups of the one digest


class Edges:
    def __init__(
        self,
        duck: Duck,
        runner: Runner,
        catalog: Catalog,
        reference_sql: ReferenceSql,
        versions: Versions,
    ) -> None:
        self._duck = duck
        self._runner = runner
        self._catalog = catalog
        self._reference_sql = reference_sql
        self._versions = versions

    def answer(
        self,
        parts: ViewParts,
        digests: Sequence[Digest],
        followers: Sequence[Follower],
        values: Values,
        lookups: Lookups | None = None,
        moment: Moment | None = None,
    ) -> tuple[pa.Table, list[str]] | None:
        """A view's answer from its states; None if they cannot give it now. With a moment, the
        states stand there."""
        reads = Reads()
        if lookups is not None:
            reads.found = lookups.columns(digests[0], followers[0].kept)
        if lookups is not None and reads.found is not None:
            parts = replace(parts, final=lookups.plan.final)
        with ExitStack() as stack:
            if any(digest.parts.pane is not None and digest.references for digest in digests):
                stack.enter_context(self._versions.held())
            for at, (digest, follower) in enumerate(zip(digests, followers, strict=True)):
                end = digest.parts.rows_window
                if end is not None and follower.newest_us > self._moment(end, values):
                    return None  # rows of the future, which the window does not show yet
                self._add(reads, at, parts, digest, follower, values, moment)
            below = [each for digest in digests for each in digest.references]
            references = {each: self._reference_sql(each) for each in (*below, *parts.above)}
            sql = answer_sql(parts, reads.texts, references)
            return self._duck.query(sql, _used(values, sql), reads.sources, exact=True)

    def _add(
        self,
        reads: Reads,
        at: int,
        parts: ViewParts,
        digest: Digest,
        follower: Follower,
        values: Values,
        moment: Moment | None,
    ) -> None:
        reach, edge = None, None
        earlier: list[EdgeRows] = []
        if digest.parts.pane is not None:
            reach = self._reach(digest, follower, values)
            if reach.first_us is not None and reach.first_us < follower.stale_before_us:
                follower.rebuild(None if moment is None else round_at(moment, follower))
            rows = [self._rows(digest, follower, moment, *span) for span in reach.edges]
            found = [part for part in rows if part.num_rows]
            if found:
                edge, earlier = self._edges(reads, at, digest, pa.concat_tables(found))
            if digest.references:
                self._note_reach(digest, reach)
        state = f"tm_state_{at}"
        table = follower.kept.table(digest.table_id)
        more: list[str] = []
        if reads.found is not None:
            more = reads.found.column_names
            names = [*table.column_names, *more]
            table = pa.table([*table.columns, *reads.found.columns], names=names)
        reads.sources[state] = table
        narrow = partial(takes_any_width, parts.final, at)
        text = follower.kept.select(digest.table_id, state, narrow, more)
        reads.texts.append(
            read_sql(digest.parts, f"({text})", edge, reach, earlier=earlier, more=more)
        )

    def _edges(
        self, reads: Reads, at: int, digest: Digest, rows: pa.Table
    ) -> tuple[str | None, list[EdgeRows]]:
        """The rows at the edges under names: those joined with tables as they are now, and those
        joined with earlier ones."""
        now, earlier = None, []
        seqs = rows.column("_seq").to_numpy()
        own = rows if digest.with_seq else rows.drop_columns(["_seq"])
        for number, part in enumerate(
            self._versions.divide(digest.table_id, digest.references, seqs)
        ):
            name = f"tm_edge_{at}_{number}"
            is_all = len(part.places) == len(seqs)
            reads.sources[name] = own if is_all else own.take(pa.array(part.places))
            if not part.tables:
                now = name
                continue
            tables = {each: f"tm_was_{at}_{number}_{each}" for each in part.tables}
            for each, table in part.tables.items():
                reads.sources[tables[each]] = table
            earlier.append(EdgeRows(name, tables))
        return now, earlier

    def _note_reach(self, digest: Digest, reach: Reach) -> None:
        lows = [low for low, _ in reach.edges if low is not None]
        low_us = min(lows) if lows else reach.first_us
        if low_us is not None and (lows or not reach.is_empty):
            self._versions.reached(digest.table_id, low_us)

    # -- windows

    def _reach(self, digest: Digest, follower: Follower, values: Values) -> Reach:
        pane = digest.parts.pane
        assert pane is not None
        sql = bounds_sql(pane)
        found, _ = self._duck.query(sql, _used(values, sql), {})
        low_us, high_us = (column[0].as_py() for column in found.columns)
        return reach_of(pane, low_us, high_us, follower.newest_us)

    def _moment(self, text: str, values: Values) -> int:
        sql = f"SELECT epoch_us({text})"
        found, _ = self._duck.query(sql, _used(values, sql), {})
        return int(found.column(0)[0].as_py())

    def _rows(
        self,
        digest: Digest,
        follower: Follower,
        moment: Moment | None,
        low_us: int | None,
        high_us: int | None,
    ) -> pa.Table:
        """The stream's rows of a span that the state holds as well: what came since is left out."""
        table = follower.hot.table
        column = table.get_column(digest.time_column)
        names = ", ".join(quote(each.name) for each in table.columns)
        time = quote(column.name)
        tree = sqlglot.parse_one(
            f"SELECT {names}, _seq FROM {quote(table.name)} WHERE {time} >= $1 AND {time} < $2",
            dialect="duckdb",
        )
        low_us = DATETIME_US_MIN if low_us is None else max(low_us, DATETIME_US_MIN)
        high_us = DATETIME_US_MAX if high_us is None else min(high_us, DATETIME_US_MAX)
        ends = [from_us(low_us), from_us(high_us)]
        if column.type.name.upper() != "TIMESTAMP":
            ends = [end.replace(tzinfo=UTC) for end in ends]
        assert isinstance(tree, exp.Expression)
        plan = make_plan(tree, self._catalog.snapshot())
        if moment is None:
            filled = self._runner.fill(plan, ends)
        else:
            filled = self._runner.fill_at(plan, ends, moment)
        rows, _ = self._duck.query(filled.sql, filled.values, filled.sources, exact=True)
        is_held = _held(follower, rows.column("_seq").to_numpy())
        if not is_held.all():
            rows = rows.filter(pa.array(is_held))
        return rows


def round_at(moment: Moment, follower: Follower) -> Round:
    """What a follower takes in to stand at a moment."""
    view = moment.views[follower.hot.table.table_id]
    return Round(follower.hot, view, moment.pin.snapshot)


def _held(follower: Follower, seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which rows the state has: up to the number it stands at, and those of loads."""
    held = seqs <= follower.absorbed_seq
    published = follower.hot.published
    for at in np.flatnonzero(~held):
        held[at] = published.is_loaded(int(seqs[at]))
    return held


def _used(values: Values, sql: str) -> dict[str, object]:
    named = set(_PARAMETER.findall(sql))
    return {name: value for name, value in values.items() if name in named}
