"""PyFlink, the peer: a venv of its own, made with uv, and the program ``flink_job.py`` in it.

PyFlink pins versions of pyarrow and pandas that the project is long past, so it cannot be a worker
of the harness; it is asked by lines of JSON instead. It keeps its state on the heap and makes no
checkpoints: nothing of it is durable, which is to its advantage.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather

from benchmarks.aim_data import Calls
from benchmarks.harness import KEEP, ROOT, WorkerError, console
from tidemill.pipeline.java import find_java

FOLDER = KEEP / "flink"
REQUIREMENTS = Path(__file__).parents[1] / "requirements-flink.txt"
SETTINGS = {
    "parallelism.default": str(len(os.sched_getaffinity(0))),
    "taskmanager.numberOfTaskSlots": str(len(os.sched_getaffinity(0))),
    "pipeline.object-reuse": "true",
    "state.backend.type": "hashmap",
    "table.local-time-zone": "UTC",
    "pekko.framesize": "1073741824b",  # the events travel with the job
}
SHOWN = ("parallelism.default", "pipeline.object-reuse", "state.backend.type")
CLOSE_WAIT_S = 20
ANSWER_WAIT_S = 1_800
_STAMP = FOLDER / ".installed"
_PYTHON = FOLDER / "bin" / "python"
_TOOLS_UV = ROOT / ".venv-tools" / "bin" / "uv"
_LAST_LINES = 12


def install() -> str | None:
    """Make the venv, once; answers what went wrong, or None."""
    wanted = REQUIREMENTS.read_text()
    if _STAMP.exists() and _STAMP.read_text() == wanted:
        return None
    uv = shutil.which("uv") or (str(_TOOLS_UV) if _TOOLS_UV.exists() else None)
    if uv is None:
        return "uv was not found, so PyFlink could not be installed"
    console.print("installing PyFlink into .benchmarks/flink; .venv and uv.lock stay as is …")
    shutil.rmtree(FOLDER, ignore_errors=True)
    make = [uv, "venv", "--quiet", "--no-project", "--python", sys.executable, str(FOLDER)]
    fill = [uv, "pip", "install", "--quiet", "--python", str(_PYTHON)]
    fill += ["--requirement", str(REQUIREMENTS)]
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "UV_PROJECT")}
    for command in (make, fill):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
        if done.returncode:
            shutil.rmtree(FOLDER, ignore_errors=True)
            last = (done.stderr.strip().splitlines() or ["uv failed"])[-1]
            return f"could not be installed: {last[:200]}"
    _STAMP.write_text(wanted)
    return None


class Flink:
    """The program, running; its questions are answered one after the other."""

    def __init__(self, folder: Path, calls: Calls) -> None:
        self._folder = folder
        self._calls = calls
        customers = folder / "customers"
        customers.mkdir(parents=True)
        plain = pyarrow.csv.WriteOptions(include_header=False)
        table = calls.customer_table()
        pyarrow.csv.write_csv(table, customers / "customers.csv", plain)
        environment = {
            **{k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")},
            "JAVA_HOME": str(find_java().program.parent.parent),
            "FLINK_LOG_DIR": str(folder),
            "TMPDIR": str(folder),
        }
        self._process = subprocess.Popen(
            [_PYTHON, Path(__file__).with_name("flink_job.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd=folder,
        )
        try:
            told = self._ask({"settings": SETTINGS, "customers": str(customers)})
        except BaseException:
            self.close()
            raise
        self.version = str(told["version"])

    def settings(self) -> dict[str, str]:
        return {
            "version": self.version,
            "views": "six queries in one job, each change of an answer sent to a blackhole sink",
            "durability": "none: no checkpoints",
            "source": "Arrow batches inside the job",
            **{name: SETTINGS[name] for name in SHOWN},
        }

    def run(self, what: str, count: int) -> float:
        """Seconds of a job over ``past`` and the first ``count`` calls."""
        told = self._ask({"do": "run", "what": what, "events": str(self._events(count))})
        return float(told["seconds"])

    def answers(self, count: int) -> dict[str, list[tuple[Any, ...]]]:
        told = self._ask({"do": "answers", "events": str(self._events(count))})
        return {name: [tuple(row) for row in rows] for name, rows in told.items()}

    def _events(self, count: int) -> Path:
        path = self._folder / f"events-{count}.arrow"
        if not path.exists():
            made = pa.concat_tables([self._calls.past(), self._calls.table(count)])
            pyarrow.feather.write_feather(made, path, compression="uncompressed")
        return path

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a line, wait for the line that answers it; what else is printed tells of a fault."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        alarm = threading.Timer(ANSWER_WAIT_S, process.kill)
        alarm.start()
        printed: deque[str] = deque(maxlen=_LAST_LINES)
        try:
            for line in process.stdout:
                if line.startswith("="):
                    answer: dict[str, Any] = json.loads(line[1:])
                    return answer
                printed.append(line.strip())
        finally:
            alarm.cancel()
        raise WorkerError(f"PyFlink ended: {' / '.join(printed)[-500:]}")

    def close(self) -> None:
        """End the program; its JVM ends with it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(CLOSE_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Flink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
