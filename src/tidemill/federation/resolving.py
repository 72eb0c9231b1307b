"""What the name of a table means: a scan, a reference table, or a file that DuckDB finds itself.

``passes`` first finds out (``resolve``), for the whole query, and then puts the names that DuckDB
will look up in the place of the query's own (``put_name``, ``put_reference``). Aliases stay, so
that columns are called as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlglot import exp

from tidemill.catalog.checks import shorten
from tidemill.catalog.model import Snapshot, Table
from tidemill.errors import UnknownNameError, UnsupportedError, did_you_mean
from tidemill.federation import system
from tidemill.federation.duck import REFERENCE
from tidemill.federation.plan import FRAME, HOT, LATE, REJECTED, SYSTEM, VIEW, Frames, Scan
from tidemill.federation.references import physical_name
from tidemill.hot.side import LATE_SUFFIX, REJECTED_SUFFIX
from tidemill.sql.names import position_of


@dataclass(frozen=True, eq=False)
class TableNode:
    """A table of a query, and the name that its scan has if it becomes one."""

    node: exp.Table
    name: str
    source: str


@dataclass(frozen=True, eq=False)
class Resolved:
    """What a table of a query is. Neither a scan nor a reference table: DuckDB finds it."""

    node: exp.Table
    scan: Scan | None = None
    reference: Table | None = None


def resolve(found: TableNode, snapshot: Snapshot, frames: Frames) -> Resolved:
    """What a name means; an error with the nearest known name if it means nothing."""
    table = snapshot.find(found.name)
    if table is not None and table.is_reference:
        return Resolved(found.node, reference=table)
    scan = _scan_of(found, table, snapshot, frames)
    if scan is None and not is_file(found.name):
        raise _unknown(found, snapshot)
    return Resolved(found.node, scan)


def _scan_of(
    found: TableNode, table: Table | None, snapshot: Snapshot, frames: Frames
) -> Scan | None:
    source, name, alias = found.source, found.name, found.node.alias_or_name
    lower = name.lower()
    if table is not None and table.is_view:
        return Scan(source, VIEW, table.name, alias, table)
    if table is not None and table.is_streaming:
        return Scan(source, HOT, table.name, alias, table)
    if lower in system.NAMES:
        return Scan(source, SYSTEM, lower.partition(".")[2], alias)
    if lower in system.INFORMATION_NAMES:
        return Scan(source, SYSTEM, lower, alias)
    if lower.endswith((LATE_SUFFIX, REJECTED_SUFFIX)):
        owner = snapshot.find(name.rpartition("$")[0])
        if owner is not None and not owner.is_streaming:
            raise _unknown(found, snapshot)
        if owner is not None:
            kind = LATE if lower.endswith(LATE_SUFFIX) else REJECTED
            return Scan(source, kind, name, alias, owner)
    return Scan(source, FRAME, name, alias, frame=frames[name]) if name in frames else None


def is_file(name: str) -> bool:
    """DuckDB reads FROM 'file.parquet'; such a name has an ending and a file behind it."""
    return "." in name and (any(sign in name for sign in "*?[") or Path(name).exists())


def put_name(node: exp.Table, name: str) -> None:
    """Let a table be read under another name."""
    _put(node, name, None)


def put_reference(node: exp.Table, table: Table) -> None:
    """Let a reference table be read where DuckDB has its rows."""
    _put(node, physical_name(table.table_id), REFERENCE)


def _put(node: exp.Table, name: str, database: str | None) -> None:
    if not node.alias:
        node.set("alias", exp.TableAlias(this=node.this.copy()))
    node.set("this", exp.to_identifier(name, quoted=True))
    node.set("db", exp.to_identifier("main") if database else None)
    node.set("catalog", exp.to_identifier(database) if database else None)


def check_past(found: TableNode, resolved: Resolved) -> None:
    """Raise unless a table that is read as of a moment has a past."""
    if resolved.scan is None or resolved.scan.kind != HOT:
        raise UnsupportedError(
            f"{shorten(found.name)} has no past that can be read",
            hint="FOR SYSTEM_TIME AS OF reads streaming tables",
            position=position_of(found.node),
        )


def _unknown(found: TableNode, snapshot: Snapshot) -> UnknownNameError:
    known = [table.name for table in snapshot.tables.values() if not table.is_digest]
    streams = [table.name for table in snapshot.tables.values() if table.is_streaming]
    known += [s + suffix for s in streams for suffix in (LATE_SUFFIX, REJECTED_SUFFIX)]
    return UnknownNameError(
        f"table {shorten(found.name)} does not exist",
        hint=did_you_mean(found.name, [*known, *system.NAMES]) or "SHOW TABLES lists the tables",
        position=position_of(found.node),
    )
