"""What the catalog knows, as frozen data: tables, indices, files, sources, one snapshot of all.

Views and the digests that keep them fresh are tables of kinds of their own.

Everything here may be pickled: Spark's tasks get tables and files by value. What an object
computes once and keeps is left out of the pickle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from tidemill.catalog.frozen import FrozenMap
from tidemill.config import TABLE_SETTINGS, Settings
from tidemill.errors import Position, UnknownNameError, did_you_mean
from tidemill.types import Column

STREAMING = "streaming"
REFERENCE = "reference"
VIEW = "view"
DIGEST = "digest"
NEXT_SUFFIX = "$next"  # of a view that is to replace another, until it is complete
TABLE_KINDS = (STREAMING, REFERENCE, VIEW, DIGEST)

FILE_ROWS = "rows"
FILE_DELETES = "deletes"
FILE_LATE = "late"
FILE_REJECTED = "rejected"
FILE_DIGEST = "digest"
FILE_KINDS = (FILE_ROWS, FILE_DELETES, FILE_LATE, FILE_REJECTED, FILE_DIGEST)
FILE_REPLACED = "replaced"  # rows that gave way before they were moved: no snapshot has them
ORIGINS = ("move", "load", "compact", "backfill", "seal", "change")

LOADED = "loaded"
SET_ASIDE = "set_aside"

Bound = str | int | float | bool | None
"""One end of a column's range in a file, as JSON can hold it."""


class _Plain:
    """A dataclass that travels with its fields only."""

    def __getstate__(self) -> dict[str, object]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Index:
    """A value index; ``method`` is 'ordered' or 'hash'."""

    index_id: int
    name: str
    table_id: int
    columns: tuple[str, ...]
    method: str
    unique: bool = False


@dataclass(frozen=True)
class NewTable:
    """A table to be made; what ``Table`` adds to it, the catalog gives.

    ``definition`` and ``source_id`` are as in ``Table``.
    """

    name: str
    kind: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    time_column: str | None = None
    watermark_delay_us: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    definition: str | None = None
    source_id: int | None = None


@dataclass(frozen=True)
class Table(_Plain):
    """A table as one snapshot sees it. ``table_id`` is never used twice.

    ``constraints`` holds what a reference table has besides its primary key, as SQL text.
    ``definition`` is JSON text whose meaning depends on the kind: a view's and a digest's always,
    a streaming table's if it keeps the answers of a continuous query. ``source_id`` is the stream
    whose rows a digest sums up; other kinds have none.
    """

    table_id: int
    name: str
    kind: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    time_column: str | None
    watermark_delay_us: int | None
    given_settings: Mapping[str, str]
    indexes: tuple[Index, ...]
    created_at_us: int
    constraints: tuple[str, ...] = ()
    definition: str | None = None
    source_id: int | None = None

    @property
    def is_streaming(self) -> bool:
        return self.kind == STREAMING

    @property
    def is_reference(self) -> bool:
        return self.kind == REFERENCE

    @property
    def is_view(self) -> bool:
        return self.kind == VIEW

    @property
    def is_digest(self) -> bool:
        return self.kind == DIGEST

    @cached_property
    def settings(self) -> Settings:
        return Settings(TABLE_SETTINGS, self.given_settings)

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([column.field for column in self.columns])

    def column(self, name: str) -> Column | None:
        """The column of that name, whatever its case."""
        return self._by_lower.get(name.lower())

    def get_column(self, name: str, position: Position | None = None) -> Column:
        """The column of that name, or an error that suggests the nearest."""
        column = self.column(name)
        if column is None:
            known = [column.name for column in self.columns]
            raise UnknownNameError(
                f'table "{self.name}" has no column "{name}"',
                hint=did_you_mean(name, known) or f"the columns are {', '.join(known[:50])}",
                position=position,
            )
        return column

    @cached_property
    def _by_lower(self) -> dict[str, Column]:
        return {column.name.lower(): column for column in self.columns}


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that a job wrote and that the catalog does not name yet.

    ``path`` is relative to the storage's root, with slashes. ``lo_us`` and ``hi_us`` are its
    partition, UTC, the end not included. ``ranges`` holds the least and the greatest value of
    columns for which they are known exactly. ``checksums`` are those of its blocks (see
    ``checksums``); files of older releases have none. ``changed`` is the number of the last change
    (UPDATE or DELETE) of the table up to which all were carried out in the file's rows.
    """

    path: str
    kind: str
    lo_us: int
    hi_us: int
    rows: int
    bytes: int
    row_groups: int
    time_min_us: int
    time_max_us: int
    seq_min: int
    seq_max: int
    origin: str
    ranges: Mapping[str, tuple[Bound, ...]] = FrozenMap()
    checksums: str | None = None
    changed: int = 0

    @property
    def is_rows(self) -> bool:
        """Whether it holds what the table is made of: a stream's rows, or a digest's partials."""
        return self.kind in (FILE_ROWS, FILE_DIGEST)


@dataclass(frozen=True, slots=True)
class DataFile(NewFile):
    """A file that the catalog names.

    ``generation`` is the one that its commit began in the partition; it grows with every commit
    that touches the partition.
    """

    file_id: int = 0
    table_id: int = 0
    generation: int = 0
    created_snapshot: int = 0

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it stands among a table's files."""
        return self.lo_us, self.generation, self.file_id

    @property
    def is_of_partition(self) -> bool:
        """Whether a partition's rows need it; late and rejected rows are kept beside."""
        return self.is_rows or self.is_deletes

    @property
    def is_deletes(self) -> bool:
        return self.kind == FILE_DELETES


@dataclass(frozen=True, slots=True)
class Reservation:
    """Sequence numbers, both ends included, that belong to a committed load."""

    first_seq: int
    last_seq: int
    created_snapshot: int


@dataclass(frozen=True, slots=True)
class Generation:
    """The generation of a span of time, whose end is not included."""

    lo_us: int
    hi_us: int
    number: int


@dataclass(frozen=True, slots=True)
class Partition:
    """The files of one time range, whose end is not included, in the order of their commits.

    Files whose ranges overlap are of one partition, which reaches from the first begin to the last
    end: a compaction that merges ranges, or a late row behind one, makes no second partition of
    the same time. So partitions of a table never overlap. The anchor is the files of the first
    commit, those of later ones are revisions of it. ``generation`` grows with every commit that
    touches the partition and is carried on when partitions are merged.
    """

    lo_us: int
    hi_us: int
    generation: int
    files: tuple[DataFile, ...]

    @classmethod
    def of(cls, files: Iterable[DataFile]) -> Partition:
        ordered = tuple(sorted(files, key=lambda file: file.file_id))
        if len(ordered) == 1:
            return cls(ordered[0].lo_us, ordered[0].hi_us, ordered[0].generation, ordered)
        return cls(
            min(file.lo_us for file in ordered),
            max(file.hi_us for file in ordered),
            max(file.generation for file in ordered),
            ordered,
        )

    @property
    def place(self) -> tuple[int, int]:
        return self.lo_us, self.hi_us

    def is_anchor(self, file: DataFile) -> bool:
        """Whether one of its files came with the first commit that is left."""
        return file.created_snapshot == self.files[0].created_snapshot

    @property
    def revisions(self) -> int:
        """How many files came after the anchor."""
        return sum(not self.is_anchor(file) for file in self.files)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files if each.is_rows)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.files if each.is_rows)


class _Files:
    """The files of a history that was made of partitions, put together when somebody asks.

    It gives way to the instance's own value, as a cached property does.
    """

    def __get__(self, history: History | None, _: type) -> tuple[DataFile, ...]:
        if history is None:
            return ()
        grouped = (each.files for each in (*history.partitions, *history.sides))
        every = chain(chain.from_iterable(grouped), history.deletes)
        files = tuple(sorted(every, key=lambda file: file.place))
        history.__dict__["files"] = files
        return files


_FILES: Any = _Files()


@dataclass(frozen=True)
class History(_Plain):
    """The files of one table in one snapshot.

    Rows of the hot tier up to ``moved_seq`` are in files. ``reserved_seq`` is the highest number
    ever set apart for loads, whether they were committed or not: it belongs to no snapshot.
    ``files`` are in the order of their partition's begin, generation and id. A history comes from
    its files or, after a commit, from its partitions: either gives the other.
    """

    table_id: int
    moved_seq: int = 0
    reserved_seq: int = field(default=0, compare=False)
    files: tuple[DataFile, ...] = _FILES
    reservations: tuple[Reservation, ...] = ()

    @cached_property
    def partitions(self) -> tuple[Partition, ...]:
        """The files of rows or partials, by spans of time that do not overlap."""
        return tuple(
            Partition.of(group) for group in overlapping(f for f in self.files if f.is_rows)
        )

    @cached_property
    def sides(self) -> tuple[Partition, ...]:
        """The files of late and rejected rows in the same way; their ranges are of arrival."""
        beside = (file for file in self.files if not file.is_of_partition)
        return tuple(Partition.of(group) for group in overlapping(beside))

    @cached_property
    def deletes(self) -> tuple[DataFile, ...]:
        """The files that take rows away, from as many partitions as their ranges reach into."""
        return tuple(file for file in self.files if file.is_deletes)

    @cached_property
    def rows(self) -> int:
        """Rows or partials in files; rows that files of deletes take away are counted, too."""
        return sum(each.rows for each in self.partitions)

    @cached_property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.partitions)


class Ranged(Protocol):
    """What has a range of time."""

    @property
    def lo_us(self) -> int: ...

    @property
    def hi_us(self) -> int: ...


Range = TypeVar("Range", bound=Ranged)


def overlapping(ranges: Iterable[Range]) -> list[list[Range]]:
    """Groups of ranges that overlap, directly or through others of their group, the oldest first;
    ranges that only touch do not."""
    groups: list[list[Range]] = []
    reach_us = 0
    for each in sorted(ranges, key=lambda each: each.lo_us):
        if groups and each.lo_us < reach_us:
            groups[-1].append(each)
            reach_us = max(reach_us, each.hi_us)
        else:
            groups.append([each])
            reach_us = each.hi_us
    return groups


@dataclass(frozen=True)
class Source:
    """Where packages of rows come from; ``every_us`` is how often to look, None for never."""

    source_id: int
    name: str
    table_id: int
    pattern: str
    format: str
    options: Mapping[str, str]
    every_us: int | None
    created_at_us: int


APPENDED = "append"


@dataclass(frozen=True)
class Package:
    """A file of rows that was loaded, or set aside for a reason.

    It is the same package again if name, size and digest are. ``source`` is the name of the
    source that found it, 'copy', or ``APPENDED`` for one whose rows went through memory and are
    counted there. ``replaced`` counts rows that gave way to its own.
    """

    name: str
    size: int
    digest: str
    state: str
    reason: str | None
    rows: int
    rejected: int
    late: int
    loaded_at_us: int
    source: str
    job_id: str
    replaced: int = 0


@dataclass(frozen=True)
class Snapshot(_Plain):
    """All tables at one commit. Names are compared without case, as SQL does.

    ``tables`` holds all kinds; what users are told of is in ``listed``.
    ``definition_id`` is the snapshot that last changed a definition: while it stays, plans do.
    """

    snapshot_id: int
    committed_at_us: int
    tables: Mapping[str, Table]
    histories: Mapping[int, History] = FrozenMap()
    sources: Mapping[str, Source] = FrozenMap()
    definition_id: int = 0

    def history(self, table_id: int) -> History:
        """The table's history; an empty one if there is none."""
        return self.histories.get(table_id) or History(table_id)

    def find_source(self, name: str) -> Source | None:
        return self.sources.get(name.lower())

    def find(self, name: str) -> Table | None:
        return self.tables.get(name.lower())

    def get(self, name: str, position: Position | None = None) -> Table:
        table = self.find(name)
        if table is None:
            known = [known.name for known in self.listed]
            raise UnknownNameError(
                f'table "{name}" does not exist',
                hint=did_you_mean(name, known) or "SHOW TABLES lists the tables",
                position=position,
            )
        return table

    def table(self, table_id: int) -> Table | None:
        """The table of that id, if it lives in this snapshot."""
        return self._by_id.get(table_id)

    @cached_property
    def listed(self) -> tuple[Table, ...]:
        """All tables but those that views have for themselves: their digests, and the view that
        waits to take the place of another."""
        return tuple(
            table
            for table in self.tables.values()
            if not table.is_digest and not (table.is_view and table.name.endswith(NEXT_SUFFIX))
        )

    @cached_property
    def views(self) -> tuple[Table, ...]:
        return tuple(table for table in self.tables.values() if table.is_view)

    def digests_of(self, table_id: int) -> tuple[Table, ...]:
        """The digests that sum up the rows of that stream."""
        return self._digests.get(table_id, ())

    @cached_property
    def _digests(self) -> dict[int, tuple[Table, ...]]:
        by_source: dict[int, tuple[Table, ...]] = {}
        for table in self.tables.values():
            if table.is_digest and table.source_id is not None:
                by_source[table.source_id] = (*by_source.get(table.source_id, ()), table)
        return by_source

    @cached_property
    def _by_id(self) -> dict[int, Table]:
        return {table.table_id: table for table in self.tables.values()}

    def find_index(self, name: str) -> Index | None:
        for table in self.tables.values():
            for index in table.indexes:
                if index.name.lower() == name.lower():
                    return index
        return None
