"""Lifting now() out of what rows are summed up by: conditions on now() are asked when reading.

1. From the stream up to the block that is split, the conjuncts of every WHERE that mention now()
   (or the bound of a RECENT window) are taken out of the tree.
2. One that compares the stream's time column with an expression over now() is an end of a window
   that slides. The time may stand beside fixed intervals: ``now() - ts < INTERVAL '5' MINUTE``.
3. In any other, each largest part that has columns and no now() becomes a hidden key, and the
   conjunct a condition over hidden keys: ``date_trunc('week', ts) = date_trunc('week', now())``.
   The end of a TUMBLE or HOP window is its start plus the size: then the start is the key.
4. A hidden key from below the block is handed up, level by level, as one more column.

now() anywhere else below the block changes what a row contributes while time passes: refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sqlglot import exp

from tidemill.sql.decompose.blocks import Block, Level
from tidemill.sql.decompose.names import is_star
from tidemill.sql.decompose.nodes import call, named
from tidemill.sql.decompose.plan import sql_of
from tidemill.sql.fold import constant
from tidemill.sql.maintain.refusals import refusal
from tidemill.sql.scopes import is_named_by
from tidemill.sql.windows import SIZE

_FLIPPED: dict[type[exp.Expression], type[exp.Expression]] = {
    exp.LT: exp.GT,
    exp.GT: exp.LT,
    exp.LTE: exp.GTE,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}
_Comparison = tuple[type[exp.Expression], exp.Expression, exp.Expression]
_TIMES = ("TIMESTAMP", "TIMESTAMPTZ")
_WRITE = "compare the column itself in WHERE: {0} > now() - INTERVAL '5' MINUTE"


@dataclass(frozen=True)
class End:
    """One end of a sliding window, an expression over now()."""

    value: exp.Expression
    is_open: bool


@dataclass
class Lifted:
    """What was taken out of a block: ``hidden`` keys and the ``time`` column are expressions over
    the block's FROM; ``conditions`` name hidden keys; ``fixed`` are those asked by equality."""

    hidden: dict[str, exp.Expression] = field(default_factory=dict)
    conditions: list[exp.Expression] = field(default_factory=list)
    fixed: set[str] = field(default_factory=set)
    lows: list[End] = field(default_factory=list)
    highs: list[End] = field(default_factory=list)
    time: exp.Expression | None = None
    asks_start: bool = False

    @property
    def slides(self) -> bool:
        return bool(self.lows or self.highs)


def lift(block: Block, time_column: str, prefix: str, *, by_start: bool = True) -> Lifted:
    """Take the conditions on now() out of a block and the levels below it, in place.

    ``by_start`` asks for windows by their start, whichever end the query compares."""
    lifter = _Lifter(block.levels, time_column, prefix, by_start)
    for at in range(len(block.levels)):
        lifter.lift_level(at)
    return lifter.lifted


def has_now(node: exp.Expr) -> bool:
    """Whether now() or a window's bound is in it; a view has no other parameters."""
    return node.find(exp.Placeholder) is not None


def _has_columns(node: exp.Expr) -> bool:
    return node.find(exp.Column, exp.Query) is not None


class _Lifter:
    def __init__(
        self, levels: Sequence[Level], time_column: str, prefix: str, by_start: bool
    ) -> None:
        self._levels = levels
        self._by_start = by_start
        self._time_column = time_column
        self._prefix = prefix
        self._known: dict[tuple[int, str], str] = {}
        self.lifted = Lifted()

    def lift_level(self, at: int) -> None:
        where = self._levels[at].select.args.get("where")
        if where is None or not has_now(where):
            return
        kept: list[exp.Expression] = []
        for conjunct in conjuncts_of(where.this):
            if not has_now(conjunct):
                kept.append(conjunct.copy())
            elif not self._take_end(conjunct, at):
                self._take_condition(conjunct, at)
        # The WHERE is made anew, so that nothing of the old one is left in the tree.
        self._levels[at].select.set("where", None)
        if kept:
            self._levels[at].select.set("where", exp.Where(this=exp.and_(*kept, copy=False)))

    # Ends of a window.

    def _take_end(self, conjunct: exp.Expression, at: int) -> bool:
        if isinstance(conjunct, exp.Between) and not conjunct.args.get("symmetric"):
            low, high = conjunct.args["low"], conjunct.args["high"]
            if not self._is_time(conjunct.this, at) or _has_columns(low) or _has_columns(high):
                return False
            found: list[_Comparison] = [
                (exp.GTE, conjunct.this, low),
                (exp.LTE, conjunct.this, high),
            ]
        elif type(conjunct) in _FLIPPED:
            isolated = self._isolated(conjunct, at)
            if isolated is None:
                return False
            found = [isolated]
        else:
            return False
        for kind, time, value in found:
            end = End(value.copy(), kind in (exp.LT, exp.GT))
            if kind in (exp.GT, exp.GTE, exp.EQ):
                self.lifted.lows.append(end)
            if kind in (exp.LT, exp.LTE, exp.EQ):
                self.lifted.highs.append(end)
            if self.lifted.time is None:
                self.lifted.time = self._carried(_bare_time(time).copy(), at, f"{self._prefix}_t")
        return True

    def _isolated(self, comparison: exp.Expression, at: int) -> _Comparison | None:
        """A comparison as one of the time column with an expression without columns."""
        kind: type[exp.Expression] = type(comparison)
        left, right = comparison.this.unnest(), comparison.expression.unnest()
        if _has_columns(right):
            kind, left, right = _FLIPPED[kind], right, left
        if _has_columns(right):
            return None
        while not self._is_time(left, at):
            if not isinstance(left, (exp.Add, exp.Sub)):
                return None
            first, second = left.this.unnest(), left.expression.unnest()
            moved, rest = (second, first) if not _has_columns(second) else (first, second)
            if _has_columns(moved) or not _are_exact(moved, right):
                return None
            if isinstance(left, exp.Add):
                right = exp.Sub(this=exp.paren(right), expression=exp.paren(moved))
            elif moved is second:
                right = exp.Add(this=exp.paren(right), expression=exp.paren(moved))
            else:
                kind = _FLIPPED[kind]
                right = exp.Sub(this=exp.paren(moved), expression=exp.paren(right))
            left = rest
        return kind, left, right

    def _is_time(self, node: exp.Expression, at: int) -> bool:
        """Whether an expression of a level is the stream's time column."""
        node = _bare_time(node)
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return False
        source = self._levels[at].source
        if not is_named_by(node, source.alias_or_name):
            return False
        alias = source.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            return False
        if at == 0:
            return node.name.lower() == self._time_column.lower()
        items = self._levels[at - 1].select.expressions
        for item in items:
            if not is_star(item) and item.alias_or_name.lower() == node.name.lower():
                return self._is_time(item.unalias(), at - 1)
        below = exp.column(node.name)
        return any(map(is_star, items)) and self._is_time(below, at - 1)

    # Conditions.

    def _take_condition(self, conjunct: exp.Expression, at: int) -> None:
        column = self._time_column
        if conjunct.find(exp.Query, exp.Lambda) is not None:
            raise refusal(
                f"now() stands in a subquery or a lambda of {_short(conjunct)}",
                _WRITE.format(column),
                conjunct,
            )
        hidden: list[str] = []
        condition = self._abstract(conjunct.copy(), at, hidden)
        self.lifted.conditions.append(condition)
        if isinstance(condition, (exp.EQ, exp.NullSafeEQ)) and len(hidden) == 1:
            sides = (condition.this.unnest(), condition.expression.unnest())
            if any(_is_key(side, hidden[0]) for side in sides):
                self.lifted.fixed.add(hidden[0])

    def _abstract(self, node: exp.Expression, at: int, hidden: list[str]) -> exp.Expression:
        """The expression with hidden keys for its largest parts that have columns and no now()."""
        if not has_now(node):
            if not _has_columns(node):
                return node
            size_us = self._size_us(node.unnest(), at)
            if size_us is not None:
                start = exp.column("window_start", table=node.unnest().args.get("table"))
                size = call("to_microseconds", exp.Literal.number(size_us))
                return exp.Add(this=self._abstract(start, at, hidden), expression=size)
            name = self._hide(node, at)
            if name not in hidden:
                hidden.append(name)
            return exp.column(name, quoted=True)
        for child in list(node.iter_expressions()):
            if isinstance(child, exp.Expression):
                made = self._abstract(child, at, hidden)
                if made is not child:
                    child.replace(made)
        return node

    def _hide(self, node: exp.Expression, at: int) -> str:
        bare = node.unnest()
        assert isinstance(bare, exp.Expression)
        if self._is_shifted_time(bare, at):
            raise refusal(
                f"{_short(bare)} is compared with now() in a way that gives no window",
                _WRITE.format(self._time_column),
                bare,
            )
        form = sql_of(bare)
        if (at, form) not in self._known:
            name = f"{self._prefix}{len(self.lifted.hidden)}"
            self._known[at, form] = name
            self.lifted.hidden[name] = self._carried(bare.copy(), at, name)
        return self._known[at, form]

    def _size_us(self, node: exp.Expr, at: int) -> int | None:
        """The size of the TUMBLE or HOP window whose end a column is."""
        is_end = isinstance(node, exp.Column) and node.name.lower() == "window_end"
        if not self._by_start or not is_end or at == 0:
            return None
        for item in self._levels[at - 1].select.expressions:
            if item._meta and SIZE in item.meta:
                self.lifted.asks_start = True
                return int(item.meta[SIZE])
        return None

    def _is_shifted_time(self, node: exp.Expression, at: int) -> bool:
        """The time column, or sums of it: as many values as there are rows."""
        node = _bare_time(node)
        if isinstance(node, (exp.Add, exp.Sub)):
            parts = (node.this, node.expression)
            return any(self._is_shifted_time(part, at) for part in parts)
        return self._is_time(node, at)

    # The way up.

    def _carried(self, node: exp.Expression, at: int, name: str) -> exp.Expression:
        """An expression of a level as one of the block, handed up through the levels between."""
        return carry(self._levels, node, at, name)


def carry(levels: Sequence[Level], node: exp.Expression, at: int, name: str) -> exp.Expression:
    """An expression of a level as one of the last, handed up through the levels between, which
    give it under a name if they do not give it already."""
    for below, above in zip(levels[at:], levels[at + 1 :], strict=False):
        given = _given_as(below, node)
        if given is None:
            given = name
            below.select.append("expressions", named(node, name))
        node = exp.column(given, table=above.source.alias_or_name or None, quoted=True)
    return node


def conjuncts_of(node: exp.Expression) -> Iterator[exp.Expression]:
    """The parts of a condition that must all hold."""
    bare = node.unnest()
    assert isinstance(bare, exp.Expression)
    if isinstance(bare, exp.And):
        yield from conjuncts_of(bare.this)
        yield from conjuncts_of(bare.expression)
    else:
        yield bare


def _bare_time(node: exp.Expression) -> exp.Expression:
    """Without parentheses and casts between the two types of times."""
    while True:
        if isinstance(node, exp.Paren) or (
            isinstance(node, exp.Cast) and node.to.sql(dialect="duckdb") in _TIMES
        ):
            node = node.this
        else:
            return node


def _are_exact(*parts: exp.Expression) -> bool:
    """Whether those without now() are intervals of fixed length: months vary."""
    return all(has_now(part) or isinstance(constant(part), timedelta) for part in parts)


def _given_as(level: Level, node: exp.Expression) -> str | None:
    """The name under which a level gives a column already."""
    if not isinstance(node, exp.Column):
        return None
    is_alone = not level.select.args.get("joins")
    for item in level.select.expressions:
        if item.find(exp.Columns) is not None:
            raise refusal("a star with COLUMNS hides which columns there are")
        if is_star(item):
            if is_alone:  # of several tables, another may give that name as well
                return node.name
            continue
        inner = item.unalias()
        if isinstance(inner, exp.Column) and _is_same(inner, node):
            return str(item.alias_or_name)
    return None


def _is_same(one: exp.Column, other: exp.Column) -> bool:
    """Two columns of one SELECT; a name without its table's is that of one table only."""
    tables = {node.table.lower() for node in (one, other) if node.table}
    return one.name.lower() == other.name.lower() and len(tables) <= 1


def _is_key(node: exp.Expression, name: str) -> bool:
    return isinstance(node, exp.Column) and node.name == name


def _short(node: exp.Expression) -> str:
    return sql_of(node).replace("$tidemill_now", "now()")[:200]
