"""The state that system tables are made of: asked for by calls, when a table is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tidemill.catalog.model import Package, Snapshot, Table
from tidemill.clock import Clock, WallClock
from tidemill.config import Settings
from tidemill.executions import Execution
from tidemill.hot.table import HotTable
from tidemill.pipeline.board import JobRecord
from tidemill.pipeline.decisions import Record
from tidemill.pipeline.sources import SourceStatus
from tidemill.stream.counting import estimated_rows
from tidemill.stream.image import Image
from tidemill.system.arrow import Row


@dataclass(frozen=True)
class PackageCount:
    """How many packages a source has in a state, and the sums of their rows."""

    source: str
    state: str
    packages: int
    rows: int
    rejected: int
    late: int
    replaced: int


def count_packages(packages: Iterable[Package]) -> list[PackageCount]:
    counts: dict[tuple[str, str], list[int]] = {}
    for each in packages:
        sums = counts.setdefault((each.source, each.state), [0, 0, 0, 0, 0])
        for at, number in enumerate((1, each.rows, each.rejected, each.late, each.replaced)):
            sums[at] += number
    return [PackageCount(*key, *sums) for key, sums in counts.items()]


class ContributedRows:
    """The rows of a system table that several rooms know of, each its own."""

    def __init__(self) -> None:
        self._calls: tuple[Callable[[], Iterable[Row]], ...] = ()

    def add(self, call: Callable[[], Iterable[Row]]) -> None:
        self._calls = (*self._calls, call)

    def __call__(self) -> list[Row]:
        return [row for call in self._calls for row in call()]


@dataclass(frozen=True)
class State:
    """What system tables are made of.

    ``reference_rows`` counts the rows of a reference table, ``live_rows`` those of an image that
    are in files; ``counting.LiveRows`` does so exactly. ``sources_state`` is keyed by the source's
    name in lower case. ``snapshots`` gives (id, when committed), newest first. ``views``, ``spark``
    and ``costs`` give the rows of the tables of those names, ``queries`` what is running."""

    snapshot: Callable[[], Snapshot]
    hot: Mapping[int, HotTable]
    reference_rows: Callable[[int], int]
    settings: Settings
    jobs: Callable[[], Iterable[JobRecord]] = tuple
    moves: Callable[[], Iterable[Record]] = tuple
    packages: Callable[[int], Iterable[Package]] = lambda table_id: ()
    sources_state: Callable[[], Mapping[str, SourceStatus]] = dict
    snapshots: Callable[[], Iterable[tuple[int, int]]] = tuple
    live_rows: Callable[[Image], int] = estimated_rows
    clock: Clock = field(default_factory=WallClock)
    views: Callable[[], Iterable[Row]] = tuple
    spark: Callable[[], Iterable[Row]] = tuple
    queries: Callable[[], Iterable[Execution]] = tuple
    costs: Callable[[], Iterable[Row]] = tuple

    def tables(self) -> list[Table]:
        """All tables and views by name."""
        return sorted(self.snapshot().listed, key=lambda table: table.name.lower())

    def counts(self, table_id: int) -> list[PackageCount]:
        return count_packages(self.packages(table_id))
