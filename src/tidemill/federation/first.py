"""What a query reads first: keys for the indices of the streams that it reads afterwards.

- ``column IN (SELECT …)`` on an indexed column: the query is cut out of the tree and leaves a table
  of keys in its place;
- ``stream.column = other.column`` with a small source (``sql.partners``): its rows may be read
  first and take its place. Whether they do is decided when the plan runs (``driving``), by how many
  rows of the stream are at stake and how many the small source turns out to have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from sqlglot import exp

from tidemill.catalog.model import Snapshot, Table
from tidemill.federation.plan import JoinedKey, KeyQuery, Partner, Plan
from tidemill.federation.scans import PARTNER_ROWS_MAX
from tidemill.sql.calls import Tables
from tidemill.sql.names import table_name_of
from tidemill.sql.partners import mark_partner, may_have_partners, partner_query
from tidemill.sql.predicates import Join, ScanRequest

PlanOf = Callable[[exp.Expression], Plan]
"""Plans a query that stands by itself."""


def take_key_queries(
    tree: exp.Expression, requests: Iterable[ScanRequest], snapshot: Snapshot, plan_of: PlanOf
) -> list[KeyQuery]:
    """Cut queries for indexed keys out of the tree; each leaves a table of keys in its place."""
    found: dict[int, KeyQuery] = {}
    prefix = ""
    for request in requests:
        indexed = _indexed(snapshot.get(request.table))
        for conjunct in request.leaves:
            query = conjunct.values[0]
            if conjunct.op != "in_query" or conjunct.column not in indexed:
                continue
            if id(query) not in found and query.parent is not None:
                prefix = prefix or free_prefix(tree, "tm_keys_")
                source = f"{prefix}{len(found)}"
                plan = plan_of(query)
                query.replace(exp.select("*").from_(exp.to_table(source)))
                found[id(query)] = KeyQuery(source, query, plan)
    return list(found.values())


def _indexed(table: Table) -> set[str]:
    return {name for index in table.indexes for name in index.columns}


def find_partners(
    tree: exp.Expression,
    requests: Iterable[ScanRequest],
    names_of: Mapping[int, str],
    snapshot: Snapshot,
    find: Tables,
    plan_of: PlanOf,
) -> list[Partner]:
    """The sources that may be read before the scans that are joined with them; ``names_of`` says
    under which name each node is scanned."""
    if not may_have_partners(tree):
        return []
    joins: dict[int, list[tuple[str, Join]]] = {}
    for request in requests:
        indexed = _indexed(snapshot.get(request.table))
        for join in request.joins:
            if join.column in indexed and join.partner.root() is tree:
                joins.setdefault(id(join.partner), []).append((names_of[id(request.node)], join))
    prefix = free_prefix(tree, "tm_rows_") if joins else ""
    partners: list[Partner] = []
    for found in joins.values():
        partner, conditions = found[0][1].partner, found[0][1].conditions
        query = partner_query(partner, conditions, PARTNER_ROWS_MAX, tree, find)
        if query is None or _reads_again(tree, query, snapshot):
            continue
        source = f"{prefix}{len(partners)}"
        mark_partner(partner, source)
        lookups = dict.fromkeys(JoinedKey(scan, join.column, join.key) for scan, join in found)
        partners.append(Partner(source, partner.alias_or_name, plan_of(query), tuple(lookups)))
    return partners


def _reads_again(tree: exp.Expression, query: exp.Select, snapshot: Snapshot) -> bool:
    """Whether the statement also reads a reference table of the query elsewhere: it would see two
    moments of it."""

    def names(found: exp.Expr) -> Counter[str]:
        tables = (snapshot.find(table_name_of(node) or "") for node in found.find_all(exp.Table))
        return Counter(table.name for table in tables if table is not None and table.is_reference)

    everywhere = names(tree)
    return any(everywhere[name] > count for name, count in names(query).items())


def free_prefix(tree: exp.Expression, prefix: str) -> str:
    """How the names of scans begin: as no name in the query does."""
    names = {str(node.this).lower() for node in tree.find_all(exp.Identifier)}
    while any(prefix in name for name in names):
        prefix += "_"
    return prefix
