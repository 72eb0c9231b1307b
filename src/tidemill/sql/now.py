"""now() as a parameter: one statement has one now, whoever asks it: DuckDB, windows or indices.

Every spelling of now() in a tree becomes a cast of the named parameter ``NOW``, which is filled
when the statement runs.
"""

from __future__ import annotations

from sqlglot import exp

NOW = "tidemill_now"
KINDS = (exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp, exp.Anonymous)
"""The kinds of nodes that may be a now()."""
_NAMES = ("now", "get_current_timestamp", "transaction_timestamp", "current_localtimestamp")


def bind_now(tree: exp.Expression) -> bool:
    """Put the parameter in place of every now(); answers whether there was any."""
    found = False
    for node in list(tree.walk()):
        kind = _kind(node)
        if kind is None:
            continue
        found = True
        moment: exp.Expression = exp.cast(exp.Placeholder(this=NOW), "TIMESTAMPTZ")
        node.replace(moment if kind == "TIMESTAMPTZ" else exp.cast(moment, kind))
    return found


def is_now(node: exp.Expr) -> bool:
    """Whether a node is a spelling of now() that has the time of day."""
    return _kind(node) in ("TIMESTAMPTZ", "TIMESTAMP")


def _kind(node: exp.Expr) -> str | None:
    """The type of a spelling of now(); None for everything else."""
    if isinstance(node, exp.CurrentTimestamp):
        return "TIMESTAMPTZ"
    if isinstance(node, exp.CurrentDate):
        return "DATE"
    if isinstance(node, exp.Localtimestamp):
        return "TIMESTAMP"
    if isinstance(node, exp.Anonymous) and node.name.lower() in _NAMES:
        return "TIMESTAMP" if "local" in node.name.lower() else "TIMESTAMPTZ"
    return None
