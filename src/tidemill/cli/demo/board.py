"""Draws the dashboard: one picture of the producer's counters and the newest answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tidemill.cli.demo.producer import Counters
from tidemill.cli.demo.questions import ROWS_SHOWN, Answer
from tidemill.cli.demo.traffic import Traffic
from tidemill.cli.shell import format_seconds
from tidemill.cli.status import format_bytes
from tidemill.clock import from_us

BARS = "▁▂▃▄▅▆▇█"
DIRECTIONS = ("→", "←")
SPEED_BAR_MPH = 70.0
SPEED_BAR_WIDTH = 14


def draw(
    warehouse: Path, traffic: Traffic, rate: float, counters: Counters, answers: dict[str, Answer]
) -> RenderableType:
    """The whole dashboard."""
    panels = Table.grid(padding=(0, 1))
    panels.add_row(congested_panel(answers["congested"]), stopped_panel(answers["stopped"]))
    return Group(
        flow_panel(traffic, rate, counters, answers["held"]),
        panels,
        aside_panel(counters, answers["rejected"]),
        invitation(warehouse),
    )


def flow_panel(traffic: Traffic, rate: float, counters: Counters, held: Answer) -> Panel:
    speeds = list(counters.per_second)
    newest = speeds[-1] if speeds else 0
    lines = Table.grid(padding=(0, 2))
    lines.add_row(
        Text(f"{newest:>9,} rows/s", "bold green"),
        Text(sparkline(speeds), "green"),
    )
    rows_held, bytes_held = held.rows[0] if held.rows else (0, 0)
    lines.add_row(
        Text(f"{counters.rows_in:>9,} rows in"),
        Text(f"{counters.stored:,} stored, {rows_held:,} in memory, {format_bytes(bytes_held)}"),
    )
    title = f"{traffic.cars:,} cars on {traffic.xways} expressway{'s' * (traffic.xways > 1)}"
    clock = f"{from_us(counters.simulated_us):%Y-%m-%d %H:%M:%S}, {rate:g}× speed"
    return Panel(lines, title=f"[bold]{title}", subtitle=clock, title_align="left")


def congested_panel(answer: Answer) -> Panel:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in ("xway", "", "seg", "mph", "", "cars"):
        table.add_column(name, justify="left" if not name else "right")
    for xway, direction, segment, speed, cars in answer.rows:
        length = max(1, round(SPEED_BAR_WIDTH * min(speed / SPEED_BAR_MPH, 1)))
        style = "red" if speed < 20 else "yellow" if speed < 40 else "green"
        bar = Text("━" * length, style)
        table.add_row(
            str(xway), DIRECTIONS[direction], str(segment), f"{speed:.0f}", bar, f"{cars:,}"
        )
    return _panel("congested segments, last 5 minutes", table, answer, width=45)


def stopped_panel(answer: Answer) -> Panel:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in ("car", "xway", "", "seg"):
        table.add_column(name, justify="left" if not name else "right")
    for vid, xway, direction, segment, _ in answer.rows:
        table.add_row(str(vid), str(xway), DIRECTIONS[direction], str(segment))
    return _panel(f"{stopped_count(answer):,} cars stopped, 4 reports", table, answer, width=33)


def stopped_count(answer: Answer) -> int:
    """How many cars stand still; the answer's rows are the newest of them."""
    return int(answer.rows[0][-1]) if answer.rows else 0


def aside_panel(counters: Counters, answer: Answer) -> Panel:
    table = Table.grid(padding=(0, 2))
    table.add_row(Text(f"{counters.late:>9,} late", "yellow"), "in pos_reports$late")
    table.add_row(
        Text(f"{counters.rejected:>9,} rejected", "red"), "in pos_reports$rejected, newest reasons:"
    )
    for reason, count in answer.rows:
        table.add_row(Text(f"{count:>9,}", "dim"), Text(str(reason), "dim", overflow="ellipsis"))
    return _panel("set aside", table, answer)


def invitation(warehouse: Path) -> Text:
    text = Text("ask it: ", "dim")
    text.append(f"tidemill sql --warehouse {warehouse}", "bold cyan")
    text.append("   leave: Ctrl-C", "dim")
    return text


def plain_line(counters: Counters, answers: dict[str, Answer]) -> str:
    """The same news as one line, where there is no terminal to draw on."""
    newest = counters.per_second[-1] if counters.per_second else 0
    congested = answers["congested"]
    slowest = ""
    if congested.rows:
        xway, direction, segment, speed, _ = congested.rows[0]
        slowest = f", slowest xway {xway} dir {direction} seg {segment} at {speed:.0f} mph"
    return (
        f"{from_us(counters.simulated_us):%H:%M:%S} {newest:,} rows/s, {counters.rows_in:,} in = "
        f"{counters.stored:,} stored + {counters.late:,} late + {counters.rejected:,} rejected, "
        f"{stopped_count(answers['stopped'])} cars stopped{slowest}, "
        f"asked in {format_seconds(congested.elapsed_s)}"
    )


def sparkline(values: Sequence[int]) -> str:
    """Small bars, the largest value full height.

    >>> sparkline([0, 5, 10])
    '▁▅█'
    """
    top = max([*values, 1])
    return "".join(BARS[round(value / top * (len(BARS) - 1))] for value in values)


def _panel(title: str, content: Any, answer: Answer, width: int | None = None) -> Panel:
    if answer.error is not None:
        content, below = Text(answer.error.message, "red"), None
    else:
        below = f"[dim]{format_seconds(answer.elapsed_s)}" if answer.elapsed_s else None
    return Panel(
        content,
        title=title,
        subtitle=below,
        title_align="left",
        subtitle_align="right",
        width=width,
        height=ROWS_SHOWN + 3 if width else None,
    )
