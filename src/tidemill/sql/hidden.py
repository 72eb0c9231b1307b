"""The hidden column: ``_seq`` can be asked for by name and is in no star.

A scan that must give ``_seq`` would show it in ``*`` and ``t.*`` as well, so those stars leave it
out again.
"""

from __future__ import annotations

from sqlglot import exp

from tidemill.sql.calls import SEQ


def hide_seq(node: exp.Table) -> None:
    """Leave ``_seq`` of one table out of the stars of the SELECT that reads it."""
    select = node.find_ancestor(exp.Select)
    if select is None:
        return
    alias = node.alias_or_name.lower()
    for part in select.expressions:
        is_own = isinstance(part, exp.Column) and part.table.lower() == alias
        if isinstance(part, exp.Star):
            _leave_out(part, node.alias_or_name)
        elif is_own and isinstance(part.this, exp.Star):
            _leave_out(part.this, None)


def _leave_out(star: exp.Star, table: str | None) -> None:
    hidden = exp.column(SEQ, table=table, quoted=True) if table else exp.to_identifier(SEQ)
    star.set("except_", [*(star.args.get("except_") or []), hidden])
