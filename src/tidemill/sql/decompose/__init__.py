"""One query in three parts: partial, merge and final.

``decompose`` splits a query over one streamed table so that the table's rows may lie in several
places: the hot tier and history, the partitions of a Spark job, what a view has seen and what has
just arrived, a partition and its revision. See docs/design/20261115-decomposition.md.

1. **blocks** finds the query level at which rows of the stream first meet each other;
2. **grouping** (with **rules**, one for each aggregate) or **rows** splits that level in three;
3. **assemble** gives each part the WITH queries it needs, and puts the final into the query.

>>> from sqlglot import parse_one
>>> query = parse_one("SELECT k, avg(v) FROM s GROUP BY k", dialect="duckdb")
>>> parts = decompose(query, lambda table: table.name == "s")
>>> sql_of(parts.partial)
'SELECT k AS "k0", SUM(v) AS "s0", COUNT(v) AS "s1" FROM s GROUP BY 1'
>>> decompose(parse_one("SELECT median(v) FROM s"), lambda table: True)
NotDecomposable(reason='median needs all values of a group together')
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sqlglot import exp

from tidemill.sql.decompose.assemble import check_free, needed_with, put_in_place
from tidemill.sql.decompose.blocks import AGGREGATE, find_block, is_of_cte
from tidemill.sql.decompose.grouping import split_grouping
from tidemill.sql.decompose.plan import (
    MERGE_SOURCE,
    Decomposition,
    NotDecomposable,
    Refused,
    sql_of,
)
from tidemill.sql.decompose.row_blocks import split_rows

__all__ = ["MERGE_SOURCE", "Decomposition", "NotDecomposable", "decompose", "sql_of"]

_RESERVED = re.compile(rf"{MERGE_SOURCE}|tm_(item|inner|key|count|rank|[chkos]\d+)", re.IGNORECASE)
_OURS = re.compile(r"[ks]\d+", re.IGNORECASE)


def decompose(
    tree: exp.Expression,
    is_streamed: Callable[[exp.Table], bool],
    spelling: Mapping[str, str] | None = None,
    *,
    prefixes: tuple[str, str] | None = None,
    hidden: Mapping[str, exp.Expression] | None = None,
) -> Decomposition | NotDecomposable:
    """Split a query over one streamed table; the tree given stays as it is.

    ``spelling`` is how the tables write their columns, by lower-case name: DuckDB names the column
    of ``SELECT K`` as the table does.

    ``prefixes`` begin the names of keys and states; given by who has checked the query's names, as
    when the tree holds parts of a split already. ``hidden`` are expressions over the block's FROM,
    by name, that partials are kept apart by and the final does not see: what reads partials
    chooses among them, drops those columns and merges as the split without them does.
    """
    try:
        return _decompose(tree, is_streamed, spelling or {}, prefixes, hidden or {})
    except Refused as refused:
        return NotDecomposable(refused.reason)


def free_prefixes(tree: exp.Expression) -> tuple[str, str]:
    """How the names of keys and states may begin."""
    names = {str(node.this).lower() for node in tree.find_all(exp.Identifier)}
    if any(map(_RESERVED.fullmatch, names)):
        raise Refused("the query uses a name that columns of partial results have")
    return ("tm_k", "tm_s") if any(map(_OURS.fullmatch, names)) else ("k", "s")


def _decompose(
    tree: exp.Expression,
    is_streamed: Callable[[exp.Table], bool],
    spelling: Mapping[str, str],
    prefixes: tuple[str, str] | None,
    hidden: Mapping[str, exp.Expression],
) -> Decomposition:
    if not isinstance(tree, exp.Query):
        raise Refused("only queries are split")
    prefixes = prefixes or free_prefixes(tree)
    scan = _copy_at(tree, _only_scan(tree, is_streamed))
    block = find_block(scan)
    if block.kind == AGGREGATE:
        split = split_grouping(block.select, *prefixes, spelling, hidden)
    else:
        split = split_rows(block.select, block.kind, spelling, hidden)
    split.partial.set("with_", needed_with(block.select))
    check_free(block.select, split.partial)
    final = put_in_place(block.select, split.final, scan)
    marked = [table for table in split.partial.find_all(exp.Table) if _MARK in table.meta]
    if len(marked) != 1:
        raise Refused("the stream would be read more than once")
    return Decomposition(
        split.partial,
        split.merge,
        final,
        split.keys,
        split.states,
        marked[0],
        block.kind,
        split.growing,
        split.hidden,
        split.folds,
    )


_MARK = "tidemill_streamed"


def _only_scan(tree: exp.Query, is_streamed: Callable[[exp.Table], bool]) -> int:
    """The place of the streamed table among the tables of the tree."""
    found = [
        at
        for at, table in enumerate(tree.find_all(exp.Table))
        if not is_of_cte(table) and is_streamed(table)
    ]
    if not found:
        raise Refused("no streamed table is read")
    if len(found) > 1:
        raise Refused("more than one streamed table is read")
    return found[0]


def _copy_at(tree: exp.Query, at: int) -> exp.Table:
    """The same table in a copy of the tree, with a mark that copies keep."""
    copy = tree.copy()
    while isinstance(copy, exp.Subquery) and not any(
        value for name, value in copy.args.items() if name != "this"
    ):
        copy = copy.this.pop()
    scan = list(copy.find_all(exp.Table))[at]
    scan.meta[_MARK] = True
    return scan
