"""Where system tables come from: the rooms' present state, asked for by calls.

Jobs, moves and sources belong to the pipeline, which this room does not know: it takes whatever
has the attributes named here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.accept.bounds import TIME_US_MAX, TIME_US_MIN
from tidemill.catalog.model import Package, Snapshot, Table
from tidemill.clock import Clock
from tidemill.config import Settings
from tidemill.executions import Execution
from tidemill.federation.system.fields import schema
from tidemill.hot.table import HotTable
from tidemill.stream.image import Image

_INT_MAX = 2**63 - 1

Counted = tuple[str, str, int, int, int, int, int]
"""The fields of a ``PackageCount``."""


class JobLike(Protocol):
    """A job on the board of jobs."""

    @property
    def job_id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def table_name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def planned_at_us(self) -> int: ...
    @property
    def started_at_us(self) -> int | None: ...
    @property
    def ended_at_us(self) -> int | None: ...
    @property
    def tasks(self) -> int: ...
    @property
    def tasks_done(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def files(self) -> int: ...
    @property
    def error(self) -> str | None: ...
    @property
    def detail(self) -> str | None: ...
    @property
    def ran_on(self) -> str | None: ...


class MoveLike(Protocol):
    """A decision of the mover."""

    @property
    def table_name(self) -> str: ...
    @property
    def at_us(self) -> int: ...
    @property
    def policy(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def keep_us(self) -> int: ...
    @property
    def keep_rows(self) -> int: ...
    @property
    def rate_bytes_s(self) -> float: ...
    @property
    def fill(self) -> float: ...
    @property
    def fill_max(self) -> float: ...
    @property
    def full_in_us(self) -> int | None: ...
    @property
    def move_us(self) -> int: ...
    @property
    def arrival_factor(self) -> float: ...
    @property
    def move_factor(self) -> float: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def upto_seq(self) -> int | None: ...
    @property
    def stays_bytes(self) -> int | None: ...
    @property
    def stays_from_us(self) -> int | None: ...
    @property
    def stayed_bytes(self) -> int | None: ...
    @property
    def job_id(self) -> str | None: ...


class SourceState(Protocol):
    """What whoever watches a source knows of it."""

    @property
    def looked_at_us(self) -> int | None: ...
    @property
    def last_error(self) -> str | None: ...


class PackageCount(NamedTuple):
    """How many packages a source has in a state, and the sums of their rows."""

    source: str
    state: str
    packages: int
    rows: int
    rejected: int
    late: int
    replaced: int


def count_packages(packages: Iterable[Package]) -> list[PackageCount]:
    """What the catalog can also count by itself."""
    counts: dict[tuple[str, str], list[int]] = {}
    for each in packages:
        sums = counts.setdefault((each.source, each.state), [0, 0, 0, 0, 0])
        for at, number in enumerate((1, each.rows, each.rejected, each.late, each.replaced)):
            sums[at] += number
    return [PackageCount(*key, *sums) for key, sums in counts.items()]


class ContributedRows:
    """The rows of a system table that several rooms know of, each its own."""

    def __init__(self) -> None:
        self._calls: tuple[Callable[[], Iterable[Mapping[str, Any]]], ...] = ()

    def add(self, call: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        self._calls = (*self._calls, call)

    def __call__(self) -> list[Mapping[str, Any]]:
        return [row for call in self._calls for row in call()]


CountRows = Callable[[Image], int]
"""Counts the rows of an image that are in files."""


@dataclass(frozen=True)
class Rooms:
    """What system tables are made of; see ``SystemTables`` for what the calls answer."""

    snapshot: Callable[[], Snapshot]
    hot: Mapping[int, HotTable]
    reference_rows: Callable[[int], int]
    settings: Settings
    jobs: Callable[[], Iterable[JobLike]]
    moves: Callable[[], Iterable[MoveLike]]
    packages: Callable[[int], Iterable[Package]]
    package_counts: Callable[[int], Iterable[Counted]]
    sources_state: Callable[[], Mapping[str, SourceState]]
    snapshots: Callable[[], Iterable[tuple[int, int]]]
    live_rows: CountRows
    clock: Clock
    views: Callable[[], Iterable[Mapping[str, Any]]] = tuple
    spark: Callable[[], Iterable[Mapping[str, Any]]] = tuple
    queries: Callable[[], Iterable[Execution]] = tuple
    costs: Callable[[], Iterable[Mapping[str, Any]]] = tuple

    def tables(self) -> list[Table]:
        """All tables and views by name."""
        return sorted(self.snapshot().listed, key=lambda table: table.name.lower())

    def counts(self, table_id: int) -> list[PackageCount]:
        return [PackageCount(*count) for count in self.package_counts(table_id)]


def make_table(name: str, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    """A system table of columns; times and lengths are microseconds."""
    made = schema(name)
    return pa.Table.from_arrays(
        [_array(columns[each.name], each.type) for each in made], schema=made
    )


def make_table_of_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A small system table of rows; a column that a row does not name is NULL."""
    return make_table(name, {each: [row.get(each) for row in rows] for each in schema(name).names})


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return _between(values, TIME_US_MIN, TIME_US_MAX).cast(kind)
    if pa.types.is_duration(kind):
        return _between(values, -_INT_MAX, _INT_MAX).cast(kind)
    return pa.array(values, kind)


def _between(values: Sequence[int | None], low: int, high: int) -> pa.Array:
    """Numbers, or the nearest bound. A partition may begin before the year 1 or end after 9999:
    times that Python does not know, and some that DuckDB breaks down on."""
    try:
        numbers = pa.array(values, pa.int64())
    except OverflowError:
        numbers = pa.array([v if v is None else min(max(v, low), high) for v in values], pa.int64())
    raised = pc.max_element_wise(numbers, low, skip_nulls=False)
    return pc.min_element_wise(raised, high, skip_nulls=False)
