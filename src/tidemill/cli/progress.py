"""Progress: bars for the jobs that a statement waits for.

A statement that takes longer than a moment is watched: twice a second the shell asks the warehouse
for the jobs that run and draws a bar for each. The bars vanish with the statement.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

PATIENCE_S = 0.5
STARTING = "Spark is starting"
LOOK_EVERY_S = 0.2
JOBS = """\
SELECT job_id, kind, table_name, state, tasks, tasks_done, rows, detail
FROM tidemill.jobs WHERE state IN ('queued', 'running') ORDER BY planned_at LIMIT 8"""

Ask = Callable[[str], Any]


def watch(future: Future[Any], ask: Ask, out: TextIO) -> None:
    """Wait for a statement, and show the jobs that run meanwhile."""
    if wait([future], PATIENCE_S).done:
        return
    console = Console(file=out)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        known: dict[str, TaskID] = {}
        while not wait([future], LOOK_EVERY_S).done:
            _draw(bars, known, ask(JOBS).fetchall())


def _draw(bars: Progress, known: dict[str, TaskID], jobs: list[tuple[Any, ...]]) -> None:
    running = {str(job[0]) for job in jobs}
    for job_id in set(known) - running:
        bars.remove_task(known.pop(job_id))
    for job_id, kind, table, state, tasks, done, rows, detail in jobs:
        if job_id not in known:
            known[job_id] = bars.add_task(f"{kind} {table}", total=None, note="")
        is_starting = detail == STARTING
        note = f"{done} of {tasks} tasks, {rows:,} rows" if tasks else state
        total = None if is_starting else tasks or None
        bars.update(
            known[job_id], total=total, completed=done, note=detail if is_starting else note
        )
