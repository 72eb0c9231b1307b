"""Refusals: why a query cannot be maintained as rows arrive, and what to write instead."""

from __future__ import annotations

from sqlglot import exp

from tidemill.errors import UnsupportedError
from tidemill.sql.names import position_of

EVERY_ROW = "keep its rows instead: CREATE STREAMING TABLE … AS SELECT … EVERY ROW"
_ALWAYS = "query the stream itself, or group its rows first"
_IN_ORDER = "write ORDER BY inside the call: list(x ORDER BY ts)"
_HINTS = (
    ("all values of a group", "approx_quantile(x, 0.5) can be maintained"),
    ("entropy", "group by the value, count, and add up -p * log2(p) of the counts when reading"),
    ("mode takes", "group by the value, count, and take the greatest when reading"),
    ("approx_top_k", "group by the value, count, and ORDER BY … LIMIT"),
    ("window function", "group first; window functions over groups are fine"),
    ("UNION, INTERSECT", "group each side first, then combine the groups"),
    ("in an expression", "put the grouped subquery into FROM and join it"),
    ("DISTINCT ON", "QUALIFY row_number() OVER (PARTITION BY … ORDER BY …) = 1"),
    ("GROUPING SETS", "UNION ALL of one grouping for each set"),
    ("JOIN with the stream", "group the stream first, then join the groups"),
    ("as they come", _IN_ORDER),
    ("without ORDER BY", _IN_ORDER),
    ("is used", "group inside the WITH query; what is grouped may be used many times"),
    ("order of its own", "write ORDER BY beside the LIMIT"),
    ("a star", "write the columns out"),
    ("column or an alias", "write the expression out, or give the alias another name"),
    ("may belong to the query around it", "write the table's name before the column"),
)


def refusal(reason: str, hint: str | None = None, node: exp.Expr | None = None) -> UnsupportedError:
    """The error that says why; without a hint of its own, the one that fits the reason."""
    return UnsupportedError(
        "the view cannot be maintained as rows arrive",
        detail=reason,
        hint=hint or next((text for sign, text in _HINTS if sign in reason), _ALWAYS),
        position=position_of(node) if node is not None else None,
    )
