"""DuckDB, as this room uses it: a protocol, since the engine stands above."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

import duckdb
import pyarrow as pa


class Lender(Protocol):
    """Who lends connections of DuckDB."""

    def lent(self, *, exact: bool) -> AbstractContextManager[duckdb.DuckDBPyConnection]: ...


class Engine(Lender, Protocol):
    """Who answers SQL over named Arrow tables as well."""

    def query(
        self,
        sql: str,
        params: Mapping[str, object],
        sources: Mapping[str, pa.Table],
        *,
        exact: bool = False,
    ) -> tuple[pa.Table, list[str]]: ...
