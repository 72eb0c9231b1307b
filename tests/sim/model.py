"""A streaming table as plain Python: what test_machine compares the warehouse with.

It knows the rules of accepting rows and nothing of blocks, logs, files, indices or threads: a move,
a compaction or a VACUUM changes nothing here. Rows outside the retention are not shown, exactly.
When they are dropped, it cannot know (whole blocks and partitions leave, not rows), so it takes
that over from the warehouse after checking that nothing left too early.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

V_MAX = 32_767
DELAY = timedelta(seconds=10)
NEVER = datetime.min
PACKAGE_SEQS = 1 << 30  # sequence numbers that a load sets apart for each package


@dataclass(frozen=True)
class Row:
    """A row as sent; ``v`` may be too large and ``ts`` missing."""

    ts: datetime | None
    k: int
    v: int | None
    name: str | None

    @property
    def is_bad(self) -> bool:
        return self.ts is None or (self.v is not None and self.v > V_MAX)

    @property
    def time(self) -> datetime:
        assert self.ts is not None
        return self.ts

    @property
    def key(self) -> tuple[datetime | None, int]:
        return self.ts, self.k

    @property
    def values(self) -> tuple[Any, ...]:
        return self.ts, self.k, self.v, self.name


class _Refused(Exception):
    """The batch is refused as a whole; the message is the error's code."""


@dataclass
class Table:
    """One streaming table. ``now`` is always the machine's clock."""

    has_key: bool
    has_watermark: bool
    settings: dict[str, str]
    indexes: set[str] = field(default_factory=set)
    rows: dict[int, Row] = field(default_factory=dict)  # held, by sequence number
    ever: dict[int, Row] = field(default_factory=dict)  # stored and not replaced
    # Rows set aside, as the warehouse shows them and the moment; counted, since they may be equal.
    late: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    rejected: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    aside_ever: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    counters: Counter[str] = field(default_factory=Counter)
    offsets: set[tuple[str, int]] = field(default_factory=set)
    newest: datetime | None = None
    watermark_seen: datetime = NEVER
    next_seq: int = 1
    packages: set[str] = field(default_factory=set)  # by name, those loaded
    # What readers saw at some moments, while the warehouse can still say so.
    moments: list[tuple[datetime, dict[int, Row]]] = field(default_factory=list)

    # -- time

    def moment(self, now: datetime) -> datetime | None:
        return self.newest if self.settings["clock"] == "event" else now

    def upper(self, now: datetime) -> datetime | None:
        """The newest time that RECENT believes; None for no bound."""
        if self.settings["clock"] == "event":
            return self.newest
        future = self.future
        return None if future is None else now + future

    @property
    def future(self) -> timedelta | None:
        return None if self.settings["max_future"] == "forever" else timedelta(hours=1)

    @property
    def retention(self) -> timedelta | None:
        return None if self.settings["retention"] == "forever" else timedelta(minutes=1)

    def watermark(self, now: datetime) -> datetime | None:
        moment = self.moment(now)
        if not self.has_watermark or moment is None:
            return None
        self.watermark_seen = max(self.watermark_seen, moment - DELAY)
        return self.watermark_seen

    # -- append

    def append(
        self, rows: list[Row], now: datetime, source: str | None = None, offset: int | None = None
    ) -> dict[str, Any] | str:
        """What AppendResult must say, or the code of the error with which the batch must fail."""
        try:
            return self._append(rows, now, source, offset)
        except _Refused as refused:
            return str(refused)

    def _append(
        self, rows: list[Row], now: datetime, source: str | None, offset: int | None
    ) -> dict[str, Any]:
        if source is not None and (source, offset) in self.offsets:
            return _result(len(rows), is_repeat=True)
        diverts = self.settings["rejected"] == "divert"
        good = [row for row in rows if not row.is_bad]
        rejects = [("bad", row.k) for row in rows if row.is_bad]
        if rejects and not diverts:
            raise _Refused("rows_rejected")
        kept, late, late_stored = self._sort_late(good, self.watermark(now), rejects)
        kept, replaced, ignored = self._sort_repeated(kept, rejects)
        self._believe(kept, now)
        for row in kept:
            self.rows[self.next_seq] = self.ever[self.next_seq] = row
            self.next_seq += 1
        for seq in replaced:
            del self.rows[seq], self.ever[seq]
        late_entries = Counter((*row.values, now) for row in late)
        rejected_entries = Counter((kind, k, now) for kind, k in rejects)
        self.late += late_entries
        self.rejected += rejected_entries
        self.aside_ever += late_entries + rejected_entries
        if source is not None and offset is not None:
            self.offsets.add((source, offset))
        rejected = len(rejects) + ignored
        self.counters.update(
            rows_in=len(rows),
            stored=len(kept),
            late=len(late),
            rejected=rejected,
            ignored=ignored,
            late_stored=late_stored,
            replaced=len(replaced),
        )
        return _result(
            len(rows),
            stored=len(kept),
            late=len(late),
            rejected=rejected,
            ignored=ignored,
            replaced=len(replaced),
        )

    def _sort_late(
        self, rows: list[Row], watermark: datetime | None, rejects: list[tuple[str, int]]
    ) -> tuple[list[Row], list[Row], int]:
        late = [row for row in rows if watermark is not None and row.time < watermark]
        if not late or self.settings["late"] == "accept":
            return rows, [], len(late)
        kept = [row for row in rows if watermark is not None and row.time >= watermark]
        if self.settings["late"] == "divert":
            return kept, late, 0
        if self.settings["rejected"] != "divert":
            raise _Refused("late_rows")
        rejects += [("late", row.k) for row in late]
        return kept, [], 0

    def _sort_repeated(
        self, rows: list[Row], rejects: list[tuple[str, int]]
    ) -> tuple[list[Row], list[int], int]:
        if not self.has_key:
            return rows, [], 0
        known = {row.key: seq for seq, row in self.rows.items()}
        if self.settings["on_conflict"] == "replace":
            replaced = []
            for seq, row in enumerate(rows, self.next_seq):
                if row.key in known:
                    replaced.append(known[row.key])
                known[row.key] = seq
            return rows, replaced, 0
        kept, repeated, seen = [], [], set(known)
        for row in rows:
            (repeated if row.key in seen else kept).append(row)
            seen.add(row.key)
        if not repeated or self.settings["on_conflict"] == "ignore":
            return kept, [], len(repeated)
        if self.settings["rejected"] != "divert":
            raise _Refused("duplicate_key")
        rejects += [("key", row.k) for row in repeated]
        return kept, [], 0

    def _believe(self, rows: list[Row], now: datetime) -> None:
        future = self.future
        times = [row.time for row in rows if future is None or row.time <= now + future]
        if times:
            self.newest = max(times) if self.newest is None else max(self.newest, *times)

    # -- load

    def load(
        self, packages: dict[str, list[Row]], now: datetime, is_strict: bool
    ) -> tuple[int, int, int, int] | str:
        """How many rows a load stores, rejects, how many packages are known already and how many
        are set aside; or the code of the error with which a strict one must fail."""
        first_seq = self.next_seq
        self.next_seq += PACKAGE_SEQS * len(packages)
        try:
            return self._load(packages, first_seq, now, is_strict)
        except _Refused as refused:
            return str(refused)

    def _load(
        self, packages: dict[str, list[Row]], first_seq: int, now: datetime, is_strict: bool
    ) -> tuple[int, int, int, int]:
        taken: dict[str, dict[int, Row]] = {}
        bad_rows: dict[str, Counter[tuple[Any, ...]]] = {}
        aside = 0
        fresh = [name for name in packages if name not in self.packages]
        for number, name in enumerate(packages):
            if name not in fresh:
                continue
            good = [row for row in packages[name] if not row.is_bad]
            bad = Counter(("bad", row.k, now) for row in packages[name] if row.is_bad)
            if bad and self.settings["rejected"] != "divert":
                if is_strict:
                    raise _Refused("rows_rejected")
                aside += 1
                continue
            taken[name] = dict(enumerate(good, first_seq + number * PACKAGE_SEQS))
            bad_rows[name] = bad
        rows, replaced, ignored = self._sort_loaded(taken, is_strict)
        aside += len(taken) - len(rows)
        self.packages |= rows.keys()
        rejects = Counter[tuple[Any, ...]]()
        for name in rows:
            rejects += bad_rows[name]
        stored = {seq: row for package in rows.values() for seq, row in package.items()}
        self.ever |= stored
        self.rows |= stored
        for seq in replaced:
            del self.rows[seq], self.ever[seq]
        self.rows = dict(sorted(self.rows.items()))
        self.rejected += rejects
        self.aside_ever += rejects
        rejected = rejects.total() + ignored
        self.counters.update(
            rows_in=len(stored) + rejected,
            stored=len(stored),
            rejected=rejected,
            replaced=len(replaced),
        )
        return len(stored), rejected, len(packages) - len(fresh), aside

    def _sort_loaded(
        self, taken: dict[str, dict[int, Row]], is_strict: bool
    ) -> tuple[dict[str, dict[int, Row]], list[int], int]:
        """What is left of packages when keys were compared: in order, first all that is there."""
        if not self.has_key:
            return taken, [], 0
        known = {row.key: seq for seq, row in self.rows.items()}
        kept: dict[str, dict[int, Row]] = {}
        replaced: list[int] = []
        ignored = 0
        for name, package in taken.items():
            fresh = dict(known)
            rows: dict[int, Row] = {}
            repeats = 0
            for seq, row in package.items():
                if row.key not in fresh:
                    fresh[row.key], rows[seq] = seq, row
                    continue
                repeats += 1
                if self.settings["on_conflict"] == "replace":
                    replaced.append(fresh[row.key])
                    fresh[row.key], rows[seq] = seq, row
            if repeats and self.settings["on_conflict"] == "reject":
                if is_strict:
                    raise _Refused("duplicate_key")
                continue
            ignored += repeats if self.settings["on_conflict"] == "ignore" else 0
            known, kept[name] = fresh, rows
        return kept, replaced, ignored

    # -- retention

    def shown(self, now: datetime) -> dict[int, Row]:
        """The rows inside the retention, which readers see and which may not have been dropped."""
        moment, retention = self.moment(now), self.retention
        if retention is None or moment is None:
            return dict(self.rows)
        return {seq: row for seq, row in self.rows.items() if row.time >= moment - retention}

    def check_aside(
        self, known: Counter[tuple[Any, ...]], found: Counter[tuple[Any, ...]], now: datetime
    ) -> None:
        """Rows set aside may only have gone after the retention, and may come back (a restart
        reads what the log still has) but not from nowhere."""
        retention = self.retention
        gone = known - found
        assert all(retention is not None and entry[-1] < now - retention for entry in gone)
        assert found <= self.aside_ever

    def restart(self) -> None:
        self.watermark_seen = NEVER


def _result(rows_in: int, **rest: int) -> dict[str, Any]:
    names = ("stored", "late", "rejected", "ignored", "replaced")
    counts = {name: rest.get(name, 0) for name in names}
    return {"rows_in": rows_in, **counts, "is_repeat": bool(rest.get("is_repeat", False))}
