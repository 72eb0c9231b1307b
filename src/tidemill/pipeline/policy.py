"""When to move rows from memory to history, and how many: the policies of document 000 §IV-C.

A move is worth its cost when it takes enough, and harmful when it takes rows that queries are
about to read. With arrival rate λ, memory b and desired fill θ_b:

1. **periodic**: move every p; sooner at t_full, when memory reaches θ_b·b. It takes all that is
   older than the table's ``hot``.
2. **adaptive**: as periodic, but it keeps what recent queries read: of the windows that fit, for
   which λ·window is less than θ_b·b, the one that covers most of them. It waits when what could be
   moved is not worth a move, and moves sooner when λ says that memory will be full before the next
   look.
3. **manual**: only FLUSH moves, and a memory that is full.

Whatever the policy, at θ_b the oldest rows go, however short ``hot`` is then cut: a full memory
would refuse new rows. Everything here is a pure function of what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PERIODIC, ADAPTIVE, MANUAL = "periodic", "adaptive", "manual"
# Of the windows that recent queries read, this share is kept in memory.
WINDOW_SHARE = 0.95
# After a move that was forced by a full memory, this share of θ_b is left in use.
RELIEF = 0.5
# A window wider than this share of what memory can hold is not kept at all: it never would be.
FIT_SHARE = 0.9
# Queries come a little later than the rows they ask for.
MARGIN = 1.1


@dataclass(frozen=True)
class Rules:
    """A table's settings for its mover."""

    policy: str
    period_us: int
    fill_max: float  # θ_b
    worth_bytes: int
    hot_us: int


@dataclass(frozen=True)
class Measured:
    """A table as the mover finds it."""

    now_us: int
    held_bytes: int
    memory_bytes: int
    rate_bytes_s: float  # λ
    since_move_us: int
    window_ages_us: Sequence[int] = ()  # how far back recent queries reached


@dataclass(frozen=True)
class Choice:
    """How long rows are to stay, and whether a move is due at all."""

    keep_us: int
    is_due: bool
    is_forced: bool  # memory decides: ``release_bytes`` must go, whatever their age
    release_bytes: int
    reason: str


def choose(rules: Rules, measured: Measured) -> Choice:
    """What the table's policy says now; whether it is worth it, ``is_worth`` says later."""
    fill_bytes = rules.fill_max * measured.memory_bytes
    if measured.held_bytes >= fill_bytes:
        release = int(measured.held_bytes - RELIEF * fill_bytes)
        return Choice(0, True, True, release, f"memory is filled to {_percent(measured)}")
    if rules.policy == MANUAL:
        return Choice(rules.hot_us, False, False, 0, "moves only when asked to")
    keep_us, why = _keep(rules, measured, fill_bytes)
    if measured.since_move_us >= rules.period_us:
        return Choice(keep_us, True, False, 0, f"the period has passed{why}")
    full_us = _full_us(measured, fill_bytes)
    if rules.policy == ADAPTIVE and full_us is not None and full_us < rules.period_us:
        reason = f"memory would be full in {full_us / 1e6:.0f} s{why}"
        return Choice(keep_us, True, False, 0, reason)
    return Choice(keep_us, False, False, 0, f"the period has not passed{why}")


def relieved(rules: Rules, measured: Measured) -> Choice:
    """A writer's batch does not fit, though the fill that forces a move is not reached: as much
    goes as then would, but half at least."""
    spare = measured.held_bytes - RELIEF * rules.fill_max * measured.memory_bytes
    release = max(int(spare), measured.held_bytes // 2)
    return Choice(0, True, True, release, "a writer waits for room")


def is_worth(rules: Rules, measured: Measured, movable_bytes: int) -> str | None:
    """None if a move of so many bytes is worth it, else why not."""
    if movable_bytes >= rules.worth_bytes:
        return None
    return f"{movable_bytes:,} bytes are not worth a move, {rules.worth_bytes:,} would be"


def _keep(rules: Rules, measured: Measured, fill_bytes: float) -> tuple[int, str]:
    if rules.policy != ADAPTIVE or not len(measured.window_ages_us):
        return rules.hot_us, ""
    ages = np.asarray(measured.window_ages_us) * MARGIN
    fitting = ages[measured.rate_bytes_s * ages / 1e6 <= FIT_SHARE * fill_bytes]
    if not len(fitting):
        return rules.hot_us, "; the windows of recent queries do not fit in memory"
    window_us = int(np.quantile(fitting, WINDOW_SHARE))
    if window_us <= rules.hot_us:
        return rules.hot_us, ""
    return window_us, f"; recent queries read the last {window_us / MARGIN / 1e6:.0f} s"


def _full_us(measured: Measured, fill_bytes: float) -> float | None:
    """t_full: when memory reaches its fill at the present rate."""
    if measured.rate_bytes_s <= 0:
        return None
    return (fill_bytes - measured.held_bytes) / measured.rate_bytes_s * 1e6


def _percent(measured: Measured) -> str:
    return f"{100 * measured.held_bytes / max(measured.memory_bytes, 1):.0f} %"
