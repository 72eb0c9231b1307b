"""``python -m benchmarks.linear_road --xways L --minutes M --seed S``: run, judge, print, write.

Ends with exit code 0 only if every answer was right and within five seconds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import WorkerError, console, scratch
from benchmarks.linear_road.report import Page
from benchmarks.linear_road.run import Outcome, Request, run, search
from benchmarks.linear_road.traffic import PEAK_PER_MINUTE, RAMP_MINUTES, Plan
from tidemill.errors import TidemillError

SEARCH_MINUTES = 3
SEARCH_MOST = 128


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.linear_road",
        description="Run Linear Road, judge every answer, and write a page about it.",
    )
    add = parser.add_argument
    add("--xways", type=int, default=1, help="expressways (default 1)")
    add("--minutes", type=int, default=180, help="the minute it ends at (default 180)")
    add("--from-minute", type=int, help="begin there, with the cars as they are by then")
    add("--seed", type=int, default=1)
    add("--rate", default="real", help="real, a number of times as fast, or max (default real)")
    add(
        "--otq-per-minute",
        default="",
        help="one-time queries over past reports; 0,20,200: so many in each part of the run",
    )
    add("--no-indices", action="store_true", help="reports without indices, for comparison")
    add("--history", action="store_true", help="load three hours of earlier reports before")
    add("--input", type=Path, help="a file of input instead of the generator")
    add("--tolls", type=Path, help="the past's tolls that belong to --input")
    add("--search", action="store_true", help="find the highest L that holds, from --xways on")
    add("--search-most", type=int, default=SEARCH_MOST, help=f"not above (default {SEARCH_MOST})")
    add("--peak", type=int, default=PEAK_PER_MINUTE, help="reports a minute and expressway")
    add("--ramp", type=int, default=RAMP_MINUTES, help="minutes until the peak (default 180)")
    add("--accident-gap", type=float, default=20.0, help="minutes between accidents (default 20)")
    add("--spark-master", default="local[*]", help="where jobs run (default local[*])")
    add("--folder", type=Path, help="where the data lies while it runs (default: temporary)")
    add("--name", default="linear_road", help="of the page (default linear_road)")
    given = parser.parse_args(arguments)
    if given.input is not None and (given.search or given.history or given.from_minute):
        parser.error("--input does not go with --search, --history or --from-minute")
    if given.search and given.xways > given.search_most:
        parser.error(f"--xways {given.xways} is above --search-most {given.search_most}")
    if given.tolls is not None and given.input is None:
        parser.error("--tolls goes with --input")
    try:
        given.rate = _rate(given.rate)
    except ValueError:
        parser.error(f'--rate is real, max or a number above 0, not "{given.rate}"')
    try:
        given.otq_per_minute = _loads(given.otq_per_minute)
    except ValueError:
        text = "different numbers of at most 100,000, like 200 or 0,20,200"
        parser.error(f'--otq-per-minute is {text}, not "{given.otq_per_minute}"')
    if given.otq_per_minute and given.rate is None:
        parser.error("--otq-per-minute needs a clock: it does not go with --rate max")
    return given


def request_of(given: argparse.Namespace) -> Request:
    plan = None
    if given.input is None:
        begin = given.from_minute
        if begin is None:
            begin = max(0, given.minutes - SEARCH_MINUTES) if given.search else 0
        plan = Plan(
            xways=given.xways,
            minutes=given.minutes,
            seed=given.seed,
            from_minute=begin,
            peak_per_minute=given.peak,
            ramp_minutes=given.ramp,
            accident_gap_minutes=given.accident_gap,
        )
    return Request(
        plan,
        given.input,
        given.tolls,
        given.rate,
        given.otq_per_minute,
        given.history,
        given.spark_master,
        given.seed,
        has_indices=not given.no_indices,
    )


def main(arguments: Sequence[str]) -> int:
    given = parse(arguments)
    if given.folder is not None:
        os.environ["TMPDIR"] = tempfile.tempdir = str(given.folder)
    try:
        with scratch() as folder:
            request = request_of(given)
            page = _searched(request, folder, given.search_most) if given.search else None
            page = page or Page(run(request, folder), folder, None)
            page.print()
            page.write(given.name)
    except KeyboardInterrupt:
        console.print("interrupted; nothing is written")
        return 130
    except (TidemillError, WorkerError) as error:
        console.print(f"[bold red]failed:[/] {error}", highlight=False)
        return 1
    return 0 if page.outcome.ok else 1


def _searched(request: Request, folder: Path, most: int) -> Page:
    """Search; the page is about the highest that held, or the lowest that did not."""
    best, tried = search(request, folder, most, _show)
    told = dict(tried)
    shown = told[best] if best else told[min(told)]
    return Page(shown, folder, (best, tried))


def _show(xways: int, outcome: Outcome) -> None:
    word = "[green]holds[/]" if outcome.ok else f"[red]does not hold[/]: {outcome.faults[0]}"
    console.print(f"L = {xways}: {word}", highlight=False)


def _rate(text: str) -> float | None:
    """
    >>> _rate("real"), _rate("max"), _rate("2.5")
    (1.0, None, 2.5)
    """
    if text == "max":
        return None
    rate = 1.0 if text == "real" else float(text)
    if not 0 < rate < float("inf"):
        raise ValueError(text)
    return rate


def _loads(text: str) -> tuple[float, ...]:
    """
    >>> _loads("0,20,200"), _loads("0"), _loads("")
    ((0.0, 20.0, 200.0), (), ())
    """
    loads = tuple(map(float, text.split(","))) if text else ()
    if not any(loads):
        return ()
    if not all(0 <= load <= 100_000 for load in loads) or len(set(loads)) < len(loads):
        raise ValueError(text)
    return loads


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
