"""EXPLAIN: the plan that runs, as lines a person reads."""

from __future__ import annotations

from tidemill.clock import from_us
from tidemill.federation.planner import HOT, SYSTEM
from tidemill.federation.runner import Filled, Selected
from tidemill.hot.values import Range
from tidemill.hot.view import Wanted


def explain_lines(filled: Filled) -> list[str]:
    """The scans with what their indices selected, then the SQL that DuckDB runs."""
    lines = [f"route: {filled.route}"]
    for selected in filled.selected:
        lines += _scan_lines(selected)
    if not filled.selected:
        lines.append("no scan of a streaming or system table")
    lines += [f"sql: {filled.plan.sql}"]
    return lines


def _scan_lines(selected: Selected) -> list[str]:
    scan = selected.scan
    alias = f" as {scan.alias}" if scan.alias.lower() != scan.name.lower() else ""
    if scan.kind == SYSTEM:
        return [f"scan tidemill.{scan.name}{alias}: {selected.table.num_rows} rows"]
    if scan.kind != HOT or selected.selection is None or selected.wanted is None:
        return [f"scan {scan.name}{alias}: {selected.table.num_rows} rows set aside"]
    found, wanted = selected.selection, selected.wanted
    lines = [f"scan {scan.name}{alias} ({scan.source})"]
    if wanted.low_us is not None or wanted.high_us is not None:
        lines.append(
            f"  interval index: {_span(wanted)} -> {found.blocks_in_span} of {found.blocks} blocks"
        )
    if wanted.newest is not None:
        lines.append(f"  newest {wanted.newest} rows of the span suffice")
    if found.index is not None:
        conditions = " and ".join(f"{c.column} {_ranges(c.ranges)}" for c in wanted.conditions)
        lines.append(f"  value index {found.index}: {conditions}")
    if found.index is None and found.rows_read == found.rows and found.rows:
        lines.append("  no index helps: every row is read")
    lines.append(
        f"  blocks: {found.blocks_read} of {found.blocks} read; "
        f"rows: {found.rows_read} of {found.rows} selected"
    )
    return lines


def _span(wanted: Wanted) -> str:
    low = "…" if wanted.low_us is None else str(from_us(wanted.low_us))
    high = "…" if wanted.high_us is None else str(from_us(wanted.high_us))
    return f"[{low}, {high}]"


def _ranges(ranges: tuple[Range, ...]) -> str:
    if all(r.low is not None and r.low == r.high for r in ranges):
        shown = [repr(r.low) for r in ranges[:5]] + (["…"] if len(ranges) > 5 else [])
        return f"= {shown[0]}" if len(ranges) == 1 else f"in ({', '.join(shown)})"
    r = ranges[0]
    parts = []
    if r.low is not None:
        parts.append(f"{'>=' if r.low_included else '>'} {r.low!r}")
    if r.high is not None:
        parts.append(f"{'<=' if r.high_included else '<'} {r.high!r}")
    return " and ".join(parts)
