"""Hidden columns: ``_seq`` can be asked for by name and is in no star and in no whole row.

A scan that must give a hidden column would show it in ``*`` and ``t.*``, in ``COLUMNS(…)``, in the
row as one value (``SELECT t FROM t``, ``to_json(t)``) and in what a NATURAL JOIN compares. So stars
leave it out again, whole rows become structs of the user's columns, and a NATURAL JOIN names the
columns that it joins by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from tidemill.errors import UnsupportedError
from tidemill.sql.calls import Tables
from tidemill.sql.names import position_of
from tidemill.sql.scopes import Scope, source_names
from tidemill.types import SEQ

_NAMED = (exp.Alias, exp.Dot, exp.Explode, exp.Unnest)  # or several columns with names
_RIGHT_UNSEEN = ("SEMI", "ANTI")


def hide_seq(node: exp.Table, names: Sequence[str], tables: Tables) -> None:
    """Leave ``_seq`` of one table, whose own columns are ``names``, out of all that shows the
    table's columns without naming them."""
    select = node.find_ancestor(exp.Select)
    if select is None:
        return
    pack_rows(select, node.alias_or_name, names)
    name_natural_joins(select, tables)
    join = node.parent
    if not isinstance(join, exp.Join) or join.kind.upper() not in _RIGHT_UNSEEN:
        leave_out(select, node.alias_or_name, [SEQ])


def pack_rows(select: exp.Select, alias: str, names: Sequence[str]) -> None:
    """Replace the row of a source as a value by a struct of the columns it has for users."""
    rows = list(_rows(select, alias, names))
    for part in list(select.expressions):
        if not isinstance(part, _NAMED) and any(_within(row, part) for row in rows):
            keep_name(part)
    for row in list(_rows(select, alias, names)):
        fields: list[exp.Expression] = [
            exp.PropertyEQ(
                this=exp.to_identifier(name, quoted=True),
                expression=exp.column(name, table=alias, quoted=True),
            )
            for name in names
        ]
        row.replace(exp.Struct(expressions=fields))


def name_subqueries(tree: exp.Expression) -> None:
    """Give columns that hold a query, and no name, the one that they would have had: DuckDB would
    call them after what is read instead of the tables."""
    selects = list(tree.find_all(exp.Select))
    for select in selects if len(selects) > 1 else ():
        for part in list(select.expressions):
            if not isinstance(part, _NAMED) and part.find(exp.Query) is not None:
                keep_name(part)


def keep_name(part: exp.Expr) -> None:
    """Give a column that has no name the one that it would have had."""
    text = part.name if isinstance(part, exp.Column) else ""
    text = text or part.sql("duckdb", normalize_functions="lower")
    name = exp.to_identifier(text, quoted=True)
    part.replace(exp.Alias(this=part.copy(), alias=name))


def has_rows(select: exp.Select, alias: str, names: Sequence[str]) -> bool:
    """Whether the row of a source is used as a value."""
    return any(_rows(select, alias, names))


def _rows(select: exp.Select, alias: str, names: Sequence[str]) -> Iterator[exp.Column]:
    return (c for c in select.find_all(exp.Column) if _is_row(c, select, alias, names))


def _is_row(column: exp.Column, select: exp.Select, alias: str, names: Sequence[str]) -> bool:
    lower = alias.lower()
    if column.table or isinstance(column.this, exp.Star) or column.name.lower() != lower:
        return False
    if lower in {name.lower() for name in names}:
        return False
    if isinstance(column.find_ancestor(exp.Table, exp.Select), exp.Table):
        return False  # the argument of a window in FROM
    inner = column.find_ancestor(exp.Select)
    while inner is not None and inner is not select:  # a source of the same name is nearer
        if lower in source_names(inner):
            return False
        inner = inner.find_ancestor(exp.Select)
    return inner is select


def _within(node: exp.Expr, part: exp.Expr) -> bool:
    found: exp.Expr | None = node
    while found is not None and found is not part:
        found = found.parent
    return found is part


def leave_out(select: exp.Select, alias: str, hidden: Sequence[str]) -> None:
    """Leave columns of a source out of a SELECT's stars."""
    for star, is_all in list(_stars(select, alias.lower())):
        if isinstance(star, exp.Columns):
            _filter_names(star, hidden)
            continue
        names: list[exp.Expression] = [
            exp.column(name, table=alias, quoted=True)
            if is_all
            else exp.to_identifier(name, quoted=True)
            for name in hidden
        ]
        star.set("except_", [*(star.args.get("except_") or []), *names])


def _stars(select: exp.Select, alias: str) -> Iterator[tuple[exp.Expr, bool]]:
    """Stars that show the columns of a source, and whether those of the others too; COLUMNS that
    chooses them by their names."""
    for part in select.find_all(exp.Star, exp.Columns):
        if part.find_ancestor(exp.Select) is not select or isinstance(part.parent, exp.Count):
            continue
        if isinstance(part, exp.Columns):
            if part.find(exp.Star) is None:
                yield part, True
        elif not isinstance(part.parent, exp.Column):
            yield part, not isinstance(part.parent, exp.Columns)
        elif part.parent.table.lower() == alias:
            yield part, False


def _filter_names(columns: exp.Columns, hidden: Sequence[str]) -> None:
    """``COLUMNS('pattern')`` and ``COLUMNS(lambda c: …)`` that do not choose hidden columns."""
    chosen = columns.this
    name = exp.to_identifier("c")
    test: exp.Expression | None = None
    if isinstance(chosen, exp.Lambda) and len(chosen.expressions) == 1:
        name, test = chosen.expressions[0].copy(), exp.paren(chosen.this.copy())
    elif isinstance(chosen, exp.Literal) and chosen.is_string:
        test = exp.Anonymous(
            this="regexp_matches", expressions=[exp.Column(this=name.copy()), chosen.copy()]
        )
    if test is None:
        return
    for each in hidden:
        is_other = exp.NEQ(this=exp.Column(this=name.copy()), expression=exp.Literal.string(each))
        test = exp.And(this=test, expression=is_other)
    columns.set("this", exp.Lambda(this=test, expressions=[name]))


def name_natural_joins(select: exp.Select, tables: Tables) -> None:
    """Write NATURAL JOIN of known tables as JOIN … USING their own columns."""
    scope = Scope(select, tables)
    for index, source in enumerate(scope.sources):
        join = source.join
        if join is None or join.method.upper() != "NATURAL":
            continue
        before = [other.columns for other in scope.sources[:index]]
        if source.columns is None or None in before:
            raise UnsupportedError(
                "NATURAL JOIN together with _seq is not offered here",
                hint="name the columns: JOIN … USING (a, b)",
                position=position_of(join),
            )
        left = frozenset().union(*(columns for columns in before if columns is not None))
        join.set("method", None)
        shared = sorted(source.columns & left)
        if shared:
            join.set("using", [exp.to_identifier(name, quoted=True) for name in shared])
