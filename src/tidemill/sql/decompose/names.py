"""The names that DuckDB gives to the columns of an answer: ``count_star()``, ``(k + 1)``.

DuckDB names a column without alias by its own printed form of the expression, so DuckDB's parser is
asked for it: a tree goes out as JSON and comes back as text. No table is needed for that.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache

import duckdb
from sqlglot import exp

from tidemill.config import DUCKDB_CLOSED
from tidemill.sql.decompose.plan import Refused, sql_of

_lock = threading.Lock()


def output_names(select: exp.Select, spelling: Mapping[str, str]) -> list[str]:
    """The name of each item of a select list, without stars; ``spelling`` is how tables write
    their columns."""
    windows: list[exp.Expression] = select.args.get("windows") or []
    items = [item for item in select.expressions if not is_star(item)]
    return [_output_name(item, windows, spelling) for item in items]


def is_star(item: exp.Expression) -> bool:
    return item.is_star or isinstance(item, exp.Columns)


def _output_name(
    item: exp.Expression, windows: Sequence[exp.Expression], spelling: Mapping[str, str]
) -> str:
    if isinstance(item, exp.Alias):
        return item.alias
    if isinstance(item, exp.Paren):
        return _output_name(item.this, windows, spelling)
    if isinstance(item, exp.Column):
        return spelling.get(item.name.lower(), item.name)
    alone = exp.Select(expressions=[item.copy()])
    if windows:
        alone.set("windows", [window.copy() for window in windows])
    return _printed(sql_of(alone))


@lru_cache(maxsize=1024)
def _printed(select: str) -> str:
    query = "SELECT json_deserialize_sql(json_serialize_sql($1))"
    try:
        with _lock:
            (row,) = _parser().execute(query, [select]).fetchall()
    except duckdb.Error as error:
        raise Refused(f"the name of a column is not known: {select}") from error
    return str(row[0]).removeprefix("SELECT ")


@lru_cache(maxsize=1)
def _parser() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={"threads": 1, **DUCKDB_CLOSED})
