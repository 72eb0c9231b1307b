"""Decisions: what the mover found, chose and expects, as ``tidemill.moves`` shows it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidemill.hot.table import HotTable
from tidemill.hot.view import HotView
from tidemill.pipeline.boundary import Boundary, oldest_us
from tidemill.pipeline.estimates import moves_until_full, stays_bytes
from tidemill.pipeline.measuring import FlowMeter
from tidemill.pipeline.policy import Choice, Measured, Rules

MOVED, WAITS, FAILED = "moved", "waits", "failed"
FULL_US_MAX = 2**62


@dataclass(frozen=True)
class Record:
    """One decision: what was done, why, and the estimates that it stands on."""

    table_name: str
    at_us: int
    policy: str
    action: str
    reason: str
    keep_us: int
    keep_rows: int
    rate_bytes_s: float  # λ
    fill: float
    fill_max: float  # θ_b
    full_in_us: int | None  # t_full
    move_us: int  # how long a move takes
    arrival_factor: float  # c_λ(λ)
    move_factor: float  # c_k(k)
    rows: int = 0
    bytes: int = 0
    upto_seq: int | None = None
    stays_bytes: int | None = None  # B(t'), estimated when the move began
    stays_from_us: int | None = None  # t'_b
    stayed_bytes: int | None = None  # what was in memory when it had ended
    job_id: str | None = None

    def saying(self, more: str) -> Record:
        return replace(self, reason=f"{self.reason}; {more}")


def rules_of(hot: HotTable) -> Rules:
    settings = hot.table.settings
    return Rules(
        settings["move"],
        settings["move_every"],
        settings["move_fill"],
        settings["move_min"],
        settings["hot"],
    )


def measure(hot: HotTable, meter: FlowMeter, now_us: int, since_move_us: int) -> Measured:
    """A table as it is now."""
    rows, held = hot.published.row_count, hot.nbytes
    return Measured(
        now_us,
        held,
        hot.table.settings["memory"],
        meter.flow(held / rows if rows else 0.0),
        since_move_us,
        rows,
        hot.windows.ages_us(now_us),
        hot.windows.row_counts(now_us),
        hot.costs.memory_is_cheaper,
    )


def record_of(name: str, rules: Rules, measured: Measured, choice: Choice) -> Record:
    """The record of a table that waits; a move that begins adds to it."""
    flow, kept = measured.flow, choice.kept
    return Record(
        name,
        measured.now_us,
        rules.policy,
        WAITS,
        choice.reason,
        kept.keep_us,
        kept.keep_rows,
        flow.rate_bytes_s,
        measured.held_bytes / max(measured.memory_bytes, 1),
        choice.fill_share,
        None if choice.full_us is None else int(min(choice.full_us, FULL_US_MAX)),
        int(flow.move_s * 1e6),
        flow.arrival_factor,
        flow.move_factor,
    )


def planned(
    record: Record, rules: Rules, measured: Measured, view: HotView, boundary: Boundary
) -> Record:
    """The record of a move that is about to begin: what it takes, and what is to stay."""
    held, flow, period_s = measured.held_bytes, measured.flow, rules.period_us / 1e6
    fill_bytes = record.fill_max * measured.memory_bytes
    moves = moves_until_full(held, boundary.bytes, period_s, fill_bytes, flow)
    if moves is not None:
        word = "period" if moves == 1 else "periods"
        record = record.saying(f"memory would be full within {moves} {word} of such moves")
    return replace(
        record,
        rows=boundary.rows,
        bytes=boundary.bytes,
        upto_seq=boundary.upto_seq,
        move_factor=flow.move_factor,
        stays_bytes=int(stays_bytes(held, boundary.bytes, flow)),
        stays_from_us=oldest_us(view, boundary.upto_seq),
    )
