"""FROM: tables, WITH names, derived tables and joins, each under an alias of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlglot import exp

from tidemill.sql.spark.aggregates import Aggregates
from tidemill.sql.spark.expressions import Relation
from tidemill.sql.spark.kinds import kind_of
from tidemill.sql.spark.literals import name_literal
from tidemill.sql.spark.scopes import Field, Place, SparkFromItem, SparkScope
from tidemill.sql.spark.values import refuse, what

ColumnsOf = Callable[[exp.Table], Mapping[str, object] | None]


def view_name(node: exp.Table) -> str:
    """The name of the Spark view that stands for a table of the tree."""
    parts = [node.text(part) for part in ("catalog", "db")]
    return "_".join(part.lower() for part in [*parts, node.name] if part)


def only(node: exp.Expr, parts: frozenset[str] | set[str], name: str) -> None:
    for key, given in node.args.items():
        if given and key not in parts:
            refuse(f"{name} with {key.rstrip('_')} is not verified for Spark SQL")


class Sources(Aggregates):
    """Translates what a SELECT reads from."""

    def __init__(self, columns_of: ColumnsOf) -> None:
        super().__init__()
        self.columns_of = columns_of
        self.tables: dict[str, dict[str, str]] = {}
        self.base_nodes: list[exp.Table] = []
        self.visible: list[dict[str, Relation]] = []
        self._numbers = itertools.count()

    def alias(self, letter: str = "t") -> str:
        """A name that nothing else in the Spark query has."""
        return f"{letter}{next(self._numbers)}"

    def from_items(self, node: exp.Select, scope: SparkScope) -> str:
        from_ = node.args.get("from_")
        if from_ is None:
            return ""
        sql, source = self._item(from_.this)
        scope.sources.append(source)
        has_comma = False
        for join in node.args.get("joins") or []:
            only(join, {"this", "side", "kind", "on", "using"}, "JOIN")
            word = _join_word(join)
            item, source = self._item(join.this)
            if word == "cross" and not join.kind:
                has_comma = True
            elif has_comma and word in ("right", "full"):
                refuse("a RIGHT or FULL JOIN after a comma is not verified for Spark SQL")
            self.use(f"join {word}")
            sql += self._join(join, word, item, source, scope)
        return f" FROM {sql}"

    def _join(
        self, join: exp.Join, word: str, item: str, source: SparkFromItem, scope: SparkScope
    ) -> str:
        named = {"semi": "LEFT SEMI", "anti": "LEFT ANTI"}.get(word, word.upper())
        if word == "cross":
            scope.sources.append(source)
            return f" CROSS JOIN {item}"
        using = join.args.get("using") or []
        if using:
            self.use("join using")
            condition = self._using(using, word, source, scope)
        scope.sources.append(source)
        if not using:
            condition = self.condition(join.args["on"], Place(scope, queries=False)).sql
        if word in ("semi", "anti"):
            scope.sources.remove(source)
        return f" {named} JOIN {item} ON {condition}"

    def _using(
        self, names: list[exp.Expr], word: str, source: SparkFromItem, scope: SparkScope
    ) -> str:
        parts = []
        for name in names:
            left = scope.find(exp.column(exp.to_identifier(name.name)))
            right = source.find(name.name)
            if left is None or right is None:
                refuse(f'USING column "{name.name}" is not found')
            self.read(left)
            self.read(right)
            one, two = left.value(), right.value()
            if one.kind != two.kind:
                refuse("USING columns of two types are not verified for Spark SQL")
            parts.append(self.compared("=", one, two).sql)
            if word in ("semi", "anti"):
                continue
            shown = {"right": two.sql, "full": f"coalesce({one.sql}, {two.sql})"}.get(word, one.sql)
            origins = left.origins + right.origins
            scope.merged[name.name.lower()] = Field(left.name, shown, one.kind, origins=origins)
        return " AND ".join(parts)

    def _item(self, node: exp.Expr) -> tuple[str, SparkFromItem]:
        """A FROM item's SQL under an alias of its own, and what it shows."""
        alias = self.alias()
        if isinstance(node, exp.Subquery | exp.Values):
            self.use("clause derived table")
            tail = node.args.get("alias")
            inner, _ = self.relation(_bare(node), None)
            return f"({inner.sql}) AS {alias}", _source(node, tail, fields_of(alias, inner))
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            refuse(f"{what(node)} in FROM is not verified for Spark SQL")
        only(node, {"this", "db", "catalog", "alias"}, "a table")
        cte = self._find_with(node)
        if cte is not None:
            source = _source(node, node.args.get("alias"), fields_of(alias, cte))
            return f"{cte.sql} AS {alias}", source
        return self._table(node, alias)

    def _find_with(self, node: exp.Table) -> Relation | None:
        if node.args.get("db") is not None:
            return None
        for defined in reversed(self.visible):
            if node.name.lower() in defined:
                return defined[node.name.lower()]
        return None

    def _table(self, node: exp.Table, alias: str) -> tuple[str, SparkFromItem]:
        columns = self.columns_of(node)
        if columns is None:
            refuse(f'table "{node.name}" cannot be read by Spark SQL')
        view = view_name(node)
        typed = {name: str(kind) for name, kind in columns.items()}
        if self.tables.setdefault(view, typed) != typed:
            refuse(f'two tables would be named "{view}"')
        self.base_nodes.append(node)
        self.reads.setdefault(view, {})
        fields = [
            Field(name, f"{alias}.{name_literal(name)}", kind_of(kind), kind, ((view, name),))
            for name, kind in typed.items()
        ]
        return f"{name_literal(view)} AS {alias}", _source(node, node.args.get("alias"), fields)


def _bare(node: exp.Expr) -> exp.Expr:
    bare = node.copy()
    bare.set("alias", None)
    return bare


def fields_of(alias: str, relation: Relation) -> list[Field]:
    return [
        Field(name, f"{alias}.c{at}", kind, kind.name)
        for at, (name, kind) in enumerate(relation.columns)
    ]


def _source(node: exp.Expr, alias: exp.Expr | None, fields: list[Field]) -> SparkFromItem:
    names = renamed(alias, [field.name for field in fields])
    named = [replace(field, name=name) for field, name in zip(fields, names, strict=True)]
    return SparkFromItem(node.alias_or_name or f"unnamed {id(node)}", named)


def renamed(alias: exp.Expr | None, names: list[str | None]) -> list[str | None]:
    given = [column.name for column in alias.args.get("columns") or []] if alias else []
    if len(given) > len(names):
        refuse("more column names than columns")
    return [*given, *names[len(given) :]]


def _join_word(join: exp.Join) -> str:
    side, kind = join.side.lower(), join.kind.lower()
    if not join.args.get("on") and not join.args.get("using"):
        if side or kind not in ("", "cross"):
            refuse(f"JOIN {side} {kind} without a condition is not verified for Spark SQL")
        return "cross"
    if kind in ("semi", "anti") and not side:
        return kind
    if kind not in ("", "inner", "outer"):
        refuse(f"{kind.upper()} JOIN is not verified for Spark SQL")
    return side or "inner"
