"""Smoothing: an estimate after one more measurement, which no single one can carry off.

Times and ratios are positive and vary by factors, so they are averaged as factors. The first
measurements count most, later ones a tenth each, so that an estimate follows slow changes; and a
measurement that is more than ``STEP_MAX`` times off counts as if it were that much off.
"""

from __future__ import annotations

STEP_MAX = 4.0
WEIGHT_MIN = 0.1


def smoothed(old: float, found: float, runs: int) -> float:
    """The estimate that was ``old`` after ``runs`` measurements, and one more that gave ``found``.

    >>> smoothed(10.0, 20.0, 0), round(smoothed(10.0, 20.0, 1), 3), smoothed(10.0, 1e9, 0)
    (20.0, 14.142, 40.0)
    >>> smoothed(10.0, -1.0, 0)
    2.5
    """
    assert old > 0
    ratio = found / old if found > 0 else 0.0
    return float(old * clamped(ratio, 1 / STEP_MAX, STEP_MAX) ** max(1 / (runs + 1), WEIGHT_MIN))


def clamped(value: float, low: float, high: float) -> float:
    """
    >>> clamped(7, 0, 5), clamped(-7, 0, 5), clamped(3, 0, 5)
    (5, 0, 3)
    """
    return min(max(value, low), high)
