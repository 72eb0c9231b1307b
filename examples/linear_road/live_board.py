"""Draws the board: the road, what its cars are told, how fast, and how to ask for more.

``live`` calls ``draw`` four times a second with what ``live_traffic`` has counted and
``live_answers`` has found. It fits a terminal of 80 by 24; a wider one shows every segment in a
cell of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from benchmarks.linear_road.fields import SEGMENTS
from examples.linear_road.application import START
from examples.linear_road.live_answers import JOBS_SHOWN, NOTICES_SHOWN, Answer, Watcher
from examples.linear_road.live_traffic import Player
from tidemill.cli.shell import format_seconds
from tidemill.cli.status import format_bytes

LABEL_WIDTH = 10
FRAME_WIDTH = 4
WIDTH_MIN, WIDTH_MAX = 80, SEGMENTS + LABEL_WIDTH + FRAME_WIDTH
HEIGHT_MIN = 24
XWAYS_DRAWN = 2
BARS = " ▁▂▃▄▅▆▇█"
ARROWS = ("→", "←")
TOLL_FULL = 5_000  # so many cars too many that the bar is full height
# Average speeds in mph from which a colour holds. Below 40 a segment can cost a toll.
SPEED_COLORS = (
    (50, "#2e8b57"),
    (40, "#7cb342"),
    (32, "#e6c229"),
    (24, "#ef8a17"),
    (0, "#c8322b"),
)
EMPTY_COLOR = "#3a3a3a"
TOLL_COLOR = "#5fafd7"
SUGGESTIONS = (
    "SELECT vid, sum(toll) FROM charges GROUP BY vid ORDER BY 2 DESC LIMIT 5;",
    "SELECT seg, lav, cars FROM conditions ORDER BY ts DESC, cars DESC LIMIT 5;",
    "SELECT * FROM entries WHERE accident IS NOT NULL ORDER BY ts DESC LIMIT 5;",
)


@dataclass(frozen=True)
class Segment:
    """A segment in one direction, for this minute."""

    speed: int
    accident: int | None  # the segment of the accident ahead
    toll: int


Road = dict[tuple[int, int, int], Segment]  # by expressway, direction, segment


def draw(
    warehouse: Path,
    xways: int,
    player: Player,
    watcher: Watcher,
    width: int,
    height: int = HEIGHT_MIN,
) -> Group:
    """The whole board; a higher terminal shows more jobs and more to ask."""
    width = max(WIDTH_MIN, min(width, WIDTH_MAX))
    below = Table.grid()
    half, spare = width // 2, max(height - HEIGHT_MIN, 0)
    below.add_row(notices_panel(watcher, half), answers_panel(watcher, width - half))
    return Group(
        road_panel(xways, player, watcher, width),
        below,
        jobs_panel(watcher, width, 1 + min(max(spare - len(SUGGESTIONS), 0), JOBS_SHOWN - 1)),
        invitation(warehouse, 1 + min(spare, len(SUGGESTIONS) - 1)),
    )


def road_panel(xways: int, player: Player, watcher: Watcher, width: int) -> Panel:
    answer = watcher.answers["road"]
    road, cells = read_road(answer), cells_in(width)
    lines = []
    for xway in range(min(xways, XWAYS_DRAWN)):
        for direction, arrow in enumerate(ARROWS):
            lines += [tolls_line(road, xway, direction, cells)]
            lines += [speeds_line(f"xway {xway} {arrow}", road, xway, direction, cells)]
    title = f"{player.counters.cars:,} cars on {xways} expressway{'s' * (xways > 1)}"
    return Panel(
        Group(*lines, ruler(cells)) if answer.error is None else _message(answer),
        title=Text.assemble((f"Linear Road: {title}", "bold")),
        subtitle=Text.assemble(f"{state(player)}   ", *legend()),
        title_align="left",
        subtitle_align="left",
        width=width,
    )


def cells_in(width: int) -> int:
    """How many cells a road of 100 segments has: each has as many segments as the next.

    >>> cells_in(114), cells_in(80)
    (100, 50)
    """
    return SEGMENTS if width >= WIDTH_MAX else SEGMENTS // 2


def read_road(answer: Answer) -> Road:
    return {
        (xway, direction, seg): Segment(speed, accident, toll)
        for xway, direction, seg, speed, accident, toll in answer.rows
    }


def tolls_line(road: Road, xway: int, direction: int, cells: int) -> Text:
    """A bar for each cell's highest toll, by the number of cars that are too many."""
    line = Text(" " * LABEL_WIDTH)
    for held in _cells(road, xway, direction, cells):
        toll = max((segment.toll for _, segment in held), default=0)
        height = min(1.0, (toll / TOLL_FULL) ** 0.5)
        line.append(BARS[max(1, round(height * (len(BARS) - 1)))] if toll else " ", TOLL_COLOR)
    return line


def speeds_line(label: str, road: Road, xway: int, direction: int, cells: int) -> Text:
    """A cell's colour is its slowest average speed; accidents, and where cars are warned of one."""
    line = Text(label.ljust(LABEL_WIDTH))
    for held in _cells(road, xway, direction, cells):
        slowest = min((segment.speed for _, segment in held), default=None)
        background = f"on {speed_color(slowest)}"
        if any(segment.accident == seg for seg, segment in held):
            line.append("✖", f"bold white {background}")
        elif any(segment.accident is not None for _, segment in held):
            line.append("!", f"bold black {background}")
        else:
            line.append(" ", background)
    return line


def speed_color(speed: int | None) -> str:
    """
    >>> speed_color(70), speed_color(0), speed_color(None)
    ('#2e8b57', '#c8322b', '#3a3a3a')
    """
    if speed is None:
        return EMPTY_COLOR
    return next(color for least, color in SPEED_COLORS if speed >= least)


def ruler(cells: int) -> Text:
    step = SEGMENTS // cells
    marks = "".join(f"{seg:<{10 // step}}" for seg in range(0, SEGMENTS, 10))
    return Text("segment".ljust(LABEL_WIDTH) + marks, "dim")


def legend() -> list[str | tuple[str, str]]:
    colors: list[str | tuple[str, str]] = [("■", color) for _, color in reversed(SPEED_COLORS)]
    signs: list[str | tuple[str, str]] = [("▅", TOLL_COLOR), " toll  ", ("✖", "bold"), " accident"]
    return ["slow ", *colors, " fast  ", *signs, "  ", ("!", "bold"), " warned of it"]


def state(player: Player) -> str:
    moment = START + timedelta(seconds=player.counters.newest_s)
    return f"{moment:%H:%M:%S}" + ("" if player.counters.is_live else ", the past is poured in")


def notices_panel(watcher: Watcher, width: int) -> Panel:
    counts, answer = watcher.counts, watcher.answers["notices"]
    lines = [
        Text.assemble(
            (f"{watcher.notified.rate:,.0f}/s", "bold green"),
            f"  {counts.tolls + counts.accidents:,} so far",
        ),
        Text(f"{counts.tolled:,} tolls, {counts.accidents:,} accidents", no_wrap=True),
        *(_notice(*row) for row in answer.rows),
    ]
    content = Group(*lines) if answer.error is None else _message(answer)
    return _panel("notifications", content, width)


def _notice(vid: int, xway: int, seg: int, speed: int, toll: int, accident: int | None) -> Text:
    told = (f"toll {toll:>5,}", TOLL_COLOR)
    if accident is not None:
        told = (f"accident in {accident}", "red")
    return Text.assemble((f"{vid:>7} {xway}:{seg:02} {speed:>2} mph ", "dim"), told)


def answers_panel(watcher: Watcher, width: int) -> Panel:
    counts, meter = watcher.counts, watcher.meter
    table = Table.grid(padding=(0, 1))
    times = f"{format_seconds(meter.mean_s)}, longest {format_seconds(meter.longest_s)}"
    room = width - len("response") - 5
    table.add_row("response", Text(times if meter.mean_s else "–", "bold green", no_wrap=True))
    table.add_row("", Text(sparkline(meter.longest_each_s[-room:]), "green", no_wrap=True))
    table.add_row("balances", f"{counts.balances:,} asked, highest {counts.balance_highest:,}")
    table.add_row("days", f"{counts.expenditures:,} asked")
    for label, text in held_lines(watcher.answers["held"]):
        table.add_row(label, text)
    return _panel("answers and history", table, width)


def held_lines(answer: Answer) -> list[tuple[str, str]]:
    """Where the reports are: in memory, and in files up to some moment."""
    if answer.error is not None:
        return [("held", answer.error.message)]
    if not answer.rows:
        return []
    hot, hot_bytes, moved, upto = answer.rows[0]
    history = f"{moved:,} rows, to {upto:%H:%M:%S}" if moved else "nothing moved yet"
    return [("memory", f"{hot:,} rows, {format_bytes(hot_bytes)}"), ("history", history)]


def jobs_panel(watcher: Watcher, width: int, lines: int) -> Panel:
    """What the pipeline does: the newest jobs, and how many there were."""
    answer = watcher.answers["jobs"]
    if answer.error is not None:
        content: RenderableType = _message(answer)
    elif not answer.rows:
        content = Text(f"{spark_line(watcher.answers['spark'])}; nothing to move yet", "dim")
    else:
        content = Group(*(_job(*row) for row in answer.rows[:lines]))
    title = "pipeline"
    if told := jobs_line(watcher):
        title = f"pipeline: {told}"
    return Panel(
        content,
        title=title,
        subtitle=Text("leave: Ctrl-C", "dim"),
        title_align="left",
        subtitle_align="right",
        width=width,
        height=lines + 2,
    )


def spark_line(answer: Answer) -> str:
    """What Spark is doing.

    >>> spark_line(Answer([("starting", None)])), spark_line(Answer([("failed", "no Java")]))
    ('Spark is starting', 'Spark did not start: no Java')
    """
    if answer.error is not None:
        return answer.error.message
    state, error = answer.rows[0] if answer.rows else ("off", None)
    if state == "inline":
        return "the pipeline runs in this process, without Spark"
    return f"Spark did not start: {error}" if state == "failed" else f"Spark is {state}"


def jobs_line(watcher: Watcher) -> str:
    """How many jobs of each kind there were, and their rows."""
    answer = watcher.answers["jobs_done"]
    if answer.error is not None:
        return answer.error.message
    return ", ".join(
        f"{count:,} {kind}{'s' * (count > 1)} of {rows:,} rows" + f" ({bad} failed)" * bool(bad)
        for kind, count, rows, bad in answer.rows
    )


def job_text(
    kind: str,
    table: str,
    state: str,
    rows: int,
    ran_on: str | None,
    seconds: float | None,
    detail: str | None,
) -> str:
    """A job in a line.

    >>> job_text("move", "reports", "committed", 25_000, "Spark", 1.25, None)
    'move reports: 25,000 rows by Spark in 1.25 s'
    """
    time = "" if seconds is None else f" {format_seconds(seconds)}"
    place = f" by {ran_on}" if ran_on else ""
    if state == "committed":
        return f"{kind} {table}: {rows:,} rows{place} in{time}"
    told = f", {' '.join(detail.split())}" if detail else ""
    return f"{kind} {table}: {state}{place}{time}{told}"


def _job(kind: str, table: str, state: str, *rest: Any) -> Text:
    style = {"failed": "red", "running": "bold green"}.get(state, "")
    return Text(job_text(kind, table, state, *rest), style, no_wrap=True, overflow="ellipsis")


def invitation(warehouse: Path, suggestions: int) -> RenderableType:
    lines = [
        Text.assemble(("in a second terminal: ", "dim"), (ask_command(warehouse), "bold cyan")),
        *(
            Text(f"  {text}", "cyan", overflow="ellipsis", no_wrap=True)
            for text in SUGGESTIONS[:suggestions]
        ),
    ]
    return Group(*lines)


def ask_command(warehouse: Path) -> str:
    """What starts a shell on the warehouse, as it can be typed here."""
    program = Path(sys.executable).with_name("tidemill")
    here = Path.cwd()
    name = str(program.relative_to(here)) if program.is_relative_to(here) else program.name
    return f"{name} sql --warehouse {warehouse}"


def plain_line(player: Player, watcher: Watcher) -> str:
    """The same news as one line, where there is no terminal to draw on."""
    counters, counts, meter = player.counters, watcher.counts, watcher.meter
    road = read_road(watcher.answers["road"])
    tolled = sum(segment.toll > 0 for segment in road.values())
    accidents = sum(segment.accident == key[2] for key, segment in road.items())
    reports = counters.per_second[-1] if counters.per_second else 0
    held = "; ".join(f"{label} {text}" for label, text in held_lines(watcher.answers["held"]))
    jobs = watcher.answers["jobs"].rows
    newest = f"; {job_text(*jobs[0])}" if jobs else ""
    return (
        f"{state(player)}: {counters.cars:,} cars, {reports:,} reports/s, "
        f"{meter.rate:,.0f} answers/s in {format_seconds(meter.mean_s)}, "
        f"longest {format_seconds(meter.longest_s)}; "
        f"{tolled} segments with a toll, {accidents} accidents; "
        f"{counts.balances:,} balances asked; {held}{newest}"
    )


def sparkline(values: Sequence[float]) -> str:
    """Small bars, the largest value full height.

    >>> sparkline([0, 5, 10])
    '▁▅█'
    """
    top = max(values, default=0) or 1
    heights = BARS[1:]
    return "".join(heights[round(value / top * (len(heights) - 1))] for value in values)


def _cells(road: Road, xway: int, direction: int, cells: int) -> list[list[tuple[int, Segment]]]:
    """The known segments of each cell, with their numbers."""
    step = SEGMENTS // cells
    return [
        [
            (seg, road[xway, direction, seg])
            for seg in range(first, first + step)
            if (xway, direction, seg) in road
        ]
        for first in range(0, SEGMENTS, step)
    ]


def _message(answer: Answer) -> Text:
    return Text(answer.error.message if answer.error else "", "red")


def _panel(title: str, content: RenderableType, width: int) -> Panel:
    return Panel(content, title=title, title_align="left", width=width, height=NOTICES_SHOWN + 4)
