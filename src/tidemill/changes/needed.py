"""What a reader needs of a table: which columns it looks at, and which rows can matter to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from tidemill.changes.domains import ANY, RANGES_MAX, Domain, listed
from tidemill.changes.model import EVER_US, ChangeForm


@dataclass(frozen=True)
class Needed:
    """Columns (in lower case; None: all), a span of time with both ends, and of some columns the
    values that rows must have to matter."""

    columns: frozenset[str] | None = None
    low_us: int = -EVER_US
    high_us: int = EVER_US
    domains: Mapping[str, Domain] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        columns: Iterable[str] | None,
        low_us: int | None = None,
        high_us: int | None = None,
        domains: Mapping[str, Domain] | None = None,
    ) -> Needed:
        return cls(
            None if columns is None else frozenset(name.lower() for name in columns),
            -EVER_US if low_us is None else low_us,
            EVER_US if high_us is None else high_us,
            {name.lower(): found for name, found in (domains or {}).items() if not found.is_any},
        )

    @classmethod
    def of_keys(
        cls, batch: pa.RecordBatch, names: Sequence[str], time_column: str | None
    ) -> Needed:
        """Which rows there are with the keys of a batch."""
        low_us = high_us = None
        domains: dict[str, Domain] = {}
        for name in names:
            column = batch.column(name)
            if name == time_column:
                ends = pc.min_max(column.cast(pa.int64())).as_py()
                low_us, high_us = ends["min"], ends["max"]
            elif batch.num_rows <= RANGES_MAX and is_plain(column.type):
                domains[name] = listed(column.to_pylist())
        return cls.of((), low_us, high_us, domains)

    def within(self, low_us: int | None, high_us: int | None) -> Needed:
        """The same in a span of time only."""
        low = self.low_us if low_us is None else max(self.low_us, low_us)
        high = self.high_us if high_us is None else min(self.high_us, high_us)
        return replace(self, low_us=low, high_us=high)

    @property
    def is_nothing(self) -> bool:
        """Whether no row can matter."""
        return self.low_us > self.high_us or any(each.is_empty for each in self.domains.values())

    def domain(self, name: str) -> Domain:
        """The values of a column (in lower case) that rows must have to matter."""
        return self.domains.get(name, ANY)

    def before(self, form: ChangeForm) -> Needed:
        """What must be known of rows before changes that matter to know it after them: what these
        look at, and rows that they may bring in."""
        columns = self.columns
        if columns is not None:
            columns |= {name.lower() for name in form.reads}
        written = {name.lower() for name in form.writes}
        if not written & self.domains.keys():
            return self if columns == self.columns else replace(self, columns=columns)
        kept = {name: found for name, found in self.domains.items() if name not in written}
        return replace(self, columns=columns, domains=kept)


EVERYTHING = Needed()
NO_COLUMNS = Needed(frozenset())  # only which rows there are


def is_plain(kind: pa.DataType) -> bool:
    """Whether values of a type are compared as Python compares them."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind))
