"""The shape of a digest that arrays can hold: what its partial query groups and adds up.

``plan_dense`` reads a partial query and answers how to absorb rows without grouping them in
DuckDB: a projection of keys and arguments, and one cell for each state; or None, if a key or a
state is not of a kind that arrays hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from sqlglot import exp, parse_one

from tidemill.digests.arrays import decimal_of
from tidemill.sql.decompose.calls import AggregateCall, aggregate_at
from tidemill.sql.scopes import is_named_by
from tidemill.types import Column, SqlType, quote

ROWS = "tm_rows"

_DIGITS_MAX = 18
_INTEGERS = frozenset(
    (
        *("TINYINT", "SMALLINT", "INTEGER", "BIGINT"),
        *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
    )
)
_ORDERED = _INTEGERS | {
    *("BOOLEAN", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "FLOAT", "DOUBLE")
}
_KEYS = _ORDERED | {"VARCHAR"}
_FUNCTIONS = {
    **{name: name for name in ("count", "sum", "min", "max")},
    "bool_and": "min",
    "bool_or": "max",
}
# What fails for no row: a digest's WHERE need not be asked first.
_SAFE = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Not, exp.Is),
    *(exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In),
    *(exp.Case, exp.If, exp.Coalesce),
)
_PARTS = frozenset(("with_", "expressions", "from_", "joins", "where", "group"))


@dataclass(frozen=True)
class CellPlan:
    """One state: a function of an argument, which is SQL over the rows (None: every row)."""

    name: str
    function: str
    argument: str | None
    type: SqlType


@dataclass(frozen=True)
class DensePlan:
    """A digest in arrays. Digests of equal ``share`` have their keys and rows in common.

    A simple one reads nothing but the rows. Its ``where`` is then one more expression over them,
    and sources and arguments that might fail for rows it leaves out are guarded by it."""

    keys: tuple[Column, ...]
    key_sources: tuple[str, ...]
    cells: tuple[CellPlan, ...]
    head: str  # WITH
    tail: str  # FROM, joins and WHERE
    is_simple: bool
    where: str | None  # of a simple one
    bare: Mapping[str, str]  # expressions that are columns of the rows, and the columns' names

    @property
    def share(self) -> tuple[object, ...]:
        return (self.head, self.tail, self.key_sources, tuple(key.type for key in self.keys))

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.argument for cell in self.cells if cell.argument))

    @property
    def is_computed(self) -> bool:
        """Whether rows are chosen, joined or computed of others before they are added up."""
        plain = all(text in self.bare for text in (*self.key_sources, *self.arguments))
        return not (self.is_simple and self.where is None and plain)

    def select_sql(
        self,
        source: str,
        narrow: Callable[[str], bool] = lambda _: False,
        same: Mapping[int, str] = MappingProxyType({}),
        more: Sequence[str] = (),
    ) -> str:
        """The digest's columns in their own types, over arrays as ``source``. Sums that may be
        narrow are left in 64 bits; keys by place that are the same for all groups are given as
        SQL, which spares comparing them group by group. ``more`` are columns that the source has
        besides."""
        keys = [
            f"{same[at]} AS {quote(key.name)}" if at in same else quote(key.name)
            for at, key in enumerate(self.keys)
        ]
        states = [quote(cell.name) if narrow(cell.name) else _cast(cell) for cell in self.cells]
        return f"SELECT {', '.join([*keys, *states, *map(quote, more)])} FROM {source}"


def _cast(cell: CellPlan) -> str:
    if cell.function != "sum" or cell.type.name == "DOUBLE":
        return quote(cell.name)
    return f"CAST({quote(cell.name)} AS {cell.type.name}) AS {quote(cell.name)}"


def projection_sql(plan: DensePlan, arguments: Iterable[str]) -> str:
    """Keys ``k0, …`` and arguments ``a0, …`` of the rows that the digest takes."""
    parts = [
        *(f"{source} AS k{at}" for at, source in enumerate(plan.key_sources)),
        *(f"{source} AS a{at}" for at, source in enumerate(arguments)),
    ]
    return f"{plan.head}SELECT {', '.join(parts) or '1 AS one'} {plan.tail}"


def plan_dense(partial: str, columns: Sequence[Column]) -> DensePlan | None:
    """How arrays hold the digest of a partial query; ``columns``: its keys and states.

    >>> columns = [Column("k0", SqlType("INTEGER")), Column("s0", SqlType("HUGEINT"))]
    >>> plan = plan_dense("SELECT k AS k0, sum(v) AS s0 FROM tm_rows GROUP BY 1", columns)
    >>> print(projection_sql(plan, plan.arguments))
    SELECT k AS k0, v AS a0 FROM tm_rows
    """
    select = parse_one(partial, dialect="duckdb")
    if not isinstance(select, exp.Select) or len(select.expressions) != len(columns):
        return None
    if any(value and name not in _PARTS for name, value in select.args.items()):
        return None
    is_simple = _is_simple(select)
    if is_simple:
        _strip_qualifiers(select)
    where = select.args["where"].this if is_simple and select.args.get("where") else None
    keys: list[Column] = []
    sources: list[exp.Expr] = []
    cells: list[CellPlan] = []
    arguments: list[exp.Expr] = []
    for item, column in zip(select.expressions, columns, strict=True):
        node = item.unalias()
        call = aggregate_at(node)
        if call is None:
            if not _is_key(column.type) or next(_calls(node), None) is not None or cells:
                return None
            keys.append(column)
            sources.append(_guarded(node, where))
            continue
        function, argument = _function_of(call, column.type), _argument_of(call)
        if function is None:
            return None
        if argument is not None:
            argument = _guarded(argument, where)
            arguments.append(argument)
        text = None if argument is None else _sql(argument)
        cells.append(CellPlan(column.name, function, text, column.type))
    if not _groups_all(select, len(keys)):
        return None
    return DensePlan(
        tuple(keys),
        tuple(_sql(source) for source in sources),
        tuple(cells),
        _head(select),
        _tail(select),
        is_simple,
        None if where is None else _sql(where),
        _bare_columns([*sources, *arguments]) if is_simple else {},
    )


def _calls(node: exp.Expr) -> Iterator[AggregateCall]:
    return (call for found in node.find_all(exp.Func, exp.Filter) if (call := aggregate_at(found)))


def _groups_all(select: exp.Select, keys: int) -> bool:
    """Whether GROUP BY is by the places of all keys."""
    group = select.args.get("group")
    if group is None:
        return keys == 0
    places = [str(part.name) for part in group.expressions if isinstance(part, exp.Literal)]
    extra = any(value for name, value in group.args.items() if name != "expressions")
    return (
        not extra
        and len(places) == len(group.expressions) == keys
        and set(places) == {str(at) for at in range(1, keys + 1)}
    )


def _function_of(call: AggregateCall, kind: SqlType) -> str | None:
    """What a cell does for an aggregate; None if no cell does."""
    function = _FUNCTIONS.get(call.name)
    if function is None or call.order or not _is_state(function, kind):
        return None
    if call.is_distinct and function in ("count", "sum"):
        return None
    counts = (0, 1) if function == "count" else (1,)
    return function if len(call.arguments) in counts else None


def _argument_of(call: AggregateCall) -> exp.Expr | None:
    """What of a row is absorbed; NULL of those that FILTER leaves out. None: the row itself."""
    argument: exp.Expr | None = call.arguments[0].copy() if call.arguments else None
    if call.filter is None:
        return argument
    value = argument if argument is not None else exp.true()
    return exp.Case(ifs=[exp.If(this=call.filter.copy(), true=value)])


def _guarded(node: exp.Expr, where: exp.Expr | None) -> exp.Expr:
    """An expression that fails for no row that WHERE leaves out."""
    if where is None or all(isinstance(part, _SAFE) for part in node.walk()):
        return node
    return exp.Case(ifs=[exp.If(this=where.copy(), true=node.copy())])


def _is_key(kind: SqlType) -> bool:
    return kind.name in _KEYS or _is_small_decimal(kind)


def _is_state(function: str, kind: SqlType) -> bool:
    decimal = decimal_of(kind)
    if function == "count":
        return kind.name == "BIGINT"
    if function == "sum":
        return kind.name in ("HUGEINT", "DOUBLE") or (
            decimal is not None and decimal[0] == 38 and decimal[1] <= _DIGITS_MAX
        )
    return kind.name in _ORDERED or _is_small_decimal(kind)


def _is_small_decimal(kind: SqlType) -> bool:
    decimal = decimal_of(kind)
    return decimal is not None and decimal[0] <= _DIGITS_MAX


def _sql(node: exp.Expr) -> str:
    return node.sql(dialect="duckdb", comments=False)


def _head(select: exp.Select) -> str:
    with_ = select.args.get("with_")
    return f"{_sql(with_)} " if with_ is not None else ""


def _tail(select: exp.Select) -> str:
    rest = exp.Select(
        **{
            name: select.args[name].copy()
            for name in ("from_", "where")
            if select.args.get(name) is not None
        }
    )
    rest.set("joins", [join.copy() for join in select.args.get("joins") or []])
    return _sql(rest).removeprefix("SELECT").strip()


def _is_simple(select: exp.Select) -> bool:
    """Whether the query reads the rows, and nothing else."""
    from_ = select.args.get("from_")
    table = from_.this if from_ is not None else None
    if not isinstance(table, exp.Table) or table.name != ROWS:
        return False
    alias = table.args.get("alias")
    extra = any(value for name, value in table.args.items() if name not in ("this", "alias"))
    if extra or (alias is not None and alias.args.get("columns")):
        return False
    others = select.args.get("with_") or select.args.get("joins")
    return not others and len(list(select.find_all(exp.Query))) == 1


def _strip_qualifiers(select: exp.Select) -> None:
    """Columns without the one table's name, so that digests write them alike."""
    table = select.args["from_"].this
    for column in select.find_all(exp.Column):
        if is_named_by(column, table.alias_or_name) and not column.args.get("db"):
            column.set("table", None)
    table.set("alias", None)


def _bare_columns(nodes: Sequence[exp.Expr]) -> dict[str, str]:
    return {
        _sql(node): node.name
        for node in nodes
        if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier) and not node.table
    }
