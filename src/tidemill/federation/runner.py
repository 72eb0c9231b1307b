"""The runner: fills a plan with values and rows, and lets DuckDB answer it.

All tables of a statement are looked at once, at its beginning: a table that is named twice is the
same twice, and views show the streams of that moment. EXPLAIN uses the same steps, so it shows what
runs and not what might.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC
from functools import cached_property, partial
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from tidemill.catalog.model import Table
from tidemill.catalog.store import Catalog
from tidemill.changes.needed import Needed
from tidemill.changes.values import Named
from tidemill.clock import Clock, from_us
from tidemill.errors import UnknownNameError, UnsupportedError
from tidemill.federation.asked import Known, asked_of
from tidemill.federation.driving import JoinRead, drive
from tidemill.federation.duck import Duck
from tidemill.federation.first_rows import first_of_parts, newest_matching
from tidemill.federation.lookup import ROWS_MAX as LOOKUP_ROWS_MAX
from tidemill.federation.lookup import answer, exact_conditions
from tidemill.federation.needing import needed_of
from tidemill.federation.planner import (
    FRAME,
    HOT,
    LATE,
    NOW,
    REJECTED,
    SYSTEM,
    VIEW,
    FileRead,
    Plan,
    Scan,
)
from tidemill.federation.reference_rows import ReferenceRows
from tidemill.federation.scans import KEYS_MAX, NOTHING_ASKED, Asked, wanted_of
from tidemill.federation.system import SystemTables
from tidemill.history.checking import Reads
from tidemill.history.guard import Guard
from tidemill.history.storage import Storage
from tidemill.hot.side import SideTable
from tidemill.hot.table import HotTable
from tidemill.hot.view import Condition, HotView, Selection, Wanted
from tidemill.sql.fold import constant
from tidemill.sql.names import position_of
from tidemill.sql.params import Params, placeholder_key
from tidemill.sql.travel import moment_us
from tidemill.sql.windows import NowBounds
from tidemill.stream.image import Image, Look, bounds_of, look
from tidemill.stream.pins import Pin, Pins
from tidemill.stream.reader import Reader, in_both, newest_of_keys, past_wanted
from tidemill.stream.relation import HistoryScan, side_sql
from tidemill.types import SEQ, quote

SMALL_ROWS_MAX = 100_000
_OF_STREAMS = frozenset({HOT, LATE, REJECTED})


@dataclass(frozen=True)
class Selected:
    """The rows chosen for one scan: what was wanted, what the indices made of it, and what is
    read of history (``files_sql``, None if nothing; ``reads`` are its files)."""

    scan: Scan
    table: pa.Table
    wanted: Wanted | None = None
    selection: Selection | None = None
    past: HistoryScan | None = None
    files_sql: str | None = None
    as_of_us: int | None = None
    reads: Reads | None = None
    keys: tuple[str, ...] = ()  # of the past of a table with keys: the newest row of each is wanted
    named: Mapping[str, pa.Table] = field(default_factory=dict)  # tables that ``files_sql`` reads
    needed: Needed | None = None
    image: Image | None = None


@dataclass(frozen=True)
class Filled:
    """A plan with its values and its rows: ready to run, or to be explained."""

    plan: Plan
    values: dict[str, object]
    selected: tuple[Selected, ...]
    sources: dict[str, pa.Table]
    pin: Pin
    exact: list[Condition] | None = None
    route: str = "local"
    reason: str = ""
    joins: tuple[JoinRead, ...] = ()  # tables that could be read before the streams beside them

    @property
    def manner(self) -> str:
        """How the route answers, in a few words."""
        if self.route == "spark":
            return "DuckDB in Spark's tasks over files, in this process over hot blocks"
        if self.route == "spark_sql":
            return "Spark's own SQL over files and hot rows"
        if self.exact is not None:
            return "lookup: few rows, tested without DuckDB"
        if any(chosen.files_sql for chosen in self.selected):
            return "DuckDB over hot blocks and files"
        return "DuckDB over hot blocks"

    @property
    def may_be_large(self) -> bool:
        """Whether the answer may be so large that it should be counted."""
        if self.plan.is_one_row:
            return False
        if self.plan.may_grow or any(chosen.files_sql for chosen in self.selected):
            return True
        return sum(int(c.table.num_rows) for c in self.selected) > SMALL_ROWS_MAX

    @property
    def history_bytes(self) -> int:
        return sum(chosen.past.bytes for chosen in self.selected if chosen.past is not None)

    @cached_property
    def sql(self) -> str:
        """The SQL to be run in this process; the files that it reads are checked before."""
        for chosen in self.selected:
            if chosen.reads is not None and chosen.files_sql is not None:
                chosen.reads.check()
        return self.text

    @cached_property
    def text(self) -> str:
        """The plan's SQL, the names of scans replaced where they read files as well."""
        texts = {
            chosen.scan.source: _both(chosen, chosen.files_sql)
            for chosen in self.selected
            if chosen.files_sql
        }
        return self.plan.template.filled(texts) if texts else self.plan.sql


def _both(chosen: Selected, files_sql: str) -> str:
    """A scan's rows in files and in memory, as a table expression."""
    scan = chosen.scan
    if chosen.keys and scan.table is not None:
        names = [column.name for column in scan.table.columns]
        columns = [*names, SEQ] if scan.with_seq else names
        return newest_of_keys(files_sql, scan.source, chosen.keys, columns)
    if not chosen.table.num_rows:
        return in_both(files_sql, None)
    return first_of_parts(scan, files_sql) or in_both(files_sql, scan.source)


@dataclass(frozen=True)
class Moment:
    """All that a statement looks at, taken at its beginning."""

    looks: dict[int, Look]  # at the memory of streams, by table
    sides: dict[tuple[int, str], SideTable]
    clocks: dict[str, NowBounds]  # what each stream calls now, by its name in lower case
    pin: Pin
    params: Params
    now_us: int
    began_s: float
    horizons: Mapping[int, int | None]  # by table: no older row may be seen
    answers: dict[int, pa.Table] = field(default_factory=dict)  # of continuous views

    def view(self, table_id: int) -> HotView:
        """A stream's rows in memory."""
        return self.looks[table_id].view


class HeldViews(Protocol):
    """Continuous views that take in no row of their streams unless they are told to."""

    @property
    def scans(self) -> Sequence[Scan]:
        """All that their queries read."""
        ...

    def read(self, view: Table, moment: Moment) -> pa.Table:
        """A view's answer at a moment that was taken since they are held."""
        ...


class ViewReader(Protocol):
    """Where the answers of continuous views come from."""

    def read(self, view: Table) -> pa.Table:
        """A view's answer now."""
        ...

    def held(
        self, views: Sequence[Table], at_us: int | None
    ) -> AbstractContextManager[HeldViews]: ...


class Runner:
    def __init__(
        self,
        duck: Duck,
        hot: Mapping[int, HotTable],
        system: SystemTables,
        clock: Clock,
        catalog: Catalog,
        pins: Pins,
        storage: Storage,
        guard: Guard,
        views: ViewReader,
        reference_rows: ReferenceRows,
    ) -> None:
        self._duck = duck
        self._hot = hot
        self._system = system
        self._clock = clock
        self._pins = pins
        self._storage = storage
        self._guard = guard
        self._reader = Reader(catalog, pins, storage, duck)
        self._views = views
        self._reference_rows = reference_rows

    def run(
        self, plan: Plan, params: Params, at_us: int | None = None
    ) -> tuple[pa.Table, list[str]]:
        return self.run_filled(self.fill(plan, params, at_us))

    def run_filled(self, filled: Filled) -> tuple[pa.Table, list[str]]:
        lookup = filled.plan.lookup
        if lookup is not None and filled.exact is not None:
            return answer(lookup, filled.exact, filled.selected[0].table), lookup.types
        return self._duck.query(
            filled.sql, filled.values, filled.sources, bounded=filled.may_be_large
        )

    def fill(
        self,
        plan: Plan,
        params: Params,
        at_us: int | None = None,
        horizons: Mapping[int, int | None] | None = None,
    ) -> Filled:
        """Values, then views of all tables, then the snapshot, then the rows that can matter.

        With ``at_us``, that moment is now for the statement and for all its tables. ``horizons``
        says of tables from when on rows may be seen, instead of their retention."""
        scans = list(_scans(plan))
        views = {s.table.table_id: s.table for s in scans if s.kind == VIEW and s.table is not None}
        if not views:
            moment = self._look(scans, at_us, horizons, params, plan)
            return self.fill_at(plan, params, moment)
        if (
            at_us is None
            and len(views) == 1
            and not any(scan.kind in _OF_STREAMS for scan in scans)
        ):
            (view,) = views.values()
            found = self._views.read(view)
            moment = self._look(scans, None)
            moment.answers[view.table_id] = found
            return self.fill_at(plan, params, moment)
        # While views are held, none of them gets ahead of the moment.
        with self._views.held(tuple(views.values()), at_us) as held:
            moment = self._look([*scans, *held.scans], at_us)
            for table_id, view in views.items():
                moment.answers[table_id] = held.read(view, moment)
        return self.fill_at(plan, params, moment)

    def fill_at(self, plan: Plan, params: Params, moment: Moment) -> Filled:
        """A plan with the rows of a moment."""
        values = plan.values(params)
        for read in plan.files:
            self._check_file(read, values)
        for bound in plan.bounds:
            values[bound.name] = bound.value(lambda name: moment.clocks[name.lower()])
        if moment.params is not params:
            moment = replace(moment, params=params)
        return self._fill(plan, values, moment)

    def _check_file(self, read: FileRead, values: Mapping[str, object]) -> None:
        paths = paths_of(read.path, values)
        if paths is None:
            raise UnsupportedError(
                f"the path of {read.function} must be a constant",
                hint="write it as a text, a list of texts or a parameter",
                position=position_of(read.path),
            )
        for path in paths:
            self._guard.check_query(path, self._expanded)

    def _expanded(self, pattern: str) -> list[str]:
        """The files of a pattern, as DuckDB understands it."""
        found, _ = self._duck.query("SELECT file FROM glob($path)", {"path": pattern}, {})
        files: list[str] = found.column(0).to_pylist()
        return files

    def _look(
        self,
        scans: Sequence[Scan],
        at_us: int | None,
        horizons: Mapping[int, int | None] | None = None,
        params: Params = None,
        plan: Plan | None = None,
    ) -> Moment:
        """Look at the tables of scans; at what a plan needs of them, if they are all its own."""
        limits = dict(horizons or {})
        looks: dict[int, Look] = {}
        sides: dict[tuple[int, str], SideTable] = {}
        clocks: dict[str, NowBounds] = {}
        began_s = time.monotonic()
        now_us = self._clock.now_us() if at_us is None else at_us
        fixed = None if at_us is None else NowBounds(at_us, at_us)
        values: dict[str, object] | None = None
        for scan in scans:
            if scan.table is None or scan.kind == VIEW:
                continue
            table_id, hot = scan.table.table_id, self._table(scan.table)
            if scan.kind != HOT:
                side = hot.published.late if scan.kind == LATE else hot.published.rejected
                sides[table_id, scan.kind] = side.hold()
            elif table_id not in looks:
                needed, now = None, fixed or clocks.get(scan.table.name.lower())
                if plan is not None and hot.published.changes.new:
                    if values is None:
                        values = self._known_values(plan, params, scans, clocks, fixed, now_us)
                        now = clocks.get(scan.table.name.lower(), now)
                    needed = self._needed(scans, table_id, plan, values)
                looks[table_id] = found = look(hot, now, needed)
                clocks[scan.table.name.lower()] = found.now
                limits.setdefault(table_id, found.horizon_us)
        pin = self._pins.pin()  # after all looks
        return Moment(looks, sides, clocks, pin, params, now_us, began_s, limits)

    def _known_values(
        self,
        plan: Plan,
        params: Params,
        scans: Iterable[Scan],
        clocks: dict[str, NowBounds],
        fixed: NowBounds | None,
        now_us: int,
    ) -> dict[str, object]:
        """The values of a plan that are known before anything is read. What tables call now is
        noted in ``clocks``: the looks that follow mean the same."""
        values = plan.values(params)
        if plan.uses_now:
            values[NOW] = from_us(now_us).replace(tzinfo=UTC)
        if plan.bounds:
            for scan in scans:
                if scan.kind == HOT and scan.table is not None:
                    name = scan.table.name.lower()
                    clocks.setdefault(name, fixed or bounds_of(self._table(scan.table)))
            for bound in plan.bounds:
                values[bound.name] = bound.value(lambda name: clocks[name.lower()])
        return values

    def _needed(
        self, scans: Iterable[Scan], table_id: int, plan: Plan, values: Mapping[str, object]
    ) -> list[Needed] | None:
        """What scans need of a table, as far as that is known before anything is read; None if
        all."""
        own = [each for each in scans if each.table is not None and each.table.table_id == table_id]
        if any(scan.kind != HOT or scan.as_of is not None for scan in own):
            return None
        known, outer = Known(values, {}), {id(scan) for scan in plan.scans}
        # Of a query that runs before, parameters have other names.
        return [
            needed_of(scan, asked_of(scan, known) if id(scan) in outer else NOTHING_ASKED)
            for scan in own
        ]

    def _fill(self, plan: Plan, values: dict[str, object], moment: Moment) -> Filled:
        if plan.uses_now:
            values[NOW] = from_us(moment.now_us).replace(tzinfo=UTC)
        keys: dict[int, tuple[object, ...]] = {}
        sources: dict[str, pa.Table] = {}
        for query in plan.key_queries:
            table = self._read_first(query.plan, values, moment)
            sources[query.source] = table
            if table.num_rows <= KEYS_MAX:
                keys[id(query.query)] = tuple(table.column(0).to_pylist())
        known = Known(values, keys)
        driven = drive(
            plan,
            lambda scan: self._rows_at_stake(scan, moment, known),
            lambda partner: self._read_first(partner.plan, values, moment),
        )
        plan = driven.plan
        selected = tuple(
            self._select(scan, moment, known, driven.asked.get(scan.source, ()))
            for scan in plan.scans
        )
        sources.update(driven.sources)
        sources.update({chosen.scan.source: chosen.table for chosen in selected})
        for chosen in selected:
            sources.update(chosen.named)
        used = {name: value for name, value in values.items() if name in plan.used}
        exact = self._exact(plan, selected, known)
        return Filled(plan, used, selected, sources, moment.pin, exact, joins=driven.joins)

    def _read_first(self, plan: Plan, values: Mapping[str, object], moment: Moment) -> pa.Table:
        """The rows of a query that runs before the one that it is part of."""
        given = {key: values[key] for key in plan.keys}

        def read() -> pa.Table:
            filled = self._fill(plan, plan.values(given), moment)
            rows, _ = self._duck.query(filled.sql, filled.values, filled.sources, exact=True)
            return rows

        return self._reference_rows.get(plan, given, read)

    def _rows_at_stake(self, scan: Scan, moment: Moment, known: Known) -> int:
        """How many rows of a stream would be read without any more keys."""
        assert scan.table is not None
        table_id = scan.table.table_id
        wanted = wanted_of(scan.table, asked_of(scan, known), scan.with_seq)
        wanted = wanted.within(moment.horizons[table_id])
        image = moment.looks[table_id].at(moment.pin.snapshot)
        return image.view.estimate(wanted) + image.in_files(wanted).rows

    def _exact(
        self, plan: Plan, selected: tuple[Selected, ...], known: Known
    ) -> list[Condition] | None:
        """The conditions of a lookup that is small enough to be answered without DuckDB."""
        if plan.lookup is None or selected[0].table.num_rows > LOOKUP_ROWS_MAX:
            return None
        if selected[0].files_sql is not None:
            return None
        scan = selected[0].scan
        asked = asked_of(scan, known).asked
        if scan.table is None or len(asked) < len(scan.conjuncts):
            return None
        return exact_conditions(scan.table, asked)

    def hot_table(self, table_id: int) -> HotTable:
        """A stream's memory, by the table's id."""
        hot = self._hot.get(table_id)
        if hot is None:
            raise UnknownNameError("a table was dropped while it was read")
        return hot

    def _table(self, table: Table) -> HotTable:
        hot = self._hot.get(table.table_id)
        if hot is None:
            raise UnknownNameError(f'table "{table.name}" was dropped')
        return hot

    def _select(
        self,
        scan: Scan,
        moment: Moment,
        known: Known,
        more: Sequence[Asked],
    ) -> Selected:
        if scan.kind == SYSTEM:
            return Selected(scan, self._system.table(scan.name))
        if scan.kind == FRAME:
            return Selected(scan, scan.frame)
        assert scan.table is not None
        table = scan.table
        if scan.kind == VIEW:
            return Selected(scan, moment.answers[table.table_id])
        if scan.kind != HOT:
            return self._select_side(scan, moment)
        asked = asked_of(scan, known)
        newest = scan.newest if len(asked.asked) == len(scan.conjuncts) else None
        if more:
            asked = replace(asked, asked=(*asked.asked, *more))
        wanted = wanted_of(table, asked, scan.with_seq, newest)
        needed = needed_of(scan, asked)
        self._note_window(table, wanted)
        image = moment.looks[table.table_id].at(moment.pin.snapshot)
        if scan.as_of is not None:
            return self._select_past(scan, moment, image.view, wanted)
        wanted = wanted.within(moment.horizons[table.table_id])
        if newest is not None and image.is_settled:
            wanted = image.view.newest_only(wanted)  # files of older rows are ruled out, too
        elif scan.top is not None and image.is_settled:
            has_files = bool(image.in_files(wanted, needed=needed).files)
            ask = partial(self._ask, scan, known)
            wanted = newest_matching(scan, image.view, wanted, has_files, ask)
        found = image.in_files(wanted, needed=needed)
        named = Named()
        files_sql = found.sql(self._storage, table, scan.with_seq, named)
        reads = self._reads(scan, found)
        rows, selection = self._reader.in_memory(image, replace(wanted, newest=None))
        return Selected(
            scan,
            rows,
            wanted,
            selection,
            found,
            files_sql,
            reads=reads,
            named=named,
            needed=needed,
            image=image,
        )

    def _ask(self, scan: Scan, known: Known, sql: str, rows: pa.Table) -> pa.Table:
        """The answer of a query over rows that stand for a scan whose first rows are wanted."""
        assert scan.top is not None
        used = {name: known.values[name] for name in scan.top.params}
        table, _ = self._duck.query(sql, used, {scan.source: rows}, exact=True)
        return table

    def _select_side(self, scan: Scan, moment: Moment) -> Selected:
        """Late or rejected rows, in memory and in files."""
        assert scan.table is not None
        table = scan.table
        history = moment.pin.snapshot.history(table.table_id)
        rows = moment.sides[table.table_id, scan.kind].after(history.moved_seq)
        files = tuple(file for file in history.files if file.kind == scan.kind)
        sql = f"({side_sql(self._storage, table, scan.kind, files)})" if files else None
        reads = Reads(self._storage, table.name, files)
        return Selected(scan, rows, files_sql=sql, reads=reads)

    def _reads(self, scan: Scan, found: HistoryScan) -> Reads:
        """The files of a scan, with the columns that the query and we ourselves look at."""
        assert scan.table is not None
        columns = scan.columns
        if columns is not None:
            asked = (conjunct.column for conjunct in scan.conjuncts)
            changes = (name for change in found.changed_by for name in change.form.reads)
            columns = frozenset({*columns, *asked, *changes, *scan.table.primary_key, SEQ})
            if not any(scan.table.column(name) for name in columns):
                columns |= {scan.table.columns[0].name}
        return Reads(self._storage, scan.table.name, found.all_files, columns, found.window)

    def _select_past(self, scan: Scan, moment: Moment, view: HotView, wanted: Wanted) -> Selected:
        assert scan.as_of is not None
        assert scan.table is not None
        at_us = moment_us(scan.as_of, moment.params, moment.now_us)
        hot = self._table(scan.table)
        keys = scan.table.primary_key
        wanted = past_wanted(wanted, keys)
        found, rows = self._reader.past(hot, moment.pin.snapshot, view, wanted, at_us)
        named = Named()
        files_sql = found.sql(self._storage, scan.table, wanted.with_seq, named)
        if keys and files_sql is None:
            files_sql = f"SELECT * FROM {quote(scan.source)} WHERE false"
        reads = self._reads(scan, found)
        return Selected(scan, rows, wanted, None, found, files_sql, at_us, reads, keys, named)

    def _note_window(self, table: Table, wanted: Wanted) -> None:
        """Tell the mover how far back queries read."""
        hot = self._hot.get(table.table_id)
        if hot is not None:
            hot.windows.note_scan(self._clock.now_us(), hot.progress.now_us(), wanted)


def paths_of(node: exp.Expr, values: Mapping[str, object]) -> list[str] | None:
    """The paths that an argument of a function gives; None if it is not a constant."""
    if isinstance(node, exp.Array):
        found = [paths_of(each, values) for each in node.expressions]
        return None if None in found else [path for part in found if part for path in part]
    if isinstance(node, (exp.Placeholder, exp.Parameter)):
        given = values.get(placeholder_key(node))
    else:
        given = constant(node, values, None) if isinstance(node, exp.Expression) else None
    listed = given if isinstance(given, list | tuple) else [given]
    texts = [each for each in listed if isinstance(each, str)]
    return texts if len(texts) == len(listed) else None


def _scans(plan: Plan) -> Iterator[Scan]:
    yield from plan.scans
    for query in plan.key_queries:
        yield from _scans(query.plan)


def stream_ids(plan: Plan) -> tuple[int, ...]:
    """The streaming tables that a plan reads, by their ids."""
    found = {scan.table.table_id for scan in _scans(plan) if scan.kind == HOT and scan.table}
    return tuple(sorted(found))
