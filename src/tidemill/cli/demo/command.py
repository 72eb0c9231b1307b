"""Starts and stops the demo: the table, the cars, the questions, the dashboard."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

import tidemill
from tidemill.cli.demo.board import draw, plain_line
from tidemill.cli.demo.producer import TABLE, Producer
from tidemill.cli.demo.questions import Asker
from tidemill.cli.demo.traffic import SECOND_US, Traffic
from tidemill.cli.session import add_warehouse_option
from tidemill.clock import WallClock, to_us
from tidemill.server.local import LocalServer

REDRAW_S = 0.25
PLAIN_LINE_S = 1.0
POLL_S = 0.1
XWAYS_MAX = 1_000
CARS_MAX = 5_000_000
RATE_MAX = 1_000.0

CREATE = """\
CREATE STREAMING TABLE IF NOT EXISTS pos_reports (
  ts TIMESTAMP, vid BIGINT NOT NULL, spd INT, xway INT, lane INT, dir INT, seg INT, pos INT,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH (late = 'divert', rejected = 'divert', retention = '30 minutes', durability = 'batch');
CREATE INDEX IF NOT EXISTS pos_reports_vid ON pos_reports (vid)"""
# A sped-up world runs ahead of the machine's clock; its own newest row is what it calls now.
SPED_UP = "ALTER TABLE pos_reports SET (clock = 'event', max_future = 'forever')"
REAL_TIME = "ALTER TABLE pos_reports SET (clock = 'wall', max_future = '1 hour')"


def configure(parser: argparse.ArgumentParser) -> None:
    add_warehouse_option(parser)
    whole, positive = _bounded(int, 1, XWAYS_MAX), _bounded(float, 0.01, RATE_MAX)
    parser.add_argument("--xways", type=whole, default=3, metavar="N", help="expressways (3)")
    parser.add_argument(
        "--cars", type=_bounded(int, 1, CARS_MAX), default=30_000, metavar="N", help="cars (30000)"
    )
    parser.add_argument(
        "--rate", type=positive, default=10.0, metavar="X", help="speed-up of time (10)"
    )
    parser.add_argument(
        "--seconds", type=_bounded(float, 0, 1e9), metavar="N", help="stop after so many seconds"
    )
    parser.add_argument("--plain", action="store_true", help="a line a second, no dashboard")


def run(options: argparse.Namespace) -> int:
    plain = options.plain or not sys.stdout.isatty()
    with tidemill.open(options.warehouse) as database, LocalServer(database):
        traffic = prepare(database, options.xways, options.cars, options.rate)
        producer = Producer(database, traffic, options.rate)
        asker = Asker(database)
        with _stop_on_signals() as ending:
            producer.start()
            asker.start()
            try:
                watch = _print_lines if plain else _draw_board
                watch(options, traffic, producer, asker, ending)
            finally:
                producer.stop()
                asker.stop()
        if producer.error is not None:
            raise producer.error
        _say_goodbye(options.warehouse, producer)
    return 0


def prepare(database: Any, xways: int, cars: int, rate: float) -> Traffic:
    """The table, new or as an earlier demo left it, and cars that go on from there."""
    database.sql(CREATE)
    newest, vid = database.sql(f"SELECT max(ts), max(vid) FROM {TABLE}").fetchall()[0]
    now_us = WallClock().now_us()
    start_us = max(now_us, _to_us(newest) + SECOND_US)
    database.sql(REAL_TIME if rate == 1 and start_us == now_us else SPED_UP)
    first_vid = (vid or 0) + 1
    return Traffic(xways=xways, cars=cars, start_us=start_us, first_vid=first_vid, seed=first_vid)


def _to_us(moment: datetime | None) -> int:
    return 0 if moment is None else to_us(moment)


def _draw_board(
    options: argparse.Namespace,
    traffic: Traffic,
    producer: Producer,
    asker: Asker,
    ending: Ending,
) -> None:
    def picture() -> Any:
        return draw(options.warehouse, traffic, options.rate, producer.counters, asker.answers)

    with Live(picture(), console=Console(), screen=True, auto_refresh=False) as live:
        for _ in _ticks(REDRAW_S, options.seconds, producer, ending):
            live.update(picture(), refresh=True)


def _print_lines(
    options: argparse.Namespace,
    traffic: Traffic,
    producer: Producer,
    asker: Asker,
    ending: Ending,
) -> None:
    print(f"{traffic}, {options.rate:g}× speed", flush=True)
    print(f"ask it: tidemill sql --warehouse {options.warehouse}", flush=True)
    for _ in _ticks(PLAIN_LINE_S, options.seconds, producer, ending):
        print(plain_line(producer.counters, asker.answers), flush=True)


def _ticks(
    every_s: float, seconds: float | None, producer: Producer, ending: Ending
) -> Iterator[None]:
    """Yields at intervals until the time is up, the producer failed, or someone asks to end."""
    now = time.monotonic()
    until = now + (1e9 if seconds is None else seconds)
    due = now + every_s
    while now < until and not ending.asked and producer.is_alive():
        if now >= due:
            yield
            due = max(due + every_s, now)
        time.sleep(max(0.0, min(POLL_S, due - now, until - now)))
        now = time.monotonic()


class Ending:
    """Whether someone asked to end. A signal may set it at any moment: no lock is involved."""

    asked = False

    def ask(self, *_: object) -> None:
        self.asked = True


@contextmanager
def _stop_on_signals() -> Iterator[Ending]:
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


def _say_goodbye(warehouse: Path, producer: Producer) -> None:
    counters = producer.counters
    print(
        f"{counters.rows_in:,} rows in: {counters.stored:,} stored, {counters.late:,} late, "
        f"{counters.rejected:,} rejected"
    )
    print(f"the warehouse stays: tidemill sql --warehouse {warehouse}", flush=True)


def _bounded(kind: type[int] | type[float], low: float, high: float) -> Any:
    def parse(text: str) -> float:
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be between {low:,g} and {high:,g}")
        return value

    parse.__name__ = "number"
    return parse
