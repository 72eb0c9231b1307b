"""How columns stand in Parquet files, exactly.

DuckDB writes almost every type so that it reads the same values and the same type again. Three
kinds are different:

- HUGEINT and UHUGEINT would become DOUBLE, and INTERVAL refuses what is negative: all three are
  stored as text, which is exact, and which outsiders can read;
- ARRAY comes back as LIST, and is cast.

Nested types are stored as the same nesting of what their parts are stored as. A column that needs
no cast is read as it stands, so that filters on it reach the statistics of row groups.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import duckdb

from tidemill.types import Column, quote

_AS_TEXT = frozenset({"hugeint", "uhugeint", "interval"})


def stored_expression(column: Column, name_sql: str) -> str:
    """SQL that gives a column's values as they are stored.

    >>> from tidemill.types import SqlType
    >>> stored_expression(Column("a", SqlType.parse("hugeint[]")), "a")
    'CAST(a AS VARCHAR[])'
    """
    stored = stored_type(column.type.name)
    return name_sql if stored == column.type.name else f"CAST({name_sql} AS {stored})"


def read_expression(column: Column, name_sql: str) -> str:
    """SQL that gives a column's values from what is stored."""
    if is_plain(column.type.name):
        return name_sql
    return f"CAST({name_sql} AS {column.type.name})"


@lru_cache(maxsize=1_000)
def stored_type(name: str) -> str:
    """The SQL type as which a type is stored.

    >>> stored_type("STRUCT(a INTERVAL, b UHUGEINT[2])")
    'STRUCT("a" VARCHAR, "b" VARCHAR[2])'
    """
    duck = duckdb.sqltype(name)
    return _stored(duck) if _any_part(duck, _AS_TEXT) else name


@lru_cache(maxsize=1_000)
def is_plain(name: str) -> bool:
    """Whether Parquet gives back the very type that was stored."""
    return not _any_part(duckdb.sqltype(name), _AS_TEXT | {"array"})


def _any_part(duck: Any, kinds: frozenset[str]) -> bool:
    return duck.id in kinds or any(_any_part(part, kinds) for _, part in _parts(duck))


def _parts(duck: Any) -> list[tuple[str, Any]]:
    if duck.id not in ("list", "array", "struct", "map"):
        return []
    return [(name, part) for name, part in duck.children if name != "size" or duck.id != "array"]


def _stored(duck: Any) -> str:
    if duck.id in _AS_TEXT:
        return "VARCHAR"
    parts = _parts(duck)
    if duck.id == "struct":
        return f"STRUCT({', '.join(f'{quote(name)} {_stored(part)}' for name, part in parts)})"
    if duck.id == "map":
        return f"MAP({', '.join(_stored(part) for _, part in parts)})"
    if duck.id == "array":
        return f"{_stored(parts[0][1])}[{dict(duck.children)['size']}]"
    return f"{_stored(parts[0][1])}[]" if duck.id == "list" else str(duck)
