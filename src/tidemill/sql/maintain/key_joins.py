"""Final queries that join their groups with a reference table by a key: the join can be kept.

``FROM (groups) AS e, customers AS c WHERE e.entity_id = c.id`` finds, for every group, the one row
of the reference table with its key. That changes only when the table does or when a group is new.
So what was found is kept beside the groups, as more columns of theirs, and the join leaves the
query:

1. Climb from the digest's table, through SELECTs that treat each group by itself, to the one that
   joins the reference table, by an inner join with a column equal to a key of the digest.
2. Hand the found columns up to there, and put them in the place of the table's columns; that one
   was found at all takes the place of the comparison.

Whether a key is found once at most is a matter of the table's rows, and is seen when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp, parse_one

from tidemill.errors import UnsupportedError
from tidemill.sql.decompose.blocks import Level, find_block
from tidemill.sql.decompose.names import is_star
from tidemill.sql.decompose.plan import Refused, sql_of
from tidemill.sql.maintain.lifting import carry, conjuncts_of
from tidemill.sql.maintain.plan import DIGEST, REFERENCE, ViewParts
from tidemill.sql.scopes import FromItem, candidates, from_items, given_names, is_named_by
from tidemill.types import quote

FOUND = "tm_found"
_DIGEST = f"{DIGEST}0"
_INNER = ("", "INNER", "CROSS")
_CLAUSES = ("where", "group", "having", "qualify", "order", "distinct")


@dataclass(frozen=True)
class KeyJoinPlan:
    """A final query whose groups have columns of a reference table beside their own.

    ``key`` is the digest's column that is compared with the table's ``reference_key``;
    ``columns`` are those of the table that are needed, given as ``names``."""

    reference: int
    key: str
    reference_key: str
    columns: tuple[str, ...]
    final: str

    @property
    def names(self) -> tuple[str, ...]:
        return (*(f"tm_l{at}" for at in range(len(self.columns))), FOUND)

    def find_sql(self, keys: str, place: str) -> str:
        """What is found for keys, in their order: ``keys`` is a relation of ``slot`` and ``key``,
        ``place`` the reference table as a FROM item. More rows than keys: not by one row each."""
        found = [*self._given, f"c.{quote(self.reference_key)} IS NOT NULL AS {FOUND}"]
        on = f"s.key = c.{quote(self.reference_key)}"
        joined = f"{keys} AS s LEFT JOIN {place} AS c ON {on}"
        return f"SELECT {', '.join(found)} FROM {joined} ORDER BY s.slot"

    def table_sql(self, place: str) -> str:
        """All keys of the reference table, and what is found by them."""
        key = f"c.{quote(self.reference_key)}"
        items = ", ".join([f"{key} AS key", *self._given])
        return f"SELECT {items} FROM {place} AS c WHERE {key} IS NOT NULL"

    @property
    def _given(self) -> list[str]:
        """The columns that are needed, under their new names."""
        pairs = zip(self.columns, self.names, strict=False)
        return [f"c.{quote(column)} AS {name}" for column, name in pairs]


def plan_lookup(
    parts: ViewParts, columns_of: Callable[[int], Collection[str]]
) -> KeyJoinPlan | None:
    """How the join of a view's final query is kept; None if it has none of that kind.

    ``columns_of`` names the columns of a reference table by its id."""
    is_plain = all(digest.pane is None and digest.is_single for digest in parts.digests)
    if len(parts.digests) != 1 or not is_plain:
        return None
    try:
        return _plan(parts, columns_of)
    except (Refused, UnsupportedError):
        return None


def _plan(parts: ViewParts, columns_of: Callable[[int], Collection[str]]) -> KeyJoinPlan | None:
    tree = parse_one(parts.final, dialect="duckdb")
    scans = [table for table in tree.find_all(exp.Table) if table.name == _DIGEST]
    if len(scans) != 1:
        return None
    levels = find_block(scans[0], is_in_union=True).levels
    at = next((at for at, level in enumerate(levels) if _others(level)), None)
    if at is None:
        return None
    level, below = levels[at], levels[: at + 1]
    others = _others(level)
    table = others[0]
    if len(others) > 1 or not isinstance(table, exp.Table) or not _is_joined(level, table):
        return None
    if not table.name.startswith(REFERENCE):
        return None
    reference = int(table.name.removeprefix(REFERENCE))
    uses = [node for node in tree.find_all(exp.Table) if node.name == table.name]
    assert isinstance(tree, exp.Expression)
    if len(uses) != 1 or any(is_star(item) for item in level.select.expressions):
        return None
    (digest,) = parts.digests
    columns = {name.lower() for name in columns_of(reference)}
    side = _Side(level, table, columns, {name.lower() for name in digest.shown})
    if any(part.find(exp.Query) for part in side.clauses()):
        return None
    for condition in side.conditions():
        pair = side.pair(condition)
        key = None if pair is None else _key(below, pair[0])
        if pair is not None and key in digest.visible:
            return _looked_up(tree, below, side, condition, reference, key, pair[1].name)
    return None


def _others(level: Level) -> list[exp.Expr]:
    """The FROM items of a SELECT besides the one that the groups come from."""
    return [item for item, _ in from_items(level.select) if item is not level.source]


def _is_joined(level: Level, table: exp.Table) -> bool:
    """Whether it is one of two tables of an inner join."""
    joins: list[exp.Join] = level.select.args.get("joins") or []
    if len(joins) != 1:
        return False
    (join,) = joins
    is_plain = not join.args.get("using") and not join.method and not join.side
    return is_plain and join.kind.upper() in _INNER and not table.args.get("pivots")


def _key(levels: Sequence[Level], column: exp.Column) -> str | None:
    """The digest's column that a column of the last level is, through the levels below it."""
    name = column.name
    for level in reversed(levels[:-1]):
        items = [
            item for item in level.select.expressions if item.alias_or_name.lower() == name.lower()
        ]
        if len(items) != 1 or not isinstance(items[0].unalias(), exp.Column):
            return None
        name = items[0].unalias().name
    return name


class _Side:
    """One SELECT with the two sides of its join: the groups, and the reference table."""

    def __init__(
        self, level: Level, table: exp.Table, columns: Collection[str], shown: Collection[str]
    ) -> None:
        """``columns`` are the table's, ``shown`` those of the digest, in lower case."""
        self.select = level.select
        self.table = table
        own = _names_of(level.source, shown)
        self._table = FromItem(table, table.alias_or_name, frozenset(columns), None)
        self._groups = FromItem(level.source, level.source.alias_or_name, frozenset(own), None)
        for item in self.select.expressions:
            bare = item.unalias()
            is_column = isinstance(bare, exp.Column) and self.is_of_table(bare)
            if item.alias.lower() in columns and not (is_column and bare.name == item.alias):
                raise Refused(f'"{item.alias}" may be a column or an alias')

    def clauses(self) -> list[exp.Expr]:
        """All of the SELECT but its FROM items."""
        parts = [self.select.args.get(name) for name in _CLAUSES]
        ons = [join.args.get("on") for join in self.select.args["joins"]]
        return [part for part in (*self.select.expressions, *parts, *ons) if part is not None]

    def conditions(self) -> Iterator[exp.Expression]:
        """The parts of WHERE and ON that must all hold."""
        where, on = self.select.args.get("where"), self.select.args["joins"][0].args.get("on")
        for part in (None if where is None else where.this, on):
            if part is not None:
                yield from conjuncts_of(part)

    def pair(self, condition: exp.Expression) -> tuple[exp.Column, exp.Column] | None:
        """The groups' column and the table's that a condition says to be equal."""
        if not isinstance(condition, exp.EQ):
            return None
        one, two = condition.this, condition.expression
        if not isinstance(one, exp.Column) or not isinstance(two, exp.Column):
            return None
        if self.is_of_table(one) == self.is_of_table(two):
            return None
        return (two, one) if self.is_of_table(one) else (one, two)

    def is_of_table(self, column: exp.Column) -> bool:
        if column.table:
            return is_named_by(column, self.table.alias_or_name)
        found = candidates(column, (self._table, self._groups))
        if len(found) > 1:
            raise Refused(f'"{column.name}" may be of both sides')
        return found == [self._table]


def _names_of(source: exp.Expr, shown: Collection[str]) -> Collection[str]:
    """The names of the columns that a FROM item with the groups gives."""
    if isinstance(source, exp.Table):
        return shown
    names = given_names(source.this)
    if names is None:
        raise Refused("the columns of a subquery are not known")
    return names


def _looked_up(
    tree: exp.Expression,
    levels: Sequence[Level],
    side: _Side,
    condition: exp.Expression,
    reference: int,
    key: str,
    reference_key: str,
) -> KeyJoinPlan:
    """The query without the join, in place."""
    scan = levels[0].source.alias_or_name

    def given(name: str) -> exp.Expression:
        return carry(levels, exp.column(name, table=scan, quoted=True), 0, name)

    condition.replace(given(FOUND))
    nodes = [node for part in side.clauses() for node in part.find_all(exp.Column)]
    wanted = [node for node in nodes if side.is_of_table(node)]
    columns = tuple(dict.fromkeys(node.name.lower() for node in wanted))
    plan = KeyJoinPlan(reference, key, reference_key, columns, "")
    for node in wanted:
        made = given(plan.names[columns.index(node.name.lower())])
        is_item = node.parent is side.select and node.arg_key == "expressions"
        node.replace(exp.alias_(made, node.name, quoted=True) if is_item else made)
    _leave_out(side.select, side.table)
    return replace(plan, final=sql_of(tree))


def _leave_out(select: exp.Select, table: exp.Table) -> None:
    """Take one of the two tables of a join out of FROM; the other conditions go to WHERE."""
    (join,) = select.args["joins"]
    on = join.args.get("on")
    if table is select.args["from_"].this:
        select.set("from_", exp.From(this=join.this))
    select.set("joins", None)
    if on is not None:
        select.where(on, copy=False)
