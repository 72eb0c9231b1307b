"""``tidemill status``: what a warehouse holds, how rows arrive, what works on it, who owns it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidemill.cli.session import (
    Database,
    Session,
    add_settings_option,
    add_warehouse_option,
    open_session,
)
from tidemill.hot.ending import TORN_SUFFIX

WIDTH_WITHOUT_TERMINAL = 160

OVERVIEW = """\
SELECT t.table_name, t.kind, t.rows, t.bytes, i.rows_in, i.stored, i.late, i.rejected,
       i.watermark, epoch(i.lag) AS lag_s, i.memory_limit_bytes, i.log_bytes, i.accepts_rows,
       t.hot_rows, t.history_rows, t.history_bytes, t.partitions
FROM tidemill.tables t LEFT JOIN tidemill.ingest i ON i.table_name = t.table_name
ORDER BY t.table_name"""
JOBS = "SELECT state, count(*) FROM tidemill.jobs GROUP BY state"
RUNNING = """\
SELECT kind, table_name, state, tasks_done, tasks, rows FROM tidemill.jobs
WHERE state IN ('queued', 'running') ORDER BY planned_at LIMIT 10"""
FAILED = """\
SELECT kind, table_name, ended_at, error FROM tidemill.jobs
WHERE state = 'failed' ORDER BY ended_at DESC LIMIT 5"""
TROUBLED = """\
SELECT 'view ' || view_name, last_error FROM tidemill.views WHERE last_error IS NOT NULL
UNION ALL
SELECT 'source ' || source_name, last_error FROM tidemill.sources WHERE last_error IS NOT NULL
ORDER BY 1 LIMIT 10"""
BEHIND = "SELECT view_name, lag_rows FROM tidemill.views WHERE lag_rows > 0 ORDER BY 1 LIMIT 10"
CHANGES = """\
SELECT table_name, count(*) FROM tidemill.changes WHERE files > 0 OR state = 'new'
GROUP BY table_name ORDER BY table_name LIMIT 10"""
SPARK = "SELECT state, master, last_error FROM tidemill.spark"
STATES = ("running", "queued", "committed", "failed", "cancelled")


def configure(parser: argparse.ArgumentParser) -> None:
    add_warehouse_option(parser)
    add_settings_option(parser)


def run(options: argparse.Namespace) -> int:
    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console = Console(highlight=False, width=WIDTH_WITHOUT_TERMINAL)
    with open_session(options.warehouse, create=False, settings=options.settings) as session:
        print_status(session, console)
    return 0


def print_status(session: Session, console: Console) -> None:
    """Writes the overview of an open warehouse."""
    result = session.database.sql(OVERVIEW)
    rows = [dict(zip(result.columns, row, strict=True)) for row in result.fetchall()]
    console.print(f"[bold]warehouse[/] {session.path}")
    console.print(f"[bold]owner[/]     {describe_owner(session)}")
    for name, text in _facts(session.database, rows):
        console.print(f"[bold]{name:<9}[/] ", end="")
        console.print(text, markup=False, soft_wrap=True)
    for path in sorted((session.path / "log").glob(f"*/*{TORN_SUFFIX}")):
        console.print(f"[yellow]cut off the log, kept in[/] {path}")
    if not rows:
        console.print('no tables; "CREATE STREAMING TABLE …" in tidemill sql makes one')
        return
    console.print(build_table(rows))
    _print_troubles(session.database, console)
    for row in rows:
        if row["accepts_rows"] is False:
            console.print(f"[red]{row['table_name']} accepts no rows: its log failed[/]")


def _facts(database: Database, rows: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """What is true of the whole: sizes, the pipeline, and what is still to be done."""

    def total(name: str) -> int:
        return sum(row[name] or 0 for row in rows)

    yield "log", format_bytes(total("log_bytes"))
    size, partitions = format_bytes(total("history_bytes")), total("partitions")
    yield "history", f"{total('history_rows'):,} rows in {partitions:,} partitions, {size}"
    for state, master, failure in database.sql(SPARK).fetchall():
        is_inline = master == "inline"
        told = "none: jobs run in the owner's process" if is_inline else f"{state}, {master}"
        yield "spark", told + (f"; {failure}" if failure else "")
    counts = dict(database.sql(JOBS).fetchall())
    told = ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts.get(state))
    yield "jobs", told or "none since the owner started"
    for kind, table, state, done, tasks, moved in database.sql(RUNNING).fetchall():
        progress = f": {done} of {tasks} tasks, {moved:,} rows" if tasks else ""
        yield "", f"{state} {kind} {table}{progress}"
    yield "pending", ", ".join(_pending(database, rows)) or "nothing"


def _pending(database: Database, rows: list[dict[str, Any]]) -> Iterator[str]:
    waiting = sum(row["hot_rows"] or 0 for row in rows if row["kind"] == "streaming")
    if waiting:
        yield f"{waiting:,} rows in memory, not yet in history"
    for view, behind in database.sql(BEHIND).fetchall():
        yield f"view {view} is {behind:,} rows behind"
    for table, count in database.sql(CHANGES).fetchall():
        yield f"{count:,} updates and deletes of {table} that files lack"


def _print_troubles(database: Database, console: Console) -> None:
    for kind, table, at, error in database.sql(FAILED).fetchall():
        line = f"{kind} {table} failed at {at:%Y-%m-%d %H:%M:%S}: {error}"
        console.print(Text(line, "red"), soft_wrap=True)
    for name, error in database.sql(TROUBLED).fetchall():
        console.print(Text(f"{name}: {error}", "red"), soft_wrap=True)


def build_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("table", overflow="fold")
    table.add_column("kind")
    for name in ("rows", "history", "memory", "rows in", "stored", "late", "rejected"):
        table.add_column(name, justify="right")
    table.add_column("watermark")
    table.add_column("lag", justify="right")
    for row in rows:
        table.add_row(
            Text(row["table_name"], "bold"),
            row["kind"],
            _count(row["rows"]),
            _count(row["history_rows"]),
            _memory(row),
            _count(row["rows_in"]),
            _count(row["stored"]),
            _count(row["late"], "yellow"),
            _count(row["rejected"], "red"),
            "" if row["watermark"] is None else f"{row['watermark']:%Y-%m-%d %H:%M:%S}",
            format_lag(row["lag_s"]),
        )
    return table


def describe_owner(session: Session) -> str:
    """Who has the warehouse open."""
    owner = session.owner
    if owner is None:
        return "nobody else"
    return (
        f"process {owner.get('pid')} of {owner.get('user')} since {owner.get('started_at')}: "
        f"{owner.get('command')}"
    )


def format_bytes(count: int) -> str:
    """A size as people say it.

    >>> format_bytes(0), format_bytes(1_500), format_bytes(2_340_000_000)
    ('0 B', '1.5 kB', '2.3 GB')
    """
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:.1f} TB"


def format_lag(seconds: float | None) -> str:
    """A lag in the unit that fits; a world ahead of the clock has a negative one.

    >>> format_lag(90), format_lag(-5), format_lag(None)
    ('1.5 min', '-5.0 s', '')
    """
    if seconds is None:
        return ""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if abs(seconds) >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def _count(number: int | None, style: str = "") -> Text:
    return Text("" if number is None else f"{number:,}", style if number else "")


def _memory(row: dict[str, Any]) -> str:
    if row["bytes"] is None:
        return ""
    limit = row["memory_limit_bytes"]
    share = f" ({100 * row['bytes'] / limit:.0f}%)" if limit else ""
    return format_bytes(row["bytes"]) + share
