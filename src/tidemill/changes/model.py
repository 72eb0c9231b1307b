"""Changes: updates and deletes of streams, as data.

A change says what becomes of rows that arrived before it. It is a *form* (what is compared, what is
set: the same for a thousand statements that differ in their values) and *corrections*, the values
of one or many of them. It stands in the table's log and, once that goes, in the catalog; nothing is
rewritten when it is made.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import ormsgpack
import pyarrow as pa

from tidemill.changes.domains import Domain
from tidemill.types import SqlType

UPDATE, DELETE = "update", "delete"

Text: TypeAlias = tuple[str | int, ...]
"""SQL in pieces. A number stands for the value of that slot; the row's columns are r."name"."""

Correction: TypeAlias = tuple[object, ...]
"""The values of a form's slots: plain ones, times in microseconds and dates in days."""

Spans: TypeAlias = tuple[tuple[int, int], ...]

EVER_US = 2**63 - 1


@dataclass(frozen=True)
class ChangeForm:
    """What changes have in common that differ in values alone.

    ``types`` are the SQL types of the slots. A row is meant if each column of ``keys`` equals its
    slot and ``condition`` holds (empty: always). ``sets`` are the columns that an update gives new
    values, and these; they are of the row before the change, as in SQL. ``reads`` are the columns
    that all of this looks at. ``bounds`` compare the time column with slots, so that the span of
    time that is meant follows from the values; with ``is_span`` nothing else is compared.

    What the condition says of single columns is known besides, for those who ask whether a change
    can concern them: ``compared`` are comparisons with slots, ``within`` the values that constants
    in it leave."""

    kind: str
    types: tuple[str, ...] = ()
    keys: tuple[tuple[str, int], ...] = ()
    condition: Text = ()
    sets: tuple[tuple[str, Text], ...] = ()
    reads: frozenset[str] = frozenset()
    bounds: tuple[tuple[str, int], ...] = ()
    is_span: bool = False
    compared: tuple[tuple[str, str, int], ...] = ()
    within: tuple[tuple[str, Domain], ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Forms are looked up by the thousand."""
        return hash((self.kind, self.types, self.keys, self.condition, self.sets, self.bounds))

    @cached_property
    def fields(self) -> list[Any]:
        """As msgpack takes it."""
        return [
            self.kind,
            self.types,
            self.keys,
            self.condition,
            self.sets,
            sorted(self.reads),
            self.bounds,
            self.is_span,
            self.compared,
            [(name, domain.ranges, domain.has_null) for name, domain in self.within],
        ]

    @cached_property
    def schema(self) -> pa.Schema:
        """Of corrections as Arrow."""
        return pa.schema([(f"s{at}", SqlType(name).arrow) for at, name in enumerate(self.types)])

    @property
    def writes(self) -> frozenset[str]:
        """The columns that are set; none by a delete, which takes the whole row."""
        return frozenset(name for name, _ in self.sets)


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """One UPDATE or DELETE of a stream.

    It is the ``number``-th of its table, and applies to rows with numbers up to ``upto_seq``,
    except those ``spared``: of loads that were not committed when it was made. ``low_us`` and
    ``high_us`` are the span of time of the rows that are meant, both ends included."""

    number: int
    upto_seq: int
    at_us: int
    form: ChangeForm
    rows: tuple[Correction, ...] = ()
    batch: pa.RecordBatch | None = None
    low_us: int = -EVER_US
    high_us: int = EVER_US
    spared: Spans = ()

    @property
    def count(self) -> int:
        """How many corrections it has."""
        return len(self.rows) if self.batch is None else int(self.batch.num_rows)

    @property
    def nbytes(self) -> int:
        """About what it holds in memory."""
        own = 200 + 60 * len(self.form.types) * len(self.rows)
        return own + (0 if self.batch is None else int(self.batch.nbytes))


def span_of(form: ChangeForm, rows: Iterable[Correction]) -> tuple[int, int]:
    """The span of time that corrections mean, by their slots."""
    if not form.bounds:
        return -EVER_US, EVER_US
    low, high = EVER_US, -EVER_US
    for row in rows:
        own_low, own_high = -EVER_US, EVER_US
        for op, slot in form.bounds:
            value = row[slot]
            if not isinstance(value, int):  # NULL: nothing is meant
                own_low, own_high = EVER_US, -EVER_US
                continue
            if op in ("=", ">", ">="):
                own_low = max(own_low, value + (op == ">"))
            if op in ("=", "<", "<="):
                own_high = min(own_high, value - (op == "<"))
        if own_low <= own_high:
            low, high = min(low, own_low), max(high, own_high)
    return low, high


def plain_rows_of(form: ChangeForm, batch: pa.RecordBatch) -> list[Correction]:
    """The slots of a batch that bounds look at, as plain values; the others are left out."""
    if not form.bounds:
        return []
    slots = {slot for _, slot in form.bounds}
    columns = [
        batch.column(at).cast(pa.int64()).to_pylist() if at in slots else [None] * batch.num_rows
        for at in range(len(form.types))
    ]
    return list(zip(*columns, strict=True))


# -- as bytes


def form_of(fields: Sequence[Any]) -> ChangeForm:
    """The form from its fields."""
    kind, types, keys, condition, sets, reads, bounds, is_span, *known = fields
    compared, within = known or ((), ())  # of a log that is older than these
    return ChangeForm(
        kind,
        tuple(types),
        _pairs(keys),
        tuple(condition),
        tuple((name, tuple(text)) for name, text in sets),
        frozenset(reads),
        _pairs(bounds),
        is_span,
        tuple((name, op, slot) for name, op, slot in compared),
        tuple(
            (name, Domain(tuple(tuple(span) for span in ranges), has_null))
            for name, ranges, has_null in within
        ),
    )


def _pairs(fields: Iterable[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple((first, second) for first, second in fields)


def pack(changes: Sequence[Change]) -> str:
    """Changes as a text, for the catalog."""
    forms: dict[ChangeForm, int] = {}
    found = []
    for change in changes:
        at = forms.setdefault(change.form, len(forms))
        found.append(_change_fields(change, at))
    packed = ormsgpack.packb([[form.fields for form in forms], found])
    return base64.b64encode(zlib.compress(packed, 1)).decode()


def unpack(text: str) -> tuple[Change, ...]:
    """The changes of a text."""
    forms, found = ormsgpack.unpackb(zlib.decompress(base64.b64decode(text)))
    known = [form_of(each) for each in forms]
    return tuple(_change_of(fields, known) for fields in found)


def _change_fields(change: Change, form: int) -> list[Any]:
    batch = None
    if change.batch is not None:
        batch = change.batch.serialize().to_pybytes()
    return [
        change.number,
        change.upto_seq,
        change.at_us,
        form,
        change.rows,
        batch,
        change.low_us,
        change.high_us,
        change.spared,
    ]


def _change_of(fields: Sequence[Any], forms: Sequence[ChangeForm]) -> Change:
    number, upto_seq, at_us, form, rows, batch, low_us, high_us, spared = fields
    own = forms[form]
    return Change(
        number,
        upto_seq,
        at_us,
        own,
        tuple([tuple(row) for row in rows]),
        None if batch is None else pa.ipc.read_record_batch(pa.py_buffer(batch), own.schema),
        low_us,
        high_us,
        _pairs(spared),
    )


def change_fields(change: Change) -> Mapping[str, Any]:
    """What a frame of the log says of a change, beside its place and its batch."""
    return {
        "c": change.number,
        "a": change.at_us,
        "f": change.form.fields,
        "o": change.rows,
        "l": change.low_us,
        "h": change.high_us,
        "e": change.spared,
    }


def whole_fields(change: Change) -> Mapping[str, Any]:
    """The same with its batch."""
    if change.batch is None:
        return change_fields(change)
    return {**change_fields(change), "b": change.batch.serialize().to_pybytes()}


def change_of(fields: Mapping[str, Any], upto_seq: int, batch: pa.Buffer | None = None) -> Change:
    """The change that a frame tells of."""
    form = form_of(fields["f"])
    if batch is None and "b" in fields:
        batch = pa.py_buffer(fields["b"])
    return Change(
        fields["c"],
        upto_seq,
        fields["a"],
        form,
        tuple([tuple(row) for row in fields["o"]]),
        None if batch is None else pa.ipc.read_record_batch(batch, form.schema),
        fields["l"],
        fields["h"],
        _pairs(fields["e"]),
    )
