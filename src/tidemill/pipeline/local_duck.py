"""DuckDB in this process, as far as the pipeline asks it something outside of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

import duckdb
import pyarrow as pa


class LocalDuck(Protocol):
    """Safe to call from several threads. ``exact`` keeps every type as our files have it."""

    def query(
        self,
        sql: str,
        params: Mapping[str, object],
        sources: Mapping[str, pa.Table],
        *,
        exact: bool = False,
    ) -> tuple[pa.Table, list[str]]:
        """The rows of a query over named Arrow tables, and their SQL types."""
        ...

    def lent(self, *, exact: bool) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """A cursor for as long as the context lasts."""
        ...
