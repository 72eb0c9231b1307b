"""Splitting blocks that keep rows: plain ones, the first k, the first k of each key, DISTINCT.

The partial is the block itself, without what only the whole can decide. Its columns keep their
names where they are distinct; an expression that orders the rows and is not among them becomes one
more column (``tm_o0`` …), which the final leaves out again. The first k rows of the whole are among
the first k of the parts, so ORDER BY … LIMIT runs below, in merges and above; with an OFFSET, the
parts keep k + offset rows. Hidden keys come first; the first k are kept for each of their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlglot import exp

from tidemill.sql.decompose.blocks import DISTINCT, TOP, TOP_OF_KEYS
from tidemill.sql.decompose.grouping import Split
from tidemill.sql.decompose.names import is_star, output_names
from tidemill.sql.decompose.nodes import call, column, named, nested, source
from tidemill.sql.decompose.plan import Refused

_ORDER, _COLUMN = "tm_o", "tm_c"


def split_rows(
    block: exp.Select, kind: str, spelling: Mapping[str, str], hidden: Mapping[str, exp.Expression]
) -> Split:
    columns = _Columns(block, spelling)
    places = columns.hide(hidden, kind)
    order = columns.order(block.args.get("order"))
    partial, merge = block.copy(), exp.Select(expressions=[exp.Star()], from_=source())
    partial.set("with_", None)
    final = exp.Select(from_=source())
    for name in ("order", "limit", "offset"):
        partial.set(name, None)
    if kind == TOP:
        _push_limit(block, partial, merge, order if not columns.hidden else None)
    elif kind == TOP_OF_KEYS:
        rank = block.args["qualify"].copy()
        _over_columns(rank.this.this, columns)
        final.set("qualify", rank.copy())
        _for_each(rank.this.this, map(column, columns.hidden))
        merge.set("qualify", rank)
        _for_each(partial.args["qualify"].this.this, columns.hidden.values())
    elif kind == DISTINCT:
        if columns.extra:
            raise Refused("SELECT DISTINCT is ordered by an expression that it does not give")
        merge.set("distinct", exp.Distinct())
        final.set("distinct", exp.Distinct())
    columns.check_renamed(block.args.get("where"))
    partial.set("expressions", columns.below())
    final.set("expressions", columns.above())
    if order is not None:
        final.set("order", order.copy())
    for name in ("limit", "offset"):
        if block.args.get(name) is not None:
            final.set(name, block.args[name].copy())
    if kind == TOP and columns.hidden:
        partial, merge = (_first_of_each(s, order, columns) for s in (partial, merge))
    kept = (*(columns.hidden if kind == DISTINCT else ()), *columns.kept())
    return Split(partial, merge, final, kept, tuple(columns.extra), hidden=places)


def _for_each(window: exp.Window, parts: Iterable[exp.Expression]) -> None:
    """A ranking window by more parts."""
    given = window.args.get("partition_by") or []
    window.set("partition_by", [*given, *(part.copy() for part in parts)])


def _first_of_each(select: exp.Select, order: exp.Order | None, columns: _Columns) -> exp.Select:
    """The first k rows for each value of the hidden keys, in place of the first k."""
    limit = select.args["limit"].expression
    select.set("limit", None)
    rank = exp.Window(this=call("row_number"), over="OVER")
    _for_each(rank, map(column, columns.hidden))
    if order is not None:
        rank.set("order", order.copy())
    is_first = exp.LTE(this=rank, expression=exp.paren(limit))
    return exp.Select(
        expressions=[exp.Star()],
        from_=exp.From(this=nested(select)),
        qualify=exp.Qualify(this=is_first),
    )


def _push_limit(
    block: exp.Select, partial: exp.Select, merge: exp.Select, order: exp.Order | None
) -> None:
    limit, offset = block.args.get("limit"), block.args.get("offset")
    if limit is None:
        return  # OFFSET alone: the parts keep all rows
    counts = [limit.expression, *([offset.expression] if offset is not None else [])]
    is_plain = isinstance(limit, exp.Limit) and not limit.args.get("limit_options")
    if not is_plain or not all(isinstance(n, (exp.Literal, exp.Placeholder)) for n in counts):
        raise Refused("LIMIT is split only with a number of rows")
    total = counts[0].copy()
    if len(counts) > 1:
        total = exp.Add(this=total, expression=counts[1].copy())
    for select in (partial, merge):
        select.set("limit", exp.Limit(expression=total.copy()))
        if order is not None:
            select.set("order", order.copy())


def _over_columns(window: exp.Window, columns: _Columns) -> None:
    """A ranking window over the columns of partials in place of the block's expressions."""
    parts = window.args.get("partition_by") or []
    window.set("partition_by", [columns.place(part) for part in parts])
    order = window.args.get("order")
    for part in order.expressions if order is not None else ():
        part.set("this", columns.place(part.this))


class _Columns:
    """The columns of a partial: the block's own, and those that only order rows."""

    def __init__(self, block: exp.Select, spelling: Mapping[str, str]) -> None:
        self._items: list[exp.Expression] = block.expressions
        self.extra: dict[str, exp.Expression] = {}
        self.hidden: dict[str, exp.Expression] = {}
        stars = [item for item in self._items if is_star(item)]
        self._has_star = bool(stars)
        if stars and not _is_distinctly_named(stars, block):
            raise Refused("a star over several tables may give a name twice")
        self._plain = [item for item in self._items if not is_star(item)]
        self._names = output_names(block, spelling)
        self._below = self._unique_names(self._plain)

    def _unique_names(self, items: Sequence[exp.Expression]) -> list[str]:
        """Own names where they are sure to be distinct, ours where not."""
        used: set[str] = set()
        names = []
        for at, (item, name) in enumerate(zip(items, self._names, strict=True)):
            is_own = isinstance(item, (exp.Alias, exp.Column)) and not self._has_star
            if not is_own or name.lower() in used:
                name = f"{_COLUMN}{at}"
            used.add(name.lower())
            names.append(name)
        return names

    def hide(self, hidden: Mapping[str, exp.Expression], kind: str) -> dict[str, str]:
        """Add keys that the final does not see; answers the column of each."""
        places = {}
        for name, key in hidden.items():
            same = [
                below
                for item, below in zip(self._plain, self._below, strict=True)
                if kind == DISTINCT and item.unalias() == key
            ]
            if not same:
                self.hidden[name] = key
            places[name] = same[0] if same else name
        return places

    def kept(self) -> tuple[str, ...]:
        return () if self._has_star else tuple(self._below)

    def check_renamed(self, where: exp.Expression | None) -> None:
        """An alias that is not kept in the partial may not be used there."""
        beside = [*self.extra.values(), *([where] if where is not None else [])]
        for at, (item, below) in enumerate(zip(self._plain, self._below, strict=True)):
            if not isinstance(item, exp.Alias) or item.alias == below or _uses(item, item.alias):
                continue
            later = self._plain[at + 1 :]  # an item sees the aliases of those before it
            if any(_uses(other, item.alias) for other in (*later, *beside)):
                raise Refused(f'"{item.alias}" may be a column or an alias')

    def below(self) -> list[exp.Expression]:
        """The select list of the partial."""
        names = iter(self._below)
        items = [item if is_star(item) else _renamed(item, next(names)) for item in self._items]
        items = [item.copy() for item in items]
        items = [*(named(part.copy(), name) for name, part in self.hidden.items()), *items]
        return [*items, *(named(part.copy(), name) for name, part in self.extra.items())]

    def above(self) -> list[exp.Expression]:
        """The select list of the final: the block's columns by their names."""
        pairs = iter(zip(self._below, self._names, strict=True))
        return [
            self._star() if is_star(item) else _output(item, *next(pairs)) for item in self._items
        ]

    def _star(self) -> exp.Expression:
        ours = [*self.hidden, *self._below, *self.extra]
        if not ours:
            return exp.Star()
        return exp.Star(except_=[exp.to_identifier(name, quoted=True) for name in ours])

    def order(self, order: exp.Order | None) -> exp.Order | None:
        """The ORDER BY over the columns of partials."""
        if order is None:
            return None
        again = order.copy()
        for part in again.expressions:
            value = part.this
            if isinstance(value, exp.Var):  # ALL
                if self._has_star or len(self._below) != len(set(self._names)):
                    raise Refused("ORDER BY ALL is split only over columns that are written out")
                continue
            part.set("this", self._order_place(value))
        return again

    def _order_place(self, value: exp.Expression) -> exp.Expression:
        if isinstance(value, exp.Literal) and value.is_int:
            at = int(value.name) - 1
            if self._has_star or not 0 <= at < len(self._below):
                raise Refused("ORDER BY with a column's number is split only without a star")
            return column(self._below[at])
        if isinstance(value, exp.Column) and not value.table:
            aliased = [
                below
                for item, below in zip(self._plain, self._below, strict=True)
                if isinstance(item, exp.Alias) and item.alias.lower() == value.name.lower()
            ]
            if len(aliased) > 1:
                raise Refused(f'"{value.name}" is the alias of several columns')
            if aliased:
                return column(aliased[0])
        return self.place(value)

    def place(self, value: exp.Expression) -> exp.Expression:
        """The column of partials that holds an expression of the block."""
        for item, below in zip(self._plain, self._below, strict=True):
            if isinstance(item, exp.Column) and _is_same(item, value):
                return column(below)
        for name, part in self.extra.items():
            if part == value:
                return column(name)
        name = f"{_ORDER}{len(self.extra)}"
        self.extra[name] = value.copy()
        return column(name)


def _is_distinctly_named(stars: Sequence[exp.Expression], block: exp.Select) -> bool:
    if len(stars) > 1 or isinstance(stars[0], exp.Columns):
        return False
    joins: list[exp.Join] = block.args.get("joins") or []
    adds_none = all({join.side.upper(), join.kind.upper()} & {"SEMI", "ANTI"} for join in joins)
    return adds_none or isinstance(stars[0], exp.Column)


def _is_same(item: exp.Column, value: exp.Expression) -> bool:
    """Whether both are one column; a name without its table's is that of one table only."""
    if not isinstance(value, exp.Column) or item.name.lower() != value.name.lower():
        return False
    return item.table.lower() == value.table.lower() or not (item.table and value.table)


def _uses(node: exp.Expression, name: str) -> bool:
    found = node.find_all(exp.Column)
    return any(not column.table and column.name.lower() == name.lower() for column in found)


def _renamed(item: exp.Expression, name: str) -> exp.Expression:
    if isinstance(item, exp.Alias) and item.alias == name:
        return item
    if isinstance(item, exp.Column) and item.name.lower() == name.lower():
        return item
    return named(item.this.copy() if isinstance(item, exp.Alias) else item.copy(), name)


def _output(item: exp.Expression, below: str, name: str) -> exp.Expression:
    """A column under its name; a table's own column keeps the table's spelling."""
    if isinstance(item, exp.Column) and below.lower() == name.lower():
        return column(below)
    return named(column(below), name)
