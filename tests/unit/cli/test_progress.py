"""Bars for jobs: that Spark is starting, and then how many tasks are done."""

from __future__ import annotations

import io

from rich.console import Console
from rich.progress import Progress, TaskID, TextColumn

from tidemill.cli import progress
from tidemill.pipeline import job


def test_the_words_are_those_of_the_pipeline() -> None:
    assert progress.STARTING == job.STARTING


def test_a_job_that_waits_for_spark_says_so() -> None:
    bars = Progress(TextColumn("{task.fields[note]}"), console=Console(file=io.StringIO()))
    known: dict[str, TaskID] = {}

    def shown(tasks: int, done: int, detail: str) -> tuple[str, float | None]:
        job = ("j", "move", "t", "running", tasks, done, 10 * done, detail)
        progress._draw(bars, known, [job])
        (task,) = bars.tasks
        return task.fields["note"], task.total

    assert shown(4, 0, progress.STARTING) == ("Spark is starting", None)
    assert shown(4, 1, "asked for by FLUSH") == ("1 of 4 tasks, 10 rows", 4)
    progress._draw(bars, known, [])
    assert bars.tasks == []
