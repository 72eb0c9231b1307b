"""Joins that drive an index: a small table is read first, then its keys are looked up.

``SELECT … FROM reports p JOIN involved i ON p.vid = i.vid`` reads the few rows of ``involved``,
then the rows of ``reports`` that the index on ``vid`` has for their keys, and joins these. A plan
names the tables that could be read first (``first``); here it is decided whether they are:

1. if the stream has few rows to read anyway, nothing is gained;
2. if the table has more than a number of rows, its keys are cheaper to scan for than to look up;
3. if its keys do not compare with the stream's column as the index compares, they are of no use.

Otherwise the rows that were read stand in the query in the table's place, so that the keys and the
join are of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tidemill.federation.plan import JoinedKey, Partner, Plan, Scan
from tidemill.federation.scans import PARTNER_ROWS_MAX, Asked
from tidemill.federation.template import Template
from tidemill.sql.params import placeholders
from tidemill.sql.partners import put_partners

STAKE_ROWS_MIN = 30_000  # of a stream; to read fewer is cheaper than to ask for keys first


@dataclass(frozen=True)
class JoinRead:
    """A table that could be read before the streams it is joined with, how many rows it gave, and
    why its keys were not looked up, if they were not: EXPLAIN prints this."""

    alias: str
    lookups: tuple[JoinedKey, ...]
    rows: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Driven:
    """A plan, what is asked of its scans besides, and the rows that were read first."""

    plan: Plan
    asked: Mapping[str, Sequence[Asked]] = field(default_factory=dict)
    sources: Mapping[str, pa.Table] = field(default_factory=dict)
    joins: tuple[JoinRead, ...] = ()


def drive(
    plan: Plan,
    rows_at_stake: Callable[[Scan], int],
    read: Callable[[Partner], pa.Table],
) -> Driven:
    """Read what is worth reading before the streams of a plan."""
    if not plan.partners:
        return Driven(plan)
    scans = {scan.source: scan for scan in plan.scans}
    stakes = {
        source: rows_at_stake(scans[source])
        for source in {each.scan for partner in plan.partners for each in partner.lookups}
    }
    asked: dict[str, list[Asked]] = {}
    sources: dict[str, pa.Table] = {}
    joins: list[JoinRead] = []
    for partner in plan.partners:
        told = JoinRead(partner.alias, partner.lookups)
        if max(stakes[each.scan] for each in partner.lookups) < STAKE_ROWS_MIN:
            joins.append(replace(told, reason="few rows are left to read anyway"))
            continue
        rows = read(partner)
        found = _keys_of(partner, rows, scans)
        if isinstance(found, str):
            joins.append(replace(told, rows=rows.num_rows, reason=found))
            continue
        sources[partner.source] = rows
        joins.append(replace(told, rows=rows.num_rows))
        for scan, one in found:
            asked.setdefault(scan, []).append(one)
    return Driven(driven_plan(plan, frozenset(sources)), asked, sources, tuple(joins))


@lru_cache(maxsize=512)
def driven_plan(plan: Plan, names: frozenset[str]) -> Plan:
    """A plan in which the rows of some partners take their places."""
    if not names:
        return plan
    tree = put_partners(plan.tree, names)
    used = frozenset(placeholders(tree))
    left = {node.name for node in tree.find_all(exp.Table)}
    scans = tuple(scan for scan in plan.scans if scan.source in left)
    template = Template.of(tree, {scan.source for scan in scans})
    return replace(plan, template=template, tree=tree, scans=scans, used=used)


@lru_cache(maxsize=512)
def without_partners(plan: Plan) -> Plan:
    """The same plan, which reads nothing before its streams but what it cannot do without."""
    return replace(plan, partners=()) if plan.partners else plan


def _keys_of(
    partner: Partner, rows: pa.Table, scans: Mapping[str, Scan]
) -> list[tuple[str, Asked]] | str:
    """What a partner's rows ask of the scans; or why they ask nothing."""
    if rows.num_rows > PARTNER_ROWS_MAX:
        return f"it has more than {PARTNER_ROWS_MAX:,} rows"
    names = [name.lower() for name in rows.column_names]
    if len(set(names)) < len(names) or any(map(pa.types.is_null, rows.schema.types)):
        return "its columns have no names or types of their own"
    found: list[tuple[str, Asked]] = []
    for lookup in partner.lookups:
        table = scans[lookup.scan].table
        column = None if table is None else table.column(lookup.column)
        if column is None or lookup.key.lower() not in names:
            continue
        values = _values(rows.column(names.index(lookup.key.lower())), column.type.arrow)
        if values is not None:
            found.append((lookup.scan, (lookup.column, "in", values)))
    return found or "its keys are of another type"


def _values(keys: pa.ChunkedArray, column: pa.DataType) -> tuple[object, ...] | None:
    """The keys, each once; None if they do not compare with a column as its index compares."""
    if not _compare_alike(keys.type, column):
        return None
    try:
        return tuple(pc.unique(keys.drop_null()).to_pylist())
    except (ValueError, OverflowError):  # times outside the years that Python knows
        return None


def _compare_alike(key: pa.DataType, column: pa.DataType) -> bool:
    """Whether a key is equal to a column's value just if they are the same value."""
    return bool(key == column or (pa.types.is_integer(key) and pa.types.is_integer(column)))
