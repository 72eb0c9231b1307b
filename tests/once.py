"""One change of a catalog as a transaction of its own: most tests make one at a time.

>>> once(catalog).create_table(new)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemill.catalog.commits import FileCommit, SeqRange
from tidemill.catalog.store import Catalog


class Once:
    """Has the methods of a ``Transaction``; ``commit_files`` takes the fields of its commit."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def change(*given: Any, **named: Any) -> Any:
            with self._catalog.transaction() as transaction:
                return getattr(transaction, name)(*given, **named)

        return change

    def commit_files(self, table_id: int, *given: Any, **named: Any) -> Any:
        with self._catalog.transaction() as change:
            return change.commit_files(table_id, file_commit(*given, **named))


def file_commit(*given: Any, reserved: Any = (), **named: Any) -> FileCommit:
    """A commit whose ranges of numbers are pairs."""
    return FileCommit(*given, reserved=[SeqRange(*pair) for pair in reserved], **named)


def once(catalog: Catalog) -> Once:
    return Once(catalog)
