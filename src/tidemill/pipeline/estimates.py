"""How much stays in memory and when it is full: the estimates of document 000 §IV-C.

========================  =====================================================================
the paper                 here
========================  =====================================================================
λ                         ``Flow.rate_bytes_s``, bytes that arrive in a second
c_λ(λ), c_k(k)            ``Flow.arrival_factor``, ``Flow.move_factor``, measured in ``measuring``
b, B(t)                   ``memory_bytes``, ``held_bytes``
θ_b                       ``fill_share``, a function of λ, at most the setting ``move_fill``
t_full (Eq. 2)            ``full_us``
B(t') (Eq. 4)             ``stays_bytes`` for one move, ``stays_after`` for several
k, p                      ``moved_bytes``, ``period_s``
========================  =====================================================================

All are pure functions; no estimate is negative.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.smoothing import clamped

LOOK_EVERY_S = 0.25  # how often the mover looks at a table
MOVE_S_START = 1.0  # how long a move takes, until one was seen
# However fast rows arrive, this share of ``move_fill`` may be filled before rows must go: smaller
# moves would follow each other without making more room.
FILL_SHARE_MIN = 0.5
PERIODS_MAX = 1_000


@dataclass(frozen=True)
class Flow:
    """What flows into a table's memory and out of it, as measured."""

    rate_bytes_s: float = 0.0
    peak_bytes_s: float = 0.0  # the greatest rate of the last minutes
    move_s: float = MOVE_S_START
    arrival_factor: float = 1.0
    move_factor: float = 1.0
    moves: int = 0  # that were seen

    @property
    def arriving_bytes_s(self) -> float:
        """λ·c_λ(λ)."""
        return self.rate_bytes_s * self.arrival_factor

    @property
    def lead_s(self) -> float:
        """From the moment at which a move is due until it has made room."""
        return LOOK_EVERY_S + self.move_s


def fill_share(fill_max: float, memory_bytes: int, flow: Flow) -> float:
    """θ_b(λ): the share of memory at which rows must go, whatever their age.

    The rest is to hold what arrives until the move has made room, at the greatest rate of late:
    θ_b = 1 - λ·lead / b, but at most ``fill_max``.

    >>> slow, fast = Flow(1e6, 1e6), Flow(40e6, 40e6)
    >>> fill_share(0.6, 100_000_000, slow), fill_share(0.6, 100_000_000, fast)
    (0.6, 0.5)
    """
    burst_bytes = max(flow.arriving_bytes_s, flow.peak_bytes_s) * flow.lead_s
    return clamped(1 - burst_bytes / max(memory_bytes, 1), FILL_SHARE_MIN * fill_max, fill_max)


def full_us(held_bytes: float, fill_bytes: float, flow: Flow) -> float | None:
    """t_full from now: when memory reaches its fill if nothing moves; None if it never does.

    >>> full_us(300e6, 600e6, Flow(6e6))
    50000000.0
    """
    if held_bytes >= fill_bytes:
        return 0.0
    if flow.arriving_bytes_s <= 0:
        return None
    return (fill_bytes - held_bytes) / flow.arriving_bytes_s * 1e6


def stays_bytes(held_bytes: float, moved_bytes: float, flow: Flow) -> float:
    """B(t'): what is in memory when a move that begins now has ended. Rows that arrive meanwhile
    are not moved by it.

    >>> stays_bytes(100e6, 60e6, Flow(10e6, move_s=2.0))
    60000000.0
    """
    return _taken(held_bytes, moved_bytes, flow) + flow.arriving_bytes_s * flow.move_s


def stays_after(
    held_bytes: float, moved_bytes: float, period_s: float, periods: int, flow: Flow
) -> float:
    """Eq. 4: what is in memory after a move of ``moved_bytes`` now and another at the end of each
    of some periods: B + λt - (t/p + 1)·k with t = periods·p, and never less than nothing.

    >>> stays_after(0, 50e6, 10.0, 3, Flow(6e6))  # a move takes less than what arrives
    30000000.0
    >>> stays_after(100e6, 10e6, 10.0, 3, Flow(6e6))  # 100 + 3·60 - 4·10
    240000000.0
    """
    left = _taken(held_bytes, moved_bytes, flow)
    for _ in range(min(periods, PERIODS_MAX)):
        left = _taken(left + flow.arriving_bytes_s * period_s, moved_bytes, flow)
    return left


def moves_until_full(
    held_bytes: float, moved_bytes: float, period_s: float, fill_bytes: float, flow: Flow
) -> int | None:
    """After how many moves of that size, a period apart, memory is full before the next one; None
    if it goes on for longer than anybody plans.

    >>> moves_until_full(100e6, 10e6, 10.0, 300e6, Flow(6e6))
    4
    >>> moves_until_full(100e6, 60e6, 10.0, 300e6, Flow(6e6))
    """
    arriving = flow.arriving_bytes_s * period_s
    left = _taken(held_bytes, moved_bytes, flow)
    if arriving <= moved_bytes * flow.move_factor:
        return 1 if left + arriving >= fill_bytes else None
    for moves in range(1, PERIODS_MAX + 1):
        if left + arriving >= fill_bytes:
            return moves
        left = _taken(left + arriving, moved_bytes, flow)
    return None


def _taken(held_bytes: float, moved_bytes: float, flow: Flow) -> float:
    """What a move of k leaves: it frees k·c_k(k), and never more than there is."""
    return max(held_bytes - moved_bytes * flow.move_factor, 0.0)
