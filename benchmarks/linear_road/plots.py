"""Plots as SVG text: lines and dots over time, with a shaded load behind them.

A page of the results needs four small charts and nothing else; so they are written out here, with
no plotting library. ``panels`` lays charts out in two columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 78, 54, 40
TICKS = 5
INK, FAINT, SHADE = "#24292f", "#d0d7de", "#dbe7f3"
COLOURS = ("#0b5cad", "#d1480f", "#2a7d2e", "#8250df", "#9a6700", "#57606a")
FONT = "font-family='Helvetica, Arial, sans-serif'"


@dataclass(frozen=True)
class Series:
    """A named line, or dots, over the chart's x."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    is_dots: bool = False


@dataclass(frozen=True)
class Chart:
    """One chart. ``shade`` has an axis of its own, on the right; ``limit`` is a dashed line.
    ``is_log``: a step upwards is ten times as much."""

    title: str
    unit: str
    x_name: str
    series: tuple[Series, ...]
    shade: Series | None = None
    shade_unit: str = ""
    limit: float | None = None
    is_log: bool = False


def panels(charts: Sequence[Chart]) -> str:
    """All charts in one picture."""
    rows = -(-len(charts) // 2)
    width, height = WIDTH * min(2, len(charts)), HEIGHT * rows
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
        f"width='{width}' height='{height}' {FONT} font-size='12' fill='{INK}'>"
    )
    drawn = [f"<rect width='{width}' height='{height}' fill='white'/>"]
    for number, chart in enumerate(charts):
        x, y = WIDTH * (number % 2), HEIGHT * (number // 2)
        drawn.append(f"<g transform='translate({x},{y})'>{''.join(_draw(chart))}</g>")
    return "\n".join([head, *drawn, "</svg>\n"])


class _Axis:
    """From values to pixels."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high = low, high if high > low else low + 1
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self._start + share * (self._end - self._start)


class _LogAxis(_Axis):
    """The same with powers of ten at equal distances; what is smaller than all stands below."""

    def __call__(self, value: float) -> float:
        low, high = log10(self.low), log10(self.high)
        share = (log10(max(value, self.low)) - low) / (high - low)
        return self._start + share * (self._end - self._start)


def _log_axis(values: Sequence[float]) -> _LogAxis:
    known = [value for value in values if value > 0] or [1.0]
    low, high = 10.0 ** floor(log10(min(known))), 10.0 ** ceil(log10(max(known)))
    return _LogAxis(low, high if high > low else 10 * low, HEIGHT - BOTTOM, TOP)


def _draw(chart: Chart) -> list[str]:
    plotted = [*chart.series, *([chart.shade] if chart.shade else [])]
    xs = [value for series in plotted for value in series.x]
    ys = [value for series in chart.series for value in series.y]
    x = _Axis(min(xs, default=0), max(xs, default=1), LEFT, WIDTH - RIGHT)
    highest = max(ys, default=0)
    # A limit far above everything would only flatten the chart.
    limit = chart.limit if chart.limit is not None and highest > chart.limit / 4 else None
    top = nice_end(1.02 * max(highest, limit or 0))
    y = _log_axis(ys) if chart.is_log else _Axis(0, top, HEIGHT - BOTTOM, TOP)
    drawn = [
        f"<text x='{LEFT}' y='20' font-size='14' font-weight='bold'>{escape(chart.title)}</text>"
    ]
    if chart.shade is not None:
        drawn += _shade(chart.shade, chart.shade_unit, x)
    drawn += _grid(y, chart.unit)
    drawn += _x_axis(x, chart.x_name)
    for number, series in enumerate(chart.series):
        drawn += _series(series, COLOURS[number % len(COLOURS)], x, y)
    if limit is not None:
        drawn.append(
            f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{y(limit):.1f}' y2='{y(limit):.1f}' "
            "stroke='#cf222e' stroke-dasharray='5 4'/>"
        )
    return drawn + _legend(chart)


def _grid(y: _Axis, unit: str) -> list[str]:
    drawn = []
    for value in _powers(y) if isinstance(y, _LogAxis) else _ticks(y.high):
        at = y(value)
        drawn.append(
            f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{at:.1f}' y2='{at:.1f}' stroke='{FAINT}'/>"
        )
        drawn.append(_text(LEFT - 6, at + 4, _short(value), "end"))
    return [*drawn, _text(LEFT - 6, TOP - 12, unit, "end")]


def _shade(series: Series, unit: str, x: _Axis) -> list[str]:
    axis = _Axis(0, nice_end(1.02 * max(series.y, default=1)), HEIGHT - BOTTOM, TOP)
    if not series.x:
        return []
    bottom = HEIGHT - BOTTOM
    points = [f"{x(series.x[0]):.1f},{bottom}"]
    points += [f"{x(a):.1f},{axis(b):.1f}" for a, b in zip(series.x, series.y, strict=True)]
    points.append(f"{x(series.x[-1]):.1f},{bottom}")
    drawn = [f"<polygon points='{' '.join(points)}' fill='{SHADE}'/>"]
    for value in _ticks(axis.high):
        drawn.append(_text(WIDTH - RIGHT + 6, axis(value) + 4, _short(value), "start", "#57606a"))
    return [*drawn, _text(WIDTH - RIGHT + 6, TOP - 12, unit, "start", "#57606a")]


def _x_axis(x: _Axis, name: str) -> list[str]:
    bottom = HEIGHT - BOTTOM
    step = _step(x.high - x.low)
    value = -(-x.low // step) * step
    drawn = [f"<line x1='{LEFT}' x2='{WIDTH - RIGHT}' y1='{bottom}' y2='{bottom}' stroke='{INK}'/>"]
    while value <= x.high + 1e-9:
        drawn.append(_text(x(value), bottom + 16, _short(value), "middle"))
        value += step
    return [*drawn, _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, name, "middle")]


def _series(series: Series, colour: str, x: _Axis, y: _Axis) -> list[str]:
    pairs = [(x(a), y(b)) for a, b in zip(series.x, series.y, strict=True)]
    if series.is_dots:
        return [
            f"<circle cx='{a:.1f}' cy='{b:.1f}' r='1.8' fill='{colour}' fill-opacity='0.55'/>"
            for a, b in pairs
        ]
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in pairs)
    return [f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='1.6'/>"]


def _legend(chart: Chart) -> list[str]:
    drawn, at = [], LEFT
    named = [(series.name, COLOURS[n % len(COLOURS)]) for n, series in enumerate(chart.series)]
    if chart.shade is not None:
        named.append((chart.shade.name, "#9db8d2"))
    for name, colour in named:
        drawn.append(f"<rect x='{at}' y='29' width='10' height='10' fill='{colour}'/>")
        drawn.append(_text(at + 14, 38, name, "start"))
        at += 30 + round(6.2 * len(name))
    return drawn


def _text(x: float, y: float, text: str, anchor: str, colour: str = INK) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{colour}' font-size='11'>"
        f"{escape(text)}</text>"
    )


def nice_end(value: float) -> float:
    """The end of an axis from 0 that holds a value, with round ticks.

    >>> nice_end(0.37), nice_end(4.2), nice_end(0)
    (0.4, 5.0, 1.0)
    """
    if value <= 0:
        return 1.0
    step = _step(value)
    return float(f"{-(-value // step) * step:.10g}")


def _ticks(high: float) -> list[float]:
    step = _step(high)
    return [number * step for number in range(int(high / step + 1e-9) + 1)]


def _powers(axis: _Axis) -> list[float]:
    first, last = round(log10(axis.low)), round(log10(axis.high))
    return [10.0**power for power in range(first, last + 1)]


def _step(length: float) -> float:
    """A round distance of which about ``TICKS`` make up a length."""
    rough = length / TICKS
    power = 10.0 ** int(f"{rough:e}".split("e")[1])
    return next((power * f for f in (1.0, 2.0, 5.0) if power * f >= rough * 0.99), power * 10)


def _short(value: float) -> str:
    """
    >>> _short(200_000), _short(0.1 + 0.2), _short(5.0)
    ('200k', '0.3', '5')
    """
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    if abs(value) >= 1_000:
        return f"{value / 1_000:g}k"
    return f"{value:.6g}"
