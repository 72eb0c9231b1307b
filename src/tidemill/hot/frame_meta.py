"""The meta of a frame: what a frame of the log says beside its rows, as a type and as bytes.

The header of a frame tells its *kind*, and each kind has one type of meta here:

- ``BATCH``: an append whose rows are Arrow record batches, in sections (``AppendMeta``);
- ``ROWS``: an append of single rows, which stand in the meta itself (``AppendMeta.rows``);
- ``STATE``: the first frame of a segment, the table's state before it (``TableState``);
- ``CHANGE``: an UPDATE or DELETE of the rows before it (``ChangeMeta``).

A further kind is a member of ``FrameKind``, a type with a ``kind``, and a pair of functions in
``encode_meta`` and ``decode_meta``; nobody else knows the bytes. These are msgpack with short keys,
since single rows carry them too. Whoever reads a kind that it does not know stops: nothing may be
left out of a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, TypeAlias

import ormsgpack
import pyarrow as pa

from tidemill.catalog.model import Package
from tidemill.changes.model import Change, change_fields, change_of
from tidemill.errors import CorruptLogError
from tidemill.hot.counters import Counters
from tidemill.hot.offsets import SourceOffsets

Row: TypeAlias = tuple[object, ...]


class FrameKind(IntEnum):
    """What a frame is about; the number stands in its header."""

    BATCH = 1
    ROWS = 2
    STATE = 3
    CHANGE = 4


@dataclass(frozen=True, slots=True)
class AppendMeta:
    """One append: what it did, and the rows of one that came row by row.

    ``newest_us`` is the newest time to be believed once its rows are in. ``replaced`` are the
    sequence numbers of rows that gave way to its own. ``at_us`` is when it was written; logs of
    early versions do not say. ``changes`` are what it updates and deletes before its rows come: a
    MERGE is one frame, and so is an UPDATE of times or keys."""

    newest_us: int | None
    at_us: int | None
    ignored: int = 0
    late_stored: int = 0
    replaced: tuple[int, ...] = ()
    source: str | None = None
    offset: int | None = None
    packages: tuple[Package, ...] = ()
    rows: tuple[Row, ...] = ()
    changes: tuple[Mapping[str, Any], ...] = ()

    @property
    def kind(self) -> FrameKind:
        return FrameKind.ROWS if self.rows else FrameKind.BATCH


@dataclass(frozen=True, slots=True)
class TableState:
    """A table before the first append of a segment: all that the frames behind it do not say.

    ``schema`` is in Arrow's own form. ``boot_id`` is the run of the machine that wrote the segment,
    empty where that is not known."""

    table_id: int
    schema: bytes
    counters: Counters
    newest_us: int | None
    offsets: Mapping[str, SourceOffsets] = field(default_factory=dict)
    moved_seq: int = 0
    boot_id: str = ""
    last_change: int = 0

    @property
    def kind(self) -> FrameKind:
        return FrameKind.STATE


@dataclass(frozen=True, slots=True)
class ChangeMeta:
    """A change as its frame tells of it: it applies to the rows before the frame, and many
    corrections stand behind the meta, as a batch."""

    fields: Mapping[str, Any]
    source: str | None = None
    offset: int | None = None

    @classmethod
    def of(cls, change: Change, source: str | None, offset: int | None) -> ChangeMeta:
        return cls(change_fields(change), source, offset)

    def change(self, upto_seq: int, batch: pa.Buffer | None) -> Change:
        return change_of(self.fields, upto_seq, batch)

    @property
    def kind(self) -> FrameKind:
        return FrameKind.CHANGE


FrameMeta: TypeAlias = AppendMeta | TableState | ChangeMeta


@dataclass(frozen=True, slots=True)
class SectionSize:
    """A section behind the meta: what it holds, and its bytes without padding."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """A meta as read, with the sections that follow it."""

    meta: FrameMeta
    sections: tuple[SectionSize, ...] = ()


def encode_meta(meta: FrameMeta, sections: Iterable[SectionSize] = ()) -> bytes:
    """The bytes of a meta."""
    if isinstance(meta, TableState):
        fields = _state_fields(meta)
    elif isinstance(meta, ChangeMeta):
        fields = {**meta.fields, "s": meta.source, "i": meta.offset}
    elif meta.rows:
        return encode_rows_meta(meta.rows, meta.newest_us, meta.at_us)
    else:
        fields = _append_fields(meta)
    fields["x"] = [(section.name, section.size) for section in sections]
    return ormsgpack.packb(fields)


def encode_rows_meta(rows: tuple[Row, ...], newest_us: int | None, at_us: int | None) -> bytes:
    """The same for single rows, without the object in between: they come by the million."""
    return ormsgpack.packb({"n": newest_us, "a": at_us, "o": rows})


def decode_meta(kind: int, data: memoryview) -> Decoded:
    """A meta and its sections, of a frame whose checksum was right."""
    fields = ormsgpack.unpackb(data)
    if kind == FrameKind.ROWS:
        rows = tuple([tuple(row) for row in fields["o"]])
        return Decoded(AppendMeta(fields["n"], fields.get("a"), rows=rows))
    sections = tuple(SectionSize(name, size) for name, size in fields.get("x", ()))
    if kind == FrameKind.BATCH:
        return Decoded(_append_of(fields), sections)
    if kind == FrameKind.STATE:
        return Decoded(_state_of(fields), sections)
    if kind == FrameKind.CHANGE:
        return Decoded(ChangeMeta(fields, fields["s"], fields["i"]), sections)
    raise CorruptLogError(
        f"a frame of the log is of kind {kind}, which this version does not know",
        hint="open the warehouse with the version that wrote it, or a later one",
    )


def _append_fields(meta: AppendMeta) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "n": meta.newest_us,
        "g": meta.ignored,
        "k": meta.late_stored,
        "p": meta.replaced,
        "s": meta.source,
        "f": meta.offset,
        "a": meta.at_us,
    }
    if meta.packages:
        fields["l"] = [asdict(package) for package in meta.packages]
    if meta.changes:
        fields["c"] = meta.changes
    return fields


def _append_of(fields: Mapping[str, Any]) -> AppendMeta:
    return AppendMeta(
        fields["n"],
        fields.get("a"),
        fields["g"],
        fields["k"],
        tuple(fields["p"]),
        fields["s"],
        fields["f"],
        tuple([Package(**package) for package in fields.get("l", ())]),
        changes=_changes_of(fields.get("c", ())),
    )


def _changes_of(fields: Any) -> tuple[Mapping[str, Any], ...]:
    """Early versions had one at most, by itself."""
    return (fields,) if isinstance(fields, Mapping) else tuple(fields)


def _state_fields(state: TableState) -> dict[str, Any]:
    fields = {
        "table": state.table_id,
        "schema": state.schema,
        "counters": state.counters.dump(),
        "n": state.newest_us,
        "offsets": {
            source: (known.floor, known.lows, known.highs)
            for source, known in state.offsets.items()
        },
        "moved": state.moved_seq,
        "boot": state.boot_id,
    }
    return {**fields, "change": state.last_change} if state.last_change else fields


def _state_of(fields: Mapping[str, Any]) -> TableState:
    return TableState(
        fields["table"],
        fields["schema"],
        Counters(**fields["counters"]),
        fields["n"],
        {
            source: SourceOffsets(floor, tuple(lows), tuple(highs))
            for source, (floor, lows, highs) in fields["offsets"].items()
        },
        fields.get("moved", 0),
        fields.get("boot", ""),
        fields.get("change", 0),
    )
