"""When to move rows from memory to history, and how many: the policies of document 000 §IV-C.

A move is worth its cost when it takes enough, and harmful when it takes rows that queries are
about to read. With arrival rate λ, memory b and fill θ_b(λ) (``estimates``):

1. **periodic**: move at min(p, t_full): every p, or when memory reaches θ_b·b. It takes all that
   is older than the table's ``hot``.
2. **adaptive**: keeps what recent queries read besides: of their windows, by time and by count,
   those for which memory has room by Eq. 4, the one that covers most of them; unless files are
   measured to cost a query no more than memory. It moves at t_full already when a move would just
   end before memory is full, and later than p when moves follow each other too closely.
3. **manual**: only FLUSH moves, and a memory that is full.

Whatever the policy, at θ_b the oldest rows go, however short ``hot`` is then cut: a full memory
would refuse new rows. Everything here is a pure function of what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidemill.pipeline.estimates import Flow, fill_share, full_us, stays_after

PERIODIC, ADAPTIVE, MANUAL = "periodic", "adaptive", "manual"
# Of the windows that recent queries read, this share is kept in memory.
WINDOW_SHARE = 0.95
# After a move that was forced by a full memory, this share of θ_b is left in use.
RELIEF = 0.5
# Windows may take this share of what memory can hold; the rest is for what arrives.
FIT_SHARE = 0.9
# Queries come a little later than the rows they ask for.
MARGIN = 1.1
# Adaptive moves may take this share of the time, as long as memory has room.
MOVE_SHARE_MAX = 0.05
# A move that shall end before memory is full begins this many times earlier than it must.
LEAD_TIMES = 2.0


@dataclass(frozen=True)
class Rules:
    """A table's settings for its mover."""

    policy: str
    period_us: int  # p
    fill_max: float  # the most that θ_b may be
    worth_bytes: int
    hot_us: int


@dataclass(frozen=True)
class Measured:
    """A table as the mover finds it."""

    now_us: int
    held_bytes: int  # B(t)
    memory_bytes: int  # b
    flow: Flow
    since_move_us: int
    held_rows: int = 0
    window_ages_us: Sequence[int] = ()  # how far back recent queries reached
    window_rows: Sequence[int] = ()  # how many of the newest rows others asked for
    memory_is_cheaper: bool = True  # c_b < c_h, as measured

    @property
    def row_bytes(self) -> float:
        return self.held_bytes / self.held_rows if self.held_rows else 0.0


@dataclass(frozen=True)
class Staying:
    """What stays in memory: rows of this age, and this many of the newest."""

    keep_us: int
    keep_rows: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """What is to stay, whether a move is due at all, and why."""

    kept: Staying
    is_due: bool
    is_forced: bool  # memory decides: ``release_bytes`` must go, whatever their age
    release_bytes: int
    fill_share: float  # θ_b
    full_us: float | None  # t_full
    why: str

    @property
    def reason(self) -> str:
        return "; ".join((self.why, *self.kept.reasons))


def choose(rules: Rules, measured: Measured) -> Choice:
    """What the table's policy says now; whether it is worth it, ``is_worth`` says later."""
    share = fill_share(rules.fill_max, measured.memory_bytes, measured.flow)
    fill_bytes = share * measured.memory_bytes
    full = full_us(measured.held_bytes, fill_bytes, measured.flow)
    if measured.held_bytes >= fill_bytes:
        used = measured.held_bytes / max(measured.memory_bytes, 1)
        why = f"memory is filled to {100 * used:.0f} %, and {100 * share:.0f} % is the most"
        return Choice(Staying(0), True, True, _release(measured, fill_bytes), share, full, why)
    if rules.policy == MANUAL:
        return Choice(
            Staying(rules.hot_us), False, False, 0, share, full, "moves only when asked to"
        )
    is_due, why = _due(rules, measured, fill_bytes, full)
    return Choice(_keep(rules, measured, fill_bytes), is_due, False, 0, share, full, why)


def relieved(rules: Rules, measured: Measured) -> Choice:
    """A writer's batch does not fit, though the fill that forces a move is not reached: as much
    goes as then would, but half at least."""
    share = fill_share(rules.fill_max, measured.memory_bytes, measured.flow)
    release = _release(measured, share * measured.memory_bytes)
    release = max(release, measured.held_bytes // 2)
    return Choice(Staying(0), True, True, release, share, 0.0, "a writer waits for room")


def is_worth(rules: Rules, movable_bytes: int) -> str | None:
    """None if a move of so many bytes is worth it, else why not."""
    if movable_bytes >= rules.worth_bytes:
        return None
    return f"{movable_bytes:,} bytes are not worth a move, {rules.worth_bytes:,} would be"


def _release(measured: Measured, fill_bytes: float) -> int:
    """How much a forced move is to take: k·c_k(k) frees what is above ``RELIEF``."""
    spare = measured.held_bytes - RELIEF * fill_bytes
    return int(min(max(spare / measured.flow.move_factor, 0), measured.held_bytes))


def _due(
    rules: Rules, measured: Measured, fill_bytes: float, full: float | None
) -> tuple[bool, str]:
    flow, since_us = measured.flow, measured.since_move_us
    is_adaptive = rules.policy == ADAPTIVE
    if is_adaptive and full is not None and full <= LEAD_TIMES * flow.lead_s * 1e6:
        return True, f"memory would be full in {_s(full)}, and a move takes {_s(flow.move_s * 1e6)}"
    if since_us < rules.period_us:
        return False, f"the period of {_s(rules.period_us)} has not passed"
    apart_us = flow.move_s / MOVE_SHARE_MAX * 1e6 if flow.moves else 0.0
    passed = f"the period of {_s(rules.period_us)} has passed"
    if is_adaptive and since_us < apart_us and _has_room(rules, measured, fill_bytes):
        takes = f"a move takes {_s(flow.move_s * 1e6)}"
        return False, f"{passed}; postponed: {takes}, so that {_s(apart_us)} lie between two"
    return True, passed


def _has_room(rules: Rules, measured: Measured, fill_bytes: float) -> bool:
    """Eq. 4 with k = 0: whether memory holds what arrives in one more period."""
    held, period_s = measured.held_bytes, rules.period_us / 1e6
    return stays_after(held, 0, period_s, 1, measured.flow) < fill_bytes


def _keep(rules: Rules, measured: Measured, fill_bytes: float) -> Staying:
    ages, counts = measured.window_ages_us, measured.window_rows
    if rules.policy != ADAPTIVE or not (len(ages) or len(counts)):
        return Staying(rules.hot_us)
    if not measured.memory_is_cheaper:
        why = "rows in files cost queries no more than rows in memory"
        return Staying(rules.hot_us, 0, (why,))
    flow = measured.flow
    room = max(FIT_SHARE * fill_bytes - flow.arriving_bytes_s * flow.lead_s, 0.0)
    total = len(ages) + len(counts)
    age_us = _covering(ages, flow.arriving_bytes_s / 1e6, room, total)
    rows = _covering(counts, measured.row_bytes, room, total)
    reasons = []
    if age_us is not None and age_us > rules.hot_us:
        reasons.append(f"recent queries read the last {_s(age_us / MARGIN)}")
    if rows is not None:
        reasons.append(f"recent queries read the newest {rows / MARGIN:,.0f} rows")
    if age_us is None and rows is None:
        reasons.append("the windows of recent queries do not fit in memory")
    return Staying(max(rules.hot_us, int(age_us or 0)), int(rows or 0), tuple(reasons))


def _covering(
    windows: Sequence[int], bytes_each: float, room_bytes: float, total: int
) -> float | None:
    """Of some windows, of which a unit takes ``bytes_each``, those that fit, and of these the one
    that covers most; None if there is none, or if of all ``total`` windows they are too few to be
    a habit."""
    if len(windows) <= (1 - WINDOW_SHARE) * total:
        return None
    wide = np.asarray(windows, dtype=np.float64) * MARGIN
    fitting = wide[wide * bytes_each <= room_bytes]
    return float(np.quantile(fitting, WINDOW_SHARE)) if len(fitting) else None


def _s(us: float) -> str:
    """
    >>> _s(400_000), _s(90_000_000)
    ('0.4 s', '90 s')
    """
    return f"{us / 1e6:.1f} s" if us < 10_000_000 and us % 1_000_000 else f"{us / 1e6:.0f} s"
