"""The harness: options, workers in processes of their own, summaries, and the frame of a run.

A *worker* is an object that lives in a fresh process; the benchmark calls its methods from
outside. So no contender inherits another's memory, threads or allocator, resident memory means
something, and several can be held ready and asked in turn: whatever disturbs the machine disturbs
all of them. Times are taken inside the worker, around the work alone.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parents[1]
KEEP = ROOT / ".benchmarks"
ROWS = 10_000_000
ROWS_QUICK = 200_000
CLOSE_WAIT_S = 60
ORPHAN_WAIT_S = 10
WIDTH = 140  # of what is printed where there is no terminal to ask

console = Console() if sys.stdout.isatty() else Console(width=WIDTH)


@dataclass(frozen=True)
class Options:
    """What the command line says, the same for every benchmark."""

    rows: int = ROWS
    repeat: int = 5
    quick: bool = False
    systems: tuple[str, ...] = ()
    key_rows: int = 0
    parts: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_full(self) -> bool:
        """Whether the results are worth keeping in the repository."""
        is_whole = not self.systems and not self.parts and not self.seconds
        return not self.quick and self.rows == ROWS and is_whole

    def wants(self, system: str) -> bool:
        return not self.systems or system in self.systems

    def smaller(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def parse_options(arguments: Sequence[str], names: Sequence[str] = ()) -> tuple[list[str], Options]:
    """The benchmarks to run and their options; ``--folder`` takes effect at once."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure Tidemill beside its peers."
    )
    if names:
        parser.add_argument("names", nargs="*", help=f"any of {', '.join(names)}; all if none")
    parser.add_argument("--rows", type=int, help=f"rows, in whole batches (default {ROWS:,})")
    parser.add_argument("--repeat", type=int, help="repetitions of a measurement (default 5)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--systems", default="", help="only these, by comma: tidemill,postgres,…")
    parser.add_argument(
        "--key-rows",
        type=int,
        default=0,
        help="history_queries: rows under the key lookup (--rows)",
    )
    parser.add_argument("--parts", default="", help="mixed, changes: only these, by comma: fig19,…")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="mixed, changes: of each run of the figures"
    )
    parser.add_argument("--folder", help="where the data lies while it runs (default: temporary)")
    given = parser.parse_args(arguments)
    if wrong := set(getattr(given, "names", ())) - set(names):
        parser.error(f"no benchmark is called {', '.join(sorted(wrong))}")
    if given.folder:
        os.environ["TMPDIR"] = given.folder
        tempfile.tempdir = given.folder
    options = Options(
        given.rows or (ROWS_QUICK if given.quick else ROWS),
        given.repeat or (2 if given.quick else 5),
        given.quick,
        tuple(name for name in given.systems.split(",") if name),
        given.key_rows,
        tuple(name for name in given.parts.split(",") if name),
        given.seconds,
    )
    return list(getattr(given, "names", ())) or list(names), options


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for the data of one benchmark, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="tidemill-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def progress(total: int | None, text: str) -> Iterator[Callable[[str, int], None]]:
    """A progress line; the function given takes what is done now and how much further it is."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda now, step: bar.update(task, description=f"{text}: {now}", advance=step)


class WorkerError(Exception):
    """A worker could not be started or failed; carries what it said."""


class Worker:
    """An object in a process of its own: ``call`` runs one of its methods there."""

    def __init__(self, target: str, *arguments: Any) -> None:
        """``target`` names the class as ``module:Class``; it must have a method ``close``."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, target, arguments))
        self._process.start()
        theirs.close()
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def call(self, method: str, *arguments: Any) -> Any:
        self._pipe.send((method, arguments))
        return self._answer()

    def _answer(self) -> Any:
        try:
            is_good, value = self._pipe.recv()
        except EOFError:
            raise WorkerError("the worker ended without an answer") from None
        if not is_good:
            raise WorkerError(value)
        return value

    def close(self) -> None:
        self._pipe.close()
        self._process.join(CLOSE_WAIT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def end_with_parent() -> None:
    """Let this process end when the one that started it does, however that ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        time.sleep(ORPHAN_WAIT_S)  # an orderly end closes the pipe, and comes first
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def workers(processes: int) -> ProcessPoolExecutor:
    """Processes for work that is not measured; they end with this one."""
    return ProcessPoolExecutor(
        processes, mp_context=multiprocessing.get_context("spawn"), initializer=end_with_parent
    )


def _serve(pipe: Connection, target: str, arguments: tuple[Any, ...]) -> None:
    """The worker's side: build the object, answer calls until the other end is closed."""
    end_with_parent()
    held = None
    try:
        module, name = target.split(":")
        held = getattr(importlib.import_module(module), name)(*arguments)
        pipe.send((True, None))
        while True:
            method, given = pipe.recv()
            pipe.send((True, getattr(held, method)(*given)))
    except (EOFError, KeyboardInterrupt, BrokenPipeError):
        pass
    except BaseException as error:
        _send_failure(pipe, error)
    finally:
        if held is not None:
            held.close()


def _send_failure(pipe: Connection, error: BaseException) -> None:
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {error}".strip()
    try:
        pipe.send((False, f"{text} ({Path(where.filename).name}:{where.lineno})"))
    except (BrokenPipeError, OSError):
        print(text, file=sys.stderr)


@dataclass(frozen=True)
class Summary:
    """Repeated measurements of one thing."""

    runs: int
    median: float
    low: float
    high: float
    p95: float | None = None
    p99: float | None = None


def summarise(values: Sequence[float]) -> Summary:
    """Median and spread; percentiles too where there are enough values for them to mean something.

    >>> summarise([3.0, 1.0, 2.0])
    Summary(runs=3, median=2.0, low=1.0, high=3.0, p95=None, p99=None)
    """
    p95 = p99 = None
    if len(values) >= 40:
        cuts = quantiles(values, n=100, method="inclusive")
        p95, p99 = cuts[94], cuts[98]
    return Summary(len(values), median(values), min(values), max(values), p95, p99)
