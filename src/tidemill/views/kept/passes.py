"""The passes of a kept query, in their order, beside those of a query that is answered once.

A kept query is evaluated again and again, each time over the rows of one instant: a tick, a closed
window, a row that arrived. These passes put the rows of the instant in the place of the stream.

- EVERY INTERVAL and EMIT ON WINDOW CLOSE: the tree that comes out is planned like any other
  (``federation.passes``), so that windows, now() and parameters are left to those passes;
- EVERY ROW: the tree that comes out is run by DuckDB as it is, over Arrow tables. So what the
  planner does otherwise is done here: PREV, now(), reference tables.

"One" is the query of a single instant, "many" that of a batch of them (``tagging``), where the
query allows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from tidemill.catalog.model import Snapshot
from tidemill.errors import UnsupportedError
from tidemill.federation.resolving import put_reference
from tidemill.sql import hidden
from tidemill.sql.calls import show_seq, shows_seq
from tidemill.sql.names import position_of
from tidemill.sql.passes import Pass, QueryState, bind_now, expand_prev
from tidemill.sql.scopes import enclosing_select, unbound_tables
from tidemill.types import SEQ
from tidemill.views.kept import before, narrow, sides, tagging
from tidemill.views.kept.before import Before
from tidemill.views.kept.one_window import fix_window
from tidemill.views.kept.reads import Read, leading, reads_of, wrapped
from tidemill.views.kept.sides import SIDE, Side
from tidemill.views.kept.streams import parameter, time_of
from tidemill.views.kept.tagging import ROW, TIME, has_aggregates

WINDOWS = "tm_windows"
_HINT = "EVERY ROW reads streams and reference tables; EVERY INTERVAL '…' reads views too"


@dataclass(frozen=True, kw_only=True)
class KeptState(QueryState):
    """A kept query; ``source`` is the FROM item that has the rows of the instants."""

    snapshot: Snapshot
    read: Read | None = None  # of EVERY ROW: the FROM item whose rows are answered
    sides: tuple[Side, ...] = ()
    source: exp.Expr | None = None
    with_seq: bool = False  # the source has ``_seq``
    before: tuple[Before, ...] = ()
    is_narrow: bool = False  # rows of other times than the instants' can be left out
    is_tagged: bool = False  # the tree answers many instants

    @classmethod
    def of(cls, tree: exp.Expression, snapshot: Snapshot) -> KeptState:
        """The state before the first pass, which may change the tree."""
        return cls(tree=tree, find=snapshot.find, snapshot=snapshot)

    def copied(self) -> KeptState:
        """The same, for passes that go another way."""
        return replace(self, tree=self.tree.copy())


# EVERY ROW: what is read.


def find_read(state: KeptState) -> KeptState:
    """The stream in FROM is the one whose rows are answered; it must be one that can be."""
    read = leading(reads_of(state.tree, state.snapshot))
    if read.table.is_view:
        raise UnsupportedError(
            f'EVERY ROW reads a stream, "{read.table.name}" is a view',
            hint="EVERY INTERVAL '…' reads views",
            position=read.position,
        )
    if read.function in ("TUMBLE", "HOP"):
        raise UnsupportedError(
            f"{read.function} is not read row by row",
            hint="end the query with EMIT ON WINDOW CLOSE",
            position=read.position,
        )
    if read.call is None:
        _check_plain(read.node)
    return replace(state, read=read)


def _check_plain(node: exp.Expr | None) -> None:
    """Refuse what would look at more than one row on the way from a FROM item to the answer. With
    a join a row may have become several."""
    while node is not None and not (isinstance(node, exp.Select) and node.args.get("joins")):
        if isinstance(node, exp.Select):
            is_gathering = has_aggregates(node) or node.args.get("distinct")
            is_cut = node.args.get("limit") or node.args.get("offset")
            has_windows = any(part.find(exp.Window) is not None for part in node.expressions)
            if is_gathering or is_cut or has_windows:
                raise UnsupportedError(
                    "EVERY ROW without a window sees one row at a time",
                    detail="the query groups, compares or limits rows",
                    hint="read a window: RECENT(t, rows => k, partition_by => key) or RECENT(t, "
                    "INTERVAL …); or CREATE MATERIALIZED VIEW … AS SELECT …",
                    position=position_of(node),
                )
        node = node.parent


def pack_rows(state: KeptState) -> KeptState:
    """The stream's row as a value has the user's columns alone."""
    assert state.read is not None
    select = enclosing_select(state.read.node)
    if select is not None:
        names = [column.name for column in state.read.table.columns]
        alias = state.read.node.alias_or_name or state.read.table.name
        hidden.pack_rows(select, alias, names)
    return state


def take_sides(state: KeptState) -> KeptState:
    """Other streams that are joined become relations ``tm_side_<n>``."""
    assert state.read is not None
    return replace(state, sides=sides.take_sides(state.tree, state.read, state.snapshot))


def place_references(state: KeptState) -> KeptState:
    """Reference tables are read where DuckDB has their rows; nothing else is left to read."""
    assert state.read is not None
    for node, name in list(unbound_tables(state.tree)):
        if node is not state.read.node and not name.startswith(SIDE):
            _place(node, name, state.snapshot)
    return state


def _place(node: exp.Table, name: str, snapshot: Snapshot) -> None:
    table = snapshot.find(name)
    if table is None and "." in name and not name.lower().startswith("tidemill."):
        return  # a file, which DuckDB finds by itself
    if table is None and not name.lower().startswith("tidemill."):
        table = snapshot.get(name, position_of(node))
    if table is None or not table.is_reference:
        raise UnsupportedError(
            f'EVERY ROW cannot read "{name}"', hint=_HINT, position=position_of(node)
        )
    put_reference(node, table)


# EVERY ROW: the rows of the instants.


def read_windows(state: KeptState) -> KeptState:
    """The relation of windows takes the place of the stream."""
    (read,) = reads_of(state.tree, state.snapshot)
    assert read.node is not state.tree
    source = exp.Table(this=exp.to_identifier(WINDOWS))
    source.set("alias", exp.TableAlias(this=exp.to_identifier(read.alias, quoted=True)))
    alias = read.node.args.get("alias")
    if alias is not None and alias.this is not None:
        source.set("alias", alias.copy())
    read.node.replace(source)
    return replace(state, source=source, with_seq=True)


def leave_out_seq(state: KeptState) -> KeptState:
    """The windows' ``_seq`` is left out of stars."""
    assert state.source is not None
    tagging.hide_seq(state.source)
    return state


def take_before(state: KeptState) -> KeptState:
    """lag() that was PREV becomes a column of the windows."""
    assert isinstance(state.source, exp.Table)
    assert state.read is not None
    return replace(state, before=before.take_before(state.source, state.read.table))


def find_narrow(state: KeptState) -> KeptState:
    """A query that looks at each row by itself and says ``ts = now()`` needs few rows."""
    assert state.source is not None
    assert state.read is not None
    time = time_of(state.read.table).name
    return replace(state, is_narrow=narrow.is_narrow(state.tree, state.source, time))


def cut_at_number(state: KeptState) -> KeptState:
    """The stream is read up to the number ``$tm_hi``: rows that arrived later are not seen."""
    (read,) = reads_of(state.tree, state.snapshot)
    is_shown = shows_seq(read.node)  # to PREV, whose SELECT names its columns
    show_seq(read.node)
    upto = exp.LTE(this=exp.column(SEQ), expression=exp.Placeholder(this="tm_hi"))
    source = wrapped(read, upto)
    if not is_shown:
        source.this.expressions[0].set("except_", [exp.to_identifier(SEQ)])
    read.node.replace(source)
    return state


# EVERY INTERVAL.


def cut_at_now(state: KeptState) -> KeptState:
    """Streams are read up to now(), which is the tick; RECENT ends there by itself."""
    for read in reads_of(state.tree, state.snapshot):
        if read.function != "RECENT" and not read.table.is_view:
            read.node.replace(wrapped(read, _up_to_now(read)))
    return state


def _up_to_now(read: Read) -> exp.Expression:
    """``time <= now()``, in the type of the read's time column."""
    now: exp.Expression = exp.CurrentTimestamp()
    if read.time.type.name == "TIMESTAMP":
        now = exp.cast(now, "TIMESTAMP")
    return exp.LTE(this=exp.column(read.time.name, quoted=True), expression=now)


# EMIT ON WINDOW CLOSE.


def cut_at_window(state: KeptState) -> KeptState:
    """Streams are read as far as they are in the window that closed."""
    for read in reads_of(state.tree, state.snapshot):
        read.node.replace(wrapped(read, _within(read)))
    return state


def drop_window_keys(state: KeptState) -> KeptState:
    """The start and the end of the window that closed are known: they leave the keys."""
    for read in reads_of(state.tree, state.snapshot):
        select = enclosing_select(read.node)
        window = None if select is None else select.parent
        if isinstance(window, exp.Subquery):
            names = (("window_start", "tm_lo"), ("window_end", "tm_end"))
            fix_window(window, {name: parameter(given, read.time) for name, given in names})
    return state


def read_closed(state: KeptState) -> KeptState:
    """The only stream is read as far as it is in windows that closed; rows carry their tags."""
    reads = reads_of(state.tree, state.snapshot)
    if len(reads) > 1 or reads[0].node is state.tree:
        return state
    tags = [exp.alias_(exp.column("window_end"), name) for name in (ROW, TIME)]
    source = wrapped(reads[0], _within(reads[0]), *tags)
    reads[0].node.replace(source)
    return replace(state, source=source)


def _within(read: Read) -> exp.Expr:
    """The windows from one start to another; and the rows that can be in them, for the indices."""
    start, time = exp.column("window_start"), exp.column(read.time.name, quoted=True)
    low, high, end = (parameter(name, read.time) for name in ("tm_lo", "tm_hi", "tm_end"))
    return exp.and_(
        exp.GTE(this=start, expression=low),
        exp.LTE(this=start.copy(), expression=high),
        exp.GTE(this=time, expression=low.copy()),
        exp.LT(this=time.copy(), expression=end),
    )


def tag(state: KeptState) -> KeptState:
    """The query keeps instants apart by their tags, if it can; now() is the instant's time."""
    if state.source is None:
        return state
    found = tagging.tagged(state.tree, state.source, with_seq=state.with_seq)
    return replace(state, is_tagged=found is not None)


ROW_PASSES: tuple[Pass[KeptState], ...] = (
    # First, as in a query that is answered once: PREV puts RECENT into a subquery.
    expand_prev,
    find_read,
    # Before the stream is called otherwise: its row as a value is named after it.
    pack_rows,
    take_sides,
    place_references,
)
"""EVERY ROW; then ``ONE_ROW_PASSES`` and ``MANY_ROWS_PASSES`` on copies."""

ONE_ROW_PASSES: tuple[Pass[KeptState], ...] = (
    read_windows,
    leave_out_seq,
    # Last: the planner, which binds now() before it looks for predicates, is not asked here.
    bind_now,
)

MANY_ROWS_PASSES: tuple[Pass[KeptState], ...] = (
    read_windows,
    take_before,
    # Before tagging: there now() becomes the instant's time.
    find_narrow,
    tag,
)

ARRIVED_PASSES: tuple[Pass[KeptState], ...] = (expand_prev, cut_at_number)
"""EVERY ROW over a window of time that is too large to be held: planned for each row."""

TICK_PASSES: tuple[Pass[KeptState], ...] = (cut_at_now,)
"""EVERY INTERVAL."""

ONE_CLOSE_PASSES: tuple[Pass[KeptState], ...] = (cut_at_window, drop_window_keys)
MANY_CLOSES_PASSES: tuple[Pass[KeptState], ...] = (read_closed, tag)
"""EMIT ON WINDOW CLOSE; both from the query as it was written."""
