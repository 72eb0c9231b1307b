"""Reading digests: what the final query runs over, with the rows at the edges of sliding windows.

Panes that lie inside a window are groups of the state. Of those that its ends cut through, the rows
are read from the stream, and so are rows between the retention's horizon and the cut of a state
(``follower``); ``sql.maintain.reading`` has the texts that put all of them together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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
from tidemill.digests.batch import Rows
from tidemill.digests.definition import Digest
from tidemill.federation.duck import Duck
from tidemill.federation.planner import make_plan
from tidemill.federation.runner import Moment, Runner
from tidemill.hot.view import BEFORE_ALL_US
from tidemill.sql.maintain import (
    Reach,
    ViewParts,
    answer_sql,
    bounds_sql,
    reach_of,
    read_sql,
)
from tidemill.sql.maintain.narrowing import takes_any_width
from tidemill.stream.feed import Arrivals
from tidemill.types import SEQ, quote
from tidemill.views.follower import Follower, Round
from tidemill.views.key_joins import KeyJoins

_PARAMETER = re.compile(r"\$(\w+)")
ReferenceSql = Callable[[int], str]
Values = Mapping[str, object]
Horizons = Mapping[int, int | None]
"""By stream, the oldest time that may be seen."""


@dataclass
class Reads:
    """What a final query runs over: the texts of the digests, and Arrow tables by name."""

    texts: list[str] = field(default_factory=list)
    sources: dict[str, pa.Table] = field(default_factory=dict)
    found: pa.Table | None = None  # columns beside the groups of the one digest
    horizons: Horizons = field(default_factory=dict)
    oldest_us: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """An answer, with DuckDB's exact types, and by stream a time that no row of it is before."""

    table: pa.Table
    types: list[str]
    oldest_us: Mapping[int, int]


class Edges:
    def __init__(
        self,
        duck: Duck,
        runner: Runner,
        catalog: Catalog,
        reference_sql: ReferenceSql,
    ) -> None:
        self._duck = duck
        self._runner = runner
        self._catalog = catalog
        self._reference_sql = reference_sql

    def answer(
        self,
        parts: ViewParts,
        digests: Sequence[Digest],
        followers: Sequence[Follower],
        values: Values,
        horizons: Horizons,
        lookups: KeyJoins | None = None,
        moment: Moment | None = None,
    ) -> Found | None:
        """A view's answer from its states; None if they cannot give it now. With a moment, the
        states stand there."""
        reads = Reads(horizons=horizons)
        if any(follower.state.cut_us > BEFORE_ALL_US for follower in followers):
            lookups = None  # rows between horizon and cut may be of the groups' and of others
        if lookups is not None:
            reads.found = lookups.columns(digests[0], followers[0].state.kept)
        if lookups is not None and reads.found is not None:
            parts = replace(parts, final=lookups.plan.final)
        for at, (digest, follower) in enumerate(zip(digests, followers, strict=True)):
            end = digest.parts.rows_window
            if end is not None and follower.state.newest_us > self._moment(end, values):
                return None  # rows of the future, which the window does not show yet
            self._add(reads, at, parts, digest, follower, values, moment)
        references = {each: self._reference_sql(each) for each in parts.above}
        sql = answer_sql(parts, reads.texts, references)
        found = self._duck.query(sql, _used(values, sql), reads.sources, exact=True)
        return Found(*found, reads.oldest_us)

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
        reach, rows = None, []
        horizon = reads.horizons.get(digest.source_id)
        if digest.parts.pane is None:
            rows = self._before_cut(reads, digest, follower, moment, horizon)
        else:
            reach = self._reach(digest, follower, values, horizon)
            if horizon is not None:
                _note_oldest(reads, digest, horizon)
            if reach.first_us is not None and reach.first_us < follower.stale_before_us:
                follower.rebuild(None if moment is None else round_at(moment, follower))
            rows = [self._rows(digest, follower, moment, *span, horizon) for span in reach.edges]
        edge = self._named(reads, at, digest, [part for part in rows if part.num_rows])
        state = f"tm_state_{at}"
        kept = follower.state.kept
        table = kept.table(digest.table_id)
        more: list[str] = []
        if reads.found is not None:
            more = reads.found.column_names
            names = [*table.column_names, *more]
            table = pa.table([*table.columns, *reads.found.columns], names=names)
        reads.sources[state] = table
        narrow = partial(takes_any_width, parts.final, at)
        text = kept.select(digest.table_id, state, narrow, more)
        reads.texts.append(read_sql(digest.parts, f"({text})", edge, reach, more=more))

    def _before_cut(
        self,
        reads: Reads,
        digest: Digest,
        follower: Follower,
        moment: Moment | None,
        horizon: int | None,
    ) -> list[pa.Table]:
        """The rows that may be seen and that the state does not have."""
        state = follower.state
        _note_oldest(reads, digest, max(state.oldest_us, state.cut_us))
        if state.cut_us == BEFORE_ALL_US:
            return []
        rows = self._rows(digest, follower, moment, horizon, state.cut_us, horizon)
        if rows.num_rows:
            _note_oldest(reads, digest, Rows(rows).ends(digest.time_column)[0])
        return [rows]

    def _named(
        self, reads: Reads, at: int, digest: Digest, parts: Sequence[pa.Table]
    ) -> str | None:
        """Rows that are read beside the state, under a name; None if there are none."""
        if not parts:
            return None
        name = f"tm_edge_{at}"
        rows = pa.concat_tables(parts)
        reads.sources[name] = rows if digest.with_seq else rows.drop_columns([SEQ])
        return name

    # -- windows

    def _reach(
        self, digest: Digest, follower: Follower, values: Values, horizon: int | None
    ) -> Reach:
        pane = digest.parts.pane
        assert pane is not None
        sql = bounds_sql(pane)
        found, _ = self._duck.query(sql, _used(values, sql), {})
        low_us, high_us = (column[0].as_py() for column in found.columns)
        if horizon is not None and (low_us is None or low_us + pane.low_open < horizon):
            low_us, pane = horizon, replace(pane, low_open=False)
        return reach_of(pane, low_us, high_us, follower.state.newest_us)

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
        horizon: int | None,
    ) -> pa.Table:
        """The stream's rows of a span and of the retention, without those that came since the
        state was brought up to date."""
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
            filled = self._runner.fill(plan, ends, horizons={table.table_id: horizon})
        else:
            filled = self._runner.fill_at(plan, ends, moment)
        rows, _ = self._duck.query(filled.sql, filled.values, filled.sources, exact=True)
        is_held = _held(follower, rows.column(SEQ).to_numpy())
        if not is_held.all():
            rows = rows.filter(pa.array(is_held))
        return rows


def round_at(moment: Moment, follower: Follower) -> Round:
    """What a follower takes in to stand at a moment."""
    view = moment.view(follower.hot.table.table_id)
    return Round(Arrivals(view), moment.pin.snapshot)


def _note_oldest(reads: Reads, digest: Digest, time_us: int) -> None:
    known = reads.oldest_us.get(digest.source_id, time_us)
    reads.oldest_us[digest.source_id] = min(known, time_us)


def _held(follower: Follower, seqs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which rows were there when the state was brought up to date: up to the number it stands at,
    and those of loads, which memory knows until rows behind them are moved."""
    held = seqs <= max(follower.position.seq, follower.moved_seq)
    published = follower.hot.published
    for at in np.flatnonzero(~held):
        held[at] = published.loads.holds(int(seqs[at]))
    return held


def _used(values: Values, sql: str) -> dict[str, object]:
    named = set(_PARAMETER.findall(sql))
    return {name: value for name, value in values.items() if name in named}
