"""Views over views: the query of a view takes the place of its name, before anything is split.

A definition sees tables, never the WITH queries of the query that it is put into. Where one of
those has the name of a table that the definition reads, it is given another name.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from tidemill.sql.names import table_name_of
from tidemill.sql.scopes import find_with_query, readers, with_query

_KEPT = ("joins", "pivots", "sample", "laterals")


def expand_views(
    query: exp.Expression, definition_of: Callable[[str], exp.Expression | None]
) -> exp.Expression:
    """The query with every view's definition as a subquery; the tree given stays as it is.

    A view can only read what existed before it, so definitions end; they may read views again.
    """
    tree = query.copy()
    for node in list(tree.find_all(exp.Table)):
        name = _free_name(node)
        definition = definition_of(name) if name is not None else None
        if name is None or definition is None:
            continue
        inner = expand_views(definition, definition_of)
        _free_names_of(inner, node)
        made = _subquery(node, inner, name)
        if node is tree:
            return made
        node.replace(made)
    return tree


def _free_name(node: exp.Table) -> str | None:
    """The catalog name of a table, unless a WITH query is meant."""
    return table_name_of(node) if with_query(node) is None else None


def _subquery(node: exp.Table, inner: exp.Expression, name: str) -> exp.Subquery:
    alias = node.args.get("alias") or exp.TableAlias()
    if alias.this is None:
        alias.set("this", exp.to_identifier(name, quoted=True))
    kept = {key: node.args[key] for key in _KEPT if node.args.get(key)}
    while isinstance(inner, exp.Subquery) and not any(
        value for key, value in inner.args.items() if key != "this"
    ):
        inner = inner.this
    return exp.Subquery(this=inner, alias=alias, **kept)


def _free_names_of(inner: exp.Expression, node: exp.Table) -> None:
    """Rename the WITH queries in sight of ``node`` that would catch a name of ``inner``."""
    names = {name.lower() for table in inner.find_all(exp.Table) if (name := _free_name(table))}
    names |= {
        argument.name.lower()
        for table in inner.find_all(exp.Table)
        if isinstance(table.this, exp.Anonymous)
        for argument in table.this.find_all(exp.Column)
    }
    for name in sorted(names):
        while (cte := find_with_query(node, name)) is not None:
            _rename(cte, name, node.root())


def _rename(cte: exp.CTE, name: str, root: exp.Expr) -> None:
    taken = {str(found.this).lower() for found in root.find_all(exp.Identifier)}
    fresh = f"{name}_"
    while fresh in taken:
        fresh += "_"
    for table in readers(root, cte):
        if not table.alias:
            alias = table.args.get("alias") or exp.TableAlias()
            alias.set("this", table.this.copy())
            table.set("alias", alias)
        table.set("this", exp.to_identifier(fresh, quoted=True))
    alias = cte.args["alias"]
    alias.set("this", exp.to_identifier(fresh, quoted=True))
