"""What became of the rows that a table was given, since it was made."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tidemill.hot.unit import Unit


@dataclass
class Counters:
    """rows_in = stored + late + rejected, always.

    The rest are parts of these: ``ignored`` of rejected (repeated keys that on_conflict = 'ignore'
    dropped), ``late_stored`` and ``replaced`` of stored."""

    rows_in: int = 0
    stored: int = 0
    late: int = 0
    rejected: int = 0
    ignored: int = 0
    late_stored: int = 0
    replaced: int = 0

    def add(self, unit: Unit, ignored: int, late_stored: int) -> None:
        late = unit.late.num_rows if unit.late is not None else 0
        rejected = ignored + (unit.rejected.num_rows if unit.rejected is not None else 0)
        self.rows_in += unit.row_count + late + rejected
        self.stored += unit.row_count
        self.late += late
        self.rejected += rejected
        self.ignored += ignored
        self.late_stored += late_stored
        self.replaced += len(unit.replaced)

    def dump(self) -> dict[str, int]:
        return asdict(self)
