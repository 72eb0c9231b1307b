"""Keys as small numbers: whose window a row belongs to, for ``newest``.

Keys are equal as IS NOT DISTINCT FROM has it. Columns of the usual types are looked up in the index
of dense states (``digests.index``), without DuckDB. Keys that it cannot hold (decimals, blobs, two
texts of one hash) are joined in DuckDB with those that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.digests.index import KeyIndex
from tidemill.types import SEQ, Column, quote

Run = Callable[[str, Mapping[str, pa.Table]], pa.Table]
Numbers = npt.NDArray[np.int64]
_CODE = "tm_code"
_INDEXED = frozenset(
    (
        *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"),
        *("UBIGINT", "BOOLEAN", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"),
        *("FLOAT", "DOUBLE", "VARCHAR"),
    )
)


class Codes(Protocol):
    def find(self, rows: pa.Table) -> Numbers:
        """The number of each row's key; keys that are new get the next ones, from zero."""
        ...


def codes_for(key: Sequence[Column], run: Run) -> Codes:
    if all(column.type.name in _INDEXED for column in key):
        return IndexedCodes(key)
    return JoinedCodes(key, run)


class IndexedCodes:
    def __init__(self, key: Sequence[Column]) -> None:
        self._names = [column.name for column in key]
        self._index = KeyIndex([column.type for column in key])

    def find(self, rows: pa.Table) -> Numbers:
        """Raises ``NotPackable``, after which other codes must be used."""
        columns = [rows.column(name) for name in self._names]
        return self._index.slots(columns, rows.num_rows).astype(np.int64, copy=False)


class JoinedCodes:
    """``run`` gives Arrow tables to DuckDB and takes exact ones back."""

    def __init__(self, key: Sequence[Column], run: Run) -> None:
        self._names = [quote(column.name) for column in key]
        self._run = run
        self._known: pa.Table | None = None

    def find(self, rows: pa.Table) -> Numbers:
        if not self._names:
            return np.zeros(rows.num_rows, np.int64)
        names = ", ".join(self._names)
        given = rows.select([name for name in rows.column_names if quote(name) in self._names])
        given = given.append_column(SEQ, rows.column(SEQ))
        self._add(f"SELECT DISTINCT {names} FROM tm_new", given)
        assert self._known is not None
        sources = {"tm_new": given, "tm_known": self._known}
        same = " AND ".join(f"n.{name} IS NOT DISTINCT FROM k.{name}" for name in self._names)
        found = self._run(
            f"SELECT k.{_CODE} FROM tm_new n JOIN tm_known k ON {same} ORDER BY n.{SEQ}", sources
        )
        codes = np.empty(rows.num_rows, np.int64)
        codes[np.argsort(rows.column(SEQ).to_numpy())] = found.column(0).to_numpy()
        return codes

    def _add(self, distinct: str, given: pa.Table) -> None:
        """Number the keys that are not known yet."""
        sources, count = {"tm_new": given}, 0
        if self._known is not None:
            names = ", ".join(self._names)
            sources["tm_known"], count = self._known, self._known.num_rows
            distinct = f"({distinct}) EXCEPT SELECT {names} FROM tm_known"
        new = self._run(
            f"SELECT *, {count} + row_number() OVER () - 1 AS {_CODE} FROM ({distinct})", sources
        )
        self._known = new if self._known is None else pa.concat_tables([self._known, new])
