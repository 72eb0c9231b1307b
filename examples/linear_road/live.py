"""Linear Road, live: ``make run``, or ``python -m examples.linear_road``.

Opens a warehouse, makes the application in it (``application``), plays traffic into it at real
rate (``live_traffic``), watches it answer (``live_answers``) and draws what is seen
(``live_board``), until the time is up or somebody presses Ctrl-C. The warehouse stays; a later run
goes on in it.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

import tidemill
from benchmarks.linear_road.traffic import Plan
from examples.linear_road import application
from examples.linear_road.live_answers import Watcher
from examples.linear_road.live_board import ask_command, draw, plain_line
from examples.linear_road.live_traffic import Player, World
from tidemill.cli.report import print_error
from tidemill.cli.session import add_warehouse_option
from tidemill.cli.shell import format_seconds
from tidemill.engine import Database
from tidemill.errors import TidemillError
from tidemill.pipeline.java import JavaNotFoundError, find_java

REDRAW_S = 0.25
PLAIN_LINE_S = 1.0
POLL_S = 0.1
XWAYS_MAX = 20
PEAK_MAX = 100_000
RATE_MAX = 1_000.0
SECONDS_MAX = 1e9
EXIT_ERROR = 1
SPARK_MASTER, INLINE = "local[*]", "inline"

# A road that fills up while one watches: when the picture opens, in its 12th minute, most segments
# still flow and some already cost a toll; half an hour later most are slow.
FROM_MINUTE = 4
PAST_MINUTES = 8
MINUTES = 24 * 60
RAMP_MINUTES = 40
ACCIDENT_GAP_MINUTES = 3.0
# Rows leave memory for history early, so that there is some to see.
MOVE_SOON = (
    "ALTER TABLE reports SET (hot = '3 minutes', move_every = '10 seconds', move_min = '500 kB')"
)


@dataclass
class Ending:
    """Whether someone asked to end. A signal may set it at any moment: no lock is involved."""

    asked: bool = False

    def ask(self, *_: object) -> None:
        self.asked = True


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and gives its exit code."""
    options = build_parser().parse_args(arguments)
    try:
        with stop_on_signals() as ending:
            return run(options, ending)
    except TidemillError as error:
        print_error(error)
        return EXIT_ERROR


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.linear_road", description="Linear Road, live."
    )
    add_warehouse_option(parser)
    parser.add_argument(
        "--xways", type=_bounded(int, 1, XWAYS_MAX), default=2, metavar="N", help="expressways (2)"
    )
    parser.add_argument(
        "--peak",
        type=_bounded(int, 2, PEAK_MAX),
        default=24_000,
        metavar="N",
        help="reports a minute and expressway when the road is full (24000)",
    )
    parser.add_argument(
        "--rate",
        type=_bounded(float, 0.01, RATE_MAX),
        default=1.0,
        metavar="X",
        help="speed-up of time (1)",
    )
    parser.add_argument("--seed", type=_bounded(int, 0, 2**31), default=1, metavar="N")
    parser.add_argument(
        "--seconds",
        type=_bounded(float, 0, SECONDS_MAX),
        metavar="N",
        help="stop after so many seconds",
    )
    parser.add_argument(
        "--spark",
        default=SPARK_MASTER,
        metavar="MASTER",
        help="where the pipeline runs: a Spark master (local[*], this machine's cores), or inline: "
        "in this process, without Spark",
    )
    parser.add_argument("--plain", action="store_true", help="a line a second, no board")
    return parser


def run(options: argparse.Namespace, ending: Ending) -> int:
    master = choose_master(options.spark)
    with tidemill.open(options.warehouse, spark_master=master, lifetime="long") as database:
        player = Player(database, prepare(database, options))
        watcher = Watcher(database, player.arrived_at)
        player.start()
        watcher.start()
        try:
            watch = print_lines if options.plain or not sys.stdout.isatty() else draw_board
            watch(options, player, watcher, ending)
        finally:
            player.stop()
            watcher.stop()
        if error := player.error or watcher.error:
            raise error
        say_goodbye(options, player, watcher)
    return 0


def choose_master(asked: str) -> str:
    """The master that was asked for; without a Java for it, this process, which is told."""
    if asked == INLINE:
        return asked
    try:
        find_java()
    except JavaNotFoundError as error:
        print_error(error)
        print("without Java: the pipeline runs in this process, without Spark", flush=True)
        return INLINE
    return asked


def prepare(database: Database, options: argparse.Namespace) -> World:
    """The application, new or as an earlier run left it, and a world that goes on from there."""
    if not database.sql("SELECT 1 FROM tidemill.views WHERE view_name = 'entries'").fetchall():
        application.create(database)
    database.sql(MOVE_SOON)
    (newest_s,) = database.sql(
        "SELECT CAST(epoch(max(ts)) AS BIGINT) - ? FROM reports", [application.START_S]
    ).fetchall()[0]
    plan = Plan(
        xways=options.xways,
        minutes=MINUTES,
        seed=options.seed,
        from_minute=FROM_MINUTE,
        peak_per_minute=options.peak,
        ramp_minutes=RAMP_MINUTES,
        accident_gap_minutes=ACCIDENT_GAP_MINUTES,
    )
    now_s = int(time.time()) - application.START_S
    return World.around(
        plan, now_s, past_minutes=PAST_MINUTES, rate=options.rate, newest_s=newest_s
    )


def draw_board(
    options: argparse.Namespace, player: Player, watcher: Watcher, ending: Ending
) -> None:
    console = Console()

    def picture() -> RenderableType:
        size = console.size
        return draw(options.warehouse, options.xways, player, watcher, size.width, size.height)

    with Live(picture(), console=console, screen=True, auto_refresh=False) as live:
        for _ in ticks(REDRAW_S, options.seconds, (player, watcher), ending):
            live.update(picture(), refresh=True)


def print_lines(
    options: argparse.Namespace, player: Player, watcher: Watcher, ending: Ending
) -> None:
    print(f"Linear Road on {options.xways} expressways, {options.rate:g}× speed", flush=True)
    print(f"ask it: {ask_command(options.warehouse)}", flush=True)
    for _ in ticks(PLAIN_LINE_S, options.seconds, (player, watcher), ending):
        print(plain_line(player, watcher), flush=True)


def ticks(
    every_s: float,
    seconds: float | None,
    threads: tuple[threading.Thread, ...],
    ending: Ending,
) -> Iterator[None]:
    """Yields at intervals until the time is up, a thread failed, or someone asks to end."""
    now = time.monotonic()
    until = now + (SECONDS_MAX if seconds is None else seconds)
    due = now + every_s
    while now < until and not ending.asked and all(thread.is_alive() for thread in threads):
        if now >= due:
            yield
            due = max(due + every_s, now)
        time.sleep(max(0.0, min(POLL_S, due - now, until - now)))
        now = time.monotonic()


@contextmanager
def stop_on_signals() -> Iterator[Ending]:
    """What SIGINT and SIGTERM set; the handlers of before come back at the end."""
    ending = Ending()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, ending.ask) for number in signals}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say_goodbye(options: argparse.Namespace, player: Player, watcher: Watcher) -> None:
    counters, counts, meter = player.counters, watcher.counts, watcher.meter
    print(f"in:  {counters.reports:,} reports, {counters.requests:,} requests")
    print(
        f"out: {counts.tolls + counts.accidents:,} notifications, {counts.balances:,} balances, "
        f"{counts.expenditures:,} past days"
    )
    if meter.mean_s:
        print(
            f"response times in the last minute: {format_seconds(meter.mean_s)} on average, "
            f"{format_seconds(meter.longest_s)} at most"
        )
    print(f"the warehouse stays: {ask_command(options.warehouse)}", flush=True)


def _bounded(kind: type[int] | type[float], low: float, high: float) -> Any:
    def parse(text: str) -> float:
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be between {low:,g} and {high:,g}")
        return value

    parse.__name__ = "number"
    return parse
