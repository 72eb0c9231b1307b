"""Names in trees: table nodes to the names the catalog knows and back, and places."""

from __future__ import annotations

from sqlglot import exp

from tidemill.errors import Position

SYSTEM_SCHEMA = "tidemill"
INFORMATION_SCHEMA = "information_schema"


def table_node(name: str) -> exp.Table:
    """The node of a table by its catalog name (``tidemill.tables`` has a schema)."""
    schema, dot, rest = name.partition(".")
    if dot and schema == SYSTEM_SCHEMA:
        return exp.Table(
            this=exp.to_identifier(rest, quoted=True), db=exp.to_identifier(schema, quoted=True)
        )
    return exp.Table(this=exp.to_identifier(name, quoted=True))


def table_name_of(node: exp.Table) -> str | None:
    """The catalog name of a node: ``main.t`` is ``t``; None for functions and other schemas."""
    if not isinstance(node.this, exp.Identifier) or node.args.get("catalog") is not None:
        return None
    schema = node.text("db").lower()
    if schema in ("", "main"):
        return str(node.this.this)
    if schema in (SYSTEM_SCHEMA, INFORMATION_SCHEMA):
        return f"{schema}.{node.this.this.lower()}"
    return None


def position_of(node: exp.Expr) -> Position | None:
    """Where a node stands in the text, if it or a part of it remembers."""
    for part in node.walk(bfs=False):
        meta = part.meta if part._meta else {}
        if "line" in meta:
            length = int(meta["end"]) - int(meta["start"])
            return Position(int(meta["line"]), max(int(meta["col"]) - length, 1), part.name[:60])
    return None
