"""Queries: SELECT, joins, set operations, WITH and subqueries.

A query becomes a relation whose columns are c0, c1 …; a SELECT is built in layers, each of which
Spark cannot read in another way:

1. the FROM items under aliases of their own, WHERE, GROUP BY, HAVING, and all expressions;
2. QUALIFY as a filter around that;
3. ORDER BY, LIMIT and OFFSET around that, by columns of the layer below.

LIMIT without ORDER BY is left to the other routes: any rows would do, but they stop early.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from tidemill.sql.spark.aggregates import AGGREGATE_NODES, ROWS_MAX
from tidemill.sql.spark.casts import implicit
from tidemill.sql.spark.conditions import Conditions
from tidemill.sql.spark.expressions import Relation
from tidemill.sql.spark.kinds import INTEGER, NULL, Kind
from tidemill.sql.spark.scopes import Field, Place, SparkScope
from tidemill.sql.spark.sources import ColumnsOf, fields_of, only, renamed
from tidemill.sql.spark.values import Value, common_kind, refuse, what

_SELECT_PARTS = frozenset(
    [
        "expressions",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "windows",
        "qualify",
        "distinct",
        "order",
        "limit",
        "offset",
        "with_",
    ]
)
_SETS: dict[type[exp.Expr], str] = {
    exp.Union: "union",
    exp.Intersect: "intersect",
    exp.Except: "except",
}
_SET_PARTS = frozenset(["this", "expression", "distinct", "order", "limit", "offset", "with_"])


class Queries(Conditions):
    """Translates whole queries; one object for each."""

    def __init__(self, columns_of: ColumnsOf) -> None:
        super().__init__(columns_of)
        self.withs: list[str] = []

    # -- queries

    def relation(
        self, node: exp.Expr, outer: SparkScope | None
    ) -> tuple[Relation, SparkScope | None]:
        """A query as a relation, and its scope if it is a SELECT."""
        self.visible.append({})
        try:
            self._define(node)
            if isinstance(node, exp.Subquery):
                only(node, {"this", "order", "limit", "offset", "with_"}, "a subquery")
                if not any(node.args.get(key) for key in ("order", "limit", "offset")):
                    return self.relation(node.this, outer)
                inner, _ = self.relation(node.this, None)
                return self._tail(node, inner), None
            if isinstance(node, exp.Select):
                return self._select(node, outer)
            if type(node) in _SETS:
                return self._set(node), None
            if isinstance(node, exp.Values):
                return self._values(node), None
            refuse(f"{what(node)} is not verified for Spark SQL")
        finally:
            self.visible.pop()

    def _define(self, node: exp.Expr) -> None:
        """The WITH queries of a query, all put before the whole; their names are our own."""
        with_ = node.args.get("with_")
        if with_ is None:
            return
        only(with_, {"expressions"}, "WITH")
        for cte in with_.expressions:
            self.use("clause with")
            only(cte, {"this", "alias", "materialized"}, "WITH")
            inner, _ = self.relation(cte.this, None)
            name = self.alias("w")
            self.withs.append(f"{name} AS ({inner.sql})")
            names = renamed(cte.args["alias"], [column for column, _ in inner.columns])
            columns = zip(names, (kind for _, kind in inner.columns), strict=True)
            self.visible[-1][cte.alias.lower()] = Relation(name, tuple(columns))

    def _set(self, node: exp.Expr) -> Relation:
        only(node, _SET_PARTS, "a set operation")
        name = _SETS[type(node)]
        word = name if node.args.get("distinct") else f"{name} all"
        self.use(f"set {word}")
        sides = [self.relation(node.args[key], None)[0] for key in ("this", "expression")]
        if len(sides[0].columns) != len(sides[1].columns):
            refuse("the sides of a set operation differ in their columns")
        kinds = []
        for (_, one), (_, two) in zip(sides[0].columns, sides[1].columns, strict=True):
            kind = common_kind([Value("", one), Value("", two)])
            self.use(f"group {kind.family}")
            kinds.append(self.check(kind))
        texts = [self._as_kinds(side, kinds) for side in sides]
        names = [column for column, _ in sides[0].columns]
        joined = Relation(
            f"({texts[0]}) {word.upper()} ({texts[1]})", tuple(zip(names, kinds, strict=True))
        )
        return self._tail(node, joined)

    def _as_kinds(self, side: Relation, kinds: list[Kind]) -> str:
        alias = self.alias()
        columns = [
            f"{implicit(Value(f'{alias}.c{at}', given), kind).sql} AS c{at}"
            for at, ((_, given), kind) in enumerate(zip(side.columns, kinds, strict=True))
        ]
        return f"SELECT {', '.join(columns)} FROM ({side.sql}) AS {alias}"

    def _tail(self, node: exp.Expr, inner: Relation) -> Relation:
        """ORDER BY, LIMIT and OFFSET after a set operation or a query in parentheses."""
        alias = self.alias()
        fields = fields_of(alias, inner)
        order = node.args.get("order")
        keys = []
        for ordered in order.expressions if order is not None else []:
            at = self._position(ordered.this, fields)
            if at is None:
                found = [
                    i
                    for i, f in enumerate(fields)
                    if isinstance(ordered.this, exp.Column)
                    and not ordered.this.table
                    and f.is_named(ordered.this.name)
                ]
                if len(found) != 1:
                    refuse("this order of a set operation is not verified for Spark SQL")
                (at,) = found
            self.use("clause order by")
            keys.append(self.sorted(fields[at].value(), ordered))
        after = self._limits(node, bool(keys))
        if not keys:
            return inner
        columns = ", ".join(f"{field.sql} AS c{at}" for at, field in enumerate(fields))
        sql = f"SELECT {columns} FROM ({inner.sql}) AS {alias} ORDER BY {', '.join(keys)}{after}"
        return replace(inner, sql=sql)

    def _position(self, node: exp.Expr, fields: list[Field]) -> int | None:
        if not isinstance(node, exp.Literal) or node.is_string or not node.this.isdigit():
            return None
        if not 1 <= int(node.this) <= len(fields):
            refuse("a position that is no column")
        self.use("clause order by position")
        return int(node.this) - 1

    def _limits(self, node: exp.Expr, is_ordered: bool) -> str:
        after = ""
        for key in ("limit", "offset"):
            part = node.args.get(key)
            if part is None:
                continue
            only(part, {"expression"}, key.upper())
            if not is_ordered:
                refuse(f"{key.upper()} without ORDER BY takes rows in no certain order")
            value = self.value(part.args["expression"], Place(SparkScope()))
            number = value.constant or ""
            if value.kind.family != INTEGER or not value.sql.startswith("CAST('"):
                refuse(f"{key.upper()} {number} is not verified for Spark SQL")
            text = value.sql.removeprefix("CAST('").partition("'")[0]
            if not text.isdigit() or int(text) > ROWS_MAX:
                refuse(f"{key.upper()} {number} is not verified for Spark SQL")
            self.use(f"clause {key}")
            after += f" {key.upper()} {text}"
        return after

    def _values(self, node: exp.Expr) -> Relation:
        only(node, {"expressions", "alias"}, "VALUES")
        self.use("clause values")
        place = Place(SparkScope())
        rows = [[self.value(item, place) for item in row.expressions] for row in node.expressions]
        if any(value.constant is None for row in rows for value in row):
            refuse("VALUES other than constants are not verified for Spark SQL")
        kinds = [self.check(common_kind(list(column))) for column in zip(*rows, strict=True)]
        selects = []
        for row in rows:
            cast = [implicit(value, kind) for value, kind in zip(row, kinds, strict=True)]
            listed = ", ".join(f"{value.sql} AS c{at}" for at, value in enumerate(cast))
            selects.append(f"SELECT {listed}")
        names = [f"col{at}" for at in range(len(kinds))]
        return Relation(" UNION ALL ".join(selects), tuple(zip(names, kinds, strict=True)))

    # -- SELECT

    def _select(self, node: exp.Select, outer: SparkScope | None) -> tuple[Relation, SparkScope]:
        only(node, _SELECT_PARTS, "SELECT")
        scope = SparkScope(outer=outer)
        from_sql = self.from_items(node, scope)
        windows = {w.name.lower(): w for w in node.args.get("windows") or []}
        names, values, aliases = self._projections(node, Place(scope, windows=windows))
        place = Place(scope, aliases, windows=windows)
        where = self.where(node, replace(place, alias_entry="clause alias in where"))
        group = self._group(node, values, place)
        late = replace(place, alias_entry="clause alias in having", strict=True)
        having = self._condition_of(node, "having", late)
        qualify = self._condition_of(node, "qualify", late)
        columns = [f"{value.sql} AS c{at}" for at, value in enumerate(values)]
        listed = [f"c{at}" for at in range(len(values))]
        keys, extra = self._order(node, names, values, place)
        columns += [f"{value.sql} AS o{at}" for at, value in enumerate(extra)]
        listed += [f"o{at}" for at in range(len(extra))]
        distinct = self._distinct(node, values, bool(extra))
        if qualify:
            columns.append(f"{qualify} AS q")
        sql = f"SELECT {'' if qualify else distinct}{', '.join(columns)}{from_sql}"
        sql += where + group + (f" HAVING {having}" if having else "")
        if qualify:
            sql = f"SELECT {distinct}{', '.join(listed)} FROM ({sql}) AS {self.alias()} WHERE q"
        after = self._limits(node, bool(keys))
        if keys:
            outputs = ", ".join(f"c{at}" for at in range(len(values)))
            ordered = ", ".join(keys)
            sql = f"SELECT {outputs} FROM ({sql}) AS {self.alias()} ORDER BY {ordered}{after}"
        for value in values:
            if value.kind.family == NULL:
                refuse("a column of NULLs without a type is not verified for Spark SQL")
        kinds = [value.kind for value in values]
        return Relation(sql, tuple(zip(names, kinds, strict=True))), scope

    def _projections(
        self, node: exp.Select, place: Place
    ) -> tuple[list[str | None], list[Value], dict[str, Value]]:
        names: list[str | None] = []
        values: list[Value] = []
        aliases: dict[str, Value] = {}
        for item in node.expressions:
            star = item.this if isinstance(item, exp.Column) else item
            if isinstance(star, exp.Star):
                for field in self._star(item, star, place.scope):
                    replaced = _replaced(star, field)
                    self.read(field)
                    names.append(field.name)
                    found = self.value(replaced, place) if replaced is not None else field.value()
                    values.append(found)
                    self.check(found.kind)
                continue
            name = item.alias if isinstance(item, exp.Alias) else None
            inner = item.this if isinstance(item, exp.Alias) else item
            value = self.value(inner, replace(place, aliases=dict(aliases)))
            if name:
                if name.lower() in aliases:
                    refuse(f'the alias "{name}" stands twice')
                aliases[name.lower()] = value
            elif isinstance(inner, exp.Column):
                name = inner.name
            names.append(name or None)
            values.append(value)
        return names, values, aliases

    def _star(self, item: exp.Expr, star: exp.Star, scope: SparkScope) -> list[Field]:
        only(star, {"except_", "replace"}, "*")
        self.use("clause star")
        source = None
        if isinstance(item, exp.Column):
            found = [s for s in scope.sources if s.alias.lower() == item.table.lower()]
            if len(found) != 1:
                refuse(f'table "{item.table}" is not one of FROM')
            (source,) = found
            if any((f.name or "").lower() in scope.merged for f in source.fields):
                refuse("t.* of tables joined by USING is not verified for Spark SQL")
        if star.args.get("replace"):
            self.use("clause replace")
        left_out = set()
        for given in star.args.get("except_") or []:
            self.use("clause exclude")
            left_out.add(given.name.lower())
        return [f for f in scope.star(source) if (f.name or "").lower() not in left_out]

    def _distinct(self, node: exp.Select, values: list[Value], has_extra: bool) -> str:
        distinct = node.args.get("distinct")
        if distinct is None:
            return ""
        if distinct.args.get("on") or has_extra:
            refuse("DISTINCT ON, or by columns that are not shown, is not verified for Spark SQL")
        self.use("clause distinct")
        for value in values:
            self.use(f"group {value.kind.family}")
        return "DISTINCT "

    def _group(self, node: exp.Select, values: list[Value], place: Place) -> str:
        group = node.args.get("group")
        if group is None:
            return ""
        only(group, {"expressions", "all"}, "GROUP BY")
        if group.args.get("all"):
            self.use("clause group by all")
            keys = [
                value
                for item, value in zip(node.expressions, values, strict=False)
                if not item.find(*AGGREGATE_NODES)
            ]
            if len(node.expressions) != len(values):
                refuse("GROUP BY ALL with * is not verified for Spark SQL")
        else:
            grouped = replace(place, alias_entry="clause alias in group by")
            keys = [self._group_key(key, values, grouped) for key in group.expressions]
        self.use("clause group by")
        listed = ", ".join(dict.fromkeys(self.grouped(key) for key in keys))
        return f" GROUP BY {listed}" if listed else ""

    def _group_key(self, node: exp.Expr, values: list[Value], place: Place) -> Value:
        if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
            self.use("clause group by position")
            if not 1 <= int(node.this) <= len(values):
                refuse("a position that is no column")
            return values[int(node.this) - 1]
        return self.value(node, place)

    def _condition_of(self, node: exp.Select, clause: str, place: Place) -> str:
        part = node.args.get(clause)
        if part is None:
            return ""
        self.use(f"clause {clause}")
        return self.condition(part.this, place).sql

    def _order(
        self, node: exp.Select, names: list[str | None], values: list[Value], place: Place
    ) -> tuple[list[str], list[Value]]:
        """The sort keys as columns of the layer below, and the ones that it must show for them."""
        order = node.args.get("order")
        keys: list[str] = []
        extra: list[Value] = []
        fields = [
            Field(n, f"c{at}", v.kind) for at, (n, v) in enumerate(zip(names, values, strict=True))
        ]
        for ordered in order.expressions if order is not None else []:
            self.use("clause order by")
            inner = ordered.this
            if isinstance(inner, exp.Var) and inner.name.upper() == "ALL":
                self.use("clause order by all")
                keys += [self.sorted(field.value(), ordered) for field in fields]
                continue
            at = self._position(inner, fields)
            if at is None:
                at = _output(inner, place, fields)
            if at is not None:
                keys.append(self.sorted(fields[at].value(), ordered))
                continue
            value = self.value(inner, replace(place, strict=True))
            if value.constant is not None:
                refuse("an order by a constant is not verified for Spark SQL")
            keys.append(self.sorted(replace(value, sql=f"o{len(extra)}"), ordered))
            extra.append(value)
        return keys, extra


# -- small questions about nodes


def _replaced(star: exp.Star, field: Field) -> exp.Expr | None:
    for item in star.args.get("replace") or []:
        if field.is_named(item.alias) and isinstance(item.this, exp.Expr):
            return item.this
    return None


def _output(node: exp.Expr, place: Place, fields: list[Field]) -> int | None:
    """The output column that an ORDER BY names: an alias, or a column that is shown."""
    if not isinstance(node, exp.Column) or node.table:
        return None
    found = [at for at, field in enumerate(fields) if field.is_named(node.name)]
    if len(found) > 1:
        refuse(f'"{node.name}" in ORDER BY stands for several columns')
    return found[0] if found else None
