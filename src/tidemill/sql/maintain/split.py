"""Splitting a view, stream by stream.

1. **check**: what no view can read or call is refused; DuckDB binds the query as a whole.
2. **rewrite**: windows become subqueries (SESSION aside, see ``sessions``), now() a parameter,
   streams ``tm_rows`` and reference tables ``tm_ref_<id>``. Steps 1 and 2 are ``passes``.
3. For each place where a stream is read: **decompose** with this place alone as the stream. The
   partial may not reach another stream or digest. The final takes the place of the query, with
   ``tm_digest_<i>`` for the partials, and the next place is split in that.
   Where the partial joins reference tables, the query is rewritten first so that the stream is
   grouped by itself (see ``partners``); if that cannot be, the view is answered by its query, as
   are aggregates over sessions that read a reference table.
4. Where the partial depends on now(), its conditions are **lifted** (see ``lifting``), and the
   block is split once more with hidden keys; the first split remains as ``edge`` and ``collapse``.
5. **bind**: DuckDB gives the types of all parts; the final must give the query's own columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import duckdb
import sqlglot
from sqlglot import exp

from tidemill.errors import DefinitionError, QueryError, UnsupportedError
from tidemill.sql.calls import Call
from tidemill.sql.decompose import (
    MERGE_SOURCE,
    Decomposition,
    NotDecomposable,
    decompose,
)
from tidemill.sql.decompose.assemble import needed_with
from tidemill.sql.decompose.blocks import AGGREGATE, DISTINCT, ROWS, TOP, Block, find_block
from tidemill.sql.decompose.names import is_star
from tidemill.sql.decompose.plan import Refused, sql_of
from tidemill.sql.hidden import hide_seq
from tidemill.sql.maintain.binding import Binder, Columns, columns_of
from tidemill.sql.maintain.checks import ViewTables
from tidemill.sql.maintain.lifting import Lifted, has_now, lift
from tidemill.sql.maintain.naming import SEQ_COLUMN
from tidemill.sql.maintain.panes import bucket, end_sql, pane_of
from tidemill.sql.maintain.partners import (
    JoinedBelow,
    group_first,
    reads_references,
    with_inlined,
)
from tidemill.sql.maintain.passes import (
    MARK,
    SPLIT_PASSES,
    VIEW_PASSES,
    WHOLE_PASSES,
    Definitions,
    Place,
    ViewState,
)
from tidemill.sql.maintain.plan import (
    DIGEST,
    REFERENCE,
    DigestParts,
    Pane,
    ViewParts,
    ViewTable,
)
from tidemill.sql.maintain.plan import ROWS as ROWS_SOURCE
from tidemill.sql.maintain.refusals import EVERY_ROW, refusal
from tidemill.sql.maintain.sessions import split_sessions, take_conditions
from tidemill.sql.passes import run_passes
from tidemill.sql.scopes import Scope, given_names
from tidemill.types import SEQ, SqlType

_REFERENCES = re.compile(rf'"?{REFERENCE}(\d+)"?')
_TWO = "two streams meet without being grouped"
_TWO_HINT = "group each stream first, then join the groups"


def split_view(
    query: exp.Expression, tables: ViewTables, definition_of: Definitions = lambda _: None
) -> ViewParts:
    """Split a view's query; ``UnsupportedError`` says why that cannot be, and what to write.

    ``definition_of`` gives the queries of views, which take their places."""
    start = ViewState(tree=query.copy(), find=tables, definition_of=definition_of)
    maintained = run_passes(VIEW_PASSES, start)
    whole = run_passes(WHOLE_PASSES, maintained.copied())
    with Binder(whole.bounds) as binder:
        columns = _bind_whole(whole, binder)
        state = run_passes(SPLIT_PASSES, maintained.copied())
        splitter = _Splitter(state, binder)
        try:
            splitter.split()
        except Refused as refused:
            raise refusal(refused.reason) from refused
        except JoinedBelow as joined:
            return _by_query(joined.reason, state, columns)
        digests, final = tuple(splitter.digests), sql_of(splitter.tree)
        if (found := splitter.bind(final)) != columns:
            raise refusal(f"the split gives {found} for {columns}")
    texts = "\n".join(filter(None, [final, *map(_texts_of, digests)]))
    return ViewParts(
        digests,
        final,
        _references_in(final),
        tuple(bound for bound in state.bounds if f"${bound.name}" in texts),
        state.uses_now,
        tuple(dict.fromkeys(digest.table for digest in digests)),
        tuple(name for name, _ in columns),
        tuple(kind for _, kind in columns),
    )


def _bind_whole(whole: ViewState, binder: Binder) -> Columns:
    """The columns of the query as it is, or the error that DuckDB has with it."""
    for name, columns in whole.bound_tables.items():
        binder.create(name, columns)
    try:
        return binder.columns(sql_of(whole.tree))
    except duckdb.Error as error:
        raise QueryError("the view's query does not bind", detail=str(error)) from error


def _by_query(reason: str, state: ViewState, columns: Columns) -> ViewParts:
    """A view without digests."""
    streams = tuple(dict.fromkeys(place.table.name for place in state.places))
    names, kinds = tuple(name for name, _ in columns), tuple(kind for _, kind in columns)
    above = tuple(sorted(table.table_id for table in state.references.values()))
    return ViewParts((), "", above, state.bounds, state.uses_now, streams, names, kinds, reason)


def _texts_of(digest: DigestParts) -> str:
    pane = digest.pane
    ends = (pane.low, pane.high) if pane is not None else ()
    return "\n".join(filter(None, (digest.edge, digest.condition, digest.rows_window, *ends)))


def _references_in(text: str) -> tuple[int, ...]:
    return tuple(sorted({int(found) for found in _REFERENCES.findall(text)}))


# Stream by stream.


class _Splitter:
    """The tree as it is split; ``digests`` are those taken out of it so far."""

    def __init__(self, state: ViewState, binder: Binder) -> None:
        self.tree = state.tree
        self.digests: list[DigestParts] = []
        self._binder = binder
        self._places = state.places
        self._named = state.references
        self._prefixes = state.prefixes
        self._hidden = state.hidden_prefix
        self._spelling = state.spelling
        for name, table in state.references.items():
            binder.create(name, columns_of(table.columns))
        if not self._places:
            raise refusal(
                "the view reads no stream",
                "reference tables are answered directly; a view is worth it over a streaming table",
            )

    def split(self) -> None:
        for place in self._places:
            digest = f"{DIGEST}{len(self.digests)}"
            with_seq = self._prepare(place)
            if place.call is not None:
                made = self._split_sessions(place, place.call, digest)
            else:
                self._group_first(place)
                made = self._split_place(place, with_seq)
            self._put(self._bound(made, place), digest)

    def _put(self, made: DigestParts, digest: str) -> None:
        """Keep a digest, once; the final reads it by its name."""
        if made in self.digests:
            name = f"{DIGEST}{self.digests.index(made)}"
        else:
            name = digest
            self.digests.append(made)
        for table in self.tree.find_all(exp.Table):
            if table.name in (MERGE_SOURCE, digest):
                table.set("this", exp.to_identifier(name))

    def bind(self, final: str) -> Columns:
        for at, digest in enumerate(self.digests):
            kinds = dict(zip(digest.columns, digest.types, strict=True))
            self._binder.create(
                f"{DIGEST}{at}", tuple((name, kinds[name]) for name in digest.shown)
            )
        return self._bind(final)

    def _bind(self, sql: str) -> Columns:
        try:
            return self._binder.columns(sql)
        except duckdb.Error as error:
            raise refusal(f"a part of it does not bind: {str(error).splitlines()[0]}") from error

    # One place: what is the same for all kinds.

    def _node(self, place: Place, tree: exp.Expression) -> exp.Table:
        return next(node for node in tree.find_all(exp.Table) if place.is_at(node))

    def _block(self, place: Place, tree: exp.Expression) -> Block:
        try:
            return find_block(self._node(place, tree))
        except Refused as refused:
            raise refusal(refused.reason) from refused

    def _prepare(self, place: Place) -> bool:
        """Check the block, write out its stars; answers whether its rows need ``_seq``."""
        block = self._block(place, self.tree)
        self._check_alone(place, block)
        select = block.select
        if place.call is not None:
            self._binder.create(ROWS_SOURCE, columns_of(place.table.columns))
            return False  # the rows of a SESSION have no _seq, and are grouped at once
        if block.kind == ROWS:
            raise refusal(
                "the query groups nothing: its answer is as large as the stream", EVERY_ROW
            )
        if block.kind == TOP and (not select.args.get("order") or not select.args.get("limit")):
            raise refusal(
                "LIMIT without ORDER BY takes rows as they come, OFFSET alone keeps them all",
                "ORDER BY … LIMIT …",
                select,
            )
        with_seq = any(
            column.name.lower() == SEQ
            for level in block.levels
            for column in level.select.find_all(exp.Column)
        )
        seq = [SEQ_COLUMN] if with_seq else []
        self._binder.create(ROWS_SOURCE, (*columns_of(place.table.columns), *seq))
        if with_seq:
            names = [column.name for column in place.table.columns]
            hide_seq(self._node(place, self.tree), names, self._named.get)
        if block.kind != AGGREGATE:
            self._write_stars_out(select)
        for level in block.levels:
            self._write_aliases_out(level.select, place)
        return with_seq

    def _check_alone(self, place: Place, block: Block) -> None:
        for level in block.levels:
            below = level.select is not block.select or block.kind != AGGREGATE
            names = ("from_", "joins", "where", *(("expressions", "qualify") if below else ()))
            for name in names:
                value = level.select.args.get(name)
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, exp.Expression):
                        _check_free_of_streams(part, place)

    def _write_stars_out(self, select: exp.Select) -> None:
        items: list[exp.Expression] = []
        for item in select.expressions:
            if not is_star(item):
                items.append(item)
                continue
            alone = exp.Select(expressions=[item.copy()])
            for name in ("from_", "joins"):
                value = select.args.get(name)
                if value is not None:
                    copies = [p.copy() for p in value] if isinstance(value, list) else value.copy()
                    alone.set(name, copies)
            alone.set("with_", needed_with(select))
            names = [name for name, _ in self._bind(sql_of(alone))]
            if len({name.lower() for name in names}) < len(names):
                raise refusal("a star gives a name twice", node=item)
            table = item.table if isinstance(item, exp.Column) else None
            items += [exp.column(name, table=table or None, quoted=True) for name in names]
        select.set("expressions", items)

    def _write_aliases_out(self, select: exp.Select, place: Place) -> None:
        """What an alias stands for, where WHERE uses one that can be no column."""
        known = _names_of(select, {ROWS_SOURCE: place.table, **self._named})
        where = select.args.get("where")
        if where is None or known is None:
            return
        items = {i.alias.lower(): i.this for i in select.expressions if isinstance(i, exp.Alias)}
        for column in list(where.find_all(exp.Column)):
            name = column.name.lower()
            is_own = column.find_ancestor(exp.Select) is select
            if is_own and not column.table and name in items and name not in known:
                column.replace(exp.paren(items[name]))

    def _split(self, place: Place) -> Decomposition:
        """The tree split at a place; columns of subqueries are written with their tables if that
        is what it takes."""
        try:
            return self._decompose(place, self.tree)
        except UnsupportedError as error:
            if "query around it" not in str(error.detail):
                raise
        self.tree = self._qualified(place)
        return self._decompose(place, self.tree)

    def _decompose(
        self,
        place: Place,
        tree: exp.Expression,
        hidden: Mapping[str, exp.Expression] | None = None,
    ) -> Decomposition:
        parts = decompose(tree, place.is_at, self._spelling, prefixes=self._prefixes, hidden=hidden)
        if isinstance(parts, NotDecomposable):
            raise refusal(parts.reason)
        _check_free_of_streams(parts.partial, place)
        return parts

    def _qualified(self, place: Place) -> exp.Expression:
        """The tree with the names of tables before columns whose table is sure."""
        again = self.tree.copy()
        named = {ROWS_SOURCE: place.table, **self._named}
        for level in self._block(place, again).levels:
            scope = Scope(level.select, named.get)
            for column in list(level.select.find_all(exp.Column)):
                if column.find_ancestor(exp.Select) is level.select and not column.table:
                    owner = scope.resolve(column)
                    if owner is not None and owner.alias:
                        column.set(
                            "table", exp.to_identifier(owner.node.alias_or_name, quoted=True)
                        )
        return again

    # Sessions.

    def _split_sessions(self, place: Place, call: Call, digest: str) -> DigestParts:
        block = self._block(place, self.tree)
        conditions = take_conditions(block, call, self._spelling)
        parts = self._split(place)
        alias = self._node(place, self.tree).alias_or_name
        made = split_sessions(parts, call, conditions, alias, digest)
        if reads_references(made.partial):
            raise JoinedBelow("an aggregate over sessions reads a reference table")
        self.tree = parts.final
        for table in list(self.tree.find_all(exp.Table)):
            if table.name == MERGE_SOURCE:
                table.replace(made.source)
        partial, merge = sql_of(made.partial), sql_of(made.merge)
        return DigestParts(
            place.table.name,
            partial,
            merge,
            made.keys,
            made.states,
            pane=None,
            condition=None,
            is_single=True,
            visible=made.keys,
            growing=parts.growing,
            with_seq=False,
            rows_window=None,
            edge=partial,
            collapse=merge,
            kind="session",
        )

    # Everything else.

    def _group_first(self, place: Place) -> None:
        """Group the stream by itself where it is joined with reference tables below a grouping."""
        parts = self._split(place)
        if not reads_references(parts.partial):
            return
        for level in self._block(place, self.tree).levels:
            _check_joins(level.select)
        parts = replace(parts, partial=with_inlined(parts.partial, place.is_at))
        with_ = parts.partial.args.get("with_")

        def columns_of(item: exp.Expr) -> Columns:
            alone = exp.Select(expressions=[exp.Star()], from_=exp.From(this=item.copy()))
            alone.set("with_", None if with_ is None else with_.copy())
            return self._bind(sql_of(alone))

        before = self.tree
        self.tree = group_first(parts, place.is_at, columns_of)
        try:
            if reads_references(self._split(place).partial):
                raise JoinedBelow("the stream is joined more than once")
        except UnsupportedError as error:
            self.tree = before
            raise JoinedBelow(str(error.detail)) from error

    def _split_place(self, place: Place, with_seq: bool) -> DigestParts:
        plain = self._split(place)
        edge, collapse = sql_of(plain.partial), sql_of(plain.merge)
        is_keyless = plain.kind == AGGREGATE and not plain.keys
        keys, states = _columns(plain)
        made = DigestParts(
            place.table.name,
            edge,
            collapse,
            keys,
            states,
            pane=None,
            condition=None,
            is_single=not is_keyless,
            visible=keys,
            growing=plain.growing,
            with_seq=with_seq,
            rows_window=None,
            edge=edge,
            collapse=collapse,
            kind=plain.kind,
        )
        if has_now(plain.partial):
            made = self._with_fewer_keys(place, made)
        self.tree = plain.final
        return made

    def _with_fewer_keys(self, place: Place, made: DigestParts) -> DigestParts:
        """The digest lifted; a window is asked by its start, unless its end is the query's key."""
        by_start, asks_start = self._lifted(place, made, by_start=True)
        if not asks_start or len(by_start.keys) == len(made.keys):
            return by_start
        by_end, _ = self._lifted(place, made, by_start=False)
        return by_end if len(by_end.keys) < len(by_start.keys) else by_start

    def _lifted(self, place: Place, made: DigestParts, by_start: bool) -> tuple[DigestParts, bool]:
        """The digest with its conditions on now() lifted, and whether that asks for starts."""
        tree = self.tree.copy()
        block = self._block(place, tree)
        table = place.table
        assert table.time_column is not None
        kind = next(c.type.name for c in table.columns if c.name == table.time_column)
        lifted = lift(block, table.time_column, self._hidden, by_start=by_start)
        for level in block.levels:
            _check_joins(level.select)
        hidden = dict(lifted.hidden)
        pane: Pane | None = None
        rows_window = None
        if lifted.slides and block.kind not in (AGGREGATE, DISTINCT) and not lifted.lows:
            rows_window = end_sql(lifted.highs, kind)
        elif lifted.slides:
            assert lifted.time is not None
            pane_key = f"{self._hidden}{len(hidden)}"
            if self._is_key(place, tree, pane_key, lifted.time):
                _ask_key(lifted, pane_key, kind)
                hidden[pane_key] = lifted.time
            else:
                pane = pane_of(pane_key, lifted, kind, self._binder)
                hidden[pane_key] = bucket(lifted.time, pane.size_us, kind)
        parts = self._decompose(place, tree, hidden)
        if has_now(parts.partial) or has_now(parts.merge):
            raise refusal("now() changes what a row contributes", "use now() in WHERE only")
        own = {name for name, where in parts.hidden.items() if name == where}
        keys = (*(name for name in parts.hidden if name in own), *made.keys)
        if made.kind == AGGREGATE:
            keys = (*made.keys, *(name for name in parts.hidden if name in own))
        is_single = pane is None and own <= lifted.fixed
        growing = [f"{n}: a group for each value" for n in own if isinstance(hidden[n], exp.Column)]
        lifted_made = replace(
            made,
            partial=sql_of(parts.partial),
            merge=sql_of(parts.merge),
            keys=keys,
            pane=replace(pane, key=parts.hidden[pane.key]) if pane is not None else None,
            condition=_condition(lifted, parts.hidden),
            is_single=made.is_single and is_single,
            growing=(*made.growing, *growing),
            rows_window=rows_window,
        )
        return lifted_made, lifted.asks_start

    def _is_key(self, place: Place, tree: exp.Expression, name: str, time: exp.Expression) -> bool:
        """Whether the block groups by the time itself, so that it needs no panes."""
        parts = self._decompose(place, tree, {name: time})
        return parts.hidden[name] != name

    def _bound(self, made: DigestParts, place: Place) -> DigestParts:
        """The digest with its types; the parts must agree on them."""
        given = self._bind(made.partial)
        if tuple(name for name, _ in given) != made.columns:
            raise refusal(f"a partial gives {given} in place of {made.columns}")
        for name, kind in given:
            try:
                SqlType.parse(kind)
            except DefinitionError as error:
                raise refusal(f"its column {name} has type {kind}", "cast it to another") from error
        kinds = dict(given)
        shown = tuple((name, kinds[name]) for name in made.shown)
        self._binder.create(MERGE_SOURCE, given)
        texts: list[tuple[str, Columns]] = [(made.merge, given), (made.edge, shown)]
        for text, wanted in texts:
            if (found := self._bind(text)) != wanted:
                raise refusal(f"a part gives {found} in place of {wanted}")
        self._binder.create(MERGE_SOURCE, shown)
        if (found := self._bind(made.collapse)) != shown:
            raise refusal(f"a merge gives {found} in place of {shown}")
        types = tuple(kind for _, kind in given)
        return replace(made, types=types, condition=_as_keys_are(made.condition, kinds))


def _as_keys_are(condition: str | None, kinds: Mapping[str, str]) -> str | None:
    """A condition that casts now() to the type of a key, and not every key to that of now().
    Sessions are UTC, where a TIMESTAMPTZ and its TIMESTAMP are the same moment."""
    if condition is None:
        return None
    tree = sqlglot.parse_one(condition, dialect="duckdb")
    for node in list(tree.find_all(exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE)):
        for key, other in ((node.this, node.expression), (node.expression, node.this)):
            is_time = isinstance(key, exp.Column) and kinds.get(key.name) == "TIMESTAMP"
            if is_time and not other.find(exp.Column):
                other.replace(exp.cast(other.copy(), "TIMESTAMP", dialect="duckdb"))
    return str(tree.sql(dialect="duckdb"))


def _names_of(select: exp.Select, tables: Mapping[str, ViewTable]) -> set[str] | None:
    """The columns of a SELECT's FROM items; None if not all of them are known."""
    names = {SEQ}
    for source in Scope(select, tables.get).sources:
        columns = source.columns
        if isinstance(source.node, exp.Subquery) and not source.node.alias_column_names:
            columns = given_names(source.node.this)
        if columns is None:
            return None
        names |= columns
    return names


def _check_free_of_streams(node: exp.Expression, place: Place) -> None:
    """A part that runs over rows of one stream can read nothing of another."""
    for table in node.find_all(exp.Table):
        is_other = table._meta and table.meta.get(MARK, place.number) != place.number
        if is_other or table.name.startswith(DIGEST):
            raise refusal(_TWO, _TWO_HINT, table)


def _check_joins(select: exp.Select) -> None:
    for join in select.args.get("joins") or []:
        if join.args.get("on") is not None and has_now(join.args["on"]):
            raise refusal("now() stands in the ON of a join", "put it into WHERE", join)


def _columns(parts: Decomposition) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Keys and states; rows that are kept as they are have no keys."""
    if parts.kind in (AGGREGATE, DISTINCT):
        return parts.keys, parts.states
    return (), (*parts.keys, *parts.states)


def _ask_key(lifted: Lifted, key: str, kind: str) -> None:
    """Conditions on the time, which is a key of the query, in place of a window."""
    time = exp.column(key, quoted=True)
    kinds: tuple[Callable[..., exp.Expression], ...] = (exp.GTE, exp.GT, exp.LTE, exp.LT)
    for end in lifted.lows:
        value = exp.cast(end.value.copy(), kind, dialect="duckdb")
        lifted.conditions.append(kinds[end.is_open](this=time.copy(), expression=value))
    for end in lifted.highs:
        value = exp.cast(end.value.copy(), kind, dialect="duckdb")
        lifted.conditions.append(kinds[2 + end.is_open](this=time.copy(), expression=value))


def _condition(lifted: Lifted, places: Mapping[str, str]) -> str | None:
    """The conditions over the columns that hold the hidden keys."""
    if not lifted.conditions:
        return None
    conditions = [condition.copy() for condition in lifted.conditions]
    for column in [found for part in conditions for found in part.find_all(exp.Column)]:
        column.set("this", exp.to_identifier(places[column.name], quoted=True))
    return " AND ".join(f"({sql_of(condition)})" for condition in conditions)
